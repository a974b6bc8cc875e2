/* What becomes of a segment: withheld, submitted as a graph or one by one, learnt, built. See
 * segment.h.
 *
 * - Withholding begins with a segment's first operation or not at all, since a graph stands for a
 *   segment from its start.
 * - What is withheld goes out once: the graph of the longest part that has one, the rest one by
 *   one. A graph that cannot be launched has submitted nothing; then all goes out one by one.
 * - Graphs are built where segments end, between two operations of the program. Segments are short
 *   enough for that to take less than a millisecond.
 * - Only its own thread can submit to a per-thread stream. Another thread that has to (the
 *   watchdog, a wait for the context) submits to a *proxy*, a blocking stream of ours: after an
 *   event that the thread recorded when withholding began, and before whatever the thread does
 *   next. */
#include <errno.h>
#include <string.h>

#include "graph/learn/variants.h"
#include "graph/replay/builder.h"
#include "graph/replay/segment.h"
#include "graph/replay/verify.h"
#include "graph/replay/watchdog.h"
#include "graph/stream.h"
#include "graph/tuning.h"
#include "interpose/core/base/clock.h"
#include "interpose/core/base/log.h"
#include "interpose/core/driver/driver.h"
#include "interpose/core/report/trace/trace.h"
#include "policy/contexts/context.h"
#include "policy/order/capture.h"
#include "policy/order/fence.h"
#include "policy/pressure.h"

static struct {
    struct ag_history_limits limits;
    struct ag_ring_limits ring;
    uint32_t warmup, max_graphs, verify; /* warmup: 0 for auto */
    struct ag_size max_bytes;
    bool profit;
    const char *dump;
    _Atomic uint64_t bytes; /* relaxed: a bound; likewise numbers below */
    _Atomic bool has_built; /* relaxed: a price that is asked twice at most */
    _Atomic uint32_t n_dumped, n_launched;
} state;

uint64_t ag_segment_bytes(void)
{
    return atomic_load_explicit(&state.bytes, memory_order_relaxed);
}

