/*
 * A launch that takes memory of the card for the local memory of its threads, some 6.5 GiB, after
 * the program has freed enough for it. What the driver says of it is printed, and what it computed.
 */
#include "tests/gpu/check.h"

#include <vector>

static const unsigned n_words = 6144; /* 24 KiB a thread */

__global__ void deep(unsigned *out, unsigned n)
{
    volatile unsigned words[n_words];
    unsigned sum = 0;

    for (unsigned i = 0; i < n; i++)
        words[(i * 97u + threadIdx.x) % n_words] = i;
    for (unsigned i = 0; i < n; i++)
        sum += words[(i * 31u) % n_words] & 1;
    if (threadIdx.x == 0)
        atomicAdd(out, sum ? 0u : 1u);
}

/* In turns, so that what is freed is kept from then on; all but 10 to 11 GiB of the card stay
 * taken. */
static void churn(void)
{
    std::vector<void *> blocks(8);
    size_t free_bytes, total_bytes;

    for (int turn = 0; turn < 3; turn++) {
        OK(cudaMalloc(&blocks[0], GIB));
        OK(cudaFree(blocks[0]));
    }
    OK(cudaMemGetInfo(&free_bytes, &total_bytes));
    for (; free_bytes > 11 * GIB; free_bytes -= GIB)
        OK(cudaMalloc(&blocks[0], GIB));
    for (int turn = 0; turn < 3; turn++) {
        for (auto &block : blocks)
            OK(cudaMalloc(&block, GIB));
        for (auto &block : blocks)
            OK(cudaFree(block));
    }
}

int main(void)
{
    unsigned *out, wrong = 0;

    OK(cudaFree(0));
    OK(cudaMalloc(&out, sizeof *out));
    OK(cudaMemset(out, 0, sizeof *out));
    churn();
    deep<<<132 * 16, 128>>>(out, n_words);
    printf("launched: %d\n", cudaGetLastError());
    printf("waited: %d\n", cudaDeviceSynchronize());
    printf("copied: %d\n", cudaMemcpy(&wrong, out, sizeof wrong, cudaMemcpyDeviceToHost));
    printf("sums that are 0: %u\n", wrong);
    return 0;
}
