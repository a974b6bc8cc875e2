/* The state machine of replay, one operation at a time: see replayer.h, and segment.c for what
 * becomes of what is withheld.
 *
 * Delicate: everything here is about the order in which the driver sees what the program submits.
 * - One stream: its stream is owned from the look at an operation until it is withheld, or has been
 *   let through; what was withheld before it goes out first.
 * - The legacy stream and blocking ones: an operation on one side first sends out what the other
 * side withholds. So at no time do both withhold something that is ordered by the program.
 * - Events: recording one and waiting for one ends the stream's segment, so what an event covers
 * has been submitted, and other streams need to know nothing.
 * - Captures: nothing is withheld from the moment one is announced; all that was goes out before it
 *   opens.
 * - Everything else the driver can be asked to do sends out everything first. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "graph/replayer.h"

#include <stdio.h>
#include <string.h>

#include "graph/learn/marks.h"
#include "graph/record/detail.h"
#include "graph/replay/builder.h"
#include "graph/stream.h"
#include "interpose/base/clock.h"
#include "interpose/base/log.h"
#include "interpose/driver/driver.h"
#include "interpose/report/stats.h"
#include "policy/contexts/context.h"
#include "policy/order/capture.h"

#define PACE_EVERY 32u /* operations of a segment between two looks at the clock */
#define PACE_FIRST 8u  /* ... of which the first comes early, for rounds that end soon */
/* operations that a thread lets pass before it looks at the stream again */
#define QUIET_BATCH     64u
#define CALL_TIMEOUT_NS 100000000u
#define LAST_TIMEOUT_NS 100000000u /* for what a process that ends has submitted late */
#define MAX_SEGMENT     (1u << 15) /* operations, whatever the settings say */

_Static_assert(AG_STAT_FLUSH_END - AG_STAT_FLUSH_STREAM == (int)AG_FLUSH_END, "rows of counters");

static _Atomic bool on;
static _Atomic bool over;    /* the end may come before the beginning: see ag_replay_stop */
static _Atomic bool is_last; /* the process ends */

void ag_replay_configure(const struct ag_options *options)
{
    const char *missing;

    ag_marks_configure(options);
    if (!ag_marks_any())
        return;
    missing = ag_graph_missing();
    if (missing) {
        char why[96];

        snprintf(why, sizeof(why), "the driver has no %s", missing);
        ag_log_warn("ALLOGRAFT_GRAPH: %s: nothing is replayed", why);
        ag_stats_replay(why);
        return;
    }
    ag_stats_replay(NULL);
    ag_segment_configure(options);
    ag_watchdog_configure((uint64_t)options->graph_hold_us * 1000);
    atomic_store(&on, !atomic_load(&over));
}

bool ag_replay_on(void)
{
    return atomic_load_explicit(&on, memory_order_relaxed);
}

/* --- flushing --- */

struct flush {
    enum ag_flush why;
    struct ag_context *context; /* of which context; NULL for all */
    uint32_t thread;            /* what which thread submitted last; 0 for all */
    bool legacy, blocking;      /* only streams of that kind; both false: any */
};

static bool is_wait(enum ag_flush why)
{
    return why == AG_FLUSH_STREAM || why == AG_FLUSH_DEVICE || why == AG_FLUSH_COPY;
}

/* What cannot go out now would come too late: so it is tried twice. */
static bool enter_context(const struct ag_stream *stream, bool *ret_pushed)
{
    for (unsigned i = 0; i < 2; i++) {
        if (ag_context_make_current(stream->context, ret_pushed) == CUDA_SUCCESS)
            return true;
    }
    return false;
}

static void flush(struct ag_stream *stream, enum ag_flush why)
{
    /* A thread may be kept in the driver by a full queue, until this thread's call lets work go on
     * (a value written for the device, say): only calls that would wait for all that work
     * themselves, or must come after it, wait for such a thread. A process that ends takes it with
     * it. */
    bool ends = why == AG_FLUSH_END && atomic_load_explicit(&is_last, memory_order_relaxed);
    uint64_t timeout = why == AG_FLUSH_CALL || ends ? CALL_TIMEOUT_NS : UINT64_MAX;
    bool pushed = false;

    if (!ag_stream_own_within(stream, timeout))
        return;
    ag_segment_settle(stream);
    if (enter_context(stream, &pushed)) {
        ag_segment_end(stream, true, why);
        ag_context_restore(pushed);
    }
    if (is_wait(why))
        ag_segment_round(stream, false);
    ag_stream_disown(stream);
}

