/* Staging: pinned slots for data that withheld copies read from pageable memory. A program may
 * change its buffer as soon as the call returns, so the bytes are taken at once. One ring of slots
 * for each context. */
#ifndef AG_GRAPH_STAGING_H
#define AG_GRAPH_STAGING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "interpose/core/driver/abi.h"

struct ag_ring;

struct ag_ring_limits {
    uint32_t depth;      /* slots; at least 1 */
    uint64_t slot_bytes; /* of one; at least 64 */
};

/* The slots that operations withheld on one stream use; zeroed before use. */
struct ag_staged {
    uint32_t first, last; /* 1 + number of the slot; each names the next */
    uint64_t filled;      /* bytes of the last slot */
};

/* Makes driver calls (pinned memory, events): the context is current, no capture open. NULL when
 * the driver gives none. */
struct ag_ring *ag_ring_new(const struct ag_ring_limits *limits);
/* Waits for nothing: only when no slot is in use, or the context is gone (`context_gone`: no driver
 * call). NULL is allowed. */
void ag_ring_free(struct ag_ring *ring, bool context_gone);

/* An address in the ring's pinned memory, to build nodes with that will read its slots. */
const void *ag_ring_memory(const struct ag_ring *ring);

/* Copies `bytes` from `source` into the last slot of `staged`, or into a new one if there is no
 * room. Returns their host address, which the device can read. NULL: more than a slot holds, or the
 * ring is full and its oldest slot is in use even after a bounded wait (counted as a stall). Any
 * stream; the context is current. */
void *ag_ring_put(struct ag_ring *ring, struct ag_staged *staged, const void *source, size_t bytes);
/* All work that reads the slots of `staged` was submitted to `stream`: they are free when it is
 * done. Empties `staged`. On an error its slots are lost, since it is not known when they are free.
 * The context is current. */
CUresult ag_ring_sent(struct ag_ring *ring, struct ag_staged *staged, CUstream stream);

#endif
