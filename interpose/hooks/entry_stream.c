/* Hooks of streams and captures, on which the exact ordering of frees depends (policy/order/). */
#include "interpose/hooks/entry_graph.h"
#include "interpose/hooks/entry_replay.h"
#include "policy/alloc/alloc.h"
#include "policy/contexts/context.h"
#include "policy/contexts/enter.h"
#include "policy/order/capture.h"
#include "policy/order/drain.h"
#include "policy/order/fence.h"
#include "policy/order/free.h"
#include "policy/paging/latch.h"
#include "policy/paging/use.h"

/* Called before a stream is created: the context, if the stream will not wait for the NULL
 * stream. */
static struct ag_context *coming(unsigned int flags)
{
    struct ag_context *context = NULL;

    if (flags & CU_STREAM_NON_BLOCKING) {
        context = ag_context_current();
        ag_fence_nonblocking_coming(context);
    }
    return context;
}

static CUresult created(struct ag_context *context, unsigned int flags, CUresult result)
{
    if ((flags & CU_STREAM_NON_BLOCKING) && result == CUDA_SUCCESS)
        ag_free_nonblocking_created(context);
    return result;
}

/* A priority that no stream can have has become another one. */
static CUresult announced(CUresult result, const CUstream *stream, unsigned int flags, int priority)
{
    if (result != CUDA_SUCCESS || !ag_entry_replays_now())
        return result;
    if (priority && ag_cu.cuStreamGetPriority)
        (void)ag_cu.cuStreamGetPriority(*stream, &priority);
    ag_replay_stream_created(*stream, flags, priority);
    return result;
}

AG_ENTRY CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
    struct ag_context *context;
    CUresult result;

    AG_ENTER(cuStreamCreate, stream, flags);
    context = coming(flags);
    result = created(context, flags, ag_cu.cuStreamCreate(stream, flags));
    return ag_entry_leave(announced(result, stream, flags, 0));
}

AG_ENTRY CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
    struct ag_context *context;
    CUresult result;

    AG_ENTER(cuStreamCreateWithPriority, stream, flags, priority);
    context = coming(flags);
    result = created(context, flags, ag_cu.cuStreamCreateWithPriority(stream, flags, priority));
    return ag_entry_leave(announced(result, stream, flags, priority));
}

/* The stream is not announced to replay: its graphs would not keep to the green context's
 * multiprocessors. */
AG_ENTRY CUresult cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx green, unsigned int flags,
                                         int priority)
{
    AG_ENTER(cuGreenCtxStreamCreate, stream, green, flags, priority);
    ag_drain_note_visible(AG_VISIBLE_CONTEXTS);
    return ag_entry_leave(ag_cu.cuGreenCtxStreamCreate(stream, green, flags, priority));
}

static CUresult after_capture(CUresult result, CUstream stream, bool per_thread)
{
    if (ag_capture_ended(stream, per_thread))
        ag_alloc_capture_closed();
    return result;
}

static void dying(CUstream stream)
{
    ag_watch_stream_dying(stream);
    if (ag_latch_is_on())
        ag_use_stream_ends(stream);
    if (ag_entry_replays_now())
        ag_replay_stream_dying(stream);
}

/* A stream that is destroyed while it captures ends the capture. */
static CUresult destroy_stream(CUstream stream, CUresult (*real)(CUstream))
{
    struct ag_context *context = NULL;
    CUresult result;
    bool captures;

    dying(stream);
    captures = ag_capture_stream_destroying(stream, &context);
    result = real(stream);
    if (captures && ag_capture_stream_destroyed(stream, context, result == CUDA_SUCCESS))
        ag_alloc_capture_closed();
    return result;
}

AG_ENTRY CUresult cuStreamDestroy(CUstream stream)
{
    AG_ENTER(cuStreamDestroy, stream);
    return ag_entry_leave(destroy_stream(stream, ag_cu.cuStreamDestroy));
}

AG_ENTRY CUresult cuStreamDestroy_v2(CUstream stream)
{
    AG_ENTER(cuStreamDestroy_v2, stream);
    return ag_entry_leave(destroy_stream(stream, ag_cu.cuStreamDestroy_v2));
}

/* During a capture nothing is withheld; what was, is submitted while that is still possible. */
static void opening(CUstream stream, bool per_thread)
{
    ag_capture_opening();
    ag_watch_capture_opening();
    if (!ag_entry_replays_now())
        return;
    ag_replay_flush_stream(stream, per_thread, AG_FLUSH_CAPTURE);
    ag_replay_flush_all(AG_FLUSH_CAPTURE);
}

static void opened(CUstream stream, bool per_thread, CUresult result)
{
    bool success = result == CUDA_SUCCESS;

    if (ag_capture_opened(stream, per_thread, success ? ag_context_current() : NULL, success))
        ag_alloc_capture_closed();
}

#define BEGINS(symbol, per_thread, parameters, ...) \
    AG_ENTRY CUresult symbol parameters             \
    {                                               \
        CUresult result;                            \
                                                    \
        AG_ENTER(symbol, __VA_ARGS__);              \
        opening(stream, per_thread);                \
        result = ag_cu.symbol(__VA_ARGS__);         \
        opened(stream, per_thread, result);         \
        return ag_entry_leave(result);              \
    }

BEGINS(cuStreamBeginCapture, false, (CUstream stream), stream)
BEGINS(cuStreamBeginCapture_ptsz, true, (CUstream stream), stream)
BEGINS(cuStreamBeginCapture_v2, false, (CUstream stream, CUstreamCaptureMode mode), stream, mode)
BEGINS(cuStreamBeginCapture_v2_ptsz, true, (CUstream stream, CUstreamCaptureMode mode), stream,
       mode)
BEGINS(cuStreamBeginCaptureToGraph, false,
       (CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
        const CUgraphEdgeData *edges, size_t n, CUstreamCaptureMode mode),
       stream, graph, dependencies, edges, n, mode)
BEGINS(cuStreamBeginCaptureToGraph_ptsz, true,
       (CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
        const CUgraphEdgeData *edges, size_t n, CUstreamCaptureMode mode),
       stream, graph, dependencies, edges, n, mode)

#define ENDS(symbol, per_thread)                                                 \
    AG_ENTRY CUresult symbol(CUstream stream, CUgraph *graph)                    \
    {                                                                            \
        CUresult result;                                                         \
                                                                                 \
        AG_ENTER(symbol, stream, graph);                                         \
        result = after_capture(ag_cu.symbol(stream, graph), stream, per_thread); \
        if (result == CUDA_SUCCESS && *graph)                                    \
            result = ag_entry_note_captured(graph);                              \
        return ag_entry_leave(result);                                           \
    }

ENDS(cuStreamEndCapture, false)
ENDS(cuStreamEndCapture_ptsz, true)

/* --- attributes, which graphs of the stream's work would not have --- */

static void altering(CUstream stream, bool per_thread)
{
    if (ag_replay_holds())
        ag_replay_flush_all(AG_FLUSH_CALL);
    if (!stream)
        stream = per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
    ag_replay_stream_altered(stream);
}

#include "interpose/hooks/made/stream_attributes.h"
