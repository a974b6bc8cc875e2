/* Ordered and draining frees, and frees in a capture: see free.h. */
#include "policy/order/free.h"

#include <stdatomic.h>

#include "interpose/core/driver/driver.h"
#include "interpose/core/report/stats.h"
#include "interpose/core/report/timing.h"
#include "policy/contexts/context.h"
#include "policy/order/capture.h"
#include "policy/order/drain.h"
#include "policy/order/early.h"
#include "policy/order/fence.h"
#include "policy/order/host_wait.h"
#include "policy/order/private_stream.h"
#include "policy/order/users.h"
#include "policy/order/watch.h"

/* Could a native free return that? It refuses in a capture, and returns sticky errors. Other errors
 * of our probes do not concern the program. */
static bool is_native_answer(CUresult result)
{
    return (result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
            result <= CUDA_ERROR_CAPTURED_EVENT) ||
           ag_error_is_sticky(result);
}

/* The memory waits for the end of the capture, if the call was legal. */
static CUresult set_aside(CUresult probed, bool *ret_set_aside)
{
    *ret_set_aside = !is_native_answer(probed);
    ag_stats_add(*ret_set_aside ? AG_STAT_FREE_SET_ASIDE : AG_STAT_FREE_REFUSED, 1);
    return *ret_set_aside ? CUDA_SUCCESS : probed;
}

static CUresult free_in_capture(struct ag_context *context, bool *ret_set_aside)
{
    CUresult result;

    ag_timing_is_slow();
    if (ag_drain_is_never() && ag_context_init_resources(context) == CUDA_SUCCESS)
        return set_aside(ag_cu.cuStreamQuery(context->free_stream), ret_set_aside);
    result = ag_fence_like_the_driver(context);
    if (result != CUDA_SUCCESS)
        return set_aside(result, ret_set_aside);
    ag_drain_count(AG_DRAIN_CAPTURE);
    return result;
}

/* The host waits for all work of the context, unless a capture is open. */
static CUresult wait_for_work(struct ag_context *context, bool *ret_in_capture)
{
    uint64_t ordered = atomic_load_explicit(&context->barrier.placed, memory_order_acquire);
    uint64_t n_left = ag_watch_draining();
    enum ag_fence_result placed = ag_fence_place_for_host(context);
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;

    *ret_in_capture = placed == AG_FENCE_IN_CAPTURE;
    if (*ret_in_capture)
        return result;
    if (placed == AG_FENCE_PLACED)
        result = ag_fence_wait_on_host(context->host_fence.event);
    if (result != CUDA_SUCCESS && !ag_capture_is_open())
        result = ag_fence_wait_context(context); /* it returns what a native free would */
    if (result != CUDA_SUCCESS)
        return result;
    ag_host_wait_completed(context, ordered);
    ag_watch_drained(n_left);
    return CUDA_SUCCESS;
}

static CUresult drain_work(struct ag_context *context, enum ag_drain why, bool *ret_set_aside)
{
    bool in_capture;
    CUresult result = wait_for_work(context, &in_capture);

    ag_timing_is_slow();
    if (in_capture)
        return free_in_capture(context, ret_set_aside);
    if (result == CUDA_SUCCESS)
        ag_drain_count(why);
    else
        ag_stats_add(AG_STAT_FREE_REFUSED, 1);
    return result;
}

static CUresult drain_for_threads(struct ag_context *context, bool *ret_set_aside)
{
    CUresult result = drain_work(context, AG_DRAIN_THREADS, ret_set_aside);

    /* The permits go last: who submits with one before that may go unseen until the look after
     * next, but not longer. */
    if (ag_users_drained(ag_watch_is_on()))
        ag_watch_revoke_permits();
    return result;
}

/* The barrier of a free where streams are not watched. */
static CUresult order_now(struct ag_context *context, bool *ret_set_aside)
{
    enum ag_fence_result placed = ag_fence_place_barrier(context);
    enum ag_drain why;

    if (placed == AG_FENCE_IN_CAPTURE)
        return free_in_capture(context, ret_set_aside);
    ag_early_fenced();
    ag_host_wait_begin(context);
    /* The reason is asked for once more: whoever made something visible before the barrier was
     * placed has not waited for this free. */
    why = ag_drain_reason();
    if (why == AG_DRAIN_NOT && placed == AG_FENCE_NOT_PLACED)
        why = AG_DRAIN_NO_FENCE;
    if (why != AG_DRAIN_NOT)
        return drain_work(context, why, ret_set_aside);
    ag_stats_add(
        ag_fence_needs_context(context) ? AG_STAT_FREE_CONTEXT_FENCE : AG_STAT_FREE_NULL_STREAM, 1);
    return CUDA_SUCCESS;
}

/* The next work places the fence. Whoever made something visible before that was due has not waited
 * for this free: so the reasons are asked for again. */