static void visit(struct ag_stream *stream, void *data)
{
    const memory_order relaxed = memory_order_relaxed;
    const struct flush *which = data;

    if (which->context && atomic_load_explicit(&stream->context, relaxed) != which->context)
        return;
    if (which->thread && atomic_load_explicit(&stream->last_thread, relaxed) != which->thread)
        return;
    if (which->legacy && !atomic_load_explicit(&stream->is_legacy, relaxed))
        return;
    if (which->blocking && !atomic_load_explicit(&stream->is_blocking, relaxed))
        return;
    flush(stream, which->why);
}

static void flush_other_side(struct ag_context *context, bool is_legacy)
{
    struct flush which = {
        .why = AG_FLUSH_OTHER_STREAM,
        .context = context,
        .legacy = !is_legacy,
        .blocking = is_legacy,
    };

    ag_stream_each_open(visit, &which);
}

/* What other streams of the context withhold and an operation on the handle must come after. That
 * does not depend on a stream of its own, which it may never have been given (NULL: the table was
 * full, or there was no memory): what is not known to be non-blocking counts as blocking. */
static void flush_before(struct ag_context *context, CUstream handle,
                         const struct ag_stream *stream)
{
    bool is_legacy = handle == CU_STREAM_LEGACY;
    bool is_blocking = !is_legacy && (!stream || stream->is_blocking);

    if (ag_stream_conflicts(is_legacy, is_blocking))
        flush_other_side(context, is_legacy);
}

/* What others withhold and an operation on the handle must come after goes out. The stream's
 * stream, or NULL. */
static struct ag_stream *come_after(CUstream handle, enum ag_flush why)
{
    struct ag_context *context = ag_context_current();
    struct ag_stream *stream;

    if (!context) {
        ag_replay_flush_all(why);
        return NULL;
    }
    stream = ag_stream_of(context, handle);
    if (!stream)
        stream = ag_stream_find(handle); /* of another context */
    flush_before(context, handle, stream);
    return stream;
}

void ag_replay_allocates(CUstream handle, bool per_thread)
{
    struct ag_stream *stream;

    if (!ag_replay_on() || !ag_replay_holds())
        return;
    stream = come_after(ag_replay_stream(handle, per_thread), AG_FLUSH_OTHER_STREAM);
    if (stream && atomic_load_explicit(&stream->thread, memory_order_relaxed) &&
        atomic_load_explicit(&stream->open, memory_order_acquire))
        flush(stream, AG_FLUSH_UNRECORDED);
}

void ag_replay_flush_stream(CUstream handle, bool per_thread, enum ag_flush why)
{
    struct ag_stream *stream;

    handle = ag_replay_stream(handle, per_thread);
    if (!ag_replay_on() || ag_replay_is_on_fast_path(handle) || ag_stream_resting(handle))
        return;
    stream = come_after(handle, why);
    if (stream && !atomic_load_explicit(&stream->asleep, memory_order_acquire) &&
        (is_wait(why) || atomic_load_explicit(&stream->open, memory_order_acquire)))
        flush(stream, why);
}

void ag_replay_flush_context(enum ag_flush why)
{
    struct flush which = {.why = why};

    if (!ag_replay_holds())
        return;
    which.context = ag_context_current();
    ag_stream_each_open(visit, &which);
}

void ag_replay_flush_thread(enum ag_flush why)
{
    struct flush which = {.why = why};

    if (!ag_replay_holds())
        return;
    which.thread = ag_stream_thread();
    ag_stream_each_open(visit, &which);
}

void ag_replay_flush_all(enum ag_flush why)
{
    struct flush which = {.why = why};

    /* Before a capture every stream is taken in turn: a thread that saw none open may still be
     * about to withhold. */
    if (why == AG_FLUSH_CAPTURE && ag_replay_on())
        ag_stream_each(visit, &which);
    else if (ag_replay_holds())
        ag_stream_each_open(visit, &which);
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
    /* From now on launches fail at once: withheld ones would not. */
    if (shared && result != CUDA_SUCCESS)
        atomic_store_explicit(&shared->failed, true, memory_order_relaxed);
    if (!shared || result != CUDA_SUCCESS ||
        !atomic_load_explicit(&shared->late, memory_order_relaxed))
        return result;
    return (CUresult)atomic_exchange(&shared->late, CUDA_SUCCESS);
}

