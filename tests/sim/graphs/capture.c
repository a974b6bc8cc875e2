/* capture.c: stream capture: what becomes a node, what a capture forbids, and what kills it.
 *
 * Three things are apart. A stream that captures takes work as nodes and cannot be waited for. A
 * thread that a capture binds (its own one, or anybody's in GLOBAL mode) may not make calls that
 * allocate or wait: the call fails and the capture is spoilt. And calls that touch all streams of
 * the context spoil its captures whatever the modes say. */
#include "tests/sim/graphs/sim_graph.h"

#include <stdlib.h>
#include <string.h>

static struct {
    struct sim_capture *first; /* ended ones stay: events may still point to them */
    unsigned long long next_id;
} self;

static __thread CUstreamCaptureMode thread_mode;

/* ---- what a capture forbids ---- */

static bool binds(const struct sim_capture *capture)
{
    if (!capture->open || !capture->valid || capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return false;
    if (capture->thread == sim_thread_number())
        return thread_mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    return capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
           thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult sim_capture_check(CUcontext ctx, enum sim_capture_rule rule)
{
    CUresult result = CUDA_SUCCESS;

    for (struct sim_capture *capture = self.first; capture; capture = capture->next) {
        bool hit = rule == SIM_CAPTURE_CONTEXT_WIDE
                       ? capture->open && capture->valid && capture->ctx == ctx
                       : binds(capture);
        if (!hit)
            continue;
        capture->valid = false;
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return result;
}

static bool blocking_capture(CUcontext ctx, bool spoil)
{
    bool found = false;

    for (CUstream stream = ctx->first; stream; stream = stream->next) {
        if (!stream->capture || !sim_stream_blocking(stream) || !stream->capture->valid)
            continue;
        found = true;
        if (spoil)
            stream->capture->valid = false;
    }
    return found;
}

CUresult sim_capture_check_legacy(CUstream stream)
{
    if (stream->kind == SIM_STREAM_LEGACY && blocking_capture(stream->ctx, true))
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    return CUDA_SUCCESS;
}

CUresult sim_capture_unsupported(CUstream stream)
{
    CUresult result = sim_capture_check_legacy(stream);

    if (result != CUDA_SUCCESS || !stream->capture)
        return result;
    if (!stream->capture->valid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    stream->capture->valid = false;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult sim_capture_check_stream(CUstream stream)
{
    return sim_capture_unsupported(stream);
}

CUresult sim_capture_check_sync(CUstream stream)
{
    return sim_capture_unsupported(stream);
}

CUresult sim_capture_check_event(CUevent event)
{
    CUresult result = sim_capture_check(event->ctx, SIM_CAPTURE_UNSAFE);

    if (!event->capture)
        return result;
    event->capture->valid = false;
    return CUDA_ERROR_CAPTURED_EVENT;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!mode || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    CUstreamCaptureMode old = thread_mode;
    thread_mode = *mode;
    *mode = old;
    return CUDA_SUCCESS;
}

/* ---- what becomes a node ---- */

static CUresult usable(CUstream stream)
{
    return stream->capture->valid ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

static void advance(CUstream stream, CUgraphNode node)
{
    sim_graph_set_tail(&stream->tail, &stream->n_tail, &node, 1);
}

CUresult sim_capture_add(CUstream stream, struct sim_work *work, CUgraphNode *ret_node)
{
    CUgraphNode node;
    CUresult result = usable(stream);

    if (result != CUDA_SUCCESS) {
        sim_work_finish(work);
        return result;
    }
    result = sim_graph_add(stream->capture->graph, sim_graph_type_of(work->kind), work, stream->ctx,
                           stream->tail, stream->n_tail, &node);
    if (result != CUDA_SUCCESS)
        return result;
    advance(stream, node);
    if (ret_node)
        *ret_node = node;
    return CUDA_SUCCESS;
}

CUresult sim_capture_alloc(CUstream stream, CUdeviceptr *ret_p, size_t bytes, CUmemoryPool pool)
{
    CUmemPoolProps props = {0};
    CUgraphNode node;
    CUresult result = usable(stream);

    if (result != CUDA_SUCCESS)
        return result;
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    props.location.id = sim_pool_device(pool);
    result = sim_graph_add_alloc(stream->capture->graph, stream->ctx, stream->tail, stream->n_tail,
                                 bytes, &props, ret_p, &node);
    if (result == CUDA_SUCCESS)
        advance(stream, node);
    return result;
}

/* Does the captured graph, or one launched before, own this address? */
static bool graph_memory(CUgraph graph, CUdeviceptr p)
{
    const struct sim_block *block = sim_block_starting_at(p);

    for (unsigned i = 0; i < graph->n_nodes; i++)
        if (graph->nodes[i]->memory && graph->nodes[i]->memory->base == p)
            return true;
    return block && block->kind == SIM_BLOCK_GRAPH;
}

CUresult sim_capture_free(CUstream stream, CUdeviceptr p)
{
    CUgraphNode node;
    CUresult result = usable(stream);

    if (result != CUDA_SUCCESS)
        return result;
    if (!graph_memory(stream->capture->graph, p))
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_graph_add_free(stream->capture->graph, stream->ctx, stream->tail, stream->n_tail,
                                p, &node);
    if (result == CUDA_SUCCESS)
        advance(stream, node);
    return result;
}

CUresult sim_capture_record(CUstream stream, CUevent event, unsigned flags)
{
    struct sim_work work = {.kind = SIM_WORK_EVENT_RECORD, .u.event = event};
    CUresult result = usable(stream);

    if (result != CUDA_SUCCESS)
        return result;
    if (flags & CU_EVENT_RECORD_EXTERNAL)
        return sim_capture_add(stream, &work, NULL);
    sim_event_set(event, NULL);
    event->capture = stream->capture;
    sim_graph_set_tail(&event->nodes, &event->n_nodes, stream->tail, stream->n_tail);
    return CUDA_SUCCESS;
}

/* The stream's next node will come behind the event's nodes too. */
static void join(CUstream stream, CUevent event)
{
    CUgraphNode *tail = calloc(stream->n_tail + event->n_nodes + 1, sizeof(CUgraphNode));
    size_t n = stream->n_tail;

    if (!tail)
        abort();
    if (n)
        memcpy(tail, stream->tail, n * sizeof(CUgraphNode));
    for (size_t i = 0; i < event->n_nodes; i++) {
        bool there = false;
        for (size_t j = 0; j < n; j++)
            there |= tail[j] == event->nodes[i];
        if (!there)
            tail[n++] = event->nodes[i];
    }
    sim_graph_set_tail(&stream->tail, &stream->n_tail, tail, n);
    free(tail);
}

CUresult sim_capture_wait(CUstream stream, CUevent event, unsigned flags)
{
    struct sim_work work = {.kind = SIM_WORK_EVENT_WAIT, .u.event = event};

    if (stream->capture && !stream->capture->valid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (stream->capture && flags & CU_EVENT_WAIT_EXTERNAL)
        return sim_capture_add(stream, &work, NULL);
    if (!event->capture) {
        stream->capture->valid = false;
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (!event->capture->open)
        return CUDA_ERROR_CAPTURED_EVENT;
    if (!event->capture->valid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (stream->capture && stream->capture != event->capture) {
        stream->capture->valid = event->capture->valid = false;
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    if (stream->kind == SIM_STREAM_LEGACY) {
        event->capture->valid = false;
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    stream->capture = event->capture;
    join(stream, event);
    return CUDA_SUCCESS;
}

/* ---- begin and end ---- */

static CUresult begin(CUcontext ctx, CUstream handle, CUstreamCaptureMode mode, CUgraph into,
                      const CUgraphNode *tail, size_t n_tail)
{
    CUstream stream;
    CUresult result = sim_stream_find(ctx, handle, &stream);

    if (result != CUDA_SUCCESS)
        return result;
    if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED || (n_tail && !tail))
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->kind == SIM_STREAM_LEGACY)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    struct sim_capture *capture = calloc(1, sizeof(*capture));
    if (!capture)
        abort();
    capture->open = capture->valid = true;
    capture->into_graph = into != NULL;
    capture->id = ++self.next_id;
    capture->graph = into ? into : sim_graph_new();
    capture->mode = mode;
    capture->thread = sim_thread_number();
    capture->ctx = stream->ctx;
    capture->origin = stream;
    capture->next = self.first;
    self.first = capture;
    stream->capture = capture;
    sim_graph_set_tail(&stream->tail, &stream->n_tail, tail, n_tail);
    return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture(CUstream stream)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    return begin(call.ctx, stream, CU_STREAM_CAPTURE_MODE_GLOBAL, NULL, NULL, 0);
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    return begin(call.ctx, stream, mode, NULL, NULL, 0);
}

CUresult cuAllograftFutureCapture(CUstream stream)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    return begin(call.ctx, stream, CU_STREAM_CAPTURE_MODE_RELAXED, NULL, NULL, 0);
}

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *tail,
                                     const CUgraphEdgeData *data, size_t n_tail,
                                     CUstreamCaptureMode mode)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    (void)data;
    if (!sim_handle_is(graph, SIM_GRAPH))
        return CUDA_ERROR_INVALID_VALUE;
    return begin(call.ctx, stream, mode, graph, tail, n_tail);
}

static void leave(CUstream stream)
{
    stream->capture = NULL;
    free(stream->tail);
    stream->tail = NULL;
    stream->n_tail = 0;
}

static bool joined(CUstream origin, const CUgraphNode *tail, size_t n_tail)
{
    for (size_t i = 0; i < n_tail; i++) {
        bool reached = false;
        for (size_t j = 0; j < origin->n_tail; j++)
            reached |= sim_graph_node_before(tail[i], origin->tail[j]);
        if (!reached)
            return false;
    }
    return true;
}

/* Closes the capture in all its streams; says what there is to say about it. */
static CUresult close_capture(struct sim_capture *capture)
{
    CUstream origin = capture->origin;
    CUresult result = capture->valid ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;

    for (CUcontext ctx = sim_contexts(); ctx; ctx = ctx->next) {
        for (CUstream stream = ctx->first; stream; stream = stream->next) {
            if (stream->capture != capture || stream == origin)
                continue;
            if (result == CUDA_SUCCESS && origin && !joined(origin, stream->tail, stream->n_tail))
                result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
            leave(stream);
        }
    }
    if (result == CUDA_SUCCESS && origin && !joined(origin, capture->left, capture->n_left))
        result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    free(capture->left);
    capture->left = NULL;
    capture->n_left = 0;
    if (origin)
        leave(origin);
    capture->open = false;
    return result;
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph *graph)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    CUstream stream;
    CUresult result = sim_stream_find(call.ctx, handle, &stream);

    if (result != CUDA_SUCCESS)
        return result;
    if (!graph)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_capture *capture = stream->capture;
    if (!capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->origin != stream) {
        capture->valid = false;
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != sim_thread_number())
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    result = close_capture(capture);
    *graph = result ? NULL : capture->graph;
    if (result != CUDA_SUCCESS && !capture->into_graph)
        sim_graph_delete(capture->graph);
    return result;
}

/* The stream is going: with the origin goes the capture; of another one the work stays in it, which
 * must have been joined by the end. */
void sim_capture_forget_stream(CUstream stream)
{
    struct sim_capture *capture = stream->capture;

    if (!capture)
        return;
    if (capture->origin != stream) {
        size_t n = capture->n_left + stream->n_tail;
        capture->left = realloc(capture->left, (n + 1) * sizeof(*capture->left));
        if (!capture->left)
            abort();
        for (size_t i = 0; i < stream->n_tail; i++)
            capture->left[capture->n_left++] = stream->tail[i];
        leave(stream);
        return;
    }
    capture->valid = false;
    (void)close_capture(capture);
    if (!capture->into_graph)
        sim_graph_delete(capture->graph);
}

/* ---- questions ---- */

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    CUstream stream;
    CUresult result = sim_stream_find(call.ctx, handle, &stream);

    /* The driver looks into what is no more (580.159: SIGSEGV). */
    if (result == CUDA_ERROR_CONTEXT_IS_DESTROYED)
        sim_violation(NULL, (uintptr_t)handle, 0, NULL,
                      "cuStreamIsCapturing of a stream that is gone");
    if (result != CUDA_SUCCESS)
        return result;
    if (!status)
        return CUDA_ERROR_INVALID_VALUE;
    /* A question about the legacy stream spoils nothing. */
    if (stream->kind == SIM_STREAM_LEGACY && blocking_capture(stream->ctx, false))
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    *status = !stream->capture         ? CU_STREAM_CAPTURE_STATUS_NONE
              : stream->capture->valid ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                       : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    return CUDA_SUCCESS;
}

struct capture_info {
    CUstreamCaptureStatus *status;
    cuuint64_t *id;
    CUgraph *graph;
    const CUgraphNode **tail;
    size_t *n_tail;
};

static CUresult get_info(CUcontext ctx, CUstream handle, const struct capture_info *out)
{
    CUstream stream;
    CUresult result = sim_stream_find(ctx, handle, &stream);

    if (result != CUDA_SUCCESS)
        return result;
    if (!out->status)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->kind == SIM_STREAM_LEGACY && blocking_capture(stream->ctx, false))
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    const struct sim_capture *capture = stream->capture;
    *out->status = !capture         ? CU_STREAM_CAPTURE_STATUS_NONE
                   : capture->valid ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                    : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    if (!capture || !capture->valid)
        return CUDA_SUCCESS;
    if (out->id)
        *out->id = capture->id;
    if (out->graph)
        *out->graph = capture->graph;
    if (out->tail)
        *out->tail = stream->tail;
    if (out->n_tail)
        *out->n_tail = stream->n_tail;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    return get_info(call.ctx, stream, &(struct capture_info){.status = status, .id = id});
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                                   CUgraph *graph, const CUgraphNode **tail, size_t *n_tail)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    return get_info(call.ctx, stream, &(struct capture_info){status, id, graph, tail, n_tail});
}

CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                                   CUgraph *graph, const CUgraphNode **tail,
                                   const CUgraphEdgeData **data, size_t *n_tail)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    if (data)
        *data = NULL; /* every edge is a full dependency here */
    return get_info(call.ctx, stream, &(struct capture_info){status, id, graph, tail, n_tail});
}

static CUresult update_tail(CUcontext ctx, CUstream handle, const CUgraphNode *nodes, size_t n,
                            unsigned flags)
{
    CUstream stream;
    CUresult result = sim_stream_find(ctx, handle, &stream);

    if (result != CUDA_SUCCESS)
        return result;
    if (!stream->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    result = usable(stream);
    if (result != CUDA_SUCCESS)
        return result;
    if ((n && !nodes) || flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES)
        return CUDA_ERROR_INVALID_VALUE;
    if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) {
        sim_graph_set_tail(&stream->tail, &stream->n_tail, nodes, n);
        return CUDA_SUCCESS;
    }
    struct CUevent_st more = {.nodes = (CUgraphNode *)nodes, .n_nodes = n};
    join(stream, &more);
    return CUDA_SUCCESS;
}

CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *nodes, size_t n,
                                           unsigned int flags)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    return update_tail(call.ctx, stream, nodes, n, flags);
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode *nodes,
                                              const CUgraphEdgeData *data, size_t n,
                                              unsigned int flags)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    (void)data;
    return update_tail(call.ctx, stream, nodes, n, flags);
}
