/* What leaving the process means, by whatever way: the wait that is pending, and the report. */
#ifndef AG_LEAVING_H
#define AG_LEAVING_H

#include <stdbool.h>

#include "interpose/core/settings/options.h"

/* From now on this process has an end that tells. The options stay where they are, and are read
 * before anybody can see that the process has begun. */
void ag_leaving_begin(const struct ag_options *options);
/* A forked child has an end of its own. */
void ag_leaving_begin_child(void);
/* A context exists now: registers the exit handlers, which so run before the driver's own. */
void ag_leaving_register(void);

/* Has this process used CUDA, so that leaving it means work? False in a child by vfork, which only
 * shares our memory. */
bool ag_leaving_would(void);
/* Completes the pending wait and writes the report, before _exit or exec ends the process image.
 * Does nothing in a process that only shares our memory (vfork) or was forked with CUDA in use. */
void ag_leaving_go(const char *ended_by);
/* The exec failed, and the process goes on. There will be another report. */
void ag_leaving_stay(void);

/* The library goes, since the process exits: in a process that has begun, and in one of which we
 * saw no call. */
void ag_leaving_exit(void);
void ag_leaving_exit_unused(void);

#endif
