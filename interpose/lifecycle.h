/* The library's own beginning and end in a process. */
#ifndef AG_LIFECYCLE_H
#define AG_LIFECYCLE_H

/* A context exists now: registers the exit handlers, which so run before the driver's own. */
void ag_lifecycle_context_exists(void);

/* Makes the marks of streams and iterations known before any hook is called. Reads the settings and
 * starts nothing. */
void ag_lifecycle_know_marks(void);

#endif
