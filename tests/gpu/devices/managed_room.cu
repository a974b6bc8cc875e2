/*
 * Managed memory of the program's own, 80 % of what is free, after it has freed as much device
 * memory: how fast does a kernel read and write it, once it lies there? Where it has no room, its
 * pages come and go. `managed_room [prefetch]`: brought there by a prefetch, else by the first
 * kernel.
 */
#include "tests/gpu/check.h"

#include <vector>

__global__ void touch(uint4 *words, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += gridDim.x * (size_t)blockDim.x) {
        uint4 word = words[i];
        word.x++;
        words[i] = word;
    }
}

int main(int argc, char **argv)
{
    cudaMemLocation here = {};
    size_t free_bytes, total_bytes;
    double best = 0;
    uint4 *words;

    OK(cudaFree(0));
    OK(cudaMemGetInfo(&free_bytes, &total_bytes));
    std::vector<void *> blocks(free_bytes / GIB * 8 / 10);
    for (int turn = 0; turn < 20; turn++) {
        for (auto &block : blocks)
            OK(cudaMalloc(&block, GIB));
        for (auto &block : blocks)
            OK(cudaFree(block));
    }
    size_t bytes = free_bytes / 10 * 8;
    OK(cudaMallocManaged(&words, bytes));
    here.type = cudaMemLocationTypeDevice;
    if (argc > 1 && !strcmp(argv[1], "prefetch"))
        OK(cudaMemPrefetchAsync(words, bytes, here, 0, 0));
    OK(cudaDeviceSynchronize());
    for (int pass = 0; pass < 4; pass++) {
        double began = now_s(), rate;
        touch<<<1056, 256>>>(words, bytes / sizeof *words);
        OK(cudaDeviceSynchronize());
        rate = 2e-9 * (double)bytes / (now_s() - began);
        if (pass && rate > best)
            best = rate;
    }
    printf("managed_gb_per_s %.0f\n", best);
    return 0;
}
