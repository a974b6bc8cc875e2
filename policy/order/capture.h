/* Which stream captures are open, and the guard that keeps our driver calls out of their way.
 *
 * Some driver calls fail while any thread captures a stream, and some end the capture: those that
 * touch the NULL stream or a whole context. The program did not make these calls, so it must not
 * notice them. Two rules keep it so:
 *   - Such a call is made inside the guard. A capture that begins closes the guard and waits until
 *     the threads inside have left it.
 *   - While a capture is open the guard lets nobody in, and the caller does without its call.
 * What waits for the device, or may take long, has no place inside: whoever begins a capture would
 * wait as long, and the device may be waiting for what comes after that.
 *
 *     if (ag_capture_guard_enter()) {
 *         result = ag_cu.cuEventRecord(event, NULL);
 *         ag_capture_guard_leave();
 *     }
 *
 * Calls that fail only because the calling thread's capture mode forbids them, such as waiting for
 * an event, are made between ag_capture_relax() and ag_capture_restore() instead. */
#ifndef AG_POLICY_ORDER_CAPTURE_H
#define AG_POLICY_ORDER_CAPTURE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "interpose/core/base/slot.h"
#include "interpose/core/driver/abi.h"

struct ag_context;

/* Only for the functions here and in capture.c. */
extern _Atomic unsigned ag_captures_open;
extern struct ag_capture_guard {
    _Alignas(64) _Atomic unsigned inside;
} ag_capture_guard[AG_SLOTS];

/* Is a capture open in any thread, or about to begin? */
static inline bool ag_capture_is_open(void)
{
    return atomic_load_explicit(&ag_captures_open, memory_order_seq_cst) != 0;
}

/* Until the calling thread leaves the guard, no capture begins. False while one is open: then do
 * not leave. Does not nest. */
static inline bool ag_capture_guard_enter(void)
{
    _Atomic unsigned *inside = &ag_capture_guard[ag_slot()].inside;

    atomic_fetch_add_explicit(inside, 1, memory_order_seq_cst);
    if (!ag_capture_is_open())
        return true;
    atomic_fetch_sub_explicit(inside, 1, memory_order_release);
    return false;
}

static inline void ag_capture_guard_leave(void)
{
    atomic_fetch_sub_explicit(&ag_capture_guard[ag_slot()].inside, 1, memory_order_release);
}

/* Calls in between neither fail because of an open capture nor end it. */
CUstreamCaptureMode ag_capture_relax(void);
void ag_capture_restore(CUstreamCaptureMode previous);

/* Does what is submitted to the stream become part of a graph? The question ends no capture. */
bool ag_capture_takes(CUstream stream, bool per_thread);

/* Called before the driver call that begins a capture, and after it. `per_thread`: the call was of
 * the flavour whose NULL stream is the thread's own, whose capture ends with the thread at the
 * latest. True: no capture is open any more (the call failed), and memory that was set aside may be
 * freed. */
void ag_capture_opening(void);
bool ag_capture_opened(CUstream stream, bool per_thread, struct ag_context *context, bool success);
/* Called after a call that may have ended the capture on `stream`. True: no capture is open any
 * more. */
bool ag_capture_ended(CUstream stream, bool per_thread);

/* Destroying a stream ends the capture that began on it. Before the call the capture leaves the
 * list, since the handle may be another stream's as soon as the call returns. False: no capture
 * began on that stream. True: ag_capture_stream_destroyed() must follow with *ret_context, and
 * returns true when no capture is open any more. */
bool ag_capture_stream_destroying(CUstream stream, struct ag_context **ret_context);
bool ag_capture_stream_destroyed(CUstream stream, struct ag_context *context, bool success);

/* The context is gone, and its captures with it. */
void ag_capture_context_gone(const struct ag_context *context);
/* A forked child captures nothing. */
void ag_capture_begin_child(void);

#endif
