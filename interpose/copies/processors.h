/* How many processors the process may use. */
#ifndef AG_COPIES_PROCESSORS_H
#define AG_COPIES_PROCESSORS_H

#include <stdint.h>

/* The number of its affinity, or fewer where its control group (Linux's cgroup v2) has a quota of
 * their time. At least 1. Opens files; changes errno. */
uint32_t ag_processors_usable(void);

/* The number of the calling thread's affinity alone, which a program may change at any time. At
 * least 1. */
uint32_t ag_processors_allowed(void);

/* How many processors of the machine nobody runs on now; UINT32_MAX where the kernel does not say.
 * Opens a file; changes errno. */
uint32_t ag_processors_idle(void);

/* Threads that run now, of the text of loadavg ("0.5 0.4 0.3 RUNNING/ALL LAST"); 0 where it is
 * something else. Pure. */
uint32_t ag_processors_running(const char *text);
/* What a quota of the text of cpu.max ("QUOTA PERIOD" in microseconds, or "max PERIOD") comes to,
 * rounded up; UINT32_MAX where it says none, or something else. Pure. */
uint32_t ag_processors_of_quota(const char *text);

#endif
