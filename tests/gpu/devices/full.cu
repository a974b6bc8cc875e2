/*
 * A card that was full: when some of it has been freed, a kernel finds the memory for its stack.
 * What the driver says of each step is printed.
 */
#include "tests/gpu/replay/graph.h"

static const size_t piece_bytes = 256 * MIB;
static const size_t n_freed = 24; /* 6 GiB */

__global__ void deep(unsigned *word, unsigned depth)
{
    *word = descend(depth, 1);
}

int main()
{
    std::vector<unsigned *> pieces;
    unsigned *piece, word = 0;

    OK(cudaFree(nullptr)); /* makes the context */
    while (cudaMalloc(&piece, piece_bytes) == cudaSuccess)
        pieces.push_back(piece);
    (void)cudaGetLastError();
    OK(cudaFree(pieces.back()));
    OK(cudaMalloc(&pieces.back(), piece_bytes));
    for (size_t i = 0; i < n_freed; i++) {
        OK(cudaFree(pieces.back()));
        pieces.pop_back();
    }
    /* For all threads that run at once: 2.1 GiB on a card with 132 multiprocessors. */
    printf("stack: %d\n", cudaDeviceSetLimit(cudaLimitStackSize, 8 * KIB));
    deep<<<1, 1>>>(pieces[0], 18);
    printf("launch: %d\n", cudaGetLastError());
    printf("wait: %d\n", cudaDeviceSynchronize());
    OK(cudaMemcpy(&word, pieces[0], sizeof word, cudaMemcpyDeviceToHost));
    printf("word: %08x\n", word);
    for (unsigned *one : pieces)
        OK(cudaFree(one));
    return 0;
}
