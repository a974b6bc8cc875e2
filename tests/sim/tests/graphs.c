/* graphs.c: graphs made by hand: nodes of each kind, updates and their limits, memory nodes. */
#define CUDA_ENABLE_DEPRECATED
#include "sim_test.h"

static struct test test;
static CUstream stream;
static CUdeviceptr p, q;

static CUDA_KERNEL_NODE_PARAMS kernel_params(CUfunction function, void **args)
{
    return (CUDA_KERNEL_NODE_PARAMS){.func = function,
                                     .gridDimX = 1,
                                     .gridDimY = 1,
                                     .gridDimZ = 1,
                                     .blockDimX = 1,
                                     .blockDimY = 1,
                                     .blockDimZ = 1,
                                     .kernelParams = args};
}

static void run(CUgraphExec exec)
{
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
}

static void count_up(void *data)
{
    ++*(unsigned *)data;
}

static CUDA_MEMCPY3D copy_params(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = src,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = dst,
                           .WidthInBytes = bytes,
                           .Height = 1,
                           .Depth = 1};
}

/* fill -> (add | memset q) -> copy, a host function and an event at the end. */
static void test_kinds(void)
{
    unsigned n = 4, one = 1, called = 0;
    void *args[] = {&p, &n, &one};
    CUDA_KERNEL_NODE_PARAMS fill = kernel_params(test.fill, args),
                            add = kernel_params(test.add, args);
    CUDA_MEMSET_NODE_PARAMS set = {.dst = q, .value = 9, .elementSize = 4, .width = 8, .height = 1};
    CUDA_HOST_NODE_PARAMS host = {count_up, &called};
    CUDA_MEMCPY3D copy = copy_params(q, p, 16);
    CUgraphNode nodes[6], middle[2];
    CUgraph graph;
    CUgraphExec exec;
    CUevent event;
    size_t n_nodes = 0, n_edges = 0;

    OK(cuEventCreate(&event, 0));
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddKernelNode(&nodes[0], graph, NULL, 0, &fill));
    OK(cuGraphAddKernelNode(&nodes[1], graph, &nodes[0], 1, &add));
    OK(cuGraphAddMemsetNode(&nodes[2], graph, &nodes[0], 1, &set, test.ctx));
    memcpy(middle, &nodes[1], sizeof(middle));
    OK(cuGraphAddMemcpyNode(&nodes[3], graph, middle, 2, &copy, test.ctx));
    OK(cuGraphAddHostNode(&nodes[4], graph, &nodes[3], 1, &host));
    OK(cuGraphAddEventRecordNode(&nodes[5], graph, &nodes[4], 1, event));
    OK(cuGraphGetNodes(graph, NULL, &n_nodes));
    OK(cuGraphGetEdges(graph, NULL, NULL, NULL, &n_edges));
    CHECK(n_nodes == 6 && n_edges == 6);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph, &nodes[0], &nodes[1], NULL, 1));
    OK(cuGraphInstantiate(&exec, graph, 0));
    for (unsigned i = 1; i <= 20; i++) {
        OK(cuGraphLaunch(exec, stream));
        OK(cuEventSynchronize(event));
        CHECK(called == i);
        CHECK(word_at(q) == 4 && word_at(q + 16) == 9);
    }
    /* The parameters were taken when the nodes were made, and can be changed in the exec. */
    one = 2;
    run(exec);
    CHECK(word_at(q) == 4);
    OK(cuGraphExecKernelNodeSetParams(exec, nodes[0], &fill));
    run(exec);
    CHECK(word_at(q) == 7);
    OK(cuGraphNodeSetEnabled(exec, nodes[1], 0));
    run(exec);
    CHECK(word_at(q) == 2);
    OK(cuGraphExecDestroy(exec));
    /* A cycle cannot be instantiated. */
    OK(cuGraphAddDependencies(graph, &nodes[5], &nodes[0], NULL, 1));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    OK(cuEventDestroy(event));
}

