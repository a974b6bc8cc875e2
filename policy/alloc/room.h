/* What goes back to the driver so that it has room: for what we allocate next, for other processes,
 * and for itself. */
#ifndef AG_POLICY_ALLOC_ROOM_H
#define AG_POLICY_ALLOC_ROOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "policy/contexts/context.h"
#include "policy/ledger.h"

/* Blocks that have left the cache go back to the driver. False if some cannot, or not within the
 * time: they are in the cache again, over its limit. */
bool ag_room_give_back(struct ag_context *context, struct ag_block *blocks, uint64_t timeout_ns);

/* The blocks go back to the device, also what a pool of ours holds then; where that takes too long,
 * all is kept from then on. */
void ag_room_give_back_for_good(struct ag_context *context, struct ag_block *blocks);
/* The cache gives so many bytes back likewise. */
void ag_room_evict_for_good(struct ag_context *context, uint64_t bytes);

/* The driver has given `bytes`: has it still room for itself? */
void ag_room_leave(struct ag_context *context, size_t bytes);

#endif
