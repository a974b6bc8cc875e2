/* A value that only grows, raised by several threads. */
#ifndef AG_BASE_RAISE_H
#define AG_BASE_RAISE_H

#include <stdatomic.h>
#include <stdint.h>

/* *value = max(*value, to). What the caller wrote before is visible to who reads it (acquire). The
 * relaxed load only finds whether there is anything to raise. */
static inline void ag_raise_to(_Atomic uint64_t *value, uint64_t to)
{
    uint64_t now = atomic_load_explicit(value, memory_order_relaxed);

    while (now < to && !atomic_compare_exchange_weak_explicit(value, &now, to, memory_order_release,
                                                              memory_order_relaxed))
        ;
}

#endif
