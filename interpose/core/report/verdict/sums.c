/* Adds counters up: see sums.h. */
#include "interpose/core/report/verdict/sums.h"

#include <stddef.h>
#include <string.h>

#include "interpose/core/base/relaxed.h"
#include "interpose/core/report/live/live.h"

struct ag_sum_frees ag_sum_frees(const struct ag_stats *stats)
{
    struct ag_sum_frees sums = {0};
    uint64_t late; /* ordered, and then waited for in the same call */

    for (unsigned id = 0; id < AG_N_STATS; id++) {
        if (!strcmp(ag_stat_rows[id].group, "frees") && id != AG_STAT_FREE_REFUSED)
            sums.all += ag_stats_counter_of(stats, (enum ag_stat)id);
    }
    late = ag_stats_counter_of(stats, AG_STAT_WAITED_PENDING) +
           ag_stats_counter_of(stats, AG_STAT_WAITED_RETURN);
    sums.waited = ag_stats_counter_of(stats, AG_STAT_FREE_DRAINED) +
                  ag_stats_counter_of(stats, AG_STAT_FREE_NATIVE) + late;
    sums.ordered = ag_stats_counter_of(stats, AG_STAT_FREE_NULL_STREAM) +
                   ag_stats_counter_of(stats, AG_STAT_FREE_CONTEXT_FENCE) +
                   ag_stats_counter_of(stats, AG_STAT_FREE_WATCHED);
    sums.ordered -= late < sums.ordered ? late : sums.ordered;
    return sums;
}

uint64_t ag_sum_unasked(const struct ag_stats *stats)
{
    uint64_t here = ag_stats_counter_of(stats, AG_STAT_CACHE_HIT) +
                    ag_stats_counter_of(stats, AG_STAT_SLAB_CUT);
    uint64_t asked = ag_stats_counter_of(stats, AG_STAT_SLAB_ASKED);

    return here > asked ? here - asked : 0;
}

uint64_t ag_sum_peak(const struct ag_stats *stats, unsigned row)
{
    uint64_t peak = stats->peak_all[row];

    for (unsigned place = 0; !stats->peak_all[row] && place < AG_N_PLACEMENTS; place++)
        peak += stats->peak_bytes[row][place];
    return peak;
}

uint64_t ag_sum_peaks(const struct ag_stats *stats)
{
    uint64_t sum = 0;

    for (unsigned row = 0; row < AG_STATS_DEVICES; row++)
        sum += ag_sum_peak(stats, row);
    return sum;
}

uint64_t ag_sum_given(const struct ag_stats *stats, unsigned row)
{
    return stats->given_peak[row];
}

uint64_t ag_sum_all_given(const struct ag_stats *stats)
{
    uint64_t sum = 0;

    for (unsigned row = 0; row < AG_STATS_DEVICES; row++)
        sum += ag_sum_given(stats, row);
    return sum;
}

struct ag_sum_left ag_sum_left(const struct ag_stats *stats)
{
    struct ag_sum_left sums = {0};

    for (unsigned row = 0; row < AG_STATS_DEVICES; row++) {
        for (unsigned place = 0; place < AG_N_PLACEMENTS; place++) {
            uint64_t frees =
                ag_stats_sum_of(stats, offsetof(struct ag_stats_slot, places[row][place].frees));
            uint64_t allocs =
                ag_stats_sum_of(stats, offsetof(struct ag_stats_slot, places[row][place].allocs));

            sums.blocks += allocs > frees ? allocs - frees : 0;
            sums.bytes += ag_live_of(stats, row, place);
        }
    }
    return sums;
}

struct ag_sum_moves ag_sum_moves(const struct ag_stats *stats)
{
    uint64_t in = ag_stats_counter_of(stats, AG_STAT_PAGE_IN);
    uint64_t out = ag_stats_counter_of(stats, AG_STAT_PAGE_OUT);
    uint64_t moving = ag_stats_counter_of(stats, AG_STAT_PAGE_NS);
    struct ag_sum_moves sums = {
        .copy_ns = ag_stats_counter_of(stats, AG_STAT_PAGE_COPY_NS),
        .map_ns = ag_stats_counter_of(stats, AG_STAT_PAGE_MAP_NS),
        .wait_ns = ag_stats_counter_of(stats, AG_STAT_PAGE_WAIT_NS),
    };

    sums.ns = moving + sums.wait_ns;
    if (moving > sums.copy_ns + sums.map_ns)
        sums.rest_ns = moving - sums.copy_ns - sums.map_ns;
    sums.least_ns = (uint64_t)((double)(in > out ? in : out) / (double)(1u << 30) *
                               (double)ag_relaxed(&stats->bus_gib_ns));
    return sums;
}
