/* The trace: a file (trace_format.h) with an event for each allocation, free, replay and the like.
 *
 * While it is off, each place that has an event to add costs one load and a branch. While it is on,
 * the event is copied into a ring of the thread's slot (trace_ring.h), and a thread of our own
 * writes it to the file (trace_writer.h). */
#ifndef AG_TRACE_H
#define AG_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "interpose/core/base/clock.h"
#include "interpose/core/report/stats.h"
#include "interpose/core/report/trace/trace_format.h"
#include "interpose/core/report/trace/trace_ring.h"

/* Relaxed: set before the state of the process says that it has begun, which hooks acquire. */
extern _Atomic bool ag_trace_active;

static inline bool ag_trace_on(void)
{
    return __builtin_expect(atomic_load_explicit(&ag_trace_active, memory_order_relaxed), 0);
}

/* Tells of an event; only while ag_trace_on(). `thread` and, by `caller`, `module` are filled in.
 */
void ag_trace_add(const struct ag_trace_event *event);
/* A named mark, now. Names are kept for good: not one for each step. Any thread. */
void ag_trace_mark(const char *name);
void ag_trace_add_step(enum ag_stat step, int device, uint64_t bytes);

/* Counts a step of group `pressure`, and tells of it. */
static inline void ag_trace_step(enum ag_stat step, int device, uint64_t bytes)
{
    ag_stats_add(step, 1);
    if (ag_trace_on())
        ag_trace_add_step(step, device, bytes);
}

/* When a call begins that may be told of: the ticks, or 0 while the trace is off. */
static inline uint64_t ag_trace_began(void)
{
    return ag_trace_on() ? ag_clock_ticks() : 0;
}

/* Tells of a call that ends now; `began` is of ag_trace_began(). Only while ag_trace_on(). */
void ag_trace_add_call(uint64_t began, struct ag_trace_event event);

/* The calling thread has waited in `call`, until now. Only while ag_trace_on(). */
void ag_trace_add_wait(uint64_t began, const char *call);

/* Managed memory is on its way to `device`, AG_TRACE_NO_DEVICE for the host, in the order of
 * `stream`. */
static inline void ag_trace_prefetch(uint64_t began, uint64_t address, uint64_t bytes, int device,
                                     const void *stream)
{
    if (ag_trace_on())
        ag_trace_add_call(began, (struct ag_trace_event){.kind = AG_TRACE_PREFETCH,
                                                         .device = (int16_t)device,
                                                         .address = address,
                                                         .size = bytes,
                                                         .stream = (uintptr_t)stream});
}

/* Pinned memory was given or freed, by `caller`. */
static inline void ag_trace_pinned(uint64_t began, bool freed, const void *address, uint64_t bytes,
                                   const void *caller)
{
    if (ag_trace_on())
        ag_trace_add_call(began, (struct ag_trace_event){.kind = freed ? AG_TRACE_PINNED_FREE
                                                                       : AG_TRACE_PINNED_ALLOC,
                                                         .device = AG_TRACE_NO_DEVICE,
                                                         .address = (uintptr_t)address,
                                                         .size = bytes,
                                                         .caller = (uintptr_t)caller});
}

/* --- for the writer --- */

/* A text that events refer to. Never changed or freed once it can be seen. */
struct ag_trace_named {
    uint32_t space, number; /* enum ag_trace_text */
    uint64_t base;          /* of a module */
    uint32_t length;
    char text[];
};

/* The i-th text, or NULL when there are no more. */
const struct ag_trace_named *ag_trace_named(unsigned i);
/* The ring of slot i, or NULL. */
struct ag_trace_ring *ag_trace_ring_of(unsigned i);
/* Rings get so many bytes each from now on, and the names of numbers are put down. False: no
 * memory. */
bool ag_trace_prepare(uint64_t ring_bytes);
/* A forked child: nothing of the parent's is told by it. */
void ag_trace_forget(void);

#endif
