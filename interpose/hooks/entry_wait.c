/* Hooks of events, waits, and frees that wait: withheld work is submitted before an event is
 * recorded behind it or the host waits for it. These calls are never withheld themselves. */
#include "interpose/core/report/errors/last_launches.h"
#include "interpose/hooks/entry_replay.h"
#include "interpose/hooks/entry_retry.h"
#include "policy/cache.h"
#include "policy/contexts/context.h"

/* Of its stream alone; what the legacy stream means for it is the replayer's business. */
#define MARKS(symbol, per_thread, parameters, ...)                                          \
    AG_FLUSHES_WORK(symbol, stream, per_thread,                                             \
                    ag_replay_flush_stream(stream, per_thread, AG_FLUSH_EVENT), parameters, \
                    __VA_ARGS__)

MARKS(cuEventRecord, false, (CUevent event, CUstream stream), event, stream)
MARKS(cuEventRecord_ptsz, true, (CUevent event, CUstream stream), event, stream)
MARKS(cuEventRecordWithFlags, false, (CUevent event, CUstream stream, unsigned int flags), event,
      stream, flags)
MARKS(cuEventRecordWithFlags_ptsz, true, (CUevent event, CUstream stream, unsigned int flags),
      event, stream, flags)
MARKS(cuStreamWaitEvent, false, (CUstream stream, CUevent event, unsigned int flags), stream, event,
      flags)
MARKS(cuStreamWaitEvent_ptsz, true, (CUstream stream, CUevent event, unsigned int flags), stream,
      event, flags)

/* First of the graph's own stream, which it must come after however long that takes. */
static void flush_for_graph(CUstream stream, bool per_thread)
{
    if (!ag_replay_holds())
        return;
    ag_replay_flush_stream(stream, per_thread, AG_FLUSH_CAPTURE);
    ag_replay_flush_all(AG_FLUSH_CALL);
}

/* A graph of the program's, by the driver's function `way`: the first time may be measured. Then it
 * takes memory of the device, and runs nothing where there is none. */
static CUresult launch(CUresult (*way)(CUgraphExec exec, CUstream stream), CUgraphExec exec,
                       CUstream stream)
{
    struct ag_app_graphs_span span;
    CUresult result;

    ag_app_graphs_launching(&span, exec);
    result = way(exec, stream);
    if (ag_entry_tries_graph_again(&span, result))
        result = way(exec, stream);
    ag_app_graphs_launched(&span);
    return result;
}

/* Is neither the launch measured nor the answer looked at? */
static inline bool passes_unseen(void)
{
    return ag_app_graphs_pass() && !ag_cache_keeps();
}

/* `notes`: what is done first. */
#define LAUNCHES(symbol, per_thread, notes)                                                        \
    static __attribute__((noinline)) CUresult watched_##symbol(CUgraphExec exec, CUstream stream)  \
    {                                                                                              \
        ag_entry_submits(stream, per_thread);                                                      \
        return ag_entry_inside() ? ag_cu.symbol(exec, stream)                                      \
                                 : launch(ag_cu.symbol, exec, stream);                             \
    }                                                                                              \
    AG_JUMPING(                                                                                    \
        symbol, (notes, ag_watch_passes(stream, per_thread) && passes_unseen()), watched_##symbol, \
        (CUgraphExec exec, CUstream stream),                                                       \
        {                                                                                          \
            ag_watch_work(stream, per_thread);                                                     \
            flush_for_graph(stream, per_thread);                                                   \
            return ag_entry_leave(launch(ag_cu.symbol, exec, stream));                             \
        },                                                                                         \
        exec, stream)

#define NOTED(per_thread) \
    ag_launches_add(ag_launch_of_graph(exec), ag_entry_named(stream, per_thread))

LAUNCHES(cuGraphLaunch, false, NOTED(false))
LAUNCHES(cuGraphLaunch_ptsz, true, NOTED(true))
LAUNCHES(cuGraphUpload, false, (void)0)
LAUNCHES(cuGraphUpload_ptsz, true, (void)0)

/* The host goes on when this stream is done. What this thread has submitted elsewhere would run
 * meanwhile, so it goes out as well. */
static void flush_for_wait(CUstream stream, bool per_thread)
{
    ag_replay_flush_stream(stream, per_thread, AG_FLUSH_STREAM);
    ag_replay_flush_thread(AG_FLUSH_STREAM);
}

AG_WAITS(cuStreamSynchronize, flush_for_wait(stream, false), (CUstream stream), stream)
AG_WAITS(cuStreamSynchronize_ptsz, flush_for_wait(stream, true), (CUstream stream), stream)
AG_WAITS(cuEventSynchronize, ag_replay_flush_thread(AG_FLUSH_DEVICE), (CUevent event), event)
AG_WAITS(cuCtxSynchronize, ag_replay_flush_context(NULL, AG_FLUSH_DEVICE), (void), )

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

AG_WAITS(cuCtxSynchronize_v2, flush_for_context(context), (CUcontext context), context)

#define FREES(symbol, parameters, ...)                                                          \
    AG_WAITS_FOR_WORK(AG_WAIT_FREE, symbol, AG_SOMEWHERE, true, ag_entry_before(AG_FLUSH_FREE), \
                      parameters, __VA_ARGS__)

FREES(cuMemHostUnregister, (void *memory), memory)
FREES(cuArrayDestroy, (CUarray array), array)
