/* Replay, one operation at a time: which stream it is on, what must be flushed before it, whether
 * it is withheld. See replayer.h for terms and heuristics; replay/segment.c submits and learns.
 *
 * Delicate: all of this is about the order in which the driver sees what the program submits.
 * - One stream: it is owned from the moment an operation is inspected until that is withheld or
 *   was let pass. What was withheld before it goes out first.
 * - The legacy stream and blocking streams: an operation on one side first flushes the other. So
 *   at no time do both withhold operations that CUDA orders against each other.
 * - Events: recording one, and waiting for one, flushes the stream. What an event covers is
 *   therefore submitted, and other streams need not know what was withheld.
 * - Captures: nothing is withheld from the moment one is announced; all streams are flushed before
 *   it opens.
 * - Every other call of the driver flushes everything first. */
#include "graph/replayer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/record/intern.h"
#include "graph/replay/builder.h"
#include "graph/replay/segment.h"
#include "graph/replay/stalled.h"
#include "graph/replay/watchdog.h"
#include "graph/stream.h"
#include "graph/tuning.h"
#include "interpose/core/base/clock.h"
#include "interpose/core/base/log.h"
#include "interpose/core/base/pages.h"
#include "interpose/core/driver/driver.h"
#include "policy/contexts/context.h"
#include "policy/contexts/enter.h"
#include "policy/managed/kernel_params.h"
#include "policy/order/capture.h"
#include "policy/pressure.h"

#define MAX_SEGMENT (1u << 15) /* operations; bounds memory, whatever the settings say */

static _Atomic bool on;   /* relaxed: what began to be withheld as it ends, the watchdog submits */
static _Atomic bool over; /* stopped for good, perhaps before it was configured */
static _Atomic bool is_last;          /* the process is ending */
static _Atomic uint32_t code_version; /* grows with what makes graphs stale */

/* Memory that graphs have is the program's, which may have no other. */
static void drop_all_graphs(void)
{
    if (ag_segment_bytes())
        ag_replay_forget_code(AG_FLUSH_CALL, false);
}

void ag_replay_configure(const struct ag_options *options)
{
    const char *missing = ag_graph_missing(), *blocking = getenv("CUDA_LAUNCH_BLOCKING");
    char why[96] = "";

    ag_marks_configure(options);
    if (!ag_marks_any())
        return;
    if (missing)
        snprintf(why, sizeof(why), "the driver has no %s", missing);
    else if (blocking && strtol(blocking, NULL, 10)) /* a launch ends with its kernel */
        snprintf(why, sizeof(why), "CUDA_LAUNCH_BLOCKING is set");
    if (*why) {
        ag_log_warn("ALLOGRAFT_GRAPH: %s: nothing is replayed", why);
        ag_stats_replay(why);
        return;
    }
    ag_stats_replay(NULL);
    ag_stream_configure(options->graph_profit);
    ag_segment_configure(options);
    ag_pressure_ask(drop_all_graphs);
    ag_watchdog_configure((uint64_t)options->graph_hold_us * 1000, ag_stalled_submit);
    atomic_store(&on, !atomic_load(&over));
}

/* Memory of the first streams, the tables of kernel parameters, the watchdog's thread: creating a
 * context takes some hundred times as long. */
void ag_replay_prepare(void)
{
    if (!ag_replay_on())
        return;
    ag_params_prepare();
    for (unsigned i = 0; i < AG_FREELIST_BLOCKS; i++)
        ag_stream_prepare();
    ag_watchdog_start();
}

bool ag_replay_on(void)
{
    return atomic_load_explicit(&on, memory_order_relaxed);
}

/* --- flushing --- */

struct flush {
    enum ag_flush why;
    struct ag_context *context; /* only streams of this one; NULL: of all */
    uint32_t thread;            /* only those that this thread used last; 0: all */
    bool legacy, blocking;      /* only streams of that kind; both false: of any */
    bool is_work;               /* what comes is work, on a stream that is not known */
};

static bool is_wait(enum ag_flush why)
{
    return why == AG_FLUSH_STREAM || why == AG_FLUSH_DEVICE || why == AG_FLUSH_COPY;
}

