/* Hands slots to threads, and takes a slot of its own back from a thread that ends: see slot.h.
 *
 * A key of the thread library tells of the end. What a thread still does after that, in destructors
 * of others, it counts in a shared slot. */
#include "interpose/core/base/slot.h"

#include <pthread.h>
#include <stdint.h>

#include "interpose/core/base/threads/once.h"
#include "interpose/core/base/threads/wait.h"

_Thread_local unsigned ag_slot_of_thread;
_Thread_local void *ag_slot_counters;

static _Atomic uint32_t given; /* a bit for each slot that was ever given */
static _Atomic uint32_t used;  /* of these, one for each that has been prepared since */
static void (*_Atomic prepare)(unsigned slot);
static _Atomic uint32_t free_own = AG_OWN_SLOTS < 32 ? (1u << AG_OWN_SLOTS) - 1 : UINT32_MAX;
static _Atomic uint32_t next_shared; /* relaxed: nothing is found by the number */

static pthread_key_t at_end;
static _Atomic int at_end_state;

_Static_assert(AG_SLOTS <= 32, "a bit for each");

/* The lowest that is free, so that few are in use; AG_SLOTS for none. What its last thread counted
 * is visible. */
static unsigned claim_own(void)
{
    uint32_t free = atomic_load_explicit(&free_own, memory_order_relaxed);

    do {
        if (!free)
            return AG_SLOTS;
    } while (!atomic_compare_exchange_weak_explicit(&free_own, &free, free & (free - 1),
                                                    memory_order_acquire, memory_order_relaxed));
    return (unsigned)__builtin_ctz(free);
}

static unsigned next_shared_slot(void)
{
    unsigned next = atomic_fetch_add_explicit(&next_shared, 1, memory_order_relaxed);

    return AG_OWN_SLOTS + next % (AG_SLOTS - AG_OWN_SLOTS);
}

#define LONGEST_NS 1000000000u /* for a handler of signals, whose own thread prepares the slot */

/* Whoever is given a slot first prepares it; nobody else writes there before that is done. */
static void begin_use(uint32_t bit, unsigned slot)
{
    void (*now)(unsigned);
    struct ag_wait wait = {0};
    uint64_t left = LONGEST_NS;

    if (atomic_fetch_or_explicit(&given, bit, memory_order_seq_cst) & bit) {
        while (!(ag_slots_used() & bit) && ag_wait_pause_within(&wait, &left))
            ;
        return;
    }
    now = atomic_load_explicit(&prepare, memory_order_seq_cst); /* not before the slot is given */
    if (now)
        now(slot);
    atomic_fetch_or_explicit(&used, bit, memory_order_seq_cst);
}

static unsigned use(unsigned slot)
{
    if (!ag_slots_have(ag_slots_used(), slot))
        begin_use((uint32_t)1 << slot, slot);
    return slot;
}

static void return_slot(void *slot_)
{
    uint32_t slot = (uint32_t)(uintptr_t)slot_ - 1;

    ag_slot_counters = NULL;
    ag_slot_of_thread = 1 + use(next_shared_slot());
    atomic_fetch_or_explicit(&free_own, 1u << slot, memory_order_release);
}

/* Without a key the slot stays the thread's for good. */
static void return_at_end(unsigned slot)
{
    if (ag_once_begin(&at_end_state))
        ag_once_end(&at_end_state,
                    pthread_key_create(&at_end, return_slot) ? AG_ONCE_FAILED : AG_ONCE_DONE);
    if (ag_once_is_done(&at_end_state))
        (void)pthread_setspecific(at_end, (void *)(uintptr_t)(slot + 1));
}

unsigned ag_slot_assign(void)
{
    unsigned slot = claim_own();
    bool own = slot < AG_SLOTS;

    if (!own)
        slot = next_shared_slot();
    ag_slot_of_thread = 1 + use(slot);
    if (own)
        return_at_end(slot);
    return slot;
}

unsigned ag_slot_of_nobody(void)
{
    return use(AG_SLOTS - 1);
}

uint32_t ag_slots_used(void)
{
    return atomic_load_explicit(&used, memory_order_seq_cst);
}

uint32_t ag_slots_given(void)
{
    return atomic_load_explicit(&given, memory_order_seq_cst);
}

void ag_slots_begin_child(void)
{
    atomic_store_explicit(&used, ag_slots_given(), memory_order_seq_cst);
}

void ag_slots_prepare_with(void (*with)(unsigned slot))
{
    atomic_store_explicit(&prepare, with, memory_order_seq_cst);
}
