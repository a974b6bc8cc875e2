/* One stream that may be replayed, and the table of them. For the files of the replayer only.
 *
 * A lane is *owned* by one thread at a time: ag_lane_own, ag_lane_disown. Unlike a lock, ownership
 * is kept across driver calls, since the order of a stream is the order of these calls. So that
 * nothing can wait in a circle, a thread owns one lane at a time: what other lanes hold goes out
 * before it takes its own. */
#ifndef AG_GRAPH_LANE_H
#define AG_GRAPH_LANE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "graph/learn/history.h"
#include "graph/learn/kinds.h"
#include "graph/learn/matcher.h"
#include "graph/learn/nap.h"
#include "graph/record/op.h"
#include "graph/record/staging.h"
#include "graph/replayer.h"
#include "interpose/driver/abi.h"

#define AG_MAX_LANES 512u

struct ag_context;

/* What lanes of one context share. */
struct ag_home {
    _Atomic(struct ag_context *) context;
    _Atomic(struct ag_ring *) ring;
    _Atomic bool ring_tried;
    _Atomic bool failed; /* its work failed: everything is the driver's from then on */
    _Atomic int late;    /* an error of released work that nobody has seen: a CUresult */
};

/* Is there any home whose `late` was ever set? */
extern _Atomic bool ag_lane_any_late;

enum ag_lane_mode {
    AG_LANE_PASSING, /* the segment's operations go to the driver as they come */
    AG_LANE_HOLDING, /* all of the segment is withheld */
};

/* Memory for payloads, taken in order and given back at once. */
struct ag_store {
    struct ag_chunk *first, *chunk;
    uint32_t at;
};

struct ag_lane {
    _Atomic uint32_t owner; /* a thread's tag, or 0 */
    _Atomic bool open;      /* the segment has operations, or what follows must be settled first */
    _Atomic bool holding;   /* some are withheld */
    _Atomic bool dead;      /* the stream is gone: out of the table */
    _Atomic bool asleep;    /* nothing is withheld, and operations pass; its owner says so */
    _Atomic uint32_t nap_left;      /* operations until it is to wake; who passes counts, roughly */
    _Atomic uint32_t turn;          /* grows with every operation withheld: for the watchdog */
    _Atomic uint32_t stretch;       /* grows each time withholding begins: likewise */
    _Atomic uint32_t last_thread;   /* that submitted */
    _Atomic uint32_t marks_version; /* at which `marked` was asked for */
    struct ag_lane *next_free;      /* of those that were retired */

    /* Set when it is made. Others may look at a lane that was theirs, is retired and made anew. */
    _Atomic uint32_t number; /* place in the table */
    _Atomic(CUstream) stream;
    _Atomic(struct ag_context *) context;
    _Atomic uint32_t thread; /* of a per-thread stream: its tag, else 0 */
    _Atomic pid_t tid;       /* of that thread */
    _Atomic bool marked, is_legacy, is_blocking;

