/* Hooks of calls that take memory of the device for what is no allocation of ours. What counts
 * against ALLOGRAFT_LIMIT is counted. */
#include "interpose/hooks/entry_retry.h"
#include "interpose/core/report/errors/function_names.h"
#include "interpose/core/report/errors/last_launches.h"
#include "policy/alloc/alloc.h"
#include "policy/budget.h"
#include "policy/contexts/context.h"
#include "policy/contexts/enter.h"
#include "policy/inject.h"
#include "policy/order/drain.h"

#define RETRIED(symbol, parameters, ...) \
    AG_RETRIED(symbol, NULL, (void)0, result, parameters, __VA_ARGS__)

bool ag_entry_makes_room(void)
{
    bool made;

    if (ag_entry_inside())
        return false;
    ag_entry_depth = 1;
    ag_entry_errno = errno;
    made = ag_pressure_relieve_for_call(NULL);
    (void)ag_entry_leave(CUDA_SUCCESS);
    return made;
}

RETRIED(cuArrayCreate_v2, (CUarray * array, const CUDA_ARRAY_DESCRIPTOR *descriptor), array,
        descriptor)
RETRIED(cuArray3DCreate_v2, (CUarray * array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor), array,
        descriptor)
RETRIED(cuMipmappedArrayCreate,
        (CUmipmappedArray * array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned int levels),
        array, descriptor, levels)

static CUresult named(CUresult result, const CUfunction *function, const char *name)
{
    if (result == CUDA_SUCCESS)
        ag_function_note(*function, name);
    return result;
}

/* Code may be loaded when it is first asked for. */
AG_RETRIED(cuModuleGetFunction, NULL, (void)0, named(result, function, name),
           (CUfunction * function, CUmodule module, const char *name), function, module, name)

/* The runtime looks functions up so. */
static CUresult named_as(CUresult result, const CUfunction *function, CUkernel kernel)
{
    const char *name;

    if (result == CUDA_SUCCESS && ag_cu.cuKernelGetName &&
        ag_cu.cuKernelGetName(&name, kernel) == CUDA_SUCCESS)
        ag_function_note(*function, name);
    return result;
}

AG_RETRIED(cuKernelGetFunction, NULL, (void)0, named_as(result, function, kernel),
           (CUfunction * function, CUkernel kernel), function, kernel)
RETRIED(cuLibraryGetModule, (CUmodule * module, CUlibrary library), module, library)
RETRIED(cuFuncLoad, (CUfunction function), function)
RETRIED(cuFuncGetAttribute, (int *value, CUfunction_attribute attribute, CUfunction function),
        value, attribute, function)
RETRIED(cuKernelGetAttribute,
        (int *value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device), value,
        attribute, kernel, device)
RETRIED(cuOccupancyMaxActiveBlocksPerMultiprocessor,
        (int *blocks, CUfunction function, int block, size_t shared_bytes), blocks, function, block,
        shared_bytes)
RETRIED(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
        (int *blocks, CUfunction function, int block, size_t shared_bytes, unsigned int flags),
        blocks, function, block, shared_bytes, flags)

/* Launches of before CUDA 4.0; the driver holds what was set for them. */
#define LAUNCHES_OLD(symbol, stream, parameters, ...)                                           \
    AG_RETRIED(symbol, NULL, (ag_launches_add(function, stream), ag_watch_work(stream, false)), \
               result, parameters, __VA_ARGS__)

LAUNCHES_OLD(cuLaunch, NULL, (CUfunction function), function)
LAUNCHES_OLD(cuLaunchGrid, NULL, (CUfunction function, int width, int height), function, width,
             height)
LAUNCHES_OLD(cuLaunchGridAsync, stream,
             (CUfunction function, int width, int height, CUstream stream), function, width, height,
             stream)

/* An executable graph takes memory of the device for its nodes. */
RETRIED(cuGraphExecUpdate,
        (CUgraphExec exec, CUgraph graph, CUgraphNode *node, CUgraphExecUpdateResult *why), exec,
        graph, node, why)
RETRIED(cuGraphExecUpdate_v2, (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info),
        exec, graph, info)

static CUresult refuse_graph(const CUgraphExec *exec, CUgraph graph, const void *caller)
{
    return exec && graph ? ag_inject(AG_CALL_GRAPH, 0, -1, caller) : CUDA_SUCCESS;
}

static CUresult refuse_graph_with(const CUgraphExec *exec, CUgraph graph,
                                  CUDA_GRAPH_INSTANTIATE_PARAMS *parameters, const void *caller)
{
    CUresult result = parameters ? refuse_graph(exec, graph, caller) : CUDA_SUCCESS;

    if (result != CUDA_SUCCESS) {
        parameters->hErrNode_out = NULL;
        parameters->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
    }
    return result;
}

