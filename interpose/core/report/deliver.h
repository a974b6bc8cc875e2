/* Brings a report to its destination: whole, in time, and without replacing another process's. */
#ifndef AG_DELIVER_H
#define AG_DELIVER_H

#include <stdbool.h>
#include <stddef.h>

#include "interpose/core/base/text.h"

/* The name that this process's last report will have; the program may go to another folder until
 * then. What lies there now is of an earlier run, and may be replaced; what comes to lie there
 * meanwhile is of a process that shares the name. */
void ag_deliver_expect(const char *path);
const char *ag_deliver_expected(void);
/* Writes to what standard error was when the process began, and to nothing else. 0 or -errno, with
 * the reason in why[capacity]. */
int ag_deliver_to_stderr(const struct ag_text *text, char *why, size_t capacity);
/* Writes a file, which is replaced by a whole one at once or not at all. `exclusive`: where another
 * process wrote a report of the expected name meanwhile, this one gets a name of its own, and a
 * line says so. What is no file, such as a FIFO or /dev/stdout, is written to, and given up where
 * nobody reads. 0 or -errno, with the reason in why[capacity]. */
int ag_deliver_to_file(const struct ag_text *text, const char *path, bool exclusive, char *why,
                       size_t capacity);

#endif
