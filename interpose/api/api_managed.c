/* Managed memory of the control API: allocate, move, advise. */
#include <stdlib.h>
#include <sys/types.h>

#include "interpose/api/api.h"
#include "interpose/core/base/log.h"
#include "interpose/core/report/stats.h"
#include "interpose/core/report/trace/trace.h"
#include "interpose/hooks/entry.h"
#include "policy/alloc/alloc.h"
#include "policy/contexts/context.h"
#include "policy/ledger.h"

/* What PyTorch's CUDAPluggableAllocator calls. */
AG_ENTRY void *allograft_torch_alloc(ssize_t bytes, int device, void *stream);
AG_ENTRY void allograft_torch_free(void *memory, ssize_t bytes, int device, void *stream);

/* Smaller blocks share pages with others: they are neither advised nor moved when they are made. */
#define WORTH_MOVING (2u * 1024u * 1024u)

static int ask_attribute(CUdevice_attribute which, int device)
{
    int value = 0;

    return ag_api_cu.cuDeviceGetAttribute(&value, which, device) == CUDA_SUCCESS ? value : 0;
}

allograft_status ag_api_managed_support(int device)
{
    allograft_status status = ag_api_check_device(device, false);

    if (status != ALLOGRAFT_OK)
        return status;
    if (!ask_attribute(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, device))
        return ag_api_fail(ALLOGRAFT_UNSUPPORTED, "device %d has no managed memory", device);
    if (!ask_attribute(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, device))
        return ag_api_fail(
            ALLOGRAFT_UNSUPPORTED,
            "device %d has no concurrent managed access (WSL 2, Windows, a vGPU, or a "
            "GPU older than Pascal)",
            device);
    if (!(ag_api_cu.cuMemPrefetchAsync_v2 && ag_api_cu.cuMemAdvise_v2) &&
        !(ag_api_cu.cuMemPrefetchAsync && ag_api_cu.cuMemAdvise))
        return ag_api_fail(ALLOGRAFT_UNSUPPORTED,
                           "the driver is too old: it moves no managed memory");
    return ALLOGRAFT_OK;
}

/* ---- the driver's calls, newer form or older ---- */

static CUmemLocation location_at(int device)
{
    return (CUmemLocation){
        .type = device < 0 ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE,
        .id = device < 0 ? 0 : device,
    };
}

static CUdevice old_location_of(int device)
{
    return device < 0 ? CU_DEVICE_CPU : device;
}

static allograft_status move_range(CUdeviceptr memory, size_t bytes, int device, void *stream)
{
    uint64_t began = ag_trace_began();
    allograft_status status;

    if (ag_api_cu.cuMemPrefetchAsync_v2)
        status = AG_API_DO(cuMemPrefetchAsync_v2, memory, bytes, location_at(device), 0, stream);
    else
        status = AG_API_DO(cuMemPrefetchAsync, memory, bytes, old_location_of(device), stream);
    if (status == ALLOGRAFT_OK)
        ag_trace_prefetch(began, memory, bytes, device < 0 ? AG_TRACE_NO_DEVICE : device, stream);
    return status;
}

/* The driver takes no advice on memory of a managed pool. That of ours prefers its device, which
 * has it mapped: who advises that has what he wants. */
static allograft_status advise_pool(CUdeviceptr memory, int device)
{
    struct ag_block_seen block;
    CUdeviceptr base = 0;

    if (!ag_api_cu.cuMemGetAddressRange_v2 ||
        ag_api_cu.cuMemGetAddressRange_v2(&base, NULL, memory) != CUDA_SUCCESS ||
        !ag_ledger_look(base, &block) || block.desc.source != AG_SOURCE_MANAGED_POOL)
        return ag_api_fail(ALLOGRAFT_UNSUPPORTED,
                           "%p: the driver takes no advice on it, as on all memory of its pools",
                           (void *)memory);
    if (block.context->device->ordinal == device)
        return ALLOGRAFT_OK;
    return ag_api_fail(ALLOGRAFT_UNSUPPORTED,
                       "%p is in a managed pool, which prefers device %d and takes no other advice "
                       "from the driver; memory allocated from now on does, and all of it with "
                       "ALLOGRAFT_MANAGED_BACKEND=plain",
                       (void *)memory, block.context->device->ordinal);
}

static allograft_status advise_range(CUdeviceptr memory, size_t bytes, CUmem_advise advice,
                                     int device)
{
    CUresult result = ag_api_cu.cuMemAdvise_v2
                          ? ag_api_cu.cuMemAdvise_v2(memory, bytes, advice, location_at(device))
                          : ag_api_cu.cuMemAdvise(memory, bytes, advice, old_location_of(device));

    return result == CUDA_ERROR_NOT_SUPPORTED ? advise_pool(memory, device)
                                              : ag_api_answer(result, "cuMemAdvise");
}

/* ---- allocation ---- */

