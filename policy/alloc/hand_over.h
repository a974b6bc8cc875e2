/* A block changes hands: it becomes the program's, or is not any more. */
#ifndef AG_POLICY_ALLOC_HAND_OVER_H
#define AG_POLICY_ALLOC_HAND_OVER_H

#include <stddef.h>

#include "policy/ledger.h"

/* The program has the block from now on, with `bytes`. */
void ag_hand_over(struct ag_block *block, size_t bytes);

/* The program has it still, as it had it: its free was refused. */
void ag_hand_over_again(struct ag_block *block);

/* The program has freed the block; before anybody else may get the memory. */
void ag_hand_back(struct ag_block *block);

#endif
