/* Which pieces change places with which, once the device is idle (ALLOGRAFT_OOM=page).
 *
 *     if (ag_move_begin(context, ...)) {
 *         ag_exchange_begin(context, launch, has_room);
 *         ag_ranges_lock(); ag_exchange_want(range, piece); ... ag_ranges_unlock();
 *         ag_exchange_run();
 *         ag_move_end();
 *     } */
#ifndef AG_PAGING_EXCHANGE_H
#define AG_PAGING_EXCHANGE_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/contexts/context.h"
#include "policy/paging/ranges.h"

/* Has the device room for another piece, beside what exchanges leave free so that both ways of the
 * bus are busy? A context of it is current. */
bool ag_exchange_has_room(struct ag_device *device);

/* Is it cheaper to have the piece come, if nothing that is worth anything goes for it, than to use
 * it on the host? With the lock of the ranges held. */
bool ag_exchange_comes(const struct ag_piece *piece, const struct ag_context *context);

/* Could any piece that the launch of that number wants on the device come there, for one that can
 * go? With the lock of the ranges held; `first`: of all of them. */
bool ag_exchange_is_possible(const struct ag_movable *first, const struct ag_context *context,
                             uint64_t launch);

/* Nothing is wanted yet; with `has_room`, nothing has to go for what comes. This and all below:
 * between ag_move_begin() and ag_move_end(). */
void ag_exchange_begin(struct ag_context *context, uint64_t launch, bool has_room);
/* The launch uses the piece, which lies on the host and is to come. With the lock held. */
void ag_exchange_want(struct ag_movable *range, struct ag_piece *piece);
/* What later launches are to find on the device is wanted, too, nearest first, up to a part of it.
 * With the lock held; `range`: the first of all. */
void ag_exchange_want_ahead(struct ag_movable *range);
/* Moves what is wanted, as far as something can go for it; with the context current. How many
 * pieces moved, both ways. */
unsigned ag_exchange_run(void);

#endif
