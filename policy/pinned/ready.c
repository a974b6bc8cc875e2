/* Waits for work as a native free does, or records it in an event of the block's: see ready.h. */
#include "policy/pinned/ready.h"

#include "interpose/core/driver/driver.h"
#include "interpose/core/report/stats.h"
#include "policy/contexts/context.h"
#include "policy/contexts/enter.h"
#include "policy/order/capture.h"
#include "policy/order/fence.h"
#include "policy/order/free.h"
#include "policy/order/host_wait.h"
#include "policy/order/watch.h"

/* An event takes the device some microseconds though nothing is before it. The driver takes
 * hundreds to pin a page. */
#define POLL_TIMEOUT_NS 20000u

/* Inside the capture guard: the event covers all that the context was given so far. */
static CUresult record_use(struct ag_pinned_block *block, const struct ag_context *context)
{
    CUcontext handle = atomic_load_explicit(&context->handle, memory_order_acquire);
    CUresult result = CUDA_SUCCESS;

    if (!block->event)
        result = ag_cu.cuEventCreate(&block->event, CU_EVENT_DISABLE_TIMING);
    return result == CUDA_SUCCESS ? ag_cu.cuCtxRecordEvent(handle, block->event) : result;
}

/* When the driver was asked last whether an error stays, nothing was under way, for that time
 * (ag_watch_clear_since). Relaxed: a thread that sees it late asks once more. */
static _Atomic uint64_t sound_since;

/* Nothing was submitted to any context, of which there is one only, since the host last waited for
 * all of it: so no error can have come either. */
bool ag_pinned_ready_finds_nothing(struct ag_context *context)
{
    uint64_t clear = ag_watch_clear_since();

    if (!clear || ag_host_wait_pending_in(context))
        return false;
    if (atomic_load_explicit(&sound_since, memory_order_relaxed) == clear)
        return true;
    if (ag_context_sticky_error_here(context) != CUDA_SUCCESS)
        return false;
    atomic_store_explicit(&sound_since, clear, memory_order_relaxed);
    return true;
}

/* Does the same hold by now, as the one stream that was used tells? */
static bool finds_done(struct ag_context *context)
{
    uint64_t clear = ag_watch_finds_done();

    if (!clear)
        return false;
    atomic_store_explicit(&sound_since, clear, memory_order_relaxed);
    return !ag_host_wait_pending_in(context);
}

bool ag_pinned_ready_has_error(struct ag_context *context)
{
    return !ag_pinned_ready_finds_nothing(context) &&
           ag_context_sticky_error_here(context) != CUDA_SUCCESS;
}

/* An event is made in the current context, and recorded in its own: with several of them nothing is
 * recorded. */
static bool leave_recorded(struct ag_pinned_block *block, struct ag_context *context)
{
    CUresult result;

    if (!context->device->has_fences || ag_context_count() > 1 || !ag_capture_guard_enter())
        return false;
    block->ordered = atomic_load_explicit(&context->barrier.placed, memory_order_acquire);
    ag_watch_mark(&block->mark);
    result = record_use(block, context);
    ag_capture_guard_leave();
    block->waits = result == CUDA_SUCCESS;
    if (block->waits)
        ag_stats_add(AG_STAT_PINNED_LEFT, 1);
    return block->waits;
}

bool ag_pinned_ready_order(struct ag_pinned_block *block, struct ag_context *owner,
                           struct ag_context *context, bool wait)
{
    block->waits = false;
    if (!context || ag_capture_is_open())
        return false;
    if (ag_pinned_ready_finds_nothing(context) || finds_done(context)) {
        ag_stats_add(AG_STAT_PINNED_NOTHING, 1);
        return true;
    }
    if (ag_context_sticky_error_here(context) != CUDA_SUCCESS)
        return false;
    if (!wait && leave_recorded(block, context))
        return true;
    if (!ag_free_wait_for(owner))
        return false;
    ag_stats_add(AG_STAT_PINNED_WAITED, 1);
    return true;
}

bool ag_pinned_ready_is(struct ag_pinned_block *block, struct ag_context *context)
{
    CUresult result;

    if (!ag_capture_guard_enter())
        return false;
    result = ag_cu.cuEventQuery(block->event);
    ag_capture_guard_leave();
    if (result == CUDA_ERROR_NOT_READY)
        result = ag_fence_poll(block->event, POLL_TIMEOUT_NS);
    block->waits = result != CUDA_SUCCESS;
    if (block->waits)
        return false;
    ag_host_wait_completed(context, block->ordered);
    ag_watch_passed(&block->mark);
    return true;
}

void ag_pinned_ready_finish(struct ag_pinned_block *block)
{
    if (block->event)
        (void)ag_cu.cuEventDestroy_v2(block->event);
    block->event = NULL;
}
