/* Large blocks of pinned memory that the driver is not asked to make: pages that several threads
 * touch side by side, registered. The driver touches them one by one, which takes most of its time.
 *
 * Nobody is to see that: where the driver answers otherwise for memory that is registered than for
 * memory that it allocated, it is asked about some that it did allocate. */
#ifndef AG_PINNED_MADE_H
#define AG_PINNED_MADE_H

#include <stdbool.h>
#include <stddef.h>

#include "interpose/core/driver/abi.h"

struct ag_context;

/* Gets the pages of `bytes` at `memory`, zeroed, by several threads: `piece_bytes` by one at a
 * time. All are multiples of 2 MiB. False: not all pages, or there are no threads for it now. */
typedef bool ag_pinned_touch(void *memory, size_t bytes, size_t piece_bytes);
/* NULL: nothing is made. */
void ag_pinned_made_configure(ag_pinned_touch *touch);

/* May memory of `bytes` be made at all? */
bool ag_pinned_made_may(size_t bytes);
/* Memory of `bytes` for an allocation in the current context, which is `context`; NULL: it is the
 * driver's to make. No capture may be open. */
void *ag_pinned_made_get(const struct ag_context *context, size_t bytes);
/* Waits for all work and ends it, as cuMemFreeHost does. On failure, which the result tells, it
 * stays. */
CUresult ag_pinned_made_free(void *memory, size_t bytes);

/* An address in memory that the driver allocated as the program asked for its own (`how` as in
 * blocks.h), of that context, whichever is current: where it begins, or inside, as `offset` says.
 * 0: there is none. */
CUdeviceptr ag_pinned_made_like(struct ag_context *context, unsigned how, size_t offset);
#define AG_PINNED_LIKE_BYTES ((size_t)4096) /* that are there, at least */
/* The context ends, and those pages with it. */
void ag_pinned_made_context_dying(const struct ag_context *context);
void ag_pinned_made_begin_child(void);

#endif
