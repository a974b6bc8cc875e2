/* A moment for events of ours beside the program's work. One thread has it at a time, and whoever
 * finds it taken does without. No capture begins in it, and calls in it end none: events of ours
 * get into no graph. */
#ifndef AG_PAGING_MOMENT_H
#define AG_PAGING_MOMENT_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "policy/contexts/context.h"
#include "policy/order/capture.h"

struct ag_paging_moment {
    atomic_flag taken;
    CUstreamCaptureMode mode; /* the thread's, from before */
    unsigned generation;      /* of contexts, when that was last asked in it */
};

#define AG_PAGING_MOMENT_INIT {.taken = ATOMIC_FLAG_INIT}

static inline bool ag_paging_moment_begin(struct ag_paging_moment *moment)
{
    if (atomic_flag_test_and_set_explicit(&moment->taken, memory_order_acquire))
        return false;
    if (!ag_capture_guard_enter()) {
        atomic_flag_clear_explicit(&moment->taken, memory_order_release);
        return false;
    }
    moment->mode = ag_capture_relax();
    return true;
}

static inline void ag_paging_moment_end(struct ag_paging_moment *moment)
{
    ag_capture_restore(moment->mode);
    ag_capture_guard_leave();
    atomic_flag_clear_explicit(&moment->taken, memory_order_release);
}

/* In the moment: has a context ended since that was asked? Its events are gone then, and their
 * names may be those of the program's. */
static inline bool ag_paging_moment_lost_events(struct ag_paging_moment *moment)
{
    unsigned before = moment->generation;

    moment->generation = atomic_load_explicit(&ag_context_generation, memory_order_acquire);
    return moment->generation != before;
}

/* Waits until it is nobody's, and keeps others out; no call of the driver's meanwhile. */
static inline void ag_paging_moment_lock(struct ag_paging_moment *moment)
{
    while (atomic_flag_test_and_set_explicit(&moment->taken, memory_order_acquire))
        (void)sched_yield();
}

static inline void ag_paging_moment_unlock(struct ag_paging_moment *moment)
{
    atomic_flag_clear_explicit(&moment->taken, memory_order_release);
}

static inline void ag_paging_moment_begin_child(struct ag_paging_moment *moment)
{
    atomic_flag_clear(&moment->taken);
}

#endif
