/* Blocks that go back by the driver's own free. */
#ifndef AG_POLICY_ALLOC_NATIVE_H
#define AG_POLICY_ALLOC_NATIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "interpose/core/driver/abi.h"
#include "policy/ledger.h"

/* The copy is of a block that has left the ledger; of pages, one that nobody uses any more. */
CUresult ag_native_free_single(const struct ag_block *copy);

/* The driver has refused to free the block that the copy is of: the program has it still, with the
 * guard and the numbers that it had. */
void ag_native_refused(const struct ag_block *copy, uint64_t export_number, uint64_t buffer_id,
                       bool guarded, const void *caller);

/* A KEPT block goes; the driver's own free waits as it must. `guarded`: the block was, and `caller`
 * is of its free. */
CUresult ag_native_free(struct ag_block *block, bool guarded, const void *caller);

#endif
