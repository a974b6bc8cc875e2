/* Bytes that the program has, of each device and placement, and the most it ever had of each, and
 * of all placements together.
 *
 * Each slot of threads counts what it allocated and what it freed (struct ag_place_stats), so that
 * threads that allocate and free in pairs write to no line of each other's. The difference is the
 * slot's *balance*, which may be negative: another slot's memory was freed. What the program has is
 * the sum of the balances.
 *
 * The peaks are exact all the same. Each slot has an *allowance* of each placement, which its
 * balance may reach unasked. The sum of a placement's allowances is never above its peak, and that
 * of all never above the peak of all: within them no peak can be missed. A thread that goes beyond
 * its slot's allowance takes a lock. It gets more while the sums stay within the peaks. Else the
 * device's allowances are withdrawn, so that whoever allocates meanwhile
 * must ask, and waits; the balances are added up; their sum is what the program has, and the new
 * peak if it is higher; and each slot's balance becomes its allowance.
 *
 * Calls that overlap count in one of the orders in which they may have happened. */
#ifndef AG_REPORT_LIVE_H
#define AG_REPORT_LIVE_H

#include <stdint.h>

#include "interpose/core/report/stats.h"

/* Only for the functions here and in live.c. Allowances are kept as 2^63 more, so that 0, where all
 * slots begin, allows nothing. */
#define AG_LIVE_BIAS (1ull << 63)

/* The slot's balance may be above its allowance. */
void ag_live_ask(unsigned slot, unsigned row, enum ag_placement place);

/* The calling thread's slot, whose `counts` these are, has `bytes` more of that row of devices and
 * placement. */
static inline void ag_live_count(struct ag_place_stats *counts, unsigned row,
                                 enum ag_placement place, uint64_t bytes)
{
    uint64_t allocated =
        atomic_fetch_add_explicit(&counts->alloc_bytes, bytes, memory_order_seq_cst) + bytes;
    uint64_t balance = allocated - atomic_load_explicit(&counts->freed_bytes, memory_order_seq_cst);

    if (__builtin_expect(balance + AG_LIVE_BIAS >
                             atomic_load_explicit(&counts->allowance, memory_order_seq_cst),
                         0))
        ag_live_ask(ag_slot(), row, place);
}

/* Count `bytes` more, or less. */
static inline void ag_live_add(unsigned slot, unsigned row, enum ag_placement place, uint64_t bytes)
{
    ag_live_count(&ag_stats.slots[slot].places[row][place], row, place, bytes);
}

/* The slot's `freed` has `bytes` more. Whoever sees that, as ag_live_of() does first, sees what was
 * allocated before. Of a thread's own slot, the load is relaxed. */
static inline void ag_live_count_freed(unsigned slot, _Atomic uint64_t *freed, uint64_t bytes)
{
    if (slot < AG_OWN_SLOTS)
        atomic_store_explicit(freed, atomic_load_explicit(freed, memory_order_relaxed) + bytes,
                              memory_order_release);
    else
        atomic_fetch_add_explicit(freed, bytes, memory_order_release);
}

static inline void ag_live_subtract(unsigned slot, unsigned row, enum ag_placement place,
                                    uint64_t bytes)
{
    ag_live_count_freed(slot, &ag_stats.slots[slot].places[row][place].freed_bytes, bytes);
}

/* What the program of these counters has. Never less while threads come and go. */
uint64_t ag_live_of(const struct ag_stats *stats, unsigned row, enum ag_placement place);

/* Sets every counter back to zero. No other thread may count meanwhile. */
void ag_live_reset(void);
/* A forked child counts from zero. */
void ag_live_begin_child(void);

#endif
