/* The host's wait that an ordered free leaves pending.
 *
 * When a native cudaFree returns, all earlier work of the context has finished. An ordered free
 * returns at once, so the host still has that wait to do. It stays pending until somebody could
 * tell the difference: an event is queried, memory that the host reads becomes visible, the process
 * ends. Then the wait is made up for; one wait completes those of all frees before it. */
#ifndef AG_POLICY_ORDER_HOST_WAIT_H
#define AG_POLICY_ORDER_HOST_WAIT_H

#include <stdbool.h>
#include <stdint.h>

#include "interpose/core/report/stats.h"
#include "policy/contexts/context.h"
#include "policy/order/watch.h"

/* Is a wait pending in any context? True until the wait is over, also when another thread is at it
 * already. */
bool ag_host_wait_pending(void);
/* In that context? */
bool ag_host_wait_pending_in(struct ag_context *context);
/* Waits until all work before the last ordered free has finished, and counts that under `why`. */
void ag_host_wait_complete(enum ag_stat why);

/* Waits as ag_host_wait_complete() does, if the calling thread made the last ordered free: then it
 * waits as it natively would have, however long that takes. It does not wait for the frees of
 * others, whose work may be waiting for this thread. True if it waited. */
bool ag_host_wait_complete_own(enum ag_stat why);

/* A free of the calling thread left what is pending by now, be it placed by another's. */
void ag_host_wait_leave(struct ag_context *context, bool is_due, uint64_t placed);
static inline void ag_host_wait_begin(struct ag_context *context)
{
    bool is_due = ag_watch_is_due(context); /* asked first: placing it counts in `placed` */
    uint64_t placed = atomic_load_explicit(&context->barrier.placed, memory_order_acquire);

    if (is_due || placed > atomic_load_explicit(&context->host_waited, memory_order_acquire))
        ag_host_wait_leave(context, is_due, placed);
}
/* Can a wait be left pending at all? Only if there is a helper to complete it when the process
 * ends; starts it. */
bool ag_host_wait_possible(void);
/* The host has waited for the first `placed` requests of the context's barrier. */
void ag_host_wait_completed(struct ag_context *context, uint64_t placed);
/* The context is gone: nothing is pending there any more. */
void ag_host_wait_context_gone(struct ag_context *context);

/* The process ends: whose free left the wait pending? Several threads': others. */
enum ag_host_wait_owner {
    AG_HOST_WAIT_OF_NOBODY,
    AG_HOST_WAIT_OF_CALLER,
    AG_HOST_WAIT_OF_OTHERS,
};
enum ag_host_wait_owner ag_host_wait_owner(void);
/* Completes the wait in the helper's thread (interpose/core/base/threads/helper.h), unless whoever
 * leaves the process stops waiting for it. */
void ag_host_wait_complete_at_exit(void);

/* In a forked child nothing is pending. */
void ag_host_wait_begin_child(void);

#endif
