/* Hands slots to threads in turn. */
#include "interpose/base/slot.h"

_Thread_local unsigned ag_slot_of_thread;

static atomic_uint next_slot;

unsigned ag_slot_assign(void)
{
    unsigned slot = atomic_fetch_add_explicit(&next_slot, 1, memory_order_relaxed);

    if (slot >= AG_OWN_SLOTS)
        slot = AG_OWN_SLOTS + slot % (AG_SLOTS - AG_OWN_SLOTS);

    ag_slot_of_thread = slot + 1;
    return slot;
}
