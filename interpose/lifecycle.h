/* The library's own beginning and end in a process. */
#ifndef AG_LIFECYCLE_H
#define AG_LIFECYCLE_H

#include <stdbool.h>

/* A context exists now: registers the exit handlers, which so run before the driver's own. */
void ag_lifecycle_context_exists(void);

/* Makes the marks of streams and iterations known before any hook is called. Reads the settings and
 * starts nothing. */
void ag_lifecycle_know_marks(void);

/* As the library is loaded: finds what the hooks of exec end in (exit_hooks.c). */
void ag_exit_hooks_begin(void);

/* Has this process used CUDA, so that leaving it means work? False in a child by vfork, which only
 * shares our memory. */
bool ag_lifecycle_would_leave(void);
/* Before _exit or exec ends the process image: completes the pending wait and writes the report.
 * Does nothing in a process that only shares our memory (vfork) or was forked with CUDA in use. */
void ag_lifecycle_leave(const char *ended_by);
/* The exec failed, and the process goes on. There will be another report. */
void ag_lifecycle_stay(void);

#endif
