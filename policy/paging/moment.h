/* A moment for events of ours beside the program's work. One thread has it at a time, and whoever
 * finds it taken does without. No capture begins in it, and calls in it end none: events of ours
 * get into no graph. */
#ifndef AG_PAGING_MOMENT_H
#define AG_PAGING_MOMENT_H

#include <stdatomic.h>
#include <stdbool.h>

#include "policy/order/capture.h"

struct ag_moment {
    atomic_flag taken;
    CUstreamCaptureMode mode; /* the thread's, from before */
};

#define AG_MOMENT_INIT {ATOMIC_FLAG_INIT, 0}

static inline bool ag_moment_begin(struct ag_moment *moment)
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

static inline void ag_moment_end(struct ag_moment *moment)
{
    ag_capture_restore(moment->mode);
    ag_capture_guard_leave();
    atomic_flag_clear_explicit(&moment->taken, memory_order_release);
}

static inline void ag_moment_begin_child(struct ag_moment *moment)
{
    atomic_flag_clear(&moment->taken);
}

#endif
