/* What is pending, who left it pending, and completing it: see host_wait.h.
 *
 * A context's wait is pending while more requests of its barrier were placed (barrier.placed) than
 * the host has waited for (host_waited). The latter only grows, after the host has waited.
 *
 * A free leaves its wait pending, and then asks whether something is visible (drain.h); what makes
 * something visible says so, and then asks here whether a wait is pending. One of the two sees the
 * other: so these stores, and the loads that are asked here, are sequentially consistent. */
#include "policy/order/host_wait.h"

#include <stdatomic.h>

#include "interpose/core/base/raise.h"
#include "interpose/core/base/threads/helper.h"
#include "interpose/core/base/threads/wait.h"
#include "interpose/core/driver/driver.h"
#include "policy/contexts/context.h"
#include "policy/order/capture.h"
#include "policy/order/fence.h"
#include "policy/order/watch.h"

/* Has a free of this process ever been ordered? Then the helper runs, which completes what is
 * pending at the end. */
static _Atomic bool ever_ordered;

static bool is_pending(struct ag_context *context, uint64_t *ret_placed)
{
    bool is_due = ag_watch_is_due(context); /* asked first: placing it counts in `placed` */

    *ret_placed = atomic_load_explicit(&context->barrier.placed, memory_order_seq_cst);
    return is_due ||
           *ret_placed > atomic_load_explicit(&context->host_waited, memory_order_acquire);
}

static bool pending_in(struct ag_context *context)
{
    uint64_t placed;

    return is_pending(context, &placed);
}

bool ag_host_wait_pending(void)
{
    return atomic_load_explicit(&ever_ordered, memory_order_seq_cst) && ag_context_any(pending_in);
}

bool ag_host_wait_pending_in(struct ag_context *context)
{
    return atomic_load_explicit(&ever_ordered, memory_order_seq_cst) && pending_in(context);
}

/* Relaxed: it is never taken back. */
bool ag_host_wait_possible(void)
{
    if (atomic_load_explicit(&ever_ordered, memory_order_relaxed))
        return true;
    if (!ag_helper_start())
        return false;
    atomic_store_explicit(&ever_ordered, true, memory_order_seq_cst);
    return true;
}

void ag_host_wait_completed(struct ag_context *context, uint64_t placed)
{
    ag_raise_to(&context->host_waited, placed);
}

void ag_host_wait_context_gone(struct ag_context *context)
{
    ag_raise_to(&context->host_waited,
                atomic_load_explicit(&context->barrier.placed, memory_order_acquire));
}

/* Waits by the event; where the driver refuses that, for all that the context has to do. */
static void wait_for_barrier(struct ag_context *context)
{
    if (ag_fence_wait_on_host(context->barrier.event) != CUDA_SUCCESS)
        (void)ag_fence_wait_context(context);
}

static void complete(struct ag_context *context, void *data)
{
    bool *waited = data;
    uint64_t placed;

    ag_watch_place(context);
    if (!is_pending(context, &placed))
        return;
    wait_for_barrier(context);
    ag_raise_to(&context->host_waited, placed);
    *waited = true;
}

static bool complete_each(void (*complete_in)(struct ag_context *, void *), enum ag_stat why)
{
    CUstreamCaptureMode previous;
    bool waited = false;

    if (!ag_host_wait_pending())
        return false;
    previous = ag_capture_relax(); /* a capture may begin meanwhile */
    ag_context_each(complete_in, &waited);
    ag_capture_restore(previous);
    if (waited)
        ag_stats_add(why, 1);
    return waited;
}

void ag_host_wait_complete(enum ag_stat why)
{
    (void)complete_each(complete, why);
}

/* --- whose free it was --- */

/* What the calling thread's last free left pending, if anything: until the host has waited for so
 * many requests of that context's barrier. The thread's own, since a word of the context that every
 * free wrote to held up 16 threads to a quarter of what they do without. */
static _Thread_local struct {
    struct ag_context *context;
    uint64_t until;
    bool several; /* in another context, too */
} left;

static bool left_in(struct ag_context *context)
{
    return left.context == context &&
           left.until > atomic_load_explicit(&context->host_waited, memory_order_acquire);
}

void ag_host_wait_leave(struct ag_context *context, bool is_due, uint64_t placed)
{
    if (left.context != context)
        left.several = left.context && left_in(left.context);
    left.context = context;
    left.until = placed + is_due;
}

/* No barrier was placed since, so that the event covers what was submitted before that free. */
static void complete_own(struct ag_context *context, void *data)
{
    if (left.context == context &&
        left.until >= atomic_load_explicit(&context->barrier.placed, memory_order_acquire))
        complete(context, data);
}

bool ag_host_wait_complete_own(enum ag_stat why)
{
    return complete_each(complete_own, why);
}

/* --- the end of the process --- */

static void find_owner(struct ag_context *context, void *data)
{
    enum ag_host_wait_owner *owner = data;
    uint64_t placed;

    if (!is_pending(context, &placed) || *owner == AG_HOST_WAIT_OF_OTHERS)
        return;
    *owner = left_in(context) || left.several ? AG_HOST_WAIT_OF_CALLER : AG_HOST_WAIT_OF_OTHERS;
}

enum ag_host_wait_owner ag_host_wait_owner(void)
{
    enum ag_host_wait_owner owner = AG_HOST_WAIT_OF_NOBODY;

    if (atomic_load_explicit(&ever_ordered, memory_order_acquire))
        ag_context_each(find_owner, &owner);
    return owner;
}

/* Completes the wait in the helper's thread. It polls, so that whoever waits for it sees whether
 * the driver answers, and so that it leaves the driver soon after nobody waits any more. */
static void complete_at_exit(struct ag_context *context, void *data)
{
    struct ag_wait wait = {0};
    bool *waited = data;
    uint64_t placed;
    CUresult result;

    ag_watch_place(context);
    if (!is_pending(context, &placed))
        return;
    while ((result = ag_cu.cuEventQuery(context->barrier.event)) == CUDA_ERROR_NOT_READY &&
           ag_helper_beat())
        ag_wait_pause(&wait);
    if (result == CUDA_ERROR_NOT_READY)
        return;
    *waited = true;
    /* The driver prints the output of kernels only when the host waits. */
    (void)ag_cu.cuEventSynchronize(context->barrier.event);
    ag_raise_to(&context->host_waited, placed);
}

void ag_host_wait_complete_at_exit(void)
{
    CUstreamCaptureMode previous = ag_capture_relax();
    bool waited = false;

    ag_context_each(complete_at_exit, &waited);
    ag_capture_restore(previous);
    if (waited)
        ag_stats_add(AG_STAT_WAITED_EXIT, 1);
}

void ag_host_wait_begin_child(void)
{
    atomic_store(&ever_ordered, false);
}
