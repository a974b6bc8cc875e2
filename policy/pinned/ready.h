/* When is the work done that may use a freed block of pinned memory? */
#ifndef AG_PINNED_READY_H
#define AG_PINNED_READY_H

#include <stdbool.h>

#include "policy/pinned/blocks.h"

/* A BUSY block is freed. All work so far that may use it is done when this returns, or, unless
 * `wait`, is recorded in the block's event. False: the driver has to free it, since a capture is
 * open or a context has an error, which its free answers with. */
bool ag_pinned_ready_order(struct ag_pinned_block *block, bool wait);
/* Is all of that done? Of a BUSY block. False also where nobody can tell now. */
bool ag_pinned_ready_is(struct ag_pinned_block *block);
/* The block goes back to the driver. */
void ag_pinned_ready_finish(struct ag_pinned_block *block);

#endif
