/* Pinned slots, a ring of them for each context, through which copies of pageable memory go. Only
 * for whoever has claimed the crew; the context is current. */
#ifndef AG_COPIES_SLOTS_H
#define AG_COPIES_SLOTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "interpose/copies/crew.h"
#include "interpose/core/driver/abi.h"

#define AG_SLOT_BYTES  ((size_t)2 << 20)
#define AG_SLOTS_BYTES ((size_t)AG_CREW_SLOTS * AG_SLOT_BYTES) /* of one ring */

struct ag_context;

/* Slots are used in turns, and are numbered on: a use `i` is of slot i % AG_CREW_SLOTS. */
struct ag_slots {
    const struct ag_context *context; /* NULL: the ring may be another context's */
    unsigned char *memory;            /* stays mapped for ever; NULL: the ring has none yet */
    CUevent done[AG_CREW_SLOTS];      /* what was submitted of the slot's last use is done */
    uint64_t used, finished;          /* uses begun, and those that are known to be done */
    CUstream stream;                  /* the last use's, and its thread where each has its own */
    int thread;
    bool is_broken; /* it is not known when its slots are free */
};

/* The ring of the context; NULL: there is none yet. */
struct ag_slots *ag_slots_find(const struct ag_context *context);
/* Makes it; `n` threads get the memory's pages. Makes driver calls: no capture is open. NULL where
 * there is no memory, or the driver pins none. */
struct ag_slots *ag_slots_make(const struct ag_context *context, uint32_t n);
/* Where use `number` has its bytes. */
static inline unsigned char *ag_slots_memory(const struct ag_slots *slots, uint64_t number)
{
    return slots->memory + number % AG_CREW_SLOTS * AG_SLOT_BYTES;
}
static inline CUevent ag_slots_event(const struct ag_slots *slots, uint64_t number)
{
    return slots->done[number % AG_CREW_SLOTS];
}
/* Counts the uses that are done, in their order. What the driver said of the first that is not, or
 * CUDA_SUCCESS: all are. */
CUresult ag_slots_look(struct ag_slots *slots);
/* Waits until all are done, as long as they go on: those that do not wait for work of the
 * program's. True: they are done. */
bool ag_slots_wait(struct ag_slots *slots);

/* The context is gone, and with it what the driver knew of the ring. */
void ag_slots_context_gone(const struct ag_context *context);
/* A forked child: has the process made any? */
bool ag_slots_any(void);

#endif
