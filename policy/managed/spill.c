/* The list of spilled blocks, and moving them to the device: see spill.h.
 *
 * Managed memory keeps its address wherever its pages are, and kernels that run meanwhile stay
 * correct, so a block can be moved without the program's knowledge. Only a free must not come in
 * between: the ledger's state MOVING prevents that. */
#include "policy/managed/spill.h"

#include "interpose/core/base/threads/lock.h"
#include "interpose/core/driver/driver.h"
#include "interpose/core/report/live/allocations.h"
#include "interpose/core/report/trace/trace.h"
#include "policy/backends/backend.h"
#include "policy/backends/given.h"
#include "policy/budget.h"
#include "policy/contexts/context.h"
#include "policy/order/capture.h"
#include "policy/pressure.h"

#define MAX_SPILLED 4096u /* of those spilled beyond it none comes back */

_Atomic unsigned ag_spill_n; /* changed under the lock below; relaxed: see spill.h */

static enum ag_oom oom = AG_OOM_ERROR;
static bool unspill;

static struct {
    struct ag_lock lock;
    CUdeviceptr address[MAX_SPILLED]; /* first spilled first */
    size_t size[MAX_SPILLED];
    struct ag_context *context[MAX_SPILLED];
} spilled = {.lock = AG_LOCK_INIT(AG_RANK_SPILLED)};

void ag_spill_configure(enum ag_oom new_oom, bool new_unspill)
{
    oom = new_oom;
    unspill = new_unspill;
}

bool ag_spill_wanted(void)
{
    return oom == AG_OOM_SPILL;
}

void ag_spill_add(const struct ag_block *block)
{
    unsigned n;

    if (!unspill)
        return;
    ag_lock_take(&spilled.lock);
    n = atomic_load_explicit(&ag_spill_n, memory_order_relaxed);
    if (n < MAX_SPILLED) {
        spilled.address[n] = block->address;
        spilled.size[n] = block->size;
        spilled.context[n] = block->context;
        atomic_store_explicit(&ag_spill_n, n + 1, memory_order_relaxed);
    }
    ag_lock_release(&spilled.lock);
}

void ag_spill_remove(CUdeviceptr address)
{
    unsigned n, i = 0;

    if (!atomic_load_explicit(&ag_spill_n, memory_order_relaxed))
        return;
    ag_lock_take(&spilled.lock);
    n = atomic_load_explicit(&ag_spill_n, memory_order_relaxed);
    while (i < n && spilled.address[i] != address)
        i++;
    if (i < n) {
        for (; i + 1 < n; i++) { /* the order stays */
            spilled.address[i] = spilled.address[i + 1];
            spilled.size[i] = spilled.size[i + 1];
            spilled.context[i] = spilled.context[i + 1];
        }
        atomic_store_explicit(&ag_spill_n, n - 1, memory_order_relaxed);
    }
    ag_lock_release(&spilled.lock);
}

/* A spilled block, and the context it is of. */
struct found {
    CUdeviceptr address;
    const struct ag_context *context;
};

/* The block spilled first of those that `room` bytes hold; of address 0 when none does. */
static struct found first_that_fits(const struct ag_device *device, uint64_t room)
{
    struct found found = {0};
    unsigned n;

    ag_lock_take(&spilled.lock);
    n = atomic_load_explicit(&ag_spill_n, memory_order_relaxed);
    for (unsigned i = 0; i < n && !found.address; i++) {
        if (spilled.context[i]->device == device && spilled.size[i] <= room)
            found = (struct found){spilled.address[i], spilled.context[i]};
    }
    ag_lock_release(&spilled.lock);
    return found;
}

/* Bytes free on the device; UINT64_MAX when the driver does not say. One of its contexts is
 * current. */
static uint64_t free_on_device(struct ag_device *device)
{
    size_t free_bytes = 0, total;

    if (ag_cu.cuMemGetInfo_v2(&free_bytes, &total) != CUDA_SUCCESS)
        return UINT64_MAX;
    return free_bytes + ag_managed_kept(device);
}

/* Room on the budget and on the device, taken from the budget; caches are given up for it only if
 * that is enough. In a context of the device. */
static bool reserve_room(struct ag_device *device, size_t bytes)
{
    uint64_t free_bytes = free_on_device(device);
    bool taken;

    if (bytes > free_bytes && bytes - free_bytes > ag_device_cached(device))
        return false;
    if (bytes > free_bytes) {
        ag_pressure_relieve(device);
        if (bytes > free_on_device(device))
            return false;
    }
    taken = ag_budget_take(device, bytes);
    if (taken || !ag_pressure_make_room(device, bytes))
        return taken;
    return ag_budget_take(device, bytes);
}

static void tell_moved(const struct ag_block *block, enum ag_placement place, uint64_t began)
{
    ag_trace_add(&(struct ag_trace_event){
        .kind = AG_TRACE_MOVED,
        .ticks = began,
        .duration = ag_clock_ticks() - began,
        .device = (int16_t)block->context->device->ordinal,
        .placement = (uint8_t)place,
        .address = block->address,
        .size = atomic_load_explicit(&block->requested, memory_order_relaxed),
    });
}

/* The block is MOVING: ours until ag_ledger_moved(). */
static void move_to_device(struct ag_block *block)
{
    uint64_t began = ag_clock_ticks();
    struct ag_device *device = block->context->device;
    struct ag_mem_desc desc = block->desc;
    bool pushed;

    if (ag_context_make_current(block->context, &pushed) == CUDA_SUCCESS &&
        reserve_room(device, block->size)) {
        if (ag_managed_move_to_device(block->context, block->address, block->size) ==
            CUDA_SUCCESS) {
            desc.prefer = AG_PREFER_DEVICE;
            desc.spilled = false;
            ag_given(device, desc, block->size);
            ag_stats_moved(device->ordinal, AG_PLACE_SPILLED, ag_mem_desc_placement(desc),
                           atomic_load_explicit(&block->requested, memory_order_relaxed));
            ag_trace_step(AG_STAT_UNSPILL, device->ordinal, block->size);
            ag_stats_add(AG_STAT_UNSPILL_BYTES, block->size);
            ag_spill_remove(block->address);
            if (ag_trace_on())
                tell_moved(block, ag_mem_desc_placement(desc), began);
        } else {
            ag_budget_give(device, block->size);
        }
    }
    ag_context_restore(pushed);
    ag_ledger_moved(block, desc);
}

/* Its context does not end meanwhile. */
static void move_found(struct ag_context *context, void *found_)
{
    const struct found *found = found_;
    struct ag_block *block = context == found->context ? ag_ledger_move(found->address) : NULL;

    if (block && block->desc.spilled && block->context == context)
        move_to_device(block);
    else if (block)
        ag_ledger_moved(block, block->desc);
}

void ag_spill_move_first(struct ag_device *device)
{
    struct found found;

    if (ag_capture_is_open())
        return;
    found = first_that_fits(device, ag_budget_left(device));
    if (found.address)
        ag_context_each(move_found, &found);
}

void ag_spill_begin_child(void)
{
    ag_lock_init(&spilled.lock, AG_RANK_SPILLED);
    atomic_store(&ag_spill_n, 0);
}
