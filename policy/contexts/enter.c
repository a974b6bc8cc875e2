/* Rows for new devices and contexts, and what has to be waited for before work of a new one: see
 * enter.h. */
#include "policy/contexts/enter.h"

#include "interpose/core/driver/driver.h"
#include "policy/budget.h"
#include "policy/contexts/green_context.h"
#include "policy/order/drain.h"
#include "policy/order/free.h"

static _Thread_local struct {
    CUcontext handle;
    struct ag_context *context;
    unsigned generation;
} last_current;
_Thread_local bool ag_context_inside;

static int device_attribute(CUdevice_attribute which, int device)
{
    int value = 0;

    if (ag_cu.cuDeviceGetAttribute(&value, which, device) != CUDA_SUCCESS)
        return 0;
    return value;
}

static void describe_device(struct ag_device *device, int ordinal)
{
    size_t total = 0;

    *device = (struct ag_device){.ordinal = ordinal};
    (void)ag_cu.cuDeviceTotalMem_v2(&total, ordinal);
    (void)ag_cu.cuDeviceGetName(device->name, sizeof(device->name) - 1, ordinal);
    device->total_bytes = total;
    device->limit = ag_budget_of(total);
    device->cache_limit = ag_budget_cache_limit(device);
    device->has_pools = device_attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, ordinal) &&
                        ag_cu.cuMemPoolCreate && ag_cu.cuMemAllocFromPoolAsync &&
                        ag_cu.cuMemFreeAsync && ag_cu.cuMemPoolSetAttribute;
    device->has_managed = device_attribute(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, ordinal);
    device->is_integrated = device_attribute(CU_DEVICE_ATTRIBUTE_INTEGRATED, ordinal);
    device->uses_host_pages =
        device_attribute(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES, ordinal);
    device->has_fences = ag_cu.cuCtxRecordEvent && ag_cu.cuCtxWaitEvent;
    if (device_attribute(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, ordinal))
        ag_drain_note_visible(AG_VISIBLE_PAGEABLE);
}

struct ag_device *ag_device_of(int ordinal)
{
    struct ag_device fresh, *row = ag_device_find(ordinal);

    if (row)
        return row;
    describe_device(&fresh, ordinal); /* asks the driver: no lock held */
    return ag_device_add(&fresh);
}

static int device_of_context(CUcontext handle)
{
    CUcontext current = NULL, popped;
    CUdevice device = -1;

    (void)ag_cu.cuCtxGetCurrent(&current);
    if (current == handle)
        return ag_cu.cuCtxGetDevice(&device) == CUDA_SUCCESS ? device : -1;
    if (ag_cu.cuCtxPushCurrent_v2(handle) != CUDA_SUCCESS)
        return -1;
    if (ag_cu.cuCtxGetDevice(&device) != CUDA_SUCCESS)
        device = -1;
    (void)ag_cu.cuCtxPopCurrent_v2(&popped);
    return device;
}

/* Waits for the work of other contexts. It is in the table by then: any thread that finds it. */
static void finish_entering(struct ag_context *context)
{
    if (!atomic_load_explicit(&context->entering, memory_order_acquire))
        return;
    ag_free_context_entered();
    atomic_store_explicit(&context->entering, false, memory_order_release);
}

/* A new context of that handle. What another thread has entered meanwhile; NULL on failure. */
static struct ag_context *enter_new(CUcontext handle, int device, bool retained, bool *ret_is_new)
{
    struct ag_device *row = device < 0 ? NULL : ag_device_of(device);
    struct ag_context *fresh = row ? ag_context_get_memory() : NULL, *context;

    *ret_is_new = false;
    if (!fresh)
        return NULL;
    ag_free_context_forgotten(fresh); /* it may have been another's */
    fresh->device = row;
    /* After a reset the primary context comes back under its old handle, still referenced. */
    fresh->primary_references = !retained && row->primary == handle;
    fresh->unreferenced = false;
    /* Relaxed: it is not in the table yet. */
    atomic_store_explicit(&fresh->entering, true, memory_order_relaxed);
    context = ag_context_insert(fresh, handle, retained);
    *ret_is_new = context == fresh;
    if (*ret_is_new)
        finish_entering(fresh);
    return context;
}

struct ag_context *ag_context_enter(CUcontext handle, int device)
{
    struct ag_context *context = ag_context_find(handle);
    int green_device = context || !handle ? -1 : ag_green_device_inside(handle);
    bool is_new;

    if (green_device >= 0) {
        device = green_device;
        handle = ag_context_primary_handle(device);
        context = ag_context_find(handle);
    }
    if (context || !handle)
        return context;
    return enter_new(handle, device < 0 ? device_of_context(handle) : device, false, &is_new);
}

/* What another thread has entered may have no reference any more when it is looked for again. */
void ag_context_primary_retained(CUcontext handle, int device)
{
    struct ag_context *found = NULL;
    bool is_new = false;

    while (!is_new && !(found = ag_context_find_referred(handle)) &&
           enter_new(handle, device, true, &is_new))
        ;
    if (found) /* the thread that entered it may still be waiting */
        finish_entering(found);
}

__attribute__((noinline)) static struct ag_context *enter_current(CUcontext handle,
                                                                  unsigned generation)
{
    struct ag_context *context = ag_context_enter(handle, -1);

    last_current.context = context;
    last_current.handle = context ? handle : NULL;
    last_current.generation = generation;
    ag_context_inside = context && context->handle != handle;
    return context;
}

struct ag_context *ag_context_current(void)
{
    unsigned generation = atomic_load_explicit(&ag_context_generation, memory_order_acquire);
    CUcontext handle = NULL;

    if (ag_cu.cuCtxGetCurrent(&handle) != CUDA_SUCCESS || !handle)
        return NULL;
    return last_current.handle == handle && last_current.generation == generation
               ? last_current.context
               : enter_current(handle, generation);
}

bool ag_context_is_inside(void)
{
    return ag_context_inside;
}
