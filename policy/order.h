/* When may freed memory be used again, and what must the host be kept from seeing meanwhile? */
#ifndef AG_POLICY_ORDER_H
#define AG_POLICY_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "interpose/driver/abi.h"
#include "interpose/report/stats.h"
#include "interpose/settings/options.h"

struct ag_context;

/* Ways by which somebody can see that work is unfinished after cudaFree has returned. In the order
 * of the AG_STAT_DRAIN_* rows from PINNED on. */
enum ag_visible {
    AG_VISIBLE_PINNED,
    AG_VISIBLE_REGISTERED,
    AG_VISIBLE_MANAGED,
    AG_VISIBLE_PAGEABLE,
    AG_VISIBLE_HOST_FUNCTION,
    AG_VISIBLE_SHARED,
    AG_VISIBLE_EXTERNAL,
    AG_VISIBLE_RDMA,
    AG_VISIBLE_PRINTF,
    AG_VISIBLE_PEERS,
    AG_VISIBLE_CONTEXTS,
    AG_N_VISIBLE
};

void ag_drain_configure(enum ag_free_mode mode);

/* From now on frees drain under ALLOGRAFT_FREE=auto. Call it before the call that makes it so. */
void ag_drain_note_visible(enum ag_visible how);
/* A context came to life. */
void ag_free_context_entered(void);
/* A non-blocking stream is about to be created in `context` (NULL: in one that could not be told);
 * and was. */
void ag_fence_nonblocking_coming(struct ag_context *context);
void ag_free_nonblocking_created(struct ag_context *context);

/* The error that everything in `context` returns since the device met one, or CUDA_SUCCESS. Cheap:
 * 0.04 us (H200). Not for a context in which nothing was freed yet. */
CUresult ag_context_sticky_error(struct ag_context *context);
/* Is a context in which this happened of no more use? */
bool ag_error_is_sticky(CUresult result);

/* What a free of memory of `context` has to do first.
 * CUDA_SUCCESS: with *ret_set_aside false, all work that may use the memory is ordered before
 * everything submitted to the context from now on (or has finished); with true, a capture is open
 * and the memory must stay untouched until it closes (ag_alloc_capture_closed).
 * Else: the error a native cudaFree would have returned; the memory stays the program's. */
CUresult ag_free_order(struct ag_context *context, bool *ret_set_aside);

/* Around the driver's allocation for `context`, which is current: which stream to allocate on, and
 * then making the memory valid for all work submitted from now on. begin: false in a capture. */
bool ag_private_stream_begin_alloc(struct ag_context *context, CUstream *ret_stream);
CUresult ag_private_stream_end_alloc(struct ag_context *context, CUstream stream, CUresult result);

/* The stream on which memory of `context` may be given back to its pool now (its earlier users are
 * ordered before it); the context is current until ag_private_stream_end_release. False in a capture. */
bool ag_private_stream_begin_release(struct ag_context *context, CUstream *ret_stream,
                                     bool *ret_pushed);
void ag_private_stream_end_release(bool pushed);
/* Has all work submitted to the context so far finished? Waits for that for `timeout_ns` at most.
 * False in a capture. */
bool ag_fence_wait_idle(struct ag_context *context, uint64_t timeout_ns);
/* The host waits until what was allocated from and given back to the pool so far has been done, for
 * `timeout_ns` at most (UINT64_MAX: for ever): CUDA_ERROR_NOT_READY then. */
CUresult ag_private_stream_wait(struct ag_context *context, uint64_t timeout_ns);

/* Does the host owe a wait? Waits until all work before the last ordered free has finished. */
bool ag_host_wait_pending(void);
void ag_host_wait_complete(enum ag_stat why);
/* The process ends: whose free is it that the host still owes a wait for? Several: others'. */
enum ag_host_wait_owner { AG_HOST_WAIT_OF_NOBODY, AG_HOST_WAIT_OF_CALLER, AG_HOST_WAIT_OF_OTHERS };
enum ag_host_wait_owner ag_host_wait_owner(void);
/* By the helper (base/helper.h): pays, unless nobody waits for it any more. */
void ag_host_wait_complete_at_exit(void);
/* From now on every free drains. */
void ag_drain_exiting(void);
/* The context dies, its events and captures with it: nothing can be owed there any more. */
void ag_free_context_gone(struct ag_context *context);

/* Captures. opening: before the call that begins one; no call of ours that would end it is under
 * way or begins from then on. opened: after it, with its success. ended: after a call that may
 * have ended the capture on `stream`. The last two are true when no capture is open any more: what
 * was set aside may be freed. */
bool ag_capture_is_open(void);
void ag_capture_opening(void);
bool ag_capture_opened(CUstream stream, bool per_thread, bool success);
bool ag_capture_ended(CUstream stream, bool per_thread);
/* Around the destruction of a stream, which ends the capture that began on it: out of the list
 * before, since its handle may be another stream's at once, and no question about it after (the
 * driver would crash). dying: is there such a capture? Then died is to follow; true when none is
 * open any more. */
bool ag_capture_stream_destroying(CUstream stream, struct ag_context **ret_context);
bool ag_capture_stream_destroyed(CUstream stream, struct ag_context *context, bool success);

/* While a thread is inside, no capture begins (for a bounded time). False while one is open; then
 * do not leave. Not to be nested. */
bool ag_capture_guard_enter(void);
void ag_capture_guard_leave(void);

/* Calls in between neither fail in, nor end, a capture that is open somewhere. */
CUstreamCaptureMode ag_capture_relax(void);
void ag_capture_restore(CUstreamCaptureMode previous);

/* A forked child: no captures, nothing owed. */
void ag_free_begin_child(void);

#endif
