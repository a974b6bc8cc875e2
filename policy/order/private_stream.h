/* The private streams of a context, on which its memory comes from pools and goes back to them.
 *
 * A pool allocates and frees in the order of some stream. Ours are non-blocking streams of our own,
 * one for each direction, tied to the program's work by events. Never the NULL stream: after a
 * single pool allocation on it, a thread that exits while its per-thread stream still waits for a
 * barrier never returns from the driver (580.159, tests/gpu/order.cu cross-per-thread). */
#ifndef AG_POLICY_ORDER_PRIVATE_STREAM_H
#define AG_POLICY_ORDER_PRIVATE_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "interpose/core/driver/abi.h"

struct ag_context;

/* Called before and after the driver's allocation for `context`, which is current. begin: the
 * stream to allocate on; false while a capture is open. end, once the driver has allocated: makes
 * the memory valid for all work submitted from now on. CUDA_ERROR_NOT_SUPPORTED where a capture has
 * begun meanwhile, which that would end: then the memory has to go back, and the driver's own is as
 * good as it was for a program that allocates during a capture. */
bool ag_private_stream_begin_alloc(struct ag_context *context, CUstream *ret_stream);
CUresult ag_private_stream_end_alloc(struct ag_context *context, CUstream stream);

/* Called before and after memory of `context` is returned. begin: to->stream is the one to free
 * it on in stream order, which comes after the memory's users, and the context is current until
 * the end. With `on_host`, and while a capture is open, the host waits for those users, for
 * `timeout_ns` at most: a free that the driver lets wait may not do so during a capture, and one
 * may begin at any time. False if that was too long, or the driver refused: then there is no
 * end. */
struct ag_release {
    CUstream stream;
    bool pushed;
    CUstreamCaptureMode mode; /* of the thread before */
};
bool ag_private_stream_begin_release(struct ag_context *context, bool on_host, uint64_t timeout_ns,
                                     struct ag_release *to);
void ag_private_stream_end_release(const struct ag_release *to);

/* The host waits until what was allocated and released so far has taken effect, for `timeout_ns` at
 * most (UINT64_MAX: for ever); CUDA_ERROR_NOT_READY after that. */
CUresult ag_private_stream_wait(struct ag_context *context, uint64_t timeout_ns);

#endif
