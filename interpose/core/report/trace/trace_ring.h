/* A bounded ring of events, from one thread or several to the one that writes the trace. No lock,
 * no system call; when it is full, the event is dropped.
 *
 * An event is published by its `sequence`, which is its position plus 1. So a shared ring needs one
 * compare-and-swap, to take a position, and a ring of one producer needs no locked instruction at
 * all. */
#ifndef AG_TRACE_RING_H
#define AG_TRACE_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "interpose/core/report/trace/trace_format.h"

#define AG_TRACE_AHEAD 8u

struct ag_trace_ring {
    /* The next position to be taken. Relaxed: the event's own number tells that it is there, and
     * the tail that its place is free. */
    _Alignas(64) _Atomic uint32_t head;
    uint32_t mask;                      /* positions less 1; a power of two of them, 2^24 at most */
    _Atomic uint64_t dropped;           /* relaxed: a count */
    _Alignas(64) _Atomic uint32_t tail; /* the next position to be read: the reader's */
    struct ag_trace_event events[];
};

/* Puts `event` into the ring, as of `thread` and `module`; false, and counted in `dropped`, when it
 * is full. shared: other threads may do so at the same time. Field by field: what was written in
 * small pieces a moment ago is read slowly in large ones. */
static inline bool ag_trace_ring_put(struct ag_trace_ring *ring, bool shared,
                                     const struct ag_trace_event *event, uint32_t thread,
                                     uint16_t module)
{
    uint32_t at = atomic_load_explicit(&ring->head, memory_order_relaxed);
    struct ag_trace_event *there;

    do {
        if (at - atomic_load_explicit(&ring->tail, memory_order_acquire) > ring->mask) {
            atomic_fetch_add_explicit(&ring->dropped, 1, memory_order_relaxed);
            return false;
        }
        if (!shared)
            atomic_store_explicit(&ring->head, at + 1, memory_order_relaxed);
    } while (shared && !atomic_compare_exchange_weak_explicit(
                           &ring->head, &at, at + 1, memory_order_relaxed, memory_order_relaxed));
    there = &ring->events[at & ring->mask];
    /* The reader had it last: it takes a while to come over. */
    __builtin_prefetch(&ring->events[(at + AG_TRACE_AHEAD) & ring->mask], 1);
    there->ticks = event->ticks;
    there->duration = event->duration;
    there->address = event->address;
    there->size = event->size;
    there->stream = event->stream;
    there->caller = event->caller;
    there->thread = thread;
    there->kind = event->kind;
    there->placement = event->placement;
    there->device = event->device;
    there->module = module;
    there->code = event->code;
    __atomic_store_n(&there->sequence, at + 1, __ATOMIC_RELEASE);
    return true;
}

/* Takes up to `most` events out, in their order; how many. One thread at a time. */
static inline size_t ag_trace_ring_take(struct ag_trace_ring *ring,
                                        struct ag_trace_event *ret_events, size_t most)
{
    uint32_t at = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    size_t n = 0;

    for (; n < most; n++, at++) {
        const struct ag_trace_event *event = &ring->events[at & ring->mask];

        if (__atomic_load_n(&event->sequence, __ATOMIC_ACQUIRE) != at + 1)
            break;
        ret_events[n] = *event;
    }
    atomic_store_explicit(&ring->tail, at, memory_order_release);
    return n;
}

#endif
