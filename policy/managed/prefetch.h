/* ALLOGRAFT_PREFETCH=launch: before a kernel runs, the managed memory that its parameters point
 * to is prefetched to the device. */
#ifndef AG_POLICY_PREFETCH_H
#define AG_POLICY_PREFETCH_H

#include "policy/managed/launch.h"

/* Called before the driver's launch: what the parameters point into is brought to the current
 * context's device, on the launch's own stream, unless it is thought to be there. Whatever becomes
 * of that is none of the program's business. Does nothing while a capture is open anywhere. */
void ag_prefetch_before(const struct ag_launch *launch);

#endif
