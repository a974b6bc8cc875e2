/* What becomes of a segment: withheld, submitted as a graph or one by one, learnt, built. See
 * stream.h.
 *
 * - Withholding begins at a segment's first operation or not at all: a graph stands for a whole
 *   segment from its start.
 * - What is withheld goes out once: as the graph of the longest part that has one, then one by one.
 *   A graph that cannot be launched has submitted nothing; then all goes out one by one.
 * - Graphs are only built where segments end, between two operations of the program, and segments
 *   are short enough for that to take less than a millisecond.
 * - To a per-thread stream only its own thread can submit. Another thread that has to (the
 * watchdog, a wait for the context) takes a blocking stream of ours in its place: behind an event
 * that the thread recorded as withholding began, and before whatever the thread does next. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <string.h>

#include "graph/learn/variants.h"
#include "graph/replay/builder.h"
#include "graph/replay/verify.h"
#include "graph/stream.h"
#include "interpose/base/clock.h"
#include "interpose/base/log.h"
#include "interpose/driver/driver.h"
#include "interpose/report/trace.h"
#include "policy/contexts/context.h"
#include "policy/order/capture.h"

#define SHORTEST     16u  /* operations of a segment that nothing flushes */
#define FIRST        4u   /* of the first after a flush: the device is to start early */
#define CAP          128u /* of any: building that many takes 0.4 ms, launching 2 us (H200) */
#define MAX_REFUSALS 3u
#define HOLD_SHARE   2u    /* a segment should come together within twice the watchdog's time */
#define EARLY_ROUND  128u  /* operations of an unwaited round before the ways were compared */
#define MOST_WAITED  8192u /* operations between two waits that make a round */

static struct {
    struct ag_history_limits limits;
    struct ag_ring_limits ring;
    uint32_t warmup, max_graphs, verify;
    struct ag_size max_bytes;
    bool profit;
    const char *dump;
    _Atomic uint64_t bytes;
    _Atomic uint32_t n_dumped, n_launched;
} state;

void ag_segment_configure(const struct ag_options *options)
{
    uint32_t length = options->graph_segment.n;

    state.limits = (struct ag_history_limits){
        .shortest = SHORTEST,
        .first = FIRST,
        .cap = CAP,
        .hold_ns = (uint64_t)options->graph_hold_us * 1000 * HOLD_SHARE,
        .marked = options->graph_iteration.kind == AG_ITERATION_NVTX,
        .flush_only = options->graph_iteration.kind == AG_ITERATION_SYNC,
    };
    if (options->graph_segment.kind == AG_SEGMENT_ITERATION) {
        state.limits.cap = UINT32_MAX;
    } else if (options->graph_segment.kind == AG_SEGMENT_FIXED) {
        state.limits.first = state.limits.cap = length;
        state.limits.shortest = length < SHORTEST ? length : SHORTEST;
    }
    state.ring.depth = options->graph_staging;
    state.ring.slot_bytes = options->graph_staging_slot;
    state.warmup = options->graph_warmup;
    state.max_graphs = options->graph_graphs;
    state.max_bytes = options->graph_memory;
    state.verify = options->graph_verify;
    state.profit = options->graph_profit;
    state.dump = options->graph_dump.text[0] ? options->graph_dump.text : NULL;
}

bool ag_segment_init_resources(struct ag_stream *stream)
{
    if (stream->matcher)
        return true;
    if (!stream->history)
        stream->history = ag_history_new(&state.limits);
    if (stream->history)
        stream->matcher = ag_matcher_new(AG_MATCHER_NODES);
    if (!stream->matcher)
        return false;
    stream->node = ag_matcher_root(stream->matcher);
    return true;
}

/* --- submitting --- */

/* An error of work that the program was told had succeeded. Errors that stay are the driver's to
 * tell; others wait for the next call that may tell of earlier ones. */
static void note_error(struct ag_stream *stream, CUresult error)
{
    int none = CUDA_SUCCESS;

    ag_stats_add(AG_STAT_REPLAY_LATE_ERRORS, 1);
    ag_log_debug("withheld work failed as it was submitted: %s", ag_driver_error_name(error));
    if (ag_error_is_sticky(error))
        atomic_store_explicit(&stream->shared->failed, true, memory_order_relaxed);
    else
        (void)atomic_compare_exchange_strong(&stream->shared->late, &none, (int)error);
    atomic_store_explicit(&ag_stream_any_late, true, memory_order_release);
}

