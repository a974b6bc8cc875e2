/* Looks for movable memory in the nodes of the program's graphs: see graph_memory.h. */
#include "interpose/hooks/movable/graph_memory.h"

#include "interpose/core/base/pages.h"
#include "interpose/core/driver/driver.h"
#include "policy/contexts/context.h"
#include "policy/paging/handles.h"
#include "policy/paging/latch.h"
#include "policy/paging/ranges.h"
#include "policy/paging/use.h"

static void bring_named(CUdeviceptr address)
{
    ag_use_before_pin(address);
}

static void keep(CUdeviceptr address)
{
    if (ag_range_may_hold(address))
        ag_range_pin(address);
}

void ag_graph_memory_of_copy(const CUDA_MEMCPY3D *copy)
{
    if (!ag_latch_is_on() || !copy)
        return;
    bring_named(copy->srcDevice);
    bring_named(copy->dstDevice);
    keep(copy->srcDevice);
    keep(copy->dstDevice);
}

void ag_graph_memory_of_fill(const CUDA_MEMSET_NODE_PARAMS *fill)
{
    if (!ag_latch_is_on() || !fill)
        return;
    bring_named(fill->dst);
    keep(fill->dst);
}

/* --- graphs that were captured --- */

/* What a node copies or fills. */
struct named {
    CUgraphNodeType type; /* of neither: KERNEL */
    CUDA_MEMCPY3D copy;
    CUDA_MEMSET_NODE_PARAMS fill;
};

static bool ask_for_operands(CUgraphNode node, struct named *ret)
{
    *ret = (struct named){.type = CU_GRAPH_NODE_TYPE_KERNEL};
    if (ag_cu.cuGraphNodeGetType(node, &ret->type) != CUDA_SUCCESS)
        return false;
    if (ret->type == CU_GRAPH_NODE_TYPE_MEMCPY)
        return ag_cu.cuGraphMemcpyNodeGetParams(node, &ret->copy) == CUDA_SUCCESS;
    if (ret->type == CU_GRAPH_NODE_TYPE_MEMSET)
        return ag_cu.cuGraphMemsetNodeGetParams(node, &ret->fill) == CUDA_SUCCESS;
    ret->type = CU_GRAPH_NODE_TYPE_KERNEL;
    return true;
}

/* False: the driver does not say. It might name anything, so nothing moves any more. */
static bool find_operands(CUgraphNode node, struct named *ret)
{
    bool is_found = ask_for_operands(node, ret);

    if (!is_found)
        ag_latch_end();
    return is_found;
}

/* For each address that it names. */
static void for_each_of(const struct named *named, void (*what)(CUdeviceptr address))
{
    if (named->type == CU_GRAPH_NODE_TYPE_MEMCPY) {
        what(named->copy.srcDevice);
        what(named->copy.dstDevice);
    } else if (named->type == CU_GRAPH_NODE_TYPE_MEMSET) {
        what(named->fill.dst);
    }
}

/* May it name memory that moves? */
static bool may_name_movable(const struct named *named)
{
    if (named->type == CU_GRAPH_NODE_TYPE_MEMCPY)
        return ag_range_may_hold(named->copy.srcDevice) || ag_range_may_hold(named->copy.dstDevice);
    return named->type == CU_GRAPH_NODE_TYPE_MEMSET && ag_range_may_hold(named->fill.dst);
}

/* The same once more: the driver looks up where the memory lies now. */
static CUresult set_again(CUgraphNode node, const struct named *named)
{
    if (!may_name_movable(named))
        return CUDA_SUCCESS;
    return named->type == CU_GRAPH_NODE_TYPE_MEMCPY
               ? ag_cu.cuGraphMemcpyNodeSetParams(node, &named->copy)
               : ag_cu.cuGraphMemsetNodeSetParams(node, &named->fill);
}

static void for_each_named(const CUgraphNode *nodes, size_t n, void (*what)(CUdeviceptr address))
{
    struct named named;

    for (size_t i = 0; i < n; i++)
        if (find_operands(nodes[i], &named))
            for_each_of(&named, what);
}

static CUresult set_all_again(const CUgraphNode *nodes, size_t n)
{
    CUresult result = CUDA_SUCCESS;
    struct named named;

    for (size_t i = 0; i < n && result == CUDA_SUCCESS; i++)
        result = find_operands(nodes[i], &named) ? set_again(nodes[i], &named) : CUDA_ERROR_UNKNOWN;
    return result;
}

/* With several contexts nothing moves; of copies between them the driver does not tell all. */
static bool may_move_now(void)
{
    return ag_handles_any_on_host() && ag_context_count() == 1;
}

/* What the driver remembers of the memory is of the time when the capture met it, and it may have
 * moved since that ended, too. Where nodes cannot be set, what they name is not brought. */
static CUresult keep_nodes(const CUgraphNode *nodes, size_t n)
{
    bool can_be_set = may_move_now() && set_all_again(nodes, n) == CUDA_SUCCESS;
    CUresult result;

    if (can_be_set)
        for_each_named(nodes, n, bring_named);
    for_each_named(nodes, n, keep);
    result = can_be_set || may_move_now() ? set_all_again(nodes, n) : CUDA_SUCCESS;
    return can_be_set ? result : CUDA_SUCCESS;
}

static bool can_look(void)
{
    return ag_cu.cuGraphGetNodes && ag_cu.cuGraphNodeGetType && ag_cu.cuGraphMemcpyNodeGetParams &&
           ag_cu.cuGraphMemsetNodeGetParams && ag_cu.cuGraphMemcpyNodeSetParams &&
           ag_cu.cuGraphMemsetNodeSetParams;
}

CUresult ag_graph_memory_of_captured(CUgraph graph)
{
    CUresult result = CUDA_SUCCESS;
    CUgraphNode *nodes;
    size_t n = 0, most;

    if (!ag_latch_is_on())
        return result;
    if (!can_look() || ag_cu.cuGraphGetNodes(graph, NULL, &n) != CUDA_SUCCESS) {
        ag_latch_end();
        return result;
    }
    most = n;
    nodes = n ? ag_pages_get(n * sizeof(CUgraphNode)) : NULL;
    if (n && (!nodes || ag_cu.cuGraphGetNodes(graph, nodes, &n) != CUDA_SUCCESS))
        ag_latch_end();
    else
        result = keep_nodes(nodes, n < most ? n : most);
    if (nodes)
        ag_pages_free(nodes, most * sizeof(CUgraphNode));
    return result;
}
