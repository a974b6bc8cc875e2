/* A line for whoever started the program (`allograft run --error-exitcode`) on what should fail a
 * job: findings of guards, memory that was never freed, an error that stays. */
#ifndef AG_ERRORS_FILE_H
#define AG_ERRORS_FILE_H

#include <stdbool.h>

#define AG_ERRORS_VARIABLE "ALLOGRAFT_ERRORS" /* the file, which exists */

/* Reads the variable as the process starts: programs do with their environment what they like. */
void ag_errors_begin(void);
/* Does anybody want to know? */
bool ag_errors_are_wanted(void);
/* Adds the line, if there is anything to tell; called at the end of the process. */
void ag_errors_tell(void);

#endif