    /* Likewise; from here on all is cleared when a lane is made anew, and is the owner's: */
    struct ag_home *home;
    int priority;
    uint64_t stream_number; /* of the streams the program created; 0: none of them */
    bool altered;           /* the stream has attributes of its own */
    bool spoiled;           /* the driver refused an operation of this segment: it is not learnt */
    bool may_replay;        /* in this round */
    bool prepared; /* the operation that comes has been looked at: what follows is about it */
    bool will_hold;
    uint64_t hash;
    struct ag_node *next; /* where it leads, if that is known */
    enum ag_lane_mode mode;
    struct ag_matcher *matcher; /* NULL until the first operation */
    struct ag_history *history;
    struct ag_nap *nap;
    uint32_t nap_length;
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
uint32_t ag_lane_thread(void);

/* The lane of a stream in a context; made for the legacy and per-thread streams, others must have
 * been announced. NULL: there is none. */
struct ag_lane *ag_lane_of(struct ag_context *context, CUstream stream);
/* Is it still that stream's, now that it is owned? (It may have been retired and made anew.) */
bool ag_lane_is_of(const struct ag_lane *lane, const struct ag_context *context, CUstream stream);
/* Is it known, without a question to the driver, that work on the stream is not recorded (it is not
 * marked, or asleep) and comes after nothing that is withheld? Only of the stream that the thread
 * used last. NULL, or the lane. */
struct ag_lane *ag_lane_resting(CUstream stream);
/* May one more operation pass, of a lane that may be asleep? Counts it. */
bool ag_lane_sleeps(struct ag_lane *lane);
/* Any of this handle, without a context (NULL for the two special ones). */
struct ag_lane *ag_lane_find(CUstream stream);
/* Announces a stream that was created. */
void ag_lane_announce(struct ag_context *context, CUstream stream, bool blocking, int priority);
/* The stream, which has no lane, must not be given one later. */
void ag_lane_bar(CUstream stream);
/* Asks again whether it is marked, if a stream was given a name meanwhile. Not owned. */
void ag_lane_remark(struct ag_lane *lane);
/* Calls `visit` for every lane that is open. */
void ag_lane_each_open(void (*visit)(struct ag_lane *lane, void *data), void *data);
/* Calls `visit` for every lane there is. */
void ag_lane_each(void (*visit)(struct ag_lane *lane, void *data), void *data);

/* False, and not owned: the lane is retired, or the calling thread owns it already (a signal's
 * handler that leaves the process). within: false also when its owner kept it for so long. */
bool ag_lane_own(struct ag_lane *lane);
bool ag_lane_own_within(struct ag_lane *lane, uint64_t patience_ns);
void ag_lane_disown(struct ag_lane *lane);
/* Both keep the counts that others read; owned. */
void ag_lane_set_open(struct ag_lane *lane, bool open);
void ag_lane_set_holding(struct ag_lane *lane, bool holding);
/* Does any lane that is ordered against this one (legacy against blocking) hold something? Cheap.
 */
bool ag_lane_conflicts(bool is_legacy, bool is_blocking);

/* Takes a lane out of the table and gives its memory back; owned before, nobody's after. */
void ag_lane_retire(struct ag_lane *lane, bool context_gone);
/* The home of a context, made on first need; NULL when there are too many. */
struct ag_home *ag_home_of(struct ag_context *context);
/* The context is gone, and no lane of it is left. */
void ag_home_leave(struct ag_context *context);
void ag_lane_forget_all(void);

/* Room for `bytes` (at most AG_MAX_PAYLOAD), or NULL without memory. take: it is used. */
unsigned char *ag_store_room(struct ag_store *store);
void ag_store_take(struct ag_store *store, uint32_t bytes);
void ag_store_reset(struct ag_store *store);
void ag_store_free(struct ag_store *store);
/* Room for one more operation; false without memory. */
bool ag_lane_reserve(struct ag_lane *lane);
/* Makes the memory that the next lanes take as they see their first operation; of a few. */
void ag_lane_prepare(void);

/* --- segments (segment.c); the lane is owned, its context current --- */

/* Submits what is withheld: the longest part that has a graph as that, the rest one by one. */
void ag_segment_submit(struct ag_lane *lane);
/* Ends the segment: submits, learns, may build a graph. `flushed`: not by a boundary of the
 * history. */
void ag_segment_end(struct ag_lane *lane, bool flushed, enum ag_flush why);
/* What the lane holds must go out: counted, and told. */
void ag_segment_flushed(struct ag_lane *lane, enum ag_flush why);
/* A round ends here: the host waits, or (free_running) an iteration begins and nobody waits. */
void ag_segment_round(struct ag_lane *lane, bool free_running);
/* The first operation on the lane: makes what it needs. False without memory. */
bool ag_segment_equip(struct ag_lane *lane);
/* All of the segment is withheld from now on. False: it cannot be. */
bool ag_segment_hold(struct ag_lane *lane);
/* Work that another thread had to submit for this one's stream comes before what follows. */
void ag_segment_settle(struct ag_lane *lane);
/* All graphs and all that was learnt goes. context_gone: without driver calls. */
void ag_segment_forget(struct ag_lane *lane, bool context_gone);
/* Likewise, and all else that it has of the driver's. */
void ag_segment_leave(struct ag_lane *lane, bool context_gone);
void ag_segment_configure(const struct ag_options *options);
struct ag_ring *ag_segment_ring(struct ag_lane *lane);

/* --- the watchdog (watchdog.c) --- */
void ag_watchdog_configure(uint64_t hold_ns);
/* Something is about to be withheld. Cheap while it is awake; false: there is no watchdog to be
 * had. */
bool ag_watchdog_wake(void);
/* Starts it, if it never was. */
void ag_watchdog_start(void);
/* The process ends: waits until all contexts have done what was submitted to them, for
 * `patience_ns` at most. */
void ag_watchdog_last(uint64_t patience_ns);
void ag_watchdog_forget(void);

#endif