/* Withheld work that cannot go out now would come too late, so this is tried twice. */
static bool enter_context(const struct ag_stream *stream, bool *ret_pushed)
{
    for (unsigned i = 0; i < 2; i++) {
        if (ag_context_make_current(stream->id.context, ret_pushed) == CUDA_SUCCESS)
            return true;
    }
    return false;
}

/* May work on other streams come after that of this one? */
static bool is_ordered(const struct ag_stream *stream)
{
    return stream->id.is_legacy || stream->id.is_blocking;
}

/* The owner may be blocked inside the driver by a full queue, until this thread's call lets the
 * device go on (by a value that a kernel polls, or the other half of a collective). So a call waits
 * without bound only if it would anyhow, must come after that work, or this thread submits to that
 * stream, too. A capture, a graph and work that is not recorded come after that of their own
 * streams, and after what those come after, which is flushed by itself; other calls after none. */
static bool waits_for_owner(const struct ag_stream *stream, enum ag_flush why)
{
    if (stream->threads >> ag_stream_thread() % 64 & 1)
        return true;
    if (why == AG_FLUSH_FREE)
        return stream->id.context == ag_context_current();
    if (why == AG_FLUSH_COPY)
        return is_ordered(stream);
    return why != AG_FLUSH_CALL && why != AG_FLUSH_CAPTURE && why != AG_FLUSH_UNRECORDED;
}

/* comes_after: what is to be done is work of the stream. */
static void flush(struct ag_stream *stream, enum ag_flush why, bool comes_after)
{
    /* The owner ends with the process. */
    bool ends = why == AG_FLUSH_END && atomic_load_explicit(&is_last, memory_order_relaxed);
    bool waits = !ends && (comes_after || waits_for_owner(stream, why));
    bool pushed = false;

    if (!ag_stream_own_within(stream, waits ? UINT64_MAX : AG_OWNER_TIMEOUT_NS))
        return;
    ag_segment_join_proxy(stream);
    if (enter_context(stream, &pushed)) {
        ag_segment_end(stream, true, why);
        if (is_wait(why))
            ag_segment_foresee(stream);
        ag_context_restore(pushed);
    }
    if (is_wait(why))
        ag_segment_end_iteration(stream, false);
    ag_stream_disown(stream);
}

static void flush_visited(struct ag_stream *stream, void *data)
{
    const memory_order relaxed = memory_order_relaxed;
    const struct flush *which = data;

    if (which->context && atomic_load_explicit(&stream->id.context, relaxed) != which->context)
        return;
    if (which->thread && atomic_load_explicit(&stream->last_thread, relaxed) != which->thread)
        return;
    if ((which->legacy && !atomic_load_explicit(&stream->id.is_legacy, relaxed)) ||
        (which->blocking && !atomic_load_explicit(&stream->id.is_blocking, relaxed)))
        return;
    flush(stream, which->why,
          which->is_work && is_ordered(stream) && stream->id.context == ag_context_current());
}

/* Flushes the legacy stream of the context, or the blocking ones. */
__attribute__((noinline)) static void flush_others(struct ag_context *context, bool legacy)
{
    struct flush which = {AG_FLUSH_OTHER_STREAM, context, .legacy = legacy, .blocking = !legacy};

    ag_stream_each_open(flush_visited, &which);
}

/* Flushes the other streams of its context that CUDA orders before an operation on the handle.
 * stream: its state; NULL if it never got one (no room): it counts as blocking, of `context`. */
static inline void flush_before(struct ag_context *context, CUstream handle,
                                const struct ag_stream *stream)
{
    bool is_legacy = handle == CU_STREAM_LEGACY;
    bool is_blocking = !is_legacy && (!stream || stream->id.is_blocking);

    if (ag_stream_conflicts(is_legacy, is_blocking))
        flush_others(stream ? stream->id.context : context, !is_legacy);
}

/* Drops what may be stale: see ag_replay_forget_code(). */
static void forget_owned(struct ag_stream *stream, enum ag_flush why)
{
    uint32_t version = atomic_load_explicit(&code_version, memory_order_acquire);
    bool pushed;

    ag_segment_join_proxy(stream);
    if (!enter_context(stream, &pushed))
        return;
    ag_segment_end(stream, true, why);
    ag_segment_forget(stream, false);
    ag_context_restore(pushed);
    stream->code_version = version;
}

