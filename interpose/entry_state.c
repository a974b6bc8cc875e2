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

_Thread_local int ag_entry_depth;
_Thread_local int ag_entry_errno;
_Atomic int ag_entry_state = AG_ENTRY_NEW;
_Atomic int ag_entry_launches = AG_LAUNCHES_NEW;
_Atomic int ag_entry_replay = AG_REPLAY_NEW;

static const struct ag_options *settings; /* set before the state says so */

void ag_entry_configure(const struct ag_options *options)
{
    settings = options;
}

bool ag_entry_may_substitute(void)
{
    int state = atomic_load_explicit(&ag_entry_state, memory_order_acquire);

    return state == AG_ENTRY_NEW ? !ag_options_are_disabled(environ) : state == AG_ENTRY_ACTIVE;
}

bool ag_entry_watches_streams(void)
{
    int state = atomic_load_explicit(&ag_entry_state, memory_order_acquire);

    return state == AG_ENTRY_NEW ? ag_options_may_watch_streams(environ) : ag_watch_is_on();
}

bool ag_entry_watches_launches(void)
{
    int launches = atomic_load_explicit(&ag_entry_launches, memory_order_acquire);

    if (launches == AG_LAUNCHES_NEW)
        return ag_options_may_watch_launches(environ);
    return launches == AG_LAUNCHES_WATCHED;
}

bool ag_entry_replays(void)
{
    int replay = atomic_load_explicit(&ag_entry_replay, memory_order_acquire);

    return replay == AG_REPLAY_NEW ? ag_options_may_replay(environ) : ag_entry_replays_now();
}

bool ag_entry_times_waits(void)
{
    int replay = atomic_load_explicit(&ag_entry_replay, memory_order_acquire);

    return replay == AG_REPLAY_NEW ? ag_options_may_time_waits(environ)
                                   : (replay & AG_REPLAY_TIMED) != 0;
}

/* May any memory be other than the driver's own, as the settings have it? */
static bool redirects(void)
{
    return settings->policy != AG_POLICY_NATIVE || settings->rules.n ||
           settings->guard != AG_GUARD_OFF;
}

bool ag_entry_orders_frees(void)
{
    int state = atomic_load_explicit(&ag_entry_state, memory_order_acquire);

    if (state == AG_ENTRY_NEW)
        return ag_options_may_order_frees(environ);
    return state == AG_ENTRY_ACTIVE && settings->free_mode != AG_FREE_SYNC &&
           settings->guard == AG_GUARD_OFF;
}

bool ag_entry_looks_for_errors(void)
{
    int state = atomic_load_explicit(&ag_entry_state, memory_order_acquire);

    if (state == AG_ENTRY_NEW)
        return ag_options_may_look_for_errors(environ);
    return state == AG_ENTRY_ACTIVE && settings->on_error != AG_ON_ERROR_NOTE;
}

bool ag_entry_sees_launches(void)
{
    return ag_entry_keeps_memory() || ag_entry_watches_launches() || ag_entry_watches_streams() ||
           ag_entry_replays() || ag_entry_looks_for_errors();
}

bool ag_entry_keeps_memory(void)
{
    int state = atomic_load_explicit(&ag_entry_state, memory_order_acquire);

    if (state == AG_ENTRY_NEW)
        return ag_options_may_keep(environ);
    return state == AG_ENTRY_ACTIVE && redirects();
}
