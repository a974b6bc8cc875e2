/* Waiting for a lock that another thread has: see spin.h. */
#include "interpose/core/base/threads/spin.h"

#include "interpose/core/base/threads/wait.h"

/* Looks are relaxed: the exchange at their end acquires. */
void ag_spin_wait(struct ag_spin *spin)
{
    struct ag_wait wait = {0};

    do {
        while (atomic_load_explicit(&spin->taken, memory_order_relaxed))
            ag_wait_pause(&wait);
    } while (atomic_exchange_explicit(&spin->taken, 1, memory_order_acquire));
}
