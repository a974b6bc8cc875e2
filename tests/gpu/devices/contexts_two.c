/*
 * Two GPUs, each with its primary context and one made by cuCtxCreate: copies between all of them,
 * memory freed from another device's context while it is in use, peer access of created contexts,
 * and their destruction with live memory. Skips with one GPU.
 */
#include "tests/gpu/check.h"

#include <cuda.h>

enum { PRIMARY_0, CREATED_0, PRIMARY_1, CREATED_1, N_CONTEXTS };
static const char *const names[] = {"primary 0", "created 0", "primary 1", "created 1"};
static CUcontext contexts[N_CONTEXTS];
static CUfunction scale[N_CONTEXTS], late_set[N_CONTEXTS];

static const unsigned n = 1 << 20;

static void use(int context)
{
    OK(cuCtxSetCurrent(contexts[context]));
}

static void make(int context, const char *kernels)
{
    CUdevice device;
    CUmodule module;
    OK(cuDeviceGet(&device, context / 2));
    if (context % 2 == 0)
        OK(cuDevicePrimaryCtxRetain(&contexts[context], device));
    else
#if CUDA_VERSION >= 13000
        OK(cuCtxCreate(&contexts[context], NULL, 0, device));
#else
        OK(cuCtxCreate(&contexts[context], 0, device));
#endif
    use(context);
    OK(cuModuleLoad(&module, kernels));
    OK(cuModuleGetFunction(&scale[context], module, "scale"));
    OK(cuModuleGetFunction(&late_set[context], module, "late_set"));
}

static CUdeviceptr take(int context, unsigned value)
{
    CUdeviceptr p;
    use(context);
    OK(cuMemAlloc(&p, n * sizeof(unsigned)));
    OK(cuMemsetD32(p, value, n));
    OK(cuCtxSynchronize());
    return p;
}

static size_t wrong(CUdeviceptr p, unsigned first, unsigned step)
{
    size_t n_wrong = 0;
    unsigned *back = malloc(n * sizeof *back);
    OK(cuMemcpyDtoH(back, p, n * sizeof *back));
    for (unsigned i = 0; i < n; i++)
        n_wrong += back[i] != first + step * i;
    free(back);
    return n_wrong;
}

/* From every context to every other, freed while a third is current. */
static void copies(const char *when)
{
    for (int from = 0; from < N_CONTEXTS; from++)
        for (int to = 0; to < N_CONTEXTS; to++) {
            CUdeviceptr a = take(from, 100 + (unsigned)from), b = take(to, 0);
            CUresult code = cuMemcpyPeer(b, contexts[to], a, contexts[from], n * sizeof(unsigned));
            OK(cuCtxSynchronize());
            printf("%s, %s to %s: %d, %zu wrong", when, names[from], names[to], code,
                   wrong(b, 100 + (unsigned)from, 0));
            use((to + 1) % N_CONTEXTS);
            printf(", free %d", cuMemFree(a));
            printf(" %d\n", cuMemFree(b));
        }
}

/* A kernel of `owner` still writes what is freed while `other` is current. */
static void free_from(int owner, int other)
{
    CUstream writer, next;
    unsigned words = n, old = 0xdeadbeefu;
    unsigned long long ns = 60 * 1000 * 1000;
    CUdeviceptr p = take(owner, 0), q;
    void *args[] = {&p, &words, &old, &ns};
    OK(cuStreamCreate(&writer, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&next, CU_STREAM_NON_BLOCKING));
    OK(cuLaunchKernel(late_set[owner], 32, 1, 1, 256, 1, 1, 0, writer, args, NULL));
    use(other);
    printf("%s's busy memory freed in %s: %d", names[owner], names[other], cuMemFree(p));
    use(owner);
    OK(cuMemAlloc(&q, n * sizeof(unsigned)));
    OK(cuMemsetD32Async(q, 7, n, next));
    OK(cuCtxSynchronize());
    printf(", %zu wrong\n", wrong(q, 7, 0));
    OK(cuMemFree(q));
    OK(cuStreamDestroy(writer));
    OK(cuStreamDestroy(next));
}

/* Kernels of device 0's created context on memory of device 1's, from before and from after. */
static void peer_access(void)
{
    unsigned words = n, factor = 5;
    CUdeviceptr before = take(CREATED_1, 1);
    use(CREATED_0);
    printf("enable: %d", cuCtxEnablePeerAccess(contexts[CREATED_1], 0));
    printf(", again: %d\n", cuCtxEnablePeerAccess(contexts[CREATED_1], 0));
    CUdeviceptr after = take(CREATED_1, 1), both[] = {before, after};
    for (int i = 0; i < 2; i++) {
        void *args[] = {&both[i], &words, &factor};
        use(CREATED_0);
        CUresult code =
            cuLaunchKernel(scale[CREATED_0], n / 256, 1, 1, 256, 1, 1, 0, NULL, args, NULL);
        printf("kernel on the other's memory: %d", code);
        printf(" %d", cuCtxSynchronize());
        use(CREATED_1);
        printf(", %zu wrong\n", wrong(both[i], factor, 1));
    }
    copies("enabled");
    use(CREATED_0);
    printf("disable: %d", cuCtxDisablePeerAccess(contexts[CREATED_1]));
    printf(", again: %d\n", cuCtxDisablePeerAccess(contexts[CREATED_1]));
    printf("free: %d", cuMemFree(before));
    printf(" %d\n", cuMemFree(after));
}

static void destroy(int context)
{
    CUdeviceptr left = take(context, 3);
    use(context ^ 1);
    printf("destroy %s: %d", names[context], cuCtxDestroy(contexts[context]));
    printf(", free of what it left: %d\n", cuMemFree(left));
    for (unsigned iteration = 0; iteration < 3; iteration++) {
        CUdeviceptr p = take(context ^ 1, iteration);
        printf("afterwards: %zu wrong", wrong(p, iteration, 0));
        printf(", free %d\n", cuMemFree(p));
    }
}

int main(int argc, char **argv)
{
    int n_devices, can = 0;
    if (argc != 2) {
        fprintf(stderr, "usage: contexts_two KERNELS.fatbin\n");
        return EXIT_UNUSABLE;
    }
    OK(cuInit(0));
    OK(cuDeviceGetCount(&n_devices));
    if (n_devices > 1)
        OK(cuDeviceCanAccessPeer(&can, 0, 1));
    if (!can)
        return 77;
    for (int i = 0; i < N_CONTEXTS; i++)
        make(i, argv[1]);
    copies("not enabled");
    free_from(PRIMARY_0, PRIMARY_1);
    free_from(CREATED_0, CREATED_1);
    free_from(CREATED_1, PRIMARY_0);
    peer_access();
    destroy(CREATED_0);
    destroy(CREATED_1);
    return 0;
}
