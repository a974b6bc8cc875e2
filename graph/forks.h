/* Forks: operations of several streams as one segment (ALLOGRAFT_GRAPH_FORKS).
 *
 * A program that records an event on one stream and lets others wait for it forks; it joins when
 * the first stream waits for events of theirs. Here the first stream *leads*: from the wait on,
 * operations on the others are its *branches*, and are recorded in its segment in the order in
 * which the program asked for them, each with the number of its branch. Records of events, and
 * waits for them, are operations there, too. In a graph they become edges; what is submitted one by
 * one goes to the stream that each operation was for.
 *
 * Why no program can tell:
 * - Only an event that another stream waited for before is kept back with what it covers. Whoever
 *   asks for any event, in whatever way, first has all of that submitted
 *   (ag_forks_withhold_events()). An event is of the segment in which it was recorded last; where
 *   it was recorded elsewhere since, a wait for it is the driver's.
 * - A graph records each such event in a node behind the operations that it covers, so that waits,
 *   queries and elapsed times find it as if it had been recorded natively.
 * - A graph is launched into the leader. So what its branches' streams were given before must come
 *   before that: a stream becomes a branch of withheld work only if the leader has already waited
 *   for all of its work, or it is idle. And what they are given afterwards comes behind the
 *   branch's last event in the graph, for which each of these streams waits at once.
 * - What the leader is given afterwards comes behind the whole graph. So only a segment whose
 *   branches it has all waited for becomes one.
 *
 * Included by the replayer's own files; the stream is owned in every function, unless it says
 * otherwise. */
#ifndef AG_GRAPH_FORKS_H
#define AG_GRAPH_FORKS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "graph/record/op.h"
#include "interpose/driver/abi.h"

#define AG_FORKS_EVENTS   16u   /* different ones recorded in one segment */
#define AG_FORKS_MOST_OPS 2048u /* of a segment that waits for its branches to be joined */

struct ag_stream;
struct ag_context;

/* What one of the streams of a segment, or an event, is known to come after: a bit for each branch
 * whose operations so far it waited for. */
typedef uint32_t ag_branches;

struct ag_branch {
    struct ag_stream *stream;
    CUstream handle;
    ag_branches before;
    bool is_new; /* no operation so far */
};

/* Of a segment; the leader is branch 0. */
struct ag_forks {
    uint32_t n_branches; /* 0: no fork so far */
    uint32_t n_events;
    uint32_t n_unjoined; /* segments in a row that ended before all branches were waited for */
    _Atomic bool holds_events; /* counted in ag_forks_holding; others read it */
    struct ag_branch branch[AG_MAX_BRANCHES];
    struct {
        CUevent event;
        ag_branches before;
    } recorded[AG_FORKS_EVENTS];
    /* Streams that were branches, and have been given nothing since the leader waited for them. */
    uint32_t n_joined;
    struct ag_stream *joined[AG_MAX_BRANCHES];
};

/* Streams that withhold the record of an event. */
extern _Atomic uint32_t ag_forks_holding;

static inline bool ag_forks_withhold_events(void)
{
    return __builtin_expect(atomic_load_explicit(&ag_forks_holding, memory_order_acquire) != 0, 0);
}

extern _Atomic bool ag_forks_wanted;

/* Once the settings are read: is ALLOGRAFT_GRAPH_FORKS set? */
static inline bool ag_forks_on(void)
{
    return __builtin_expect(atomic_load_explicit(&ag_forks_wanted, memory_order_relaxed), false);
}

void ag_forks_configure(bool on);
/* Has a stream of the current context waited for that event, after another one recorded it? */
bool ag_forks_is_edge(CUevent event);
/* The driver has recorded it on the stream, or let the stream wait for it, for the calling thread.
 * Nothing is owned. */
void ag_forks_note_recorded(CUevent event, CUstream handle);
void ag_forks_note_waited(CUevent event, CUstream handle);
/* It is about to be destroyed. True: graphs may have nodes for it. Nothing is owned. */
bool ag_forks_event_dying(CUevent event);

/* Which stream's segment has the operations of `branch` now? Owned on return, with next.branch set;
 * NULL: it leads itself. Nothing is owned before. */
struct ag_stream *ag_forks_own_leader(struct ag_stream *branch);
/* The stream `branch` is to wait for the event: makes it one of the segment in which that was
 * recorded. Returns the leader as above. Nothing is owned before. */
struct ag_stream *ag_forks_own_forked(struct ag_stream *branch, CUevent event);
/* Would a graph that is launched into the leader come after all that the stream of the branch was
 * given before it became one? Asks the driver, before the branch's first operation. */
bool ag_forks_may_withhold(struct ag_stream *leader, uint32_t branch);
/* Owns the stream, with its work submitted as far as another one leads it. False: as
 * ag_stream_own(). Nothing is owned before (replayer.c). */
bool ag_forks_own_alone(struct ag_stream *stream);
/* The stream gets work that is no segment's: what was known of it ends. */
void ag_forks_strays(struct ag_stream *stream);

/* Takes in an operation that goes into the segment. */
void ag_forks_append(struct ag_stream *leader, const struct ag_op *op);
/* Was the event recorded in the segment, and nowhere else since? May it be, next? */
bool ag_forks_has(const struct ag_stream *leader, CUevent event);
bool ag_forks_takes(const struct ag_stream *leader, CUevent event);
/* Is there a branch that the leader has not waited for? */
bool ag_forks_are_open(const struct ag_stream *leader);
/* The segment is withheld, and has records of events; or nothing of it is any more. */
void ag_forks_set_holding(struct ag_stream *leader, bool holding);
/* The segment ends: its branches lead themselves. */
void ag_forks_end(struct ag_stream *leader);
/* Forgets which streams were given nothing since. */
void ag_forks_forget_joined(struct ag_stream *leader);

/* The stream that an operation of the segment is for; `handle`: of the leader. */
CUstream ag_forks_target(const struct ag_stream *leader, const struct ag_op *op, CUstream handle);

#endif