static void give_up(struct ag_graph *graph, bool context_gone)
{
    atomic_fetch_sub_explicit(&state.bytes, ag_graph_bytes(graph), memory_order_relaxed);
    if (context_gone)
        ag_graph_forget(graph);
    else
        ag_graph_destroy(graph);
}

/* All graphs of a segment. */
static void give_up_all(struct ag_variants *graphs, bool context_gone)
{
    for (uint32_t i = 0; i < ag_variants_count(graphs); i++)
        give_up(ag_variants_at(graphs, i), context_gone);
    ag_variants_free(graphs);
}

static void drop_graphs(struct ag_stream *stream, struct ag_node *node)
{
    struct ag_variants *graphs = ag_matcher_set_graphs(stream->matcher, node, NULL);

    if (!graphs)
        return;
    stream->n_graphs -= ag_variants_count(graphs);
    give_up_all(graphs, false);
}

/* What became of `n` operations of the stream, since `began`; 0: now. */
static void tell(struct ag_stream *stream, enum ag_trace_kind kind, uint32_t n, uint64_t began,
                 uint64_t more)
{
    uint64_t now = ag_clock_ticks();

    ag_trace_add(&(struct ag_trace_event){
        .kind = (uint8_t)kind,
        .ticks = began ? began : now,
        .duration = began ? now - began : 0,
        .device = (int16_t)stream->context->device->ordinal,
        .stream = (uintptr_t)stream->handle,
        .size = n,
        .address = more,
    });
}

/* Every n-th launch is run both ways, where that was asked for and is possible. */
static CUresult launch_graph(struct ag_stream *stream, struct ag_graph *graph, uint32_t n,
                             CUstream handle, uint32_t *ret_updated)
{
    enum ag_verify answer = AG_VERIFY_SKIPPED;

    if (!state.verify ||
        (atomic_fetch_add_explicit(&state.n_launched, 1, memory_order_relaxed) + 1) % state.verify)
        return ag_graph_launch(graph, stream->ops, handle, ret_updated);
    answer = ag_verify_segment(stream->context, graph, stream->ops, n, handle, ret_updated);
    ag_stats_add(answer == AG_VERIFY_SAME        ? AG_STAT_REPLAY_VERIFY_SAME
                 : answer == AG_VERIFY_DIFFERENT ? AG_STAT_REPLAY_VERIFY_DIFFERENT
                                                 : AG_STAT_REPLAY_VERIFY_SKIPPED,
                 1);
    return answer == AG_VERIFY_SKIPPED ? ag_graph_launch(graph, stream->ops, handle, ret_updated)
                                       : CUDA_SUCCESS;
}

/* Launches a graph at `node`, which stands for the first operations withheld. False: nothing of
 * it was submitted. */
static bool launch(struct ag_stream *stream, struct ag_node *node, CUstream handle)
{
    uint64_t began = ag_trace_on() ? ag_clock_ticks() : 0;
    uint32_t updated = 0;
    CUresult result;

    result = launch_graph(stream, ag_variants_pick(node->graphs, stream->ops), node->depth, handle,
                          &updated);
    if (result == CUDA_SUCCESS) {
        ag_variants_launched(node->graphs, stream->ops, updated);
        ag_stats_add(AG_STAT_REPLAY_LAUNCHES, 1);
        ag_stats_add(AG_STAT_REPLAY_REPLAYED, node->depth);
        ag_stats_add(AG_STAT_REPLAY_UPDATED, updated);
        stream->round_graph_ops += node->depth;
        ag_history_updating(stream->history, updated > node->depth / 2);
        ag_backoff_gained(stream->backoff, node->depth);
        if (ag_trace_on())
            tell(stream, AG_TRACE_REPLAY, node->depth, began, updated);
        return true;
    }
    ag_log_debug("a graph of %u operations was refused: %s", node->depth,
                 ag_driver_error_name(result));
    ag_stats_add(AG_STAT_REPLAY_LAUNCH_FAILED, 1);
    node->refused++;
    drop_graphs(stream, node);
    return false;
}

