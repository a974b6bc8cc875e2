/* The state machine of replay, one operation at a time: see replayer.h, and segment.c for what
 * becomes of what is withheld.
 *
 * Delicate: everything here is about the order in which the driver sees what the program submits.
 * - One stream: its lane is owned from the look at an operation until it is withheld, or has been
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

#include "graph/lane.h"
#include "graph/learn/marks.h"
#include "graph/record/detail.h"
#include "graph/replay/builder.h"
#include "interpose/base/clock.h"
#include "interpose/base/log.h"
#include "interpose/driver/driver.h"
#include "interpose/report/stats.h"
#include "policy/contexts/context.h"
#include "policy/order.h"

#define PACE_EVERY 32u /* operations of a segment between two looks at the clock */
#define PACE_FIRST 8u  /* ... of which the first comes early, for rounds that end soon */
/* operations that a thread lets pass before it looks at the lane again */
#define QUIET_BATCH      64u
#define CALL_PATIENCE_NS 100000000u
#define LAST_PATIENCE_NS 100000000u /* for what a process that ends has submitted late */
#define MAX_SEGMENT      (1u << 15) /* operations, whatever the settings say */

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
    bool legacy, blocking;      /* only lanes of that kind; both false: any */
};

static bool is_wait(enum ag_flush why)
{
    return why == AG_FLUSH_STREAM || why == AG_FLUSH_DEVICE || why == AG_FLUSH_COPY;
}

/* What cannot go out now would come too late: so it is tried twice. */
static bool enter_context(const struct ag_lane *lane, bool *ret_pushed)
{
    for (unsigned i = 0; i < 2; i++) {
        if (ag_context_make_current(lane->context, ret_pushed) == CUDA_SUCCESS)
            return true;
    }
    return false;
}

static void flush(struct ag_lane *lane, enum ag_flush why)
{
    /* A thread may be kept in the driver by a full queue, until this thread's call lets work go on
     * (a value written for the device, say): only calls that would wait for all that work
     * themselves, or must come after it, wait for such a thread. A process that ends takes it with
     * it. */
    bool ends = why == AG_FLUSH_END && atomic_load_explicit(&is_last, memory_order_relaxed);
    uint64_t patience = why == AG_FLUSH_CALL || ends ? CALL_PATIENCE_NS : UINT64_MAX;
    bool pushed = false;

    if (!ag_lane_own_within(lane, patience))
        return;
    ag_segment_settle(lane);
    if (enter_context(lane, &pushed)) {
        ag_segment_end(lane, true, why);
        ag_context_restore(pushed);
    }
    if (is_wait(why))
        ag_segment_round(lane, false);
    ag_lane_disown(lane);
}

static void visit(struct ag_lane *lane, void *data)
{
    const memory_order relaxed = memory_order_relaxed;
    const struct flush *which = data;

    if (which->context && atomic_load_explicit(&lane->context, relaxed) != which->context)
        return;
    if (which->thread && atomic_load_explicit(&lane->last_thread, relaxed) != which->thread)
        return;
    if (which->legacy && !atomic_load_explicit(&lane->is_legacy, relaxed))
        return;
    if (which->blocking && !atomic_load_explicit(&lane->is_blocking, relaxed))
        return;
    flush(lane, which->why);
}

static void flush_other_side(struct ag_context *context, bool is_legacy)
{
    struct flush which = {
        .why = AG_FLUSH_OTHER_STREAM,
        .context = context,
        .legacy = !is_legacy,
        .blocking = is_legacy,
    };

    ag_lane_each_open(visit, &which);
}

/* What other lanes of the context withhold and an operation on the stream must come after. That
 * does not depend on a lane of its own, which it may never have been given (NULL: the table was
 * full, or there was no memory): what is not known to be non-blocking counts as blocking. */
static void flush_before(struct ag_context *context, CUstream stream, const struct ag_lane *lane)
{
    bool is_legacy = stream == CU_STREAM_LEGACY;
    bool is_blocking = !is_legacy && (!lane || lane->is_blocking);

    if (ag_lane_conflicts(is_legacy, is_blocking))
        flush_other_side(context, is_legacy);
}

