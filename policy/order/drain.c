/* Reasons to drain: see drain.h. */
#include "policy/order/drain.h"

#include <stdatomic.h>

#include "interpose/core/report/stats.h"
#include "policy/order/host_wait.h"
#include "policy/order/watch.h"

#define BIT(reason) (1u << (reason))

struct ag_drain_state ag_drain_state = {.counting = UINT_MAX};

void ag_drain_configure(enum ag_free_mode mode, bool guarded)
{
    ag_drain_state.counting =
        mode == AG_FREE_ORDERED && !guarded ? BIT(AG_DRAIN_EXITING) : UINT_MAX;
    if (guarded)
        atomic_fetch_or(&ag_drain_state.reasons, BIT(AG_DRAIN_GUARD));
    else if (mode == AG_FREE_SYNC)
        atomic_fetch_or(&ag_drain_state.reasons, BIT(AG_DRAIN_ASKED));
}

void ag_drain_note_visible(enum ag_visible how)
{
    unsigned bit = BIT(AG_DRAIN_VISIBLE + how);

    /* Where another thread noted it, what is pending is looked at after that. */
    if (!(atomic_load_explicit(&ag_drain_state.reasons, memory_order_acquire) & bit))
        atomic_fetch_or_explicit(&ag_drain_state.reasons, bit, memory_order_seq_cst);
    else if (!(ag_drain_state.counting & bit))
        return;
    /* The wait is completed even where it was noted before: the thread that noted it may still be
     * waiting. */
    if (how == AG_VISIBLE_CONTEXTS)
        ag_watch_end("several contexts are alive");
    ag_host_wait_complete(AG_STAT_WAITED_VISIBLE);
}

void ag_drain_exiting(void)
{
    atomic_fetch_or_explicit(&ag_drain_state.reasons, BIT(AG_DRAIN_EXITING), memory_order_seq_cst);
}

bool ag_drain_is_never(void)
{
    return ag_drain_state.counting != UINT_MAX && ag_drain_reason() == AG_DRAIN_NOT;
}

void ag_drain_count(enum ag_drain why)
{
    static const uint16_t counters[AG_DRAIN_NOT] = {
        [AG_DRAIN_VISIBLE + AG_VISIBLE_PINNED] = AG_STAT_DRAIN_PINNED,
        [AG_DRAIN_VISIBLE + AG_VISIBLE_REGISTERED] = AG_STAT_DRAIN_REGISTERED,
        [AG_DRAIN_VISIBLE + AG_VISIBLE_MANAGED] = AG_STAT_DRAIN_MANAGED,
        [AG_DRAIN_VISIBLE + AG_VISIBLE_PAGEABLE] = AG_STAT_DRAIN_PAGEABLE,
        [AG_DRAIN_VISIBLE + AG_VISIBLE_HOST_FUNCTION] = AG_STAT_DRAIN_HOST_FUNCTION,
        [AG_DRAIN_VISIBLE + AG_VISIBLE_SHARED] = AG_STAT_DRAIN_SHARED,
        [AG_DRAIN_VISIBLE + AG_VISIBLE_EXTERNAL] = AG_STAT_DRAIN_EXTERNAL,
        [AG_DRAIN_VISIBLE + AG_VISIBLE_RDMA] = AG_STAT_DRAIN_RDMA,
        [AG_DRAIN_VISIBLE + AG_VISIBLE_PRINTF] = AG_STAT_DRAIN_PRINTF,
        [AG_DRAIN_VISIBLE + AG_VISIBLE_PEERS] = AG_STAT_DRAIN_PEERS,
        [AG_DRAIN_VISIBLE + AG_VISIBLE_CONTEXTS] = AG_STAT_DRAIN_CONTEXTS,
        [AG_DRAIN_VISIBLE + AG_VISIBLE_UNSEEN] = AG_STAT_DRAIN_UNSEEN,
        [AG_DRAIN_ASKED] = AG_STAT_DRAIN_ASKED,
        [AG_DRAIN_GUARD] = AG_STAT_DRAIN_GUARD,
        [AG_DRAIN_CAPTURE] = AG_STAT_DRAIN_CAPTURE,
        [AG_DRAIN_NO_FENCE] = AG_STAT_DRAIN_NO_FENCE,
        [AG_DRAIN_EXITING] = AG_STAT_DRAIN_EXITING,
        [AG_DRAIN_NO_THREAD] = AG_STAT_DRAIN_NO_THREAD,
        [AG_DRAIN_THREADS] = AG_STAT_DRAIN_THREADS,
    };

    ag_stats_add(AG_STAT_FREE_DRAINED, 1);
    ag_stats_add((enum ag_stat)counters[why], 1);
}

void ag_drain_begin_child(void)
{
    atomic_fetch_and(&ag_drain_state.reasons,
                     BIT(AG_DRAIN_EXITING) | BIT(AG_DRAIN_ASKED) | BIT(AG_DRAIN_GUARD));
}
