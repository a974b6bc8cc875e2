/* How far the process has come, and what that means for look-ups and hooks: see entry.h. Who starts
 * it (lifecycle.c) sets what stands here. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdatomic.h>
#include <unistd.h>

#include "interpose/core/settings/options.h"
#include "interpose/hooks/entry.h"
#include "policy/order/watch.h"
#include "policy/paging/latch.h"
#include "policy/paging/ranges.h"
#include "policy/pinned/pinned.h"

_Thread_local int ag_entry_depth;
_Thread_local int ag_entry_errno;
_Atomic int ag_entry_state = AG_ENTRY_NEW;
_Atomic int ag_entry_launches = AG_LAUNCHES_NEW;
_Atomic int ag_entry_replay = AG_REPLAY_NEW;
_Atomic bool ag_entry_copies;

static const struct ag_options *settings; /* set before the state says so */

void ag_entry_configure(const struct ag_options *options)
{
    settings = options;
}

/* May any memory be other than the driver's own, as the settings have it? */
static bool may_place_elsewhere(void)
{
    return settings->policy != AG_POLICY_NATIVE || settings->rules.n ||
           settings->guard != AG_GUARD_OFF;
}

/* A launch may need memory that is kept, and may have to wait after a free. */
static bool sees_launches(void)
{
    return may_place_elsewhere() || ag_watch_is_on() ||
           atomic_load_explicit(&ag_entry_launches, memory_order_acquire) > AG_LAUNCHES_PASSED;
}

bool ag_entry_sees_launches(void)
{
    return ag_entry_substitutes() && sees_launches();
}

/* What there is, of enum ag_when. */
static int needed(void)
{
    int replay = atomic_load_explicit(&ag_entry_replay, memory_order_acquire);
    bool orders_frees = (settings->free_mode != AG_FREE_SYNC && settings->guard == AG_GUARD_OFF) ||
                        ag_latch_is_on(); /* which asks as they do which contexts there are */

    return AG_WHEN_ALWAYS | (sees_launches() ? AG_WHEN_LAUNCHES : 0) |
           (orders_frees ? AG_WHEN_ORDERED : 0) | (ag_watch_is_on() ? AG_WHEN_WATCHED : 0) |
           (replay & AG_REPLAY_ON ? AG_WHEN_GRAPH : 0) |
           (replay & AG_REPLAY_TIMED ? AG_WHEN_WAITS : 0) |
           (ag_entry_has_copies() ? AG_WHEN_COPIES : 0) |
           (replay & AG_REPLAY_SLEEPS ? AG_WHEN_SLEEPS : 0) | (ag_pinned_on ? AG_WHEN_HOST : 0) |
           (ag_ranges_wanted() ? AG_WHEN_PAGED : 0);
}

bool ag_entry_needs(enum ag_when when)
{
    int state = atomic_load_explicit(&ag_entry_state, memory_order_acquire);

    if (state == AG_ENTRY_NEW)
        return !ag_options_are_disabled(environ);
    return state == AG_ENTRY_ACTIVE && (needed() & (int)when);
}