static CUresult leave_due(struct ag_context *context, bool *ret_set_aside)
{
    CUresult result;
    enum ag_drain why;

    if (ag_context_init_resources(context) != CUDA_SUCCESS) /* no business of the program's */
        return drain_work(context, AG_DRAIN_NO_FENCE, ret_set_aside);
    result = ag_context_sticky_error(context);
    ag_host_wait_begin(context);
    why = ag_drain_reason();
    if (why != AG_DRAIN_NOT)
        return drain_work(context, why, ret_set_aside);
    ag_stats_add(result == CUDA_SUCCESS ? AG_STAT_FREE_WATCHED : AG_STAT_FREE_REFUSED, 1);
    return result;
}

bool ag_free_finds_nothing(void)
{
    return ag_watch_is_clear() && !ag_host_wait_pending();
}

bool ag_free_wait_for(struct ag_context *context)
{
    bool in_capture;

    return wait_for_work(context, &in_capture) == CUDA_SUCCESS;
}

CUresult ag_free_order_work(struct ag_context *context, bool *ret_set_aside)
{
    enum ag_drain why = ag_drain_reason();

    if (ag_capture_is_open())
        return free_in_capture(context, ret_set_aside);
    if (why != AG_DRAIN_NOT)
        return ag_free_finds_nothing() ? ag_free_order_nothing(context)
                                       : drain_work(context, why, ret_set_aside);
    if (ag_watch_is_clear())
        return ag_free_order_nothing(context);
    if (ag_drain_for_threads() && ag_watch_has_worked())
        return drain_for_threads(context, ret_set_aside);
    if (!ag_host_wait_possible())
        return drain_work(context, AG_DRAIN_NO_THREAD, ret_set_aside);
    switch (ag_watch_freed(context)) {
    case AG_WATCH_NOTHING:
        return ag_free_order_nothing(context);
    case AG_WATCH_DUE:
        return leave_due(context, ret_set_aside);
    case AG_WATCH_IN_CAPTURE:
        return free_in_capture(context, ret_set_aside);
    case AG_WATCH_OFF:
        break;
    }
    return order_now(context, ret_set_aside);
}

/* --- contexts and streams that come and go --- */

static void finish_streams(struct ag_context *context, void *unused)
{
    (void)unused;
    (void)ag_private_stream_wait(context, UINT64_MAX);
}

/* The new context has waited for nothing so far: neither for what was allocated on a private
 * stream, nor for the barriers of frees. */
void ag_free_context_entered(void)
{
    if (ag_context_count() < 2)
        return;
    ag_watch_end("several contexts are alive");
    ag_context_each(finish_streams, NULL);
    ag_host_wait_complete(AG_STAT_WAITED_VISIBLE);
    ag_drain_note_visible(AG_VISIBLE_CONTEXTS);
}

void ag_free_context_gone(struct ag_context *context)
{
    ag_watch_context_gone();
    ag_free_context_forgotten(context);
}

void ag_free_context_forgotten(struct ag_context *context)
{
    ag_host_wait_context_gone(context);
    ag_capture_context_gone(context);
}

/* The host waits for what frees have ordered so far, and for nothing that came later. Natively a
 * stream may be created during any capture. */
static void wait_for_ordered(struct ag_context *context)
{
    uint64_t placed = atomic_load_explicit(&context->barrier.placed, memory_order_acquire);
    CUstreamCaptureMode previous = ag_capture_relax();

    if (ag_fence_wait_on_host(context->barrier.event) != CUDA_SUCCESS)
        (void)ag_fence_wait_context(context);
    ag_capture_restore(previous);
    ag_host_wait_completed(context, placed);
}

/* What was freed in the order of the NULL stream so far holds for the new stream, too, once it
 * waits for the last barrier. While a capture is open it cannot: then the host does. What was
 * allocated in that order the host has waited for. */
static void order_before_nonblocking(struct ag_context *context, void *unused)
{
    (void)unused;
    if (!ag_context_has_resources(context))
        return; /* nothing was ever ordered here */
    if (ag_drain_reason() != AG_DRAIN_NOT)
        return; /* the host has waited for everything that was freed */
    if (ag_fence_extend_barrier(context) != AG_FENCE_PLACED)
        wait_for_ordered(context);
}

void ag_free_nonblocking_created(struct ag_context *context)
{
    if (ag_watch_is_on()) /* its first work asks, and barriers are of way (b) */
        return;
    if (context)
        order_before_nonblocking(context, NULL);
    else
        ag_context_each(order_before_nonblocking, NULL);
}

void ag_free_begin_child(void)
{
    ag_users_begin_child();
    ag_watch_begin_child();
    ag_capture_begin_child();
    ag_host_wait_begin_child();
    ag_drain_begin_child();
}
