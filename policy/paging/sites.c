/* Counts what becomes of movable memory, in all and by its stack: see sites.h. */
#include "policy/paging/sites.h"

#include "interpose/core/report/holders/holders.h"
#include "interpose/core/report/stats.h"

void ag_site_set(CUdeviceptr address, uint64_t bytes, uint32_t row)
{
    struct ag_movable *range;

    if (!ag_range_may_hold(address))
        return;
    (void)ag_ranges_lock();
    range = ag_range_at(address);
    if (range && range->address == address) {
        range->site = row < AG_HOLDERS_STACKS ? row + 1 : 0;
        range->asked_bytes = bytes;
    }
    ag_ranges_unlock();
}

void ag_site_count(const struct ag_movable *range, enum ag_held_move what, uint64_t bytes)
{
    static const enum ag_stat all[AG_N_HELD_MOVES] = {
        [AG_HELD_CAME] = AG_STAT_PAGE_IN,
        [AG_HELD_WENT] = AG_STAT_PAGE_OUT,
        [AG_HELD_IN_PLACE] = AG_STAT_PAGE_IN_PLACE,
    };

    ag_stats_add(all[what], bytes);
    if (range->site)
        ag_holders_moved(range->site - 1, range->asked_bytes, what, bytes);
}
