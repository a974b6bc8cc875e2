/* The state of one stream that may be replayed, and the table of these states. Included by the
 * replayer's own files only (streams.c, replayer.c, replay/segment.c, replay/watchdog.c); hooks see
 * graph/replayer.h.
 *
 * In this folder `stream` is our state, `handle` the driver's CUstream.
 *
 * A state is *owned* by one thread at a time (ag_stream_own, ag_stream_disown). Ownership is not a
 * lock: it is kept across driver calls, because the order of these calls is the order of the
 * stream. A thread owns one stream at a time and flushes the others that its operation depends on
 * before it takes its own, so no two threads can wait for each other in a circle.
 *
 * Who may touch what:
 * - the atomic fields at the top: any thread may read them; the comment says who writes. What the
 *   owner loads is relaxed, since owning acquires and disowning releases; so is what only chooses
 *   which streams to own;
 * - `id`: set when a handle gets its state. Others may read the atomic part while the state is
 *   retired and reused for another handle; they then see a mixture, and ask ag_stream_is_of() again
 *   once they own it;
 * - everything after `id`: the owner alone. */
#ifndef AG_GRAPH_STREAM_H
#define AG_GRAPH_STREAM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "graph/learn/backoff.h"
#include "graph/learn/history.h"
#include "graph/learn/matcher.h"
#include "graph/learn/profit.h"
#include "graph/record/op.h"
#include "graph/record/staging.h"
#include "graph/replayer.h"
#include "interpose/core/driver/abi.h"

#define AG_MAX_STREAMS 512u

struct ag_context;

/* What the streams of one context share. */
struct ag_context_state {
    _Atomic(struct ag_context *) context;
    _Atomic(struct ag_ring *) ring;
    _Atomic bool ring_tried;
    _Atomic bool failed; /* a sticky error: from now on nothing is withheld in this context */
    _Atomic int
        late; /* CUresult of withheld work that failed when it was submitted; not told yet */
};

/* Was `late` of any context ever set? */
extern _Atomic bool ag_stream_any_late;

/* Memory for payloads: taken in order, given back all at once. */
struct ag_chunk {
    struct ag_chunk *next;
    _Alignas(8) unsigned char bytes[(256u << 10) - 16];
};
struct ag_store {
    struct ag_chunk *first, *chunk;
    uint32_t at;
};

struct ag_stream_id {
    _Atomic uint32_t number;        /* index in the table */
    _Atomic uint32_t thread;        /* of a per-thread stream: its thread's tag, else 0 */
    _Atomic uint32_t marks_version; /* ag_marks_version() when `marked` was computed */
    _Atomic pid_t tid;              /* the kernel's id of that thread */
    _Atomic(CUstream) handle;
    _Atomic(struct ag_context *) context;
    _Atomic bool marked, is_legacy, is_blocking;
    /* The fields from here on are plain, and the owner's. */
    struct ag_context_state *shared;
    int priority;
    uint64_t created; /* the program's n-th created stream, from 1; 0: not created by it */
};

/* The operation that is about to be withheld or passed: prepare() of replayer.c. */
struct ag_next_op {
    struct ag_op *op; /* where it is written: after the segment's last one */
    bool prepared;    /* the rest is valid */
    bool will_hold;
    uint64_t hash;
    struct ag_node *node; /* the node that it leads to; NULL: not in the trie yet */
};

enum ag_segment_mode {
    AG_SEGMENT_PASSING, /* the segment's operations go to the driver as they come */
    AG_SEGMENT_HOLDING, /* all of the segment is withheld */
};

/* The segment that is being recorded. */
struct ag_segment {
    struct ag_node *node; /* its last operation, in the trie; NULL: not kept there */
    struct ag_op *ops;
    uint32_t n_ops, max_ops;
    uint32_t n_uploads; /* withheld ones from pageable memory that it begins with: copies.c */
    enum ag_segment_mode mode;
    bool spoiled; /* must not be learnt: the driver refused one of its operations */
    struct ag_store store;
    struct ag_staged staged;
};

/* The iteration that runs, for the comparison of replayed and eager ones. */
struct ag_running_iteration {
    uint64_t began_ns; /* 0: its beginning was not seen, so no time is taken */
    uint32_t n_ops, n_graph_ops;
    bool built;                         /* graphs were built in it */
    bool may_replay;                    /* as ag_profit_replays() said when it began */
    uint32_t since_wait, between_waits; /* operations; between the last two waits of the host */
    struct ag_node
        *launched[AG_FORESEEN_MOST]; /* graphs launched since that wait, the first ones */
    uint32_t n_launched;
};

/* What was learnt of the stream. */
struct ag_learned {
    struct ag_matcher *matcher; /* NULL until the first operation; likewise the next two */
    struct ag_history *history;
    struct ag_backoff *backoff;
    uint32_t backoff_length; /* operations, of the back-off that runs */
    uint32_t n_graphs;
    bool has_gained;        /* a graph was launched */
    uint64_t n_anchors;     /* of the history, when it was last asked */
    uint64_t passing_since; /* ns, when the first operation of a segment passed; or 0 */
    uint64_t eager_op_ps;   /* of the host, for an operation that passes: the least seen; or 0 */
    uint32_t building;      /* iterations in which graphs were built, which did not count */
    struct ag_profit profit[2]; /* of iterations that are waited for; that are not */
};

