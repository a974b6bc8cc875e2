/*
 * Which device is which: takes 10 MiB on the first visible device, 20 on the second and so on,
 * computes on each from one thread and frees everything on the last device. Prints the devices' bus
 * numbers in the order the program sees them, and sums.
 */
#include "tests/gpu/check.h"

#include <vector>

__global__ void count(unsigned *p, size_t n, unsigned from)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += gridDim.x * (size_t)blockDim.x)
        p[i] = from + (unsigned)i;
}

int main()
{
    int n_devices;
    std::vector<unsigned *> all;
    OK(cudaGetDeviceCount(&n_devices));
    for (int device = 0; device < n_devices; device++) {
        const size_t n = (size_t)(device + 1) * 10 * MIB / 4;
        cudaDeviceProp properties;
        cudaPointerAttributes attributes;
        unsigned *p, last;
        OK(cudaSetDevice(device));
        OK(cudaGetDeviceProperties(&properties, device));
        OK(cudaMalloc(&p, n * sizeof *p));
        count<<<64, 256>>>(p, n, (unsigned)device * 1000);
        OK(cudaGetLastError());
        OK(cudaMemcpy(&last, p + n - 1, sizeof last, cudaMemcpyDeviceToHost));
        OK(cudaPointerGetAttributes(&attributes, p));
        printf("device %d: bus %d, memory on device %d, last word %u\n", device,
               properties.pciBusID, attributes.device, last);
        all.push_back(p);
    }
    for (unsigned *p : all)
        printf("free: %s\n", cudaGetErrorName(cudaFree(p)));
    return 0;
}
