/* Submitting withheld work that nothing more was added to. */
#ifndef AG_GRAPH_STALLED_H
#define AG_GRAPH_STALLED_H

#include <stdbool.h>

/* Looks at every stream; only the watchdog's thread calls it, as it compares with its last look.
 * Returns whether any stream withholds something. */
bool ag_stalled_submit(void);

#endif
