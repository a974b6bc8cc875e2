/* One stream that may be replayed, and the table of them. For the files of the replayer only.
 *
 * A stream is *owned* by one thread at a time: ag_stream_own, ag_stream_disown. Unlike a lock,
 * ownership is kept across driver calls, since the order of a stream is the order of these calls.
 * So that nothing can wait in a circle, a thread owns one stream at a time: what other streams hold
 * goes out before it takes its own. */
#ifndef AG_GRAPH_STREAM_H
#define AG_GRAPH_STREAM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "graph/learn/backoff.h"
#include "graph/learn/history.h"
#include "graph/learn/kinds.h"
#include "graph/learn/matcher.h"
#include "graph/record/op.h"
#include "graph/record/staging.h"
#include "graph/replayer.h"
#include "interpose/driver/abi.h"

#define AG_MAX_STREAMS 512u

struct ag_context;

/* What streams of one context share. */
struct ag_context_state {
    _Atomic(struct ag_context *) context;
    _Atomic(struct ag_ring *) ring;
    _Atomic bool ring_tried;
    _Atomic bool failed; /* its work failed: everything is the driver's from then on */
    _Atomic int late;    /* an error of released work that nobody has seen: a CUresult */
};

/* Is there any shared whose `late` was ever set? */
extern _Atomic bool ag_stream_any_late;

enum ag_stream_mode {
    AG_STREAM_PASSING, /* the segment's operations go to the driver as they come */
    AG_STREAM_HOLDING, /* all of the segment is withheld */
};

/* Memory for payloads, taken in order and given back at once. */
struct ag_store {
    struct ag_chunk *first, *chunk;
    uint32_t at;
};

struct ag_stream {
    _Atomic uint32_t owner; /* a thread's tag, or 0 */
    _Atomic bool open;      /* the segment has operations, or what follows must be settled first */
    _Atomic bool holding;   /* some are withheld */
    _Atomic bool dead;      /* the stream is gone: out of the table */
    _Atomic bool asleep;    /* nothing is withheld, and operations pass; its owner says so */
    _Atomic uint32_t backoff_left;  /* operations until it is to wake; who passes counts, roughly */
    _Atomic uint32_t turn;          /* grows with every operation withheld: for the watchdog */
    _Atomic uint32_t stretch;       /* grows each time withholding begins: likewise */
    _Atomic uint32_t last_thread;   /* that submitted */
    _Atomic uint32_t marks_version; /* at which `marked` was asked for */
    struct ag_stream *next_free;    /* of those that were retired */

    /* Set when it is made. Others may look at a stream that was theirs, is retired and made
     * anew. */
    _Atomic uint32_t number; /* place in the table */
    _Atomic(CUstream) handle;
    _Atomic(struct ag_context *) context;
    _Atomic uint32_t thread; /* of a per-thread stream: its tag, else 0 */
    _Atomic pid_t tid;       /* of that thread */
    _Atomic bool marked, is_legacy, is_blocking;

    /* Likewise; from here on all is cleared when a stream is made anew, and is the owner's: */
    struct ag_context_state *shared;
    int priority;
    uint64_t stream_number; /* of the streams the program created; 0: none of them */
    bool altered;           /* the stream has attributes of its own */
    bool spoiled;           /* the driver refused an operation of this segment: it is not learnt */
    bool may_replay;        /* in this round */
    bool prepared; /* the operation that comes has been looked at: what follows is about it */
    bool will_hold;
    uint64_t hash;
    struct ag_node *next; /* where it leads, if that is known */
    enum ag_stream_mode mode;
    struct ag_matcher *matcher; /* NULL until the first operation */
    struct ag_history *history;
    struct ag_backoff *backoff;
    uint32_t backoff_length;
    struct ag_node *node; /* where the segment is */
    struct ag_op *ops;    /* of the segment, from its start */
    uint32_t n_ops, max_ops;
    struct ag_store store;
    struct ag_staged staged;
    uint32_t n_graphs;
    uint64_t n_anchors; /* of the history, when it was last asked */

    struct ag_kinds kinds;            /* of its rounds */
    uint64_t round_began, round_path; /* path: a hash of its operations */
    uint32_t round_ops, round_graph_ops;
    bool round_built;                   /* graphs were built in this round */
    uint32_t since_wait, between_waits; /* operations; between the last two */

    /* Of a per-thread stream, to which no other thread can submit: */
    CUevent before, behind;
    CUstream proxy;
    bool proxied; /* work is on the proxy that the stream must wait for */
};

/* The calling thread's tag, never 0, never used again. */
uint32_t ag_stream_thread(void);

/* The stream of a stream in a context; made for the legacy and per-thread streams, others must have
 * been announced. NULL: there is none. */
struct ag_stream *ag_stream_of(struct ag_context *context, CUstream stream);
/* Is it still that stream's, now that it is owned? (It may have been retired and made anew.) */
bool ag_stream_is_of(const struct ag_stream *stream, const struct ag_context *context,
                     CUstream handle);
