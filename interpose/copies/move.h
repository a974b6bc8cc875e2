/* Moves bytes between memory of the program's and pinned memory of ours, in any thread. */
#ifndef AG_COPIES_MOVE_H
#define AG_COPIES_MOVE_H

#include <stdbool.h>
#include <stddef.h>

/* Can the kernel get pages for us without a fault (Linux 5.14)? Asks it once. */
bool ag_move_can_reach(void);
/* Gets the pages of `bytes` at `memory`, for reading or for writing. False: some cannot be touched,
 * or not in that way; then whoever touches them faults, which must be the thread that the program
 * called from. Changes errno. */
bool ag_move_reach(const void *memory, size_t bytes, bool for_writing);
/* Does what memcpy() does, past the processor's cache: what is copied here is not read again soon,
 * and at that size would only push other data out. */
void ag_move_bytes(void *to, const void *from, size_t bytes);

#endif
