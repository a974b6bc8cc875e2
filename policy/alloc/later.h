/* Blocks that the program has freed in the order of a stream which has not come there yet
 * (cuMemFreeAsync), and whose memory the driver does not free so: what can move. The host waits for
 * nothing. A request on the same stream gets the block at once, after that work; for others it is
 * there when the stream has come to the free. */
#ifndef AG_POLICY_ALLOC_LATER_H
#define AG_POLICY_ALLOC_LATER_H

#include <stdbool.h>
#include <stddef.h>

#include "interpose/core/driver/abi.h"
#include "policy/ledger.h"

/* A KEPT block waits here for the work of that stream (NULL: the legacy one). False, and it is
 * untouched: a capture is open, too many wait, or the driver refuses an event there. */
bool ag_later_keep(struct ag_block *block, CUstream stream);
/* Hands out a block that waits for that stream, which is not NULL, ordered after the work, for
 * `bytes` in the current context. False: there is none. */
bool ag_later_take(CUdeviceptr *ret_address, size_t bytes, CUstream stream, const void *caller);
/* Blocks whose streams have come there go where freed blocks go; of the first few, or of `all`. */
void ag_later_collect(bool all);

/* The context ends, and its events with it: its blocks are forgotten here. */
void ag_later_forget(const struct ag_context *context);
/* A forked child has none. */
void ag_later_begin_child(void);

#endif
