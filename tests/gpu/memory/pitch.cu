/* The pitch of 2D allocations for many widths, and the codes of impossible ones. */
#include "tests/gpu/check.h"

#include <cuda.h>

static void by_runtime(size_t width, size_t height)
{
    void *p = NULL;
    size_t pitch = 0;
    cudaError_t code = cudaMallocPitch(&p, &pitch, width, height);
    printf("%zu x %zu: %s %zu, freed %s\n", width, height, cudaGetErrorName(code), pitch,
           cudaGetErrorName(cudaFree(p)));
    (void)cudaGetLastError();
}

static void by_driver(size_t width, size_t height, unsigned element)
{
    CUdeviceptr p = 0, base = 0;
    size_t pitch = 0, size = 0;
    CUresult code = cuMemAllocPitch(&p, &pitch, width, height, element);
    printf("%zu x %zu of %u: %d", width, height, element, code);
    if (code == CUDA_SUCCESS) {
        printf(" pitch %zu, range %d", pitch, cuMemGetAddressRange(&base, &size, p));
        printf(" base %d size %zu", base == p, size);
    }
    printf(", freed %d\n", cuMemFree(p));
}

int main()
{
    for (size_t width = 1; width < 3000; width += 1 + width / 8)
        by_runtime(width, 3);
    for (size_t bits = 4; bits < 24; bits++)
        for (int d = -1; d <= 1; d++)
            by_runtime(((size_t)1 << bits) + d, 5);
    by_runtime(0, 5);
    by_runtime(5, 0);
    by_runtime(1 << 20, 1 << 30);
    by_runtime(SIZE_MAX / 2, 4);
    static const unsigned elements[] = {0, 1, 2, 3, 4, 8, 12, 16, 32};
    for (unsigned element : elements)
        for (size_t width : {(size_t)1, (size_t)100, (size_t)512, (size_t)4097, (size_t)0})
            by_driver(width, 7, element);
    by_driver(100, 0, 4);
    return 0;
}
