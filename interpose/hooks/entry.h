/* What every hook does first and last. There is one short function per hooked symbol:
 *
 *     AG_ENTRY CUresult cuX(int a)
 *     {
 *         AG_ENTER(cuX, a);                      may return: see below
 *         return ag_entry_leave(what we do instead);
 *     }
 *
 * Most are made of the rows of made/kinds.def, as C that lies in the build folder. */
#ifndef AG_ENTRY_H
#define AG_ENTRY_H

#include <errno.h>
#include <stdbool.h>

#include "graph/record/memory.h"
#include "graph/replayer.h"
#include "interpose/core/base/loaded.h"
#include "interpose/core/driver/abi.h"
#include "interpose/core/report/stats.h"
#include "interpose/core/settings/options.h"
#include "interpose/resolve/unseen.h"
#include "policy/order/users.h"
#include "policy/order/watch.h"
#include "policy/paging/latch.h"

#define AG_ENTRY               __attribute__((visibility("default")))
#define AG_NOINLINE            __attribute__((noinline))
#define AG_UNLIKELY(condition) __builtin_expect(!!(condition), 0)

enum ag_entry_state {
    AG_ENTRY_NEW,     /* nothing was read yet */
    AG_ENTRY_PASSING, /* every call is the driver's: switched off, or something needed is missing */
    AG_ENTRY_ACTIVE,
};

/* What hooks of launches do. Apart from the state, since launches that nobody watches must cost
 * nothing. */
enum ag_entry_launches {
    AG_LAUNCHES_NEW,      /* nothing was read yet */
    AG_LAUNCHES_PASSED,   /* they jump to the driver's own */
    AG_LAUNCHES_CHECKED,  /* they call it: errors are looked for */
    AG_LAUNCHES_PAGED,    /* what they use comes to the device, and nothing moves meanwhile */
    AG_LAUNCHES_WATCHED,  /* what they use is prefetched; recorded where streams are replayed */
    AG_LAUNCHES_RECORDED, /* only recorded */
};

/* What hooks that only replay needs, or who asks for waits, do: one of the first three, and the
 * last ones beside it. */
enum ag_entry_replay {
    AG_REPLAY_NEW = 0,    /* nothing was read yet */
    AG_REPLAY_PASSED = 1, /* they jump to the driver's own */
    AG_REPLAY_ON = 2,     /* marked streams are replayed */
    AG_REPLAY_TIMED = 4,  /* calls that can wait are timed, or asked for errors (entry_waits.h) */
    AG_REPLAY_SLEEPS = 8, /* calls that wait may sleep (policy/waiting/) */
    /* Instead of PASSED: memory may lie on the host, for which some calls are made in another way,
     * and move, for which those that submit work pass a latch (policy/paging/). */
    AG_REPLAY_PAGED = 16,
};

/* The calling thread is inside one of our hooks while this is not 0 (entry_state.c): what it calls
 * now are our own calls. */
extern _Thread_local int ag_entry_depth;
extern _Thread_local int ag_entry_errno;
extern _Atomic int ag_entry_state;
extern _Atomic int ag_entry_launches;
extern _Atomic int ag_entry_replay;
/* Are copies of pageable memory offered to the crew (interpose/copies/)? */
extern _Atomic bool ag_entry_copies;

/* What the settings are, which stay where they are, before the state says that they are read. */
void ag_entry_configure(const struct ag_options *options);

/* Reads the settings and finds the driver, once; returns the state from then on (lifecycle.c). */
enum ag_entry_state ag_entry_start(void);

/* Is a look-up to answer with our function of a hook that is for `when`? Before the settings are
 * read every hook may come to be needed, so the answer is yes: what is not needed then jumps on, as
 * for programs that are linked with the driver. Only ALLOGRAFT_DISABLE of the environment is known
 * that early: with it nothing of ours is given out. */
bool ag_entry_needs(enum ag_when when);

/* Once the settings are read: are launches seen, for whatever reason? */
bool ag_entry_sees_launches(void);

/* Are streams replayed, as settings that have been read say? One load. */
static inline bool ag_entry_replays_now(void)
{
    return (atomic_load_explicit(&ag_entry_replay, memory_order_acquire) & AG_REPLAY_ON) != 0;
}