/* --- streams that sleep --- */

/* Where the segment ends is chance: it is not learnt. */
static void fall_asleep(struct ag_stream *stream)
{
    stream->spoiled = true;
    ag_segment_end(stream, true, AG_FLUSH_CALL);
    if (atomic_load_explicit(&stream->open, memory_order_relaxed))
        return;
    stream->backoff_length = ag_backoff_begin(stream->backoff);
    atomic_store_explicit(&stream->backoff_left, stream->backoff_length, memory_order_relaxed);
    atomic_store_explicit(&stream->asleep, true, memory_order_release);
    ag_stats_add(AG_STAT_REPLAY_NAPS, 1);
}

/* The round in which it wakes was not seen from its beginning: no time is taken of it. */
static void wake(struct ag_stream *stream)
{
    uint32_t left = atomic_load_explicit(&stream->backoff_left, memory_order_relaxed);

    ag_backoff_end(stream->backoff, stream->backoff_length - left);
    atomic_store_explicit(&stream->asleep, false, memory_order_relaxed);
    atomic_fetch_add_explicit(&ag_stream_changes, 1, memory_order_release);
    stream->spoiled = false;
    stream->round_began = stream->round_path = 0;
    stream->round_ops = stream->round_graph_ops = 0;
}

/* The operation has been looked at, and goes to the driver. Of a round that the profit guard wants
 * without graphs nothing can come, and the guard is to see it end. */
static void look_on(struct ag_stream *stream, uint64_t hash, uint32_t place)
{
    if (!stream->may_replay && stream->round_ops < AG_HISTORY_WINDOW)
        ag_backoff_refresh(stream->backoff);
    else if (ag_backoff_tires(stream->backoff, hash, place))
        fall_asleep(stream);
}

/* Does the operation pass, as may the next ones? Of a stream that sleeps, so many that it wakes in
 * time. */
static bool rests(CUstream handle)
{
    struct ag_stream *stream = ag_stream_resting(handle);
    uint32_t left;

    if (!stream)
        return false;
    if (!ag_fast_path.asleep) {
        ag_fast_path.left = UINT32_MAX;
        return true;
    }
    if (!ag_stream_sleeps(stream))
        return false;
    left = atomic_load_explicit(&stream->backoff_left, memory_order_relaxed);
    ag_fast_path.left = left < QUIET_BATCH ? left : QUIET_BATCH;
    atomic_store_explicit(&stream->backoff_left, left - ag_fast_path.left, memory_order_relaxed);
    return true;
}

/* --- one operation --- */

static bool init_resources(struct ag_stream *stream)
{
    if (!stream->backoff)
        stream->backoff = ag_backoff_new();
    return stream->backoff && ag_segment_init_resources(stream);
}

struct ag_stream *ag_replay_enter(CUstream handle, bool per_thread)
{
    struct ag_context *context;
    struct ag_stream *stream;

    if (!ag_replay_on())
        return NULL;
    handle = ag_replay_stream(handle, per_thread);
    if (ag_replay_lets_pass(handle) || rests(handle))
        return NULL;
    context = ag_context_current();
    if (!context) { /* whichever stream it is, nothing is withheld behind which it would come */
        ag_replay_flush_all(AG_FLUSH_OTHER_STREAM);
        return NULL;
    }
    stream = ag_stream_of(context, handle);
    if (stream)
        ag_stream_remark(stream);
    flush_before(context, handle, stream);
    if (!stream || !stream->marked || ag_context_is_inside() ||
        atomic_load_explicit(&stream->shared->failed, memory_order_relaxed))
        return NULL;
    /* Once more when it is ours: it may have fallen asleep meanwhile, and may not withhold then. */
    if (ag_stream_sleeps(stream) || !ag_stream_own(stream))
        return NULL;
    if (ag_stream_sleeps(stream)) {
        ag_stream_disown(stream);
        return NULL;
    }
    if (atomic_load_explicit(&stream->asleep, memory_order_relaxed))
        wake(stream);
    ag_segment_settle(stream);
    /* Asked when the stream is ours: who opens a capture announces it, then takes each stream in
     * turn.
     */
    if (ag_capture_is_open() || stream->altered || !ag_stream_is_of(stream, context, handle) ||
        !init_resources(stream)) {
        ag_segment_end(stream, true, AG_FLUSH_CAPTURE);
        ag_stream_disown(stream);
        return NULL;
    }
    atomic_store_explicit(&stream->last_thread, ag_stream_thread(), memory_order_relaxed);
    ag_stats_add(AG_STAT_REPLAY_SEEN, 1);
    return stream;
}

