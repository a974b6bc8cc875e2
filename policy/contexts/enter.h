/* Devices and contexts that are met for the first time, and the calling thread's context. */
#ifndef AG_POLICY_ENTER_H
#define AG_POLICY_ENTER_H

#include <stdbool.h>

#include "interpose/core/driver/abi.h"
#include "policy/contexts/context.h"

/* The calling thread's current context; NULL when none is current or our table is full. Makes the
 * driver call cuCtxGetCurrent. */
struct ag_context *ag_context_current(void);

/* Enters a context that has just come to life (or is met for the first time). NULL when the table
 * is full; then its memory is the driver's. `device` < 0: asks the driver. */
struct ag_context *ag_context_enter(CUcontext handle, int device);
/* Is the calling thread's current context a green one, whose primary context ag_context_current()
 * just returned? The variable is the same, of a thread whose ag_context_current() was not NULL. */
extern _Thread_local bool ag_context_inside;
bool ag_context_is_inside(void);
/* A primary context was retained; as ag_context_enter. Waits while another thread gives up what the
 * last one to release it had. */
void ag_context_primary_retained(CUcontext handle, int device);
/* The row of a device, made when it is met for the first time; NULL when there is none. */
struct ag_device *ag_device_of(int ordinal);

#endif
