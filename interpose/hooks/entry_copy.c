/* Hooks of copies, where ALLOGRAFT_GRAPH replays streams: a copy on a stream is recorded
 * (graph/copies.c), a copy that blocks submits what was withheld first. */
#include "graph/copies.h"
#include "graph/record/memory.h"
#include "interpose/hooks/entry_replay.h"
#include "policy/contexts/context.h"

static inline uint64_t address_of(const void *host)
{
    return (uintptr_t)host;
}

/* --- on a stream --- */

#define LINE(symbol, per_thread, way, to_type, to_address, from_type, from_address)           \
    AG_RECORDED(AG_WAIT_ASYNC_COPY, symbol, stream, per_thread,                               \
                ag_copies_line(state, way, to_address, from_address, bytes),                  \
                (to_type to, from_type from, size_t bytes, CUstream stream), to, from, bytes, \
                stream)

LINE(cuMemcpyHtoDAsync_v2, false, AG_COPY_TO_DEVICE, CUdeviceptr, to, const void *,
     address_of(from))
LINE(cuMemcpyHtoDAsync_v2_ptsz, true, AG_COPY_TO_DEVICE, CUdeviceptr, to, const void *,
     address_of(from))
LINE(cuMemcpyDtoHAsync_v2, false, AG_COPY_TO_HOST, void *, address_of(to), CUdeviceptr, from)
LINE(cuMemcpyDtoHAsync_v2_ptsz, true, AG_COPY_TO_HOST, void *, address_of(to), CUdeviceptr, from)
LINE(cuMemcpyDtoDAsync_v2, false, AG_COPY_WITHIN, CUdeviceptr, to, CUdeviceptr, from)
LINE(cuMemcpyDtoDAsync_v2_ptsz, true, AG_COPY_WITHIN, CUdeviceptr, to, CUdeviceptr, from)
LINE(cuMemcpyAsync, false, AG_COPY_ANY, CUdeviceptr, to, CUdeviceptr, from)
LINE(cuMemcpyAsync_ptsz, true, AG_COPY_ANY, CUdeviceptr, to, CUdeviceptr, from)

#define SHAPED(symbol, per_thread, take, type)                                     \
    AG_RECORDED(AG_WAIT_ASYNC_COPY, symbol, stream, per_thread, take(state, copy), \
                (const type *copy, CUstream stream), copy, stream)

SHAPED(cuMemcpy2DAsync_v2, false, ag_copies_rectangle, CUDA_MEMCPY2D)
SHAPED(cuMemcpy2DAsync_v2_ptsz, true, ag_copies_rectangle, CUDA_MEMCPY2D)
SHAPED(cuMemcpy3DAsync_v2, false, ag_copies_box, CUDA_MEMCPY3D)
SHAPED(cuMemcpy3DAsync_v2_ptsz, true, ag_copies_box, CUDA_MEMCPY3D)

/* Of the host, or of the current context? */
static bool is_here(CUdeviceptr address)
{
    return ag_memory_kind(address, 1) != AG_MEMORY_UNKNOWN;
}

/* A copy without a stream between two devices comes behind what was submitted to both, whichever of
 * them is current. `one`, `other`: its addresses, but for those that are the host's; or 0. */
static void flush_for_copy(bool all_of_context, CUdeviceptr one, CUdeviceptr other)
{
    if (!ag_replay_holds())
        return;
    if (ag_context_count() > 1 && !(is_here(one) && (other == one || is_here(other)))) {
        ag_replay_flush_all(AG_FLUSH_COPY);
    } else if (all_of_context) {
        ag_replay_flush_context(NULL, AG_FLUSH_COPY);
        ag_replay_flush_thread(AG_FLUSH_COPY);
    }
}

/* Without a stream, but nobody waits for it: within a device, work of the default stream like any
 * other. */
#define WITHIN(symbol, per_thread)                                                                \
    AG_SUBMITTED_TIMED(                                                                           \
        AG_WAIT_COPY, symbol, NULL, per_thread, (CUdeviceptr to, CUdeviceptr from, size_t bytes), \
        {                                                                                         \
            struct ag_stream *state = ag_replay_enter(NULL, per_thread);                          \
            if (state && ag_copies_line(state, AG_COPY_BLOCKING, to, from, bytes))                \
                return ag_entry_leave(CUDA_SUCCESS);                                              \
            flush_for_copy(false, to, from);                                                      \
            return ag_entry_leave(ag_entry_submitted(state, ag_cu.symbol(to, from, bytes)));      \
        },                                                                                        \
        to, from, bytes)

WITHIN(cuMemcpyDtoD_v2, false)
WITHIN(cuMemcpyDtoD_v2_ptds, true)

/* --- the host waits --- */

#define BLOCKS(symbol, per_thread, one, other, parameters, ...)                                 \
    AG_WAITS_FOR_WORK(AG_WAIT_COPY, symbol, NULL, per_thread, flush_for_copy(true, one, other), \
                      parameters, __VA_ARGS__)

BLOCKS(cuMemcpyHtoD_v2, false, to, to, (CUdeviceptr to, const void *from, size_t bytes), to, from,
       bytes)
BLOCKS(cuMemcpyHtoD_v2_ptds, true, to, to, (CUdeviceptr to, const void *from, size_t bytes), to,
       from, bytes)
BLOCKS(cuMemcpyDtoH_v2, false, from, from, (void *to, CUdeviceptr from, size_t bytes), to, from,
       bytes)
BLOCKS(cuMemcpyDtoH_v2_ptds, true, from, from, (void *to, CUdeviceptr from, size_t bytes), to, from,
       bytes)
BLOCKS(cuMemcpy, false, to, from, (CUdeviceptr to, CUdeviceptr from, size_t bytes), to, from, bytes)
BLOCKS(cuMemcpy_ptds, true, to, from, (CUdeviceptr to, CUdeviceptr from, size_t bytes), to, from,
       bytes)
BLOCKS(cuMemcpy2D_v2, false, 0, 0, (const CUDA_MEMCPY2D *copy), copy)
BLOCKS(cuMemcpy2D_v2_ptds, true, 0, 0, (const CUDA_MEMCPY2D *copy), copy)
BLOCKS(cuMemcpy2DUnaligned_v2, false, 0, 0, (const CUDA_MEMCPY2D *copy), copy)
BLOCKS(cuMemcpy2DUnaligned_v2_ptds, true, 0, 0, (const CUDA_MEMCPY2D *copy), copy)
BLOCKS(cuMemcpy3D_v2, false, 0, 0, (const CUDA_MEMCPY3D *copy), copy)
BLOCKS(cuMemcpy3D_v2_ptds, true, 0, 0, (const CUDA_MEMCPY3D *copy), copy)

/* Ordered behind the work of two contexts. */
#define BETWEEN(symbol, parameters, ...)                         \
    AG_WAITS_FOR_WORK(AG_WAIT_COPY, symbol, AG_SOMEWHERE, false, \
                      ag_replay_flush_all(AG_FLUSH_COPY), parameters, __VA_ARGS__)

BETWEEN(cuMemcpyPeer,
        (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
         size_t bytes),
        to, to_context, from, from_context, bytes)
BETWEEN(cuMemcpyPeer_ptds,
        (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
         size_t bytes),
        to, to_context, from, from_context, bytes)
BETWEEN(cuMemcpy3DPeer, (const CUDA_MEMCPY3D_PEER *copy), copy)
BETWEEN(cuMemcpy3DPeer_ptds, (const CUDA_MEMCPY3D_PEER *copy), copy)
