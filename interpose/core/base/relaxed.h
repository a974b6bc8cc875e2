/* A counter's value as it is now. Relaxed: whatever else the thread that wrote it has written may
 * come later. */
#ifndef AG_BASE_RELAXED_H
#define AG_BASE_RELAXED_H

#include <stdatomic.h>
#include <stdint.h>

static inline uint64_t ag_relaxed(const _Atomic uint64_t *value)
{
    return atomic_load_explicit(value, memory_order_relaxed);
}

#endif
