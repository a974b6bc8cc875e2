/* Does the program free and allocate in turns?
 *
 * Most programs allocate what they need and free it at their end: a cache gains them nothing. So
 * under ALLOGRAFT_POLICY=auto a device goes through two phases:
 *   1. Memory is as large as the program asks for. What it frees goes back to the driver at once,
 *      and waits as natively. But a program of many small blocks gains by slabs (slab.h) from the
 *      beginning: the driver takes 1.5 to 2 us for each and what we keep of it another 0.4, a piece
 *      takes 0.3, and a slab 45 once. AG_CHURN_MANY of them have cost more than that.
 *   2. The program *churns* from its first allocation after a free on. Blocks have the
 *      sizes of the cache, which keeps what is freed; the driver serves what the cache cannot.
 * Pure: the caller makes the calls that are counted here. */
#ifndef AG_POLICY_CHURN_H
#define AG_POLICY_CHURN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A process that has no more small blocks than that would be slower by a slab. */
#define AG_CHURN_MANY 64u

enum ag_churn_phase {
    AG_CHURN_NOT,   /* nothing was freed yet */
    AG_CHURN_FREED, /* nothing was allocated since */
    AG_CHURN_ON,
};

/* Relaxed: each chooses where the next memory comes from, which its block then says. */
struct ag_churn {
    _Atomic int phase;        /* enum ag_churn_phase; only grows */
    _Atomic uint32_t n_small; /* small blocks that the driver gave before that */
};

/* The program allocates. */
static inline void ag_churn_allocates(struct ag_churn *churn)
{
    if (atomic_load_explicit(&churn->phase, memory_order_relaxed) == AG_CHURN_FREED)
        atomic_store_explicit(&churn->phase, AG_CHURN_ON, memory_order_relaxed);
}

/* Before that, the driver has to serve an allocation that could be cut from a slab. */
static inline void ag_churn_small(struct ag_churn *churn)
{
    atomic_fetch_add_explicit(&churn->n_small, 1, memory_order_relaxed);
}

/* Is what the program frees kept, from now on? */
static inline bool ag_churn_is_on(const struct ag_churn *churn)
{
    return atomic_load_explicit(&churn->phase, memory_order_relaxed) == AG_CHURN_ON;
}

/* Is it one whose small blocks are cut from slabs? */
static inline bool ag_churn_cuts(const struct ag_churn *churn)
{
    return ag_churn_is_on(churn) ||
           atomic_load_explicit(&churn->n_small, memory_order_relaxed) >= AG_CHURN_MANY;
}

/* The program frees memory that is not kept. */
void ag_churn_frees(struct ag_churn *churn);
/* The program frees memory: is it ours to keep? */
static inline bool ag_churn_keeps(struct ag_churn *churn)
{
    if (ag_churn_is_on(churn))
        return true;
    ag_churn_frees(churn);
    return false;
}

/* The program shares memory with other processes or devices. What it allocates from now on is
 * native, so that the driver's handles serve them all. */
void ag_churn_note_shared(void);
bool ag_churn_is_shared(void);
/* Libraries that we do not see may reach its memory by themselves. What it allocates from now on
 * does not move. */
void ag_churn_note_reached(void);
bool ag_churn_is_reached(void);

/* A forked child has allocated and shared nothing, and nobody reaches its memory. */
void ag_churn_begin_child(struct ag_churn *churn);

#endif
