/* Events of ours that a thread waits for: made when they are first needed, one for each thread that
 * waits so at a time, and kept. */
#ifndef AG_WAITING_EVENTS_H
#define AG_WAITING_EVENTS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "interpose/core/driver/abi.h"

struct ag_sleep_event {
    _Alignas(64) _Atomic bool taken; /* guards the rest */
    unsigned generation;             /* of contexts, when the event was made */
    CUcontext context;
    CUevent event;
};

/* An event of `context`, the current one, for the calling thread alone until it gives it back; NULL
 * where all are taken, or the driver makes none. `generation` is ag_context_generation from before
 * the context was asked for: of an older one the event may be gone with its context. A thread that
 * never gives one back, since a signal handler jumped out of its wait, takes it from the others. */
struct ag_sleep_event *ag_sleep_event_take(CUcontext context, unsigned generation);
void ag_sleep_event_give_back(struct ag_sleep_event *own);

/* A forked child has no events, and nobody sleeps there. */
void ag_sleep_begin_child(void);

#endif