static void retire_owned(struct ag_stream *stream, bool context_gone)
{
    ag_segment_release(stream, context_gone);
    ag_stream_retire(stream);
}

static void retire_if_ended(struct ag_stream *stream, void *context)
{
    if (!ag_stream_has_ended(stream, context))
        return;
    ag_segment_submit(stream);
    retire_owned(stream, false);
}

/* A thread that has no state yet for its own stream makes room for it by the states of those that
 * have ended. */
static struct ag_stream *find_stream(struct ag_context *context, CUstream handle)
{
    if (ag_stream_was_last(context, handle))
        return ag_stream_last.stream;
    if (handle == CU_STREAM_PER_THREAD && !ag_stream_is_known(context, handle) &&
        !ag_capture_is_open())
        ag_stream_each(retire_if_ended, context);
    return ag_stream_look_up(context, handle);
}

static struct ag_stream *find_anywhere(struct ag_context *context, CUstream handle)
{
    struct ag_stream *stream = find_stream(context, handle);

    return stream ? stream : ag_stream_find(handle); /* of another context */
}

/* Flushes what others withhold and an operation on the handle must come after. Returns the handle's
 * state, or NULL. */
static struct ag_stream *come_after(CUstream handle, enum ag_flush why)
{
    struct ag_context *context = ag_context_current();
    struct ag_stream *stream;

    if (!context) {
        ag_replay_flush_all(why);
        return NULL;
    }
    stream = find_anywhere(context, handle);
    flush_before(context, handle, stream);
    return stream;
}

void ag_replay_allocates(CUstream handle, bool per_thread)
{
    struct ag_stream *stream;

    if (!ag_replay_on() || !ag_replay_holds())
        return;
    stream = come_after(ag_replay_stream(handle, per_thread), AG_FLUSH_OTHER_STREAM);
    if (stream && atomic_load_explicit(&stream->id.thread, memory_order_relaxed) &&
        atomic_load_explicit(&stream->open, memory_order_acquire))
        flush(stream, AG_FLUSH_UNRECORDED, true);
}

/* Is replay off? Its end may have left work of the thread's own stream on the proxy of that: it
 * comes first. */
static bool is_replay_over(enum ag_flush why)
{
    if (ag_replay_on())
        return false;
    ag_replay_flush_thread(why);
    return true;
}

void ag_replay_flush_stream(CUstream handle, bool per_thread, enum ag_flush why)
{
    struct ag_stream *stream;

    handle = ag_replay_stream(handle, per_thread);
    if (is_replay_over(why) || ag_replay_is_on_fast_path(handle) ||
        ag_stream_update_fast_path(handle))
        return;
    stream = come_after(handle, why);
    if (stream && !atomic_load_explicit(&stream->backed_off, memory_order_acquire) &&
        (is_wait(why) || atomic_load_explicit(&stream->open, memory_order_acquire)))
        flush(stream, why, true);
}

void ag_replay_flush_context(struct ag_context *context, enum ag_flush why)
{
    if (ag_replay_holds())
        ag_stream_each_open(
            flush_visited,
            &(struct flush){why, .context = context ? context : ag_context_current()});
}

void ag_replay_flush_thread(enum ag_flush why)
{
    if (ag_replay_holds())
        ag_stream_each_open(flush_visited, &(struct flush){why, .thread = ag_stream_thread()});
}

void ag_replay_flush_all(enum ag_flush why)
{
    struct flush which = {.why = why};

    /* Before a capture every stream is owned in turn, open or not: a thread that saw no capture
     * may still be about to withhold. */
    if (why == AG_FLUSH_CAPTURE && ag_replay_on())
        ag_stream_each(flush_visited, &which);
    else if (ag_replay_holds())
        ag_stream_each_open(flush_visited, &which);
}

void ag_replay_flush_before_work(void)
{
    if (ag_replay_holds())
        ag_stream_each_open(flush_visited,
                            &(struct flush){.why = AG_FLUSH_UNRECORDED, .is_work = true});
}

