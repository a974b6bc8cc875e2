/* op_capture.c: a random program captures its streams, in every mode, and launches what it got. */
#include <stdlib.h>
#include <string.h>

#include "diff.h"

bool capture_forbids_waiting(const struct world *w)
{
    return w->capture.open && !w->capture.relaxed &&
           w->capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
}

static bool waits_for_legacy(const struct world *w, unsigned stream)
{
    return w->streams[stream].kind != STREAM_NONBLOCKING;
}

bool capture_forbids_legacy(const struct world *w)
{
    const struct capture *capture = &w->capture;

    return capture->open && (waits_for_legacy(w, capture->origin) ||
                             (capture->branched && waits_for_legacy(w, capture->branch)));
}

/* A stream that may capture; in `context` unless that is MAX_CONTEXTS. */
static unsigned pick_stream(struct world *w, unsigned context, unsigned but)
{
    unsigned n = 0, found = MAX_STREAMS;

    for (unsigned i = w->first_stream; i < w->first_stream + w->n_streams; i++) {
        const struct stream *stream = &w->streams[i];
        bool ours = stream->alive && !stream->capturing && stream->kind != STREAM_LEGACY &&
                    i != but && !stream->shared &&
                    (w->traits->n_threads == 1 || stream->kind == STREAM_NONBLOCKING);
        if (ours && w->contexts[stream->context].alive &&
            (context == MAX_CONTEXTS || stream->context == context) && draw(w, ++n) == 0)
            found = i;
    }
    return found;
}

/* Into a graph of the program's own, some of which have a node already. */
static CUresult begin_into(struct world *w, struct capture *capture, CUstream handle)
{
    CUgraphNode first = NULL;
    CUresult result = cu.cuGraphCreate(&capture->into, 0);
    bool is_empty = chance(w, 50);

    if (result == CUDA_SUCCESS && !is_empty)
        result = cu.cuGraphAddEmptyNode(&first, capture->into, NULL, 0);
    return result ? result
                  : cu.cuStreamBeginCaptureToGraph(handle, capture->into, is_empty ? NULL : &first,
                                                   NULL, !is_empty, capture->mode);
}

static CUresult begin_capture(struct world *w, struct capture *capture, CUstream handle)
{
    return w->traits->graphs && chance(w, 40) ? begin_into(w, capture, handle)
                                              : cu.cuStreamBeginCapture_v2(handle, capture->mode);
}

bool op_capture_begin(struct world *w)
{
    static const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_RELAXED,
                                                CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                                CU_STREAM_CAPTURE_MODE_GLOBAL};
    struct capture *capture = &w->capture;
    unsigned stream;

    if (!w->traits->captures || capture->open)
        return false;
    stream = pick_stream(w, MAX_CONTEXTS, MAX_STREAMS);
    if (stream == MAX_STREAMS)
        return false;
    *capture = (struct capture){.origin = stream};
    capture->mode = modes[draw(w, w->traits->n_threads > 1 ? 2 : 3)];
    use_context(w, w->streams[stream].context);
    (void)cu.cuEventCreate(&capture->fork, CU_EVENT_DISABLE_TIMING);
    (void)cu.cuEventCreate(&capture->join, CU_EVENT_DISABLE_TIMING);
    if (!did(w, begin_capture(w, capture, stream_handle(w, stream)),
             "cuStreamBeginCapture s%u mode %d", stream, (int)capture->mode))
        return true;
    capture->open = w->streams[stream].capturing = true;
    capture->graph.context = w->streams[stream].context;
    return true;
}

/* ---- into the capture ---- */

bool graph_may_use(const struct graph *graph, unsigned since, const struct buffer *buffer,
                   unsigned stream, bool write)
{
    for (unsigned i = since; i < graph->n_uses; i++)
        if (graph->uses[i].id == buffer->id && graph->uses[i].stream != stream &&
            (write || graph->uses[i].write))
            return false;
    return true;
}

