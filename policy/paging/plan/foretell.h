/* What launches used before, and so will use next: a program that iterates uses its memory in
 * the same order each time. Launches are logged with the pieces that they use. Where the
 * last few were the same once before, the pieces of the next ones are, too.
 *
 * Bounded: of more than 65,536 launches, or 262,144 uses of pieces, the oldest are forgotten. Only
 * with the lock of the ranges held. */
#ifndef AG_PAGING_FORETELL_H
#define AG_PAGING_FORETELL_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/paging/ranges.h"

/* A launch follows: `key` is the same for launches of the same kernel with the same memory. The
 * same one again is no other entry. */
void ag_foretell_launch(uint64_t key);
/* The launch that began last uses the piece so many times, in the order of those calls, as that
 * operand, whose price counts (toll.h). If it lies on the host, in hundredths of a crossing of the
 * bus: what this costs there, together with its uses to come, as long as no more than `near` bytes
 * are used between two of them. */
unsigned ag_foretell_use(struct ag_piece *piece, uint64_t operand, unsigned uses, bool on_host,
                         uint64_t near);
/* What the last use of the piece, and those to come soon, cost on the host, as above; 0: nobody
 * knows. Of a launch that is made again and again, as often as it has been made so far. */
uint64_t ag_foretell_price(const struct ag_piece *piece, uint64_t near);
/* In how many launches is the piece expected to be used next? One is expected where it was used in
 * the iteration before, if nothing better is known; the one that nothing is known of is as far
 * ahead as its last use is ago, and one without a use is the last of all. */
uint64_t ag_foretell_next_use(const struct ag_piece *piece);
/* The price, like that of a use now, of a use of the piece that is foretold, as the last few
 * launches were the same before, and in how many launches it is; 0: none is, or more than `near`
 * bytes are used before it. What is used later would come for nothing: it would go again for what
 * is used sooner, of which nothing may be foretold yet. */
unsigned ag_foretell_due(const struct ag_piece *piece, uint64_t near, uint64_t *ret_launches);

void ag_foretell_begin_child(void);

#endif
