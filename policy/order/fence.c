/* Placing fences, and waiting for them: see fence.h.
 *
 * `placed` only grows, and only once the driver has taken the event. The flag that rules out way
 * (a) is set before the non-blocking stream is created, and read again after way (a) was taken. */
#include "policy/order/fence.h"

#include <errno.h>
#include <limits.h>

#include "interpose/core/base/clock.h"
#include "interpose/core/base/threads/futex.h"
#include "interpose/core/base/threads/wait.h"
#include "interpose/core/driver/driver.h"
#include "policy/contexts/context.h"
#include "policy/order/capture.h"
#include "policy/order/users.h"

/* More threads than that wait one after the other. */
static unsigned crowd = UINT_MAX;

void ag_fence_configure(unsigned n_processors)
{
    crowd = n_processors;
}

bool ag_fence_needs_context(struct ag_context *context)
{
    return atomic_load_explicit(&context->has_nonblocking_stream, memory_order_seq_cst) ||
           ag_context_count() > 1;
}

struct wait_request {
    CUevent event;
    CUresult result;
};

static void make_context_wait(struct ag_context *context, void *data)
{
    struct wait_request *request = data;
    CUresult result = ag_cu.cuCtxWaitEvent(context->handle, request->event);

    if (result != CUDA_SUCCESS)
        request->result = result;
}

CUresult ag_fence_wait_everywhere(struct ag_context *context, CUevent event)
{
    struct wait_request request = {event, CUDA_SUCCESS};

    if (ag_context_count() == 1)
        return ag_cu.cuCtxWaitEvent(context->handle, event);
    ag_context_each(make_context_wait, &request);
    return request.result;
}

static CUresult record_on_null_stream(struct ag_context *context, CUevent event)
{
    bool pushed;
    CUresult result = ag_context_make_current(context, &pushed);

    if (result == CUDA_SUCCESS)
        result = ag_cu.cuEventRecord(event, NULL);
    ag_context_restore(pushed);
    return result;
}

/* Places the event after all work so far. Inside the capture guard. */
typedef CUresult fence_function(struct ag_context *context, CUevent event);

static CUresult record_barrier(struct ag_context *context, CUevent event)
{
    CUresult result;

    if (!ag_fence_needs_context(context)) {
        result = record_on_null_stream(context, event);
        if (result != CUDA_SUCCESS || !ag_fence_needs_context(context))
            return result;
    }
    if (!context->device->has_fences)
        return CUDA_ERROR_NOT_SUPPORTED;
    result = ag_cu.cuCtxRecordEvent(context->handle, event);
    return result == CUDA_SUCCESS ? ag_fence_wait_everywhere(context, event) : result;
}

static CUresult record_for_host(struct ag_context *context, CUevent event)
{
    if (context->device->has_fences)
        return ag_cu.cuCtxRecordEvent(context->handle, event);
    return ag_fence_needs_context(context) ? CUDA_ERROR_NOT_SUPPORTED
                                           : record_on_null_stream(context, event);
}

/* Places the fence, in the thread that has the turn. */
static enum ag_fence_result place_now(struct ag_context *context, CUevent *event,
                                      fence_function *record)
{
    CUresult result = ag_context_init_resources(context);

    if (result != CUDA_SUCCESS)
        return AG_FENCE_NOT_PLACED;
    if (!ag_capture_guard_enter())
        return AG_FENCE_IN_CAPTURE;
    result = record(context, *event);
    ag_capture_guard_leave();
    return result == CUDA_SUCCESS ? AG_FENCE_PLACED : AG_FENCE_NOT_PLACED;
}

/* Who has the turn places the fence. PLACER_AWAITED: and has to wake those that sleep until it is
 * over. Hundreds that looked again by themselves would leave it no time on a few processors. */
enum placer { PLACER_NONE, PLACER_BUSY, PLACER_AWAITED };

#define PAUSES_AWAKE 256 /* most turns are over after these */

static void sleep_until_placed(struct ag_fence *fence)
{
    uint32_t busy = PLACER_BUSY;
    int error = errno;

    if (atomic_compare_exchange_strong(&fence->placer, &busy, PLACER_AWAITED) ||
        busy == PLACER_AWAITED)
        ag_futex_wait(&fence->placer, PLACER_AWAITED, AG_FUTEX_FOR_EVER);
    errno = error;
}

/* Waits for the turn; false when the fence covers the ticket, so that nothing is left to be done.
 */
static bool become_placer(struct ag_fence *fence, uint64_t ticket)
{
    enum placer self = PLACER_BUSY;
    struct ag_wait wait = {0};

    for (int pauses = 0;; pauses++) {
        uint32_t none = PLACER_NONE;

        if (atomic_load_explicit(&fence->placed, memory_order_acquire) >= ticket)
            return false;
        if (atomic_compare_exchange_strong(&fence->placer, &none, self))
            return true;
        if (pauses < PAUSES_AWAKE) {
            ag_wait_pause(&wait);
        } else {
            sleep_until_placed(fence);
            self = PLACER_AWAITED; /* others may have slept, too */
        }
    }
}

static void end_placing(struct ag_fence *fence)
{
    if (atomic_exchange(&fence->placer, PLACER_NONE) == PLACER_AWAITED)
        ag_futex_wake(&fence->placer);
}

