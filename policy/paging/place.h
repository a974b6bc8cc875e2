/* Where the program wants memory that can move to lie: see allograft_memory_place(). */
#ifndef AG_PAGING_PLACE_H
#define AG_PAGING_PLACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "policy/paging/ranges.h"

/* Pieces in which any of the bytes lie are to be in that place from now on, until their block is
 * freed. 0; -ENOENT: the first byte is in no memory that can move; -EPERM: that block stays where
 * it is; -ERANGE: the bytes go past the end of their block. */
int ag_place_set(CUdeviceptr address, size_t bytes, enum ag_placed place);

/* Relaxed: hints. Does any piece have a place that it is to be in, and some that it is not in yet?
 */
extern _Atomic bool ag_place_any, ag_place_pending;

/* Before a launch, outside the latch: what is not in its place yet goes there if it can now. */
void ag_place_bring_now(void);
static inline void ag_place_bring(void)
{
    if (__builtin_expect(atomic_load_explicit(&ag_place_pending, memory_order_relaxed), false))
        ag_place_bring_now();
}

/* The block at `address` is nobody's any more: its pieces may lie anywhere. */
void ag_place_end_now(CUdeviceptr address);
static inline void ag_place_end(CUdeviceptr address)
{
    if (__builtin_expect(atomic_load_explicit(&ag_place_any, memory_order_relaxed), false))
        ag_place_end_now(address);
}

/* Is a piece on the host to come to the device, where without a place it would, or would not? */
static inline bool ag_place_comes(const struct ag_piece *piece, bool otherwise)
{
    return piece->place == AG_PLACED_ON_DEVICE || (piece->place == AG_PLACED_AUTO && otherwise);
}

void ag_place_begin_child(void);

#endif
