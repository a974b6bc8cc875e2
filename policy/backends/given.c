/* Counts what a device gave: see given.h.
 *
 * What we have of the driver is counted in budget.c, but for what our pool holds beyond the blocks
 * that we have of it: that only the driver knows. Where a report with counts was asked for, it is
 * asked at each allocation from the pool. Else only where the pool must have grown (our blocks, and
 * those whose free has not taken effect, are more than it held), so a program that allocates what
 * the pool holds asks nothing; then the peak lacks what the pool grew by for want of a hole that is
 * large enough. A new peak is believed only once the driver was asked, which may have taken memory
 * out of the pool. */
#include "policy/backends/given.h"

#include "interpose/core/base/relaxed.h"
#include "interpose/core/driver/driver.h"
#include "interpose/core/report/live/allocations.h"
#include "interpose/core/report/stats.h"
#include "policy/contexts/context.h"
#include "policy/order/capture.h"

static bool always_asks;

void ag_given_configure(bool has_counts)
{
    always_asks = has_counts;
}

/* Relaxed: for a peak, which is believed only once the driver was asked. */
static uint64_t ask_level(CUmemoryPool pool, CUmemPool_attribute which)
{
    cuuint64_t value = 0;

    return ag_cu.cuMemPoolGetAttribute(pool, which, &value) == CUDA_SUCCESS ? value : 0;
}

/* What the pool holds, as the driver says, or held since it was asked last if that is more than
 * ever; no less than what we have of it. */
static uint64_t ask_pool_most(struct ag_device *device, uint64_t pooled)
{
    CUstreamCaptureMode previous;
    uint64_t reserved, most;

    if (!ag_once_is_done(&device->pool_state) || !ag_cu.cuMemPoolGetAttribute)
        return pooled;
    previous = ag_capture_relax(); /* it ends a capture otherwise */
    reserved = ask_level(device->pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    most = ask_level(device->pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH);
    ag_capture_restore(previous);
    atomic_store_explicit(&device->pool_reserved, reserved, memory_order_relaxed);
    if (most > ag_relaxed(&device->pool_high)) {
        atomic_store_explicit(&device->pool_high, most, memory_order_relaxed);
        reserved = most;
    }
    return reserved > pooled ? reserved : pooled;
}

void ag_given(struct ag_device *device, struct ag_mem_desc desc, size_t bytes)
{
    uint64_t pooled = ag_relaxed(&device->pooled), reserved = ag_relaxed(&device->pool_reserved);
    uint64_t taken, beside; /* the pool */
    _Atomic uint64_t *peak;
    bool asked = false;

    if (desc.source == AG_SOURCE_POOL) {
        pooled = atomic_fetch_add_explicit(&device->pooled, bytes, memory_order_relaxed) + bytes;
        asked = always_asks || pooled + ag_level_current(&ag_stats.pending_bytes) > reserved;
    }
    if (asked)
        reserved = ask_pool_most(device, pooled);
    if (reserved < pooled)
        reserved = pooled;
    taken = ag_relaxed(&device->taken);
    beside = taken > pooled ? taken - pooled : 0;
    peak = ag_stats_given_peak(device->ordinal);
    if (beside + reserved <= ag_relaxed(peak))
        return;
    if (!asked)
        reserved = ask_pool_most(device, pooled);
    ag_raise_to(peak, beside + reserved);
}

void ag_given_back(struct ag_device *device, struct ag_mem_desc desc, size_t bytes)
{
    if (desc.source == AG_SOURCE_POOL)
        atomic_fetch_sub_explicit(&device->pooled, bytes, memory_order_relaxed);
}

void ag_given_trimmed(struct ag_device *device)
{
    atomic_store_explicit(&device->pool_reserved, 0, memory_order_relaxed);
}