static void release(struct ag_stream *stream, uint32_t from, CUstream handle)
{
    uint64_t began = ag_trace_on() ? ag_clock_ticks() : 0;

    for (uint32_t i = from; i < stream->n_ops; i++) {
        CUresult result = ag_op_submit(&stream->ops[i], handle);

        if (result != CUDA_SUCCESS)
            note_error(stream, result);
    }
    ag_stats_add(AG_STAT_REPLAY_RELEASED, stream->n_ops - from);
    if (ag_trace_on())
        tell(stream, AG_TRACE_RELEASE, stream->n_ops - from, began, 0);
}

/* The stream to which the calling thread can submit for the stream; NULL: there is none. */
static CUstream target(struct ag_stream *stream)
{
    if (!stream->thread || stream->thread == ag_stream_thread())
        return stream->handle;
    if (!stream->proxy && ag_cu.cuStreamCreate(&stream->proxy, CU_STREAM_DEFAULT) != CUDA_SUCCESS)
        return NULL;
    if (!stream->behind &&
        ag_cu.cuEventCreate(&stream->behind, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
        return NULL;
    if (!stream->proxied &&
        ag_cu.cuStreamWaitEvent(stream->proxy, stream->before, 0) != CUDA_SUCCESS)
        return NULL;
    return stream->proxy;
}

static void sent_to_proxy(struct ag_stream *stream)
{
    CUresult result = ag_cu.cuEventRecord(stream->behind, stream->proxy);

    if (result != CUDA_SUCCESS)
        note_error(stream, result);
    stream->proxied = true;
}

/* Has what was sent to the proxy been done? */
static bool is_behind(struct ag_stream *stream)
{
    CUstreamCaptureMode mode = ag_capture_relax();
    CUresult result = ag_cu.cuEventQuery(stream->behind);

    ag_capture_restore(mode);
    return result == CUDA_SUCCESS;
}

/* A wait is work on the stream: a program that knows its stream to be done would find it busy. */
void ag_segment_settle(struct ag_stream *stream)
{
    CUresult result = CUDA_SUCCESS;

    if (!stream->proxied || stream->thread != ag_stream_thread())
        return;
    if (!is_behind(stream))
        result = ag_cu.cuStreamWaitEvent(stream->handle, stream->behind, 0);
    if (result != CUDA_SUCCESS)
        note_error(stream, result);
    stream->proxied = false;
    if (!stream->n_ops)
        ag_stream_set_open(stream, false);
}

void ag_segment_submit(struct ag_stream *stream)
{
    struct ag_node *node = stream->node;
    CUstream handle;
    uint32_t n = 0;

    if (stream->mode != AG_STREAM_HOLDING)
        return;
    handle = target(stream);
    if (!handle) {
        ag_log_warn("withheld work of another thread's handle could not be submitted yet");
        return;
    }
    while (node->depth && !node->graphs)
        node = node->parent;
    if (node->depth && launch(stream, node, handle))
        n = node->depth;
    if (n < stream->n_ops)
        release(stream, n, handle);
    if (stream->staged.first)
        (void)ag_ring_sent(atomic_load(&stream->shared->ring), &stream->staged, handle);
    if (handle == stream->proxy)
        sent_to_proxy(stream);
    stream->mode = AG_STREAM_PASSING;
    ag_stream_set_holding(stream, false);
}

/* May withholding begin: does the driver still take work for the stream? A context that the device
 * failed may have said so to a call that we do not look at, and each launch in it is to say so,
 * too. A later driver may begin captures by functions that we do not know. */
static bool is_sound(struct ag_stream *stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = ag_cu.cuStreamIsCapturing(stream->handle, &status);

    if (ag_error_is_sticky(result))
        atomic_store_explicit(&stream->shared->failed, true, memory_order_relaxed);
    return result == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_NONE;
}

bool ag_segment_hold(struct ag_stream *stream)
{
    if (!ag_watchdog_wake() || !is_sound(stream))
        return false;
    if (stream->thread) {
        if (!stream->before &&
            ag_cu.cuEventCreate(&stream->before, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
            return false;
        if (ag_cu.cuEventRecord(stream->before, stream->handle) != CUDA_SUCCESS)
            return false;
    }
    stream->mode = AG_STREAM_HOLDING;
    atomic_fetch_add_explicit(&stream->stretch, 1, memory_order_relaxed);
    ag_stream_set_open(stream, true);
    ag_stream_set_holding(stream, true);
    if (ag_watchdog_wake()) /* once more: it may have gone to sleep before it could see this */
        return true;
    stream->mode = AG_STREAM_PASSING;
    ag_stream_set_holding(stream, false);
    return false;
}

/* --- learning --- */

/* Room for one more graph, within the bounds. */
static bool has_room(const struct ag_stream *stream)
{
    uint64_t most = ag_size_bytes(state.max_bytes, stream->context->device->total_bytes);

    return stream->n_graphs < state.max_graphs &&
           atomic_load_explicit(&state.bytes, memory_order_relaxed) <= most;
}

/* One at a time: to destroy one takes the driver as long as a few launches. */
static void evict_one(struct ag_stream *stream, struct ag_node *node)
{
    if (ag_variants_count(node->graphs) > 1) {
        give_up(ag_variants_take(node->graphs), false);
        stream->n_graphs--;
    } else {
        drop_graphs(stream, node);
    }
    ag_stats_add(AG_STAT_REPLAY_EVICTED, 1);
}

/* Other segments' graphs go for it, but not for a second one of the same segment. */
static bool make_room(struct ag_stream *stream)
{
    while (!has_room(stream)) {
        struct ag_node *node = ag_matcher_oldest_graph(stream->matcher);

        if (!node || stream->node->graphs)
            return false;
        evict_one(stream, node);
    }
    return true;
}

static bool is_staged(const struct ag_op *op)
{
    return ag_op_kind(op) == AG_OP_COPY && op->signature.word[0] & AG_OP_IS_STAGED;
}

/* What was recorded as it passed read the program's own pageable memory; as a node it will read
 * slots of the ring. */
static CUresult add_staged(struct ag_stream *stream, struct ag_graph *graph, const struct ag_op *op)
{
    struct ag_ring *ring = atomic_load_explicit(&stream->shared->ring, memory_order_acquire);
    struct ag_copy_payload copy;
    struct ag_op staged = *op;

    if (!ring) {
        ag_graph_destroy(graph);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(&copy, op->payload, sizeof(copy));
    copy.from = (uintptr_t)ag_ring_memory(ring);
    staged.payload = (void *)&copy;
    return ag_graph_add(graph, &staged);
}

static CUresult build_from(struct ag_stream *stream, struct ag_graph **ret)
{
    struct ag_graph_wish wish = {
        .context = stream->context->handle,
        .priority = stream->priority,
        .n_ops = stream->n_ops,
    };
    CUresult result = CUDA_SUCCESS;
    struct ag_graph *graph;

    for (uint32_t i = 0; i < stream->n_ops; i++)
        wish.n_bytes += (stream->ops[i].payload_bytes + 7) & ~7u;
    graph = ag_graph_begin(&wish, &result);
    for (uint32_t i = 0; graph && i < stream->n_ops; i++) {
        const struct ag_op *op = &stream->ops[i];

        result = is_staged(op) ? add_staged(stream, graph, op) : ag_graph_add(graph, op);
        if (result != CUDA_SUCCESS)
            graph = NULL;
    }
    if (graph) {
        result = ag_graph_finish(graph);
        if (result != CUDA_SUCCESS)
            graph = NULL;
    }
    *ret = graph;
    return result;
}

static void dump(const struct ag_graph *graph)
{
    static _Atomic bool complained;
    unsigned number = atomic_fetch_add_explicit(&state.n_dumped, 1, memory_order_relaxed);
    int error = ag_graph_dump(graph, state.dump, number);

    if (error && !atomic_exchange(&complained, true))
        ag_log_warn("ALLOGRAFT_GRAPH_DUMP=%s: %s", state.dump, strerror(-error));
}

/* The graph belongs to the segment from now on. False: no memory for that. */
static bool carry(struct ag_stream *stream, struct ag_graph *graph)
{
    struct ag_variants *graphs = stream->node->graphs;

    if (!graphs) {
        graphs = ag_variants_new(stream->n_ops);
        if (!graphs)
            return false;
        (void)ag_matcher_set_graphs(stream->matcher, stream->node, graphs);
    }
    ag_variants_add(graphs, graph);
    stream->n_graphs++;
    stream->round_built = true;
    atomic_fetch_add_explicit(&state.bytes, ag_graph_bytes(graph), memory_order_relaxed);
    return true;
}

static void build(struct ag_stream *stream)
{
    uint64_t began = ag_clock_ns(), began_ticks = ag_clock_ticks();
    struct ag_graph *graph = NULL;
    CUresult result;

    for (uint32_t i = 0; i < stream->n_ops; i++) {
        if (is_staged(&stream->ops[i]) && !ag_segment_ring(stream))
            return;
    }
    if ((stream->thread && stream->thread != ag_stream_thread()) || !make_room(stream) ||
        !ag_capture_guard_enter())
        return;
    result = build_from(stream, &graph);
    ag_capture_guard_leave();
    if (graph && !carry(stream, graph)) {
        ag_graph_destroy(graph);
        graph = NULL;
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!graph) {
        stream->node->refused++;
        ag_stats_add(AG_STAT_REPLAY_BUILD_FAILED, 1);
        ag_log_debug("no graph of %u operations: %s", stream->n_ops, ag_driver_error_name(result));
        return;
    }
    ag_stats_add(AG_STAT_REPLAY_BUILT, 1);
    ag_stats_add(AG_STAT_REPLAY_BUILD_NS, ag_clock_ns() - began);
    if (ag_trace_on())
        tell(stream, AG_TRACE_BUILD, stream->n_ops, began_ticks, 0);
    if (state.dump)
        dump(graph);
}

/* Beside a first graph, while there is plenty of room. */
static bool wants_another(const struct ag_stream *stream)
{
    return stream->n_graphs < state.max_graphs / 2 && ag_variants_wants(stream->node->graphs);
}

static void learn(struct ag_stream *stream)
{
    struct ag_node *node = stream->node;

    ag_matcher_ended(stream->matcher, node);
    ag_stats_add(AG_STAT_REPLAY_SEGMENTS, 1);
    if (stream->n_ops >= AG_BACKOFF_LEAST && node->ends >= state.warmup &&
        node->refused < MAX_REFUSALS && stream->may_replay &&
        (!node->graphs || wants_another(stream)))
        build(stream);
}

void ag_segment_flushed(struct ag_stream *stream, enum ag_flush why)
{
    enum ag_stat reason = (enum ag_stat)(AG_STAT_FLUSH_STREAM + (int)why);

    ag_stats_add(reason, 1);
    if (ag_trace_on())
        ag_trace_add(&(struct ag_trace_event){
            .kind = AG_TRACE_FLUSH,
            .ticks = ag_clock_ticks(),
            .device = (int16_t)stream->context->device->ordinal,
            .stream = (uintptr_t)stream->handle,
            .size = stream->n_ops,
            .code = (uint16_t)reason,
        });
}

void ag_segment_end(struct ag_stream *stream, bool flushed, enum ag_flush why)
{
    if (!stream->matcher)
        return;
    if (stream->mode == AG_STREAM_HOLDING && flushed)
        ag_segment_flushed(stream, why);
    ag_segment_submit(stream);
    if (stream->mode == AG_STREAM_HOLDING)
        return; /* it could not be submitted: stays */
    if (stream->n_ops && stream->node && !stream->spoiled)
        learn(stream);
    if (ag_history_length(stream->history))
        ag_history_ended(stream->history, flushed);
    stream->round_ops += stream->n_ops;
    if (stream->since_wait <= MOST_WAITED)
        stream->since_wait += stream->n_ops;
    stream->n_ops = 0;
    stream->node = ag_matcher_root(stream->matcher);
    stream->spoiled = false;
    stream->prepared = false;
    ag_store_reset(&stream->store);
    if (!stream->proxied)
        ag_stream_set_open(stream, false);
}

/* --- profit --- */

static void compare(struct ag_stream *stream, uint64_t ns)
{
    const struct ag_profit *compared =
        ag_kinds_note(&stream->kinds, &(struct ag_round){
                                          .path = stream->round_path,
                                          .ns = ns,
                                          .replayed = stream->round_graph_ops > 0,
                                          .was_to_replay = stream->may_replay,
                                          .built = stream->round_built,
                                      });

    if (compared)
        ag_stats_compared(compared->median_eager, compared->median_replayed,
                          stream->round_path == AG_UNWAITED_ROUND);
}

static void waited(struct ag_stream *stream)
{
    if (!stream->since_wait)
        return;
    stream->between_waits = stream->since_wait;
    stream->since_wait = 0;
}

/* Is a wait to come? Then the round ends there. In a part of it the host may run ahead of the
 * device, and what takes the host less need not take the program less. */
static bool is_waited_for(const struct ag_stream *stream)
{
    return !state.limits.marked && stream->since_wait <= MOST_WAITED &&
           stream->since_wait <= 2 * stream->between_waits + AG_UNWAITED_ROUND;
}

void ag_segment_round(struct ag_stream *stream, bool free_running)
{
    uint32_t least =
        ag_kinds_compared(&stream->kinds, AG_UNWAITED_ROUND) ? AG_UNWAITED_ROUND : EARLY_ROUND;
    uint64_t now;

    if (free_running && (stream->round_ops < least || is_waited_for(stream)))
        return;
    if (!free_running)
        waited(stream);
    if (!stream->round_ops)
        return;
    ag_stats_add(AG_STAT_REPLAY_ITERATIONS, 1);
    if (state.profit) {
        now = ag_clock_ns();
        if (free_running)
            stream->round_path = AG_UNWAITED_ROUND;
        if (stream->round_began)
            compare(stream, free_running ? (now - stream->round_began) * AG_UNWAITED_ROUND /
                                               stream->round_ops
                                         : now - stream->round_began);
        if (!stream->may_replay)
            ag_stats_add(AG_STAT_REPLAY_EAGER_ROUNDS, 1);
        stream->may_replay = ag_kinds_replay(&stream->kinds);
        stream->round_began = now;
    }
    stream->round_ops = stream->round_graph_ops = 0;
    stream->round_path = 0;
    stream->round_built = false;
}

/* --- ends --- */

static void forget_one(struct ag_variants *graphs, void *data)
{
    give_up_all(graphs, *(const bool *)data);
}

/* What per-thread streams need. */
static void drop_proxy(struct ag_stream *stream, bool context_gone)
{
    if (!context_gone) {
        if (stream->proxy)
            (void)ag_cu.cuStreamDestroy_v2(stream->proxy);
        if (stream->before)
            (void)ag_cu.cuEventDestroy_v2(stream->before);
        if (stream->behind)
            (void)ag_cu.cuEventDestroy_v2(stream->behind);
    }
    stream->proxy = NULL;
    stream->before = stream->behind = NULL;
    stream->proxied = false;
}

void ag_segment_leave(struct ag_stream *stream, bool context_gone)
{
    ag_segment_forget(stream, context_gone);
    drop_proxy(stream, context_gone);
}

void ag_segment_forget(struct ag_stream *stream, bool context_gone)
{
    if (stream->matcher)
        ag_matcher_free(stream->matcher, forget_one, &context_gone);
    stream->matcher = NULL;
    stream->node = NULL;
    stream->next = NULL;
    stream->prepared = false;
    stream->n_graphs = 0;
    memset(&stream->kinds, 0, sizeof(stream->kinds));
    stream->may_replay = true;
}

struct ag_ring *ag_segment_ring(struct ag_stream *stream)
{
    struct ag_context_state *shared = stream->shared;
    struct ag_ring *ring = atomic_load_explicit(&shared->ring, memory_order_acquire);

    if (ring || atomic_load_explicit(&shared->ring_tried, memory_order_acquire))
        return ring;
    if (!ag_capture_guard_enter())
        return NULL;
    if (!atomic_exchange(&shared->ring_tried, true)) {
        ring = ag_ring_new(&state.ring);
        atomic_store_explicit(&shared->ring, ring, memory_order_release);
    }
    ag_capture_guard_leave();
    return atomic_load_explicit(&shared->ring, memory_order_acquire);
}
