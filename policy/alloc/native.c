/* The ledger and the budget forget a block before the driver frees it: see native.h. */
#include "policy/alloc/native.h"

#include "interpose/core/driver/driver.h"
#include "interpose/core/report/timing.h"
#include "policy/alloc/alloc.h"
#include "policy/alloc/hand_over.h"
#include "policy/alloc/notes.h"
#include "policy/budget.h"
#include "policy/contexts/context.h"
#include "policy/contexts/enter.h"
#include "policy/guard/guard.h"
#include "policy/guard/paged.h"
#include "policy/order/capture.h"
#include "policy/order/fence.h"
#include "policy/order/host_wait.h"
#include "policy/paging/ranges.h"
#include "policy/pressure.h"

CUresult ag_native_free_single(const struct ag_block *copy)
{
    switch ((enum ag_source)copy->desc.source) {
    case AG_SOURCE_PAGED:
        return ag_paged_free(copy->address);
    case AG_SOURCE_MOVABLE:
        return ag_range_free(copy->address);
    default:
        return ag_cu.cuMemFree_v2(copy->address);
    }
}

void ag_native_refused(const struct ag_block *copy, uint64_t export_number, uint64_t buffer_id,
                       bool guarded, const void *caller)
{
    struct ag_block *block = ag_ledger_enter(copy->address, copy->size, copy->context, copy->desc);

    if (!block)
        return;
    if (export_number && ag_ledger_rare(block))
        atomic_store(&ag_ledger_rare(block)->export_number, export_number);
    if (buffer_id && ag_ledger_rare(block))
        atomic_store(&ag_ledger_rare(block)->buffer_id, buffer_id);
    atomic_store(&block->requested, copy->requested);
    atomic_store(&block->sync_memops, copy->sync_memops);
    if (guarded)
        ag_guard_resume(block, copy->requested, caller);
    ag_hand_over_again(block);
}

CUresult ag_native_free(struct ag_block *block, bool guarded, const void *caller)
{
    struct ag_block copy = *block;
    uint64_t export_number = ag_block_export_number(block);
    uint64_t buffer_id = ag_block_buffer_id(block);
    CUresult result;

    ag_timing_is_slow();
    /* It waits for its own context. What another context's free has left pending, natively done by
     * now, may use the memory, too. */
    if (ag_context_count() > 1 && ag_host_wait_pending())
        ag_host_wait_complete(AG_STAT_WAITED_DESTROY);
    if (copy.desc.source == AG_SOURCE_MOVABLE) {
        result = ag_capture_is_open() ? ag_fence_like_the_driver(copy.context)
                                      : ag_fence_wait_context(copy.context);
        if (result != CUDA_SUCCESS) { /* the program's still */
            ag_hand_over_again(block);
            return result;
        }
    }
    ag_ledger_remove(block);
    result = ag_native_free_single(&copy);
    if (result == CUDA_SUCCESS) {
        if (ag_mem_desc_is_budgeted(copy.desc))
            ag_budget_give(copy.context->device, copy.size);
        ag_budget_note_returned(copy.context->device, copy.desc, copy.size);
        ag_note_larger_freed(&copy);
        if (ag_pressure_is_tight(copy.context->device))
            ag_pressure_returned(copy.context->device, copy.size);
        return result;
    }
    ag_native_refused(&copy, export_number, buffer_id, guarded, caller);
    return result;
}

void ag_alloc_pool_ended(struct ag_block *blocks)
{
    CUstreamCaptureMode mode;
    bool pushed;

    if (!blocks)
        return;
    mode = ag_capture_relax();
    while (blocks) {
        struct ag_block copy = *blocks;

        ag_ledger_remove(blocks);
        blocks = copy.next;
        if (ag_context_make_current(copy.context, &pushed) == CUDA_SUCCESS)
            (void)ag_cu.cuMemFree_v2(copy.address);
        ag_context_restore(pushed);
        ag_budget_give(copy.context->device, copy.size);
        ag_budget_note_returned(copy.context->device, copy.desc, copy.size);
    }
    ag_capture_restore(mode);
}
