/* What several counters come to, where more than one form of the report says it: one definition for
 * text, JSON, page, diff, table of processes and metrics. Pure. */
#ifndef AG_REPORT_SUMS_H
#define AG_REPORT_SUMS_H

#include <stdint.h>

#include "interpose/core/report/stats.h"

/* Frees by cudaFree and its like that succeeded. The driver's own free waits for the device, so
 * those that were left to it count as waiting, like those that waited in its place, and those that
 * were ordered and then waited: a block went back to the driver, or ALLOGRAFT_PENDING was reached.
 */
struct ag_sum_frees {
    uint64_t all, waited;
    uint64_t ordered; /* work came before that a native free would have waited for */
};
struct ag_sum_frees ag_sum_frees(const struct ag_stats *stats);

/* Most bytes that the program had on a device at a time, in all placements together; `row` is the
 * device's of the counters' tables. Reports from before that was counted have the sum of the
 * placements' peaks, which is no less. */
uint64_t ag_sum_peak(const struct ag_stats *stats, unsigned row);
/* The sum of the peaks of all devices, each at its own time. */
uint64_t ag_sum_peaks(const struct ag_stats *stats);
/* Most bytes of that device that were ours at a time, used or kept for later. 0: not known. */
uint64_t ag_sum_given(const struct ag_stats *stats, unsigned row);
uint64_t ag_sum_all_given(const struct ag_stats *stats); /* of all devices */

/* What the program has: where it has ended, what it never freed. What a context takes along when it
 * ends counts as freed. */
struct ag_sum_left {
    uint64_t blocks, bytes;
};
struct ag_sum_left ag_sum_left(const struct ag_stats *stats);

/* What moving memory between the device and the host took (ALLOGRAFT_OOM=page), and of what: copies
 * alone, mapping, mostly beside copies, waiting for an idle device, and the rest. The bus alone
 * takes `least_ns` for as many bytes, both ways at once, at the speed of the fastest batch of them.
 */
struct ag_sum_moves {
    uint64_t ns, copy_ns, map_ns, wait_ns, rest_ns;
    uint64_t least_ns;
};
struct ag_sum_moves ag_sum_moves(const struct ag_stats *stats);

/* Allocations for which the driver was asked for no memory, neither for them nor for a slab to cut
 * them from. */
uint64_t ag_sum_unasked(const struct ag_stats *stats);

#endif
