/* Copies in executable graphs that come to be of other memory: blocks of many sizes, allocated
 * before and after the program has allocated much, pinned and managed memory. One digit a change,
 * the runtime's code, and x where the bytes are wrong then. */
#include "tests/gpu/check.h"

#define BYTES 64
#define SIZES 4
enum { PINNED = 2 * SIZES, MANAGED, SCRATCH, BLOCKS };

static const char *const names[BLOCKS] = {
    "4 KiB",       "256 KiB",      "3 MiB",  "40 MiB",  "later 4 KiB", "later 256 KiB",
    "later 3 MiB", "later 40 MiB", "pinned", "managed", "scratch"};
static const size_t sizes[SIZES] = {4 * KIB, 256 * KIB, 3 * MIB, 40 * MIB};
static void *blocks[BLOCKS];
static cudaStream_t stream;

/* As a program does that has been running for a while. */
static void allocate_much(void)
{
    double end = now_s() + 0.02;

    while (now_s() < end) {
        void *p[SIZES];

        for (int i = 0; i < SIZES; i++)
            OK(cudaMalloc(&p[i], sizes[i]));
        OK(cudaMemsetAsync(p[0], 1, BYTES, stream));
        for (int i = 0; i < SIZES; i++)
            OK(cudaFree(p[i]));
    }
}

static void make_blocks(void)
{
    for (int i = 0; i < SIZES; i++)
        OK(cudaMalloc(&blocks[i], sizes[i]));
    allocate_much();
    for (int i = 0; i < SIZES; i++)
        OK(cudaMalloc(&blocks[SIZES + i], sizes[i]));
    OK(cudaMallocHost(&blocks[PINNED], BYTES));
    OK(cudaMallocManaged(&blocks[MANAGED], BYTES));
    OK(cudaMalloc(&blocks[SCRATCH], BYTES));
    for (int i = 0; i < BLOCKS; i++)
        OK(cudaMemset(blocks[i], i + 1, BYTES));
}

static cudaGraph_t graph_of(void *dst, const void *src, cudaMemcpyKind kind, cudaGraphNode_t *node)
{
    cudaGraph_t graph;

    OK(cudaGraphCreate(&graph, 0));
    OK(cudaGraphAddMemcpyNode1D(node, graph, NULL, 0, dst, src, BYTES, kind));
    return graph;
}

static char launched(cudaGraphExec_t exec, int dst, int src)
{
    unsigned char bytes[BYTES];

    OK(cudaMemset(blocks[dst], 0, BYTES));
    OK(cudaMemset(blocks[src], src + 1, BYTES));
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaMemcpy(bytes, blocks[dst], BYTES, cudaMemcpyDefault));
    OK(cudaMemset(blocks[dst], dst + 1, BYTES));
    return bytes[0] == src + 1 && bytes[BYTES - 1] == src + 1 ? '0' : 'x';
}

/* An executable of the first copy comes to have the second one: its node by itself, or all by an
 * update from another graph. */
static char change(int dst, int src, int new_dst, int new_src, cudaMemcpyKind kind, bool as_whole)
{
    cudaGraphNode_t node, other_node;
    cudaGraph_t graph = graph_of(blocks[dst], blocks[src], kind, &node);
    cudaGraphExec_t exec;
    cudaError_t error;
    char said;

    OK(cudaGraphInstantiate(&exec, graph, 0));
    if (as_whole) {
        cudaGraph_t other = graph_of(blocks[new_dst], blocks[new_src], kind, &other_node);
        cudaGraphExecUpdateResultInfo info;

        error = cudaGraphExecUpdate(exec, other, &info);
        OK(cudaGraphDestroy(other));
    } else {
        error = cudaGraphExecMemcpyNodeSetParams1D(exec, node, blocks[new_dst], blocks[new_src],
                                                   BYTES, kind);
    }
    (void)cudaGetLastError();
    said = error == cudaSuccess ? launched(exec, new_dst, new_src)
                                : (char)(error == cudaErrorInvalidValue ? '1' : '9');
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
    return said;
}

/* A line for each kind of memory that one side of the copy is of at first. */
static void changes(cudaMemcpyKind kind, bool is_source, bool as_whole)
{
    for (int first = 0; first < SCRATCH; first++) {
        char said[SCRATCH + 1] = {0};

        for (int next = 0; next < SCRATCH; next++)
            said[next] = is_source ? change(SCRATCH, first, SCRATCH, next, kind, as_whole)
                                   : change(first, SCRATCH, next, SCRATCH, kind, as_whole);
        printf("%s, %s, %s %s: %s\n", kind == cudaMemcpyDefault ? "unified" : "device",
               as_whole ? "as a whole" : "the node", is_source ? "from" : "to", names[first], said);
    }
}

int main(void)
{
    OK(cudaStreamCreate(&stream));
    make_blocks();
    for (int i = 0; i < 8; i++)
        changes(i & 1 ? cudaMemcpyDefault : cudaMemcpyDeviceToDevice, i & 2, i & 4);
    return 0;
}
