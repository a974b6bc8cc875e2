/* Looks for movable memory in the nodes of the program's graphs: see graph_memory.h. */
#include "interpose/hooks/movable/graph_memory.h"

#include "interpose/core/base/pages.h"
#include "interpose/core/driver/driver.h"
#include "interpose/core/driver/graph_nodes.h"
#include "policy/contexts/context.h"
#include "policy/paging/handles.h"
#include "policy/paging/latch.h"
#include "policy/paging/ranges.h"
#include "policy/paging/use.h"

static void keep(CUdeviceptr address)
{
    if (ag_range_may_hold(address))
        ag_range_pin(address);
}

void ag_graph_memory_of_copy(const CUDA_MEMCPY3D *copy)
{
    if (!ag_latch_is_on() || !copy)
        return;
    ag_use_before_pin(copy->srcDevice);
    ag_use_before_pin(copy->dstDevice);
    keep(copy->srcDevice);
    keep(copy->dstDevice);
}

void ag_graph_memory_of_fill(const CUDA_MEMSET_NODE_PARAMS *fill)
{
    if (!ag_latch_is_on() || !fill)
        return;
    ag_use_before_pin(fill->dst);
    keep(fill->dst);
}

/* --- graphs that were captured --- */

/* A node that copies or fills, of which the type tells. */
struct named {
    CUgraphNode node;
    CUgraphNodeType type;
    CUDA_MEMCPY3D copy;
    CUDA_MEMSET_NODE_PARAMS fill;
};

/* False: the driver does not say. */
static bool find_operands(CUgraphNode node, struct named *ret)
{
    ret->node = node;
    if (ag_cu.cuGraphNodeGetType(node, &ret->type) != CUDA_SUCCESS)
        return false;
    if (ret->type == CU_GRAPH_NODE_TYPE_MEMCPY)
        return ag_cu.cuGraphMemcpyNodeGetParams(node, &ret->copy) == CUDA_SUCCESS;
    return ret->type != CU_GRAPH_NODE_TYPE_MEMSET ||
           ag_cu.cuGraphMemsetNodeGetParams(node, &ret->fill) == CUDA_SUCCESS;
}

/* Does it copy or fill memory that may move? */
static bool names_movable(const struct named *named)
{
    if (named->type == CU_GRAPH_NODE_TYPE_MEMCPY)
        return ag_range_may_hold(named->copy.srcDevice) || ag_range_may_hold(named->copy.dstDevice);
    return named->type == CU_GRAPH_NODE_TYPE_MEMSET && ag_range_may_hold(named->fill.dst);
}

/* Finds those of the nodes that name such memory: how many there are. What the driver does not
 * describe might name anything, so nothing moves any more. */
static size_t find_all(const CUgraphNode *nodes, size_t n, struct named *ret)
{
    size_t n_found = 0;

    for (size_t i = 0; i < n; i++) {
        if (!find_operands(nodes[i], &ret[n_found]))
            ag_latch_end();
        else if (names_movable(&ret[n_found]))
            n_found++;
    }
    return n_found;
}

/* For each address that they name. */
static void for_each_named(const struct named *all, size_t n, void (*what)(CUdeviceptr address))
{
    for (size_t i = 0; i < n; i++) {
        if (all[i].type == CU_GRAPH_NODE_TYPE_MEMCPY) {
            what(all[i].copy.srcDevice);
            what(all[i].copy.dstDevice);
        } else {
            what(all[i].fill.dst);
        }
    }
}

/* The same once more: the driver looks up where the memory lies now. */
static CUresult set_all_again(const struct named *all, size_t n)
{
    CUresult result = CUDA_SUCCESS;

    for (size_t i = 0; i < n && result == CUDA_SUCCESS; i++)
        result = all[i].type == CU_GRAPH_NODE_TYPE_MEMCPY
                     ? ag_cu.cuGraphMemcpyNodeSetParams(all[i].node, &all[i].copy)
                     : ag_cu.cuGraphMemsetNodeSetParams(all[i].node, &all[i].fill);
    return result;
}

/* With several contexts nothing moves; of copies between them the driver does not tell all. */
static bool may_move_now(void)
{
    return ag_handles_any_on_host() && ag_context_count() == 1;
}

/* What the driver remembers of the memory is of the time when the capture met it, and it may have
 * moved since that ended, too. Where nodes cannot be set, what they name is not brought. */
static CUresult keep_all(const struct named *all, size_t n)
{
    bool can_be_set = may_move_now() && set_all_again(all, n) == CUDA_SUCCESS;
    CUresult result;

    if (can_be_set)
        for_each_named(all, n, ag_use_before_pin);
    for_each_named(all, n, keep);
    result = can_be_set || may_move_now() ? set_all_again(all, n) : CUDA_SUCCESS;
    return can_be_set ? result : CUDA_SUCCESS;
}

static CUresult keep_nodes(const CUgraphNode *nodes, size_t n)
{
    struct named *all = ag_pages_get(n * sizeof(*all));
    CUresult result;

    if (!all) {
        ag_latch_end();
        return CUDA_SUCCESS;
    }
    result = keep_all(all, find_all(nodes, n, all));
    ag_pages_free(all, n * sizeof(*all));
    return result;
}

static bool can_look(void)
{
    return ag_cu.cuGraphGetNodes && ag_cu.cuGraphNodeGetType && ag_cu.cuGraphMemcpyNodeGetParams &&
           ag_cu.cuGraphMemsetNodeGetParams && ag_cu.cuGraphMemcpyNodeSetParams &&
           ag_cu.cuGraphMemsetNodeSetParams;
}

CUresult ag_graph_memory_of_captured(CUgraph graph)
{
    struct ag_graph_nodes nodes;
    CUresult result = CUDA_SUCCESS;

    if (!ag_latch_is_on())
        return result;
    if (!can_look() || !ag_graph_nodes_get(graph, &nodes)) {
        ag_latch_end();
        return result;
    }
    if (nodes.n)
        result = keep_nodes(nodes.at, nodes.n);
    ag_graph_nodes_free(&nodes);
    return result;
}
