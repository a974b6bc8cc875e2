/* What to do when memory runs out: free what we hold, step by step; and the bounds on what we hold,
 * ALLOGRAFT_CACHE and ALLOGRAFT_PENDING. */
#ifndef AG_POLICY_PRESSURE_H
#define AG_POLICY_PRESSURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "interpose/settings/options.h"

struct ag_context;
struct ag_device;

void ag_pressure_configure(struct ag_size cache, struct ag_size pending);

/* Bytes the cache of a context on that device may hold. */
uint64_t ag_pressure_cache_limit(const struct ag_device *device);

/* `bytes` were given to a pool behind work that may be unfinished. */
void ag_pressure_pending(size_t bytes);
/* Waits when more bytes are pending than ALLOGRAFT_PENDING allows for a device of that size.
 * Call it without a lock, and outside the capture guard. */
void ag_pressure_bound_pending(const struct ag_device *device);

/* Waits until every free so far has taken effect in its pool. */
void ag_pressure_wait_for_frees(void);

/* Gives up cached blocks until the budget of `device` has `bytes` left, if that is enough. True
 * when it is worth another try. */
bool ag_pressure_make_room(struct ag_device *device, size_t bytes);

/* Empties the caches of `device`, waits for pending frees, trims its pools. True when a failed
 * allocation is worth another try. Nothing is done, and false returned, in a capture. */
bool ag_pressure_relieve(struct ag_device *device);
/* The same for the device of the calling thread's context: after another call failed. */
bool ag_pressure_relieve_current(void);

#endif
