/* Replay: keeps back the operations that a program submits to a marked stream, recognises sequences
 * that came before, and launches each of them as one CUDA graph. This header is what hooks call;
 * replayer.c has the state machine.
 *
 * Every hook of an operation on a stream:
 *
 *     struct ag_stream *stream = ag_replay_enter(handle, per_thread);
 *     if (stream) {
 *         struct ag_op *op = ag_replay_op(stream);
 *         if (op && ag_op_...(op, ...) ? ag_replay_take(stream) : ag_replay_pass(stream))
 *             return CUDA_SUCCESS;          withheld
 *     }
 *     result = the driver's call;
 *     if (result && stream) ag_replay_refused(stream);
 *
 * Terms, in all of graph/:
 * - operation: a kernel launch, copy or fill on one stream (record/op.h);
 * - withheld: kept back, while the program was told that it succeeded; passed: given to the driver
 *   as it came; eager: of work that is submitted one by one, without graphs;
 * - segment: consecutive operations of a stream that are learnt and submitted together. A graph
 *   stands for one segment;
 * - flush: something happens that withheld work must come before, so it is submitted now: the host
 *   waits, an event is recorded, memory is freed (enum ag_flush);
 * - iteration: one pass of the program's loop, between two waits of the host or two anchors (a
 *   place of the loop that history.c recognises, or a mark of NVTX).
 *
 * Five heuristics decide how fast this is, never what is computed. Each is a module of learn/ that
 * makes no driver call; their constants stand in tuning.h:
 *
 * - backoff: is the stream worth sampling? If it gains nothing, its operations pass uninspected,
 *   for a few thousand operations.
 * - history: where does a segment end that nothing flushes? At the same operations in each
 *   iteration; at growing lengths after a flush.
 * - matcher: did this segment come before? A trie of segments. One that ended at the same node
 *   ALLOGRAFT_GRAPH_WARMUP times gets a graph.
 * - variants: which graph of the segment needs the fewest updates for these payloads, which ones
 *   will come after the next wait, and would another graph be worth building?
 * - profit: are iterations faster replayed or eager? Judged by what passing operations took, and by
 *   comparing only where that does not answer; per operation, as iterations differ in length.
 *
 * An operation meets them in this order. While its stream is in back-off, it passes. Else history
 * may end the segment before it; replay/segment.c then submits what is withheld, counts the end in
 * the matcher, and may build a graph. If the operation leads to a node of the matcher that has a
 * graph, or has one below it, and profit wants this iteration replayed, it is withheld; else it
 * passes, which costs credit of back-off. A segment that is submitted goes out as the graph of its
 * longest part that has one, which variants picks, and the rest one by one. Where an iteration
 * ends, its time goes to profit.
 *
 * How one depends on another:
 * - ends that history moves from iteration to iteration are new paths for the matcher, each with
 *   graphs of its own: this is why history prefers stable ends to even lengths;
 * - launches that update most nodes (variants neither had a graph that fits nor foresaw them), in
 *   some dozen iterations in a row, make history let segments grow more slowly, since then the host
 *   is the slower side; and a launch gives back-off credit;
 * - in an iteration that profit wants eager nothing can be gained: back-off charges nothing for it,
 *   unless it is very long, and history does not measure the pace, which would be the driver's;
 * - of a stream in back-off history and matcher see nothing. The segment that back-off cuts off is
 *   not learnt, and the iteration in which sampling resumes is not timed;
 * - a mark of NVTX ends back-off, and is history's anchor;
 * - a new stream begins in back-off, for a few operations, unless ALLOGRAFT_GRAPH_PROFIT is 0. */
#ifndef AG_GRAPH_REPLAYER_H
#define AG_GRAPH_REPLAYER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "graph/learn/marks.h"
#include "graph/record/op.h"
#include "interpose/core/driver/abi.h"
#include "interpose/core/report/stats.h"
#include "interpose/core/settings/options.h"

struct ag_stream;
struct ag_staged;
struct ag_ring;
struct ag_context;

/* Why withheld work was flushed, in the order of the AG_STAT_FLUSH_* rows. */
enum ag_flush {
    AG_FLUSH_STREAM,       /* a wait for, or a query of, a stream */
    AG_FLUSH_EVENT,        /* an event recorded, or waited for by a stream */
    AG_FLUSH_DEVICE,       /* a wait for the context, or for an event */
    AG_FLUSH_COPY,         /* a copy that blocks or cannot be recorded */
    AG_FLUSH_OTHER_STREAM, /* work on the legacy stream, or beside it on a blocking one */
    AG_FLUSH_FREE,         /* memory freed */
    AG_FLUSH_UNRECORDED,   /* an operation that cannot be recorded */
    AG_FLUSH_CAPTURE,      /* a capture, or a graph of the program */
    AG_FLUSH_CODE,         /* code unloaded, attributes of functions changed */
    AG_FLUSH_CALL,         /* any other call of the driver */
    AG_FLUSH_WATCHDOG,     /* nothing came for ALLOGRAFT_GRAPH_HOLD_US */
    AG_FLUSH_END,          /* a stream, a context, the process ends */
    AG_N_FLUSH
};

/* Streams that are open (they may withhold something), in the whole process. What must come after
 * withheld work reads this first. */
extern _Atomic uint32_t ag_replay_withheld;

