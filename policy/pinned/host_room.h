/* How much memory the host has for this process, and whether it runs short. Knows no CUDA. */
#ifndef AG_HOST_ROOM_H
#define AG_HOST_ROOM_H

#include <stdbool.h>
#include <stdint.h>

struct ag_host_room {
    uint64_t total_bytes;     /* of the machine, or of the process's cgroups; 0: not known */
    uint64_t available_bytes; /* without a swap, caches of files counted as free */
    unsigned stalled;         /* hundredths of a percent of the last 10 s that some task waited */
};

/* Reads /proc and the files of the memory cgroup, v2 or v1, below the folder `root`, "" for those
 * of the machine. What cannot be read is no bound. Takes some tens of microseconds; no malloc. */
void ag_host_room_read(const char *root, struct ag_host_room *ret_room);

/* Less than a sixteenth is left, or tasks wait for memory for a tenth of the time. */
bool ag_host_room_is_short(const struct ag_host_room *room);

#endif