CUresult ag_replay_late(CUresult result)
{
    struct ag_context *context;
    struct ag_context_state *shared;

    if (result == CUDA_SUCCESS && !atomic_load_explicit(&ag_stream_any_late, memory_order_acquire))
        return result;
    if ((result != CUDA_SUCCESS && !ag_error_is_sticky(result)) || !ag_replay_on())
        return result;
    context = ag_context_current();
    shared = context ? ag_context_state_of(context) : NULL;
    /* From now on each launch must fail, which withheld ones would not. */
    if (shared && result != CUDA_SUCCESS)
        atomic_store_explicit(&shared->failed, true, memory_order_relaxed);
    if (!shared || result != CUDA_SUCCESS ||
        !atomic_load_explicit(&shared->late, memory_order_relaxed))
        return result;
    return (CUresult)atomic_exchange(&shared->late, CUDA_SUCCESS);
}

/* --- back-off --- */

/* The segment ends here by chance, so it is not learnt. */
static void back_off(struct ag_stream *stream)
{
    stream->segment.spoiled = true;
    ag_segment_end(stream, true, AG_FLUSH_CALL);
    if (atomic_load_explicit(&stream->open, memory_order_relaxed))
        return;
    stream->learned.backoff_length = ag_backoff_begin(stream->learned.backoff);
    atomic_store_explicit(&stream->backoff_left, stream->learned.backoff_length,
                          memory_order_relaxed);
    atomic_store_explicit(&stream->backed_off, true, memory_order_release);
    ag_stats_add(AG_STAT_REPLAY_BACKOFFS, 1);
}

/* The iteration that runs was not seen from its beginning, so it is not timed. */
__attribute__((noinline)) static void resume_sampling(struct ag_stream *stream)
{
    uint32_t left = atomic_load_explicit(&stream->backoff_left, memory_order_relaxed);

    if (stream->learned.backoff) { /* else it is a new stream */
        ag_backoff_end(stream->learned.backoff, stream->learned.backoff_length - left);
        ag_history_resumed(stream->learned.history);
    }
    atomic_store_explicit(&stream->backed_off, false, memory_order_relaxed);
    atomic_fetch_add_explicit(&ag_stream_changes, 1, memory_order_release);
    ag_fast_path.stream = NULL; /* other threads see that it is of another version */
    stream->segment.spoiled = false;
    stream->iteration.began_ns = 0;
    stream->iteration.n_ops = stream->iteration.n_graph_ops = 0;
}

/* Charges for an operation that was inspected and passes. In an iteration that profit wants eager
 * nothing can be gained, and profit must see its end: that costs nothing, unless it never ends. */
static void sample(struct ag_stream *stream, uint64_t hash, uint32_t place)
{
    if (!stream->iteration.may_replay && stream->iteration.n_ops < AG_HISTORY_WINDOW)
        ag_backoff_refresh(stream->learned.backoff);
    else if (ag_backoff_sample(stream->learned.backoff, hash, place))
        back_off(stream);
}

/* Puts the stream on the thread's fast path, if it may be there, and passes one operation. In
 * back-off the thread reserves a batch of operations, so that the back-off ends in time. */
static bool try_fast_path(CUstream handle)
{
    struct ag_stream *stream = ag_stream_update_fast_path(handle);
    uint32_t left;

    if (!stream)
        return false;
    if (!ag_fast_path.backed_off) {
        ag_fast_path.left = UINT32_MAX;
        return true;
    }
    if (!ag_stream_try_pass(stream))
        return false;
    left = atomic_load_explicit(&stream->backoff_left, memory_order_relaxed);
    ag_fast_path.left = left < AG_FAST_PATH_BATCH ? left : AG_FAST_PATH_BATCH;
    atomic_store_explicit(&stream->backoff_left, left - ag_fast_path.left, memory_order_relaxed);
    return true;
}

/* Operations on a stream that is marked no longer pass without a look at its state. */
static void update_mark(struct ag_stream *stream)
{
    if (!ag_stream_mark_is_stale(stream) || !ag_stream_own(stream))
        return;
    if (!ag_stream_remark(stream)) {
        ag_segment_join_proxy(stream);
        ag_segment_end(stream, true, AG_FLUSH_CALL);
    }
    ag_stream_disown(stream);
}