/* A new block lies nowhere: its first touch by the device would take a hundred times as long as
 * this. What does not fit beside what is there stays where it is. */
static void bring_new_block(CUdeviceptr memory, size_t bytes, int device, void *stream)
{
    size_t room = 0, total;

    if (bytes < WORTH_MOVING)
        return;
    (void)advise_range(memory, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, device);
    if (ag_api_cu.cuMemGetInfo_v2(&room, &total) == CUDA_SUCCESS && bytes <= room)
        (void)move_range(memory, bytes, device, stream);
}

static void note_new_block(CUdeviceptr memory, size_t bytes, int device, const void *stream,
                           uint64_t began)
{
    CUcontext context = NULL;

    (void)ag_api_cu.cuCtxGetCurrent(&context);
    ag_api_owned_add(memory, bytes, device, context);
    ag_stats_add(AG_STAT_API_MANAGED, 1);
    if (ag_trace_on())
        ag_trace_add_call(began, (struct ag_trace_event){
                                     .kind = AG_TRACE_MANAGED_ALLOC,
                                     .device = (int16_t)device,
                                     .address = memory,
                                     .size = bytes,
                                     .stream = (uintptr_t)stream,
                                 });
}

static allograft_status allocate_managed(void **ret, size_t bytes, int device, void *stream)
{
    /* Legal in a capture of another thread only so. */
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUdeviceptr memory = 0;
    uint64_t began = ag_trace_began();
    allograft_status status = AG_API_DO(cuThreadExchangeStreamCaptureMode, &mode);

    if (status != ALLOGRAFT_OK)
        return status;
    status = AG_API_DO(cuMemAllocManaged, &memory, bytes, CU_MEM_ATTACH_GLOBAL);
    if (status == ALLOGRAFT_OK) {
        note_new_block(memory, bytes, device, stream, began);
        bring_new_block(memory, bytes, device, stream);
        *ret = (void *)memory;
    }
    (void)ag_api_cu.cuThreadExchangeStreamCaptureMode(&mode);
    return status;
}

allograft_status ag_api_managed_alloc(void **ret, size_t bytes, int device, void *stream)
{
    allograft_status status = ag_api_managed_support(device);
    bool pushed;

    if (status != ALLOGRAFT_OK)
        return status;
    if (!ret)
        return ag_api_fail(ALLOGRAFT_INVALID, "managed_alloc: nowhere to put the result");
    if (!bytes) {
        *ret = NULL;
        return ALLOGRAFT_OK;
    }
    status = ag_api_enter_device(device, &pushed);
    if (status == ALLOGRAFT_OK)
        status = ag_api_thread_captures()
                     ? ag_api_fail(ALLOGRAFT_CAPTURING, "managed memory allocated during a capture")
                     : ag_api_not_capturing(stream, "managed memory allocated");
    if (status == ALLOGRAFT_OK)
        status = allocate_managed(ret, bytes, device, stream);
    ag_api_leave(pushed);
    return status;
}

static allograft_status free_counted(CUdeviceptr memory)
{
    struct ag_api_owned *owned = ag_api_owned_take(memory);
    allograft_status status = AG_API_DO(cuMemFree_v2, memory);

    if (owned && status == ALLOGRAFT_OK)
        ag_api_owned_freed(owned);
    else if (owned)
        ag_api_owned_put_back(owned);
    return status;
}

allograft_status ag_api_managed_free(void *memory, size_t bytes, int device, void *stream)
{
    allograft_status status = ag_api_enter();
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    bool pushed;

    (void)bytes;
    (void)stream;
    if (status != ALLOGRAFT_OK || !memory)
        return status;
    status = ag_api_enter_device(device, &pushed);
    if (status == ALLOGRAFT_OK)
        status = AG_API_DO(cuThreadExchangeStreamCaptureMode, &mode);
    if (status == ALLOGRAFT_OK) {
        status = free_counted((CUdeviceptr)memory);
        (void)ag_api_cu.cuThreadExchangeStreamCaptureMode(&mode);
    }
    ag_api_leave(pushed);
    return status;
}

void *allograft_torch_alloc(ssize_t bytes, int device, void *stream)
{
    void *memory = NULL;

    /* PyTorch takes NULL for want of memory and tells nobody why. */
    if (bytes > 0 && ag_api_managed_alloc(&memory, (size_t)bytes, device, stream) != ALLOGRAFT_OK)
        ag_log_warn("%zd bytes of managed memory: %s", bytes, ag_api_last_error());
    return memory;
}

void allograft_torch_free(void *memory, ssize_t bytes, int device, void *stream)
{
    if (ag_api_managed_free(memory, (size_t)bytes, device, stream) != ALLOGRAFT_OK)
        ag_log_warn("free of managed memory: %s", ag_api_last_error());
}

/* ---- ranges ---- */

static bool is_managed(CUdeviceptr memory)
{
    unsigned managed = 0;

    return memory &&
           ag_api_cu.cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, memory) ==
               CUDA_SUCCESS &&
           managed;
}

