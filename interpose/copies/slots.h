/* Pinned slots, a ring of them for each context, through which copies of pageable memory go. Only
 * for whoever has claimed the crew; the context is current. */
#ifndef AG_COPIES_SLOTS_H
#define AG_COPIES_SLOTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "interpose/copies/crew.h"
#include "interpose/core/driver/abi.h"

#define AG_SLOTS_BYTES ((size_t)64 << 20) /* of one ring */

struct ag_context;

/* A copy cuts the memory into slots of the size of its pieces. They are used in turns, and are
 * numbered on: a use `i` is of slot i % n. What is submitted at once is a batch: uses that follow
 * one another, and whose memory does. */
struct ag_slots {
    const struct ag_context *context; /* NULL: the ring may be another context's */
    unsigned char *memory;            /* stays mapped, once it was pinned; NULL: there is none */
    size_t begin, slot_bytes;         /* where in it the first slot is, and how large each is */
    uint32_t n;                       /* slots */
    uint32_t shift;                   /* of events: how far a copy's begin after the one's before */
    CUevent done[AG_CREW_SLOTS];      /* each: a batch is done */
    uint32_t ends[AG_CREW_SLOTS];     /* by slot, where a batch begins with its last use: the use
                                       * after the batch */
    uint32_t used, finished;          /* uses begun, and those that are known to be done */
    uint32_t last;                    /* the use that the last batch begins with */
    uint32_t batches;                 /* that are not known to be done */
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
static inline unsigned char *ag_slots_memory(const struct ag_slots *slots, uint32_t number)
{
    return slots->memory + slots->begin + number % slots->n * slots->slot_bytes;
}
/* The event of the batch that begins with use `number`. It is not soon another copy's. */
static inline CUevent ag_slots_event(const struct ag_slots *slots, uint32_t number)
{
    return slots->done[(slots->shift + number % slots->n) % AG_CREW_SLOTS];
}
/* How many slots of that size there are at most. */
uint32_t ag_slots_most(size_t slot_bytes);
/* Cuts slots for so many pieces from the memory of a ring whose uses are all done; the new ones
 * begin with 0. */
void ag_slots_cut(struct ag_slots *slots, size_t slot_bytes, uint32_t pieces);
/* The next `n` uses, a batch, have been submitted to the stream. What the driver says of that. */
CUresult ag_slots_submitted(struct ag_slots *slots, uint32_t n, CUstream stream);
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
