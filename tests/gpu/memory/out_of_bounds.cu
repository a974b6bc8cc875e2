/* Deliberately wrong, for compute-sanitizer: a kernel writes past the end of 3 MiB. */
#include "tests/gpu/check.h"

__global__ void write_at(unsigned *p, size_t word)
{
    p[word] = 1;
}

int main()
{
    unsigned *p;
    OK(cudaMalloc(&p, 3 * MIB));
    write_at<<<1, 1>>>(p, 3 * MIB / sizeof *p + 1);
    printf("%s\n", cudaGetErrorName(cudaDeviceSynchronize()));
    return 0;
}
