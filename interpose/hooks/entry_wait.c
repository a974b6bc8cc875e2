/* Hooks of events, waits, and frees that wait: withheld work is submitted before an event is
 * recorded after it or the host waits for it. These calls are never withheld themselves. */
#include "interpose/core/report/errors/last_launches.h"
#include "interpose/hooks/entry_replay.h"
#include "interpose/hooks/entry_retry.h"
#include "policy/cache.h"
#include "policy/contexts/context.h"
#include "policy/paging/use.h"
#include "policy/pinned/pinned_answers.h"

/* First of the graph's own stream, which it must come after however long that takes. */
static void flush_for_graph(CUstream stream, bool per_thread)
{
    if (!ag_replay_holds())
        return;
    ag_replay_flush_stream(stream, per_thread, AG_FLUSH_CAPTURE);
    ag_replay_flush_all(AG_FLUSH_CALL);
}

/* What its kernels use comes to the device, where that is worth it. */
static void bring_for_graph(CUgraphExec exec)
{
    if (ag_latch_is_on())
        ag_use_before_graph(exec);
}

/* A graph of the program's, by the driver's function `way`: the first time may be measured. Then it
 * takes memory of the device, and runs nothing where there is none. */
static CUresult launch_own_graph(CUresult (*way)(CUgraphExec exec, CUstream stream),
                                 CUgraphExec exec, CUstream stream)
{
    struct ag_app_graphs_span span;
    CUresult result;

    ag_app_graphs_launching(&span, exec);
    result = way(exec, stream);
    while (ag_entry_tries_graph_again(&span, result))
        result = way(exec, stream);
    ag_app_graphs_launched(&span);
    return result;
}

/* Is neither the launch measured nor the answer looked at? */
static inline bool passes_unseen(void)
{
    return ag_app_graphs_pass() && !ag_cache_keeps();
}

#include "interpose/hooks/made/graph_launches.h"

/* The host goes on when this stream is done. What this thread has submitted elsewhere would run
 * meanwhile, so it goes out as well. */
static void flush_for_wait(CUstream stream, bool per_thread)
{
    ag_replay_flush_stream(stream, per_thread, AG_FLUSH_STREAM);
    ag_replay_flush_thread(AG_FLUSH_STREAM);
}

/* It names the context, which need not be the current one, and may be a green one. */
static void flush_for_context(CUcontext handle)
{
    struct ag_context *context = ag_replay_holds() ? ag_context_find(handle) : NULL;

    if (!context) {
        ag_replay_flush_all(AG_FLUSH_DEVICE);
        return;
    }
    ag_replay_flush_context(context, AG_FLUSH_DEVICE);
    ag_replay_flush_thread(AG_FLUSH_DEVICE);
}

#include "interpose/hooks/made/waits.h"

/* --- events that the driver sleeps for --- */

static AG_NOINLINE CUresult flagged_cuEventCreate(CUevent *event, unsigned int flags)
{
    AG_ENTER(cuEventCreate, event, flags);
    if (ag_entry_sleeps())
        flags = ag_sleep_flags_of_event(flags);
    return ag_entry_leave(ag_cu.cuEventCreate(event, flags));
}

AG_ENTRY CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
    __typeof__(&cuEventCreate) way = ag_cu.cuEventCreate;

    if (AG_UNLIKELY(!ag_entry_passes_untimed() || !way))
        way = flagged_cuEventCreate;
    return way(event, flags);
}
