/* A small number for each thread, by which hot counters and caches are spread without a lock. */
#ifndef AG_BASE_SLOT_H
#define AG_BASE_SLOT_H

#include <stdatomic.h>

#define AG_SLOTS 32u
/* So many threads at a time have slots of their own, where a counter needs no locked instruction (a
 * fifth of a redirected allocation went into those); others share the rest. A thread that ends
 * leaves its own slot, and what lies there, to one that begins. */
#define AG_OWN_SLOTS 20u

/* 0 until the thread's first call, then 1 + slot. */
extern _Thread_local unsigned ag_slot_of_thread;

unsigned ag_slot_assign(void);
/* Slots from the first on that were ever given: nobody has counted anything in the others. */
unsigned ag_slots_used(void);

/* The calling thread's slot, 0 .. AG_SLOTS-1. Slots below AG_OWN_SLOTS have one thread only. */
static inline unsigned ag_slot(void)
{
    return ag_slot_of_thread ? ag_slot_of_thread - 1 : ag_slot_assign();
}

#endif
