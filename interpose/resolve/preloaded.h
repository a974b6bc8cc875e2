/* Is the library in front of the program's calls? */
#ifndef AG_PRELOADED_H
#define AG_PRELOADED_H

#include <stdbool.h>

/* Are we in front of the C library, and so of everybody's calls, since we are preloaded or linked?
 * If not, a program or library has opened us, and nothing happens but what it calls. */
bool ag_is_preloaded(void);

#endif
