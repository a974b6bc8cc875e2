/* Where the blocks go that the program frees. */
#ifndef AG_POLICY_ALLOC_FREED_H
#define AG_POLICY_ALLOC_FREED_H

#include "interpose/core/driver/abi.h"
#include "policy/contexts/context.h"
#include "policy/ledger.h"

/* A KEPT block is kept, or goes back in the order of a stream of ours. On failure it is untouched.
 */
CUresult ag_freed_ordered(struct ag_block *block);

/* The block, of memory that can move, is nobody's any more: what the program has said of it, or
 * asked a pool for, ends. Before anybody else may have it. */
void ag_freed_movable(const struct ag_block *block);

/* A KEPT block that a guard had, whose users are done, goes where freed blocks go. */
void ag_freed_unguarded(struct ag_block *block);

/* The context ends: only other contexts' blocks stay on the list of what captures set aside. Waits
 * for threads that have taken it out. Before the context's cache is emptied for the last time. */
void ag_freed_forget_aside(const struct ag_context *context);

#endif