static inline bool ag_replay_holds(void)
{
    return __builtin_expect(atomic_load_explicit(&ag_replay_withheld, memory_order_acquire) != 0,
                            0);
}

/* The fast path of the calling thread: the stream it used last, if that is not marked or in
 * back-off. While `version` is current and `held` is 0, operations on it go straight to the driver.
 */
struct ag_fast_path {
    CUstream stream; /* NULL: there is none */
    uint64_t version;
    const _Atomic uint32_t *held; /* streams that withhold what it must come after */
    uint32_t left;                /* operations, until the stream's state is read again */
    bool backed_off;              /* operations are counted */
};
extern _Thread_local struct ag_fast_path ag_fast_path;
extern _Atomic uint32_t ag_stream_changes; /* streams that were retired, or sampled again */

static inline uint64_t ag_replay_version(void)
{
    return (uint64_t)atomic_load_explicit(&ag_stream_changes, memory_order_acquire) +
           ag_marks_version();
}

static inline CUstream ag_replay_stream(CUstream stream, bool per_thread)
{
    return stream ? stream : per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

/* Need a wait for the stream, or a query of it, flush nothing? */
static inline bool ag_replay_is_on_fast_path(CUstream stream)
{
    return ag_fast_path.stream == stream && ag_fast_path.version == ag_replay_version() &&
           !atomic_load_explicit(ag_fast_path.held, memory_order_seq_cst);
}

/* Passes one operation on the fast path, and counts it. False: not on the fast path. */
static inline bool ag_replay_try_pass(CUstream stream)
{
    if (!ag_replay_is_on_fast_path(stream) || !ag_fast_path.left || ag_marks_met)
        return false;
    ag_fast_path.left--;
    if (ag_fast_path.backed_off) {
        ag_stats_add_again(AG_STAT_REPLAY_SEEN, 1);
        ag_stats_add_again(AG_STAT_REPLAY_SLEPT, 1);
    }
    return true;
}

void ag_replay_configure(const struct ag_options *options);
/* A context was created: allocates ahead of time what its first operations need. */
void ag_replay_prepare(void);
/* Is replay on: asked for, and possible with this driver? */
bool ag_replay_on(void);

/* Flushes what an operation on the stream must come after. Returns the stream's state, owned by the
 * calling thread until take or pass; NULL: the operation is not recorded (the stream is not marked
 * or in back-off, a capture is open). */
struct ag_stream *ag_replay_enter(CUstream stream, bool per_thread);
/* Where the operation is to be written, with room for its payload: its place in the segment. NULL
 * without memory. */
struct ag_op *ag_replay_op(struct ag_stream *stream);
/* Would ag_replay_take() withhold the operation? (Else staging its data would be in vain.) */
bool ag_replay_would_withhold(struct ag_stream *stream);
/* Both disown the stream. take: records the operation that was written; true: it is withheld. pass:
 * the operation cannot be recorded; flushes the stream; always false. */
bool ag_replay_take(struct ag_stream *stream);
bool ag_replay_pass(struct ag_stream *stream, enum ag_flush why);
/* The driver refused the operation that passed last: its segment is not learnt. */
void ag_replay_refused(struct ag_stream *stream);

/* Flushes: on return what was withheld has been submitted, by this thread or another. Cheap when
 * nothing is withheld. */
void ag_replay_flush_stream(CUstream stream, bool per_thread, enum ag_flush why);
void ag_replay_flush_context(struct ag_context *context, enum ag_flush why); /* NULL: current */
void ag_replay_flush_thread(enum ag_flush why); /* of what this thread submitted last */
void ag_replay_flush_all(enum ag_flush why);
void ag_replay_flush_before_work(void); /* on a stream that is not known */
/* Memory is about to be allocated in the order of the stream. What the stream withholds does not
 * use that memory and stays withheld, with two exceptions:
 * - on the legacy stream the allocation is ordered against all blocking streams: these are flushed;
 * - another thread may submit what a per-thread stream withholds, after the point where
 *   withholding began (its proxy). What uses the memory must come after the allocation; so the
 *   stream is flushed, and withholding begins anew. */
void ag_replay_allocates(CUstream stream, bool per_thread);

/* The result of a call that may report errors of earlier work: the driver's, or the error of
 * withheld work that the driver refused, which is reported once. */
CUresult ag_replay_late(CUresult result);

/* Functions, their attributes or modules change, or what graphs take from their context: flushes,
 * and drops every graph and trie. unloads: on return all are gone; else a stream whose owner is
 * held up in the driver drops its own before its next operation. */
void ag_replay_forget_code(enum ag_flush why, bool unloads);
/* A stream was created, or is about to be destroyed; a context is gone with its streams. */
void ag_replay_stream_created(CUstream stream, unsigned flags, int priority);
void ag_replay_stream_dying(CUstream stream);
void ag_replay_context_gone(struct ag_context *context);
/* Attributes of a stream were set: it is not replayed from now on. */
void ag_replay_stream_altered(CUstream stream);

void ag_replay_stop(void); /* flushes; from then on all operations pass */
/* The process ends: flushes, and waits a little for the device. `for_good`: and stops replay. */
void ag_replay_exit(bool for_good);
void ag_replay_begin_child(void); /* in a forked child: on as before, but nothing is withheld */

#endif
