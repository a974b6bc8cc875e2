/* Waits for work as a native free does, or records it in an event of the block's: see ready.h. */
#include "policy/pinned/ready.h"

#include "interpose/core/driver/driver.h"
#include "interpose/core/report/stats.h"
#include "policy/contexts/context.h"
#include "policy/contexts/enter.h"
#include "policy/order/capture.h"
#include "policy/order/free.h"

/* Inside the capture guard: the event covers all that the context was given so far. */
static CUresult record_use(struct ag_pinned_block *block, const struct ag_context *context)
{
    CUcontext handle = atomic_load_explicit(&context->handle, memory_order_acquire);
    CUresult result = CUDA_SUCCESS;

    if (!block->event)
        result = ag_cu.cuEventCreate(&block->event, CU_EVENT_DISABLE_TIMING);
    return result == CUDA_SUCCESS ? ag_cu.cuCtxRecordEvent(handle, block->event) : result;
}

/* One event is of one context: work of others may use the block as well, so with several of them
 * nothing is recorded. */
static bool leave_recorded(struct ag_pinned_block *block)
{
    const struct ag_context *context = ag_context_current();
    CUresult result;

    if (!context || !context->device->has_fences || ag_context_count() > 1 ||
        !ag_capture_guard_enter())
        return false;
    result = record_use(block, context);
    ag_capture_guard_leave();
    block->waits = result == CUDA_SUCCESS;
    if (block->waits)
        ag_stats_add(AG_STAT_PINNED_LEFT, 1);
    return block->waits;
}

bool ag_pinned_ready_order(struct ag_pinned_block *block, bool wait)
{
    struct ag_context *context = ag_context_current();

    block->waits = false;
    if (!context || ag_capture_is_open() || ag_context_sticky_error_here(context) != CUDA_SUCCESS)
        return false;
    if (ag_free_finds_nothing()) {
        ag_stats_add(AG_STAT_PINNED_NOTHING, 1);
        return true;
    }
    if (!wait && leave_recorded(block))
        return true;
    if (!ag_free_wait_for_all())
        return false;
    ag_stats_add(AG_STAT_PINNED_WAITED, 1);
    return true;
}

bool ag_pinned_ready_is(struct ag_pinned_block *block)
{
    CUresult result;

    if (!block->waits)
        return true;
    if (!ag_capture_guard_enter())
        return false;
    result = ag_cu.cuEventQuery(block->event);
    ag_capture_guard_leave();
    block->waits = result != CUDA_SUCCESS;
    return !block->waits;
}

void ag_pinned_ready_finish(struct ag_pinned_block *block)
{
    if (block->event)
        (void)ag_cu.cuEventDestroy_v2(block->event);
    block->event = NULL;
}
