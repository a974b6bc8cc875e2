/* What an allocation, a free and a move of memory count, and what the program has by them. */
#ifndef AG_REPORT_ALLOCATIONS_H
#define AG_REPORT_ALLOCATIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "interpose/core/report/stats.h"

/* One successful allocation or free of `bytes` on `device`, which took `ticks` of ag_clock_ticks().
 */
void ag_stats_allocated(int device, enum ag_placement place, uint64_t bytes, uint64_t ticks);
void ag_stats_freed(int device, enum ag_placement place, uint64_t bytes, uint64_t ticks);
void ag_stats_failed(int device, enum ag_placement place);
/* The most bytes that we ever had of the device: the caller raises it. */
_Atomic uint64_t *ag_stats_given_peak(int device);
/* A block of `bytes` that the program has was moved. */
void ag_stats_moved(int device, enum ag_placement from, enum ag_placement to, uint64_t bytes);
/* Bytes of that placement that the program has now. */
uint64_t ag_stats_current(int device, enum ag_placement place);

#endif
