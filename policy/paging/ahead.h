/* Memory of the host that pieces will be mapped to, made by a thread of ours before it is needed: a
 * GiB takes a quarter of a second. Only where the device is nearly full. */
#ifndef AG_PAGING_AHEAD_H
#define AG_PAGING_AHEAD_H

#include <stddef.h>

struct ag_device;

/* Called after memory of the device was made in pieces of that size: where little of the device is
 * left, the thread makes some of the host's, which is kept (handles.h). It gives that back once
 * more of the device is left, or where the host runs short. Waits for nothing. */
void ag_ahead_look(struct ag_device *device, size_t piece_bytes);

/* The process ends: the thread calls the driver no more. Waits, within a bound, for a call that is
 * under way. Async-signal-safe. */
void ag_ahead_stop(void);
/* A forked child has no such thread. */
void ag_ahead_begin_child(void);

#endif