static struct buffer *pick_captured(struct world *w, unsigned stream, bool write,
                                    const struct buffer *but)
{
    struct buffer *found = NULL;
    unsigned n = 0;

    for (unsigned i = 0; i < MAX_BUFFERS; i++) {
        struct buffer *buffer = &w->buffers[i];
        if (but && (but->id == buffer->id ||
                    w->contexts[but->context].device != w->contexts[buffer->context].device))
            continue;
        if (buffer->live && buffer->filled &&
            buffer_reachable(w, buffer, w->streams[stream].context) &&
            graph_may_use(&w->capture.graph, 0, buffer, stream, write) && draw(w, ++n) == 0)
            found = buffer;
    }
    return found;
}

void graph_use(struct world *w, struct graph *graph, const struct buffer *buffer, unsigned stream,
               bool write)
{
    graph->uses[graph->n_uses].buffer = (unsigned)(buffer - w->buffers);
    graph->uses[graph->n_uses].id = buffer->id;
    graph->uses[graph->n_uses].stream = stream;
    graph->uses[graph->n_uses++].write = write;
}

/* Memory of the graph's own, used and freed inside. */
static CUresult capture_temporary(struct world *w, unsigned stream, struct buffer *dst)
{
    CUdeviceptr p = 0;
    CUstream handle = stream_handle(w, stream);
    w->uses_pools = true;
    CUresult result = ROOM(w, w->streams[stream].context, dst->extent,
                           cu.cuMemAllocAsync(&p, dst->extent, handle));

    if (result == CUDA_SUCCESS)
        result = launch_fill(w, stream, p, dst->extent, w->op);
    if (result == CUDA_SUCCESS)
        result = launch_two(w, stream, KERNEL_ADD, dst->p, p, dst->extent);
    if (result == CUDA_SUCCESS)
        result = cu.cuMemFreeAsync(p, stream_handle(w, stream));
    return result;
}

static bool capture_work(struct world *w)
{
    struct capture *capture = &w->capture;
    unsigned stream = capture->branched && chance(w, 50) ? capture->branch : capture->origin;
    struct buffer *dst = pick_captured(w, stream, true, NULL);
    struct buffer *src = dst ? pick_captured(w, stream, false, dst) : NULL;
    unsigned what = draw(w, 6);
    CUresult result;
    size_t n;

    if (!src || capture->graph.n_uses + 2 > MAX_USES)
        return false;
    n = dst->extent < src->extent ? dst->extent : src->extent;
    if (what == 0 && !dst->host)
        result = cu.cuMemsetD32Async(dst->p, draw(w, 1u << 30), dst->extent / 4,
                                     stream_handle(w, stream));
    else if (what == 1 && !dst->host && !src->host)
        result = cu.cuMemcpyDtoDAsync_v2(dst->p, src->p, n, stream_handle(w, stream));
    else if (what == 2 && w->traits->n_threads == 1)
        result = capture_temporary(w, stream, dst);
    else if (what == 3)
        result = launch_fill(w, stream, dst->p, dst->extent, draw(w, 1u << 30));
    else
        result = launch_two(w, stream, what == 4 ? KERNEL_HASH : KERNEL_ADD, dst->p, src->p,
                            what == 4 ? src->extent : n);
    graph_use(w, &capture->graph, dst, stream, true);
    graph_use(w, &capture->graph, src, stream, false);
    if (!did(w, result, "captured %u b%u b%u s%u", what, dst->id, src->id, stream))
        capture->dead = true;
    return true;
}

static bool capture_fork(struct world *w)
{
    struct capture *capture = &w->capture;
    unsigned branch = pick_stream(w, w->streams[capture->origin].context, capture->origin);

    if (capture->branched || capture->dead || branch == MAX_STREAMS)
        return false;
    capture->dead |= !did(w, cu.cuEventRecord(capture->fork, stream_handle(w, capture->origin)),
                          "fork s%u", capture->origin);
    capture->dead |= !did(w, cu.cuStreamWaitEvent(stream_handle(w, branch), capture->fork, 0),
                          "into s%u", branch);
    if (capture->dead)
        return true;
    capture->branched = w->streams[branch].capturing = true;
    capture->branch = branch;
    return true;
}

/* ---- beside it ---- */

