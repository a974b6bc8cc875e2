/* Stacks, each kept once: the rows of `struct ag_holders` that name code. Any thread; a stack that
 * is known is found without a lock. */
#ifndef AG_HOLDERS_STACKS_H
#define AG_HOLDERS_STACKS_H

#include "interpose/core/base/loaded.h"
#include "interpose/core/report/holders/format.h"

/* The stack of the calling thread, as the row of `kind` and `device`; its number, or
 * AG_HOLDERS_STACKS when there is no room for it. Frames of this library do not count. */
uint32_t ag_stacks_take(enum ag_held_kind kind, int device);
/* Takes down the stack of a wait in the function `call`. */
uint32_t ag_stacks_take_wait(enum ag_wait_kind kind, const char *call);

/* Begins to fill empty tables, `most` frames of a stack. False: no memory. */
bool ag_stacks_begin(struct ag_holders *holders, unsigned most);
/* A forked child: the tables are the parent's. */
void ag_stacks_begin_child(void);

#endif
