/* Two contexts on one device, no current context, destruction with live memory: codes and bytes. */
#include "tests/gpu/check.h"

#include <cuda.h>

static CUcontext A, B;

static CUcontext new_context(CUdevice device)
{
    CUcontext context;
#if CUDA_VERSION >= 13000
    OK(cuCtxCreate(&context, NULL, 0, device));
#else
    OK(cuCtxCreate(&context, 0, device));
#endif
    return context;
}

static void use(CUcontext context)
{
    OK(cuCtxSetCurrent(context));
}

/* Setting NULL would only uncover the context below. */
static void use_none(void)
{
    CUcontext context;
    while (cuCtxGetCurrent(&context) == CUDA_SUCCESS && context)
        OK(cuCtxPopCurrent(&context));
}

static CUdeviceptr take(size_t bytes)
{
    CUdeviceptr p;
    OK(cuMemAlloc(&p, bytes));
    return p;
}

/* Returns how many words differ from `wanted`. */
static size_t wrong_words(CUdeviceptr p, size_t n, unsigned wanted)
{
    size_t n_wrong = 0;
    unsigned *back = malloc(n * sizeof *back);
    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH(back, p, n * sizeof *back));
    for (size_t i = 0; i < n; i++)
        n_wrong += back[i] != wanted;
    free(back);
    return n_wrong;
}

static void codes(void)
{
    CUdeviceptr in_a, in_b, none;
    CUcontext owner = NULL;
    use(B);
    in_b = take(1 << 20);
    OK(cuMemsetD32(in_b, 5, 1 << 18));
    use(A);
    in_a = take(1 << 20);
    OK(cuMemsetD32(in_a, 6, 1 << 18));
    printf("context of A's: %d", cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, in_a));
    printf(" %s\n", owner == A ? "A" : owner == B ? "B" : "other");
    printf("context of B's: %d", cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, in_b));
    printf(" %s\n", owner == A ? "A" : owner == B ? "B" : "other");
    printf("copy A to B: %d\n", cuMemcpyPeer(in_b, B, in_a, A, 1 << 19));
    use(B);
    printf("wrong in B: %zu\n", wrong_words(in_b, 1 << 17, 6));
    use(A);
    printf("free of B's in A: %d\n", cuMemFree(in_b));
    use_none();
    printf("alloc without context: %d\n", cuMemAlloc(&none, 1000));
    printf("free without context: %d\n", cuMemFree(in_a));
    use(A);
    printf("free in A: %d\n", cuMemFree(in_a));
    use(B);
    printf("free in B: %d\n", cuMemFree(in_b));
}

/* B is current when memory of A, which a kernel of A still writes, is freed. */
static void free_from_outside(const char *kernels)
{
    const unsigned n = 1 << 20, value = 0xdeadbeefu;
    unsigned words = n, old = value;
    unsigned long long ns = 60 * 1000 * 1000;
    CUmodule module;
    CUfunction late;
    CUstream writer, next;
    use(A);
    OK(cuModuleLoad(&module, kernels));
    OK(cuModuleGetFunction(&late, module, "late_set"));
    OK(cuStreamCreate(&writer, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&next, CU_STREAM_NON_BLOCKING));
    CUdeviceptr p = take(n * sizeof(unsigned));
    void *args[] = {&p, &words, &old, &ns};
    OK(cuLaunchKernel(late, 32, 1, 1, 256, 1, 1, 0, writer, args, NULL));
    use(B);
    printf("free of busy memory from B: %d\n", cuMemFree(p));
    use(A);
    CUdeviceptr q = take(n * sizeof(unsigned));
    OK(cuMemsetD32Async(q, 7, n, next));
    printf("wrong words: %zu\n", wrong_words(q, n, 7));
    OK(cuMemFree(q));
    OK(cuStreamDestroy(writer));
    OK(cuStreamDestroy(next));
}

static void destroy_with_memory(CUdevice device)
{
    size_t before, after, total;
    CUcontext c;
    use(A);
    OK(cuMemGetInfo(&before, &total));
    c = new_context(device);
    CUdeviceptr p = take((size_t)256 << 20), busy = take((size_t)256 << 20);
    OK(cuMemsetD8(p, 1, (size_t)256 << 20));
    OK(cuMemFree(busy));
    printf("destroy: %d\n", cuCtxDestroy(c));
    use(A);
    printf("free after destroy: %d\n", cuMemFree(p));
    OK(cuMemGetInfo(&after, &total));
    printf("memory back: %s\n", after + (32u << 20) >= before ? "yes" : "no");
}

static void goes_on(void)
{
    CUcontext popped;
    use(A);
    OK(cuCtxPushCurrent(B));
    CUdeviceptr q = take(4096);
    OK(cuMemsetD32(q, 9, 1024));
    printf("pushed: %zu wrong\n", wrong_words(q, 1024, 9));
    printf("free pushed: %d\n", cuMemFree(q));
    OK(cuCtxPopCurrent(&popped));
    CUdeviceptr p = take(4096);
    OK(cuMemsetD32(p, 8, 1024));
    printf("popped: %zu wrong\n", wrong_words(p, 1024, 8));
    printf("free popped: %d\n", cuMemFree(p));
}

int main(int argc, char **argv)
{
    CUdevice device;
    if (argc != 2) {
        fprintf(stderr, "usage: contexts KERNELS.fatbin\n");
        return EXIT_UNUSABLE;
    }
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    OK(cuDevicePrimaryCtxRetain(&A, device));
    use(A);
    OK(cuMemFree(take(1000)));
    B = new_context(device);
    codes();
    free_from_outside(argv[1]);
    destroy_with_memory(device);
    goes_on();
    use(B);
    printf("destroy B: %d\n", cuCtxDestroy(B));
    use(A);
    printf("release A: %d\n", cuDevicePrimaryCtxRelease(device));
    return 0;
}
