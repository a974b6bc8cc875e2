/* The estimate of where managed blocks are: see residency.h.
 *
 * Launches on all threads read it without the lock; only changes take it. A launch may still read a
 * block that another thread has just removed: its memory is never unmapped, its fields are atomic,
 * and before anything is done about it, it is looked up again under the lock. So what launches read
 * is relaxed, but for the order of two counts; changes are under the lock. */
#include "policy/managed/residency.h"

#include <stddef.h>

#include "interpose/core/base/arena.h"
#include "interpose/core/base/clock.h"
#include "interpose/core/base/threads/lock.h"
#include "policy/managed/lru.h"
#include "policy/managed/spans.h"

#define MAX_DEVICES  64u /* blocks are not moved to devices of a higher ordinal */
#define MAX_FAILURES 3u

struct resident {
    struct ag_span span;
    struct ag_lru_item item; /* in its device's list, unless it lies on the host */
    _Atomic int device;
    unsigned n_failed;
    uint64_t held; /* bytes that its device is charged with */
    struct resident *next_free;
};

static struct {
    struct ag_lock lock; /* guards all changes */
    struct ag_spans spans;
    struct resident *freelist; /* not back into the arena: readers may still look at them */
    _Atomic uint64_t n_blocks, bytes;
    struct {
        _Atomic uint64_t n_blocks, capacity;
        uint64_t held;
        struct ag_lru lru;
    } devices[MAX_DEVICES];
} state = {.lock = AG_LOCK_INIT(AG_RANK_RESIDENCY)};

static struct ag_arena arena = AG_ARENA_INIT(struct resident);

static bool is_known_device(int device)
{
    return device >= 0 && (unsigned)device < MAX_DEVICES;
}

static struct resident *of_span(struct ag_span *span)
{
    return span ? (struct resident *)((char *)span - offsetof(struct resident, span)) : NULL;
}

static struct resident *of_item(struct ag_lru_item *item)
{
    return (struct resident *)((char *)item - offsetof(struct resident, item));
}

static uint64_t resident_bytes(struct resident *block)
{
    return atomic_load_explicit(&block->span.last, memory_order_relaxed) -
           atomic_load_explicit(&block->span.first, memory_order_relaxed) + 1;
}

static uint64_t capacity_of(int device)
{
    uint64_t capacity = atomic_load_explicit(&state.devices[device].capacity, memory_order_relaxed);

    return capacity ? capacity : UINT64_MAX;
}

/* --- changes, with the lock held --- */

/* Off its device, if it is on one. */
static void leave_device(struct resident *block)
{
    int device = atomic_load_explicit(&block->device, memory_order_relaxed);

    if (device == AG_RESIDENT_HOST)
        return;
    atomic_store_explicit(&block->device, AG_RESIDENT_HOST, memory_order_relaxed);
    atomic_fetch_sub_explicit(&state.devices[device].n_blocks, 1, memory_order_release);
    state.devices[device].held -= block->held;
    ag_lru_remove(&state.devices[device].lru, &block->item);
}

/* Room on `device` for up to `wanted` bytes. The blocks that were last used before `since` go for
 * it. */
static uint64_t make_device_room(int device, uint64_t wanted, uint64_t since)
{
    uint64_t capacity = capacity_of(device), room = capacity - state.devices[device].held;

    while (room < wanted) {
        struct ag_lru_item *oldest = ag_lru_oldest(&state.devices[device].lru);

        if (!oldest || oldest->known_used >= since)
            return room;
        leave_device(of_item(oldest));
        room = capacity - state.devices[device].held;
    }
    return wanted;
}

/* Onto `device`, from the host, as much of it as there is room for. */
static bool enter_device(struct resident *block, int device, uint64_t since)
{
    block->held = make_device_room(device, resident_bytes(block), since);
    atomic_store_explicit(&block->item.used, since, memory_order_relaxed);
    if (!block->held || !ag_lru_add(&state.devices[device].lru, &block->item))
        return false;
    state.devices[device].held += block->held;
    atomic_store_explicit(&block->device, device, memory_order_relaxed);
    atomic_fetch_add_explicit(&state.devices[device].n_blocks, 1, memory_order_release);
    return true;
}

static struct resident *obtain_resident(void)
{
    struct resident *block = state.freelist;

    if (block)
        state.freelist = block->next_free;
    else
        block = ag_arena_get(&arena);
    return block;
}

static void put_spare(struct resident *block)
{
    block->next_free = state.freelist;
    state.freelist = block;
}

static struct resident *find_resident(uint64_t address)
{
    return of_span(ag_spans_find(&state.spans, address));
}

/* --- what the policy says --- */

