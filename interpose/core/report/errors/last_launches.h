/* What each thread launched last, for the report on the first sticky error.
 *
 * A launch writes two words to a ring of its thread's, before the driver has it: no lock, no clock,
 * and nothing that another thread writes to. So between threads no order is known; a row that is
 * read as it is written may have the function of one launch and the stream of another, and is
 * relaxed. Handles stay
 * here for as long as their code is loaded, and nobody asks for their names before an error. */
#ifndef AG_LAST_LAUNCHES_H
#define AG_LAST_LAUNCHES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define AG_LAUNCH_RING 8u

struct ag_launch_ring {
    _Alignas(64) _Atomic uint32_t n; /* so many were written since the thread took the ring */
    _Atomic int32_t thread;
    struct {
        _Atomic uintptr_t what, stream;
    } row[AG_LAUNCH_RING]; /* n % AG_LAUNCH_RING is the next */
};

/* The calling thread's; NULL until its first launch, and in threads that have no slot of their own
 * (base/slot.h). */
extern _Thread_local struct ag_launch_ring *ag_launch_ring;

/* Executable graphs are told from functions by a bit: handles are aligned. */
static inline const void *ag_launch_of_graph(const void *exec)
{
    return (const void *)((uintptr_t)exec | 1u);
}

/* `ring` is the calling thread's own. */
static inline void ag_launches_note(struct ag_launch_ring *ring, const void *what,
                                    const void *stream)
{
    uint32_t n = atomic_load_explicit(&ring->n, memory_order_relaxed);

    atomic_store_explicit(&ring->row[n % AG_LAUNCH_RING].what, (uintptr_t)what,
                          memory_order_relaxed);
    atomic_store_explicit(&ring->row[n % AG_LAUNCH_RING].stream, (uintptr_t)stream,
                          memory_order_relaxed);
    atomic_store_explicit(&ring->n, n + 1, memory_order_release); /* the row is there */
}

/* Finds the calling thread a ring, which has none. NULL: there is none. */
struct ag_launch_ring *ag_launches_begin(void);

static inline void ag_launches_add(const void *what, const void *stream)
{
    struct ag_launch_ring *ring = ag_launch_ring ? ag_launch_ring : ag_launches_begin();

    if (ring)
        ag_launches_note(ring, what, stream);
}

/* The calling thread's last launch was refused. */
void ag_launches_retract(void);
/* Some functions are about to go: their handles mean nothing any more. */
void ag_launches_forget(void);

struct ag_last_launch {
    uintptr_t what, stream;
    int32_t thread;
    bool is_graph;
};

/* Writes at most `n` rows to `ret_rows`: the calling thread's last launches, then those of others
 * in turn, the latest of each thread first. How many there are. */
unsigned ag_launches_list(struct ag_last_launch *ret_rows, unsigned n);

#endif