static void test_handles(void)
{
    unsigned n = 4, one = 1;
    void *args[] = {&p, &n, &one};
    CUDA_KERNEL_NODE_PARAMS params;
    CUlibrary library;
    CUkernel kernel;
    CUfunction function;
    CUgraph graph;
    CUgraphNode node;

    OK(cuLibraryLoadData(&library, "any", NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernel(&kernel, library, "fill"));
    OK(cuGraphCreate(&graph, 0));
    params = kernel_params((CUfunction)(void *)kernel, args);
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuGraphAddKernelNode(&node, graph, NULL, 0, &params));
    params.kern = kernel;
    params.func = NULL;
    OK(cuGraphAddKernelNode(&node, graph, NULL, 0, &params));
    OK(cuKernelGetFunction(&function, kernel));
    params = kernel_params(function, args);
    OK(cuGraphAddKernelNode(&node, graph, NULL, 0, &params));
    /* A launch takes either. */
    OK(launch((CUfunction)(void *)kernel, stream, p, 4, 77));
    OK(cuStreamSynchronize(stream));
    CHECK(word_at(p) == 77);
    OK(cuGraphDestroy(graph));
    OK(cuLibraryUnload(library));
}

static void test_updates(void)
{
    CUDA_MEMSET_NODE_PARAMS set = {.dst = p, .value = 1, .elementSize = 4, .width = 8, .height = 1};
    CUDA_MEMSET_NODE_PARAMS rows = {
        .dst = p, .pitch = 64, .value = 1, .elementSize = 4, .width = 2, .height = 2};
    CUgraphExecUpdateResultInfo info;
    CUgraph graph, changed, longer;
    CUgraphNode node, second;
    CUgraphExec exec;

    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &set, test.ctx));
    OK(cuGraphInstantiate(&exec, graph, 0));
    run(exec);
    CHECK(word_at(p) == 1);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphExecMemsetNodeSetParams(exec, node, &rows, test.ctx));
    set.value = 6;
    OK(cuGraphCreate(&changed, 0));
    OK(cuGraphAddMemsetNode(&node, changed, NULL, 0, &set, test.ctx));
    OK(cuGraphExecUpdate(exec, changed, &info));
    CHECK(info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS);
    run(exec);
    CHECK(word_at(p) == 6);
    OK(cuGraphCreate(&longer, 0));
    OK(cuGraphAddMemsetNode(&node, longer, NULL, 0, &set, test.ctx));
    OK(cuGraphAddEmptyNode(&second, longer, &node, 1));
    EXPECT(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(exec, longer, &info));
    CHECK(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuGraphDestroy(changed));
    OK(cuGraphDestroy(longer));
}

/* A kernel stays in its context, a copy is one row and was, and both sides stay what they were. */
static void test_update_limits(void)
{
    unsigned n = 4, one = 1;
    void *args[] = {&p, &n, &one};
    CUDA_KERNEL_NODE_PARAMS fill = kernel_params(test.fill, args), foreign;
    CUDA_MEMCPY3D copy = copy_params(q, p, 16), changed;
    CUgraphNode kernel, row, rows;
    CUgraph graph;
    CUgraphExec exec;
    CUcontext other;
    CUmodule module;
    CUdeviceptr elsewhere;
    void *pinned;

    OK(cuCtxCreate(&other, NULL, 0, 0));
    OK(cuModuleLoadData(&module, "any"));
    OK(cuMemAlloc(&elsewhere, 4096));
    foreign = fill;
    OK(cuModuleGetFunction(&foreign.func, module, "fill"));
    OK(cuCtxSetCurrent(test.ctx));
    OK(cuMemAllocHost(&pinned, 4096));
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddKernelNode(&kernel, graph, NULL, 0, &fill));
    OK(cuGraphAddMemcpyNode(&row, graph, &kernel, 1, &copy, test.ctx));
    changed = copy;
    changed.Height = 2;
    changed.srcPitch = changed.dstPitch = 64;
    OK(cuGraphAddMemcpyNode(&rows, graph, &row, 1, &changed, test.ctx));
    OK(cuGraphInstantiate(&exec, graph, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphExecKernelNodeSetParams(exec, kernel, &foreign));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphExecMemcpyNodeSetParams(exec, row, &changed, test.ctx));
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           cuGraphExecMemcpyNodeSetParams(exec, rows, &changed, test.ctx));
    changed = copy_params(q, elsewhere, 16);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphExecMemcpyNodeSetParams(exec, row, &changed, test.ctx));
    changed = copy_params(q, (CUdeviceptr)(uintptr_t)pinned, 16);
    OK(cuGraphExecMemcpyNodeSetParams(exec, row, &changed, test.ctx));
    changed = copy_params(q, p, 0);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphExecMemcpyNodeSetParams(exec, row, &changed, test.ctx));
    changed = copy_params(q + 512, p, 32);
    OK(cuGraphExecMemcpyNodeSetParams(exec, row, &changed, test.ctx));
    run(exec);
    CHECK(word_at(q + 512) == 1);
    OK(cuGraphDestroyNode(kernel)); /* then nobody can name the executable's own any more */
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphExecKernelNodeSetParams(exec, kernel, &fill));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuMemFreeHost(pinned));
    OK(cuCtxDestroy(other));
}

