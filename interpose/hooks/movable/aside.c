/* What a copy or fill would wait for natively: see aside.h. */
#include "interpose/hooks/movable/aside.h"

#include "interpose/core/driver/driver.h"
#include "policy/answers/lookup.h"
#include "policy/order/capture.h"
#include "policy/paging/ranges.h"

/* Is it memory of a device, wherever it lies now, that neither is managed nor has SYNC_MEMOPS, as
 * far as the driver knows? */
static bool never_blocks(CUdeviceptr address)
{
    unsigned type = 0, managed = 1, sync = 1;
    CUdeviceptr base = ag_range_base(address);
    CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                   CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                   CU_POINTER_ATTRIBUTE_SYNC_MEMOPS};
    void *data[] = {&type, &managed, &sync};

    return ag_cu.cuPointerGetAttributes &&
           ag_cu.cuPointerGetAttributes(3, asked, data, base ? base : address) == CUDA_SUCCESS &&
           (base || (type == CU_MEMORYTYPE_DEVICE && !(managed & 1))) && !(sync & 1);
}

/* Does every copy and fill without a stream wait, by the flags of the current context? */
static bool context_blocks(void)
{
    unsigned flags = 0;

    return ag_cu.cuCtxGetFlags && ag_cu.cuCtxGetFlags(&flags) == CUDA_SUCCESS &&
           flags & CU_CTX_SYNC_MEMOPS;
}

/* Does the stream record what it is given? A call without a stream is refused then; the legacy
 * stream never does. */
static bool default_stream_captures(bool per_thread)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

    return per_thread && ag_capture_is_open() && ag_cu.cuStreamIsCapturing &&
           ag_cu.cuStreamIsCapturing(ag_aside_stream(per_thread), &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

bool ag_aside_is_due(CUdeviceptr one, CUdeviceptr other, bool per_thread)
{
    return (ag_range_may_hold(one) || ag_range_may_hold(other)) && !context_blocks() &&
           !default_stream_captures(per_thread) && never_blocks(one) &&
           (one == other || never_blocks(other));
}

static bool is_synchronous(CUdeviceptr address)
{
    struct ag_block_seen block;

    return address && ag_range_may_hold(address) && ag_range_base(address) &&
           ag_lookup(address, &block) == AG_FOUND_BLOCK && block.sync_memops == AG_SYNC_ON;
}

CUresult ag_aside_wait(CUresult result, CUdeviceptr one, CUdeviceptr other, bool per_thread)
{
    CUstreamCaptureMode mode;

    if (!ag_ranges_wanted() || result != CUDA_SUCCESS ||
        !(is_synchronous(one) || (one != other && is_synchronous(other))))
        return result;
    mode = ag_capture_relax();
    result = ag_cu.cuStreamSynchronize(ag_aside_stream(per_thread));
    ag_capture_restore(mode);
    return result;
}
