/* Staging: pinned slots for data that withheld copies read from pageable memory. A program may
 * change its buffer as soon as the call returns, so the bytes are taken at once. One ring of slots
 * for each context. */
#ifndef AG_GRAPH_STAGING_H
#define AG_GRAPH_STAGING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "interpose/driver/abi.h"

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

/* Some address in the ring's pinned memory: for nodes that will get one of a slot. */
const void *ag_ring_memory(const struct ag_ring *ring);

/* Copies `bytes` from `source` into a slot of `staged`, behind what it holds if there is room;
 * returns where they are (device-accessible as a host address), or NULL: larger than a slot, or the
 * ring is full and its oldest slot is still in use after a bounded wait (counted as a stall). Any
 * stream; the context is current. */
void *ag_ring_put(struct ag_ring *ring, struct ag_staged *staged, const void *source, size_t bytes);
/* Everything that reads the slots of `staged` has been submitted to `stream`: they are free once it
 * is done. Empties `staged`, also on an error, with which its slots are lost: nobody knows when
 * they are free. The context is current. */
CUresult ag_ring_sent(struct ag_ring *ring, struct ag_staged *staged, CUstream stream);

#endif
