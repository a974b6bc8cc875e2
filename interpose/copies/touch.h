/* Gets pages of memory by the crew, side by side. */
#ifndef AG_COPIES_TOUCH_H
#define AG_COPIES_TOUCH_H

#include <stdbool.h>
#include <stddef.h>

#define AG_TOUCH_UNIT ((size_t)2 << 20) /* a huge page */

/* Gets the pages of `bytes` at `memory`, in pieces of `piece_bytes`, all of them multiples of
 * AG_TOUCH_UNIT; AG_CREW_SLOTS pieces at most. Huge ones, where the kernel finds them soon. False:
 * not all, or the crew is another thread's, or there is none. Signals wait meanwhile. */
bool ag_touch_pieces(void *memory, size_t bytes, size_t piece_bytes);

#endif
