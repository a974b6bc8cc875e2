/* Allocating and releasing on private streams: see private_stream.h. */
#include "policy/order/private_stream.h"

#include <stdatomic.h>

#include "interpose/core/driver/driver.h"
#include "policy/contexts/context.h"
#include "policy/order/capture.h"
#include "policy/order/drain.h"
#include "policy/order/early.h"
#include "policy/order/fence.h"
#include "policy/order/watch.h"

bool ag_private_stream_begin_alloc(struct ag_context *context, CUstream *ret_stream)
{
    if (ag_context_init_resources(context) != CUDA_SUCCESS || ag_capture_is_open())
        return false;
    *ret_stream = context->alloc_stream;
    return true;
}

/* Does a barrier that the whole context waits for hold this stream back as well? */
static bool waits_for_barriers(struct ag_context *context)
{
    return context->device->has_fences && (ag_watch_is_on() || ag_fence_needs_context(context)) &&
           ag_drain_reason() == AG_DRAIN_NOT;
}

/* All work from now on comes after what `stream` holds. Waiting for it on the host is quick, except
 * when a barrier is before it. */
CUresult ag_private_stream_end_alloc(struct ag_context *context, CUstream stream)
{
    CUresult result;

    if (!waits_for_barriers(context))
        return ag_cu.cuStreamSynchronize(stream);
    if (!ag_capture_guard_enter())
        return CUDA_ERROR_NOT_SUPPORTED;
    result = ag_cu.cuEventRecord(context->alloc_event, stream);
    if (result == CUDA_SUCCESS)
        result = ag_fence_wait_everywhere(context, context->alloc_event);
    ag_capture_guard_leave();
    ag_early_fenced();
    return result;
}

/* Where the host has waited for the fence of the last ordered free, or for the frees themselves,
 * nothing is left to wait for. */
static bool has_users(struct ag_context *context)
{
    uint64_t placed = atomic_load_explicit(&context->barrier.placed, memory_order_acquire);

    return placed > atomic_load_explicit(&context->host_waited, memory_order_acquire);
}

/* The stream waits for that fence, which comes after all users of the memory, for it was not used
 * since it was freed. It waits for nothing submitted later: that may be waiting for the host, and
 * the host for this memory. */
static CUresult wait_for_users(struct ag_context *context)
{
    if (!has_users(context) ||
        ag_cu.cuStreamWaitEvent(context->free_stream, context->barrier.event, 0) == CUDA_SUCCESS)
        return CUDA_SUCCESS;
    return ag_fence_wait_on_host(context->barrier.event);
}

static CUresult wait_for_users_on_host(struct ag_context *context, uint64_t timeout_ns)
{
    return has_users(context) ? ag_fence_poll(context->barrier.event, timeout_ns) : CUDA_SUCCESS;
}

/* No call in between touches more than our own streams, so a capture may begin at any time. */
bool ag_private_stream_begin_release(struct ag_context *context, bool on_host, uint64_t timeout_ns,
                                     struct ag_release *to)
{
    CUresult result;

    if (ag_context_init_resources(context) != CUDA_SUCCESS)
        return false;
    ag_watch_place(context);
    to->mode = ag_capture_relax();
    if (ag_context_make_current(context, &to->pushed) != CUDA_SUCCESS) {
        ag_capture_restore(to->mode);
        return false;
    }
    to->stream = context->free_stream;
    result = on_host || ag_capture_is_open() ? wait_for_users_on_host(context, timeout_ns)
                                             : wait_for_users(context);
    if (result == CUDA_SUCCESS)
        return true;
    ag_private_stream_end_release(to);
    return false;
}

void ag_private_stream_end_release(const struct ag_release *to)
{
    ag_context_restore(to->pushed);
    ag_capture_restore(to->mode);
}

/* A pool gives back what was freed only once the host has waited after that, for which no query
 * counts (R717 in tests/sim/RULES.md). Waiting for the stream could take longer than the queries:
 * for what other threads have released meanwhile. */
static CUresult wait_for_event(CUevent event, CUstream stream, uint64_t timeout_ns)
{
    CUresult result = ag_cu.cuEventRecord(event, stream);

    if (result == CUDA_SUCCESS)
        result = ag_fence_poll(event, timeout_ns);
    return result == CUDA_SUCCESS ? ag_cu.cuEventSynchronize(event) : result;
}

/* The context is current. The event is of this wait alone: of one that others record as well, the
 * host would wait for what they submit. */
static CUresult wait_within(CUstream stream, uint64_t timeout_ns)
{
    CUresult result;
    CUevent event;

    if (timeout_ns == UINT64_MAX)
        return ag_cu.cuStreamSynchronize(stream);
    result = ag_cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS)
        return result;
    result = wait_for_event(event, stream, timeout_ns);
    (void)ag_cu.cuEventDestroy_v2(event);
    return result;
}

CUresult ag_private_stream_wait(struct ag_context *context, uint64_t timeout_ns)
{
    CUstreamCaptureMode previous;
    CUresult result;
    bool pushed;

    if (!ag_context_has_resources(context))
        return CUDA_SUCCESS;
    previous = ag_capture_relax(); /* a capture may begin meanwhile */
    result = ag_context_make_current(context, &pushed);
    if (result == CUDA_SUCCESS)
        result = wait_within(context->free_stream, timeout_ns);
    if (result == CUDA_SUCCESS) /* an allocation that failed half-way was released there */
        result = wait_within(context->alloc_stream, timeout_ns);
    ag_context_restore(pushed);
    ag_capture_restore(previous);
    return result;
}
