/* The library's own beginning and end in a process. */
#ifndef AG_LIFECYCLE_H
#define AG_LIFECYCLE_H

#include "interpose/settings/options.h"

/* A context exists now: the handlers that must run before the driver's own are registered. */
void ag_lifecycle_context_exists(void);

/* The marks of streams and iterations are known, though no hook was called yet. Reads the settings
 * and starts nothing. */
void ag_lifecycle_know_marks(void);
/* Are we in front of the C library, and so of everybody's calls: preloaded, or linked? Else some
 * library or program has opened us, and nothing of ours is to happen but what it calls. */
bool ag_lifecycle_is_preloaded(void);
/* Has NVTX tell us where the settings of the environment ask for it: as the library is loaded
 * (entry_nvtx.c). */
void ag_nvtx_offer(void);
/* One line where the settings ask for NVTX and it will not tell us anything (entry_nvtx.c). */
void ag_nvtx_tell(const struct ag_options *options);

/* Is there a process to leave that used CUDA? Not a child by vfork, which only shares our
 * memory. */
bool ag_lifecycle_would_leave(void);
/* Before the process image goes by _exit or exec: the wait owed is paid, the report written. Does
 * nothing in a process that only shares our memory (vfork) or was forked with CUDA in use. */
void ag_lifecycle_leave(const char *ended_by);
/* It did not go: exec failed. There will be another report. */
void ag_lifecycle_stay(void);

#endif
