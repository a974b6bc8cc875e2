/* A small number for each thread, by which hot counters and caches are spread without a lock. */
#ifndef AG_BASE_SLOT_H
#define AG_BASE_SLOT_H

#include <stdatomic.h>

#define AG_SLOTS 32u
/* The first threads have slots of their own, where a counter needs no locked instruction (a fifth
 * of a redirected allocation went into those); later threads share the rest. */
#define AG_OWN_SLOTS 20u

/* 0 until the thread's first call, then 1 + slot. */
extern _Thread_local unsigned ag_slot_of_thread;

unsigned ag_slot_assign(void);

/* The calling thread's slot, 0 .. AG_SLOTS-1. Slots below AG_OWN_SLOTS have one thread only. */
static inline unsigned ag_slot(void)
{
    return ag_slot_of_thread ? ag_slot_of_thread - 1 : ag_slot_assign();
}

#endif