/* --- one operation --- */

/* Is it the stream that the thread used last, and sampled? Then there is no fast path. */
static bool is_sampled_again(CUstream handle)
{
    return ag_stream_last.handle == handle && ag_stream_last.stream &&
           ag_stream_is_sampled(ag_stream_last.stream);
}

struct ag_stream *ag_replay_enter(CUstream handle, bool per_thread)
{
    struct ag_context *context;
    struct ag_stream *stream;

    if (is_replay_over(AG_FLUSH_OTHER_STREAM))
        return NULL;
    handle = ag_replay_stream(handle, per_thread);
    if (!is_sampled_again(handle) && (ag_replay_try_pass(handle) || try_fast_path(handle)))
        return NULL;
    context = ag_context_current();
    if (!context) { /* which stream it is on is not known: nothing may stay withheld */
        ag_replay_flush_all(AG_FLUSH_OTHER_STREAM);
        return NULL;
    }
    stream = find_anywhere(context, handle);
    flush_before(context, handle, stream);
    /* A stream of another context may get copies, and kernels of libraries; inside a green context,
     * so may one of the primary context. */
    if (stream && (stream->id.context != context || ag_context_is_inside())) {
        if (atomic_load_explicit(&stream->open, memory_order_acquire))
            flush(stream, AG_FLUSH_UNRECORDED, true);
        return NULL;
    }
    if (stream)
        update_mark(stream);
    if (!stream || !stream->id.marked ||
        atomic_load_explicit(&stream->id.shared->failed, memory_order_relaxed))
        return NULL;
    /* Asked again once it is owned: having backed off meanwhile it must not withhold. */
    if (ag_stream_try_pass(stream) || !ag_stream_own(stream))
        return NULL;
    if (ag_stream_try_pass(stream)) {
        ag_stream_disown(stream);
        return NULL;
    }
    if (atomic_load_explicit(&stream->backed_off, memory_order_relaxed))
        resume_sampling(stream);
    if (stream->proxy.pending)
        ag_segment_join_proxy(stream);
    if (stream->code_version != atomic_load_explicit(&code_version, memory_order_acquire))
        forget_owned(stream, AG_FLUSH_CODE);
    /* Asked once it is owned: who opens a capture announces it, then owns each stream in turn. */
    if (ag_capture_is_open() || stream->altered || !ag_stream_is_of(stream, context, handle) ||
        (!stream->learned.matcher && !ag_segment_init_resources(stream))) {
        ag_segment_end(stream, true, AG_FLUSH_CAPTURE);
        ag_stream_disown(stream);
        return NULL;
    }
    atomic_store_explicit(&stream->last_thread, ag_stream_thread(), memory_order_relaxed);
    if (!(stream->threads >> ag_stream_thread() % 64 & 1))
        stream->threads |= (uint64_t)1 << ag_stream_thread() % 64;
    return stream;
}

struct ag_op *ag_replay_op(struct ag_stream *stream)
{
    struct ag_segment *segment = &stream->segment;
    unsigned char *payload = ag_store_room(&segment->store);

    if (!payload || !ag_stream_reserve(stream))
        return NULL;
    stream->next.op = &segment->ops[segment->n_ops];
    stream->next.op->payload = payload;
    return stream->next.op;
}

static void end_before(struct ag_stream *stream)
{
    uint64_t count;

    ag_segment_end(stream, false, AG_FLUSH_STREAM);
    count = ag_history_anchors(stream->learned.history);
    if (count != stream->learned.n_anchors)
        ag_segment_end_iteration(stream, true);
    stream->learned.n_anchors = count;
}

/* In an eager iteration the pace would be the driver's, so it is not measured. */
static uint64_t time_for_pace(const struct ag_stream *stream)
{
    uint32_t length = stream->segment.n_ops;
    bool is_due = length % AG_PACE_EVERY == AG_PACE_FIRST || !length;

    return stream->iteration.may_replay && is_due ? ag_clock_ns() : 0;
}