/* Only the thread of a per-thread stream can submit to it. Others submit to a stream of ours. */
struct ag_proxy {
    CUstream stream;
    CUevent before, after; /* recorded where withholding began; after the work of `stream` */
    bool pending;          /* `stream` has work that the per-thread stream must wait for */
};

/* A withheld launch touches the first 256 bytes: four cache lines, up to the pointers of `learned`.
 * What it does not touch comes after. */
struct ag_stream {
    _Atomic uint32_t owner;        /* a thread's tag, or 0 */
    _Atomic bool open;             /* the segment has operations, or the proxy has work */
    _Atomic bool holding;          /* some are withheld */
    _Atomic bool dead;             /* retired: out of the table */
    _Atomic bool backed_off;       /* nothing is withheld or recorded; the owner writes it */
    _Atomic uint32_t backoff_left; /* operations; every thread that passes one counts, roughly */
    _Atomic uint32_t sequence;     /* grows with every operation withheld: for the watchdog */
    _Atomic uint32_t epoch;        /* grows each time withholding begins: likewise */
    _Atomic uint32_t last_thread;  /* the tag of the one that submitted last */
    _Atomic uint64_t threads;      /* that ever submitted: a bit each, its tag modulo 64 */
    struct ag_stream_id id;
    bool altered; /* the program set attributes of the stream: it is not replayed any more */
    uint32_t code_version; /* replayer.c's, when its graphs were dropped last */
    struct ag_next_op next;
    struct ag_segment segment;
    struct ag_running_iteration iteration;
    struct ag_learned learned;
    struct ag_proxy proxy;
    struct ag_stream *next_free; /* of those that were retired; the table's */
};

/* profit: is replay to be kept only where it gains (ALLOGRAFT_GRAPH_PROFIT)? */
void ag_stream_configure(bool profit);

/* The calling thread's tag: never 0, never used again. */
extern _Thread_local uint32_t ag_stream_tag; /* 0 until the first call */
uint32_t ag_stream_new_tag(void);
static inline uint32_t ag_stream_thread(void)
{
    return ag_stream_tag ? ag_stream_tag : ag_stream_new_tag();
}

/* What the calling thread looked up last; stream NULL: there was none. */
struct ag_stream_looked_up {
    struct ag_context *context;
    CUstream handle;
    struct ag_stream *stream;
    uint32_t generation;
};
extern _Thread_local struct ag_stream_looked_up ag_stream_last;
/* Grows when a state comes or goes: then what threads remember is stale. */
extern _Atomic uint32_t ag_stream_generation;

/* The state of a handle in a context; made here for the legacy and per-thread streams, others must
 * have been announced. NULL: there is none. */
struct ag_stream *ag_stream_look_up(struct ag_context *context, CUstream handle);
/* Has the handle a state in the context by now? */
bool ag_stream_is_known(const struct ag_context *context, CUstream handle);
/* Is it the per-thread stream, in that context, of a thread that has ended? No call tells of that.
 * True: it is owned. False, too, while another thread owns it, who may be held up in the driver. */
bool ag_stream_has_ended(struct ag_stream *stream, const struct ag_context *context);
/* Is ag_stream_last what looking it up would return? */
static inline bool ag_stream_was_last(const struct ag_context *context, CUstream handle)
{
    return ag_stream_last.handle == handle && ag_stream_last.context == context &&
           ag_stream_last.generation ==
               atomic_load_explicit(&ag_stream_generation, memory_order_acquire);
}

static inline bool ag_stream_is_special(CUstream handle)
{
    return handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD;
}

/* Is it still that handle's, now that it is owned? (It may have been retired and reused.) */
static inline bool ag_stream_is_of(const struct ag_stream *stream, const struct ag_context *context,
                                   CUstream handle)
{
    const memory_order relaxed = memory_order_relaxed;

    if (atomic_load_explicit(&stream->id.handle, relaxed) != handle ||
        (ag_stream_is_special(handle) &&
         atomic_load_explicit(&stream->id.context, relaxed) != context))
        return false;
    return handle != CU_STREAM_PER_THREAD ||
           atomic_load_explicit(&stream->id.thread, relaxed) == ag_stream_thread();
}

/* Are its operations inspected? */
static inline bool ag_stream_is_sampled(const struct ag_stream *stream)
{
    return atomic_load_explicit(&stream->id.marked, memory_order_relaxed) &&
           !atomic_load_explicit(&stream->backed_off, memory_order_acquire);
}

/* If work on the handle need not be recorded (not marked, or backed off) and depends on nothing
 * that is withheld, puts that into the calling thread's ag_fast_path and returns the state. Else
 * NULL. Asks no driver; knows only the handle that the thread used last. */
