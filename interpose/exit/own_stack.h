/* Runs what the end of a process needs on a stack of our own. */
#ifndef AG_OWN_STACK_H
#define AG_OWN_STACK_H

#include <stdbool.h>

/* Does the calling thread run on an alternate stack, in the handler of a signal? */
bool ag_own_stack_is_alternate(void);

/* Calls work(argument) on a new stack that is large enough for the driver, too: the caller may be a
 * signal handler on an alternate stack of a few KiB. Without memory for a new one, on the caller's
 * stack; or, if that is an alternate one, not at all, since an overflow there kills the process. */
void ag_own_stack_run(void (*work)(void *argument), void *argument);

#endif
