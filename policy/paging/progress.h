/* Does the device go on? Whoever waits for it to become idle waits for a long queue of work, too,
 * but not for a kernel that waits for the host. Events that are recorded between launches tell the
 * one from the other. */
#ifndef AG_PAGING_PROGRESS_H
#define AG_PAGING_PROGRESS_H

#include <stdbool.h>

#include "interpose/core/driver/abi.h"

/* Called before the driver's launch on that stream, outside the latch, with no lock held, as long
 * as something may have to move. Now and then an event is recorded there, and before each that
 * `is_slow`. */
void ag_progress_mark(CUstream stream, bool is_slow);
/* Has the device come past such an event since it was last asked? Each counts once. */
bool ag_progress_made(void);

void ag_progress_begin_child(void);

#endif
