/* Where the memory of an allocation comes from: rung by rung, until one holds. */
#ifndef AG_POLICY_ALLOC_LADDER_H
#define AG_POLICY_ALLOC_LADDER_H

#include "interpose/core/driver/abi.h"
#include "policy/contexts/context.h"
#include "policy/ledger.h"
#include "policy/mem_desc.h"

/* A result beside the driver's: there is no memory for the ledger. */
#define AG_LADDER_NO_LEDGER ((CUresult) - 1)

/* A block of that descriptor and of at least `bytes`, in the ledger and KEPT; else the driver's
 * error, or AG_LADDER_NO_LEDGER. */
CUresult ag_ladder_climb(struct ag_context *context, struct ag_mem_desc desc, size_t bytes,
                         struct ag_block **ret_block);

/* Allocates while a graph of the control API is captured: memory that was freed before, or the
 * driver's, which gives it in a capture to a thread that asks for that. */
CUresult ag_ladder_for_capture(struct ag_context *context, size_t bytes,
                               struct ag_block **ret_block);

/* The error of a call that a rule fails. In a capture the driver decides whether any allocation is
 * legal. */
CUresult ag_ladder_by_rule(struct ag_context *context);

#endif
