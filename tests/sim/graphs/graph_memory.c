/* graph_memory.c: allocation and free nodes. An allocation node fixes its address when it is made;
 * memory stands behind it from its run in a launch to the free, in the graph or outside. */
#include "tests/sim/graphs/sim_graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNIT ((size_t)2 << 20)

static struct {
    struct sim_graph_memory *first;
    size_t reserved[SIM_MAX_DEVICES], reserved_high[SIM_MAX_DEVICES];
    size_t used_high[SIM_MAX_DEVICES];
} self;

CUresult sim_graph_memory_reserve(struct sim_graph_memory *memory)
{
    size_t *reserved = &self.reserved[memory->device];

    if (memory->reserved)
        return CUDA_SUCCESS;
    if (!sim_card_claim(memory->device, memory->taken))
        return CUDA_ERROR_OUT_OF_MEMORY;
    memory->reserved = true;
    *reserved += memory->taken;
    self.reserved_high[memory->device] = SIM_MAX(self.reserved_high[memory->device], *reserved);
    return CUDA_SUCCESS;
}

static void give_back(struct sim_graph_memory *memory)
{
    if (!memory->reserved)
        return;
    memory->reserved = false;
    self.reserved[memory->device] -= memory->taken;
    sim_arena_zero(memory->device, memory->base, memory->taken);
    sim_card_give(memory->device, memory->taken);
}

CUresult sim_graph_memory_new(size_t bytes, const CUmemPoolProps *props,
                              struct sim_graph_memory **ret_memory)
{
    int device = props->location.id;
    size_t taken = (bytes + UNIT - 1) / UNIT * UNIT;

    if (!bytes || props->location.type != CU_MEM_LOCATION_TYPE_DEVICE || !sim_device_ok(device))
        return CUDA_ERROR_INVALID_VALUE;
    if (taken < bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct sim_graph_memory *memory = calloc(1, sizeof(*memory));
    if (!memory)
        abort();
    memory->device = device;
    memory->taken = taken;
    CUresult result = sim_graph_memory_reserve(memory);
    if (result != CUDA_SUCCESS) {
        free(memory);
        return result;
    }
    uint64_t base = sim_arena_take(device, taken, UNIT);
    if (!base)
        abort();
    memory->refs = 1;
    memory->base = base;
    memory->size = bytes;
    memory->props = *props;
    memory->next = self.first;
    self.first = memory;
    *ret_memory = memory;
    return CUDA_SUCCESS;
}

void sim_graph_memory_unref(struct sim_graph_memory *memory)
{
    struct sim_graph_memory **link = &self.first;

    if (!memory || --memory->refs)
        return;
    while (*link != memory)
        link = &(*link)->next;
    *link = memory->next;
    give_back(memory);
    sim_arena_give(memory->device, memory->base, memory->taken);
    free(memory);
}

/* What a launch has used counts until a trim finds it free: not for the wait before (R848). */
static size_t used(int device)
{
    size_t bytes = 0;

    for (const struct sim_graph_memory *memory = self.first; memory; memory = memory->next)
        if (memory->counts_as_used && memory->device == device)
            bytes += memory->taken;
    self.used_high[device] = SIM_MAX(self.used_high[device], bytes);
    return bytes;
}

void sim_graph_block_begins(struct sim_graph_memory *memory)
{
    memory->refs++;
    memory->n_blocks++;
    memory->counts_as_used = true;
    (void)used(memory->device);
}

void sim_graph_block_gone(struct sim_block *block)
{
    struct sim_graph_memory *memory = block->extra;

    memory->n_blocks--;
    sim_graph_memory_unref(memory);
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
    if (!sim_device_ok(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    for (struct sim_graph_memory *memory = self.first; memory; memory = memory->next)
        if (!memory->n_blocks && memory->device == dev) {
            memory->counts_as_used = false;
            give_back(memory);
        }
    return CUDA_SUCCESS;
}
