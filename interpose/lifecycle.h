/* The library's own beginning and end in a process. */
#ifndef AG_LIFECYCLE_H
#define AG_LIFECYCLE_H

#include "options.h"

/* A context exists now: the handlers that must run before the driver's own are registered. */
void ag_lifecycle_context_exists(void);

/* The effective settings; after the first hook. */
const struct ag_options *ag_lifecycle_options(void);

/* Before the process image goes by _exit or exec: the wait owed is paid, the report written. Does
 * nothing in a process that only shares our memory (vfork) or was forked with CUDA in use. */
void ag_lifecycle_leave(const char *ended_by);
/* It did not go: exec failed. There will be another report. */
void ag_lifecycle_stay(void);

#endif
