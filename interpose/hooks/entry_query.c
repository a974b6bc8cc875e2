/* Hooks of calls whose answer depends on the host's wait that an ordered free left pending. */
#include "graph/record/func_attrs.h"
#include "graph/replayer.h"
#include "interpose/core/report/errors/last_launches.h"
#include "interpose/hooks/entry_retry.h"
#include "interpose/hooks/entry_waits.h"
#include "policy/answers/lookup.h"
#include "policy/guard/guard.h"
#include "policy/managed/kernel_params.h"
#include "policy/order/host_wait.h"
#include "policy/paging/ranges.h"

#define MOST_ASKS 16 /* other threads' frees keep no query for ever */

/* A query natively finds the work before the last cudaFree finished. Was that wait pending when the
 * answer "not ready" was given? Then it is made, and the driver has to be asked again. `pending`:
 * before it was asked, since another thread may have waited meanwhile. */
static bool has_completed_wait(CUresult result, bool pending)
{
    struct ag_waiting wait;

    if (result != CUDA_ERROR_NOT_READY || !(pending || ag_host_wait_pending()))
        return false;
    wait = ag_waiting_begin();
    ag_host_wait_complete(AG_STAT_WAITED_QUERY);
    ag_waiting_end(&wait, AG_WAIT_FREE, "query behind a free");
    return true;
}

#define ASK_THE_DRIVER(symbol, ...)         \
    do {                                    \
        pending = ag_host_wait_pending();   \
        result = ag_cu.symbol(__VA_ARGS__); \
    } while (--asks && has_completed_wait(result, pending))

/* Where an answer is an error of earlier work, nothing more may be withheld. */
static CUresult replied(CUresult result)
{
    return ag_entry_replays_now() ? ag_replay_late(result) : result;
}

#define ASKED_AGAIN(symbol, parameters, ...)    \
    AG_ENTRY CUresult symbol parameters         \
    {                                           \
        unsigned asks = MOST_ASKS;              \
        CUresult result;                        \
        bool pending;                           \
                                                \
        AG_ENTER(symbol, __VA_ARGS__);          \
        ASK_THE_DRIVER(symbol, __VA_ARGS__);    \
        return ag_entry_leave(replied(result)); \
    }

ASKED_AGAIN(cuEventQuery, (CUevent event), event)
ASKED_AGAIN(cuEventElapsedTime, (float *milliseconds, CUevent start, CUevent end), milliseconds,
            start, end)
ASKED_AGAIN(cuEventElapsedTime_v2, (float *milliseconds, CUevent start, CUevent end), milliseconds,
            start, end)

/* A query of a stream asks for what is withheld as well: it goes out first. */
#define STREAM_ASKED(symbol, per_thread)                                 \
    AG_ENTRY CUresult symbol(CUstream stream)                            \
    {                                                                    \
        unsigned asks = MOST_ASKS;                                       \
        CUresult result;                                                 \
        bool pending;                                                    \
                                                                         \
        AG_ENTER(symbol, stream);                                        \
        if (ag_entry_replays_now())                                      \
            ag_replay_flush_stream(stream, per_thread, AG_FLUSH_STREAM); \
        ASK_THE_DRIVER(symbol, stream);                                  \
        return ag_entry_leave(replied(result));                          \
    }

STREAM_ASKED(cuStreamQuery, false)
STREAM_ASKED(cuStreamQuery_ptsz, true)

/* What is taken away was in nobody's use any more natively, after a cudaFree. */
static void wait_first(void)
{
    if (ag_host_wait_pending())
        ag_host_wait_complete(AG_STAT_WAITED_DESTROY);
}

static void forgotten(void)
{
    if (ag_entry_replays_now()) {
        ag_replay_forget_code(AG_FLUSH_CODE, true);
        ag_func_attrs_forget();
        ag_memory_forget(); /* variables go, too */
    }
    ag_params_forget();
    ag_launches_forget();
}

/* Code that goes: its functions' handles may come back as others. */
AG_ENTRY CUresult cuModuleUnload(CUmodule module)
{
    AG_ENTER(cuModuleUnload, module);
    AG_TIMES_WAIT(AG_WAIT_CODE, cuModuleUnload);
    wait_first();
    forgotten();
    return ag_entry_leave(ag_cu.cuModuleUnload(module));
}

AG_ENTRY CUresult cuLibraryUnload(CUlibrary library)
{
    AG_ENTER(cuLibraryUnload, library);
    AG_TIMES_WAIT(AG_WAIT_CODE, cuLibraryUnload);
    wait_first();
    forgotten();
    return ag_entry_leave(ag_cu.cuLibraryUnload(library));
}

/* A graph keeps what its context was like when it was made: a kernel that needs the stack which was
 * raised since fails there. Dropped after the call: what is made beside it keeps the old, too. */
static CUresult altered(CUresult result)
{
    if (result == CUDA_SUCCESS && ag_entry_replays_now())
        ag_replay_forget_code(AG_FLUSH_CODE, false);
    return result;
}

#include "interpose/hooks/made/queries.h"

/* Memory of cudaMalloc is none that the program has mapped, also where it is mapped: it cannot be
 * unmapped, nor be opened and closed to devices, and has no handle. */
static bool is_of_cuda_malloc(CUdeviceptr address)
{
    struct ag_block_seen block;

    return ag_range_may_hold(address) ||
           (ag_guard_is_on() && ag_lookup(address, &block) == AG_FOUND_BLOCK);
}

AG_ENTRY CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
    AG_ENTER(cuMemUnmap, ptr, size);
    if (is_of_cuda_malloc(ptr))
        return ag_entry_leave(CUDA_ERROR_INVALID_VALUE);
    ag_entry_remaps();
    wait_first();
    return ag_entry_leave(ag_cu.cuMemUnmap(ptr, size));
}

AG_ENTRY CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *map,
                                 size_t count)
{
    AG_ENTER(cuMemSetAccess, ptr, size, map, count);
    if (is_of_cuda_malloc(ptr))
        return ag_entry_leave(CUDA_ERROR_INVALID_VALUE);
    ag_entry_remaps();
    wait_first();
    return ag_entry_leave(ag_cu.cuMemSetAccess(ptr, size, map, count));
}

AG_ENTRY CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    AG_ENTER(cuMemRetainAllocationHandle, handle, address);
    if (handle && is_of_cuda_malloc((uintptr_t)address))
        return ag_entry_leave(CUDA_ERROR_INVALID_VALUE);
    return ag_entry_leave(ag_cu.cuMemRetainAllocationHandle(handle, address));
}
