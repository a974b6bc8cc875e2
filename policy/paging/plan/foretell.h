/* What launches used before, and so will use next: a program that iterates uses its memory in the
 * same order each time. Where the last few launches were the same once before (log.h), what the
 * next ones use is the same, too.
 *
 * Only with the lock of the ranges held. */
#ifndef AG_PAGING_FORETELL_H
#define AG_PAGING_FORETELL_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/paging/ranges.h"

/* The launch that began last uses the piece so many times, in the order of those calls, as that
 * operand, whose price counts (toll.h). */
void ag_foretell_use(struct ag_piece *piece, uint64_t operand, unsigned uses, bool on_host);
/* What it is worth to have the piece on the device from now on, in hundredths of a crossing of the
 * bus: what its uses to come would cost on the host, less the room that it takes until then
 * (worth.h). Of a piece that the launch uses that began last, this use is among them; where nothing
 * is foretold of it, so is the one before, if no more than `near` bytes were used in between: it
 * may go on so. 0: nothing, or nobody knows. */
uint64_t ag_foretell_worth(const struct ag_piece *piece, uint64_t near);
/* Is the piece expected to come for its next use, if it is on the host? */
bool ag_foretell_comes(const struct ag_piece *piece);
/* In how many launches is the piece expected to be used next? One is expected where it was used in
 * the iteration before, if nothing better is known; the one that nothing is known of is as far
 * ahead as its last use is ago, and one without a use is the last of all. */
uint64_t ag_foretell_next_use(const struct ag_piece *piece);

void ag_foretell_begin_child(void);

#endif