/* Decides about the next operation: does a segment end before it, will it be withheld? Submits what
 * was withheld and must come before it. */
static void prepare(struct ag_stream *stream)
{
    const struct ag_segment *segment = &stream->segment;
    struct ag_next_op *next = &stream->next;
    const struct ag_signature *signature = &next->op->signature;

    if (next->prepared)
        return;
    next->node = segment->node ? ag_matcher_expect(segment->node, signature) : NULL;
    next->hash = next->node ? next->node->hash : ag_signature_hash(signature);
    if (ag_history_advance(stream->learned.history, next->hash,
                           ag_marks_met && ag_marks_take_iteration(), time_for_pace(stream)) ||
        segment->n_ops >= MAX_SEGMENT) {
        end_before(stream);
        next->node = NULL;
    }
    if (!next->node && segment->node)
        next->node =
            ag_matcher_follow(stream->learned.matcher, segment->node, signature, next->hash);
    /* Where operations come slowly the first segment and the last may be too short for a graph. */
    next->will_hold = next->node && (next->node->graphs || next->node->below) &&
                      (segment->mode == AG_SEGMENT_HOLDING ||
                       (!segment->n_ops && stream->iteration.may_replay &&
                        ag_history_target(stream->learned.history) >= AG_LENGTH_WORTH_GRAPH));
    if (segment->mode == AG_SEGMENT_HOLDING && !next->will_hold) {
        ag_stats_add(AG_STAT_REPLAY_MISMATCHES, 1);
        ag_segment_submit(stream);
    }
    next->prepared = true;
}

bool ag_replay_would_withhold(struct ag_stream *stream)
{
    prepare(stream);
    return stream->next.will_hold;
}

/* A segment ended just before the operation: it begins the next one, in the place of the first. */
static void move_to_beginning(struct ag_segment *segment, const struct ag_op *op)
{
    unsigned char *place = ag_store_room(&segment->store);

    segment->ops[0] = *op;
    if (place && place != op->payload) {
        memmove(place, op->payload, (op->payload_bytes + 7) & ~7u);
        segment->ops[0].payload = place;
    }
}

static void append_op(struct ag_stream *stream)
{
    struct ag_segment *segment = &stream->segment;
    struct ag_op *op = &segment->ops[segment->n_ops];

    if (op != stream->next.op)
        move_to_beginning(segment, stream->next.op);
    if (!segment->n_ops++)
        ag_stream_set_open(stream, true);
    ag_store_take(&segment->store, op->payload_bytes);
    if (segment->node && !stream->next.node)
        stream->next.node = ag_matcher_grow(stream->learned.matcher, segment->node, &op->signature,
                                            stream->next.hash);
    segment->node = stream->next.node;
}

bool ag_replay_take(struct ag_stream *stream)
{
    bool hold;

    prepare(stream);
    stream->next.prepared = false;
    hold = stream->next.will_hold &&
           (stream->segment.mode == AG_SEGMENT_HOLDING || ag_segment_hold(stream));
    if (!hold && !stream->segment.n_ops)
        stream->learned.passing_since = ag_clock_ns();
    append_op(stream);
    if (hold) {
        /* Only the owner writes it. */
        atomic_store_explicit(&stream->sequence,
                              atomic_load_explicit(&stream->sequence, memory_order_relaxed) + 1,
                              memory_order_relaxed);
        /* No longer segment is known: the device may start. */
        if (stream->segment.node->graphs && !stream->segment.node->below)
            ag_segment_submit(stream);
    } else {
        sample(stream, stream->next.hash, stream->segment.n_ops);
    }
    ag_stats_add(AG_STAT_REPLAY_SEEN, 1);
    ag_stream_disown(stream);
    return hold;
}

bool ag_replay_pass(struct ag_stream *stream, enum ag_flush why)
{
    ag_stats_add(AG_STAT_REPLAY_SEEN, 1);
    ag_segment_end(stream, true, why);
    sample(stream, 0, 0);
    ag_stream_disown(stream);
    return false;
}

void ag_replay_refused(struct ag_stream *stream)
{
    if (!ag_stream_own(stream))
        return;
    stream->segment.spoiled = true;
    ag_stream_disown(stream);
}

