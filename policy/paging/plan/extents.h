/* How far what a kernel is given an address of reaches. Nobody says so; it is at most to the end of
 * the block. The same function with the same grid, block and parameters, addresses excepted, uses
 * as much each time: so at most what lies from there to the end where that was least. That tells
 * the parts of blocks apart which an allocator of the program's own divides (PyTorch). A block of a
 * GiB or more may be the pool of an allocator of the program's own, which cudaMalloc knows nothing
 * of: there it reaches to the next address that kernels are given, as far as the largest such part
 * goes. A wrong guess is slow, and never wrong: what is not taken for used is found where it is.
 *
 * Only with the lock of the ranges held. */
#ifndef AG_PAGING_EXTENTS_H
#define AG_PAGING_EXTENTS_H

#include <stdbool.h>
#include <stddef.h>

#include "policy/paging/ranges.h"

bool ag_extents_are_learnt(const struct ag_movable *range);
/* A kernel is given that address in the range. */
void ag_extents_note(struct ag_movable *range, CUdeviceptr address);
/* The number of the piece from which on nothing is used by who is given that address. */
size_t ag_extents_end(const struct ag_movable *range, CUdeviceptr address);

/* Bytes that are used by who is given that operand, with so many left up to the end of the block:
 * the least number of those so far, by an operand of that hash. */
size_t ag_extents_reach(uint64_t operand, size_t left);

void ag_extents_begin_child(void);

#endif