/* Both sides of a copy keep the type that they were added with; host memory may be any. */
static void test_update_types(void)
{
    static unsigned pageable[4] = {7};
    CUDA_MEMCPY3D copy = copy_params(q, p, 16);
    CUgraphNode node;
    CUgraph graph;
    CUgraphExec exec;
    void *pinned;

    OK(cuMemAllocHost(&pinned, 4096));
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = pinned;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, test.ctx));
    OK(cuGraphInstantiate(&exec, graph, 0));
    copy.srcHost = pageable;
    OK(cuGraphExecMemcpyNodeSetParams(exec, node, &copy, test.ctx));
    copy = copy_params(q, (CUdeviceptr)(uintptr_t)pinned, 16);
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphExecMemcpyNodeSetParams(exec, node, &copy, test.ctx));
    copy = copy_params(q, p, 16);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphExecMemcpyNodeSetParams(exec, node, &copy, test.ctx));
    run(exec);
    CHECK(word_at(q) == 7);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuMemFreeHost(pinned));
}

static void test_update_grids(void)
{
    unsigned n = 4, one = 1;
    void *args[] = {&p, &n, &one};
    CUDA_KERNEL_NODE_PARAMS fill = kernel_params(test.fill, args);
    CUlaunchAttributeValue meet = {.cooperative = 1}, cluster = {.clusterDim = {4, 1, 1}};
    const CUlaunchAttributeID preferred = CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION;
    CUgraphNode nodes[2];
    CUgraph graph;
    CUgraphExec exec;

    fill.gridDimX = 8;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddKernelNode(&nodes[0], graph, NULL, 0, &fill));
    OK(cuGraphAddKernelNode(&nodes[1], graph, NULL, 0, &fill));
    OK(cuGraphKernelNodeSetAttribute(nodes[0], CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &meet));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphKernelNodeSetAttribute(nodes[1], preferred, &cluster));
    OK(cuGraphKernelNodeSetAttribute(nodes[1], CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &cluster));
    OK(cuGraphInstantiate(&exec, graph, 0));
    fill.gridDimX = 6;
    OK(cuGraphExecKernelNodeSetParams(exec, nodes[0], &fill));
    EXPECT(CUDA_ERROR_INVALID_CLUSTER_SIZE, cuGraphExecKernelNodeSetParams(exec, nodes[1], &fill));
    fill.gridDimX = 1 << 20;
    OK(cuGraphExecKernelNodeSetParams(exec, nodes[1], &fill));
    EXPECT(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
           cuGraphExecKernelNodeSetParams(exec, nodes[0], &fill));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

static void test_fill_limits(void)
{
    CUDA_MEMSET_NODE_PARAMS set = {.dst = p, .value = 1, .elementSize = 4, .width = 8, .height = 1};
    CUDA_MEMSET_NODE_PARAMS changed = set;
    CUgraphNode node;
    CUgraph graph;
    CUgraphExec exec;
    void *pinned;

    OK(cuMemAllocHost(&pinned, 4096));
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &set, test.ctx));
    OK(cuGraphInstantiate(&exec, graph, 0));
    changed.width = 3;
    changed.dst = q + 1;
    changed.elementSize = 1;
    OK(cuGraphExecMemsetNodeSetParams(exec, node, &changed, test.ctx));
    changed = set;
    changed.width = 64;
    changed.dst = q;
    OK(cuGraphExecMemsetNodeSetParams(exec, node, &changed, test.ctx));
    changed = set;
    changed.dst = (CUdeviceptr)(uintptr_t)pinned;
    OK(cuGraphExecMemsetNodeSetParams(exec, node, &changed, test.ctx));
    run(exec);
    CHECK(*(uint32_t *)pinned == 1);
    changed = set;
    changed.width = 64;
    changed.dst = q;
    OK(cuGraphExecMemsetNodeSetParams(exec, node, &changed, test.ctx));
    changed.width = 0;
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           cuGraphExecMemsetNodeSetParams(exec, node, &changed, test.ctx));
    run(exec);
    CHECK(word_at(q + 63 * 4) == 1);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuMemFreeHost(pinned));
}

