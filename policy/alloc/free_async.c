/* The program's own memory, freed in the order of one of its streams. */
#include "policy/alloc/alloc.h"

#include "interpose/core/report/stats.h"
#include "policy/alloc/freed.h"
#include "policy/alloc/hand_over.h"
#include "policy/alloc/later.h"
#include "policy/alloc/native.h"
#include "policy/alloc/notes.h"
#include "policy/backends/private_pool.h"
#include "policy/budget.h"
#include "policy/guard/guard.h"
#include "policy/ipc/ipc.h"
#include "policy/order/host_wait.h"

/* Gives up a claimed block in stream order; it has left the ledger. */
static CUresult free_in_stream_order(struct ag_block *block, CUstream stream,
                                     CUresult (*free_async)(CUdeviceptr, CUstream),
                                     CUresult (*synchronize)(CUstream))
{
    struct ag_block single = *block;
    bool plain = block->desc.source == AG_SOURCE_PLAIN || block->desc.source == AG_SOURCE_PAGED ||
                 block->desc.source == AG_SOURCE_MOVABLE;
    CUresult result = CUDA_SUCCESS;

    /* The driver may lock up over native memory and a stream that is not done (580.159), as
     * natively it is after a cudaFree. */
    if (!ag_mem_desc_is_managed(block->desc) && block->desc.source != AG_SOURCE_POOL &&
        ag_host_wait_pending())
        ag_host_wait_complete(AG_STAT_WAITED_DESTROY);
    ag_ledger_remove(block);
    if (!plain)
        return free_async(single.address, stream);
    /* The driver frees no single managed allocation in stream order, and no pages. */
    result = synchronize(stream);
    return result == CUDA_SUCCESS ? ag_native_free_single(&single) : result;
}

/* The driver knows no piece of a slab: once the stream is done, like any free. Relaxed, here and
 * below: the block is in the caller's hands. */
static CUresult free_piece_async(struct ag_block *block, CUstream stream,
                                 CUresult (*synchronize)(CUstream))
{
    CUresult result = synchronize(stream);

    if (result == CUDA_SUCCESS)
        result = ag_freed_ordered(block);
    if (result != CUDA_SUCCESS)
        ag_ledger_give_again(block);
    return result;
}

CUresult ag_free_async(CUdeviceptr address, CUstream stream,
                       CUresult (*free_async)(CUdeviceptr, CUstream),
                       CUresult (*synchronize)(CUstream), const void *caller)
{
    struct ag_freed freed = {.address = address, .stream = stream};
    struct ag_block *block, copy;
    uint64_t export_number, buffer_id;
    CUresult result;
    bool guarded;

    switch (address ? ag_ledger_claim(address, &block) : AG_CLAIM_UNKNOWN) {
    case AG_CLAIM_UNKNOWN:
        return free_async(address, stream);
    case AG_CLAIM_NOT_LIVE:
        return CUDA_ERROR_INVALID_VALUE;
    case AG_CLAIM_OURS:
        break;
    }
    freed.device = block->context->device->ordinal;
    freed.place = (enum ag_placement)block->placement;
    freed.bytes = atomic_load_explicit(&block->requested, memory_order_relaxed);
    if (ag_block_private_pool(block) &&
        ag_private_keep(block)) { /* later than the stream asks for */
        ag_note_freed(freed);
        return CUDA_SUCCESS;
    }
    if (ag_block_slab(block)) {
        result = free_piece_async(block, stream, synchronize);
        if (result == CUDA_SUCCESS)
            ag_note_freed(freed);
        return result;
    }
    ag_hand_back(block);
    if (block->desc.source == AG_SOURCE_MOVABLE && !ag_block_rare(block)) {
        ag_later_collect(false);
        if (ag_later_keep(block, stream)) {
            ag_note_freed(freed);
            return CUDA_SUCCESS;
        }
    }
    guarded = ag_block_guarded(block) != NULL;
    if (guarded)
        (void)ag_guard_end(block, caller, AG_GUARD_ASYNC);
    copy = *block;
    export_number = ag_block_export_number(block);
    buffer_id = ag_block_buffer_id(block);
    result = free_in_stream_order(block, stream, free_async, synchronize);
    if (result == CUDA_SUCCESS) {
        ag_ipc_number_freed(export_number);
        if (ag_mem_desc_is_budgeted(copy.desc))
            ag_budget_give(copy.context->device, copy.size);
        ag_budget_note_returned(copy.context->device, copy.desc, copy.size);
        ag_note_managed_gone(&copy);
        ag_note_larger_freed(&copy);
        ag_note_freed(freed);
        ag_stats_add(AG_STAT_FREE_NATIVE, 1);
        return result;
    }
    ag_native_refused(&copy, export_number, buffer_id, guarded, caller);
    return result;
}