/* A call that the capture forbids: it fails, and the capture with it. */
static bool capture_mistake(struct world *w)
{
    struct capture *capture = &w->capture;
    struct buffer *buffer = buffer_pick_idle(w, 1u << BUFFER_NATIVE, true);
    struct context *context = &w->contexts[capture->graph.context];
    CUdeviceptr p = 0;
    CUresult result;

    use_context(w, capture->graph.context);
    if (w->traits->batches && buffer && chance(w, 30))
        return op_batch_in_capture(w, capture->origin, buffer->p);
    switch (draw(w, 5)) {
    case 0:
        if (!capture_forbids_waiting(w))
            return false;
        result = cu.cuMemAlloc_v2(&p, 512);
        (void)did(w, result, "cuMemAlloc in a capture");
        break;
    case 1:
        if (!buffer || !capture_forbids_waiting(w))
            return false;
        result = cu.cuMemFree_v2(buffer->p);
        if (did(w, result, "cuMemFree b%u in a capture", buffer->id))
            buffer_gone(w, buffer);
        break;
    case 2:
        if (!capture_forbids_waiting(w) || w->streams[context->legacy].capturing ||
            capture_forbids_legacy(w))
            return false;
        result = cu.cuStreamQuery(CU_STREAM_LEGACY);
        (void)did(w, result, "cuStreamQuery in a capture");
        break;
    case 3:
        if (w->traits->n_threads > 1)
            return false;
        result = cu.cuCtxSynchronize();
        (void)did(w, result, "cuCtxSynchronize in a capture");
        break;
    default:
        result = cu.cuStreamSynchronize(stream_handle(w, capture->origin));
        (void)did(w, result, "cuStreamSynchronize of the captured s%u", capture->origin);
        break;
    }
    if (result != CUDA_SUCCESS)
        capture->dead = true;
    return true;
}

/* Lifts the ban for this thread, or puts it back. */
static bool capture_exchange(struct world *w)
{
    struct capture *capture = &w->capture;
    CUstreamCaptureMode mode =
        capture->relaxed ? CU_STREAM_CAPTURE_MODE_GLOBAL : CU_STREAM_CAPTURE_MODE_RELAXED;

    (void)did(w, cu.cuThreadExchangeStreamCaptureMode(&mode), "exchange for relaxed %d",
              !capture->relaxed);
    capture->relaxed = !capture->relaxed;
    return true;
}

static bool capture_beside(struct world *w)
{
    static bool (*const beside[])(struct world *) = {
        op_kernel,     op_kernel,       op_copy,          op_memset,      op_event_record,
        op_event_wait, op_mark,         op_stream_create, op_ask_pointer, op_ask_memory,
        op_alloc,      op_alloc,        op_free,          op_free,        op_free,
        op_read_back,  op_host_read,    op_upload,        op_host_write,  op_event_ask,
        op_stream_ask, op_event_create,
    };

    return beside[draw(w, sizeof(beside) / sizeof(beside[0]))](w);
}

bool op_in_capture(struct world *w)
{
    struct capture *capture = &w->capture;
    unsigned what = draw(w, 100);

    if (w->traits->narrow && w->lean)
        what = 60 + what * 40 / 100; /* beside it */
    if (capture->dead || capture->n_inside > 12 || what < 6)
        return op_capture_end(w);
    if (what < 40)
        capture->n_inside += capture_work(w);
    else if (what < 48)
        capture->n_inside += capture_fork(w);
    else if (what < 51)
        return capture_mistake(w);
    else if (what < 55)
        return capture_exchange(w);
    else if (capture_beside(w))
        capture->n_inside++;
    else
        return false;
    return true;
}

/* ---- the end, and the graph ---- */

static void capture_close(struct world *w)
{
    struct capture *capture = &w->capture;

    if (capture->relaxed)
        (void)capture_exchange(w);
    w->streams[capture->origin].capturing = false;
    if (capture->branched)
        w->streams[capture->branch].capturing = false;
    capture->open = false;
    use_context(w, capture->graph.context);
    (void)cu.cuEventDestroy_v2(capture->fork);
    (void)cu.cuEventDestroy_v2(capture->join);
}

struct graph *graph_slot(struct world *w)
{
    struct graph *found = NULL;

    for (unsigned i = 0; i < MAX_GRAPHS; i++)
        if (!w->graphs[i].alive)
            found = &w->graphs[i];
    return found;
}

