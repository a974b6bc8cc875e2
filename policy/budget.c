/* A count of bytes for each device, and of memory known by handle only: see budget.h. */
#include "policy/budget.h"

#include "interpose/core/base/arena.h"
#include "interpose/core/base/map.h"
#include "interpose/core/base/raise.h"
#include "interpose/core/base/relaxed.h"
#include "interpose/core/base/threads/lock.h"
#include "policy/app/app_pools.h"
#include "policy/backends/given.h"
#include "policy/contexts/context.h"
#include "policy/ledger.h"

static struct ag_size limit = {.value = UINT64_MAX}, cache_limit;

void ag_budget_configure(struct ag_size new_limit, struct ag_size cache)
{
    limit = new_limit;
    cache_limit = cache;
}

bool ag_budget_is_limited(void)
{
    return limit.percent || limit.value != UINT64_MAX;
}

uint64_t ag_budget_of(uint64_t total_bytes)
{
    return ag_size_bytes(limit, total_bytes);
}

uint64_t ag_budget_size(const struct ag_device *device)
{
    return device->total_bytes < device->limit ? device->total_bytes : device->limit;
}

uint64_t ag_budget_cache_limit(const struct ag_device *device)
{
    return ag_size_bytes(cache_limit, ag_budget_size(device));
}

/* What is left of the limit beside the program's own pools. Asks the driver. */
static uint64_t share_of(const struct ag_device *device)
{
    uint64_t used = ag_app_pools_used(device);

    return device->limit > used ? device->limit - used : 0;
}

/* Counts are relaxed: the driver's own locks order what is counted, and a limit holds since no
 * count goes above it. */
bool ag_budget_take(struct ag_device *device, size_t bytes)
{
    uint64_t taken, share;

    if (device->limit == UINT64_MAX) {
        atomic_fetch_add_explicit(&device->taken, bytes, memory_order_relaxed);
        return true;
    }
    share = share_of(device);
    taken = atomic_load_explicit(&device->taken, memory_order_relaxed);
    do {
        if (taken > share || bytes > share - taken)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&device->taken, &taken, taken + bytes,
                                                    memory_order_relaxed, memory_order_relaxed));
    return true;
}

void ag_budget_overdraw(struct ag_device *device, size_t bytes)
{
    atomic_fetch_add_explicit(&device->taken, bytes, memory_order_relaxed);
}

void ag_budget_give(struct ag_device *device, size_t bytes)
{
    atomic_fetch_sub_explicit(&device->taken, bytes, memory_order_relaxed);
}

