/* What moving memory costs in this process, against using it on the host over the bus. */
#ifndef AG_PAGING_PRICES_H
#define AG_PAGING_PRICES_H

#include <stdbool.h>
#include <stdint.h>

/* One batch of moves: bytes of the way that had more, how long all copies took, and how long the
 * rest did, which is mapping. The wait for the device is not among it. One caller at a time. */
void ag_prices_note(uint64_t bytes, uint64_t copy_ns, uint64_t rest_ns);
/* What it costs that a byte comes and another one goes, in hundredths of what it costs that one
 * crosses the bus for a kernel: as measured lately, and as is usual before that. */
unsigned ag_prices_of_move(void);
/* Is it cheaper by 2 % at least to move memory than to use it on the host for so many hundredths of
 * a crossing? */
bool ag_prices_worth_moving(unsigned crossings);
/* How long one crossing of so many bytes takes, as fast as the bus has been seen to be; but no
 * longer than usual before 64 MiB were copied. */
uint64_t ag_prices_crossing_ns(uint64_t bytes);
/* How long a GiB takes, as measured; 0: nothing is. */
uint64_t ag_prices_gib_ns(void);

#endif