/* --- code, streams and contexts that come and go --- */

struct forgetting {
    enum ag_flush why;
    bool unloads;
};

/* Where its owner does not come out of the driver, it forgets before its next operation. */
static void forget_code(struct ag_stream *stream, void *data)
{
    const struct forgetting *which = data;
    bool waits = which->unloads || waits_for_owner(stream, AG_FLUSH_CALL);

    if (!ag_stream_own_within(stream, waits ? UINT64_MAX : AG_OWNER_TIMEOUT_NS))
        return;
    forget_owned(stream, which->why);
    ag_stream_disown(stream);
}

void ag_replay_forget_code(enum ag_flush why, bool unloads)
{
    struct forgetting which = {why, unloads};

    if (!ag_replay_on())
        return;
    atomic_fetch_add_explicit(&code_version, 1, memory_order_release);
    ag_stream_each(forget_code, &which);
    ag_stats_add(AG_STAT_REPLAY_RESETS, 1);
}

void ag_replay_stream_created(CUstream stream, unsigned flags, int priority)
{
    struct ag_context *context = ag_replay_on() ? ag_context_current() : NULL;

    if (context && !ag_context_is_inside())
        ag_stream_announce(context, stream, !(flags & CU_STREAM_NON_BLOCKING), priority);
}

static void retire(struct ag_stream *stream, bool context_gone)
{
    struct ag_context *context = stream->id.context;
    bool pushed = false;

    if (!ag_stream_own(stream))
        return;
    if (stream->id.context != context) { /* it was retired and reused meanwhile */
        ag_stream_disown(stream);
        return;
    }
    if (!context_gone && enter_context(stream, &pushed))
        ag_segment_end(stream, true, AG_FLUSH_END);
    retire_owned(stream, context_gone);
    ag_context_restore(pushed);
}

void ag_replay_stream_dying(CUstream handle)
{
    struct ag_stream *stream;

    if (!ag_replay_on())
        return;
    stream = ag_stream_find(handle);
    flush_before(ag_context_current(), handle, stream);
    if (stream)
        retire(stream, false);
    ag_marks_name(handle, NULL);
}

void ag_replay_stream_altered(CUstream handle)
{
    struct ag_stream *stream;

    if (!ag_replay_on())
        return;
    stream = find_anywhere(ag_context_current(), handle);
    if (!stream)
        ag_stream_forbid(handle);
    if (!stream || !ag_stream_own(stream))
        return;
    ag_segment_end(stream, true, AG_FLUSH_CALL);
    stream->altered = true;
    ag_stream_disown(stream);
}

static void retire_of(struct ag_stream *stream, void *data)
{
    if (stream->id.context == data)
        retire(stream, true);
}

/* Whether replay is on or not: streams may be left from before its end. */
void ag_replay_context_gone(struct ag_context *context)
{
    ag_stream_each(retire_of, context);
    ag_context_state_leave(context);
}

void ag_replay_stop(void)
{
    atomic_store(&over, true);
    ag_replay_flush_all(AG_FLUSH_END);
    atomic_store_explicit(&on, false, memory_order_seq_cst);
    ag_replay_flush_all(AG_FLUSH_END); /* what other threads withheld meanwhile */
}

/* Natively the device would have had the withheld work for some time. Where the end of the process
 * does not wait for the device (_exit, exec), more of it would be lost; so this waits a little. */
void ag_replay_exit(bool for_good)
{
    bool was_on = ag_replay_on();

    atomic_store(&is_last, true);
    if (for_good)
        ag_replay_stop();
    else
        ag_replay_flush_all(AG_FLUSH_END);
    if (was_on && ag_stats_counter(AG_STAT_REPLAY_WITHHELD))
        ag_watchdog_wait_at_exit(AG_EXIT_TIMEOUT_NS);
    atomic_store(&is_last, false); /* where exec fails, the process goes on */
}

void ag_replay_begin_child(void)
{
    ag_intern_begin_child();
    ag_marks_begin_child();
    ag_stream_begin_child();
    ag_watchdog_begin_child();
}