void ag_residency_add(uint64_t address, size_t bytes, int device)
{
    struct resident *block;

    if (!bytes)
        return;
    ag_lock_take(&state.lock);
    block = find_resident(address) ? NULL : obtain_resident();
    if (block) {
        block->n_failed = 0;
        atomic_store_explicit(&block->device, AG_RESIDENT_HOST, memory_order_relaxed);
        if (ag_spans_add(&state.spans, &block->span, address, bytes)) {
            atomic_fetch_add_explicit(&state.n_blocks, 1, memory_order_relaxed);
            atomic_fetch_add_explicit(&state.bytes, bytes, memory_order_relaxed);
            if (is_known_device(device))
                (void)enter_device(block, device, ag_clock_ticks());
        } else {
            put_spare(block);
        }
    }
    ag_lock_release(&state.lock);
}

int ag_residency_remove(uint64_t address)
{
    struct resident *block;
    int device = AG_RESIDENT_HOST;

    if (!atomic_load_explicit(&state.n_blocks, memory_order_relaxed))
        return device;
    ag_lock_take(&state.lock);
    block = find_resident(address);
    if (block && atomic_load_explicit(&block->span.first, memory_order_relaxed) == address) {
        device = atomic_load_explicit(&block->device, memory_order_relaxed);
        leave_device(block);
        ag_spans_remove(&state.spans, &block->span);
        atomic_fetch_sub_explicit(&state.bytes, resident_bytes(block), memory_order_relaxed);
        atomic_fetch_sub_explicit(&state.n_blocks, 1, memory_order_release);
        put_spare(block);
    }
    ag_lock_release(&state.lock);
    return device;
}

void ag_residency_set_capacity(int device, uint64_t bytes)
{
    if (!is_known_device(device))
        return;
    ag_lock_take(&state.lock);
    atomic_store_explicit(&state.devices[device].capacity, bytes, memory_order_relaxed);
    while (state.devices[device].held > capacity_of(device))
        leave_device(of_item(ag_lru_oldest(&state.devices[device].lru)));
    ag_lock_release(&state.lock);
}

uint64_t ag_residency_capacity(int device)
{
    return is_known_device(device)
               ? atomic_load_explicit(&state.devices[device].capacity, memory_order_relaxed)
               : 0;
}

/* --- what a launch asks --- */

bool ag_residency_is_complete(int device)
{
    /* In this order, so that a block that goes meanwhile makes them differ rather than agree. */
    uint64_t all = atomic_load_explicit(&state.n_blocks, memory_order_acquire);

    return !all || !is_known_device(device) ||
           all == atomic_load_explicit(&state.devices[device].n_blocks, memory_order_relaxed);
}

bool ag_residency_missing(int device, uint64_t address, uint64_t now)
{
    struct resident *block = find_resident(address);

    if (!block)
        return false;
    if (atomic_load_explicit(&block->device, memory_order_relaxed) != device)
        return true;
    if (atomic_load_explicit(&state.bytes, memory_order_relaxed) > capacity_of(device))
        atomic_store_explicit(&block->item.used, now, memory_order_relaxed);
    return false;
}

bool ag_residency_claim(int device, uint64_t address, uint64_t now, uint64_t *ret_address,
                        size_t *ret_bytes)
{
    struct resident *block;
    bool claimed = false;

    ag_lock_take(&state.lock);
    block = find_resident(address);
    if (block && atomic_load_explicit(&block->device, memory_order_relaxed) != device) {
        leave_device(block);
        claimed = enter_device(block, device, now);
    }
    if (claimed) {
        *ret_address = atomic_load_explicit(&block->span.first, memory_order_relaxed);
        *ret_bytes = block->held;
    }
    ag_lock_release(&state.lock);
    return claimed;
}

void ag_residency_failed(int device, uint64_t address)
{
    struct resident *block;

    ag_lock_take(&state.lock);
    block = find_resident(address);
    if (block && atomic_load_explicit(&block->device, memory_order_relaxed) == device &&
        ++block->n_failed < MAX_FAILURES)
        leave_device(block);
    ag_lock_release(&state.lock);
}

void ag_residency_begin_child(void)
{
    ag_lock_init(&state.lock, AG_RANK_RESIDENCY); /* a thread of the parent may have held it */
    ag_arena_begin_child(&arena);
    state.spans = (struct ag_spans){0};
    atomic_store(&state.n_blocks, 0);
    atomic_store(&state.bytes, 0);
    for (unsigned i = 0; i < MAX_DEVICES; i++) {
        atomic_store(&state.devices[i].n_blocks, 0);
        state.devices[i].held = 0;
        ag_lru_finish(&state.devices[i].lru);
    }
}
