/*
 * A card that was full: what has been freed of it can be had again while a stream is captured, and
 * by a node of a graph, and a kernel finds the memory for its stack. What the driver says of each
 * step is printed.
 */
#include "tests/gpu/replay/graph.h"

static const size_t piece_bytes = 256 * MIB;
static const size_t n_freed = 24; /* 6 GiB */

__global__ void deep(unsigned *word, unsigned depth)
{
    *word = descend(depth, 1);
}

/* What many pieces were, in one, by a thread in relaxed mode: as PyTorch's allocator asks. */
static void ask_in_capture(cudaStreamCaptureMode mode, unsigned *word, size_t bytes)
{
    cudaStreamCaptureMode relaxed = cudaStreamCaptureModeRelaxed;
    cudaStream_t stream;
    cudaGraph_t graph = nullptr;
    char *large = nullptr;

    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaStreamBeginCapture(stream, mode));
    deep<<<1, 1, 0, stream>>>(word, 1);
    OK(cudaThreadExchangeStreamCaptureMode(&relaxed));
    printf("asked: %d\n", cudaMalloc(&large, bytes));
    OK(cudaThreadExchangeStreamCaptureMode(&relaxed));
    printf("ended: %d\n", cudaStreamEndCapture(stream, &graph));
    OK(cudaMemset(large, 7, bytes));
    OK(cudaFree(large));
    OK(cudaGraphDestroy(graph));
    OK(cudaStreamDestroy(stream));
}

/* The same for memory of a graph's own. */
static void ask_by_node(size_t bytes)
{
    cudaMemAllocNodeParams memory = {};
    cudaGraph_t graph;
    cudaGraphExec_t exec = nullptr;
    cudaGraphNode_t node, freed;

    memory.poolProps.allocType = cudaMemAllocationTypePinned;
    memory.poolProps.location.type = cudaMemLocationTypeDevice;
    memory.bytesize = bytes;
    OK(cudaGraphCreate(&graph, 0));
    printf("node: %d\n", cudaGraphAddMemAllocNode(&node, graph, nullptr, 0, &memory));
    printf("freed: %d\n", cudaGraphAddMemFreeNode(&freed, graph, &node, 1, memory.dptr));
    printf("instantiated: %d\n", cudaGraphInstantiate(&exec, graph, 0));
    printf("launched: %d\n", cudaGraphLaunch(exec, 0));
    OK(cudaDeviceSynchronize());
    if (exec)
        OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
    OK(cudaDeviceGraphMemTrim(0));
}

/* Of a card that is full but for some pieces, where others have been freed. */
static void ask_in_captures(std::vector<unsigned *> &pieces)
{
    size_t free_bytes, total_bytes;
    unsigned *piece;

    OK(cudaMemGetInfo(&free_bytes, &total_bytes));
    for (size_t left = free_bytes / piece_bytes; left > n_freed; left--) {
        OK(cudaMalloc(&piece, piece_bytes));
        pieces.push_back(piece);
    }
    for (int turn = 0; turn < 2; turn++) {
        for (size_t i = 0; i < n_freed; i++) {
            OK(cudaFree(pieces.back()));
            pieces.pop_back();
        }
        ask_in_capture(turn ? cudaStreamCaptureModeRelaxed : cudaStreamCaptureModeGlobal, pieces[0],
                       (2 * n_freed - 4) * piece_bytes);
        ask_by_node((2 * n_freed - 4) * piece_bytes);
        for (size_t i = 0; i < n_freed; i++) {
            OK(cudaMalloc(&piece, piece_bytes));
            pieces.push_back(piece);
        }
    }
}

int main()
{
    std::vector<unsigned *> pieces;
    unsigned *piece, word = 0;

    OK(cudaFree(nullptr)); /* makes the context */
    ask_in_captures(pieces);
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