struct ag_stream *ag_stream_update_fast_path(CUstream handle);
/* Counts one operation that passes a stream in back-off. False: it is not in back-off, or that ends
 * with this operation; nothing was counted. */
bool ag_stream_pass_backed_off(struct ag_stream *stream);
static inline bool ag_stream_try_pass(struct ag_stream *stream)
{
    return atomic_load_explicit(&stream->backed_off, memory_order_acquire) &&
           ag_stream_pass_backed_off(stream);
}
/* The state of a handle, whatever its context; NULL for the two special handles. */
struct ag_stream *ag_stream_find(CUstream handle);
/* The program created a stream. */
void ag_stream_announce(struct ag_context *context, CUstream handle, bool blocking, int priority);
/* A handle that has no state must not get one later. */
void ag_stream_forbid(CUstream handle);
/* Computes `marked` again, as names of streams have changed, and returns it; owned. */
bool ag_stream_remark(struct ag_stream *stream);
static inline bool ag_stream_mark_is_stale(const struct ag_stream *stream)
{
    return atomic_load_explicit(&stream->id.marks_version, memory_order_relaxed) !=
           ag_marks_version();
}
/* Calls `visit` for every stream that is open; for every stream there is. */
void ag_stream_each_open(void (*visit)(struct ag_stream *stream, void *data), void *data);
void ag_stream_each(void (*visit)(struct ag_stream *stream, void *data), void *data);

static inline void ag_stream_disown(struct ag_stream *stream)
{
    atomic_store_explicit(&stream->owner, 0, memory_order_release);
}

/* True: the caller owns the stream now. False: *ret_owner does. */
static inline bool ag_stream_try_own(struct ag_stream *stream, uint32_t tag, uint32_t *ret_owner)
{
    *ret_owner = 0;
    return atomic_compare_exchange_strong_explicit(&stream->owner, ret_owner, tag,
                                                   memory_order_acquire, memory_order_relaxed);
}

/* Waits until its owner disowns it, or it is retired. */
bool ag_stream_wait_for_owner(struct ag_stream *stream, uint64_t timeout_ns);

/* False, and not owned: the state is retired, or the calling thread owns it already (a signal
 * handler that leaves the process). within: false also after `timeout_ns`. */
static inline bool ag_stream_own_within(struct ag_stream *stream, uint64_t timeout_ns)
{
    uint32_t owner;

    if (!ag_stream_try_own(stream, ag_stream_thread(), &owner) &&
        !ag_stream_wait_for_owner(stream, timeout_ns))
        return false;
    if (!atomic_load_explicit(&stream->dead, memory_order_relaxed))
        return true;
    ag_stream_disown(stream);
    return false;
}

static inline bool ag_stream_own(struct ag_stream *stream)
{
    return ag_stream_own_within(stream, UINT64_MAX);
}
/* Sets whether the stream is open, and keeps the counts that others read. The caller owns the
 * stream. */
void ag_stream_set_open(struct ag_stream *stream, bool open);
void ag_stream_set_holding(struct ag_stream *stream, bool holding);
/* The legacy streams, and the blocking streams, that withhold something. */
extern _Atomic uint32_t ag_stream_held_legacy, ag_stream_held_blocking;
/* Does any stream that is ordered against this one (legacy against blocking) withhold something? */
static inline bool ag_stream_conflicts(bool is_legacy, bool is_blocking)
{
    if (is_legacy)
        return atomic_load_explicit(&ag_stream_held_blocking, memory_order_seq_cst) != 0;
    return is_blocking && atomic_load_explicit(&ag_stream_held_legacy, memory_order_seq_cst) != 0;
}

/* Takes a state, of which ag_segment_release() has dropped the graphs, out of the table and frees
 * its memory. Owned before, nobody's after. */
void ag_stream_retire(struct ag_stream *stream);
/* What streams of a context share, made on first need; NULL when there are too many contexts. */
struct ag_context_state *ag_context_state_of(struct ag_context *context);
/* The context is gone, and no stream of it is left. */
void ag_context_state_leave(struct ag_context *context);
void ag_stream_begin_child(void);

/* Room for AG_MAX_PAYLOAD bytes, or NULL without memory. take: so many of them are used. */
unsigned char *ag_store_next_chunk(struct ag_store *store);
static inline unsigned char *ag_store_room(struct ag_store *store)
{
    return store->chunk && store->at + AG_MAX_PAYLOAD <= sizeof(store->chunk->bytes)
               ? store->chunk->bytes + store->at
               : ag_store_next_chunk(store);
}
static inline void ag_store_take(struct ag_store *store, uint32_t bytes)
{
    store->at += (bytes + 7) & ~7u;
}
void ag_store_reset(struct ag_store *store);
void ag_store_free(struct ag_store *store);
/* Room for one more operation; false without memory. */
bool ag_stream_more_ops(struct ag_stream *stream);
static inline bool ag_stream_reserve(struct ag_stream *stream)
{
    return stream->segment.n_ops < stream->segment.max_ops || ag_stream_more_ops(stream);
}
/* Allocates ahead of time what the next streams need for their first operation; of a few. */
void ag_stream_prepare(void);

#endif