void ag_segment_configure(const struct ag_options *options)
{
    uint32_t length = options->graph_segment.n;

    state.limits = (struct ag_history_limits){
        .shortest = AG_LENGTH_SHORTEST,
        .first = AG_LENGTH_FIRST,
        .cap = AG_LENGTH_CAP,
        .hold_ns = (uint64_t)options->graph_hold_us * 1000 * AG_LENGTH_HOLD_SHARE,
        .marked = options->graph_iteration.kind == AG_ITERATION_NVTX,
        .flush_only = options->graph_iteration.kind == AG_ITERATION_SYNC,
    };
    if (options->graph_segment.kind == AG_SEGMENT_FIXED) {
        state.limits.first = state.limits.cap = length;
        state.limits.shortest = length < AG_LENGTH_SHORTEST ? length : AG_LENGTH_SHORTEST;
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
    struct ag_learned *learned = &stream->learned;

    if (learned->matcher)
        return true;
    if (!learned->backoff)
        learned->backoff = ag_backoff_new();
    if (!learned->history)
        learned->history = ag_history_new(&state.limits);
    if (learned->backoff && learned->history)
        learned->matcher = ag_matcher_new(AG_MATCHER_NODES);
    if (!learned->matcher)
        return false;
    stream->segment.node = ag_matcher_root(learned->matcher);
    return true;
}

/* --- errors, and graphs that go --- */

/* An error of work that the program was told had succeeded. A sticky error the driver repeats
 * itself; another one is kept for the next call that may report errors of earlier work. */
static void note_error(struct ag_stream *stream, CUresult error)
{
    int none = CUDA_SUCCESS;

    ag_stats_add(AG_STAT_REPLAY_LATE_ERRORS, 1);
    ag_log_debug("withheld work failed as it was submitted: %s", ag_driver_error_name(error));
    if (ag_error_is_sticky(error))
        atomic_store_explicit(&stream->id.shared->failed, true, memory_order_relaxed);
    else
        (void)atomic_compare_exchange_strong(&stream->id.shared->late, &none, (int)error);
    atomic_store_explicit(&ag_stream_any_late, true, memory_order_release);
}

static void drop_graph(struct ag_graph *graph, bool context_gone)
{
    atomic_fetch_sub_explicit(&state.bytes, ag_graph_bytes(graph), memory_order_relaxed);
    if (context_gone)
        ag_graph_forget(graph);
    else
        ag_graph_destroy(graph);
}

/* Drops all graphs of a segment. */
static void drop_graphs_of(struct ag_variants *graphs, bool context_gone)
{
    for (uint32_t i = 0; i < ag_variants_count(graphs); i++)
        drop_graph(ag_variants_at(graphs, i), context_gone);
    ag_variants_free(graphs);
}

static void drop_graphs(struct ag_stream *stream, struct ag_node *node)
{
    struct ag_variants *graphs = ag_matcher_set_graphs(stream->learned.matcher, node, NULL);

    if (!graphs)
        return;
    stream->learned.n_graphs -= ag_variants_count(graphs);
    drop_graphs_of(graphs, false);
}

/* --- reasons and their counters --- */

_Static_assert(AG_STAT_FLUSH_END - AG_STAT_FLUSH_STREAM == (int)AG_FLUSH_END, "rows of counters");

static const enum ag_stat counter_of_verify[] = {
    [AG_VERIFY_SKIPPED] = AG_STAT_REPLAY_VERIFY_SKIPPED,
    [AG_VERIFY_UNCOMPARED] = AG_STAT_REPLAY_VERIFY_SKIPPED,
    [AG_VERIFY_SAME] = AG_STAT_REPLAY_VERIFY_SAME,
    [AG_VERIFY_DIFFERENT] = AG_STAT_REPLAY_VERIFY_DIFFERENT,
};

/* --- the trace --- */

/* Traces what became of `n` operations of the stream: since `began`, in ticks; 0: now. */
static void trace_ops(struct ag_stream *stream, struct ag_trace_event event, uint32_t n,
                      uint64_t began)
{
    if (!ag_trace_on())
        return;
    event.ticks = ag_clock_ticks();
    if (began) {
        event.duration = event.ticks - began;
        event.ticks = began;
    }
    event.device = (int16_t)stream->id.context->device->ordinal;
    event.stream = (uintptr_t)stream->id.handle;
    event.size = n;
    ag_trace_add(&event);
}

/* --- submitting --- */

/* Every n-th launch is run both ways, where that was asked for and is possible. */
static CUresult launch_graph(struct ag_stream *stream, struct ag_graph *graph, uint32_t n,
                             CUstream handle, uint32_t *ret_updated)
{
    enum ag_verify answer = AG_VERIFY_SKIPPED;

    if (!state.verify ||
        (atomic_fetch_add_explicit(&state.n_launched, 1, memory_order_relaxed) + 1) % state.verify)
        return ag_graph_launch(graph, stream->segment.ops, handle, ret_updated);
    answer =
        ag_verify_segment(stream->id.context, graph, stream->segment.ops, n, handle, ret_updated);
    ag_stats_add(counter_of_verify[answer], 1);
    return answer == AG_VERIFY_SKIPPED
               ? ag_graph_launch(graph, stream->segment.ops, handle, ret_updated)
               : CUDA_SUCCESS;
}

/* The first launch of the node's graphs since the host waited? True once. */
static bool is_first_launch(struct ag_stream *stream, struct ag_node *node)
{
    struct ag_running_iteration *iteration = &stream->iteration;

    for (uint32_t i = 0; i < iteration->n_launched; i++) {
        if (iteration->launched[i] == node)
            return false;
    }
    if (iteration->n_launched == AG_FORESEEN_MOST)
        return false;
    iteration->launched[iteration->n_launched++] = node;
    return true;
}

/* Launches a graph of `node`, which stands for the first node->depth withheld operations. False:
 * nothing was submitted. */
static bool launch_node(struct ag_stream *stream, struct ag_node *node, CUstream handle)
{
    uint64_t began = ag_trace_on() ? ag_clock_ticks() : 0;
    uint32_t updated = 0;
    CUresult result;

    result = launch_graph(stream, ag_variants_pick(node->graphs, stream->segment.ops), node->depth,
                          handle, &updated);
    if (result == CUDA_SUCCESS) {
        ag_variants_launched(node->graphs, stream->segment.ops, updated,
                             is_first_launch(stream, node));
        ag_stats_add(AG_STAT_REPLAY_LAUNCHES, 1);
        ag_stats_add(AG_STAT_REPLAY_REPLAYED, node->depth);
        ag_stats_add(AG_STAT_REPLAY_UPDATED, updated);
        stream->iteration.n_graph_ops += node->depth;
        stream->learned.has_gained = true;
        ag_matcher_note_use(stream->learned.matcher, node);
        ag_history_updating(stream->learned.history, updated > node->depth / 2);
        ag_backoff_gained(stream->learned.backoff, node->depth);
        trace_ops(stream, (struct ag_trace_event){.kind = AG_TRACE_REPLAY, .address = updated},
                  node->depth, began);
        return true;
    }
    ag_log_debug("a graph of %u operations was refused: %s", node->depth,
                 ag_driver_error_name(result));
    ag_stats_add(AG_STAT_REPLAY_LAUNCH_FAILED, 1);
    node->refused++;
    drop_graphs(stream, node);
    return false;
}

static void submit_singly(struct ag_stream *stream, uint32_t from, CUstream handle)
{
    uint64_t began = ag_trace_on() ? ag_clock_ticks() : 0;

    for (uint32_t i = from; i < stream->segment.n_ops; i++) {
        CUresult result = ag_op_submit(&stream->segment.ops[i], handle);

        if (result == CUDA_ERROR_OUT_OF_MEMORY && ag_pressure_relieve_for_withheld())
            result = ag_op_submit(&stream->segment.ops[i], handle);
        if (result != CUDA_SUCCESS)
            note_error(stream, result);
    }
    ag_stats_add(AG_STAT_REPLAY_RELEASED, stream->segment.n_ops - from);
    trace_ops(stream, (struct ag_trace_event){.kind = AG_TRACE_RELEASE},
              stream->segment.n_ops - from, began);
}

/* Once something is withheld, another thread may have to submit it: nothing may be missing then. */
static bool has_proxy(struct ag_stream *stream)
{
    return (stream->proxy.stream ||
            ag_cu.cuStreamCreate(&stream->proxy.stream, CU_STREAM_DEFAULT) == CUDA_SUCCESS) &&
           (stream->proxy.before ||
            ag_cu.cuEventCreate(&stream->proxy.before, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS) &&
           (stream->proxy.after ||
            ag_cu.cuEventCreate(&stream->proxy.after, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
}

/* The handle to which the calling thread can submit: the stream's, or its proxy. */
static CUstream target(struct ag_stream *stream)
{
    if (!stream->id.thread || stream->id.thread == ag_stream_thread())
        return stream->id.handle;
    if (!stream->proxy.pending &&
        ag_cu.cuStreamWaitEvent(stream->proxy.stream, stream->proxy.before, 0) != CUDA_SUCCESS)
        (void)ag_fence_wait_on_host(stream->proxy.before);
    return stream->proxy.stream;
}

static void sent_to_proxy(struct ag_stream *stream)
{
    CUresult result = ag_cu.cuEventRecord(stream->proxy.after, stream->proxy.stream);

    if (result != CUDA_SUCCESS)
        note_error(stream, result);
    stream->proxy.pending = true;
}

/* Is the work that was sent to the proxy done? */
static bool is_proxy_done(struct ag_stream *stream)
{
    CUstreamCaptureMode mode = ag_capture_relax();
    CUresult result = ag_cu.cuEventQuery(stream->proxy.after);

    ag_capture_restore(mode);
    return result == CUDA_SUCCESS;
}

/* Waits only if it must: waiting for an event is work on the stream, and a program that knows its
 * stream to be idle would find it busy. */
void ag_segment_join_proxy(struct ag_stream *stream)
{
    CUresult result = CUDA_SUCCESS;

    if (!stream->proxy.pending || stream->id.thread != ag_stream_thread())
        return;
    if (!is_proxy_done(stream))
        result = ag_cu.cuStreamWaitEvent(stream->id.handle, stream->proxy.after, 0);
    if (result != CUDA_SUCCESS)
        note_error(stream, result);
    stream->proxy.pending = false;
    if (!stream->segment.n_ops)
        ag_stream_set_open(stream, false);
}

void ag_segment_submit(struct ag_stream *stream)
{
    struct ag_node *node = stream->segment.node;
    CUstream handle;
    uint32_t n = 0;

    if (stream->segment.mode != AG_SEGMENT_HOLDING)
        return;
    handle = target(stream);
    ag_stats_add(AG_STAT_REPLAY_WITHHELD, stream->segment.n_ops); /* withheld as a whole */
    while (node->depth && !node->graphs)
        node = node->parent;
    if (node->depth && launch_node(stream, node, handle))
        n = node->depth;
    if (n < stream->segment.n_ops)
        submit_singly(stream, n, handle);
    if (stream->segment.staged.first)
        (void)ag_ring_sent(atomic_load(&stream->id.shared->ring), &stream->segment.staged, handle);
    if (handle == stream->proxy.stream)
        sent_to_proxy(stream);
    stream->segment.mode = AG_SEGMENT_PASSING;
    ag_stream_set_holding(stream, false);
}

/* May withholding begin: would the driver accept work on the stream? After a sticky error, which a
 * call that we do not see may have reported, each launch must report it. And a later driver may
 * begin captures by functions that we do not know. */
static bool accepts_work(struct ag_stream *stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = ag_cu.cuStreamIsCapturing(stream->id.handle, &status);

    if (ag_error_is_sticky(result))
        atomic_store_explicit(&stream->id.shared->failed, true, memory_order_relaxed);
    return result == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_NONE;
}

bool ag_segment_hold(struct ag_stream *stream)
{
    if (!ag_watchdog_wake() || !accepts_work(stream))
        return false;
    if (stream->id.thread &&
        (!has_proxy(stream) ||
         ag_cu.cuEventRecord(stream->proxy.before, stream->id.handle) != CUDA_SUCCESS))
        return false;
    stream->segment.mode = AG_SEGMENT_HOLDING;
    atomic_fetch_add_explicit(&stream->epoch, 1, memory_order_relaxed);
    ag_stream_set_open(stream, true);
    ag_stream_set_holding(stream, true);
    if (ag_watchdog_wake()) /* again: it may have gone to sleep before it could see `holding` */
        return true;
    stream->segment.mode = AG_SEGMENT_PASSING;
    ag_stream_set_holding(stream, false);
    return false;
}

/* --- learning --- */

/* Is there room for one more graph, within the settings' bounds? */
static bool has_graph_room(const struct ag_stream *stream)
{
    uint64_t most = ag_size_bytes(state.max_bytes, stream->id.context->device->total_bytes);

    return stream->learned.n_graphs < state.max_graphs && ag_segment_bytes() <= most;
}

/* One at a time: destroying one takes the driver as long as a few launches. */
static void evict_one(struct ag_stream *stream, struct ag_node *node)
{
    if (ag_variants_count(node->graphs) > 1) {
        drop_graph(ag_variants_take(node->graphs), false);
        stream->learned.n_graphs--;
    } else {
        drop_graphs(stream, node);
    }
    ag_stats_add(AG_STAT_REPLAY_EVICTED, 1);
}

/* Evicts graphs of other segments for the first graph of this one, but not for a further one. */
static bool make_graph_room(struct ag_stream *stream)
{
    while (!has_graph_room(stream)) {
        struct ag_node *node = ag_matcher_oldest_graph(stream->learned.matcher);

        if (!node || stream->segment.node->graphs)
            return false;
        evict_one(stream, node);
    }
    return true;
}

static bool is_staged(const struct ag_op *op)
{
    return ag_op_kind(op) == AG_OP_COPY && op->signature.word[0] & AG_OP_IS_STAGED;
}

static bool has_staged(const struct ag_stream *stream)
{
    for (uint32_t i = 0; i < stream->segment.n_ops; i++) {
        if (is_staged(&stream->segment.ops[i]))
            return true;
    }
    return false;
}

/* The copy was recorded as it passed, and read the program's pageable memory. As a node it will
 * read a slot of the ring, so it is built with an address there. */
static CUresult add_staged(struct ag_stream *stream, struct ag_graph *graph, const struct ag_op *op)
{
    struct ag_ring *ring = atomic_load_explicit(&stream->id.shared->ring, memory_order_acquire);
    struct ag_copy_payload copy;
    struct ag_op staged = *op;

    if (!ring)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(&copy, op->payload, sizeof(copy));
    copy.from = (uintptr_t)ag_ring_memory(ring);
    staged.payload = (void *)&copy;
    return ag_graph_add(graph, &staged);
}

static struct ag_graph *build_from(struct ag_stream *stream, CUresult *ret_why)
{
    struct ag_graph_params params = {
        .context = stream->id.context->handle,
        .priority = stream->id.priority,
        .n_ops = stream->segment.n_ops,
    };
    struct ag_graph *graph;

    for (uint32_t i = 0; i < stream->segment.n_ops; i++)
        params.n_bytes += (stream->segment.ops[i].payload_bytes + 7) & ~7u;
    graph = ag_graph_begin(&params, ret_why);
    for (uint32_t i = 0; *ret_why == CUDA_SUCCESS && i < stream->segment.n_ops; i++) {
        const struct ag_op *op = &stream->segment.ops[i];

        *ret_why = is_staged(op) ? add_staged(stream, graph, op) : ag_graph_add(graph, op);
    }
    if (*ret_why == CUDA_SUCCESS)
        *ret_why = ag_graph_finish(graph);
    if (*ret_why == CUDA_SUCCESS)
        return graph;
    ag_graph_destroy(graph);
    return NULL;
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
    struct ag_variants *graphs = stream->segment.node->graphs;

    if (!graphs) {
        graphs = ag_variants_new(stream->segment.n_ops);
        if (!graphs)
            return false;
        (void)ag_matcher_set_graphs(stream->learned.matcher, stream->segment.node, graphs);
    }
    ag_variants_add(graphs, graph);
    stream->learned.n_graphs++;
    stream->iteration.built = true;
    atomic_fetch_add_explicit(&state.bytes, ag_graph_bytes(graph), memory_order_relaxed);
    ag_cache_note_kept();
    return true;
}

static void build(struct ag_stream *stream)
{
    uint64_t began = ag_clock_ns(), began_ticks = ag_clock_ticks();
    struct ag_graph *graph;
    CUresult result;

    if (has_staged(stream) && !ag_segment_ring(stream))
        return;
    if ((stream->id.thread && stream->id.thread != ag_stream_thread()) ||
        !make_graph_room(stream) || !ag_capture_guard_enter())
        return;
    graph = build_from(stream, &result);
    ag_capture_guard_leave();
    if (graph && !carry(stream, graph)) {
        ag_graph_destroy(graph);
        graph = NULL;
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!graph) {
        stream->segment.node->refused++;
        ag_stats_add(AG_STAT_REPLAY_BUILD_FAILED, 1);
        ag_log_debug("no graph of %u operations: %s", stream->segment.n_ops,
                     ag_driver_error_name(result));
        return;
    }
    atomic_store_explicit(&state.has_built, true, memory_order_relaxed);
    ag_stats_add(AG_STAT_REPLAY_BUILT, 1);
    ag_stats_add(AG_STAT_REPLAY_BUILD_NS, ag_clock_ns() - began);
    trace_ops(stream, (struct ag_trace_event){.kind = AG_TRACE_BUILD}, stream->segment.n_ops,
              began_ticks);
    if (state.dump)
        dump(graph);
}

/* Would a graph have saved what it costs, had it been built when the segment first came? Programs
 * that end, or do something else, before that lose by replay no more than they would have
 * gained. */
static bool is_graph_due(const struct ag_stream *stream)
{
    uint64_t n = stream->segment.n_ops;
    uint64_t costs = AG_BUILD_NS + n * AG_BUILD_OP_NS;
    uint64_t ends = stream->segment.node->ends;

    if (state.warmup)
        return ends >= state.warmup;
    if (!atomic_load_explicit(&state.has_built, memory_order_relaxed))
        costs += AG_BUILD_FIRST_NS;
    if (!atomic_load_explicit(&stream->id.shared->ring, memory_order_relaxed) && has_staged(stream))
        costs += AG_BUILD_SLOTS_NS;
    return ends > 1 && ends * (n * AG_SAVED_OP_NS - AG_LAUNCH_NS) >= costs;
}

/* Another graph is built beside a segment's first only while fewer than half of those that are
 * allowed exist. */
static void learn_segment(struct ag_stream *stream)
{
    struct ag_node *node = stream->segment.node;
    bool has_half = stream->learned.n_graphs >= state.max_graphs / 2;

    ag_matcher_ended(stream->learned.matcher, node);
    ag_stats_add(AG_STAT_REPLAY_SEGMENTS, 1);
    if (stream->segment.n_ops >= AG_LENGTH_WORTH_GRAPH && node->refused < AG_GRAPH_REFUSALS &&
        stream->iteration.may_replay &&
        (!node->graphs || (!has_half && ag_variants_wants(node->graphs))) && is_graph_due(stream))
        build(stream);
}

/* What passing operations take the host: the least that was seen, so that neither a kernel that is
 * loaded nor a program that does something else in between counts. */
static void note_eager(struct ag_stream *stream)
{
    uint32_t n = stream->segment.n_ops;
    uint64_t ps;

    if (!stream->learned.passing_since || n < AG_PROFIT_EVIDENCE_OPS)
        return;
    ps = (ag_clock_ns() - stream->learned.passing_since) * 1000 / n;
    if (!stream->learned.eager_op_ps || ps < stream->learned.eager_op_ps)
        stream->learned.eager_op_ps = ps;
}

void ag_segment_note_flush(struct ag_stream *stream, enum ag_flush why)
{
    enum ag_stat counter = (enum ag_stat)(AG_STAT_FLUSH_STREAM + (int)why);

    ag_stats_add(counter, 1);
    trace_ops(stream, (struct ag_trace_event){.kind = AG_TRACE_FLUSH, .code = (uint16_t)counter},
              stream->segment.n_ops, 0);
}

void ag_segment_end(struct ag_stream *stream, bool flushed, enum ag_flush why)
{
    struct ag_running_iteration *iteration = &stream->iteration;
    struct ag_segment *segment = &stream->segment;

    if (!stream->learned.matcher)
        return;
    if (segment->mode == AG_SEGMENT_HOLDING && flushed)
        ag_segment_note_flush(stream, why);
    ag_segment_submit(stream);
    note_eager(stream);
    if (segment->n_ops && segment->node && !segment->spoiled)
        learn_segment(stream);
    if (ag_history_length(stream->learned.history))
        ag_history_ended(stream->learned.history, flushed);
    iteration->n_ops += segment->n_ops;
    if (iteration->since_wait <= AG_WAITED_MOST)
        iteration->since_wait += segment->n_ops;
    segment->n_ops = segment->n_uploads = 0;
    segment->node = ag_matcher_root(stream->learned.matcher);
    segment->spoiled = false;
    stream->learned.passing_since = 0;
    stream->next.prepared = false;
    ag_store_reset(&segment->store);
    if (!stream->proxy.pending)
        ag_stream_set_open(stream, false);
}

/* --- iterations --- */

/* Has the device done what the calling thread may ask about? */
static bool is_stream_idle(const struct ag_stream *stream)
{
    return (!stream->id.thread || stream->id.thread == ag_stream_thread()) &&
           ag_cu.cuStreamQuery(stream->id.handle) == CUDA_SUCCESS;
}

/* The query of a blocking stream does not tell of the legacy one's work, which comes before. */
bool ag_segment_is_idle(const struct ag_stream *stream)
{
    bool is_idle;

    if (!ag_capture_guard_enter())
        return false;
    is_idle = is_stream_idle(stream) &&
              (!stream->id.is_blocking || ag_cu.cuStreamQuery(CU_STREAM_LEGACY) == CUDA_SUCCESS);
    ag_capture_guard_leave();
    return is_idle;
}

/* What comes after the wait is done while the device is busy. Where it is not busy for so long,
 * another graph may be worth more. */
static void foresee(struct ag_stream *stream, struct ag_variants *graphs, bool *was_idle)
{
    const unsigned char *payloads;
    struct ag_graph *graph = ag_variants_foresee(graphs, &payloads);
    uint32_t at = 0, updated;
    bool goes_on = graph;

    while (goes_on) {
        goes_on = ag_graph_prepare(graph, payloads, &at, AG_FORESEEN_PIECE, &updated);
        if (*was_idle)
            ag_variants_waited(graphs, updated);
        *was_idle = *was_idle || is_stream_idle(stream);
        ag_stats_add(AG_STAT_REPLAY_FORESEEN, updated);
    }
}

void ag_segment_foresee(struct ag_stream *stream)
{
    struct ag_running_iteration *iteration = &stream->iteration;
    uint32_t n = iteration->n_launched;
    bool was_idle = false;

    iteration->n_launched = 0;
    if (!n || !ag_capture_guard_enter())
        return;
    for (uint32_t i = 0; i < n; i++) {
        if (iteration->launched[i]->graphs)
            foresee(stream, iteration->launched[i]->graphs, &was_idle);
    }
    ag_capture_guard_leave();
}

/* Tells the comparison (profit.c) how long an iteration took, as if each had the same number of
 * operations, so that iterations of several lengths can be compared. Those in which graphs are
 * built say nothing of later ones, unless building does not end. */
static void compare_ways(struct ag_stream *stream, uint64_t ns, bool free_running)
{
    const struct ag_running_iteration *iteration = &stream->iteration;
    struct ag_learned *learned = &stream->learned;
    struct ag_profit *profit = &learned->profit[free_running];
    uint32_t told = free_running ? AG_UNWAITED_ITERATION : iteration->n_ops;
    bool replayed = iteration->n_graph_ops > 0;

    if (!replayed && iteration->may_replay)
        return;
    ns = ns * AG_UNWAITED_ITERATION / iteration->n_ops;
    if (iteration->built && learned->building++ < AG_PROFIT_BUILDING)
        ns = 0;
    if (ag_profit_note(profit, replayed, ns, learned->eager_op_ps * AG_UNWAITED_ITERATION / 1000) &&
        profit->iterations >= learned->profit[!free_running].iterations)
        ag_stats_compared(profit->median_eager * told / AG_UNWAITED_ITERATION,
                          profit->median_replayed * told / AG_UNWAITED_ITERATION, free_running);
}

/* Does the host wait soon, as it did before? Then the iteration ends at that wait. Without one the
 * host may run ahead of the device, and less time of the host need not be less of the program. */
static bool is_waited_for(const struct ag_stream *stream)
{
    return !state.limits.marked && stream->iteration.since_wait <= AG_WAITED_MOST &&
           stream->iteration.since_wait <=
               2 * stream->iteration.between_waits + AG_UNWAITED_ITERATION;
}

void ag_segment_end_iteration(struct ag_stream *stream, bool free_running)
{
    struct ag_running_iteration *iteration = &stream->iteration;
    uint64_t now;

    if (free_running && (iteration->n_ops < AG_UNWAITED_ITERATION || is_waited_for(stream)))
        return;
    if (!free_running && iteration->since_wait) {
        iteration->between_waits = iteration->since_wait;
        iteration->since_wait = 0;
    }
    if (!iteration->n_ops)
        return;
    ag_stats_add(AG_STAT_REPLAY_ITERATIONS, 1);
    if (state.profit) {
        now = ag_clock_ns();
        if (iteration->began_ns)
            compare_ways(stream, now - iteration->began_ns, free_running);
        if (!iteration->may_replay)
            ag_stats_add(AG_STAT_REPLAY_EAGER_ITERATIONS, 1);
        iteration->may_replay = ag_profit_replays(&stream->learned.profit[free_running]);
        iteration->began_ns = now;
    }
    iteration->n_ops = iteration->n_graph_ops = 0;
    iteration->built = false;
}

/* --- ends --- */

static void forget_one(struct ag_variants *graphs, void *data)
{
    drop_graphs_of(graphs, *(const bool *)data);
}

void ag_segment_release(struct ag_stream *stream, bool context_gone)
{
    ag_segment_forget(stream, context_gone);
    if (!context_gone) {
        if (stream->proxy.stream)
            (void)ag_cu.cuStreamDestroy_v2(stream->proxy.stream);
        if (stream->proxy.before)
            (void)ag_cu.cuEventDestroy_v2(stream->proxy.before);
        if (stream->proxy.after)
            (void)ag_cu.cuEventDestroy_v2(stream->proxy.after);
    }
    stream->proxy = (struct ag_proxy){0};
}

void ag_segment_forget(struct ag_stream *stream, bool context_gone)
{
    if (stream->learned.matcher)
        ag_matcher_free(stream->learned.matcher, forget_one, &context_gone);
    stream->learned.matcher = NULL;
    stream->segment.node = NULL;
    stream->next.node = NULL;
    stream->iteration.n_launched = 0;
    stream->next.prepared = false;
    stream->learned.n_graphs = 0;
    memset(stream->learned.profit, 0, sizeof(stream->learned.profit));
    stream->iteration.may_replay = true;
}

struct ag_ring *ag_segment_ring(struct ag_stream *stream)
{
    struct ag_context_state *shared = stream->id.shared;
    struct ag_ring *ring = atomic_load_explicit(&shared->ring, memory_order_acquire);

    if (ring || atomic_load_explicit(&shared->ring_tried, memory_order_acquire))
        return ring;
    if (ag_capture_is_open())
        return NULL;
    if (!atomic_exchange(&shared->ring_tried, true)) {
        ring = ag_ring_new(&state.ring);
        atomic_store_explicit(&shared->ring, ring, memory_order_release);
    }
    return atomic_load_explicit(&shared->ring, memory_order_acquire);
}