static enum ag_fence_result place_unless_covered(struct ag_context *context, struct ag_fence *fence,
                                                 fence_function *record)
{
    uint64_t ticket = atomic_fetch_add_explicit(&fence->requested, 1, memory_order_seq_cst) + 1;
    enum ag_fence_result result;
    uint64_t covers;

    if (!become_placer(fence, ticket))
        return AG_FENCE_PLACED;
    covers = atomic_load_explicit(&fence->requested, memory_order_seq_cst);
    result = place_now(context, &fence->event, record);
    if (result == AG_FENCE_PLACED) /* host_wait.c: before it is asked what is visible */
        atomic_store_explicit(&fence->placed, covers, memory_order_seq_cst);
    end_placing(fence);
    return result;
}

enum ag_fence_result ag_fence_place_barrier(struct ag_context *context)
{
    return place_unless_covered(context, &context->barrier, record_barrier);
}

/* Lets all streams of the context, later ones too, wait for the barrier's event. The caller has the
 * turn: nobody records the event anew. */
static enum ag_fence_result extend_now(struct ag_context *context)
{
    CUresult result;

    if (atomic_load_explicit(&context->barrier.placed, memory_order_acquire) <=
        atomic_load_explicit(&context->host_waited, memory_order_acquire))
        return AG_FENCE_PLACED;
    if (!context->device->has_fences)
        return AG_FENCE_NOT_PLACED;
    if (!ag_capture_guard_enter())
        return AG_FENCE_IN_CAPTURE;
    result = ag_cu.cuCtxWaitEvent(context->handle, context->barrier.event);
    ag_capture_guard_leave();
    return result == CUDA_SUCCESS ? AG_FENCE_PLACED : AG_FENCE_NOT_PLACED;
}

/* Whoever places a barrier by way (a) has the turn until it counts as placed, or finds afterwards
 * that this is not enough any more. In other contexts nothing is to be done: with several of them
 * barriers are of way (b). */
enum ag_fence_result ag_fence_extend_barrier(struct ag_context *context)
{
    enum ag_fence_result result;

    (void)become_placer(&context->barrier, UINT64_MAX); /* which no fence covers */
    result = extend_now(context);
    end_placing(&context->barrier);
    return result;
}

enum ag_fence_result ag_fence_place_for_host(struct ag_context *context)
{
    return place_unless_covered(context, &context->host_fence, record_for_host);
}

CUresult ag_fence_wait_on_host(CUevent event)
{
    bool in_capture = ag_capture_is_open();
    CUstreamCaptureMode previous = CU_STREAM_CAPTURE_MODE_GLOBAL;
    CUresult result;

    if (ag_users_are_more_than(crowd))
        return ag_fence_poll(event, UINT64_MAX);
    if (in_capture)
        previous = ag_capture_relax();
    result = ag_cu.cuEventSynchronize(event);
    if (in_capture)
        ag_capture_restore(previous);
    return result;
}

#define PROBE_BYTES 4096u

CUresult ag_fence_like_the_driver(struct ag_context *context)
{
    CUdeviceptr probe = 0;
    bool pushed;
    CUresult result = ag_context_make_current(context, &pushed);

    if (result != CUDA_SUCCESS)
        return result;
    result = ag_cu.cuMemAlloc_v2(&probe, 1);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) /* managed memory obeys the same rules, and has room */
        result = ag_cu.cuMemAllocManaged(&probe, PROBE_BYTES, CU_MEM_ATTACH_GLOBAL);
    if (result == CUDA_SUCCESS)
        result = ag_cu.cuMemFree_v2(probe);
    ag_context_restore(pushed);
    return result;
}

/* cuCtxSynchronize would end a capture, also one that begins before the driver has it. */
CUresult ag_fence_wait_context(struct ag_context *context)
{
    CUstreamCaptureMode previous = ag_capture_relax();
    CUresult result = ag_fence_like_the_driver(context);

    ag_capture_restore(previous);
    return result;
}

CUresult ag_fence_poll(CUevent event, uint64_t timeout_ns)
{
    CUstreamCaptureMode previous = ag_capture_relax(); /* a capture may begin meanwhile */
    uint64_t until = ag_clock_after(timeout_ns);
    struct ag_wait wait = {0};
    CUresult result;

    while ((result = ag_cu.cuEventQuery(event)) == CUDA_ERROR_NOT_READY &&
           ag_wait_for_device_until(&wait, until))
        ;
    ag_capture_restore(previous);
    return result;
}

bool ag_fence_wait_idle(struct ag_context *context, uint64_t timeout_ns)
{
    enum ag_fence_result placed = ag_fence_place_for_host(context);

    if (placed != AG_FENCE_PLACED)
        return placed == AG_FENCE_NOT_PLACED;
    return ag_fence_poll(context->host_fence.event, timeout_ns) != CUDA_ERROR_NOT_READY;
}

static void note_nonblocking(struct ag_context *context, void *unused)
{
    (void)unused;
    atomic_store_explicit(&context->has_nonblocking_stream, true, memory_order_seq_cst);
}

void ag_fence_nonblocking_coming(struct ag_context *context)
{
    if (context)
        note_nonblocking(context, NULL);
    else
        ag_context_each(note_nonblocking, NULL);
}
