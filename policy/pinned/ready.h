/* When is the work done that may use a freed block of pinned memory? */
#ifndef AG_PINNED_READY_H
#define AG_PINNED_READY_H

#include <stdbool.h>

#include "policy/pinned/blocks.h"

/* Is no work to be waited for, and no error to be told of, of the current context? Asks the driver
 * at most once after some work. */
bool ag_pinned_ready_finds_nothing(struct ag_context *context);
/* Does the context have an error that stays? */
bool ag_pinned_ready_has_error(struct ag_context *context);
/* A BUSY block of `owner` is freed, with `context` current, or NULL. All work of `owner` so far is
 * done when this returns, or, unless `wait`, is recorded in the block's event. False: the driver
 * has to free it, since a capture is open or a context has an error, which its free answers with.
 */
bool ag_pinned_ready_order(struct ag_pinned_block *block, struct ag_context *owner,
                           struct ag_context *context, bool wait);
/* Is all that was recorded done? Of a BUSY block of the current context. False also where nobody
 * can tell now. */
bool ag_pinned_ready_is(struct ag_pinned_block *block, struct ag_context *context);
/* The block goes back to the driver. */
void ag_pinned_ready_finish(struct ag_pinned_block *block);

#endif
