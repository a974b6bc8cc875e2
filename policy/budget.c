/* A count of bytes for each device, and of memory known by handle only: see budget.h. */
#include "policy/budget.h"

#include "interpose/base/arena.h"
#include "interpose/base/map.h"
#include "interpose/base/threads/lock.h"
#include "policy/app/app_pools.h"
#include "policy/contexts/context.h"
#include "policy/ledger.h"

static struct ag_size limit = {.value = UINT64_MAX};

void ag_budget_configure(struct ag_size new_limit)
{
    limit = new_limit;
}

bool ag_budget_is_limited(void)
{
    return limit.percent || limit.value != UINT64_MAX;
}

uint64_t ag_budget_of(uint64_t total_bytes)
{
    return ag_size_bytes(limit, total_bytes);
}

/* What is left of the limit beside the program's own pools. Asks the driver. */
static uint64_t share_of(const struct ag_device *device)
{
    uint64_t used = ag_app_pools_used(device);

    return device->limit > used ? device->limit - used : 0;
}

bool ag_budget_take(struct ag_device *device, size_t bytes)
{
    uint64_t taken, share;

    if (device->limit == UINT64_MAX)
        return true;
    share = share_of(device);
    taken = atomic_load_explicit(&device->budget_taken, memory_order_relaxed);
    do {
        if (taken > share || bytes > share - taken)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&device->budget_taken, &taken, taken + bytes,
                                                    memory_order_relaxed, memory_order_relaxed));
    return true;
}

void ag_budget_overdraw(struct ag_device *device, size_t bytes)
{
    if (device->limit != UINT64_MAX)
        atomic_fetch_add_explicit(&device->budget_taken, bytes, memory_order_relaxed);
}

void ag_budget_give(struct ag_device *device, size_t bytes)
{
    if (device->limit != UINT64_MAX)
        atomic_fetch_sub_explicit(&device->budget_taken, bytes, memory_order_relaxed);
}

static uint64_t left_beside(struct ag_device *device, uint64_t cached)
{
    uint64_t taken = atomic_load_explicit(&device->budget_taken, memory_order_relaxed);
    uint64_t share = share_of(device);

    taken = taken > cached ? taken - cached : 0;
    return share > taken ? share - taken : 0;
}

uint64_t ag_budget_left(struct ag_device *device)
{
    return device->limit == UINT64_MAX ? UINT64_MAX : left_beside(device, ag_device_cached(device));
}

uint64_t ag_budget_left_now(struct ag_device *device)
{
    return device->limit == UINT64_MAX ? UINT64_MAX
                                       : left_beside(device, ag_device_cached_now(device));
}

/* --- memory without an address --- */

struct noted {
    struct ag_device *device;
    size_t bytes;
};

static struct ag_arena noted_arena = AG_ARENA_INIT(struct noted);

static struct {
    struct ag_lock lock; /* guards the map: handle -> noted */
    struct ag_map map;
} notes = {.lock = AG_LOCK_INIT(AG_RANK_BUDGET)};

bool ag_budget_note(struct ag_device *device, uint64_t handle, size_t bytes)
{
    struct noted *noted = device->limit != UINT64_MAX ? ag_arena_get(&noted_arena) : NULL;
    bool entered;

    if (!noted)
        return false;
    *noted = (struct noted){device, bytes};
    ag_lock_take(&notes.lock);
    entered = ag_map_put(&notes.map, handle, noted);
    ag_lock_release(&notes.lock);
    if (!entered)
        ag_arena_put(&noted_arena, noted);
    return entered;
}

void ag_budget_noted_gone(uint64_t handle)
{
    struct noted *noted;

    if (!ag_budget_is_limited())
        return;
    ag_lock_take(&notes.lock);
    noted = ag_map_take(&notes.map, handle);
    ag_lock_release(&notes.lock);
    if (!noted)
        return;
    ag_budget_give(noted->device, noted->bytes);
    ag_arena_put(&noted_arena, noted);
}

/* As the driver counts it; of blocks that share pages. */
static size_t small_native(struct ag_mem_desc desc, size_t bytes)
{
    const size_t unit = 512;

    if ((desc.source != AG_SOURCE_CACHED && desc.source != AG_SOURCE_NATIVE) ||
        bytes >= AG_NATIVE_PAGE)
        return 0;
    return (bytes + unit - 1) / unit * unit;
}

void ag_budget_note_given(struct ag_device *device, struct ag_mem_desc desc, size_t bytes)
{
    size_t small = small_native(desc, bytes);

    if (small)
        atomic_fetch_add_explicit(&device->small_native, small, memory_order_relaxed);
}

void ag_budget_note_returned(struct ag_device *device, struct ag_mem_desc desc, size_t bytes)
{
    size_t small = small_native(desc, bytes);

    if (small)
        atomic_fetch_sub_explicit(&device->small_native, small, memory_order_relaxed);
}

void ag_budget_forget(struct ag_block *block)
{
    ag_budget_note_returned(block->context->device, block->desc, block->size);
    if (ag_mem_desc_is_on_device(block->desc))
        ag_budget_give(block->context->device, block->size);
    ag_ledger_remove(block);
}

void ag_budget_begin_child(void)
{
    ag_lock_init(&notes.lock, AG_RANK_BUDGET);
    ag_map_finish(&notes.map);
    ag_arena_begin_child(&noted_arena);
}