/* What others withhold and an operation on the stream must come after goes out. The stream's lane,
 * or NULL. */
static struct ag_lane *come_after(CUstream stream, enum ag_flush why)
{
    struct ag_context *context = ag_context_current();
    struct ag_lane *lane;

    if (!context) {
        ag_replay_flush_all(why);
        return NULL;
    }
    lane = ag_lane_of(context, stream);
    if (!lane)
        lane = ag_lane_find(stream); /* of another context */
    flush_before(context, stream, lane);
    return lane;
}

void ag_replay_allocates(CUstream stream, bool per_thread)
{
    struct ag_lane *lane;

    if (!ag_replay_on() || !ag_replay_holds())
        return;
    lane = come_after(ag_replay_stream(stream, per_thread), AG_FLUSH_OTHER_STREAM);
    if (lane && atomic_load_explicit(&lane->thread, memory_order_relaxed) &&
        atomic_load_explicit(&lane->open, memory_order_acquire))
        flush(lane, AG_FLUSH_UNRECORDED);
}

void ag_replay_flush_stream(CUstream stream, bool per_thread, enum ag_flush why)
{
    struct ag_lane *lane;

    stream = ag_replay_stream(stream, per_thread);
    if (!ag_replay_on() || ag_replay_is_quiet(stream) || ag_lane_resting(stream))
        return;
    lane = come_after(stream, why);
    if (lane && !atomic_load_explicit(&lane->asleep, memory_order_acquire) &&
        (is_wait(why) || atomic_load_explicit(&lane->open, memory_order_acquire)))
        flush(lane, why);
}

void ag_replay_flush_context(enum ag_flush why)
{
    struct flush which = {.why = why};

    if (!ag_replay_holds())
        return;
    which.context = ag_context_current();
    ag_lane_each_open(visit, &which);
}

void ag_replay_flush_thread(enum ag_flush why)
{
    struct flush which = {.why = why};

    if (!ag_replay_holds())
        return;
    which.thread = ag_lane_thread();
    ag_lane_each_open(visit, &which);
}

void ag_replay_flush_all(enum ag_flush why)
{
    struct flush which = {.why = why};

    /* Before a capture every lane is taken in turn: a thread that saw none open may still be about
     * to withhold. */
    if (why == AG_FLUSH_CAPTURE && ag_replay_on())
        ag_lane_each(visit, &which);
    else if (ag_replay_holds())
        ag_lane_each_open(visit, &which);
}

CUresult ag_replay_late(CUresult result)
{
    struct ag_context *context;
    struct ag_home *home;

    if (result == CUDA_SUCCESS && !atomic_load_explicit(&ag_lane_any_late, memory_order_acquire))
        return result;
    if ((result != CUDA_SUCCESS && !ag_order_is_lasting(result)) || !ag_replay_on())
        return result;
    context = ag_context_current();
    home = context ? ag_home_of(context) : NULL;
    /* From now on launches fail at once: withheld ones would not. */
    if (home && result != CUDA_SUCCESS)
        atomic_store_explicit(&home->failed, true, memory_order_relaxed);
    if (!home || result != CUDA_SUCCESS || !atomic_load_explicit(&home->late, memory_order_relaxed))
        return result;
    return (CUresult)atomic_exchange(&home->late, CUDA_SUCCESS);
}

/* --- lanes that sleep --- */

/* Where the segment ends is chance: it is not learnt. */
static void fall_asleep(struct ag_lane *lane)
{
    lane->spoiled = true;
    ag_segment_end(lane, true, AG_FLUSH_CALL);
    if (atomic_load_explicit(&lane->open, memory_order_relaxed))
        return;
    lane->nap_length = ag_nap_begin(lane->nap);
    atomic_store_explicit(&lane->nap_left, lane->nap_length, memory_order_relaxed);
    atomic_store_explicit(&lane->asleep, true, memory_order_release);
    ag_stats_add(AG_STAT_REPLAY_NAPS, 1);
}

