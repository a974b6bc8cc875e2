/* How many processors the process may use. */
#ifndef AG_COPIES_PROCESSORS_H
#define AG_COPIES_PROCESSORS_H

#include <stdint.h>

/* The number of its affinity, or fewer where its control group (Linux's cgroup v2) has a quota of
 * their time. At least 1. Opens files; changes errno. */
uint32_t ag_processors_usable(void);

/* What a quota of the text of cpu.max ("QUOTA PERIOD" in microseconds, or "max PERIOD") comes to,
 * rounded up; UINT32_MAX where it says none, or something else. Pure. */
uint32_t ag_processors_of_quota(const char *text);

#endif
