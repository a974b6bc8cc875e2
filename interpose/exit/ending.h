/* The wait for the device that is still pending when the process ends, and how long the thread that
 * ends it waits. */
#ifndef AG_ENDING_H
#define AG_ENDING_H

#include <stdbool.h>

/* May the calling thread be in the handler of a signal? To be asked on the program's own stack. */
bool ag_ending_in_handler(void);
/* Is there anything to ask of the driver? Makes no system call. `for_good`: frees drain from now
 * on. */
bool ag_ending_is_due(bool for_good);
/* Everything that is to be asked of the driver at the end is asked now, by the helper; the calling
 * thread, which may be in a signal handler, makes no driver call. `for_good`: else it may go on,
 * where exec fails. */
void ag_ending_complete(bool for_good, bool in_handler);

#endif
