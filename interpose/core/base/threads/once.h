/* What the first thread that needs it makes, while others wait for the outcome.
 *
 *     if (ag_once_begin(&state))
 *         ag_once_end(&state, make() ? AG_ONCE_DONE : AG_ONCE_FAILED);
 *     return ag_once_is_done(&state);
 *
 * A thread that may not wait or make anything asks ag_once_state() first. */
#ifndef AG_BASE_ONCE_H
#define AG_BASE_ONCE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "interpose/core/base/threads/wait.h"

enum ag_once {
    AG_ONCE_TO_DO, /* also after a failure that is worth another try */
    AG_ONCE_BEGUN,
    AG_ONCE_DONE,
    AG_ONCE_FAILED, /* for good */
};

static inline enum ag_once ag_once_state(_Atomic int *state)
{
    return (enum ag_once)atomic_load_explicit(state, memory_order_acquire);
}

static inline bool ag_once_is_done(_Atomic int *state)
{
    return atomic_load_explicit(state, memory_order_acquire) == AG_ONCE_DONE;
}

/* True: it is the caller's to make, who then calls ag_once_end(). False: it is done, or failed;
 * what the maker wrote before is visible. */
static inline bool ag_once_begin(_Atomic int *state)
{
    struct ag_wait wait = {0};
    int now;

    while ((now = ag_once_state(state)) < AG_ONCE_DONE) {
        if (now == AG_ONCE_TO_DO && atomic_compare_exchange_strong(state, &now, AG_ONCE_BEGUN))
            return true;
        ag_wait_pause(&wait);
    }
    return false;
}

static inline void ag_once_end(_Atomic int *state, enum ag_once outcome)
{
    atomic_store_explicit(state, outcome, memory_order_release);
}

#endif
