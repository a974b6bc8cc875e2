/* A driver-API program: module from a file, allocations of several sizes, streams, codes. */
#include "tests/gpu/lookup/driver.h"
#include "tests/gpu/check.h"

static CUmodule module;
static CUfunction scale;

static uint64_t iteration_trip(CUstream stream, unsigned n, unsigned factor)
{
    CUdeviceptr words;
    size_t bytes = n * sizeof(unsigned);
    unsigned *host = malloc(bytes);
    OK(DRV(cuMemAlloc)(&words, bytes));
    OK(DRV(cuMemsetD32Async)(words, 7, n, stream));
    void *args[] = {&words, &n, &factor};
    for (int i = 0; i < 3; i++)
        OK(DRV(cuLaunchKernel)(scale, (n + 255) / 256, 1, 1, 256, 1, 1, 0, stream, args, NULL));
    OK(DRV(cuStreamSynchronize)(stream));
    OK(DRV(cuMemcpyDtoH)(host, words, bytes));
    OK(DRV(cuMemFree)(words));
    uint64_t sum = 0;
    for (unsigned i = 0; i < n; i++)
        sum = sum * 1099511628211ull + host[i];
    free(host);
    return sum;
}

static void print_codes(void)
{
    CUdeviceptr p = 0, base = 0;
    size_t size = 0, pitch = 0;
    printf("alloc 0: %d\n", DRV(cuMemAlloc)(&p, 0));
    printf("alloc 1 PiB: %d\n", DRV(cuMemAlloc)(&p, (size_t)1 << 50));
    printf("free 0: %d\n", DRV(cuMemFree)(0));
    OK(DRV(cuMemAlloc)(&p, 1000003));
    printf("range of interior: %d", DRV(cuMemGetAddressRange)(&base, &size, p + 4096));
    printf(" base %d size %zu\n", base == p, size);
    printf("free interior: %d\n", DRV(cuMemFree)(p + 512));
    printf("free: %d\n", DRV(cuMemFree)(p));
    printf("free again: %d\n", DRV(cuMemFree)(p));
    printf("pitch: %d", DRV(cuMemAllocPitch)(&p, &pitch, 1000, 33, 4));
    printf(" %zu\n", pitch);
    printf("free pitch: %d\n", DRV(cuMemFree)(p));
    printf("alloc NULL result: %d\n", DRV(cuMemAlloc)(NULL, 64));
}

int main(int argc, char **argv)
{
    CUdevice device;
    CUcontext context;
    CUstream blocking, nonblocking;
    if (argc != 2) {
        fprintf(stderr, "usage: driver KERNELS.fatbin\n");
        return EXIT_UNUSABLE;
    }
    OK(DRV(cuInit)(0));
    OK(DRV(cuDeviceGet)(&device, 0));
    OK(DRV(cuDevicePrimaryCtxRetain)(&context, device));
    OK(DRV(cuCtxSetCurrent)(context));
    OK(DRV(cuModuleLoad)(&module, argv[1]));
    OK(DRV(cuModuleGetFunction)(&scale, module, "scale"));
    for (unsigned i = 0; i < 20; i++)
        printf("legacy %u: %016llx\n", i,
               (unsigned long long)iteration_trip(NULL, 1 + i * i * 997, i));
    OK(DRV(cuStreamCreate)(&blocking, CU_STREAM_DEFAULT));
    OK(DRV(cuStreamCreate)(&nonblocking, CU_STREAM_NON_BLOCKING));
    printf("blocking: %016llx\n", (unsigned long long)iteration_trip(blocking, 300000, 3));
    printf("non-blocking: %016llx\n", (unsigned long long)iteration_trip(nonblocking, 300000, 5));
    print_codes();
    OK(DRV(cuStreamDestroy)(nonblocking));
    OK(DRV(cuStreamDestroy)(blocking));
    OK(DRV(cuModuleUnload)(module));
    printf("release: %d\n", DRV(cuDevicePrimaryCtxRelease)(device));
    return 0;
}
