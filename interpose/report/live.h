/* Bytes that the program has, of each device and placement, and the most it ever had.
 *
 * Each slot of threads counts what it allocated and what it freed (struct ag_place_stats), so that
 * threads that allocate and free in pairs write to no line of each other's. The difference is the
 * slot's *balance*, which may be negative: another slot's memory was freed. What the program has is
 * the sum of the balances.
 *
 * The peak is exact all the same. Each slot has an *allowance*, which its balance may reach
 * unasked, and the sum of all allowances is never above the peak: within them no peak can be
 * missed. A thread that goes beyond its slot's allowance takes a lock. It gets more while the sum
 * stays within the peak. Else all allowances are withdrawn, so that whoever allocates meanwhile
 * must ask, and waits; the balances are added up; their sum is what the program has, and the new
 * peak if it is higher; and each slot's balance becomes its allowance.
 *
 * Calls that overlap count in one of the orders in which they may have happened. */
#ifndef AG_REPORT_LIVE_H
#define AG_REPORT_LIVE_H

#include <stdint.h>

#include "interpose/report/stats.h"

/* The calling thread's slot has `bytes` more, or less, of that row of devices and placement. */
void ag_live_add(unsigned slot, unsigned row, enum ag_placement place, uint64_t bytes);
void ag_live_subtract(unsigned slot, unsigned row, enum ag_placement place, uint64_t bytes);

/* What the program of these counters has. Never less while threads come and go. */
uint64_t ag_live_of(const struct ag_stats *stats, unsigned row, enum ag_placement place);

/* The counters are zero, and nobody counts. */
void ag_live_reset(void);
/* A forked child counts from zero. */
void ag_live_begin_child(void);

#endif