bool op_capture_end(struct world *w)
{
    struct capture *capture = &w->capture;
    struct graph *graph;
    CUresult result;

    if (capture->branched && !capture->dead) {
        (void)did(w, cu.cuEventRecord(capture->join, stream_handle(w, capture->branch)), "join s%u",
                  capture->branch);
        (void)did(w, cu.cuStreamWaitEvent(stream_handle(w, capture->origin), capture->join, 0),
                  "back to s%u", capture->origin);
    }
    result = cu.cuStreamEndCapture(stream_handle(w, capture->origin), &capture->graph.graph);
    (void)did(w, result, "cuStreamEndCapture s%u", capture->origin);
    if (capture->into)
        say(w, "into %s", capture->graph.graph == capture->into ? "its graph" : "no graph");
    capture_close(w);
    if (result != CUDA_SUCCESS) {
        if (capture->into)
            (void)cu.cuGraphDestroy(capture->into);
        return true;
    }
    graph = graph_slot(w);
    if (graph)
        result =
            ROOM(w, capture->graph.context, 0,
                 cu.cuGraphInstantiateWithFlags(&capture->graph.exec, capture->graph.graph, 0));
    if (!graph || !did(w, result, "cuGraphInstantiate g%u", w->next_id)) {
        (void)cu.cuGraphDestroy(capture->graph.graph);
        return true;
    }
    *graph = capture->graph;
    graph->id = w->next_id++;
    graph->alive = true;
    return true;
}

struct graph *graph_pick(struct world *w, bool built)
{
    struct graph *found = NULL;
    unsigned n = 0;

    for (unsigned i = 0; i < MAX_GRAPHS; i++)
        if (w->graphs[i].alive && w->contexts[w->graphs[i].context].alive &&
            (!built || w->graphs[i].n_nodes) && draw(w, ++n) == 0)
            found = &w->graphs[i];
    return found;
}

void graph_destroy(struct graph *graph)
{
    (void)cu.cuGraphExecDestroy(graph->exec);
    if (graph->graph)
        (void)cu.cuGraphDestroy(graph->graph);
    graph->alive = false;
}

const struct buffer *graph_used(const struct world *w, const struct use *use)
{
    const struct buffer *buffer = &w->buffers[use->buffer];

    return buffer->live && buffer->id == use->id ? buffer : NULL;
}

/* Is all that the graph uses there, and ordered before a launch on the stream? */
static bool may_launch(const struct world *w, const struct graph *graph, unsigned stream)
{
    struct clock before;

    stream_before(w, stream, &before);
    for (unsigned i = 0; i < graph->n_uses; i++) {
        const struct buffer *buffer = graph_used(w, &graph->uses[i]);
        if (!buffer || !(host_alone(buffer) || buffer_reachable(w, buffer, graph->context)) ||
            !clock_covers(&before, &buffer->born) || !clock_covers(&before, &buffer->wrote) ||
            (graph->uses[i].write && !clock_covers(&before, &buffer->read)))
            return false;
    }
    return true;
}

bool op_graph_launch(struct world *w)
{
    struct graph *graph = graph_pick(w, false);
    unsigned stream = stream_pick(w);
    struct clock stamp;

    if (!graph || stream == MAX_STREAMS || w->streams[stream].context != graph->context ||
        !may_launch(w, graph, stream))
        return false;
    if (!did(w, cu.cuGraphLaunch(graph->exec, stream_handle(w, stream)), "cuGraphLaunch g%u s%u",
             graph->id, stream))
        return true;
    stream_submit(w, stream, &stamp);
    for (int write = 0; write < 2; write++)
        for (unsigned i = 0; i < graph->n_uses; i++)
            if (graph->uses[i].write == write)
                buffer_used(w, &w->buffers[graph->uses[i].buffer], stream, &stamp, write);
    return true;
}

bool op_graph_destroy(struct world *w)
{
    struct graph *graph = graph_pick(w, false);

    if (!graph || w->capture.open)
        return false;
    use_context(w, graph->context);
    (void)did(w, cu.cuGraphExecDestroy(graph->exec), "cuGraphExecDestroy g%u", graph->id);
    if (graph->graph)
        (void)did(w, cu.cuGraphDestroy(graph->graph), "cuGraphDestroy g%u", graph->id);
    graph->alive = false;
    return true;
}