/* Unless it is refused, it is measured. */
static CUresult begin(struct ag_app_graphs_span *span, CUresult refusal)
{
    if (refusal == CUDA_SUCCESS)
        ag_app_graphs_begin(span);
    return refusal;
}

#define INSTANTIATES_UNLESS(refusal, symbol, parameters, ...) \
    AG_ENTRY CUresult symbol parameters                       \
    {                                                         \
        struct ag_app_graphs_span span;                       \
        CUresult result;                                      \
                                                              \
        AG_ENTER(symbol, __VA_ARGS__);                        \
        result = begin(&span, refusal);                       \
        if (result != CUDA_SUCCESS)                           \
            return ag_entry_leave(result);                    \
        result = ag_cu.symbol(__VA_ARGS__);                   \
        if (ag_entry_tries_graph_again(&span, result))        \
            result = ag_cu.symbol(__VA_ARGS__);               \
        ag_app_graphs_instantiated(&span, exec, result);      \
        return ag_entry_leave(result);                        \
    }

#define INSTANTIATES(symbol, parameters, ...)                                           \
    INSTANTIATES_UNLESS(refuse_graph(exec, graph, __builtin_return_address(0)), symbol, \
                        parameters, __VA_ARGS__)
#define INSTANTIATES_WITH(symbol)                                                              \
    INSTANTIATES_UNLESS(                                                                       \
        refuse_graph_with(exec, graph, parameters, __builtin_return_address(0)), symbol,       \
        (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS * parameters), exec, \
        graph, parameters)

INSTANTIATES(cuGraphInstantiate,
             (CUgraphExec * exec, CUgraph graph, CUgraphNode *node, char *text, size_t size), exec,
             graph, node, text, size)
INSTANTIATES(cuGraphInstantiate_v2,
             (CUgraphExec * exec, CUgraph graph, CUgraphNode *node, char *text, size_t size), exec,
             graph, node, text, size)
INSTANTIATES(cuGraphInstantiateWithFlags,
             (CUgraphExec * exec, CUgraph graph, unsigned long long flags), exec, graph, flags)
INSTANTIATES_WITH(cuGraphInstantiateWithParams)
INSTANTIATES_WITH(cuGraphInstantiateWithParams_ptsz)

AG_ENTRY CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    CUresult result;

    AG_ENTER(cuGraphExecDestroy, exec);
    ag_app_graphs_destroying(exec);
    result = ag_cu.cuGraphExecDestroy(exec);
    ag_app_graphs_destroyed(result);
    return ag_entry_leave(result);
}

/* The device that memory of these properties counts for; NULL without a limit. */
static struct ag_device *limited_device(const CUmemAllocationProp *properties)
{
    size_t total;

    if (!ag_budget_is_limited() || properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        ag_cu.cuDeviceTotalMem_v2(&total, properties->location.id) != CUDA_SUCCESS)
        return NULL;
    return ag_device_of(properties->location.id);
}

/* Whatever context is current. NULL: it is no device's. */
static struct ag_device *device_at(const CUmemLocation *location)
{
    return location->type == CU_MEM_LOCATION_TYPE_DEVICE ? ag_device_of(location->id) : NULL;
}

/* Memory without an address. */
static CUresult create(CUmemGenericAllocationHandle *handle, size_t size,
                       const CUmemAllocationProp *properties, unsigned long long flags)
{
    struct ag_device *limited = limited_device(properties), *device = NULL;
    CUresult result;

    if (limited && !ag_budget_take(limited, size) &&
        (!ag_pressure_make_room(limited, size) || !ag_budget_take(limited, size)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = ag_cu.cuMemCreate(handle, size, properties, flags);
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY) /* so it exists */
        device = device_at(&properties->location);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && ag_pressure_relieve_for_call(device))
        result = ag_cu.cuMemCreate(handle, size, properties, flags);
    if (limited && (result != CUDA_SUCCESS || !ag_budget_note(limited, *handle, size)))
        ag_budget_give(limited, size);
    if (result == CUDA_SUCCESS && device)
        ag_alloc_given_to_program(device, size);
    return result;
}

/* Memory of the host is asked for as of the current context's device. */
static CUresult refuse(const CUmemLocation *location, size_t size, const void *caller)
{
    bool on_device = location->type == CU_MEM_LOCATION_TYPE_DEVICE;

    return ag_inject(AG_CALL_VIRTUAL, size, on_device ? location->id : -1, caller);
}

AG_ENTRY CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                              const CUmemAllocationProp *properties, unsigned long long flags)
{
    CUresult result;

    AG_ENTER(cuMemCreate, handle, size, properties, flags);
    if (!handle || !properties || !size)
        return ag_entry_leave(ag_cu.cuMemCreate(handle, size, properties, flags));
    result = refuse(&properties->location, size, __builtin_return_address(0));
    if (result != CUDA_SUCCESS)
        return ag_entry_leave(result);
    if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        ag_drain_note_visible(AG_VISIBLE_PINNED);
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