static uint64_t left_beside(struct ag_device *device, uint64_t cached)
{
    uint64_t taken = atomic_load_explicit(&device->taken, memory_order_relaxed);
    uint64_t share = share_of(device);

    /* What guards keep goes back before an allocation fails. */
    cached += atomic_load_explicit(&device->guard_kept, memory_order_relaxed);
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

/* --- beside what is in use --- */

#define SHARE        10u /* of the peak: what is kept, and what blocks are too large */
#define DEVICE_SHARE 64u /* of the device: what blocks are too large, for it cannot be given back */

/* The bytes that freed blocks may take in addition. */
static uint64_t extra(const struct ag_bound *bound)
{
    uint64_t peak = ag_relaxed(&bound->peak), asked_again = ag_relaxed(&bound->asked_again);
    uint64_t more = asked_again > peak / 2 ? asked_again - peak / 2 : 0;

    return more < peak ? more : peak;
}

uint64_t ag_budget_excess(struct ag_context *context, size_t size, bool *ret_asks_again)
{
    struct ag_device *device = context->device;
    struct ag_bound *bound = &device->bound;
    _Atomic uint64_t *given_back = &bound->given_back[ag_cache_bin(size)];
    uint64_t pieces, cached = ag_cache_block_bytes(&context->cache, &pieces);
    uint64_t taken = ag_relaxed(&device->taken) + size;
    uint64_t idle = cached + ag_relaxed(&context->too_large), peak, more, allowed, excess;

    if (atomic_load_explicit(&bound->off, memory_order_relaxed)) {
        *ret_asks_again = extra(bound) != 0;
        return 0;
    }
    /* The block of that bin which was given back last would have served. */
    if (ag_relaxed(given_back) >= size) {
        atomic_store_explicit(given_back, 0, memory_order_relaxed);
        atomic_fetch_add_explicit(&bound->asked_again, size, memory_order_relaxed);
    }
    /* What another context's cache has counts as in use, so that is never too little. */
    ag_raise_to(&bound->peak, taken > idle ? taken - idle : 0);
    peak = ag_relaxed(&bound->peak);
    more = extra(bound);
    *ret_asks_again = more != 0;
    allowed = peak + peak / SHARE + more;
    excess = taken > allowed ? taken - allowed : 0;
    return excess < cached ? excess : cached;
}

void ag_budget_note_given_back(const struct ag_block *blocks)
{
    for (; blocks; blocks = blocks->next) {
        struct ag_bound *bound = &blocks->context->device->bound;

        atomic_store_explicit(&bound->given_back[ag_cache_bin(blocks->size)], blocks->size,
                              memory_order_relaxed);
    }
}

void ag_budget_keep_all(struct ag_device *device)
{
    atomic_store_explicit(&device->bound.off, true, memory_order_relaxed);
}

bool ag_budget_keeps_all(const struct ag_device *device)
{
    return atomic_load_explicit(&device->bound.off, memory_order_relaxed);
}

size_t ag_budget_largest(struct ag_context *context, size_t size)
{
    const struct ag_device *device = context->device;
    uint64_t most = ag_relaxed(&device->bound.peak) / SHARE + extra(&device->bound);
    uint64_t now = ag_relaxed(&context->too_large);
    uint64_t room = device->limit < device->total_bytes ? device->limit : device->total_bytes;

    if (most > room / DEVICE_SHARE)
        most = room / DEVICE_SHARE;
    if (most < AG_NATIVE_PAGE)
        most = AG_NATIVE_PAGE; /* as much as the driver may add to a block */
    most = most > now ? most - now : 0;
    return size + (most > size / 8 ? most : size / 8);
}

/* The bytes by which the block is too large for a request of `size` bytes; up to an eighth more
 * counts as none. */
static uint64_t too_large(const struct ag_block *block, size_t size)
{
    uint64_t more = block->size > size ? block->size - size : 0;

    return more > size / 8 ? more : 0;
}

void ag_budget_note_larger(const struct ag_block *block, size_t size)
{
    atomic_fetch_add_explicit(&block->context->too_large, too_large(block, size),
                              memory_order_relaxed);
}

/* What was larger from the start counts as if it had been noted: never below 0. */
void ag_budget_note_freed(const struct ag_block *block)
{
    size_t requested = atomic_load_explicit(&block->requested, memory_order_relaxed);
    uint64_t less = too_large(block, ag_cache_block_size(requested));
    uint64_t now = ag_relaxed(&block->context->too_large);

    while (less && !atomic_compare_exchange_weak_explicit(
                       &block->context->too_large, &now, now > less ? now - less : 0,
                       memory_order_relaxed, memory_order_relaxed))
        ;
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

/* The bytes of a block that shares a page with others, as the driver counts them; 0 for other
 * blocks. */
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

    ag_given(device, desc, bytes);
    if (small)
        atomic_fetch_add_explicit(&device->small_native, small, memory_order_relaxed);
}

void ag_budget_note_returned(struct ag_device *device, struct ag_mem_desc desc, size_t bytes)
{
    size_t small = small_native(desc, bytes);

    ag_given_back(device, desc, bytes);
    if (small)
        atomic_fetch_sub_explicit(&device->small_native, small, memory_order_relaxed);
}

void ag_budget_forget(struct ag_block *block)
{
    ag_budget_note_returned(block->context->device, block->desc, block->size);
    if (ag_mem_desc_is_budgeted(block->desc))
        ag_budget_give(block->context->device, block->size);
    ag_ledger_remove(block);
}

void ag_budget_begin_child(void)
{
    ag_lock_init(&notes.lock, AG_RANK_BUDGET);
    ag_map_finish(&notes.map);
    ag_arena_begin_child(&noted_arena);
}
