/* Looks for movable memory in the nodes of the program's graphs: see graph_memory.h. */
#include "interpose/hooks/movable/graph_memory.h"

#include "interpose/core/base/pages.h"
#include "interpose/core/driver/driver.h"
#include "policy/paging/latch.h"
#include "policy/paging/ranges.h"
#include "policy/paging/use.h"

static void keep(CUdeviceptr address)
{
    if (ag_range_may_hold(address))
        ag_range_pin(address);
}

static void keep_of_copy(const CUDA_MEMCPY3D *copy)
{
    keep(copy->srcDevice);
    keep(copy->dstDevice);
}

void ag_graph_memory_of_copy(const CUDA_MEMCPY3D *copy)
{
    if (!ag_latch_is_on() || !copy)
        return;
    ag_use_before_pin(copy->srcDevice);
    ag_use_before_pin(copy->dstDevice);
    keep_of_copy(copy);
}

void ag_graph_memory_of_fill(const CUDA_MEMSET_NODE_PARAMS *fill)
{
    if (!ag_latch_is_on() || !fill)
        return;
    ag_use_before_pin(fill->dst);
    keep(fill->dst);
}

/* The driver has the node already, so the memory stays where it is. What the driver does not
 * describe might name anything. */
static void keep_node(CUgraphNode node)
{
    CUgraphNodeType type;
    CUDA_MEMCPY3D copy;
    CUDA_MEMSET_NODE_PARAMS fill;

    bool is_known = ag_cu.cuGraphNodeGetType(node, &type) == CUDA_SUCCESS;

    if (is_known && type == CU_GRAPH_NODE_TYPE_MEMCPY) {
        is_known = ag_cu.cuGraphMemcpyNodeGetParams(node, &copy) == CUDA_SUCCESS;
        if (is_known)
            keep_of_copy(&copy);
    } else if (is_known && type == CU_GRAPH_NODE_TYPE_MEMSET) {
        is_known = ag_cu.cuGraphMemsetNodeGetParams(node, &fill) == CUDA_SUCCESS;
        if (is_known)
            keep(fill.dst);
    }
    if (!is_known)
        ag_latch_end();
}

static bool can_look(void)
{
    return ag_cu.cuGraphGetNodes && ag_cu.cuGraphNodeGetType && ag_cu.cuGraphMemcpyNodeGetParams &&
           ag_cu.cuGraphMemsetNodeGetParams;
}

void ag_graph_memory_of_captured(CUgraph graph)
{
    CUgraphNode *nodes;
    size_t n = 0, most;

    if (!ag_latch_is_on())
        return;
    if (!can_look() || ag_cu.cuGraphGetNodes(graph, NULL, &n) != CUDA_SUCCESS) {
        ag_latch_end();
        return;
    }
    most = n;
    nodes = n ? ag_pages_get(n * sizeof(CUgraphNode)) : NULL;
    if (n && (!nodes || ag_cu.cuGraphGetNodes(graph, nodes, &n) != CUDA_SUCCESS))
        ag_latch_end();
    for (size_t i = 0; nodes && i < n && i < most; i++)
        keep_node(nodes[i]);
    if (nodes)
        ag_pages_free(nodes, most * sizeof(CUgraphNode));
}