/* The round in which it wakes was not seen from its beginning: no time is taken of it. */
static void wake(struct ag_lane *lane)
{
    uint32_t left = atomic_load_explicit(&lane->nap_left, memory_order_relaxed);

    ag_nap_end(lane->nap, lane->nap_length - left);
    atomic_store_explicit(&lane->asleep, false, memory_order_relaxed);
    atomic_fetch_add_explicit(&ag_lane_changes, 1, memory_order_release);
    lane->spoiled = false;
    lane->round_began = lane->round_path = 0;
    lane->round_ops = lane->round_graph_ops = 0;
}

/* The operation has been looked at, and goes to the driver. Of a round that the profit guard wants
 * without graphs nothing can come, and the guard is to see it end. */
static void look_on(struct ag_lane *lane, uint64_t hash, uint32_t place)
{
    if (!lane->may_replay && lane->round_ops < AG_HISTORY_WINDOW)
        ag_nap_refresh(lane->nap);
    else if (ag_nap_tires(lane->nap, hash, place))
        fall_asleep(lane);
}

/* Does the operation pass, as may the next ones? Of a lane that sleeps, so many that it wakes in
 * time. */
static bool rests(CUstream stream)
{
    struct ag_lane *lane = ag_lane_resting(stream);
    uint32_t left;

    if (!lane)
        return false;
    if (!ag_quiet.asleep) {
        ag_quiet.left = UINT32_MAX;
        return true;
    }
    if (!ag_lane_sleeps(lane))
        return false;
    left = atomic_load_explicit(&lane->nap_left, memory_order_relaxed);
    ag_quiet.left = left < QUIET_BATCH ? left : QUIET_BATCH;
    atomic_store_explicit(&lane->nap_left, left - ag_quiet.left, memory_order_relaxed);
    return true;
}

/* --- one operation --- */

static bool equip(struct ag_lane *lane)
{
    if (!lane->nap)
        lane->nap = ag_nap_new();
    return lane->nap && ag_segment_equip(lane);
}

struct ag_lane *ag_replay_enter(CUstream stream, bool per_thread)
{
    struct ag_context *context;
    struct ag_lane *lane;

    if (!ag_replay_on())
        return NULL;
    stream = ag_replay_stream(stream, per_thread);
    if (ag_replay_lets_pass(stream) || rests(stream))
        return NULL;
    context = ag_context_current();
    if (!context) { /* whichever lane it is, nothing is withheld behind which it would come */
        ag_replay_flush_all(AG_FLUSH_OTHER_STREAM);
        return NULL;
    }
    lane = ag_lane_of(context, stream);
    if (lane)
        ag_lane_remark(lane);
    flush_before(context, stream, lane);
    if (!lane || !lane->marked || ag_context_is_inside() ||
        atomic_load_explicit(&lane->home->failed, memory_order_relaxed))
        return NULL;
    /* Once more when it is ours: it may have fallen asleep meanwhile, and may not withhold then. */
    if (ag_lane_sleeps(lane) || !ag_lane_own(lane))
        return NULL;
    if (ag_lane_sleeps(lane)) {
        ag_lane_disown(lane);
        return NULL;
    }
    if (atomic_load_explicit(&lane->asleep, memory_order_relaxed))
        wake(lane);
    ag_segment_settle(lane);
    /* Asked when the lane is ours: who opens a capture announces it, then takes each lane in turn.
     */
    if (ag_order_capture_open() || lane->altered || !ag_lane_is_of(lane, context, stream) ||
        !equip(lane)) {
        ag_segment_end(lane, true, AG_FLUSH_CAPTURE);
        ag_lane_disown(lane);
        return NULL;
    }
    atomic_store_explicit(&lane->last_thread, ag_lane_thread(), memory_order_relaxed);
    ag_stats_add(AG_STAT_REPLAY_SEEN, 1);
    return lane;
}

unsigned char *ag_replay_room(struct ag_lane *lane)
{
    return ag_store_room(&lane->store);
}

