/* Does the device go on? Whoever waits for it to become idle waits for a long queue of work, too,
 * but not for a kernel that waits for the host. Events that are recorded between launches tell the
 * one from the other. */
#ifndef AG_PAGING_PROGRESS_H
#define AG_PAGING_PROGRESS_H

#include <stdbool.h>

struct ag_context;

/* Called before the driver's launch in that context, which is current, outside the latch, with no
 * lock held, as long as something may have to move. Now and then an event of all its work is
 * recorded, and before each launch that `is_slow`. It is in no stream: one whose launch the driver
 * refuses is as idle as it was. */
void ag_progress_mark(const struct ag_context *context, bool is_slow);
/* Has the device come past such an event since it was last asked? Each counts once. */
bool ag_progress_made(void);

void ag_progress_begin_child(void);

#endif
