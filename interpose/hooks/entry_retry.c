/* Hooks of calls that may fail because a cache of ours holds the memory they need: the cache is
 * given up, and the driver called once more. Memory that counts against ALLOGRAFT_LIMIT is counted.
 */
#include "interpose/driver/driver.h"
#include "interpose/hooks/entry.h"
#include "policy/budget.h"
#include "policy/contexts/context.h"
#include "policy/order.h"
#include "policy/pressure.h"

#define RETRIED(symbol, parameters, ...)                                         \
    AG_ENTRY CUresult symbol parameters                                          \
    {                                                                            \
        CUresult result;                                                         \
                                                                                 \
        AG_ENTER(symbol, __VA_ARGS__);                                           \
        result = ag_cu.symbol(__VA_ARGS__);                                      \
        if (result == CUDA_ERROR_OUT_OF_MEMORY && ag_pressure_relieve_current()) \
            result = ag_cu.symbol(__VA_ARGS__);                                  \
        return ag_entry_leave(result);                                           \
    }

RETRIED(cuArrayCreate_v2, (CUarray * array, const CUDA_ARRAY_DESCRIPTOR *descriptor), array,
        descriptor)
RETRIED(cuArray3DCreate_v2, (CUarray * array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor), array,
        descriptor)
RETRIED(cuMipmappedArrayCreate,
        (CUmipmappedArray * array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned int levels),
        array, descriptor, levels)

/* An executable graph takes memory of the device for its nodes. */
RETRIED(cuGraphInstantiate,
        (CUgraphExec * exec, CUgraph graph, CUgraphNode *node, char *text, size_t size), exec,
        graph, node, text, size)
RETRIED(cuGraphInstantiate_v2,
        (CUgraphExec * exec, CUgraph graph, CUgraphNode *node, char *text, size_t size), exec,
        graph, node, text, size)
RETRIED(cuGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph graph, unsigned long long flags),
        exec, graph, flags)
RETRIED(cuGraphInstantiateWithParams,
        (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *parameters), exec, graph,
        parameters)
RETRIED(cuGraphInstantiateWithParams_ptsz,
        (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *parameters), exec, graph,
        parameters)

/* The device that memory of these properties counts for; NULL without a limit. */
static struct ag_device *limited_device(const CUmemAllocationProp *properties)
{
    size_t total;

    if (!ag_budget_is_limited() || properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        ag_cu.cuDeviceTotalMem_v2(&total, properties->location.id) != CUDA_SUCCESS)
        return NULL;
    return ag_device_of(properties->location.id);
}

/* Memory without an address. */
static CUresult create(CUmemGenericAllocationHandle *handle, size_t size,
                       const CUmemAllocationProp *properties, unsigned long long flags)
{
    struct ag_device *device = limited_device(properties);
    CUresult result;

    if (device && !ag_budget_take(device, size) &&
        (!ag_pressure_make_room(device, size) || !ag_budget_take(device, size)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = ag_cu.cuMemCreate(handle, size, properties, flags);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && ag_pressure_relieve_current())
        result = ag_cu.cuMemCreate(handle, size, properties, flags);
    if (device && (result != CUDA_SUCCESS || !ag_budget_note(device, *handle, size)))
        ag_budget_give(device, size);
    return result;
}

AG_ENTRY CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                              const CUmemAllocationProp *properties, unsigned long long flags)
{
    AG_ENTER(cuMemCreate, handle, size, properties, flags);
    if (!handle || !properties)
        return ag_entry_leave(ag_cu.cuMemCreate(handle, size, properties, flags));
    if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        ag_order_note_visible(AG_VISIBLE_PINNED);
    return ag_entry_leave(create(handle, size, properties, flags));
}

AG_ENTRY CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    CUresult result;

    AG_ENTER(cuMemRelease, handle);
    result = ag_cu.cuMemRelease(handle);
    if (result == CUDA_SUCCESS)
        ag_budget_noted_gone(handle);
    return ag_entry_leave(result);
}