static inline bool ag_entry_has_copies(void)
{
    return atomic_load_explicit(&ag_entry_copies, memory_order_acquire);
}

static inline bool ag_entry_inside(void)
{
    return ag_entry_depth > 0;
}

/* May look-ups be answered with our functions? */
static inline bool ag_entry_substitutes(void)
{
    return atomic_load_explicit(&ag_entry_state, memory_order_acquire) == AG_ENTRY_ACTIVE;
}

/* The column `flush` of hooks.def: why withheld work is submitted before the hook does its own, or
 * -1. */
#define AG_BEFORE_FLUSH(why) AG_FLUSH_##why
#define AG_BEFORE_MANUAL     (-1)
#define AG_BEFORE_NO_FLUSH   (-1)
static const signed char ag_entry_first[AG_N_HOOKS] = {
#define AG_HOOK(base, symbol, since, flavour, need, flush) [AG_HOOK_##symbol] = AG_BEFORE_##flush,
#include "interpose/core/driver/hooks.def"
};

/* Called before a call after which addresses may be other memory. */
static inline void ag_entry_remaps(void)
{
    if (ag_entry_replays_now())
        ag_memory_forget();
}

/* `why` is known where this is compiled: nothing is left of it, or a load or two. */
static inline void ag_entry_before(int why)
{
    if (why >= 0 && ag_replay_holds())
        ag_replay_flush_all((enum ag_flush)why);
    if (why == AG_FLUSH_FREE)
        ag_entry_remaps();
}

/* True when the hook is to do its work, with the thread marked as inside. */
static inline bool ag_entry_enter(enum ag_hook hook, void *const *real)
{
    int state;

    if (ag_entry_depth)
        return false;
    state = atomic_load_explicit(&ag_entry_state, memory_order_acquire);
    if (AG_UNLIKELY(state == AG_ENTRY_NEW))
        state = ag_entry_start();
    ag_stats_hit(hook);
    if (AG_UNLIKELY(state != AG_ENTRY_ACTIVE || !*real))
        return false;
    ag_entry_depth = 1;
    ag_entry_errno = errno;
    ag_users_note();
    if (AG_UNLIKELY(ag_loaded_has_news()))
        ag_unseen_look();
    ag_entry_before(ag_entry_first[hook]);
    return true;
}

/* A call of the program's failed, by which `function` answers. May end the process
 * (entry_error.c). */
void ag_entry_failed(CUresult result, const char *function);
void ag_entry_error_configure(enum ag_on_error what);

static inline CUresult ag_entry_leave_from(CUresult result, const char *function)
{
    errno = ag_entry_errno;
    ag_entry_depth = 0;
    if (AG_UNLIKELY(result != CUDA_SUCCESS))
        ag_entry_failed(result, function);
    return result;
}

#define ag_entry_leave(result) ag_entry_leave_from(result, __func__)

/* What the NULL stream stands for in a call. */
static inline CUstream ag_entry_named(CUstream stream, bool per_thread)
{
    return !stream && per_thread ? CU_STREAM_PER_THREAD : stream;
}

/* Before the driver gets work of a hook that was not entered: the fence that is due is placed. */
static inline void ag_entry_submits(CUstream stream, bool per_thread)
{
    if (ag_entry_depth || ag_watch_permits(stream, per_thread))
        return;
    ag_entry_depth = 1;
    ag_entry_errno = errno;
    ag_watch_submits(stream, per_thread);
    (void)ag_entry_leave(CUDA_SUCCESS);
}

/* Before the driver gets work that is passed on as it is: it comes after what its stream has. */
static inline void ag_entry_passes_on(CUstream stream, bool per_thread)
{
    if (ag_replay_holds())
        ag_replay_flush_stream(stream, per_thread, AG_FLUSH_UNRECORDED);
    ag_watch_work(stream, per_thread);
}

/* The first statement of a hook. Returns from the hook, with what the driver's own function
 * returned, where the hook is not to do its work: in a nested call, or while nothing is redirected.
 */
#define AG_ENTER(symbol, ...)                                                           \
    do {                                                                                \
        if (!ag_entry_enter(AG_HOOK_##symbol, (void *const *)&ag_cu.symbol))            \
            return ag_cu.symbol ? ag_cu.symbol(__VA_ARGS__) : CUDA_ERROR_NOT_SUPPORTED; \
    } while (0)

#endif
