/* graph_memory.c: allocation and free nodes. An allocation node fixes its address when it is made;
 * memory stands behind it from its run in a launch to the free, in the graph or outside. */
#include "tests/sim/graphs/sim_graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNIT ((size_t)2 << 20)

static struct {
    size_t reserved[SIM_MAX_DEVICES], reserved_high[SIM_MAX_DEVICES];
    size_t used_high[SIM_MAX_DEVICES];
} self;

CUresult sim_graph_memory_new(size_t bytes, const CUmemPoolProps *props,
                              struct sim_graph_memory **ret_memory)
{
    int device = props->location.id;
    size_t taken = (bytes + UNIT - 1) / UNIT * UNIT;

    if (!bytes || props->location.type != CU_MEM_LOCATION_TYPE_DEVICE || !sim_device_ok(device))
        return CUDA_ERROR_INVALID_VALUE;
    if (taken < bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!sim_card_claim(device, taken))
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t base = sim_arena_take(device, taken, UNIT);
    struct sim_graph_memory *memory = calloc(1, sizeof(*memory));
    if (!base || !memory)
        abort();
    memory->refs = 1;
    memory->device = device;
    memory->base = base;
    memory->size = bytes;
    memory->taken = taken;
    memory->props = *props;
    self.reserved[device] += taken;
    self.reserved_high[device] = SIM_MAX(self.reserved_high[device], self.reserved[device]);
    *ret_memory = memory;
    return CUDA_SUCCESS;
}

void sim_graph_memory_unref(struct sim_graph_memory *memory)
{
    if (!memory || --memory->refs)
        return;
    self.reserved[memory->device] -= memory->taken;
    sim_arena_zero(memory->device, memory->base, memory->taken);
    sim_arena_give(memory->device, memory->base, memory->taken);
    sim_card_give(memory->device, memory->taken);
    free(memory);
}

void sim_graph_block_gone(struct sim_block *block)
{
    sim_graph_memory_unref(block->extra);
    block->extra = NULL;
}

CUresult sim_graph_add_alloc(CUgraph graph, CUcontext ctx, const CUgraphNode *before,
                             size_t n_before, size_t bytes, const CUmemPoolProps *props,
                             CUdeviceptr *ret_p, CUgraphNode *ret_node)
{
    struct sim_work work = {.kind = SIM_WORK_ALLOC};
    struct sim_graph_memory *memory;
    CUresult result = sim_graph_memory_new(bytes, props, &memory);

    if (result == CUDA_SUCCESS)
        result = sim_graph_add(graph, CU_GRAPH_NODE_TYPE_MEM_ALLOC, &work, ctx, before, n_before,
                               ret_node);
    if (result != CUDA_SUCCESS)
        return result;
    (*ret_node)->memory = memory;
    *ret_p = memory->base;
    return CUDA_SUCCESS;
}

CUresult sim_graph_add_free(CUgraph graph, CUcontext ctx, const CUgraphNode *before,
                            size_t n_before, CUdeviceptr p, CUgraphNode *ret_node)
{
    struct sim_work work = {.kind = SIM_WORK_FREE};

    if (!p || !sim_arena_has(p, NULL) || !sim_handle_is(graph, SIM_GRAPH) || graph->instantiated)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result =
        sim_graph_add(graph, CU_GRAPH_NODE_TYPE_MEM_FREE, &work, ctx, before, n_before, ret_node);
    if (result == CUDA_SUCCESS)
        (*ret_node)->freed = p;
    return result;
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                                size_t n_before, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!node || !params || !sim_handle_is(graph, SIM_GRAPH))
        return CUDA_ERROR_INVALID_VALUE;
    return sim_graph_add_alloc(graph, NULL, before, n_before, params->bytesize, &params->poolProps,
                               &params->dptr, node);
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!params || !sim_graph_node_ok(node, CU_GRAPH_NODE_TYPE_MEM_ALLOC))
        return CUDA_ERROR_INVALID_VALUE;
    memset(params, 0, sizeof(*params));
    params->poolProps = node->memory->props;
    params->bytesize = node->memory->size;
    params->dptr = node->memory->base;
    return CUDA_SUCCESS;
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                               size_t n_before, CUdeviceptr p)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    return sim_graph_add_free(graph, NULL, before, n_before, p, node);
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr *p)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!p || !sim_graph_node_ok(node, CU_GRAPH_NODE_TYPE_MEM_FREE))
        return CUDA_ERROR_INVALID_VALUE;
    *p = node->freed;
    return CUDA_SUCCESS;
}

static size_t used(int device)
{
    size_t bytes = 0;

    for (struct sim_block *block = sim_block_next(0); block;
         block = sim_block_next(block->base + 1))
        if (block->kind == SIM_BLOCK_GRAPH && block->device == device)
            bytes += block->taken;
    self.used_high[device] = SIM_MAX(self.used_high[device], bytes);
    return bytes;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice dev, CUgraphMem_attribute attribute, void *value)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!sim_device_ok(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    size_t now = used(dev);
    switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
        *(cuuint64_t *)value = now;
        return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
        *(cuuint64_t *)value = self.used_high[dev];
        return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
        *(cuuint64_t *)value = self.reserved[dev];
        return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
        *(cuuint64_t *)value = self.reserved_high[dev];
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuDeviceSetGraphMemAttribute(CUdevice dev, CUgraphMem_attribute attribute, void *value)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!sim_device_ok(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!value || *(cuuint64_t *)value)
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
        self.used_high[dev] = used(dev);
    else if (attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
        self.reserved_high[dev] = self.reserved[dev];
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGraphMemTrim(CUdevice dev)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    /* Nothing is kept beyond what graphs that exist have reserved. */
    return sim_device_ok(dev) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
