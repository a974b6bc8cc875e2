/* Hooks of copies. Where ALLOGRAFT_GRAPH replays streams, a copy on a stream is recorded
 * (graph/copies.c), and a copy that blocks submits what was withheld first. Where ALLOGRAFT_COPY
 * asks for it, a copy of pageable memory may be the crew's (interpose/copies/copying.c). */
#include "graph/copies.h"
#include "graph/record/memory.h"
#include "interpose/copies/copying.h"
#include "interpose/hooks/entry_replay.h"
#include "interpose/hooks/movable/aside.h"
#include "policy/contexts/context.h"
#include "policy/paging/ranges.h"
#include "policy/paging/use.h"

static inline uint64_t host_address(const void *host)
{
    return (uintptr_t)host;
}

/* Does the address belong to the host, or to the current context? */
static bool is_here(CUdeviceptr address)
{
    return ag_memory_kind(address, 1) != AG_MEMORY_UNKNOWN;
}

/* A copy without a stream between two devices comes after what was submitted to both, whichever of
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

/* A copy within the device uses memory as a kernel does. */
static void use_within(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    if (ag_latch_is_on())
        ag_use_before_copy(to, from, bytes);
}

/* A copy of unified addresses is known to be one only where both are of memory that can move. */
static void use_if_within(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    if (ag_latch_is_on() && ag_range_may_hold(to) && ag_range_may_hold(from))
        ag_use_before_copy(to, from, bytes);
}

static void before_copy_within(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    flush_for_copy(false, to, from);
    use_within(to, from, bytes);
}

static void before_copy(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    flush_for_copy(true, to, from);
    use_if_within(to, from, bytes);
}

/* Asks for the same on the default stream where that is due (aside.h). */
static bool copied_aside(CUresult *ret_result, CUdeviceptr to, CUdeviceptr from, size_t bytes,
                         bool per_thread)
{
    if (!ag_aside_is_due(to, from, per_thread))
        return false;
    *ret_result = ag_cu.cuMemcpyDtoDAsync_v2(to, from, bytes, ag_aside_stream(per_thread));
    *ret_result = ag_aside_wait(*ret_result, to, from, per_thread);
    return true;
}

/* The address of memory that a copy of rows names on one of its sides; 0: none that is a device's.
 */
#define device_side(copy, side)                                     \
    ((copy) && ((copy)->side##MemoryType == CU_MEMORYTYPE_DEVICE || \
                (copy)->side##MemoryType == CU_MEMORYTYPE_UNIFIED)  \
         ? (copy)->side##Device                                     \
         : 0)
#define rows_waited_for(result, copy, per_thread) \
    ag_aside_wait(result, device_side(copy, dst), device_side(copy, src), per_thread)
/* Asks for rows likewise, by `copies`. Where that is no valid copy, the call itself is made: it may
 * take pitches that the other one does not. */
#define rows_copied_aside(ret_result, copy, copies, per_thread)                                 \
    (ag_aside_is_due(device_side(copy, dst), device_side(copy, src), per_thread) && (copies) && \
     (*(ret_result) = (copies)(copy, ag_aside_stream(per_thread))) != CUDA_ERROR_INVALID_VALUE)

static inline struct ag_copying_place on(CUstream stream, bool per_thread)
{
    return (struct ag_copying_place){stream, per_thread, false};
}

static inline struct ag_copying_place waiting(bool per_thread)
{
    return (struct ag_copying_place){NULL, per_thread, true};
}

#include "interpose/hooks/made/copies.h"
