/* A lock for what is held some ten instructions, and hardly ever by two threads at once: taking it
 * is one locked instruction, releasing it a store (2 ns against a mutex's 6). It has a rank like
 * those of lock.h.
 *
 * Nobody is woken, since a store cannot see who waits: a thread that finds the lock taken looks
 * again, and sleeps (wait.h) where the holder has lost its processor. */
#ifndef AG_BASE_SPIN_H
#define AG_BASE_SPIN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "interpose/core/base/threads/lock.h"

struct ag_spin {
    _Atomic uint32_t taken;
    enum ag_lock_rank rank;
};

#define AG_SPIN_INIT(lock_rank) {.rank = (lock_rank)}

static inline void ag_spin_init(struct ag_spin *spin, enum ag_lock_rank rank)
{
    atomic_store_explicit(&spin->taken, 0, memory_order_relaxed);
    spin->rank = rank;
}

/* Waits until the caller has the lock; only for ag_spin_take(). */
void ag_spin_wait(struct ag_spin *spin);

static inline void ag_spin_take(struct ag_spin *spin)
{
    ag_lock_note_taken(spin->rank);
    if (__builtin_expect(atomic_exchange_explicit(&spin->taken, 1, memory_order_acquire) != 0, 0))
        ag_spin_wait(spin);
}

/* Has somebody the lock just now? Relaxed: only a look, since taking it is what acquires. */
static inline bool ag_spin_is_taken(struct ag_spin *spin)
{
    return atomic_load_explicit(&spin->taken, memory_order_relaxed) != 0;
}

/* Takes the lock if nobody has it. Of a lock that is mostly another thread's, ask first whether it
 * is taken: that leaves its line where it is. */
static inline bool ag_spin_try(struct ag_spin *spin)
{
    if (__builtin_expect(atomic_exchange_explicit(&spin->taken, 1, memory_order_acquire) != 0, 0))
        return false;
    ag_lock_note_taken(spin->rank);
    return true;
}

static inline void ag_spin_release(struct ag_spin *spin)
{
    atomic_store_explicit(&spin->taken, 0, memory_order_release);
    ag_lock_note_released(spin->rank);
}

#endif
