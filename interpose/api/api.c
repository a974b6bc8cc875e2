/* The control API's table of functions, and those of its functions that tell of the process. See
 * api.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/api/api.h"

#include <stdatomic.h>
#include <string.h>

#include "interpose/core/base/clock.h"
#include "interpose/core/report/live/live.h"
#include "interpose/core/report/report.h"
#include "interpose/core/report/stats.h"
#include "interpose/core/report/trace/trace.h"
#include "interpose/hooks/entry.h"

AG_ENTRY const struct allograft_api *allograft_get_api(uint32_t version);

/* ---- statistics ---- */

static void sum_allocations(struct allograft_snapshot *now)
{
    struct ag_api_owned_counts owned = ag_api_owned_counts();

    now->allocations[ALLOGRAFT_MANAGED] += owned.allocations;
    now->frees[ALLOGRAFT_MANAGED] += owned.frees;
    now->current_bytes[ALLOGRAFT_MANAGED] += owned.current_bytes;
    now->peak_bytes[ALLOGRAFT_MANAGED] += owned.peak_bytes;
    for (unsigned device = 0; device < AG_STATS_DEVICES; device++) {
        for (unsigned place = 0; place < AG_N_PLACEMENTS; place++) {
            size_t at = offsetof(struct ag_stats_slot, places) +
                        (device * AG_N_PLACEMENTS + place) * sizeof(struct ag_place_stats);

            now->allocations[place] += ag_stats_sum(at + offsetof(struct ag_place_stats, allocs));
            now->frees[place] += ag_stats_sum(at + offsetof(struct ag_place_stats, frees));
            now->refused += ag_stats_sum(at + offsetof(struct ag_place_stats, failed));
            now->current_bytes[place] += ag_live_of(&ag_stats, device, place);
            now->peak_bytes[place] += /* relaxed, as all counters */
                atomic_load_explicit(&ag_stats.peak_bytes[device][place], memory_order_relaxed);
        }
    }
}

allograft_status ag_api_snapshot(struct allograft_snapshot *ret)
{
    struct allograft_snapshot now = {0};
    size_t bytes = ret ? ret->bytes : 0;

    if (bytes < sizeof(size_t))
        return ag_api_fail(ALLOGRAFT_INVALID,
                           "snapshot: `bytes` is to be set to the size of the struct");
    sum_allocations(&now);
    now.replay_operations = ag_stats_counter(AG_STAT_REPLAY_SEEN);
    now.replay_withheld = ag_stats_counter(AG_STAT_REPLAY_WITHHELD);
    now.replay_replayed = ag_stats_counter(AG_STAT_REPLAY_REPLAYED);
    now.replay_launches = ag_stats_counter(AG_STAT_REPLAY_LAUNCHES);
    now.api_captures = ag_stats_counter(AG_STAT_API_CAPTURES);
    now.api_replays = ag_stats_counter(AG_STAT_API_REPLAYS);
    now.api_copies = ag_stats_counter(AG_STAT_API_COPIES);
    now.api_copied_bytes = ag_stats_counter(AG_STAT_API_COPIED);
    now.bytes = bytes;
    memcpy(ret, &now, bytes < sizeof(now) ? bytes : sizeof(now));
    return ALLOGRAFT_OK;
}

allograft_status ag_api_dump(const char *path)
{
    int result;

    if (ag_api_enter() != ALLOGRAFT_OK) /* nothing was read yet that a report could tell of */
        return ALLOGRAFT_UNSUPPORTED;
    (void)ag_entry_start();
    result = ag_report_write_to(path ? path : "stderr");
    return result
               ? ag_api_fail(ALLOGRAFT_INVALID, "%s: %s", path ? path : "stderr", strerror(-result))
               : ALLOGRAFT_OK;
}

allograft_status ag_api_mark(const char *name)
{
    struct allograft_snapshot now = {0};
    uint64_t bytes = 0, after = 0;
    bool kept;

    if (!name || !*name)
        return ag_api_fail(ALLOGRAFT_INVALID, "a mark needs a name");
    (void)ag_entry_start(); /* which says when the process began: with its first call, or now */
    sum_allocations(&now);
    for (unsigned place = 0; place < AG_N_PLACEMENTS; place++)
        bytes += now.current_bytes[place];
    ag_trace_mark(name);
    ag_lock_take(&ag_api_lock);
    if (ag_stats.head.started_ns)
        after = ag_clock_ns() - ag_stats.head.started_ns;
    kept = ag_stats_mark(name, after, bytes);
    ag_lock_release(&ag_api_lock);
    return kept ? ALLOGRAFT_OK
                : ag_api_fail(ALLOGRAFT_NO_MEMORY, "%u marks have names already", AG_MARKS);
}

/* ---- the table ---- */

_Static_assert(ALLOGRAFT_PLACES == (int)AG_N_PLACEMENTS, "the placements of a snapshot");

static const struct allograft_api whole_api = {
    .version = ALLOGRAFT_API_VERSION,
    .bytes = sizeof(struct allograft_api),
#define AG_API(name, stub) .name = ag_api_##name,
#include "interpose/api/functions.def"
};

/* allograft.h stands alone, so it has its own copy of the list: that one has the same order, with
 * nothing between or after, and each stub the type of the member that it calls. */
enum {
#define AG_API(name, stub) ROW_##name,
#include "interpose/api/functions.def"
    N_ROWS
};
#define MEMBER_IN_ROW(row) (offsetof(struct allograft_api, last_error) + (row) * sizeof(void *))
#define AG_API(name, stub)                                                                       \
    _Static_assert(offsetof(struct allograft_api, name) == MEMBER_IN_ROW(ROW_##name),            \
                   #name ": the order of struct allograft_api is not that of functions.def");    \
    _Static_assert(                                                                              \
        __builtin_types_compatible_p(__typeof__(&allograft_##stub), __typeof__(whole_api.name)), \
        "allograft_" #stub " is not of the type of the member that it calls");
#include "interpose/api/functions.def"
_Static_assert(sizeof(struct allograft_api) == MEMBER_IN_ROW(N_ROWS),
               "struct allograft_api has other members than functions.def has rows");

const struct allograft_api *allograft_get_api(uint32_t version)
{
    return version == ALLOGRAFT_API_VERSION ? &whole_api : NULL;
}
