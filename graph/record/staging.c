/* The ring of pinned slots: see staging.h.
 *
 * A slot is FREE; HELD, by the withheld copies of a stream or by a thread that tries to get it; or
 * SENT: an event was recorded after the work that reads it. The lock guards states and links only.
 * Whoever holds a slot is the only one to touch the rest of it, so no driver call is made under the
 * lock.
 *
 * The slot that was sent last is used again if it is free already, as in programs that wait in each
 * iteration: it lies in the processor's cache, and nodes that read it need no update.
 *
 * Pinning 1 MiB takes the driver 0.44 ms, 16 MiB 5.6 ms (H100), which few programs need: the ring
 * begins with a few slots, and grows where the oldest one is still in use. */
#include "graph/record/staging.h"

#include <string.h>

#include "graph/tuning.h"
#include "interpose/core/base/clock.h"
#include "interpose/core/base/pages.h"
#include "interpose/core/base/threads/lock.h"
#include "interpose/core/base/threads/wait.h"
#include "interpose/core/driver/driver.h"
#include "interpose/core/report/stats.h"
#include "policy/order/capture.h"

#define ALIGNMENT    64u
#define FIRST_SLOTS  4u
#define GROWTH_TIMES 4u

enum slot_state {
    SLOT_FREE,
    SLOT_HELD,
    SLOT_SENT,
    SLOT_LOST, /* its event could not be recorded: never used again */
};

struct slot {
    CUevent ready;
    enum slot_state state;
    uint32_t next; /* of the same stream: 1 + number, 0 for none; its holder's */
    bool is_first; /* of those that were pinned together */
    unsigned char *memory;
};

struct ag_ring {
    struct ag_lock lock;    /* guards the slots' states, and what follows but own_bytes */
    uint32_t n_made, depth; /* slots that exist, and as many as may */
    bool grows;             /* a thread makes more of them */
    uint32_t next;          /* the oldest */
    uint32_t sent_last;     /* 1 + number; 0: none yet */
    size_t own_bytes;       /* of this struct */
    uint64_t slot_bytes;
    struct slot slots[];
};

/* --- making slots --- */

/* How many slots the caller is to make after those that exist; 0: none. */
static uint32_t begin_growing(struct ag_ring *ring)
{
    uint32_t n = 0;

    ag_lock_take(&ring->lock);
    if (!ring->grows && ring->n_made < ring->depth) {
        n = ring->n_made ? ring->n_made * (GROWTH_TIMES - 1) : FIRST_SLOTS;
        if (n > ring->depth - ring->n_made)
            n = ring->depth - ring->n_made;
        ring->grows = true;
    }
    ag_lock_release(&ring->lock);
    return n;
}

/* `made` of the `wanted` slots exist, and are the next to be used. What the driver has refused once
 * is not asked for again: with fewer slots the ring works as well. */
static void end_growing(struct ag_ring *ring, uint32_t made, uint32_t wanted)
{
    ag_lock_take(&ring->lock);
    if (made)
        ring->next = ring->n_made;
    ring->n_made += made;
    if (made < wanted)
        ring->depth = ring->n_made;
    ring->grows = false;
    ag_lock_release(&ring->lock);
}

