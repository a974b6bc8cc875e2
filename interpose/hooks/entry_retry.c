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
#include "policy/paging/named.h"

bool ag_entry_makes_room(struct ag_relief *relief)
{
    bool made;

    if (ag_entry_inside())
        return false;
    ag_entry_depth = 1;
    ag_entry_errno = errno;
    made = ag_pressure_relieve_for_call(NULL, relief);
    (void)ag_entry_leave(CUDA_SUCCESS);
    return made;
}

static CUresult note_if_named(CUresult result, const CUfunction *function, const char *name)
{
    if (result == CUDA_SUCCESS)
        ag_function_note(*function, name);
    return result;
}

/* The runtime looks functions up so. */
static CUresult named_as(CUresult result, const CUfunction *function, CUkernel kernel)
{
    const char *name;

    if (result == CUDA_SUCCESS && ag_cu.cuKernelGetName &&
        ag_cu.cuKernelGetName(&name, kernel) == CUDA_SUCCESS)
        ag_function_note(*function, name);
    return result;
}

static void note_old_launch(CUfunction function, CUstream stream)
{
    ag_launches_add(function, stream);
    ag_entry_passes_on(stream, false);
    ag_latch_end();
}

static CUresult refuse_graph(const CUgraphExec *exec, CUgraph graph, const void *caller)
{
    return exec && graph ? ag_inject(AG_CALL_GRAPH, 0, -1, caller) : CUDA_SUCCESS;
}

static CUresult refuse_with(const CUgraphExec *exec, CUgraph graph,
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
static CUresult open_span(struct ag_app_graphs_span *span, CUresult refusal)
{
    if (refusal == CUDA_SUCCESS)
        ag_app_graphs_begin(span);
    return refusal;
}

/* Its launches bring in what its kernels name. */
static CUresult name_updated(CUresult result, CUgraphExec exec, CUgraph graph)
{
    if (ag_latch_is_on() && result == CUDA_SUCCESS)
        ag_name_graph(exec, graph);
    return result;
}

static CUresult name_instantiated(CUresult result, const CUgraphExec *exec, CUgraph graph)
{
    return result == CUDA_SUCCESS ? name_updated(result, *exec, graph) : result;
}

#include "interpose/hooks/made/retries.h"

AG_ENTRY CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    CUresult result;

    AG_ENTER(cuGraphExecDestroy, exec);
    ag_app_graphs_destroying(exec);
    if (ag_latch_is_on())
        ag_name_graph_gone(exec);
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

/* Memory without an address. */
static CUresult create_physical(CUmemGenericAllocationHandle *handle, size_t size,
                                const CUmemAllocationProp *properties, unsigned long long flags)
{
    struct ag_device *limited = limited_device(properties), *device = NULL;
    struct ag_relief relief = {0};
    CUresult result;

    if (limited && !ag_pressure_take_budget(limited, size))
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = ag_cu.cuMemCreate(handle, size, properties, flags);
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY) /* so it exists */
        device = ag_entry_device_at(&properties->location);
    while (result == CUDA_ERROR_OUT_OF_MEMORY && ag_pressure_relieve_for_call(device, &relief))
        result = ag_cu.cuMemCreate(handle, size, properties, flags);
    if (limited && (result != CUDA_SUCCESS || !ag_budget_note(limited, *handle, size)))
        ag_budget_give(limited, size);
    if (result == CUDA_SUCCESS && device)
        ag_alloc_given_to_program(device, size);
    return result;
}

/* Memory of the host is asked for as of the current context's device. */
static CUresult refuse_virtual(const CUmemLocation *location, size_t size, const void *caller)
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
    result = refuse_virtual(&properties->location, size, __builtin_return_address(0));
    if (result != CUDA_SUCCESS)
        return ag_entry_leave(result);
    if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        ag_drain_note_visible(AG_VISIBLE_PINNED);
    return ag_entry_leave(create_physical(handle, size, properties, flags));
}

AG_ENTRY CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    CUresult result;

    AG_ENTER(cuMemRelease, handle);
    ag_entry_remaps();
    result = ag_cu.cuMemRelease(handle);
    if (result == CUDA_SUCCESS)
        ag_budget_noted_gone(handle);
    return ag_entry_leave(result);
}