/* What is done to each range. */
struct deed {
    bool moves;
    CUmem_advise advice;
    int device;
    void *stream;
};

static allograft_status do_one(const struct deed *deed, CUdeviceptr memory, size_t bytes)
{
    if (!deed->moves)
        return advise_range(memory, bytes, deed->advice, deed->device);
    return move_range(memory, bytes, deed->device, deed->stream);
}

static allograft_status do_all(const struct deed *deed, const struct allograft_range *ranges,
                               size_t n, size_t *ret_bytes)
{
    allograft_status status = ALLOGRAFT_OK;
    size_t covered = 0;

    for (size_t i = 0; i < n && status == ALLOGRAFT_OK; i++) {
        CUdeviceptr memory = (CUdeviceptr)ranges[i].address;

        if (!ranges[i].bytes)
            continue;
        if (!is_managed(memory)) { /* no failure here; allograft_prefetch makes one of it */
            (void)ag_api_fail(ALLOGRAFT_INVALID, "%p is not managed memory", ranges[i].address);
            continue;
        }
        status = do_one(deed, memory, ranges[i].bytes);
        if (status == ALLOGRAFT_OK)
            covered += ranges[i].bytes;
    }
    if (ret_bytes)
        *ret_bytes = covered;
    if (deed->moves)
        ag_stats_add(AG_STAT_API_PREFETCHED, covered);
    return status;
}

/* Checks what prefetching and advising ranges have in common. */
static allograft_status check_ranges(const struct allograft_range *ranges, size_t n, int device,
                                     const char *what)
{
    allograft_status status = ag_api_check_device(device, true);

    if (status != ALLOGRAFT_OK)
        return status;
    if (!ranges && n)
        return ag_api_fail(ALLOGRAFT_INVALID, "%s: no ranges given", what);
    if (ag_api_thread_captures())
        return ag_api_fail(ALLOGRAFT_CAPTURING, "%s during a capture", what);
    return ALLOGRAFT_OK;
}

/* The device of the first range that has one, or -1. */
static int device_of_ranges(const struct allograft_range *ranges, size_t n)
{
    int device = -1;

    for (size_t i = 0; i < n && device < 0; i++) {
        if (ag_api_cu.cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                            (CUdeviceptr)ranges[i].address) != CUDA_SUCCESS)
            device = -1;
    }
    return device;
}

/* The driver wants a context, and a thread may have none: then it is that of the device, or of the
 * memory where it is to go to the host. One that is current stays, since streams are of it. */
static allograft_status enter_for_ranges(const struct allograft_range *ranges, size_t n, int device,
                                         bool *ret_pushed)
{
    CUcontext current = NULL;

    *ret_pushed = false;
    if (ag_api_cu.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current)
        return ALLOGRAFT_OK;
    if (device < 0)
        device = device_of_ranges(ranges, n);
    return device < 0 ? ALLOGRAFT_OK : ag_api_enter_device(device, ret_pushed);
}

allograft_status ag_api_prefetch(const struct allograft_range *ranges, size_t n, int device,
                                 void *stream, size_t *ret_bytes)
{
    const struct deed deed = {.moves = true, .device = device, .stream = stream};
    allograft_status status = check_ranges(ranges, n, device, "prefetch");
    bool pushed = false;

    if (status == ALLOGRAFT_OK)
        status = enter_for_ranges(ranges, n, device, &pushed);
    if (status == ALLOGRAFT_OK)
        status = ag_api_not_capturing(stream, "prefetch");
    if (status == ALLOGRAFT_OK)
        status = do_all(&deed, ranges, n, ret_bytes);
    ag_api_leave(pushed);
    return status;
}

static allograft_status advise_ranges(const struct allograft_range *ranges, size_t n, int device,
                                      size_t *ret_bytes, CUmem_advise advice, const char *what)
{
    const struct deed deed = {.advice = advice, .device = device};
    allograft_status status = check_ranges(ranges, n, device, what);
    bool pushed = false;

    ag_alloc_expect_advice();
    if (status == ALLOGRAFT_OK)
        status = enter_for_ranges(ranges, n, device, &pushed);
    if (status == ALLOGRAFT_OK)
        status = do_all(&deed, ranges, n, ret_bytes);
    ag_api_leave(pushed);
    return status;
}

allograft_status ag_api_advise_preferred_location(const struct allograft_range *ranges, size_t n,
                                                  int device, size_t *ret_bytes)
{
    return advise_ranges(ranges, n, device, ret_bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION,
                         "advise_preferred_location");
}

allograft_status ag_api_advise_accessed_by(const struct allograft_range *ranges, size_t n,
                                           int device, size_t *ret_bytes)
{
    return advise_ranges(ranges, n, device, ret_bytes, CU_MEM_ADVISE_SET_ACCESSED_BY,
                         "advise_accessed_by");
}
