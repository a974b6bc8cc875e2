/* Moves bytes between memory of the program's and pinned memory of ours, in any thread. */
#ifndef AG_COPIES_MOVE_H
#define AG_COPIES_MOVE_H

#include <stdbool.h>
#include <stddef.h>

/* Does what memcpy() does, past the processor's cache: what is copied here is not read again soon,
 * and at that size would only push other data out. What a device is to read it gets twice as fast
 * so, as no cache of a processor has to be asked. */
void ag_move_past_cache(void *to, const void *from, size_t bytes);

/* Can the processor hand what it has written on to the cache that all processors share? */
bool ag_move_can_share(void);
/* Moves bytes there, for a device that reads them soon: they cross the bus of the memory once, when
 * they are read, instead of three times. It takes a processor twice the time of
 * ag_move_past_cache(), whose work this does where the processor cannot. */
void ag_move_to_shared_cache(void *to, const void *from, size_t bytes);

#endif