/* Edges say what they are, between kernels; attributes are those that nodes have. */
static void test_edges_and_attributes(void)
{
    const CUgraphEdgeData early = {.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                                   .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
    unsigned n = 4, one = 1;
    void *args[] = {&p, &n, &one};
    CUDA_KERNEL_NODE_PARAMS fill = kernel_params(test.fill, args);
    CUDA_MEMSET_NODE_PARAMS set = {.dst = q, .value = 9, .elementSize = 4, .width = 8, .height = 1};
    CUlaunchAttributeValue value = {.priority = -1};
    CUgraphNode nodes[3], from, to;
    CUgraphEdgeData data = early;
    CUgraph graph;
    size_t n_edges = 1;

    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddKernelNode(&nodes[0], graph, NULL, 0, &fill));
    OK(cuGraphAddKernelNode(&nodes[1], graph, NULL, 0, &fill));
    OK(cuGraphAddMemsetNode(&nodes[2], graph, NULL, 0, &set, test.ctx));
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           cuGraphAddDependencies(graph, &nodes[1], &nodes[2], &early, 1));
    data.type = 0;
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph, &nodes[0], &nodes[1], &data, 1));
    OK(cuGraphAddDependencies(graph, &nodes[0], &nodes[1], &early, 1));
    EXPECT(CUDA_ERROR_LOSSY_QUERY, cuGraphGetEdges(graph, &from, &to, NULL, &n_edges));
    n_edges = 1;
    OK(cuGraphGetEdges(graph, &from, &to, &data, &n_edges));
    CHECK(n_edges == 1 && from == nodes[0] && to == nodes[1] &&
          !memcmp(&data, &early, sizeof(data)));
    OK(cuGraphKernelNodeSetAttribute(nodes[0], CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
    value.priority = 0;
    OK(cuGraphKernelNodeGetAttribute(nodes[0], CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
    CHECK(value.priority == -1);
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           cuGraphKernelNodeSetAttribute(
               nodes[0], CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, &value));
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           cuGraphKernelNodeSetAttribute(nodes[2], CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
    OK(cuGraphDestroy(graph));
}

static void test_child(void)
{
    unsigned n = 1, one = 1;
    void *args[] = {&p, &n, &one};
    CUDA_KERNEL_NODE_PARAMS fill = kernel_params(test.fill, args),
                            add = kernel_params(test.add, args);
    CUgraphNode first, child, last;
    CUgraph inner, graph;
    CUgraphExec exec;

    OK(cuGraphCreate(&inner, 0));
    OK(cuGraphAddKernelNode(&first, inner, NULL, 0, &add));
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddKernelNode(&first, graph, NULL, 0, &fill));
    OK(cuGraphAddChildGraphNode(&child, graph, &first, 1, inner));
    OK(cuGraphAddKernelNode(&last, graph, &child, 1, &add));
    OK(cuGraphDestroy(inner));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    for (int i = 0; i < 20; i++) {
        OK(cuGraphLaunch(exec, stream));
        OK(cuGraphLaunch(exec, stream));
        OK(cuStreamSynchronize(stream));
        CHECK(word_at(p) == 13);
    }
    OK(cuGraphExecDestroy(exec));
}

/* Memory of a graph: allocated at launch, freed in the graph, or left to its launcher. */
static void test_memory(void)
{
    CUDA_MEM_ALLOC_NODE_PARAMS alloc = {.bytesize = 4096};
    CUgraphNode node, use, free_node;
    CUgraph graph;
    CUgraphExec exec;
    unsigned n = 4, one = 8;

    alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    alloc.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &alloc));
    void *args[] = {&alloc.dptr, &n, &one};
    CUDA_KERNEL_NODE_PARAMS fill = kernel_params(test.fill, args);
    OK(cuGraphAddKernelNode(&use, graph, &node, 1, &fill));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, stream));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(exec, stream)); /* not freed yet */
    OK(cuMemcpyDtoDAsync(p, alloc.dptr, 16, stream));
    OK(cuMemFreeAsync(alloc.dptr, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(word_at(p) == 8);
    OK(cuGraphExecDestroy(exec));
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           cuGraphAddMemFreeNode(&free_node, graph, &use, 1, alloc.dptr)); /* too late */
    OK(cuGraphDestroy(graph));
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &alloc));
    fill = kernel_params(test.fill, args);
    OK(cuGraphAddKernelNode(&use, graph, &node, 1, &fill));
    OK(cuGraphAddMemFreeNode(&free_node, graph, &use, 1, alloc.dptr));
    OK(cuGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 5; i++)
        run(exec);
    CHECK(sim_violations() == 0);
    /* After the graph's own free the memory is gone for everybody. */
    OK(launch(test.fill, stream, alloc.dptr, 4, 1));
    OK(cuStreamSynchronize(stream));
    CHECK(sim_violations() == 1 && strstr(sim_last_violation(), "free"));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

