/* What moving memory costs in this process, against using it on the host over the bus. */
#ifndef AG_PAGING_PRICES_H
#define AG_PAGING_PRICES_H

#include <stdbool.h>
#include <stdint.h>

/* Is the next batch to be copied before it is mapped, so that the bus is measured? The first four
 * are, then half of the bytes, ever fewer later. One caller at a time of this and the next two. */
bool ag_prices_want_copies(void);
/* The copies of such a batch: bytes of the way that had more, and how long all of them took. */
void ag_prices_note_copies(uint64_t bytes, uint64_t ns);
/* Another batch, pieces of which were mapped while others were copied: bytes likewise, and how long
 * all of it took. The wait for the device is not among it. */
void ag_prices_note_moves(uint64_t bytes, uint64_t ns);
/* What it costs that a byte comes and another one goes, in hundredths of what it costs that one
 * crosses the bus for a kernel: as measured lately, and as is usual before that. */
unsigned ag_prices_of_move(void);
/* Is it cheaper by 2 % at least to move memory than to use it on the host for so many hundredths of
 * a crossing? */
bool ag_prices_worth_moving(unsigned crossings);
/* How long one crossing of so many bytes takes, as fast as the bus has been seen to be; but no
 * longer than usual before four batches and 32 MiB were measured. */
uint64_t ag_prices_crossing_ns(uint64_t bytes);
/* How long a GiB takes, as measured; 0: nothing is. */
uint64_t ag_prices_gib_ns(void);

#endif
