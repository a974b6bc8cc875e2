/* What a launch uses comes to the device before it (ALLOGRAFT_OOM=page). */
#ifndef AG_PAGING_USE_H
#define AG_PAGING_USE_H

#include "policy/managed/launch.h"

/* Called before the driver's launch, outside the latch: looks which movable memory the parameters
 * point into. What lies on the host moves to the device where that is cheaper than to use it there,
 * and what is expected to be used last goes. Whatever becomes of that, the launch finds its memory.
 */
void ag_use_before_launch(const struct ag_launch *launch);

/* Called where the driver has refused the launch that the thread has made. */
void ag_use_launch_refused(void);

/* Called before the stream is destroyed. */
void ag_use_stream_ends(CUstream stream);

/* Called before the driver's copy within the device, or with `to` twice its fill, likewise: of so
 * many bytes, whoever's they are. What crosses the bus wherever it lies has no need to move. */
void ag_use_before_copy(CUdeviceptr to, CUdeviceptr from, size_t bytes);

/* Called before the launch of a graph, likewise: what its kernels name is known (named.h). */
void ag_use_before_graph(CUgraphExec exec);

/* Called before the block that the address lies in, if any, is kept where it is: it comes to the
 * device first, if it can. */
void ag_use_before_pin(CUdeviceptr address);

void ag_use_begin_child(void);

#endif
