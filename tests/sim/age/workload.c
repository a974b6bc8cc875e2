/* workload.c: what a program of any age does: memory, kernels, streams, a capture; prints what it
 * saw.
 *
 *   workload dlsym|get-proc    how it finds the calls of the driver, whatever age that has */
#define _GNU_SOURCE
#define __CUDA_API_VERSION_INTERNAL 1
#include <cuda.h>

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"
#include "tests/common/check.h"

static void *driver;
static CUresult (*get_proc)(const char *, void **, int, cuuint64_t);
static CUresult (*get_proc_v2)(const char *, void **, int, cuuint64_t,
                               CUdriverProcAddressQueryResult *);
static int version; /* the newest whose calls look as here */

static void *find(const char *symbol, const char *base)
{
    CUdriverProcAddressQueryResult status;
    void *function = NULL;

    if (get_proc_v2)
        OK(get_proc_v2(base, &function, version, 0, &status));
    else if (get_proc)
        OK(get_proc(base, &function, version, 0));
    else
        function = dlsym(driver, symbol);
    if (!function) {
        printf("no %s\n", symbol);
        exit(1);
    }
    return function;
}

/* Each is asked for every time, under its base name or, by dlsym, under its full one. */
#define D(symbol, base) ((__typeof__(&symbol))find(#symbol, #base))

static void *(*kernel_access)(CUdeviceptr p, size_t bytes, bool write);

static void kernel_fill(const struct sim_kernel_call *call)
{
    uint32_t n = *(uint32_t *)call->args[1], value = *(uint32_t *)call->args[2];
    uint32_t *words = kernel_access(*(CUdeviceptr *)call->args[0], (size_t)n * 4, true);

    for (uint32_t i = 0; words && i < n; i++)
        words[i] = value + i;
}

static CUfunction fill;
static CUstream streams[3];
static uint64_t sum = 14695981039346656037ull;

static void launch(CUstream stream, CUdeviceptr p, uint32_t n, uint32_t value)
{
    void *args[] = {&p, &n, &value};

    OK(D(cuLaunchKernel, cuLaunchKernel)(fill, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
}

static void look(CUdeviceptr p, size_t words)
{
    uint32_t *seen = calloc(words, 4);

    OK(D(cuMemcpyDtoH_v2, cuMemcpyDtoH)(seen, p, words * 4));
    for (size_t i = 0; i < words; i++)
        sum = (sum ^ seen[i]) * 1099511628211ull;
    free(seen);
}

static void open_device(void)
{
    static const size_t sizes[] = {8, 4, 4};
    __typeof__(&sim_register_kernel) reg =
        (__typeof__(&sim_register_kernel))dlsym(driver, "sim_register_kernel");
    CUcontext ctx;
    CUmodule module;

    kernel_access = (__typeof__(&sim_kernel_access))dlsym(driver, "sim_kernel_access");
    reg("fill", kernel_fill, 3, sizes);
    OK(D(cuInit, cuInit)(0));
    OK(D(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain)(&ctx, 0));
    OK(D(cuCtxSetCurrent, cuCtxSetCurrent)(ctx));
    OK(D(cuModuleLoadData, cuModuleLoadData)(&module, "any"));
    OK(D(cuModuleGetFunction, cuModuleGetFunction)(&fill, module, "fill"));
    for (unsigned i = 1; i < 3; i++)
        OK(D(cuStreamCreate, cuStreamCreate)(&streams[i], i - 1));
}

/* The same sizes again and again, freed under work on every stream. */
static void allocate_and_free(void)
{
    CUdeviceptr kept[4] = {0};

    for (unsigned i = 0; i < 60; i++) {
        CUdeviceptr *p = &kept[i % 4];
        size_t words = (size_t)64 << i % 4 * 5;

        if (*p) {
            look(*p, 64);
            launch(streams[i % 3], *p, 64, i);
            OK(D(cuMemFree_v2, cuMemFree)(*p));
        }
        OK(D(cuMemAlloc_v2, cuMemAlloc)(p, words * 4));
        launch(streams[(i + 1) % 3], *p, (uint32_t)words, i * 7);
        OK(D(cuStreamSynchronize, cuStreamSynchronize)(streams[(i + 1) % 3]));
    }
    for (unsigned i = 0; i < 4; i++)
        OK(D(cuMemFree_v2, cuMemFree)(kept[i]));
}

static void ask(void)
{
    CUdeviceptr p, base, managed;
    CUcontext ctx = NULL;
    size_t pitch, size;

    OK(D(cuMemAllocPitch_v2, cuMemAllocPitch)(&p, &pitch, 700, 5, 4));
    OK(D(cuMemGetAddressRange_v2, cuMemGetAddressRange)(&base, &size, p + 5));
    OK(D(cuPointerGetAttribute, cuPointerGetAttribute)(&ctx, CU_POINTER_ATTRIBUTE_CONTEXT, p));
    printf("pitch %zu, base %s, size %zu, context %s\n", pitch, base == p ? "right" : "wrong", size,
           ctx ? "set" : "null");
    OK(D(cuMemFree_v2, cuMemFree)(p));
    printf("free again: %d\n", (int)D(cuMemFree_v2, cuMemFree)(p));
    OK(D(cuMemAllocManaged, cuMemAllocManaged)(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
    launch(streams[2], managed, 16, 3);
    OK(D(cuCtxSynchronize, cuCtxSynchronize)());
    printf("managed %u\n", ((uint32_t *)(uintptr_t)managed)[5]);
    OK(D(cuMemFree_v2, cuMemFree)(managed));
    OK(D(cuMemAllocAsync, cuMemAllocAsync)(&p, 4096, streams[2]));
    launch(streams[2], p, 16, 9);
    OK(D(cuMemFreeAsync, cuMemFreeAsync)(p, streams[2]));
}

static void capture(void)
{
    CUdeviceptr p, beside = 0;
    CUgraphExec exec;
    CUgraph graph;
    CUresult code;

    OK(D(cuMemAlloc_v2, cuMemAlloc)(&p, 4096));
    OK(D(cuStreamBeginCapture_v2, cuStreamBeginCapture)(streams[2],
                                                        CU_STREAM_CAPTURE_MODE_RELAXED));
    launch(streams[2], p, 64, 1000);
    code = D(cuMemAlloc_v2, cuMemAlloc)(&beside, 8192);
    OK(D(cuStreamEndCapture, cuStreamEndCapture)(streams[2], &graph));
    OK(D(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags)(&exec, graph, 0));
    OK(D(cuGraphLaunch, cuGraphLaunch)(exec, streams[2]));
    OK(D(cuStreamSynchronize, cuStreamSynchronize)(streams[2]));
    look(p, 64);
    OK(D(cuMemFree_v2, cuMemFree)(beside));
    OK(D(cuMemFree_v2, cuMemFree)(p));
    printf("beside a capture: %d\n", (int)code);
}

int main(int argc, char **argv)
{
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (argc != 2 || !driver)
        return 2;
    OK(((CUresult(*)(int *))dlsym(driver, "cuDriverGetVersion"))(&version));
    if (!strcmp(argv[1], "get-proc")) {
        *(void **)&get_proc_v2 = dlsym(driver, "cuGetProcAddress_v2");
        *(void **)&get_proc = dlsym(driver, "cuGetProcAddress");
        printf("by %s\n", get_proc_v2 ? "cuGetProcAddress_v2" : "cuGetProcAddress");
    }
    version = version < 11040 ? version : 11040;
    open_device();
    allocate_and_free();
    ask();
    capture();
    printf("%016llx\n", (unsigned long long)sum);
    return 0;
}
