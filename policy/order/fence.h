/* Fences: events after all work that a context has submitted so far, future streams included.
 *
 * There are two kinds. Only the host waits for a *host fence*, nothing on the device. After a
 * *barrier* all later work of the context waits for all earlier work, which is what programs expect
 * of a cudaFree that they use to synchronise their streams. A barrier is placed in one of two ways:
 *   (a) While the context has no non-blocking stream, an event recorded on the NULL stream is one:
 *       it comes after all work of legacy, blocking and per-thread streams, also of destroyed ones,
 *       and everything later on those streams comes after it.
 *   (b) Else cuCtxRecordEvent and cuCtxWaitEvent.
 * Neither is possible while a capture is open: (b) would end it in any capture mode.
 *
 * Threads that ask at the same time share an event, since the driver is slower for 16 threads than
 * for one: the first places it for all that had asked before. */
#ifndef AG_POLICY_ORDER_FENCE_H
#define AG_POLICY_ORDER_FENCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "interpose/core/driver/abi.h"

struct ag_context;

struct ag_fence {
    CUevent event;
    _Alignas(64) _Atomic uint64_t requested;
    _Alignas(64) _Atomic uint64_t placed; /* of the requests, those that the event covers */
    _Atomic uint32_t placer;              /* enum placer of fence.c */
};

enum ag_fence_result { AG_FENCE_PLACED, AG_FENCE_NOT_PLACED, AG_FENCE_IN_CAPTURE };

/* The barrier is context->barrier, the host fence context->host_fence. Both make the context's
 * resources. */
enum ag_fence_result ag_fence_place_barrier(struct ag_context *context);
enum ag_fence_result ag_fence_place_for_host(struct ag_context *context);

/* Does a barrier of the context have to be placed in way (b)? */
bool ag_fence_needs_context(struct ag_context *context);
/* All future work of all contexts waits for `event`, which is of `context`. */
CUresult ag_fence_wait_everywhere(struct ag_context *context, CUevent event);
/* A thread in the driver's wait keeps its processor for as long as the kernel lets it, some
 * milliseconds, while others have work to submit: where more threads use CUDA than that, waits let
 * others run between looks. By default none does. */
void ag_fence_configure(unsigned n_processors);
/* The host waits for `event`, also while a capture is open. */
CUresult ag_fence_wait_on_host(CUevent event);
/* Waits for the event, for `timeout_ns` at most; CUDA_ERROR_NOT_READY after that. */
CUresult ag_fence_poll(CUevent event, uint64_t timeout_ns);
/* Allocates and frees a little natively: the driver's own free decides whether one is legal now,
 * and waits as it does for all work of `context`. Its answer. */
CUresult ag_fence_like_the_driver(struct ag_context *context);
/* The host waits for all work of the context by the driver's own free: for where no event can be
 * placed or waited for. What that returns. Ends no capture. */
CUresult ag_fence_wait_context(struct ag_context *context);
/* Waits until all work submitted to the context so far has finished, for `timeout_ns` at most. True
 * when it has, or when no fence could be placed, so that nobody can tell; false also in a capture.
 */
bool ag_fence_wait_idle(struct ag_context *context, uint64_t timeout_ns);

/* A non-blocking stream is about to be created in `context` (NULL: it could be any), so that way
 * (a) is not enough from now on. See also ag_free_nonblocking_created(). */
void ag_fence_nonblocking_coming(struct ag_context *context);
/* Since then it was created. Work on it, too, comes after the last barrier, which way (a) may have
 * placed: after that event and nothing later, since what was submitted meanwhile may be waiting
 * for the new stream. The stream itself stays idle, as the program may know it to be. */
enum ag_fence_result ag_fence_extend_barrier(struct ag_context *context);

#endif