static void end_before(struct ag_lane *lane)
{
    uint64_t count;
    uint32_t period;

    ag_segment_end(lane, false, AG_FLUSH_STREAM);
    ag_history_iterations(lane->history, &count, &period);
    if (count != lane->n_anchors)
        ag_segment_round(lane, true);
    lane->n_anchors = count;
}

static bool is_look_due(uint32_t length)
{
    return length % PACE_EVERY == PACE_FIRST || !length;
}

/* Of a slow program's first operation, and its last, no graph will be made. */
static bool is_worth_it(const struct ag_lane *lane)
{
    return ag_history_target(lane->history) >= AG_NAP_LEAST;
}

/* Looks at the operation that comes: does a segment end before it, may it be withheld? What was
 * withheld and must come before it goes out. */
static void prepare(struct ag_lane *lane, const struct ag_op *op)
{
    uint64_t now = 0;

    if (lane->prepared)
        return;
    lane->hash = ag_signature_hash(&op->signature);
    /* In rounds that are to be without graphs the pace would be the driver's. */
    if (lane->may_replay && is_look_due(ag_history_length(lane->history)))
        now = ag_clock_ns();
    if (ag_history_ends_before(lane->history, lane->hash, ag_marks_take_iteration(), now) ||
        lane->n_ops >= MAX_SEGMENT)
        end_before(lane);
    lane->next = lane->node
                     ? ag_matcher_follow(lane->matcher, lane->node, &op->signature, lane->hash)
                     : NULL;
    lane->will_hold =
        lane->next && (lane->next->graphs || lane->next->below) &&
        (lane->mode == AG_LANE_HOLDING || (!lane->n_ops && lane->may_replay && is_worth_it(lane)));
    if (lane->mode == AG_LANE_HOLDING && !lane->will_hold) {
        ag_stats_add(AG_STAT_REPLAY_MISMATCHES, 1);
        ag_segment_submit(lane);
    }
    lane->prepared = true;
}

bool ag_replay_would_withhold(struct ag_lane *lane, const struct ag_op *op)
{
    prepare(lane, op);
    return lane->will_hold;
}

struct ag_ring *ag_replay_ring(struct ag_lane *lane, struct ag_staged **ret_staged)
{
    *ret_staged = &lane->staged;
    return ag_segment_ring(lane);
}

/* Enters the operation into the segment. If one has ended before it, its payload moves to the
 * beginning of the store, where the next ones would be laid over it. */
static void append(struct ag_lane *lane, const struct ag_op *op)
{
    struct ag_op *mine = &lane->ops[lane->n_ops];
    unsigned char *place = lane->n_ops++ ? op->payload : ag_store_room(&lane->store);

    *mine = *op;
    if (place && place != op->payload) {
        memmove(place, op->payload, (op->payload_bytes + 7) & ~7u);
        mine->payload = place;
    }
    ag_store_take(&lane->store, op->payload_bytes);
    if (lane->node && !lane->next)
        lane->next = ag_matcher_grow(lane->matcher, lane->node, &op->signature, lane->hash);
    lane->node = lane->next;
    lane->round_path = (lane->round_path ^ lane->hash) * 0x9e3779b97f4a7c15u;
    ag_lane_set_open(lane, true);
}

bool ag_replay_take(struct ag_lane *lane, const struct ag_op *op)
{
    bool hold;

    prepare(lane, op);
    lane->prepared = false;
    if (!ag_lane_reserve(lane))
        return ag_replay_pass(lane, AG_FLUSH_UNRECORDED);
    hold = lane->will_hold && (lane->mode == AG_LANE_HOLDING || ag_segment_hold(lane));
    append(lane, op);
    if (hold) {
        /* Only the owner writes it. */
        atomic_store_explicit(&lane->turn,
                              atomic_load_explicit(&lane->turn, memory_order_relaxed) + 1,
                              memory_order_relaxed);
        ag_stats_add(AG_STAT_REPLAY_WITHHELD, 1);
        /* Nothing longer is known: the device may start. */
        if (lane->node->graphs && !lane->node->below)
            ag_segment_submit(lane);
    } else {
        look_on(lane, lane->hash, lane->n_ops);
    }
    ag_lane_disown(lane);
    return hold;
}

