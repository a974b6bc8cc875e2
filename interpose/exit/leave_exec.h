/* Predicts whether an exec will fail. */
#ifndef AG_LEAVE_EXEC_H
#define AG_LEAVE_EXEC_H

#include <stdbool.h>

/* May execve of that path start a program? False only where it is to fail: a file that is not there
 * or may not be executed, or a script whose interpreter is. Async-signal-safe. */
bool ag_leave_may_start(const char *path);
/* May it start a program by execvp, which looks along PATH, by fexecve, or by execveat? */
bool ag_leave_may_find(const char *file);
bool ag_leave_may_start_open(int fd);
bool ag_leave_may_start_at(int folder, const char *path, int flags);

#endif
