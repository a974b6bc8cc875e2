/* One line at the end of a program under `allograft run` that never used CUDA, since nothing else
 * would say why there is no report.
 *
 * The command marks the environment with a process id, and the process that has that id tells, at
 * its end. That a child used CUDA is seen by the folder of the counters, which changes whenever a
 * process begins to use CUDA. A process that has nothing to do with it may have changed the folder:
 * then nothing is said, which does no harm. */
#ifndef AG_UNUSED_H
#define AG_UNUSED_H

#include <stdbool.h>
#include <stddef.h>

#define AG_UNUSED_VARIABLE "ALLOGRAFT_RUN"

/* Why that may be; the commands that run programs say it, too. */
#define AG_UNUSED_REASONS                                                                        \
    "Usual reasons: none of it needs a GPU; this machine has no NVIDIA driver (`allograft "      \
    "doctor` tells); a program is statically linked, setuid, or was started without LD_PRELOAD " \
    "(sudo, env -i, a container, another host)"

/* The mark of this process, which is to become the program; `witness` is a process that has the
 * program's first standard error until it ends, or 0; `counters` as ALLOGRAFT_COUNTERS. 0 or
 * -errno. */
int ag_unused_mark(int witness, const char *counters, char *text, size_t size);

/* Reads the mark as the process starts: programs do with their environment what they like, and may
 * free it before their end. */
void ag_unused_begin(void);
/* Is it this process that has the mark? */
bool ag_unused_is_marked(void);
/* This process uses CUDA. */
void ag_unused_note(void);
/* This process ends and has not used CUDA: says so if it has the mark. */
void ag_unused_tell(void);

#endif
