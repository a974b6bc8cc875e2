/* A small number for each thread, by which hot counters and caches are spread without a lock. */
#ifndef AG_BASE_SLOT_H
#define AG_BASE_SLOT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define AG_SLOTS 32u
/* Slots that a thread has to itself, where a counter needs no locked instruction (a fifth of a
 * redirected allocation went into those). Further threads share the rest. A thread that ends leaves
 * its own slot, and what lies there, to one that begins. */
#define AG_OWN_SLOTS 20u

/* 0 until the thread's first call, then 1 + slot. */
extern _Thread_local unsigned ag_slot_of_thread;

/* Where the calling thread counts (stats.h), as long as it has a slot of its own; NULL otherwise,
 * and until stats.c has set it. */
extern _Thread_local void *ag_slot_counters;

unsigned ag_slot_assign(void);
/* The last of the shared slots, for what a thread counts that shall have no slot. */
unsigned ag_slot_of_nobody(void);
/* A bit for each slot that was ever given and is prepared: nobody has counted anything in the
 * others, and nobody may write there. */
uint32_t ag_slots_used(void);
/* A bit for each slot that was ever given, those that are still being prepared included. */
uint32_t ag_slots_given(void);
static inline bool ag_slots_have(uint32_t slots, unsigned slot)
{
    return slots >> slot & 1;
}

/* `with` is called when a slot is given for the first time, before anybody counts there. It keeps
 * errno. */
void ag_slots_prepare_with(void (*with)(unsigned slot));
/* A forked child: nobody goes on to prepare what its parent's threads were at. */
void ag_slots_begin_child(void);

/* The calling thread's slot, 0 .. AG_SLOTS-1. Slots below AG_OWN_SLOTS have one thread only. */
static inline unsigned ag_slot(void)
{
    return ag_slot_of_thread ? ag_slot_of_thread - 1 : ag_slot_assign();
}

#endif
