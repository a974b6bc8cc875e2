/* Kernels that fill, read and change blocks, each word by a rule: programs that have more memory
 * than they are given share them. */
#ifndef ALLOGRAFT_TESTS_GPU_PAGING_KERNELS_H
#define ALLOGRAFT_TESTS_GPU_PAGING_KERNELS_H

#include <cstddef>

__global__ void fill(uint4 *to, size_t n, unsigned value)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += gridDim.x * (size_t)blockDim.x)
        to[i] = make_uint4(value, (unsigned)i, value ^ (unsigned)i, value + (unsigned)i);
}

/* The order of words counts: each is weighted with its place. */
__global__ void read_all(const uint4 *words, size_t n, unsigned long long *ret_sum)
{
    unsigned long long s = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += gridDim.x * (size_t)blockDim.x) {
        uint4 w = words[i];
        s += (w.x + 3ull * w.y + 5ull * w.z + 7ull * w.w) * (2 * i + 1);
    }
    atomicAdd(ret_sum, s);
}

__global__ void mix(uint4 *words, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += gridDim.x * (size_t)blockDim.x) {
        uint4 w = words[i];
        words[i] = make_uint4(w.x * 3 + w.w, w.y ^ w.x, w.z + w.y, w.w - w.z);
    }
}

/* The address of the block stands in memory. */
__global__ void mix_hidden(uint4 *const *table, int i, size_t n)
{
    uint4 *words = table[i];
    for (size_t j = blockIdx.x * (size_t)blockDim.x + threadIdx.x; j < n;
         j += gridDim.x * (size_t)blockDim.x)
        words[j].x += words[j].y;
}

#endif
