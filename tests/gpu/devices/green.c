/* Green contexts: memory taken, used and freed inside one, beside it, and after it is gone. */
#include "tests/gpu/check.h"

#include <cuda.h>

#if CUDA_VERSION < 12050
int main(void)
{
    return 77;
}
#else
static CUcontext primary;

static size_t wrong_words(CUdeviceptr p, unsigned n, unsigned factor)
{
    size_t n_wrong = 0;
    unsigned *back = malloc(n * sizeof *back);
    OK(cuMemcpyDtoH(back, p, n * sizeof *back));
    for (unsigned i = 0; i < n; i++)
        n_wrong += back[i] != factor + i;
    free(back);
    return n_wrong;
}

/* words[i] = 1 * factor + i, on the stream. */
static void scale(CUfunction f, CUdeviceptr p, unsigned n, unsigned factor, CUstream s)
{
    void *args[] = {&p, &n, &factor};
    OK(cuMemsetD32Async(p, 1, n, s));
    OK(cuLaunchKernel(f, (n + 255) / 256, 1, 1, 256, 1, 1, 0, s, args, NULL));
}

static int make_green(CUdevice device, CUgreenCtx *ret_green)
{
    CUdevResource all, part, rest;
    CUdevResourceDesc desc;
    unsigned n_groups = 1;
    OK(cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM));
    OK(cuDevSmResourceSplitByCount(&part, &n_groups, &all, &rest, 0, 16));
    OK(cuDevResourceGenerateDesc(&desc, &part, 1));
    return cuGreenCtxCreate(ret_green, desc, device, CU_GREEN_CTX_DEFAULT_STREAM);
}

/* Memory that the green context took and freed while its kernels were at work. */
static void work_inside(CUgreenCtx green, CUfunction f)
{
    CUstream s;
    CUcontext owner = NULL;
    CUdeviceptr p, q;
    const unsigned n = 1 << 20;
    OK(cuGreenCtxStreamCreate(&s, green, CU_STREAM_NON_BLOCKING, 0));
    for (unsigned iteration = 0; iteration < 5; iteration++) {
        OK(cuMemAlloc(&p, n * sizeof(unsigned)));
        scale(f, p, n, 10 + iteration, s);
        OK(cuMemAlloc(&q, n * sizeof(unsigned)));
        scale(f, q, n, 20 + iteration, s);
        OK(cuStreamSynchronize(s));
        printf("inside: %zu and %zu wrong\n", wrong_words(p, n, 10 + iteration),
               wrong_words(q, n, 20 + iteration));
        scale(f, p, n, 30, s); /* still at work when it is freed */
        OK(cuMemFree(p));
        OK(cuMemFree(q));
    }
    OK(cuMemAlloc(&p, 4096));
    printf("owner: %d", cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, p));
    printf(" %s\n", owner == primary ? "primary" : owner ? "another" : "none");
    printf("free: %d\n", cuMemFree(p));
    printf("again: %d\n", cuMemFree(p));
    OK(cuStreamDestroy(s));
}

static void across(CUcontext inside, CUfunction f)
{
    CUdeviceptr p, q;
    const unsigned n = 1 << 18;
    OK(cuCtxSetCurrent(inside));
    OK(cuMemAlloc(&p, n * sizeof(unsigned)));
    OK(cuCtxSetCurrent(primary));
    OK(cuMemAlloc(&q, n * sizeof(unsigned)));
    scale(f, p, n, 5, NULL);
    scale(f, q, n, 6, NULL);
    OK(cuCtxSynchronize());
    printf("across: %zu and %zu wrong\n", wrong_words(p, n, 5), wrong_words(q, n, 6));
    printf("free of the green one's: %d\n", cuMemFree(p));
    OK(cuCtxSetCurrent(inside));
    printf("free of the primary's: %d\n", cuMemFree(q));
}

int main(int argc, char **argv)
{
    CUdevice device;
    CUgreenCtx green;
    CUcontext inside;
    CUmodule module;
    CUfunction f;
    CUdeviceptr left;
    if (argc != 2) {
        fprintf(stderr, "usage: green KERNELS.fatbin\n");
        return EXIT_UNUSABLE;
    }
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    OK(cuDevicePrimaryCtxRetain(&primary, device));
    OK(cuCtxSetCurrent(primary));
    OK(cuModuleLoad(&module, argv[1]));
    OK(cuModuleGetFunction(&f, module, "scale"));
    if (make_green(device, &green) != CUDA_SUCCESS)
        return 77;
    OK(cuCtxFromGreenCtx(&inside, green));
    OK(cuCtxSetCurrent(inside));
    work_inside(green, f);
    across(inside, f);
    OK(cuMemAlloc(&left, 1 << 20));
    OK(cuCtxSetCurrent(primary));
    printf("destroy: %d\n", cuGreenCtxDestroy(green));
    printf("free of what it left: %d\n", cuMemFree(left));
    OK(cuMemAlloc(&left, 1 << 20));
    scale(f, left, 1 << 18, 3, NULL);
    OK(cuCtxSynchronize());
    printf("afterwards: %zu wrong\n", wrong_words(left, 1 << 18, 3));
    printf("free: %d\n", cuMemFree(left));
    return 0;
}
#endif
