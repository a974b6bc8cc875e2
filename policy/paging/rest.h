/* How long moving is not tried again after tries in vain: twice as long each time, up to ten
 * seconds. Relaxed: a guess, of which what one of several threads has added may be lost. */
#ifndef AG_PAGING_REST_H
#define AG_PAGING_REST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "interpose/core/base/clock.h"

#define AG_LONGEST_REST_NS 10000000000u

struct ag_rest { /* zeroed before use */
    _Atomic uint64_t until_ns, length_ns;
};

static inline bool ag_rest_is_on(struct ag_rest *rest)
{
    uint64_t until = atomic_load_explicit(&rest->until_ns, memory_order_relaxed);

    return until && ag_clock_ns() < until;
}

/* A try was in vain. The first one's rest is `first_ns`. */
static inline void ag_rest_longer(struct ag_rest *rest, uint64_t first_ns)
{
    uint64_t length = 2 * atomic_load_explicit(&rest->length_ns, memory_order_relaxed);

    length = !length ? first_ns : length < AG_LONGEST_REST_NS ? length : AG_LONGEST_REST_NS;
    atomic_store_explicit(&rest->length_ns, length, memory_order_relaxed);
    atomic_store_explicit(&rest->until_ns, ag_clock_ns() + length, memory_order_relaxed);
}

/* One was not: the next rest is a first one. */
static inline void ag_rest_begin_anew(struct ag_rest *rest)
{
    atomic_store_explicit(&rest->length_ns, 0, memory_order_relaxed);
}

#endif
