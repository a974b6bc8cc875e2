/* Finds out whose memory a block is, and what is left when there is none: see held.h. */
#include "policy/held.h"

#include "interpose/core/driver/driver.h"
#include "interpose/core/report/trace/trace.h"
#include "policy/contexts/context.h"
#include "policy/contexts/enter.h"
#include "policy/order/capture.h"
#include "policy/paging/sites.h"

/* What the driver says of our pool on the device. Of a capture nothing is asked. */
static void ask_pool_levels_of(struct ag_device *device, struct ag_held_failure *failure)
{
    cuuint64_t reserved = 0, used = 0;

    if (!ag_once_is_done(&device->pool_state) || !ag_cu.cuMemPoolGetAttribute)
        return;
    if (ag_cu.cuMemPoolGetAttribute(device->pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
                                    &reserved) == CUDA_SUCCESS)
        failure->pool_reserved = reserved;
    if (ag_cu.cuMemPoolGetAttribute(device->pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used) ==
        CUDA_SUCCESS)
        failure->pool_used = used < reserved ? used : reserved;
}

static void note_failure(enum ag_held_kind kind, size_t bytes, struct ag_device *device)
{
    struct ag_held_failure failure = {
        .bytes = bytes, .kind = (uint8_t)kind, .device = (int16_t)(device ? device->ordinal : -1)};
    size_t free_bytes, total_bytes;

    if (device && !ag_capture_is_open()) {
        if (ag_cu.cuMemGetInfo_v2(&free_bytes, &total_bytes) == CUDA_SUCCESS) {
            failure.free_bytes = free_bytes;
            failure.total_bytes = total_bytes;
        }
        failure.cached_bytes = ag_device_cached(device);
        ask_pool_levels_of(device, &failure);
    }
    ag_holders_failed(&failure);
}

/* The trace has an event of the allocation, but of device memory alone. */
static void trace_stack(enum ag_held_kind kind, uint64_t address, int device, uint32_t row)
{
    if (row < AG_HOLDERS_STACKS && ag_trace_on() &&
        (kind == AG_HELD_DEVICE || kind == AG_HELD_POOL))
        ag_trace_add(&(struct ag_trace_event){.kind = AG_TRACE_STACK,
                                              .ticks = ag_clock_ticks(),
                                              .device = (int16_t)device,
                                              .address = address,
                                              .code = (uint16_t)row});
}

static void note_block(enum ag_held_kind kind, uint64_t address, size_t bytes,
                       const struct ag_context *owner, int device)
{
    uint32_t row = ag_holders_add(kind, address, bytes, owner, device);

    trace_stack(kind, address, device, row);
    ag_site_set(address, bytes, row);
}

void ag_held_note(CUresult result, enum ag_held_kind kind, uint64_t address, size_t bytes,
                  const struct ag_device *device)
{
    struct ag_context *context;
    int ordinal;

    if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY)
        return;
    context = ag_context_current();
    if (!device && context)
        device = context->device;
    ordinal = device ? device->ordinal : -1;
    if (result == CUDA_SUCCESS)
        note_block(kind, address, bytes, kind == AG_HELD_POOL ? NULL : context, ordinal);
    else
        note_failure(kind, bytes, context ? context->device : NULL);
}
