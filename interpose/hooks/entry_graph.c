/* Hooks of what goes into the program's own graphs: nodes that let the host see unfinished work.
 *
 * Such are host functions, and copies from pageable memory. As a call on a stream the latter does
 * not return before it is done with that memory; in a graph it may run when the graph does. What is
 * copied to such memory is there when the launch returns (R543 in tests/sim/RULES.md). They are
 * noted when they enter a graph, so that launches cost nothing. Child graphs, clones and updates
 * take their nodes from graphs that were looked at.
 *
 * Nodes that allocate take memory of the card when they are made. */
#include "interpose/hooks/entry_graph.h"

#include "interpose/core/driver/driver.h"
#include "interpose/core/driver/graph_nodes.h"
#include "interpose/hooks/entry.h"
#include "interpose/hooks/entry_retry.h"
#include "interpose/hooks/movable/graph_memory.h"
#include "policy/order/drain.h"

bool ag_entry_is_pageable(CUdeviceptr address)
{
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                        CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    unsigned type = 0;
    size_t bytes = 0;
    void *data[] = {&type, &bytes};

    return !ag_cu.cuPointerGetAttributes ||
           ag_cu.cuPointerGetAttributes(2, attributes, data, address) != CUDA_SUCCESS ||
           (!type && !bytes);
}

static bool reads_pageable(const CUDA_MEMCPY3D *copy)
{
    if (copy->srcMemoryType == CU_MEMORYTYPE_HOST)
        return ag_entry_is_pageable((CUdeviceptr)(uintptr_t)copy->srcHost);
    return copy->srcMemoryType == CU_MEMORYTYPE_UNIFIED && ag_entry_is_pageable(copy->srcDevice);
}

/* Nothing is asked of the driver once frees wait anyway. */
static void note_copy(const CUDA_MEMCPY3D *copy)
{
    ag_graph_memory_of_copy(copy);
    if (copy && ag_drain_may_begin() && reads_pageable(copy))
        ag_drain_note_visible(AG_VISIBLE_PAGEABLE);
}

/* A fill of cuGraphAddNode(), whose structure is another one than cuGraphAddMemsetNode() takes. */
static void note_fill(const CUDA_MEMSET_NODE_PARAMS_v2 *fill)
{
    const CUDA_MEMSET_NODE_PARAMS named = {.dst = fill->dst};

    ag_graph_memory_of_fill(&named);
}

static void note_node(const CUgraphNodeParams *parameters)
{
    if (parameters && parameters->type == CU_GRAPH_NODE_TYPE_HOST)
        ag_drain_note_visible(AG_VISIBLE_HOST_FUNCTION);
    if (parameters && parameters->type == CU_GRAPH_NODE_TYPE_MEMCPY)
        note_copy(&parameters->memcpy.copyParams);
    if (parameters && parameters->type == CU_GRAPH_NODE_TYPE_MEMSET)
        note_fill(&parameters->memset);
}

/* --- memory of graphs, which may find its room in our caches --- */

/* NULL: the current context's. */
static struct ag_device *device_of_node(const CUgraphNodeParams *parameters)
{
    return parameters && parameters->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC
               ? ag_entry_device_at(&parameters->alloc.poolProps.location)
               : NULL;
}

/* --- graphs that were captured --- */

/* Notes a copy that a capture recorded. Nothing is known of one that the driver does not
 * describe. */
static void note_captured_copy(CUgraphNode node)
{
    CUDA_MEMCPY3D copy;

    if (ag_cu.cuGraphMemcpyNodeGetParams(node, &copy) == CUDA_SUCCESS)
        note_copy(&copy);
    else
        ag_drain_note_visible(AG_VISIBLE_PAGEABLE);
}

static void note_pageable(CUgraph graph)
{
    struct ag_graph_nodes nodes;
    CUgraphNodeType type;

    if (!ag_drain_may_begin() || !ag_cu.cuGraphGetNodes || !ag_cu.cuGraphNodeGetType ||
        !ag_cu.cuGraphMemcpyNodeGetParams)
        return;
    if (!ag_graph_nodes_get(graph, &nodes)) {
        ag_drain_note_visible(AG_VISIBLE_PAGEABLE);
        return;
    }
    for (size_t i = 0; i < nodes.n && ag_drain_may_begin(); i++) {
        if (ag_cu.cuGraphNodeGetType(nodes.at[i], &type) == CUDA_SUCCESS &&
            type == CU_GRAPH_NODE_TYPE_MEMCPY)
            note_captured_copy(nodes.at[i]);
    }
    ag_graph_nodes_free(&nodes);
}

CUresult ag_entry_note_captured(CUgraph *graph)
{
    CUresult result = ag_graph_memory_of_captured(*graph);

    if (result == CUDA_SUCCESS)
        note_pageable(*graph);
    else
        *graph = NULL;
    return result;
}

#include "interpose/hooks/made/graph_nodes.h"