unsigned char *ag_replay_room(struct ag_stream *stream)
{
    return ag_store_room(&stream->store);
}

static void end_before(struct ag_stream *stream)
{
    uint64_t count;
    uint32_t period;

    ag_segment_end(stream, false, AG_FLUSH_STREAM);
    ag_history_iterations(stream->history, &count, &period);
    if (count != stream->n_anchors)
        ag_segment_round(stream, true);
    stream->n_anchors = count;
}

static bool is_look_due(uint32_t length)
{
    return length % PACE_EVERY == PACE_FIRST || !length;
}

/* Of a slow program's first operation, and its last, no graph will be made. */
static bool is_worth_it(const struct ag_stream *stream)
{
    return ag_history_target(stream->history) >= AG_BACKOFF_LEAST;
}

/* Looks at the operation that comes: does a segment end before it, may it be withheld? What was
 * withheld and must come before it goes out. */
static void prepare(struct ag_stream *stream, const struct ag_op *op)
{
    uint64_t now = 0;

    if (stream->prepared)
        return;
    stream->hash = ag_signature_hash(&op->signature);
    /* In rounds that are to be without graphs the pace would be the driver's. */
    if (stream->may_replay && is_look_due(ag_history_length(stream->history)))
        now = ag_clock_ns();
    if (ag_history_ends_before(stream->history, stream->hash, ag_marks_take_iteration(), now) ||
        stream->n_ops >= MAX_SEGMENT)
        end_before(stream);
    stream->next = stream->node ? ag_matcher_follow(stream->matcher, stream->node, &op->signature,
                                                    stream->hash)
                                : NULL;
    stream->will_hold = stream->next && (stream->next->graphs || stream->next->below) &&
                        (stream->mode == AG_STREAM_HOLDING ||
                         (!stream->n_ops && stream->may_replay && is_worth_it(stream)));
    if (stream->mode == AG_STREAM_HOLDING && !stream->will_hold) {
        ag_stats_add(AG_STAT_REPLAY_MISMATCHES, 1);
        ag_segment_submit(stream);
    }
    stream->prepared = true;
}

bool ag_replay_would_withhold(struct ag_stream *stream, const struct ag_op *op)
{
    prepare(stream, op);
    return stream->will_hold;
}

struct ag_ring *ag_replay_ring(struct ag_stream *stream, struct ag_staged **ret_staged)
{
    *ret_staged = &stream->staged;
    return ag_segment_ring(stream);
}

/* Enters the operation into the segment. If one has ended before it, its payload moves to the
 * beginning of the store, where the next ones would be laid over it. */
static void append(struct ag_stream *stream, const struct ag_op *op)
{
    struct ag_op *mine = &stream->ops[stream->n_ops];
    unsigned char *place = stream->n_ops++ ? op->payload : ag_store_room(&stream->store);

    *mine = *op;
    if (place && place != op->payload) {
        memmove(place, op->payload, (op->payload_bytes + 7) & ~7u);
        mine->payload = place;
    }
    ag_store_take(&stream->store, op->payload_bytes);
    if (stream->node && !stream->next)
        stream->next = ag_matcher_grow(stream->matcher, stream->node, &op->signature, stream->hash);
    stream->node = stream->next;
    stream->round_path = (stream->round_path ^ stream->hash) * 0x9e3779b97f4a7c15u;
    ag_stream_set_open(stream, true);
}

bool ag_replay_take(struct ag_stream *stream, const struct ag_op *op)
{
    bool hold;

    prepare(stream, op);
    stream->prepared = false;
    if (!ag_stream_reserve(stream))
        return ag_replay_pass(stream, AG_FLUSH_UNRECORDED);
    hold = stream->will_hold && (stream->mode == AG_STREAM_HOLDING || ag_segment_hold(stream));
    append(stream, op);
    if (hold) {
        /* Only the owner writes it. */
        atomic_store_explicit(&stream->turn,
                              atomic_load_explicit(&stream->turn, memory_order_relaxed) + 1,
                              memory_order_relaxed);
        ag_stats_add(AG_STAT_REPLAY_WITHHELD, 1);
        /* Nothing longer is known: the device may start. */
        if (stream->node->graphs && !stream->node->below)
            ag_segment_submit(stream);
    } else {
        look_on(stream, stream->hash, stream->n_ops);
    }
    ag_stream_disown(stream);
    return hold;
}

