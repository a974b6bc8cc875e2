/* graphs.c: nodes, edges, updates and memory of graphs (R800 on). */
#include "tests/gpu/sim_truth/truth.h"

static void count_up(void *data)
{
    ++*(unsigned *)data;
}

static CUDA_KERNEL_NODE_PARAMS store_node(void **args)
{
    CUDA_KERNEL_NODE_PARAMS params = {.func = spin_store, .kernelParams = args};

    params.gridDimX = params.gridDimY = params.gridDimZ = 1;
    params.blockDimX = params.blockDimY = params.blockDimZ = 1;
    return params;
}

void group_graph_nodes(void)
{
    CUdeviceptr p;
    uint32_t value = 1;
    uint64_t ns = 0;
    CUlibrary library;
    CUkernel kernel;
    CUgraph graph;
    CUgraphNode node, second;
    CUgraphExec exec;
    unsigned calls = 0;

    open_device();
    p = device_memory(4096);
    void *args[] = {&p, &value, &ns};
    CUDA_KERNEL_NODE_PARAMS params = store_node(args);
    OK(D(cuLibraryLoadData)(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
    OK(D(cuLibraryGetKernel)(&kernel, library, "spin_store"));
    OK(D(cuGraphCreate)(&graph, 0));
    params.func = (CUfunction)(void *)kernel;
    row("R800", "a kernel node with a CUkernel in .func", "code %d",
        D(cuGraphAddKernelNode)(&node, graph, NULL, 0, &params));
    params.func = NULL;
    params.kern = kernel;
    row("R801", "a kernel node with a CUkernel in .kern", "code %d",
        D(cuGraphAddKernelNode)(&node, graph, NULL, 0, &params));
    row("R802", "a launch of a CUkernel as CUfunction", "code %d",
        D(cuLaunchKernel)((CUfunction)(void *)kernel, 1, 1, 1, 1, 1, 1, 0, nonblocking, args,
                          NULL));
    CUDA_HOST_NODE_PARAMS host = {count_up, &calls};
    OK(D(cuGraphAddHostNode)(&second, graph, &node, 1, &host));
    row("R803", "adding an edge that is there", "code %d",
        D(cuGraphAddDependencies)(graph, &node, &second, NULL, 1));
    OK(D(cuGraphInstantiate)(&exec, graph, 0));
    value = 2; /* too late for the node */
    OK(D(cuGraphLaunch)(exec, nonblocking));
    synchronize();
    row("R804", "a node's parameters are taken when it is made", "%s, host function ran %u times",
        yes_no(word_at(p) == 1), calls);
    OK(D(cuGraphExecKernelNodeSetParams)(exec, node, &params));
    OK(D(cuGraphLaunch)(exec, nonblocking));
    synchronize();
    row("R805", "an exec's kernel parameters can be set", "%s", yes_no(word_at(p) == 2));
    row("R806", "switching a kernel node off", "code %d", D(cuGraphNodeSetEnabled)(exec, node, 0));
    row("R807", "switching a host node off", "code %d", D(cuGraphNodeSetEnabled)(exec, second, 0));
    TWO("R808", "adding an edge that makes a cycle, then instantiating",
        D(cuGraphAddDependencies)(graph, &second, &node, NULL, 1),
        D(cuGraphInstantiate)(&exec, graph, 0));
}

void group_graph_updates(void)
{
    CUdeviceptr p;
    CUgraph graph, longer;
    CUgraphNode node, second;
    CUgraphExec exec;
    CUgraphExecUpdateResultInfo info = {0};
    CUresult code;

    open_device();
    p = device_memory(4096);
    CUDA_MEMSET_NODE_PARAMS set = {.dst = p, .value = 1, .elementSize = 4, .width = 8, .height = 1};
    CUDA_MEMSET_NODE_PARAMS rows = {
        .dst = p, .pitch = 64, .value = 1, .elementSize = 4, .width = 2, .height = 2};
    OK(D(cuGraphCreate)(&graph, 0));
    OK(D(cuGraphAddMemsetNode)(&node, graph, NULL, 0, &set, context));
    OK(D(cuGraphInstantiate)(&exec, graph, 0));
    set.value = 6;
    row("R820", "a memset's value in an exec", "code %d",
        D(cuGraphExecMemsetNodeSetParams)(exec, node, &set, context));
    row("R821", "a memset of one row to two rows in an exec", "code %d",
        D(cuGraphExecMemsetNodeSetParams)(exec, node, &rows, context));
    OK(D(cuGraphCreate)(&longer, 0));
    OK(D(cuGraphAddMemsetNode)(&node, longer, NULL, 0, &set, context));
    code = D(cuGraphExecUpdate)(exec, longer, &info);
    row("R822", "cuGraphExecUpdate with an equal graph", "code %d, result %d", code, info.result);
    OK(D(cuGraphAddEmptyNode)(&second, longer, &node, 1));
    code = D(cuGraphExecUpdate)(exec, longer, &info);
    row("R823", "cuGraphExecUpdate with a longer graph", "code %d, result %d", code, info.result);
    OK(D(cuGraphCreate)(&longer, 0));
    OK(D(cuGraphAddEmptyNode)(&second, longer, NULL, 0));
    code = D(cuGraphExecUpdate)(exec, longer, &info);
    row("R824", "cuGraphExecUpdate with a node of another type", "code %d, result %d", code,
        info.result);
}

/* What graphs need besides, to stand for launches of streams. */
void group_graph_edges(void)
{
    const CUgraphEdgeData early = {.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                                   .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
    CUdeviceptr p;
    uint32_t value = 1;
    uint64_t ns = 0;
    CUlaunchAttributeValue allowed = {.programmaticStreamSerializationAllowed = 1};
    CUgraph graph;
    CUgraphNode nodes[3], fill;
    CUgraphExec exec;
    size_t n = 8;
    CUgraphNode from[8], to[8];

    open_device();
    p = device_memory(4096);
    void *args[] = {&p, &value, &ns};
    CUDA_KERNEL_NODE_PARAMS params = store_node(args);
    CUDA_MEMSET_NODE_PARAMS set = {.dst = p, .value = 1, .elementSize = 4, .width = 8, .height = 1};
    OK(D(cuGraphCreate)(&graph, 0));
    for (unsigned i = 0; i < 3; i++)
        OK(D(cuGraphAddKernelNode)(&nodes[i], graph, NULL, 0, &params));
    OK(D(cuGraphAddMemsetNode)(&fill, graph, NULL, 0, &set, context));
    row("R810", "a programmatic edge from a kernel to a fill", "code %d",
        D(cuGraphAddDependencies)(graph, &nodes[0], &fill, &early, 1));
    row("R811", "a programmatic edge between kernels", "code %d",
        D(cuGraphAddDependencies)(graph, &nodes[0], &nodes[1], &early, 1));
    row("R812", "its edges asked for without their data", "code %d",
        D(cuGraphGetEdges)(graph, from, to, NULL, &n));
    row("R813", "programmatic serialisation as a node's attribute", "code %d",
        D(cuGraphKernelNodeSetAttribute)(
            nodes[2], CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, &allowed));
    OK(D(cuGraphAddDependencies)(graph, &nodes[1], &nodes[2], NULL, 1));
    TWO("R814", "a node that waits in full beside a programmatic edge, instantiated",
        D(cuGraphAddDependencies)(graph, &nodes[0], &nodes[2], NULL, 1),
        D(cuGraphInstantiate)(&exec, graph, 0));
}

/* Copies from host memory keep the type that they were added with. */
static void graph_host_places(CUdeviceptr p, void *pinned)
{
    static unsigned char pageable[64];
    CUgraph graph;
    CUgraphNode copy;
    CUgraphExec exec;
    CUDA_MEMCPY3D move = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = pinned,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = p,
                          .WidthInBytes = 64,
                          .Height = 1,
                          .Depth = 1};

    OK(D(cuGraphCreate)(&graph, 0));
    OK(D(cuGraphAddMemcpyNode)(&copy, graph, NULL, 0, &move, context));
    OK(D(cuGraphInstantiate)(&exec, graph, 0));
    move.srcHost = pageable;
    row("R831", "a copy from pageable instead of pinned memory in an exec", "code %d",
        D(cuGraphExecMemcpyNodeSetParams)(exec, copy, &move, context));
    move.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
    move.srcDevice = (CUdeviceptr)(uintptr_t)pinned;
    row("R832", "a copy from the pinned memory as CU_MEMORYTYPE_UNIFIED in an exec", "code %d",
        D(cuGraphExecMemcpyNodeSetParams)(exec, copy, &move, context));
}

/* Which updates of an executable's copies and fills are taken. */
void group_graph_places(void)
{
    CUdeviceptr p, q;
    void *pinned;
    CUgraph graph;
    CUgraphNode copy, fill;
    CUgraphExec exec;

    open_device();
    p = device_memory(4096);
    q = device_memory(4096);
    OK(D(cuMemHostAlloc)(&pinned, 4096, 0));
    CUDA_MEMSET_NODE_PARAMS set = {.dst = p, .value = 1, .elementSize = 4, .width = 8, .height = 1};
    CUDA_MEMCPY3D move = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                          .srcDevice = p,
                          .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                          .dstDevice = q,
                          .WidthInBytes = 64,
                          .Height = 1,
                          .Depth = 1};
    OK(D(cuGraphCreate)(&graph, 0));
    OK(D(cuGraphAddMemcpyNode)(&copy, graph, NULL, 0, &move, context));
    OK(D(cuGraphAddMemsetNode)(&fill, graph, NULL, 0, &set, context));
    OK(D(cuGraphInstantiate)(&exec, graph, 0));
    move.WidthInBytes = 100;
    row("R825", "a copy of other bytes in an exec", "code %d",
        D(cuGraphExecMemcpyNodeSetParams)(exec, copy, &move, context));
    move.srcDevice = (CUdeviceptr)(uintptr_t)pinned;
    row("R826", "a copy from pinned instead of device memory in an exec", "code %d",
        D(cuGraphExecMemcpyNodeSetParams)(exec, copy, &move, context));
    move.srcDevice = p;
    move.WidthInBytes = 0;
    row("R827", "a copy of nothing in an exec", "code %d",
        D(cuGraphExecMemcpyNodeSetParams)(exec, copy, &move, context));
    set.width = 64;
    row("R828", "a longer fill in an exec", "code %d",
        D(cuGraphExecMemsetNodeSetParams)(exec, fill, &set, context));
    set.width = 3;
    row("R829", "a fill of 12 bytes instead of 32 in an exec", "code %d",
        D(cuGraphExecMemsetNodeSetParams)(exec, fill, &set, context));
    set.width = 8;
    set.dst = (CUdeviceptr)(uintptr_t)pinned;
    row("R830", "a fill of pinned instead of device memory in an exec", "code %d",
        D(cuGraphExecMemsetNodeSetParams)(exec, fill, &set, context));
    graph_host_places(p, pinned);
}

/* Attributes of kernel nodes, and the grids that they allow. */
void group_graph_grids(void)
{
    CUdeviceptr p;
    uint32_t value = 1;
    uint64_t ns = 0;
    CUlaunchAttributeValue meet = {.cooperative = 1}, cluster = {.clusterDim = {4, 1, 1}};
    CUgraph graph;
    CUgraphNode nodes[2];
    CUgraphExec exec;

    open_device();
    p = device_memory(4096);
    void *args[] = {&p, &value, &ns};
    CUDA_KERNEL_NODE_PARAMS params = store_node(args);
    params.gridDimX = 8;
    OK(D(cuGraphCreate)(&graph, 0));
    for (unsigned i = 0; i < 2; i++)
        OK(D(cuGraphAddKernelNode)(&nodes[i], graph, NULL, 0, &params));
    row("R833", "a preferred cluster dimension of a node without a cluster dimension", "code %d",
        D(cuGraphKernelNodeSetAttribute)(nodes[1], CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION,
                                         &cluster));
    OK(D(cuGraphKernelNodeSetAttribute)(nodes[0], CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &meet));
    OK(D(cuGraphKernelNodeSetAttribute)(nodes[1], CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &cluster));
    OK(D(cuGraphInstantiate)(&exec, graph, 0));
    params.gridDimX = 6;
    row("R834", "a grid that clusters do not divide in an exec", "code %d",
        D(cuGraphExecKernelNodeSetParams)(exec, nodes[1], &params));
    params.gridDimX = 1 << 20;
    row("R835", "a cooperative grid that finds no room in an exec", "code %d",
        D(cuGraphExecKernelNodeSetParams)(exec, nodes[0], &params));
}

void group_graph_memory(void)
{
    CUDA_MEM_ALLOC_NODE_PARAMS alloc = {.bytesize = 4096};
    CUgraph graph, copy;
    CUgraphNode node, free_node;
    CUgraphExec exec;
    CUresult code, again;

    open_device();
    alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    alloc.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    OK(D(cuGraphCreate)(&graph, 0));
    OK(D(cuGraphAddMemAllocNode)(&node, graph, NULL, 0, &alloc));
    row("R840", "cuGraphClone with an allocation node", "code %d", D(cuGraphClone)(&copy, graph));
    row("R841", "cuGraphDestroyNode of an allocation node", "code %d", D(cuGraphDestroyNode)(node));
    OK(D(cuGraphInstantiate)(&exec, graph, 0));
    code = D(cuGraphLaunch)(exec, nonblocking);
    synchronize();
    again = D(cuGraphLaunch)(exec, nonblocking);
    row("R842", "a launch, and another one without a free between", "codes %d %d", code, again);
    code = D(cuMemFreeAsync)(alloc.dptr, nonblocking);
    again = D(cuGraphLaunch)(exec, nonblocking);
    row("R843", "cuMemFreeAsync of the memory, and a launch", "codes %d %d", code, again);
    synchronize();
    row("R844", "cuMemFree of the memory", "code %d", D(cuMemFree)(alloc.dptr));
    OK(D(cuGraphExecDestroy)(exec));
    row("R846", "a free node added after the graph was instantiated", "code %d",
        D(cuGraphAddMemFreeNode)(&free_node, graph, &node, 1, alloc.dptr));
    OK(D(cuGraphCreate)(&graph, 0));
    OK(D(cuGraphAddMemAllocNode)(&node, graph, NULL, 0, &alloc));
    OK(D(cuGraphAddMemFreeNode)(&free_node, graph, &node, 1, alloc.dptr));
    OK(D(cuGraphInstantiate)(&exec, graph, 0));
    code = D(cuGraphLaunch)(exec, nonblocking);
    again = D(cuGraphLaunch)(exec, nonblocking);
    row("R845", "two launches with a free node", "codes %d %d", code, again);
    synchronize();
}

/* Units differ between drivers. */
static const char *graph_levels(char *text)
{
    cuuint64_t used = 0, reserved = 0;

    OK(D(cuDeviceGetGraphMemAttribute)(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
    OK(D(cuDeviceGetGraphMemAttribute)(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved));
    (void)sprintf(text, "used %s, reserved %s", used ? "some" : "none", reserved ? "some" : "none");
    return text;
}

/* What graphs hold, while one runs that takes memory and frees it, and after it has. */
void group_graph_levels(void)
{
    CUDA_MEM_ALLOC_NODE_PARAMS alloc = {.bytesize = 4096};
    CUgraphNode node, free_node;
    CUgraphExec exec;
    CUgraph graph;
    char text[64];

    open_device();
    alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    alloc.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    OK(D(cuGraphCreate)(&graph, 0));
    OK(D(cuGraphAddMemAllocNode)(&node, graph, NULL, 0, &alloc));
    OK(D(cuGraphAddMemFreeNode)(&free_node, graph, &node, 1, alloc.dptr));
    OK(D(cuGraphInstantiate)(&exec, graph, 0));
    arm(nonblocking);
    OK(D(cuGraphLaunch)(exec, nonblocking));
    OK(D(cuDeviceGraphMemTrim)(0));
    row("R847", "graph memory after a trim behind work under way", "%s", graph_levels(text));
    synchronize();
    row("R848", "graph memory after a wait", "%s", graph_levels(text));
    OK(D(cuDeviceGraphMemTrim)(0));
    row("R849", "graph memory after a wait and a trim", "%s", graph_levels(text));
    row("R850", "a launch after that", "code %d", D(cuGraphLaunch)(exec, nonblocking));
    synchronize();
}
