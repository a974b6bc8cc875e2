/* Green contexts: parts of a device's primary context, with handles of their own. Memory allocated
 * in one belongs to the primary context: it outlives the green context, and is ordered with all of
 * the primary's work. */
#ifndef AG_POLICY_GREEN_H
#define AG_POLICY_GREEN_H

#include "interpose/core/driver/abi.h"

/* A green context was made on `device`; it holds a reference to the primary context. */
void ag_green_created(CUgreenCtx green, int device);
/* The program got `inside`, the handle under which it makes the green context current. */
void ag_green_converted(CUgreenCtx green, CUcontext inside);
/* The device of the green context, which is about to be destroyed; -1 when it is not known. */
int ag_green_device(CUgreenCtx green);
/* The green context was destroyed. */
void ag_green_destroyed(CUgreenCtx green);
/* The device whose primary context `inside` is a part of; -1 when it is no green context. */
int ag_green_device_inside(CUcontext inside);
/* A forked child has no contexts. */
void ag_green_begin_child(void);

#endif
