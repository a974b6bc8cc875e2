/* What becomes of a segment: withheld, submitted as a graph or one by one, learnt, built. See
 * lane.h.
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

#include "graph/lane.h"
#include "graph/learn/variants.h"
#include "graph/replay/builder.h"
#include "graph/replay/verify.h"
#include "interpose/base/clock.h"
#include "interpose/base/log.h"
#include "interpose/driver/driver.h"
#include "interpose/report/trace.h"
#include "policy/contexts/context.h"
#include "policy/order.h"

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

bool ag_segment_equip(struct ag_lane *lane)
{
    if (lane->matcher)
        return true;
    if (!lane->history)
        lane->history = ag_history_new(&state.limits);
    if (lane->history)
        lane->matcher = ag_matcher_new(AG_MATCHER_NODES);
    if (!lane->matcher)
        return false;
    lane->node = ag_matcher_root(lane->matcher);
    return true;
}

/* --- submitting --- */

/* An error of work that the program was told had succeeded. Errors that stay are the driver's to
 * tell; others wait for the next call that may tell of earlier ones. */
static void note_error(struct ag_lane *lane, CUresult error)
{
    int none = CUDA_SUCCESS;

    ag_stats_add(AG_STAT_REPLAY_LATE_ERRORS, 1);
    ag_log_debug("withheld work failed as it was submitted: %s", ag_driver_error_name(error));
    if (ag_order_is_lasting(error))
        atomic_store_explicit(&lane->home->failed, true, memory_order_relaxed);
    else
        (void)atomic_compare_exchange_strong(&lane->home->late, &none, (int)error);
    atomic_store_explicit(&ag_lane_any_late, true, memory_order_release);
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

static void drop_graphs(struct ag_lane *lane, struct ag_node *node)
{
    struct ag_variants *graphs = ag_matcher_set_graphs(lane->matcher, node, NULL);

    if (!graphs)
        return;
    lane->n_graphs -= ag_variants_count(graphs);
    give_up_all(graphs, false);
}

/* What became of `n` operations of the lane, since `began`; 0: now. */
static void tell(struct ag_lane *lane, enum ag_trace_kind kind, uint32_t n, uint64_t began,
                 uint64_t more)
{
    uint64_t now = ag_clock_ticks();

    ag_trace_add(&(struct ag_trace_event){
        .kind = (uint8_t)kind,
        .ticks = began ? began : now,
        .duration = began ? now - began : 0,
        .device = (int16_t)lane->context->device->ordinal,
        .stream = (uintptr_t)lane->stream,
        .size = n,
        .address = more,
    });
}

/* Every n-th launch is run both ways, where that was asked for and is possible. */
static CUresult launch_graph(struct ag_lane *lane, struct ag_graph *graph, uint32_t n,
                             CUstream stream, uint32_t *ret_updated)
{
    enum ag_verify answer = AG_VERIFY_SKIPPED;

    if (!state.verify ||
        (atomic_fetch_add_explicit(&state.n_launched, 1, memory_order_relaxed) + 1) % state.verify)
        return ag_graph_launch(graph, lane->ops, stream, ret_updated);
    answer = ag_verify_segment(lane->context, graph, lane->ops, n, stream, ret_updated);
    ag_stats_add(answer == AG_VERIFY_SAME        ? AG_STAT_REPLAY_VERIFY_SAME
                 : answer == AG_VERIFY_DIFFERENT ? AG_STAT_REPLAY_VERIFY_DIFFERENT
                                                 : AG_STAT_REPLAY_VERIFY_SKIPPED,
                 1);
    return answer == AG_VERIFY_SKIPPED ? ag_graph_launch(graph, lane->ops, stream, ret_updated)
                                       : CUDA_SUCCESS;
}

/* Launches a graph at `node`, which stands for the first operations withheld. False: nothing of
 * it was submitted. */
static bool launch(struct ag_lane *lane, struct ag_node *node, CUstream stream)
{
    uint64_t began = ag_trace_on() ? ag_clock_ticks() : 0;
    uint32_t updated = 0;
    CUresult result;

    result = launch_graph(lane, ag_variants_pick(node->graphs, lane->ops), node->depth, stream,
                          &updated);
    if (result == CUDA_SUCCESS) {
        ag_variants_launched(node->graphs, lane->ops, updated);
        ag_stats_add(AG_STAT_REPLAY_LAUNCHES, 1);
        ag_stats_add(AG_STAT_REPLAY_REPLAYED, node->depth);
        ag_stats_add(AG_STAT_REPLAY_UPDATED, updated);
        lane->round_graph_ops += node->depth;
        ag_history_updating(lane->history, updated > node->depth / 2);
        ag_nap_gained(lane->nap, node->depth);
        if (ag_trace_on())
            tell(lane, AG_TRACE_REPLAY, node->depth, began, updated);
        return true;
    }
    ag_log_debug("a graph of %u operations was refused: %s", node->depth,
                 ag_driver_error_name(result));
    ag_stats_add(AG_STAT_REPLAY_LAUNCH_FAILED, 1);
    node->refused++;
    drop_graphs(lane, node);
    return false;
}

static void release(struct ag_lane *lane, uint32_t from, CUstream stream)
{
    uint64_t began = ag_trace_on() ? ag_clock_ticks() : 0;

    for (uint32_t i = from; i < lane->n_ops; i++) {
        CUresult result = ag_op_submit(&lane->ops[i], stream);

        if (result != CUDA_SUCCESS)
            note_error(lane, result);
    }
    ag_stats_add(AG_STAT_REPLAY_RELEASED, lane->n_ops - from);
    if (ag_trace_on())
        tell(lane, AG_TRACE_RELEASE, lane->n_ops - from, began, 0);
}

/* The stream to which the calling thread can submit for the lane; NULL: there is none. */
static CUstream target(struct ag_lane *lane)
{
    if (!lane->thread || lane->thread == ag_lane_thread())
        return lane->stream;
    if (!lane->proxy && ag_cu.cuStreamCreate(&lane->proxy, CU_STREAM_DEFAULT) != CUDA_SUCCESS)
        return NULL;
    if (!lane->behind &&
        ag_cu.cuEventCreate(&lane->behind, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
        return NULL;
    if (!lane->proxied && ag_cu.cuStreamWaitEvent(lane->proxy, lane->before, 0) != CUDA_SUCCESS)
        return NULL;
    return lane->proxy;
}

static void sent_to_proxy(struct ag_lane *lane)
{
    CUresult result = ag_cu.cuEventRecord(lane->behind, lane->proxy);

    if (result != CUDA_SUCCESS)
        note_error(lane, result);
    lane->proxied = true;
}

/* Has what was sent to the proxy been done? */
static bool is_behind(struct ag_lane *lane)
{
    CUstreamCaptureMode mode = ag_order_relax_captures();
    CUresult result = ag_cu.cuEventQuery(lane->behind);

    ag_order_restore_captures(mode);
    return result == CUDA_SUCCESS;
}

/* A wait is work on the stream: a program that knows its stream to be done would find it busy. */
void ag_segment_settle(struct ag_lane *lane)
{
    CUresult result = CUDA_SUCCESS;

    if (!lane->proxied || lane->thread != ag_lane_thread())
        return;
    if (!is_behind(lane))
        result = ag_cu.cuStreamWaitEvent(lane->stream, lane->behind, 0);
    if (result != CUDA_SUCCESS)
        note_error(lane, result);
    lane->proxied = false;
    if (!lane->n_ops)
        ag_lane_set_open(lane, false);
}

void ag_segment_submit(struct ag_lane *lane)
{
    struct ag_node *node = lane->node;
    CUstream stream;
    uint32_t n = 0;

    if (lane->mode != AG_LANE_HOLDING)
        return;
    stream = target(lane);
    if (!stream) {
        ag_log_warn("withheld work of another thread's stream could not be submitted yet");
        return;
    }
    while (node->depth && !node->graphs)
        node = node->parent;
    if (node->depth && launch(lane, node, stream))
        n = node->depth;
    if (n < lane->n_ops)
        release(lane, n, stream);
    if (lane->staged.first)
        (void)ag_ring_sent(atomic_load(&lane->home->ring), &lane->staged, stream);
    if (stream == lane->proxy)
        sent_to_proxy(lane);
    lane->mode = AG_LANE_PASSING;
    ag_lane_set_holding(lane, false);
}

/* May withholding begin: does the driver still take work for the stream? A context that the device
 * failed may have said so to a call that we do not look at, and each launch in it is to say so,
 * too. A later driver may begin captures by functions that we do not know. */
static bool is_sound(struct ag_lane *lane)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = ag_cu.cuStreamIsCapturing(lane->stream, &status);

    if (ag_order_is_lasting(result))
        atomic_store_explicit(&lane->home->failed, true, memory_order_relaxed);
    return result == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_NONE;
}

bool ag_segment_hold(struct ag_lane *lane)
{
    if (!ag_watchdog_wake() || !is_sound(lane))
        return false;
    if (lane->thread) {
        if (!lane->before &&
            ag_cu.cuEventCreate(&lane->before, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
            return false;
        if (ag_cu.cuEventRecord(lane->before, lane->stream) != CUDA_SUCCESS)
            return false;
    }
    lane->mode = AG_LANE_HOLDING;
    atomic_fetch_add_explicit(&lane->stretch, 1, memory_order_relaxed);
    ag_lane_set_open(lane, true);
    ag_lane_set_holding(lane, true);
    if (ag_watchdog_wake()) /* once more: it may have gone to sleep before it could see this */
        return true;
    lane->mode = AG_LANE_PASSING;
    ag_lane_set_holding(lane, false);
    return false;
}

/* --- learning --- */

/* Room for one more graph, within the bounds. */
static bool has_room(const struct ag_lane *lane)
{
    uint64_t most = ag_size_bytes(state.max_bytes, lane->context->device->total_bytes);

    return lane->n_graphs < state.max_graphs &&
           atomic_load_explicit(&state.bytes, memory_order_relaxed) <= most;
}

/* One at a time: to destroy one takes the driver as long as a few launches. */
static void evict_one(struct ag_lane *lane, struct ag_node *node)
{
    if (ag_variants_count(node->graphs) > 1) {
        give_up(ag_variants_take(node->graphs), false);
        lane->n_graphs--;
    } else {
        drop_graphs(lane, node);
    }
    ag_stats_add(AG_STAT_REPLAY_EVICTED, 1);
}

/* Other segments' graphs go for it, but not for a second one of the same segment. */
static bool make_room(struct ag_lane *lane)
{
    while (!has_room(lane)) {
        struct ag_node *node = ag_matcher_oldest_graph(lane->matcher);

        if (!node || lane->node->graphs)
            return false;
        evict_one(lane, node);
    }
    return true;
}

static bool is_staged(const struct ag_op *op)
{
    return ag_op_kind(op) == AG_OP_COPY && op->signature.word[0] & AG_OP_IS_STAGED;
}

/* What was recorded as it passed read the program's own pageable memory; as a node it will read
 * slots of the ring. */
static CUresult add_staged(struct ag_lane *lane, struct ag_graph *graph, const struct ag_op *op)
{
    struct ag_ring *ring = atomic_load_explicit(&lane->home->ring, memory_order_acquire);
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

static CUresult build_from(struct ag_lane *lane, struct ag_graph **ret)
{
    struct ag_graph_wish wish = {
        .context = lane->context->handle,
        .priority = lane->priority,
        .n_ops = lane->n_ops,
    };
    CUresult result = CUDA_SUCCESS;
    struct ag_graph *graph;

    for (uint32_t i = 0; i < lane->n_ops; i++)
        wish.n_bytes += (lane->ops[i].payload_bytes + 7) & ~7u;
    graph = ag_graph_begin(&wish, &result);
    for (uint32_t i = 0; graph && i < lane->n_ops; i++) {
        const struct ag_op *op = &lane->ops[i];

        result = is_staged(op) ? add_staged(lane, graph, op) : ag_graph_add(graph, op);
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
static bool carry(struct ag_lane *lane, struct ag_graph *graph)
{
    struct ag_variants *graphs = lane->node->graphs;

    if (!graphs) {
        graphs = ag_variants_new(lane->n_ops);
        if (!graphs)
            return false;
        (void)ag_matcher_set_graphs(lane->matcher, lane->node, graphs);
    }
    ag_variants_add(graphs, graph);
    lane->n_graphs++;
    lane->round_built = true;
    atomic_fetch_add_explicit(&state.bytes, ag_graph_bytes(graph), memory_order_relaxed);
    return true;
}

static void build(struct ag_lane *lane)
{
    uint64_t began = ag_clock_ns(), began_ticks = ag_clock_ticks();
    struct ag_graph *graph = NULL;
    CUresult result;

    for (uint32_t i = 0; i < lane->n_ops; i++) {
        if (is_staged(&lane->ops[i]) && !ag_segment_ring(lane))
            return;
    }
    if ((lane->thread && lane->thread != ag_lane_thread()) || !make_room(lane) ||
        !ag_order_enter_gate())
        return;
    result = build_from(lane, &graph);
    ag_order_leave_gate();
    if (graph && !carry(lane, graph)) {
        ag_graph_destroy(graph);
        graph = NULL;
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!graph) {
        lane->node->refused++;
        ag_stats_add(AG_STAT_REPLAY_BUILD_FAILED, 1);
        ag_log_debug("no graph of %u operations: %s", lane->n_ops, ag_driver_error_name(result));
        return;
    }
    ag_stats_add(AG_STAT_REPLAY_BUILT, 1);
    ag_stats_add(AG_STAT_REPLAY_BUILD_NS, ag_clock_ns() - began);
    if (ag_trace_on())
        tell(lane, AG_TRACE_BUILD, lane->n_ops, began_ticks, 0);
    if (state.dump)
        dump(graph);
}

/* Beside a first graph, while there is plenty of room. */
static bool wants_another(const struct ag_lane *lane)
{
    return lane->n_graphs < state.max_graphs / 2 && ag_variants_wants(lane->node->graphs);
}

static void learn(struct ag_lane *lane)
{
    struct ag_node *node = lane->node;

    ag_matcher_ended(lane->matcher, node);
    ag_stats_add(AG_STAT_REPLAY_SEGMENTS, 1);
    if (lane->n_ops >= AG_NAP_LEAST && node->ends >= state.warmup && node->refused < MAX_REFUSALS &&
        lane->may_replay && (!node->graphs || wants_another(lane)))
        build(lane);
}

void ag_segment_flushed(struct ag_lane *lane, enum ag_flush why)
{
    enum ag_stat reason = (enum ag_stat)(AG_STAT_FLUSH_STREAM + (int)why);

    ag_stats_add(reason, 1);
    if (ag_trace_on())
        ag_trace_add(&(struct ag_trace_event){
            .kind = AG_TRACE_FLUSH,
            .ticks = ag_clock_ticks(),
            .device = (int16_t)lane->context->device->ordinal,
            .stream = (uintptr_t)lane->stream,
            .size = lane->n_ops,
            .code = (uint16_t)reason,
        });
}

void ag_segment_end(struct ag_lane *lane, bool flushed, enum ag_flush why)
{
    if (!lane->matcher)
        return;
    if (lane->mode == AG_LANE_HOLDING && flushed)
        ag_segment_flushed(lane, why);
    ag_segment_submit(lane);
    if (lane->mode == AG_LANE_HOLDING)
        return; /* it could not be submitted: stays */
    if (lane->n_ops && lane->node && !lane->spoiled)
        learn(lane);
    if (ag_history_length(lane->history))
        ag_history_ended(lane->history, flushed);
    lane->round_ops += lane->n_ops;
    if (lane->since_wait <= MOST_WAITED)
        lane->since_wait += lane->n_ops;
    lane->n_ops = 0;
    lane->node = ag_matcher_root(lane->matcher);
    lane->spoiled = false;
    lane->prepared = false;
    ag_store_reset(&lane->store);
    if (!lane->proxied)
        ag_lane_set_open(lane, false);
}

/* --- profit --- */

static void compare(struct ag_lane *lane, uint64_t ns)
{
    const struct ag_profit *compared =
        ag_kinds_note(&lane->kinds, &(struct ag_round){
                                        .path = lane->round_path,
                                        .ns = ns,
                                        .replayed = lane->round_graph_ops > 0,
                                        .was_to_replay = lane->may_replay,
                                        .built = lane->round_built,
                                    });

    if (compared)
        ag_stats_compared(compared->median_eager, compared->median_replayed,
                          lane->round_path == AG_UNWAITED_ROUND);
}

static void waited(struct ag_lane *lane)
{
    if (!lane->since_wait)
        return;
    lane->between_waits = lane->since_wait;
    lane->since_wait = 0;
}

/* Is a wait to come? Then the round ends there. In a part of it the host may run ahead of the
 * device, and what takes the host less need not take the program less. */
static bool is_waited_for(const struct ag_lane *lane)
{
    return !state.limits.marked && lane->since_wait <= MOST_WAITED &&
           lane->since_wait <= 2 * lane->between_waits + AG_UNWAITED_ROUND;
}

void ag_segment_round(struct ag_lane *lane, bool free_running)
{
    uint32_t least =
        ag_kinds_compared(&lane->kinds, AG_UNWAITED_ROUND) ? AG_UNWAITED_ROUND : EARLY_ROUND;
    uint64_t now;

    if (free_running && (lane->round_ops < least || is_waited_for(lane)))
        return;
    if (!free_running)
        waited(lane);
    if (!lane->round_ops)
        return;
    ag_stats_add(AG_STAT_REPLAY_ITERATIONS, 1);
    if (state.profit) {
        now = ag_clock_ns();
        if (free_running)
            lane->round_path = AG_UNWAITED_ROUND;
        if (lane->round_began)
            compare(lane, free_running
                              ? (now - lane->round_began) * AG_UNWAITED_ROUND / lane->round_ops
                              : now - lane->round_began);
        if (!lane->may_replay)
            ag_stats_add(AG_STAT_REPLAY_EAGER_ROUNDS, 1);
        lane->may_replay = ag_kinds_replay(&lane->kinds);
        lane->round_began = now;
    }
    lane->round_ops = lane->round_graph_ops = 0;
    lane->round_path = 0;
    lane->round_built = false;
}

/* --- ends --- */

static void forget_one(struct ag_variants *graphs, void *data)
{
    give_up_all(graphs, *(const bool *)data);
}

/* What per-thread streams need. */
static void drop_proxy(struct ag_lane *lane, bool context_gone)
{
    if (!context_gone) {
        if (lane->proxy)
            (void)ag_cu.cuStreamDestroy_v2(lane->proxy);
        if (lane->before)
            (void)ag_cu.cuEventDestroy_v2(lane->before);
        if (lane->behind)
            (void)ag_cu.cuEventDestroy_v2(lane->behind);
    }
    lane->proxy = NULL;
    lane->before = lane->behind = NULL;
    lane->proxied = false;
}

void ag_segment_leave(struct ag_lane *lane, bool context_gone)
{
    ag_segment_forget(lane, context_gone);
    drop_proxy(lane, context_gone);
}

void ag_segment_forget(struct ag_lane *lane, bool context_gone)
{
    if (lane->matcher)
        ag_matcher_free(lane->matcher, forget_one, &context_gone);
    lane->matcher = NULL;
    lane->node = NULL;
    lane->next = NULL;
    lane->prepared = false;
    lane->n_graphs = 0;
    memset(&lane->kinds, 0, sizeof(lane->kinds));
    lane->may_replay = true;
}

struct ag_ring *ag_segment_ring(struct ag_lane *lane)
{
    struct ag_home *home = lane->home;
    struct ag_ring *ring = atomic_load_explicit(&home->ring, memory_order_acquire);

    if (ring || atomic_load_explicit(&home->ring_tried, memory_order_acquire))
        return ring;
    if (!ag_order_enter_gate())
        return NULL;
    if (!atomic_exchange(&home->ring_tried, true)) {
        ring = ag_ring_new(&state.ring);
        atomic_store_explicit(&home->ring, ring, memory_order_release);
    }
    ag_order_leave_gate();
    return atomic_load_explicit(&home->ring, memory_order_acquire);
}
