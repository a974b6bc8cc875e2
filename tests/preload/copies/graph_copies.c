/* Programs whose graphs copy from or to pageable memory. A native cudaFree waits for the copy; the
 * program then writes, or reads, that memory without another wait. */
#include <stdlib.h>

#include "tests/common/device.h"
#include "tests/common/say.h"

#define WORDS 1000
#define BYTES (WORDS * sizeof(uint32_t))

static CUcontext context;
static CUstream stream;
static CUdeviceptr device, quiet; /* `quiet`: no host sees it */
static uint32_t *host;

static CUdeviceptr host_address(void)
{
    return (CUdeviceptr)(uintptr_t)host;
}

/* Both sides are told by their addresses. */
static CUDA_MEMCPY3D copy_of(CUdeviceptr to, CUdeviceptr from)
{
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED, .srcDevice = from};

    copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    copy.dstDevice = to;
    copy.WidthInBytes = BYTES;
    copy.Height = copy.Depth = 1;
    return copy;
}

static bool is_from(const char *way)
{
    return strstr(way, "from") != NULL;
}

/* Memory of the host by what the copy says. */
static CUDA_MEMCPY3D copy_host(const char *way, void *memory)
{
    CUDA_MEMCPY3D copy = copy_of(device, device);

    if (is_from(way)) {
        copy.srcMemoryType = CU_MEMORYTYPE_HOST;
        copy.srcHost = memory;
    } else {
        copy.dstMemoryType = CU_MEMORYTYPE_HOST;
        copy.dstHost = memory;
    }
    return copy;
}

static CUgraphNodeParams params_of(const CUDA_MEMCPY3D *copy)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};

    params.memcpy.copyCtx = context;
    params.memcpy.copyParams = *copy;
    return params;
}

static void copy_rectangle(CUdeviceptr to, CUdeviceptr from)
{
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED, .srcDevice = from};

    copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    copy.dstDevice = to;
    copy.WidthInBytes = BYTES;
    copy.Height = 1;
    OK(cuMemcpy2DAsync(&copy, stream));
}

static CUgraph capture(const char *way)
{
    CUDA_MEMCPY3D box = copy_host(way, host);
    CUdeviceptr to = is_from(way) ? device : host_address();
    CUdeviceptr from = is_from(way) ? host_address() : device;
    CUgraph graph;

    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    /* More nodes than fit on a stack. */
    for (uint32_t i = 0; strstr(way, "last") && i < 1000; i++)
        OK(cuMemsetD32Async(quiet, i, 1, stream));
    if (strstr(way, "any"))
        OK(cuMemcpyAsync(to, from, BYTES, stream));
    else if (strstr(way, "rectangle"))
        copy_rectangle(to, from);
    else if (strstr(way, "within"))
        OK(cuMemcpyAsync(quiet, device, BYTES, stream));
    else if (strstr(way, "box"))
        OK(cuMemcpy3DAsync(&box, stream));
    else if (is_from(way))
        OK(cuMemcpyHtoDAsync(device, host, BYTES, stream));
    else
        OK(cuMemcpyDtoHAsync(host, device, BYTES, stream));
    OK(cuStreamEndCapture(stream, &graph));
    return graph;
}

static CUgraph add(const char *way, CUDA_MEMCPY3D copy, CUgraphNode *ret_node)
{
    CUgraphNodeParams params = params_of(&copy);
    CUgraph graph;

    OK(cuGraphCreate(&graph, 0));
    if (strstr(way, "any-type"))
        OK(cuGraphAddNode(ret_node, graph, NULL, NULL, 0, &params));
    else
        OK(cuGraphAddMemcpyNode(ret_node, graph, NULL, 0, &copy, context));
    return graph;
}

static CUgraph add_child(CUgraph child)
{
    CUgraph graph;
    CUgraphNode node;

    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddChildGraphNode(&node, graph, NULL, 0, child));
    return graph;
}

/* At first its copy is within the device, whatever it says: of an executable graph what is said
 * cannot change. */
static CUgraphExec set(const char *way)
{
    CUDA_MEMCPY3D copy = copy_host(way, host);
    CUgraphNodeParams params = params_of(&copy);
    bool is_exec = strstr(way, "exec") != NULL, is_any = strstr(way, "any-type") != NULL;
    CUgraphNode node;
    CUgraph graph = add("added", copy_host(way, (void *)(uintptr_t)quiet), &node);
    CUgraphExec exec;

    if (!is_exec)
        OK(is_any ? cuGraphNodeSetParams(node, &params) : cuGraphMemcpyNodeSetParams(node, &copy));
    OK(cuGraphInstantiate(&exec, graph, 0));
    if (is_exec)
        OK(is_any ? cuGraphExecNodeSetParams(exec, node, &params)
                  : cuGraphExecMemcpyNodeSetParams(exec, node, &copy, context));
    return exec;
}

static CUgraphExec make(const char *way)
{
    CUgraphNode node;
    CUgraph graph;
    CUgraphExec exec;

    if (strstr(way, "set"))
        return set(way);
    if (strstr(way, "captured"))
        graph = capture(way);
    else if (strcmp(way, "within") == 0)
        graph = add(way, copy_of(quiet, device), &node);
    else
        graph = add(way, copy_host(way, host), &node);
    if (strstr(way, "child"))
        graph = add_child(graph);
    OK(cuGraphInstantiate(&exec, graph, 0));
    return exec;
}

static void write_host(uint32_t value)
{
    for (uint32_t i = 0; i < WORDS; i++)
        host[i] = value + i;
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "added";
    bool from = is_from(way);
    CUdeviceptr other;
    CUgraphExec exec;

    context = device_open();
    host = calloc(WORDS, sizeof(*host));
    if (host == NULL)
        _exit(98);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&device, BYTES));
    OK(cuMemAlloc(&quiet, BYTES));
    /* Something to free before there is a graph: that free may stay ordered. */
    OK(cuMemAlloc(&other, 4096));
    OK(cuMemFree(other));
    exec = make(way);
    for (uint32_t iteration = 1; iteration <= 10; iteration++) {
        uint32_t value = 100 * iteration;

        OK(cuMemAlloc(&other, 4096));
        if (from)
            write_host(value);
        launch_fill(stream, device, WORDS, from ? 1 : value);
        OK(cuGraphLaunch(exec, stream));
        OK(cuMemFree(other));
        if (from)
            write_host(0);
        if (from || strstr(way, "within"))
            say("%s: wrong words %u", way, count_wrong(device, WORDS, value));
        else
            say("%s: wrong words %u", way, wrong_words(host, WORDS, value));
    }
    return 0;
}
