/* Can threads of ours touch memory of the program's without a fault that the program would see? */
#ifndef AG_COPIES_REACH_H
#define AG_COPIES_REACH_H

#include <stdbool.h>
#include <stddef.h>

/* Can the kernel get pages for us without a fault (Linux 5.14)? Asks it once. */
bool ag_reach_can(void);
/* Are the `bytes` at `memory` one anonymous mapping that may be read, or written, as far as the
 * kernel says so cheaply (Linux 6.11)? Then ag_reach_present() may be asked of parts of it. */
bool ag_reach_is_plain(const void *memory, size_t bytes, bool for_writing);
/* Are all the pages of a part of such memory there, and this thread may touch them? Takes a tenth
 * of the time of ag_reach_get(). Changes errno. */
bool ag_reach_present(const void *memory, size_t bytes, bool for_writing);
/* Gets the pages of `bytes` at `memory`, for reading or for writing. False: some cannot be touched,
 * or not in that way; then whoever touches them faults, which must be the thread that the program
 * called from. Changes errno. */
bool ag_reach_get(const void *memory, size_t bytes, bool for_writing);

#endif
