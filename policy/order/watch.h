/* Watched streams: which streams got work since the last fence, so that a free costs the device
 * nothing where no order is missing.
 *
 * An ordered free (free.h) needs a barrier only if work comes later that must wait for earlier
 * work. So a free merely makes a fence *due*, and whoever submits the next piece of work places it
 * first:
 *   - Everything since the last fence went to one stream, and so does the new work: an event is
 *     recorded there, before the new work, and nobody waits for it yet. Whatever comes to another
 *     stream later waits for that event alone. Recorded later it would cover too much: the stream
 *     may by then run a kernel that waits for the other stream.
 *   - Else: a barrier of the context, one for all frees since the last work.
 * A free with nothing submitted since the last fence needs none.
 *
 * Every thread has a *permit*: the stream that it may submit to without asking, or all. Hooks of
 * work compare and jump on (ag_watch_permits). A free revokes all permits. A thread without one, or
 * with other work, calls ag_watch_submits(), which places what is due, notes the stream and gives
 * the thread its permit.
 *
 * A hook that has let a call pass does not learn when the driver has it. So a thread forgets what
 * it has *noted* only by fences that it places itself: then none of its calls is under way. Of
 * other threads a fence forgets nothing, and their streams count as used until they place one.
 *
 * While a capture is open no fence can be due: frees wait as the driver's own do. What is due as
 * one begins is placed before. Watching ends for good where work may come past our hooks, or where
 * one context is not all there is; from then on each free places its barrier at once. */
#ifndef AG_POLICY_ORDER_WATCH_H
#define AG_POLICY_ORDER_WATCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "interpose/core/driver/abi.h"

struct ag_context;

/* Streams as numbers: a handle, CU_STREAM_LEGACY for the NULL stream, or one of these. */
#define AG_WATCH_NONE 0u
#define AG_WATCH_ALL  UINTPTR_MAX /* several, or one that cannot be told by its handle */

struct ag_watch_thread {
    /* AG_WATCH_NONE: none. Relaxed: a thread that submits after a free, in any order that the
     * program can tell, sees that its permit is gone; one that submits meanwhile is under way. */
    _Atomic uintptr_t permit;
    uintptr_t noted; /* what it submitted to since its last fence; under the lock, as the rest */
    uint64_t life;   /* of which context */
    uint64_t asked;  /* which time it was, of all threads', that it asked last */
    bool is_open;    /* on the list of those that may have a permit */
    struct ag_watch_thread *next;
};

/* The row of every thread that has submitted nothing. */
extern struct ag_watch_thread ag_watch_stranger;
extern _Thread_local struct ag_watch_thread *ag_watch_own;

static inline uintptr_t ag_watch_number(CUstream stream, bool per_thread)
{
    if (stream == CU_STREAM_PER_THREAD || (!stream && per_thread))
        return AG_WATCH_ALL;
    return stream ? (uintptr_t)stream : (uintptr_t)CU_STREAM_LEGACY;
}

/* May the calling thread submit to the stream without ag_watch_submits()? */
static inline bool ag_watch_permits(CUstream stream, bool per_thread)
{
    uintptr_t permit = atomic_load_explicit(&ag_watch_own->permit, memory_order_relaxed);

    return permit == ag_watch_number(stream, per_thread) || permit == AG_WATCH_ALL;
}

/* Only for the functions here and in watch.c. */
extern struct ag_watch_state {
    _Atomic bool on;
    _Atomic uintptr_t active;  /* what got work since the last fence: a stream, or AG_WATCH_ALL */
    _Atomic uint64_t n_clear;  /* how often that became nothing */
    _Atomic bool due;          /* a fence, for frees since the last */
    _Atomic bool being_placed; /* one that was due */
    /* The context in which frees made it due; relaxed: set before that. */
    _Atomic(struct ag_context *) owner;
} ag_watch_state;

/* Watching begins, before any context exists; without it every thread has a permit for all. */
void ag_watch_begin(void);
void ag_watch_never(void);
static inline bool ag_watch_is_on(void)
{
    return atomic_load_explicit(&ag_watch_state.on, memory_order_acquire);
}
/* What is due is placed, and watching ends for good. `why` is logged. */
void ag_watch_end(const char *why);

/* Places what is due, before the driver gets work of the calling thread. */
void ag_watch_submits(CUstream stream, bool per_thread);
/* Places what is due, unless the thread has a permit for the stream. */
static inline void ag_watch_work(CUstream stream, bool per_thread)
{
    if (!ag_watch_permits(stream, per_thread))
        ag_watch_submits(stream, per_thread);
}

enum ag_watch_free {
    AG_WATCH_OFF,     /* the free has to place its barrier */
    AG_WATCH_NOTHING, /* nothing was submitted since the last fence */
    AG_WATCH_DUE,     /* the next work places it */
    AG_WATCH_IN_CAPTURE,
};
/* Memory of `context` is freed, in order. */
enum ag_watch_free ag_watch_freed(struct ag_context *context);
/* Is a fence due in that context? Any thread. */
static inline bool ag_watch_is_due(struct ag_context *context)
{
    return (atomic_load_explicit(&ag_watch_state.due, memory_order_seq_cst) ||
            atomic_load_explicit(&ag_watch_state.being_placed, memory_order_seq_cst)) &&
           atomic_load_explicit(&ag_watch_state.owner, memory_order_relaxed) == context;
}
/* Was nothing submitted since the last fence or drain? */
static inline bool ag_watch_is_clear(void)
{
    return ag_watch_is_on() &&
           atomic_load_explicit(&ag_watch_state.active, memory_order_acquire) == AG_WATCH_NONE;
}
/* Which time it is that nothing was submitted since the last fence or drain. 0: something was. */
static inline uint64_t ag_watch_clear_since(void)
{
    uint64_t n = atomic_load_explicit(&ag_watch_state.n_clear, memory_order_acquire);

    return ag_watch_is_clear() ? n + 1 : 0;
}
/* Places what is due, now: the event of the context's barrier covers all frees so far. */
void ag_watch_place(struct ag_context *context);

/* Called around a drain by the calling thread: the first before its fence is placed, the second,
 * with what the first returned, once the host has waited for that. */
uint64_t ag_watch_draining(void);
void ag_watch_drained(uint64_t n_left);

/* Called around a fence that nobody waits for: the first before it is placed, the second once all
 * before it is known to be done. In another thread, or after more work, that does nothing. */
struct ag_watch_mark {
    const struct ag_watch_thread *thread;
    uint64_t asked, n_left;
};
void ag_watch_mark(struct ag_watch_mark *ret_mark);
void ag_watch_passed(const struct ag_watch_mark *mark);
/* Where the calling thread alone has submitted anything since the last fence, to one stream: asks
 * the driver whether that is done. If it is, without an error, nothing is left: what
 * ag_watch_clear_since() says from then on; else 0. */
uint64_t ag_watch_finds_done(void);

/* Has the calling thread ever submitted anything? When in doubt, it has. */
static inline bool ag_watch_has_worked(void)
{
    return !ag_watch_is_on() || ag_watch_own != &ag_watch_stranger;
}
/* Every thread asks before its next work. */
void ag_watch_revoke_permits(void);

/* A capture is about to begin, and ag_capture_opening() was called. */
void ag_watch_capture_opening(void);
/* The handle may soon be another stream's. */
void ag_watch_stream_dying(CUstream stream);
/* All that was submitted is gone with the context. */
void ag_watch_context_gone(void);
/* A forked child has submitted nothing. */
void ag_watch_begin_child(void);

#endif
