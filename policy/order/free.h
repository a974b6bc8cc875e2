/* What a free has to do before its memory may be used again: a native cudaFree without its wait.
 *
 * A native cudaFree waits for all work of the context that owns the memory. Programs rely on three
 * consequences of that:
 *   1. the memory is not used again before that work is done;
 *   2. on the device, whatever is submitted later, on any stream, runs after whatever was submitted
 *      before;
 *   3. on the host, that work is finished when the call returns.
 * An *ordered* free keeps 1 and 2 by a barrier on the device (fence.h) and leaves 3 pending
 * (host_wait.h) until somebody could tell the difference. Since all later work waits for all
 * earlier work, the memory may be handed out again at once in the same context. Not in others: with
 * several contexts, or peers, frees drain, and under ALLOGRAFT_FREE=ordered the other contexts wait
 * for the barrier as well.
 *
 * A *draining* free (drain.h) lets the host wait for a host fence. It holds nothing back on the
 * device: work that this work waits for may be submitted by another thread, to another GPU, only
 * now.
 *
 * While a capture is open there can be neither barrier nor host fence. Then a tiny block is
 * allocated natively and freed: that is legal, is refused and takes as long exactly as the
 * program's own cudaFree would. Under ALLOGRAFT_FREE=ordered the memory is *set aside* instead, and
 * freed when no capture is open any more. */
#ifndef AG_POLICY_ORDER_FREE_H
#define AG_POLICY_ORDER_FREE_H

#include <stdbool.h>

#include "interpose/core/driver/abi.h"
#include "interpose/core/report/stats.h"
#include "policy/contexts/context.h"
#include "policy/order/capture.h"
#include "policy/order/drain.h"
#include "policy/order/host_wait.h"
#include "policy/order/watch.h"

/* Only for the function below and in free.c. The work before the last free is done, or a fence is
 * after it, and no work came since. What natively waits for nothing only tells of an error; what
 * waits for the work before the free of another thread makes that wait its own. */
static inline CUresult ag_free_order_nothing(struct ag_context *context)
{
    CUresult result = ag_context_sticky_error(context);

    ag_host_wait_begin(context);
    if (result == CUDA_SUCCESS)
        ag_stats_add(AG_STAT_FREE_NOTHING, 1);
    else
        ag_stats_add(AG_STAT_FREE_REFUSED, 1);
    return result;
}
CUresult ag_free_order_work(struct ag_context *context, bool *ret_set_aside);

/* Orders the free of memory of `context`, or drains.
 * CUDA_SUCCESS: with *ret_set_aside false, all work that may use the memory has finished or comes
 * before everything submitted to the context from now on; with true, a capture is open and the
 * memory must stay untouched until ag_alloc_capture_closed().
 * Else: the error a native cudaFree would have returned; the memory stays the program's. */
static inline CUresult ag_free_order(struct ag_context *context, bool *ret_set_aside)
{
    *ret_set_aside = false;
    if (ag_drain_reason() == AG_DRAIN_NOT && !ag_capture_is_open() && ag_watch_is_clear())
        return ag_free_order_nothing(context);
    return ag_free_order_work(context, ret_set_aside);
}

/* Was nothing submitted to any context since the host last waited for all of it? */
bool ag_free_finds_nothing(void);
/* The host waits for all that the context was given so far, whatever ALLOGRAFT_FREE says, as the
 * driver does before it unpins memory of it. False: a capture is open, or it has an error. */
bool ag_free_wait_for(struct ag_context *context);

/* A context came to life. */
void ag_free_context_entered(void);
/* The context is gone, its events and captures with it. */
void ag_free_context_gone(struct ag_context *context);
/* Its memory is to be another's. What is watched is not its any more: it may be that of a context
 * which is alive. */
void ag_free_context_forgotten(struct ag_context *context);
/* A non-blocking stream was created in `context` (NULL: it could be any), as announced by
 * ag_fence_nonblocking_coming(). */
void ag_free_nonblocking_created(struct ag_context *context);

/* A forked child: no captures, nothing pending. */
void ag_free_begin_child(void);

#endif