bool ag_replay_pass(struct ag_lane *lane, enum ag_flush why)
{
    ag_segment_end(lane, true, why);
    look_on(lane, 0, 0);
    ag_lane_disown(lane);
    return false;
}

void ag_replay_refused(struct ag_lane *lane)
{
    if (!ag_lane_own(lane))
        return;
    lane->spoiled = true;
    ag_lane_disown(lane);
}

/* --- what changes under the lanes --- */

static void forget_code(struct ag_lane *lane, void *data)
{
    bool pushed = false;

    (void)data;
    if (!ag_lane_own(lane))
        return;
    ag_segment_settle(lane);
    if (enter_context(lane, &pushed)) {
        ag_segment_end(lane, true, AG_FLUSH_CODE);
        ag_segment_forget(lane, false);
        ag_context_restore(pushed);
    }
    ag_lane_disown(lane);
}

void ag_replay_forget_code(enum ag_flush why)
{
    if (!ag_replay_on())
        return;
    ag_replay_flush_all(why);
    ag_lane_each(forget_code, NULL);
    ag_stats_add(AG_STAT_REPLAY_RESETS, 1);
}

void ag_replay_stream_created(CUstream stream, unsigned flags, int priority)
{
    struct ag_context *context;

    if (!ag_replay_on())
        return;
    /* Destroyed by the interface of before CUDA 4.0, which is not hooked: another stream now. */
    if (ag_lane_find(stream))
        ag_replay_stream_dying(stream);
    context = ag_context_current();
    if (context && !ag_context_is_inside())
        ag_lane_announce(context, stream, !(flags & CU_STREAM_NON_BLOCKING), priority);
}

static void retire(struct ag_lane *lane, bool context_gone)
{
    struct ag_context *context = lane->context;
    bool pushed = false;

    if (!ag_lane_own(lane))
        return;
    if (lane->context != context) { /* it was retired, and is another's now */
        ag_lane_disown(lane);
        return;
    }
    if (context_gone) {
        ag_lane_retire(lane, true);
        return;
    }
    if (enter_context(lane, &pushed))
        ag_segment_end(lane, true, AG_FLUSH_END);
    ag_lane_retire(lane, false);
    ag_context_restore(pushed);
}

void ag_replay_stream_dying(CUstream stream)
{
    struct ag_lane *lane;

    if (!ag_replay_on())
        return;
    lane = ag_lane_find(stream);
    flush_before(ag_context_current(), stream, lane);
    if (lane)
        retire(lane, false);
    ag_marks_forget(stream);
}

void ag_replay_stream_altered(CUstream stream)
{
    struct ag_lane *lane;

    if (!ag_replay_on())
        return;
    lane = ag_lane_of(ag_context_current(), stream);
    if (!lane)
        lane = ag_lane_find(stream); /* of another context */
    if (!lane)
        ag_lane_bar(stream);
    if (!lane || !ag_lane_own(lane))
        return;
    ag_segment_end(lane, true, AG_FLUSH_CALL);
    lane->altered = true;
    ag_lane_disown(lane);
}

void ag_replay_context_dying(struct ag_context *context)
{
    struct flush which = {.why = AG_FLUSH_END, .context = context};

    if (ag_replay_holds())
        ag_lane_each_open(visit, &which);
}

static void retire_of(struct ag_lane *lane, void *data)
{
    if (lane->context == data)
        retire(lane, true);
}

void ag_replay_context_gone(struct ag_context *context)
{
    if (!ag_replay_on())
        return;
    ag_lane_each(retire_of, context);
    ag_home_leave(context);
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
        ag_watchdog_last(LAST_PATIENCE_NS);
    atomic_store(&is_last, false); /* where exec fails, the process goes on */
}

void ag_replay_begin_child(void)
{
    atomic_store(&on, false);
    atomic_store(&over, false);
    ag_detail_begin_child();
    ag_marks_begin_child();
    ag_lane_forget_all();
    ag_watchdog_forget();
}
