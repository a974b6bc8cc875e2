/* What is spilled, and what is prefetched before launches, is listed while the program has it. */
#include "policy/alloc/hand_over.h"

#include "policy/managed/residency.h"
#include "policy/managed/spill.h"

static void list_what_is_had(struct ag_block *block)
{
    if (block->desc.spilled)
        ag_spill_add(block);
    if (block->desc.prefetch == AG_PREFETCH_LAUNCH && ag_mem_desc_is_on_device(block->desc))
        ag_residency_add(block->address, block->size, block->lies_on - 1);
}

void ag_hand_over(struct ag_block *block, size_t bytes)
{
    list_what_is_had(block);
    ag_ledger_give(block, bytes);
}

void ag_hand_over_again(struct ag_block *block)
{
    list_what_is_had(block);
    ag_ledger_give_again(block);
}

void ag_hand_back(struct ag_block *block)
{
    if (block->desc.spilled)
        ag_spill_remove(block->address);
    if (block->desc.prefetch == AG_PREFETCH_LAUNCH)
        block->lies_on = (uint8_t)(ag_residency_remove(block->address) + 1);
}
