/* Every kind of call that takes memory, six times each, for rules to fail: one letter a call,
 * '.' or 'F' for out of memory, else the error's number. What failed once is there again when the
 * rule lets it pass, and computes. */
#include "tests/gpu/check.h"

#include <cuda.h>

#define TURNS 6

static char host_memory[1 << 16] __attribute__((aligned(4096)));
static cudaGraph_t graph;

static cudaError_t device_once(void)
{
    unsigned *p, word = 0;
    cudaError_t code = cudaMalloc(&p, 1 * MIB);
    if (code != cudaSuccess)
        return code;
    late_write<<<FEW_BLOCKS, THREADS>>>(p, MIB / sizeof *p, 7, 0);
    OK(cudaMemcpy(&word, p + MIB / sizeof *p - 1, sizeof word, cudaMemcpyDeviceToHost));
    OK(cudaFree(p));
    return word == 7 ? cudaSuccess : cudaErrorUnknown;
}

static cudaError_t pitch_once(void)
{
    void *p;
    size_t pitch;
    cudaError_t code = cudaMallocPitch(&p, &pitch, 1000, 16);
    if (code == cudaSuccess)
        OK(cudaFree(p));
    return code;
}

static cudaError_t async_once(void)
{
    void *p;
    cudaError_t code = cudaMallocAsync(&p, 1 * MIB, 0);
    if (code == cudaSuccess)
        OK(cudaFreeAsync(p, 0));
    return code;
}

static cudaError_t managed_once(void)
{
    void *p;
    cudaError_t code = cudaMallocManaged(&p, 1 * MIB);
    if (code == cudaSuccess)
        OK(cudaFree(p));
    return code;
}

static cudaError_t host_once(void)
{
    void *p;
    cudaError_t code = cudaMallocHost(&p, 1 * MIB);
    if (code == cudaSuccess)
        OK(cudaFreeHost(p));
    return code;
}

static cudaError_t register_once(void)
{
    cudaError_t code = cudaHostRegister(host_memory, sizeof host_memory, 0);
    if (code == cudaSuccess)
        OK(cudaHostUnregister(host_memory));
    return code;
}

static cudaError_t pool_once(void)
{
    cudaMemPoolProps properties = {};
    cudaMemPool_t pool;
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    cudaError_t code = cudaMemPoolCreate(&pool, &properties);
    if (code == cudaSuccess)
        OK(cudaMemPoolDestroy(pool));
    return code;
}

static cudaError_t graph_once(void)
{
    cudaGraphExec_t exec;
    cudaError_t code = cudaGraphInstantiate(&exec, graph, 0);
    if (code == cudaSuccess)
        OK(cudaGraphExecDestroy(exec));
    return code;
}

static void turns(const char *name, cudaError_t (*once)(void))
{
    printf("%s: ", name);
    for (int i = 0; i < TURNS; i++) {
        cudaError_t code = once();
        (void)cudaGetLastError();
        if (code == cudaSuccess)
            putchar('.');
        else if (code == cudaErrorMemoryAllocation)
            putchar('F');
        else
            printf("(%d)", (int)code);
    }
    putchar('\n');
}

int main()
{
    cudaGraphNode_t node;
    OK(cudaGraphCreate(&graph, 0));
    OK(cudaGraphAddEmptyNode(&node, graph, NULL, 0));
    turns("device", device_once);
    turns("pitch", pitch_once);
    turns("async", async_once);
    turns("managed", managed_once);
    turns("host", host_once);
    turns("register", register_once);
    turns("pool", pool_once);
    turns("graph", graph_once);
    OK(cudaGraphDestroy(graph));
    OK(cudaDeviceSynchronize());
    return 0;
}
