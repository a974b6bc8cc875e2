/* What it is worth that a piece stays on the device after a use, until it is used next: what that
 * use costs on the host, and what it is worth then in turn, but no more than a move, as the piece
 * could come then as well; less the rent for the room that it takes until then.
 *
 * Room has a price at each launch. Where what is worth its rent does not fit, the price is higher;
 * where it leaves room, lower, down to nothing. So pieces compete by what each byte of theirs saves
 * in how long a time, whether they stay for good or come and go. These are the dual prices of the
 * linear program whose result is the least that can cross the bus; what follows them was 3, 1 and
 * 13 % above that in models of a training, an inference and a code of fluids.
 *
 * All in hundredths of a crossing of the bus. With the lock of the ranges held. */
#ifndef AG_PAGING_WORTH_H
#define AG_PAGING_WORTH_H

#include <stdint.h>

#include "policy/paging/plan/log.h"

/* What the use costs on the host. */
uint64_t ag_worth_price(const struct ag_log_launch *launch, const struct ag_log_use *use);

/* What it is worth at that use, in the launch of that number, that the piece is on the device. */
uint64_t ag_worth_of_use(uint64_t number, const struct ag_log_use *use);

/* Brings up to date, now and then, what uses in the log are worth on a device that has room for so
 * many bytes. */
void ag_worth_look(uint64_t room);

/* What room costs from one launch to the next, in the mean. */
double ag_worth_usual_rent(void);

/* What is left of the worth of the use in that launch, which is the last of its piece. The next one
 * is expected in the launch `due`; from then on the rent is lost. */
uint64_t ag_worth_now(const struct ag_log_use *use, uint64_t number, uint64_t due);

void ag_worth_begin_child(void);

#endif
