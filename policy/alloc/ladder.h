/* Where the memory of an allocation comes from: rung by rung, until one holds. */
#ifndef AG_POLICY_ALLOC_LADDER_H
#define AG_POLICY_ALLOC_LADDER_H

#include "interpose/core/driver/abi.h"
#include "policy/alloc/plan.h"
#include "policy/contexts/context.h"
#include "policy/ledger.h"

/* A result beside the driver's: there is no memory for the ledger. */
#define AG_LADDER_NO_LEDGER ((CUresult) - 1)

/* A block of that plan, in the ledger and KEPT; else the driver's error, or AG_LADDER_NO_LEDGER. */
CUresult ag_ladder_climb(struct ag_context *context, const struct ag_plan *plan,
                         struct ag_block **ret_block);

#endif