/* Kernel deep(bytes): uses so much stack. */
static void kernel_deep(const struct sim_kernel_call *call)
{
    sim_kernel_needs_stack(*(unsigned *)call->args[0]);
}

/* A graph of one kernel, with its node and what is instantiated of it; has run once. */
static CUgraph graph_of(const CUDA_KERNEL_NODE_PARAMS *params, CUgraphNode *ret_node,
                        CUgraphExec *ret_exec)
{
    CUgraph graph;

    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddKernelNode(ret_node, graph, NULL, 0, params));
    OK(cuGraphInstantiateWithFlags(ret_exec, graph, 0));
    run(*ret_exec);
    return graph;
}

/* Kernels of a graph have the stack of its instantiation. */
static void test_stack(void)
{
    static const size_t sizes[] = {4};
    const unsigned before = sim_violations();
    unsigned bytes = 512;
    void *args[] = {&bytes};
    CUDA_KERNEL_NODE_PARAMS params;
    CUfunction deep;
    CUgraphNode node;
    CUgraph graph;
    CUgraphExec exec, later;

    sim_register_kernel("deep", kernel_deep, 1, sizes);
    OK(cuModuleGetFunction(&deep, test.module, "deep"));
    params = kernel_params(deep, args);
    graph = graph_of(&params, &node, &exec);
    bytes = 8192;
    OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, bytes));
    OK(cuLaunchKernel(deep, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
    OK(cuGraphKernelNodeSetParams(node, &params));
    OK(cuGraphInstantiateWithFlags(&later, graph, 0));
    run(later);
    CHECK(sim_violations() == before);
    OK(cuGraphExecKernelNodeSetParams(exec, node, &params));
    run(exec);
    CHECK(sim_violations() == before + 1 && strstr(sim_last_violation(), "stack"));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphExecDestroy(later));
    OK(cuGraphDestroy(graph));
}

/* Kernels of a module that textures are bound to by reference: not in graphs. */
static void test_references(void)
{
    static const char image[64] = "any bytes";
    const unsigned before = sim_violations();
    unsigned bytes = 0;
    void *args[] = {&bytes};
    CUDA_KERNEL_NODE_PARAMS params;
    CUtexref reference;
    CUfunction deep;
    CUmodule module;
    CUgraphNode node;
    CUgraph graph;
    CUgraphExec exec;

    OK(cuModuleLoadData(&module, image));
    OK(cuModuleGetFunction(&deep, module, "deep"));
    params = kernel_params(deep, args);
    graph = graph_of(&params, &node, &exec);
    CHECK(sim_violations() == before);
    OK(cuModuleGetTexRef(&reference, module, "texture"));
    OK(cuLaunchKernel(deep, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
    CHECK(sim_violations() == before);
    run(exec);
    CHECK(sim_violations() == before + 1 && strstr(sim_last_violation(), "reference"));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuModuleUnload(module));
}

int main(void)
{
    test_open(&test, 0);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&p, 4096));
    OK(cuMemAlloc(&q, 4096));
    test_kinds();
    test_handles();
    test_updates();
    test_update_limits();
    test_update_types();
    test_update_grids();
    test_fill_limits();
    test_edges_and_attributes();
    test_child();
    CHECK(sim_violations() == 0);
    test_memory();
    test_stack();
    test_references();
    OK(cuMemFree(p));
    OK(cuMemFree(q));
    CHECK(sim_bytes_in_use(0) == 0);
    return 0;
}
