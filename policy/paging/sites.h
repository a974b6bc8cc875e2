/* Whose memory moves, and is used on the host: by the stack that allocated it, where
 * ALLOGRAFT_STACKS takes stacks. Else all of it is counted together only. */
#ifndef AG_PAGING_SITES_H
#define AG_PAGING_SITES_H

#include <stdint.h>

#include "interpose/core/report/holders/format.h"
#include "policy/paging/ranges.h"

/* The program gets the block of `bytes` at the address, whose stack has that row of the holders, or
 * AG_HOLDERS_STACKS: if it is a range, that is whose it is from now on. What is freed and kept is
 * of who had it last. */
void ag_site_set(CUdeviceptr address, uint64_t bytes, uint32_t row);

/* Called with the lock of the ranges held: that became of so many bytes of the range. */
void ag_site_count(const struct ag_movable *range, enum ag_held_move what, uint64_t bytes);

#endif