/* Is it known, without a question to the driver, that work on the stream is not recorded (it is not
 * marked, or asleep) and comes after nothing that is withheld? Only of the stream that the thread
 * used last. NULL, or the stream. */
struct ag_stream *ag_stream_resting(CUstream stream);
/* May one more operation pass, of a stream that may be asleep? Counts it. */
bool ag_stream_sleeps(struct ag_stream *stream);
/* Any of this handle, without a context (NULL for the two special ones). */
struct ag_stream *ag_stream_find(CUstream stream);
/* Announces a stream that was created. */
void ag_stream_announce(struct ag_context *context, CUstream stream, bool blocking, int priority);
/* The stream, which has no stream, must not be given one later. */
void ag_stream_bar(CUstream stream);
/* Asks again whether it is marked, if a stream was given a name meanwhile. Not owned. */
void ag_stream_remark(struct ag_stream *stream);
/* Calls `visit` for every stream that is open. */
void ag_stream_each_open(void (*visit)(struct ag_stream *stream, void *data), void *data);
/* Calls `visit` for every stream there is. */
void ag_stream_each(void (*visit)(struct ag_stream *stream, void *data), void *data);

/* False, and not owned: the stream is retired, or the calling thread owns it already (a signal's
 * handler that leaves the process). within: false also when its owner kept it for so long. */
bool ag_stream_own(struct ag_stream *stream);
bool ag_stream_own_within(struct ag_stream *stream, uint64_t timeout_ns);
void ag_stream_disown(struct ag_stream *stream);
/* Both keep the counts that others read; owned. */
void ag_stream_set_open(struct ag_stream *stream, bool open);
void ag_stream_set_holding(struct ag_stream *stream, bool holding);
/* Does any stream that is ordered against this one (legacy against blocking) hold something? Cheap.
 */
bool ag_stream_conflicts(bool is_legacy, bool is_blocking);

/* Takes a stream out of the table and gives its memory back; owned before, nobody's after. */
void ag_stream_retire(struct ag_stream *stream, bool context_gone);
/* The shared of a context, made on first need; NULL when there are too many. */
struct ag_context_state *ag_context_state_of(struct ag_context *context);
/* The context is gone, and no stream of it is left. */
void ag_context_state_leave(struct ag_context *context);
void ag_stream_begin_child(void);

/* Room for `bytes` (at most AG_MAX_PAYLOAD), or NULL without memory. take: it is used. */
unsigned char *ag_store_room(struct ag_store *store);
void ag_store_take(struct ag_store *store, uint32_t bytes);
void ag_store_reset(struct ag_store *store);
void ag_store_free(struct ag_store *store);
/* Room for one more operation; false without memory. */
bool ag_stream_reserve(struct ag_stream *stream);
/* Makes the memory that the next streams take as they see their first operation; of a few. */
void ag_stream_prepare(void);

/* --- segments (segment.c); the stream is owned, its context current --- */

/* Submits what is withheld: the longest part that has a graph as that, the rest one by one. */
void ag_segment_submit(struct ag_stream *stream);
/* Ends the segment: submits, learns, may build a graph. `flushed`: not by a boundary of the
 * history. */
void ag_segment_end(struct ag_stream *stream, bool flushed, enum ag_flush why);
/* What the stream holds must go out: counted, and told. */
void ag_segment_flushed(struct ag_stream *stream, enum ag_flush why);
/* A round ends here: the host waits, or (free_running) an iteration begins and nobody waits. */
void ag_segment_round(struct ag_stream *stream, bool free_running);
/* The first operation on the stream: makes what it needs. False without memory. */
bool ag_segment_init_resources(struct ag_stream *stream);
/* All of the segment is withheld from now on. False: it cannot be. */
bool ag_segment_hold(struct ag_stream *stream);
/* Work that another thread had to submit for this one's stream comes before what follows. */
void ag_segment_settle(struct ag_stream *stream);
/* All graphs and all that was learnt goes. context_gone: without driver calls. */
void ag_segment_forget(struct ag_stream *stream, bool context_gone);
/* Likewise, and all else that it has of the driver's. */
void ag_segment_leave(struct ag_stream *stream, bool context_gone);
void ag_segment_configure(const struct ag_options *options);
struct ag_ring *ag_segment_ring(struct ag_stream *stream);

/* --- the watchdog (watchdog.c) --- */
void ag_watchdog_configure(uint64_t hold_ns);
/* Something is about to be withheld. Cheap while it is awake; false: there is no watchdog to be
 * had. */
bool ag_watchdog_wake(void);
/* Starts it, if it never was. */
void ag_watchdog_start(void);
/* The process ends: waits until all contexts have done what was submitted to them, for
 * `timeout_ns` at most. */
void ag_watchdog_last(uint64_t timeout_ns);
void ag_watchdog_begin_child(void);

#endif
