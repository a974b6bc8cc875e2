/* Runs what the end of a process needs on a stack of our own. */
#ifndef AG_OWN_STACK_H
#define AG_OWN_STACK_H

#include <stdbool.h>

/* Does the calling thread run on an alternate stack, in the handler of a signal? */
bool ag_own_stack_is_alternate(void);

/* Calls work(argument) on fresh stack of a size that does for the driver too: the caller may be a
 * signal handler on an alternate stack of a few KiB. Where there is no memory for one, on the
 * caller's; or, if that is an alternate stack, not at all: what overflows there kills the
 * process. */
void ag_own_stack_run(void (*work)(void *argument), void *argument);

#endif
