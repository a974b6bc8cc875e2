/* Keeps the last launches of each thread: see last_launches.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/core/report/errors/last_launches.h"

#include <sys/syscall.h>
#include <unistd.h>

#include "interpose/core/base/slot.h"

_Thread_local struct ag_launch_ring *ag_launch_ring;

static struct ag_launch_ring rings[AG_OWN_SLOTS];

/* Relaxed: before the thread's first launch, or when the code of what was launched goes, which no
 * thread launches any more. */
static void empty(struct ag_launch_ring *ring)
{
    for (unsigned i = 0; i < AG_LAUNCH_RING; i++)
        atomic_store_explicit(&ring->row[i].what, 0, memory_order_relaxed);
}

struct ag_launch_ring *ag_launches_begin(void)
{
    unsigned slot = ag_slot();

    if (slot >= AG_OWN_SLOTS)
        return NULL;
    ag_launch_ring = &rings[slot];
    empty(ag_launch_ring); /* of a thread that has ended */
    atomic_store_explicit(&ag_launch_ring->thread, (int32_t)syscall(SYS_gettid),
                          memory_order_relaxed);
    return ag_launch_ring;
}

void ag_launches_retract(void)
{
    uint32_t n;

    if (!ag_launch_ring)
        return;
    n = atomic_load_explicit(&ag_launch_ring->n, memory_order_relaxed) - 1;
    atomic_store_explicit(&ag_launch_ring->row[n % AG_LAUNCH_RING].what, 0, memory_order_relaxed);
    atomic_store_explicit(&ag_launch_ring->n, n, memory_order_relaxed);
}

void ag_launches_forget(void)
{
    for (unsigned i = 0; i < AG_OWN_SLOTS; i++)
        empty(&rings[i]);
}

/* The launch that was `age` launches before the ring's last. False where none is known. */
static bool read_row(const struct ag_launch_ring *ring, uint32_t age, struct ag_last_launch *ret)
{
    uint32_t at = (atomic_load_explicit(&ring->n, memory_order_acquire) - 1 - age) % AG_LAUNCH_RING;
    uintptr_t what = atomic_load_explicit(&ring->row[at].what, memory_order_relaxed);

    if (!(what & ~(uintptr_t)1))
        return false;
    *ret = (struct ag_last_launch){
        .what = what & ~(uintptr_t)1,
        .stream = atomic_load_explicit(&ring->row[at].stream, memory_order_relaxed),
        .thread = atomic_load_explicit(&ring->thread, memory_order_relaxed),
        .is_graph = what & 1,
    };
    return true;
}

unsigned ag_launches_list(struct ag_last_launch *ret_rows, unsigned n)
{
    unsigned found = 0;

    for (uint32_t age = 0; ag_launch_ring && age < AG_LAUNCH_RING && found < n; age++)
        found += read_row(ag_launch_ring, age, &ret_rows[found]);
    for (uint32_t age = 0; age < AG_LAUNCH_RING; age++)
        for (unsigned i = 0; i < AG_OWN_SLOTS && found < n; i++)
            found += &rings[i] != ag_launch_ring && read_row(&rings[i], age, &ret_rows[found]);
    return found;
}