/* Pins memory for `n` slots and creates their events. Returns how many there are. */
static uint32_t make(struct ag_ring *ring, uint32_t n)
{
    struct slot *slots = ring->slots + ring->n_made; /* nobody else changes it meanwhile */
    void *memory = NULL;
    uint32_t made = 0;

    if (ag_cu.cuMemHostAlloc(&memory, n * ring->slot_bytes, 0) != CUDA_SUCCESS)
        return 0;
    while (made < n &&
           ag_cu.cuEventCreate(&slots[made].ready, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS) {
        slots[made].memory = (unsigned char *)memory + made * ring->slot_bytes;
        slots[made].is_first = made == 0;
        made++;
    }
    if (!made)
        (void)ag_cu.cuMemFreeHost(memory);
    return made;
}

/* False: there are as many slots as there may be, or another thread is making some. */
static bool grow(struct ag_ring *ring)
{
    uint32_t n = begin_growing(ring);
    CUstreamCaptureMode mode;

    if (!n)
        return false;
    mode = ag_capture_relax(); /* a capture may have begun since the caller looked */
    end_growing(ring, make(ring, n), n);
    ag_capture_restore(mode);
    return true;
}

struct ag_ring *ag_ring_new(const struct ag_ring_limits *limits)
{
    size_t own_bytes = sizeof(struct ag_ring) + limits->depth * sizeof(struct slot);
    struct ag_ring *ring = ag_pages_get(own_bytes);

    if (!ring)
        return NULL;
    ag_lock_init(&ring->lock, AG_RANK_STAGING);
    ring->own_bytes = own_bytes;
    ring->depth = limits->depth;
    ring->slot_bytes = limits->slot_bytes / ALIGNMENT * ALIGNMENT;
    (void)grow(ring);
    if (ring->n_made)
        return ring;
    ag_ring_free(ring, false);
    return NULL;
}

const void *ag_ring_memory(const struct ag_ring *ring)
{
    return ring->slots[0].memory;
}

void ag_ring_free(struct ag_ring *ring, bool context_gone)
{
    if (!ring)
        return;
    for (uint32_t i = 0; i < ring->n_made && !context_gone; i++) {
        (void)ag_cu.cuEventDestroy_v2(ring->slots[i].ready);
        if (ring->slots[i].is_first)
            (void)ag_cu.cuMemFreeHost(ring->slots[i].memory);
    }
    ag_pages_free(ring, ring->own_bytes);
}

/* --- taking a slot --- */

static void set_state(struct ag_ring *ring, uint32_t number, enum slot_state state)
{
    ag_lock_take(&ring->lock);
    ring->slots[number].state = state;
    if (state == SLOT_SENT)
        ring->sent_last = number + 1;
    ag_lock_release(&ring->lock);
}

/* The oldest slot that no stream holds, now HELD by the caller; false when streams hold all of
 * them. *ret_sent: it may still be read. */
static bool hold_oldest(struct ag_ring *ring, uint32_t *ret_number, bool *ret_sent)
{
    bool found = false;

    ag_lock_take(&ring->lock);
    for (uint32_t tried = 0; tried < ring->n_made && !found; tried++) {
        struct slot *slot = &ring->slots[ring->next];

        found = slot->state == SLOT_FREE || slot->state == SLOT_SENT;
        if (found) {
            *ret_number = ring->next;
            *ret_sent = slot->state == SLOT_SENT;
            slot->state = SLOT_HELD;
        }
        ring->next = (ring->next + 1) % ring->n_made;
    }
    ag_lock_release(&ring->lock);
    return found;
}

/* The slot that was sent last, now HELD by the caller. */
static bool hold_last(struct ag_ring *ring, uint32_t *ret_number)
{
    bool found;

    ag_lock_take(&ring->lock);
    found = ring->sent_last && ring->slots[ring->sent_last - 1].state == SLOT_SENT;
    if (found) {
        *ret_number = ring->sent_last - 1;
        ring->slots[*ret_number].state = SLOT_HELD;
    }
    ag_lock_release(&ring->lock);
    return found;
}

/* It is still in use: it is the oldest again, unless another was taken meanwhile. */
static void put_back(struct ag_ring *ring, uint32_t number)
{
    ag_lock_take(&ring->lock);
    ring->slots[number].state = SLOT_SENT;
    if (ring->next == (number + 1) % ring->n_made)
        ring->next = number;
    ag_lock_release(&ring->lock);
}

/* Is the work that reads the slot done? May wait for it, within bounds. */
static bool is_ready(struct slot *slot, bool waits)
{
    CUstreamCaptureMode mode = ag_capture_relax();
    CUresult result = ag_cu.cuEventQuery(slot->ready);
    struct ag_wait wait = {0};
    uint64_t until;

    if (waits && result == CUDA_ERROR_NOT_READY) {
        ag_stats_add(AG_STAT_STAGING_STALLS, 1);
        until = ag_clock_after(AG_STAGING_TIMEOUT_NS);
        while (result == CUDA_ERROR_NOT_READY && ag_wait_for_device_until(&wait, until))
            result = ag_cu.cuEventQuery(slot->ready);
    }
    ag_capture_restore(mode);
    return result == CUDA_SUCCESS;
}

/* Holds the oldest slot if nothing reads it any more. May wait for that, within bounds. */
static bool find_oldest(struct ag_ring *ring, uint32_t *ret_number, bool waits)
{
    bool sent = false;

    if (!hold_oldest(ring, ret_number, &sent))
        return false;
    if (!sent || is_ready(&ring->slots[*ret_number], waits))
        return true;
    put_back(ring, *ret_number);
    return false;
}

/* Finds a slot that nothing reads any more, and holds it. */
static bool find_slot(struct ag_ring *ring, uint32_t *ret_number)
{
    bool waits = false;

    if (hold_last(ring, ret_number)) {
        if (is_ready(&ring->slots[*ret_number], false))
            return true;
        set_state(ring, *ret_number, SLOT_SENT);
    }
    while (!find_oldest(ring, ret_number, waits)) {
        if (waits)
            return false;
        waits = !grow(ring);
    }
    return true;
}

/* Appends a slot to `staged`. */
static bool append_slot(struct ag_ring *ring, struct ag_staged *staged)
{
    uint32_t number = 0;

    if (!find_slot(ring, &number))
        return false;
    ring->slots[number].next = 0;
    if (staged->last)
        ring->slots[staged->last - 1].next = number + 1;
    else
        staged->first = number + 1;
    staged->last = number + 1;
    staged->filled = 0;
    return true;
}

void *ag_ring_put(struct ag_ring *ring, struct ag_staged *staged, const void *source, size_t bytes)
{
    uint64_t at = (staged->filled + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    unsigned char *there;

    if (bytes > ring->slot_bytes) {
        ag_stats_add(AG_STAT_STAGING_TOO_LARGE, 1);
        return NULL;
    }
    if (!staged->last || at > ring->slot_bytes || bytes > ring->slot_bytes - at) {
        if (!append_slot(ring, staged)) {
            ag_stats_add(AG_STAT_STAGING_FULL, 1);
            return NULL;
        }
        at = 0;
    } else {
        ag_stats_add(AG_STAT_STAGING_PACKED, 1);
    }
    there = ring->slots[staged->last - 1].memory + at;
    memcpy(there, source, bytes);
    staged->filled = at + bytes;
    ag_stats_add(AG_STAT_STAGING_COPIES, 1);
    ag_stats_add(AG_STAT_STAGING_BYTES, bytes);
    return there;
}

/* --- giving them back --- */

CUresult ag_ring_sent(struct ag_ring *ring, struct ag_staged *staged, CUstream stream)
{
    CUresult first_error = CUDA_SUCCESS;

    for (uint32_t at = staged->first, next; at; at = next) {
        struct slot *slot = &ring->slots[at - 1];
        CUresult result = ag_cu.cuEventRecord(slot->ready, stream);

        next = slot->next; /* once it is SENT, it may be another's */
        set_state(ring, at - 1, result == CUDA_SUCCESS ? SLOT_SENT : SLOT_LOST);
        if (result != CUDA_SUCCESS && first_error == CUDA_SUCCESS)
            first_error = result;
    }
    *staged = (struct ag_staged){0};
    return first_error;
}