bool ag_replay_pass(struct ag_stream *stream, enum ag_flush why)
{
    ag_segment_end(stream, true, why);
    look_on(stream, 0, 0);
    ag_stream_disown(stream);
    return false;
}

void ag_replay_refused(struct ag_stream *stream)
{
    if (!ag_stream_own(stream))
        return;
    stream->spoiled = true;
    ag_stream_disown(stream);
}

/* --- what changes under the streams --- */

static void forget_code(struct ag_stream *stream, void *data)
{
    bool pushed = false;

    (void)data;
    if (!ag_stream_own(stream))
        return;
    ag_segment_settle(stream);
    if (enter_context(stream, &pushed)) {
        ag_segment_end(stream, true, AG_FLUSH_CODE);
        ag_segment_forget(stream, false);
        ag_context_restore(pushed);
    }
    ag_stream_disown(stream);
}

void ag_replay_forget_code(enum ag_flush why)
{
    if (!ag_replay_on())
        return;
    ag_replay_flush_all(why);
    ag_stream_each(forget_code, NULL);
    ag_stats_add(AG_STAT_REPLAY_RESETS, 1);
}

void ag_replay_stream_created(CUstream stream, unsigned flags, int priority)
{
    struct ag_context *context;

    if (!ag_replay_on())
        return;
    /* Destroyed by the interface of before CUDA 4.0, which is not hooked: another stream now. */
    if (ag_stream_find(stream))
        ag_replay_stream_dying(stream);
    context = ag_context_current();
    if (context && !ag_context_is_inside())
        ag_stream_announce(context, stream, !(flags & CU_STREAM_NON_BLOCKING), priority);
}

static void retire(struct ag_stream *stream, bool context_gone)
{
    struct ag_context *context = stream->context;
    bool pushed = false;

    if (!ag_stream_own(stream))
        return;
    if (stream->context != context) { /* it was retired, and is another's now */
        ag_stream_disown(stream);
        return;
    }
    if (context_gone) {
        ag_stream_retire(stream, true);
        return;
    }
    if (enter_context(stream, &pushed))
        ag_segment_end(stream, true, AG_FLUSH_END);
    ag_stream_retire(stream, false);
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
    ag_marks_forget(handle);
}

void ag_replay_stream_altered(CUstream handle)
{
    struct ag_stream *stream;

    if (!ag_replay_on())
        return;
    stream = ag_stream_of(ag_context_current(), handle);
    if (!stream)
        stream = ag_stream_find(handle); /* of another context */
    if (!stream)
        ag_stream_bar(handle);
    if (!stream || !ag_stream_own(stream))
        return;
    ag_segment_end(stream, true, AG_FLUSH_CALL);
    stream->altered = true;
    ag_stream_disown(stream);
}

void ag_replay_context_dying(struct ag_context *context)
{
    struct flush which = {.why = AG_FLUSH_END, .context = context};

    if (ag_replay_holds())
        ag_stream_each_open(visit, &which);
}

static void retire_of(struct ag_stream *stream, void *data)
{
    if (stream->context == data)
        retire(stream, true);
}

void ag_replay_context_gone(struct ag_context *context)
{
    if (!ag_replay_on())
        return;
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

/* Work that was withheld until now the device would natively have had some time ago: where the end
 * does not wait for it (_exit, exec), it would be lost more often. */
void ag_replay_exit(bool for_good)
{
    bool was_on = ag_replay_on();

    atomic_store(&is_last, true);
    if (for_good)
        ag_replay_stop();
    else
        ag_replay_flush_all(AG_FLUSH_END);
    if (was_on && ag_stats_counter(AG_STAT_REPLAY_WITHHELD))
        ag_watchdog_last(LAST_TIMEOUT_NS);
    atomic_store(&is_last, false); /* where exec fails, the process goes on */
}

void ag_replay_begin_child(void)
{
    atomic_store(&on, false);
    atomic_store(&over, false);
    ag_detail_begin_child();
    ag_marks_begin_child();
    ag_stream_forget_all();
    ag_watchdog_forget();
}
