/* For the programs about graph replay: kernels whose result depends on every parameter and on their
 * order, and graphs made of nodes by hand. */
#ifndef ALLOGRAFT_TESTS_GPU_GRAPH_H
#define ALLOGRAFT_TESTS_GPU_GRAPH_H

#include "tests/gpu/check.h"

#include <algorithm>
#include <cuda.h>
#include <vector>

/* As short as a kernel can be. */
__global__ void chain(unsigned *words, unsigned a, unsigned b)
{
    words[0] = (words[0] ^ a) * 16777619u + b;
}

__global__ void slow(unsigned *words, unsigned a, unsigned long long ns)
{
    spin_ns(ns);
    words[0] = (words[0] ^ a) * 16777619u;
}

/* Takes 344 bytes of stack (ptxas -v) for each of `depth`, and for the last. */
__device__ __noinline__ unsigned descend(unsigned depth, unsigned seed)
{
    volatile unsigned room[64];
    for (unsigned i = 0; i < 64; i++)
        room[i] = seed + i;
    unsigned below = depth ? descend(depth - 1, seed * 3 + 1) : 0;
    return below * 5 + room[depth % 64];
}

/* What `chain` leaves behind, for the host to compare with. */
static inline unsigned chained(unsigned word, unsigned a, unsigned b)
{
    return (word ^ a) * 16777619u + b;
}

static inline CUfunction function_of(const void *kernel)
{
    cudaFunction_t function;
    OK(cudaGetFuncBySymbol(&function, kernel));
    return function;
}

static inline double median(std::vector<double> values)
{
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

/* Microseconds of the median of n calls. */
template <class F> static double median_us(int n, F call)
{
    std::vector<double> us;
    for (int i = 0; i < n; i++) {
        double start = now_s();
        call();
        us.push_back(1e6 * (now_s() - start));
    }
    return median(us);
}

/* A straight chain of nodes and its executable graph. */
struct straight {
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    std::vector<CUgraphNode> nodes;

    straight()
    {
        OK(cuGraphCreate(&graph, 0));
    }
    straight(const straight &) = delete;
    ~straight()
    {
        if (exec)
            (void)cuGraphExecDestroy(exec);
        (void)cuGraphDestroy(graph);
    }
    size_t n_before(void) const
    {
        return nodes.empty() ? 0 : 1;
    }
    const CUgraphNode *before(void) const
    {
        return nodes.empty() ? NULL : &nodes.back();
    }
    CUresult kernel(CUfunction function, void **params, unsigned blocks = 1, unsigned threads = 1)
    {
        CUDA_KERNEL_NODE_PARAMS p = kernel_params(function, params, blocks, threads);
        CUgraphNode node;
        CUresult code = cuGraphAddKernelNode(&node, graph, before(), n_before(), &p);
        return added(code, node);
    }
    CUresult record(CUevent event)
    {
        CUgraphNode node;
        CUresult code = cuGraphAddEventRecordNode(&node, graph, before(), n_before(), event);
        return added(code, node);
    }
    CUresult set(size_t i, CUfunction function, void **params, unsigned blocks = 1,
                 unsigned threads = 1)
    {
        CUDA_KERNEL_NODE_PARAMS p = kernel_params(function, params, blocks, threads);
        return cuGraphExecKernelNodeSetParams(exec, nodes[i], &p);
    }
    CUresult finish(void)
    {
        return cuGraphInstantiateWithFlags(&exec, graph, 0);
    }

    static CUDA_KERNEL_NODE_PARAMS kernel_params(CUfunction function, void **params,
                                                 unsigned blocks = 1, unsigned threads = 1)
    {
        CUDA_KERNEL_NODE_PARAMS p = {};
        p.func = function;
        p.gridDimX = blocks;
        p.blockDimX = threads;
        p.gridDimY = p.gridDimZ = p.blockDimY = p.blockDimZ = 1;
        p.kernelParams = params;
        return p;
    }
    CUresult added(CUresult code, CUgraphNode node)
    {
        if (code == CUDA_SUCCESS)
            nodes.push_back(node);
        return code;
    }
};

#endif
