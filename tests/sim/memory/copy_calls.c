/* copy_calls.c: all the calls that copy, each turned into one struct sim_copy. */
#include "tests/sim/sim_internal.h"

#include <string.h>

static struct sim_copy line(uint64_t dst, uint64_t src, size_t bytes)
{
    struct sim_copy copy = {0};

    copy.dst.address = dst;
    copy.src.address = src;
    copy.dst.pitch = copy.src.pitch = copy.dst.slice = copy.src.slice = bytes;
    copy.width = bytes;
    copy.height = copy.depth = 1;
    copy.as_asked.WidthInBytes = bytes;
    copy.as_asked.Height = copy.as_asked.Depth = 1;
    copy.as_asked.srcMemoryType = copy.as_asked.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    copy.as_asked.srcDevice = src;
    copy.as_asked.dstDevice = dst;
    return copy;
}

/* The memory that a call names as device memory has to be known to the driver. */
static bool known(uint64_t address, size_t bytes)
{
    return !bytes || sim_block_at(address) || sim_arena_has(address, NULL);
}

static CUresult copy_line(CUcontext ctx, CUstream stream, uint64_t dst, uint64_t src, size_t bytes,
                          bool async)
{
    struct sim_copy copy = line(dst, src, bytes);

    return sim_copy_submit(stream, ctx, &copy, async);
}

static CUresult to_device(CUcontext ctx, CUstream stream, CUdeviceptr dst, const void *src,
                          size_t bytes, bool async)
{
    struct sim_copy copy = line(dst, (uintptr_t)src, bytes);

    copy.src.as_host = true;
    return known(dst, bytes) ? sim_copy_submit(stream, ctx, &copy, async)
                             : CUDA_ERROR_INVALID_VALUE;
}

static CUresult to_host(CUcontext ctx, CUstream stream, void *dst, CUdeviceptr src, size_t bytes,
                        bool async)
{
    struct sim_copy copy = line((uintptr_t)dst, src, bytes);

    copy.dst.as_host = true;
    return known(src, bytes) ? sim_copy_submit(stream, ctx, &copy, async)
                             : CUDA_ERROR_INVALID_VALUE;
}

static CUresult within(CUcontext ctx, CUstream stream, CUdeviceptr dst, CUdeviceptr src,
                       size_t bytes, bool async)
{
    if (!known(dst, bytes) || !known(src, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    return copy_line(ctx, stream, dst, src, bytes, async);
}

/* Each synchronous call in its legacy form and its per-thread twin, which differ in the stream. */
#define BOTH(name, twin, parameters, call_of)   \
    CUresult name parameters                    \
    {                                           \
        SIM_ENTER(SIM_NEEDS_CONTEXT);           \
        CUstream stream = CU_STREAM_LEGACY;     \
        return call_of;                         \
    }                                           \
    CUresult twin parameters                    \
    {                                           \
        SIM_ENTER(SIM_NEEDS_CONTEXT);           \
        CUstream stream = CU_STREAM_PER_THREAD; \
        return call_of;                         \
    }

BOTH(cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds, (CUdeviceptr dst, const void *src, size_t bytes),
     to_device(call.ctx, stream, dst, src, bytes, false))
BOTH(cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds, (void *dst, CUdeviceptr src, size_t bytes),
     to_host(call.ctx, stream, dst, src, bytes, false))
BOTH(cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds, (CUdeviceptr dst, CUdeviceptr src, size_t bytes),
     within(call.ctx, stream, dst, src, bytes, false))
BOTH(cuMemcpy, cuMemcpy_ptds, (CUdeviceptr dst, CUdeviceptr src, size_t bytes),
     copy_line(call.ctx, stream, dst, src, bytes, false))

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t bytes, CUstream stream)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    return to_device(call.ctx, stream, dst, src, bytes, true);
}

CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    return to_host(call.ctx, stream, dst, src, bytes, true);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    return within(call.ctx, stream, dst, src, bytes, true);
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    return copy_line(call.ctx, stream, dst, src, bytes, true);
}

/* ---- between contexts ---- */

static CUresult peer(CUcontext ctx, CUstream stream, CUdeviceptr dst, CUcontext dst_ctx,
                     CUdeviceptr src, CUcontext src_ctx, size_t bytes, bool async)
{
    dst_ctx = sim_context_of(dst_ctx);
    src_ctx = sim_context_of(src_ctx);
    if (!sim_handle_is(dst_ctx, SIM_CONTEXT) || !sim_handle_is(src_ctx, SIM_CONTEXT) ||
        !dst_ctx->alive || !src_ctx->alive)
        return CUDA_ERROR_INVALID_CONTEXT;
    return within(ctx, stream, dst, src, bytes, async);
}

BOTH(cuMemcpyPeer, cuMemcpyPeer_ptds,
     (CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx, size_t bytes),
     peer(call.ctx, stream, dst, dst_ctx, src, src_ctx, bytes, false))

CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx,
                           size_t bytes, CUstream stream)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    return peer(call.ctx, stream, dst, dst_ctx, src, src_ctx, bytes, true);
}

/* ---- rectangles ---- */

/* Where one side of a 3D copy starts. Returns false when it is not described completely, or when
 * a pitch or a height is less than what lies there, even of one row or slice (R253, R258). */
static bool locate(struct sim_span *span, CUmemorytype type, const void *host, CUdeviceptr device,
                   CUarray array, size_t pitch, size_t height, size_t x, size_t y, size_t z,
                   const CUDA_MEMCPY3D *ask)
{
    switch (type) {
    case CU_MEMORYTYPE_HOST:
        span->address = (uintptr_t)host;
        span->as_host = true;
        break;
    case CU_MEMORYTYPE_DEVICE:
        if (!known(device, 1))
            return false;
        span->address = device;
        break;
    case CU_MEMORYTYPE_UNIFIED:
        span->address = device;
        break;
    case CU_MEMORYTYPE_ARRAY:
        if (!sim_array_place(array, &span->address, &pitch, &height))
            return false;
        break;
    default:
        return false;
    }
    pitch = pitch ? pitch : x + ask->WidthInBytes;
    height = height ? height : y + ask->Height;
    span->pitch = pitch;
    span->slice = pitch * height;
    span->address += z * span->slice + y * pitch + x;
    return pitch >= x + ask->WidthInBytes && height >= y + ask->Height;
}

CUresult sim_copy_from_3d(const CUDA_MEMCPY3D *ask, struct sim_copy *copy)
{
    if (!ask)
        return CUDA_ERROR_INVALID_VALUE;
    memset(copy, 0, sizeof(*copy));
    copy->width = ask->WidthInBytes;
    copy->height = ask->Height;
    copy->depth = ask->Depth;
    copy->as_asked = *ask;
    if (!locate(&copy->src, ask->srcMemoryType, ask->srcHost, ask->srcDevice, ask->srcArray,
                ask->srcPitch, ask->srcHeight, ask->srcXInBytes, ask->srcY, ask->srcZ, ask))
        return CUDA_ERROR_INVALID_VALUE;
    if (!locate(&copy->dst, ask->dstMemoryType, ask->dstHost, ask->dstDevice, ask->dstArray,
                ask->dstPitch, ask->dstHeight, ask->dstXInBytes, ask->dstY, ask->dstZ, ask))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

static CUresult copy_3d(CUcontext ctx, CUstream stream, const CUDA_MEMCPY3D *ask, bool async)
{
    struct sim_copy copy;
    CUresult result = sim_copy_from_3d(ask, &copy);

    return result ? result : sim_copy_submit(stream, ctx, &copy, async);
}

static CUresult copy_2d(CUcontext ctx, CUstream stream, const CUDA_MEMCPY2D *ask, bool async)
{
    if (!ask)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMCPY3D wide = {
        .srcXInBytes = ask->srcXInBytes,
        .srcY = ask->srcY,
        .srcMemoryType = ask->srcMemoryType,
        .srcHost = ask->srcHost,
        .srcDevice = ask->srcDevice,
        .srcArray = ask->srcArray,
        .srcPitch = ask->srcPitch,
        .dstXInBytes = ask->dstXInBytes,
        .dstY = ask->dstY,
        .dstMemoryType = ask->dstMemoryType,
        .dstHost = ask->dstHost,
        .dstDevice = ask->dstDevice,
        .dstArray = ask->dstArray,
        .dstPitch = ask->dstPitch,
        .WidthInBytes = ask->WidthInBytes,
        .Height = ask->Height,
        .Depth = 1,
    };
    return copy_3d(ctx, stream, &wide, async);
}

BOTH(cuMemcpy2D_v2, cuMemcpy2D_v2_ptds, (const CUDA_MEMCPY2D *ask),
     copy_2d(call.ctx, stream, ask, false))
BOTH(cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned_v2_ptds, (const CUDA_MEMCPY2D *ask),
     copy_2d(call.ctx, stream, ask, false))
BOTH(cuMemcpy3D_v2, cuMemcpy3D_v2_ptds, (const CUDA_MEMCPY3D *ask),
     copy_3d(call.ctx, stream, ask, false))

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *ask, CUstream stream)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    return copy_2d(call.ctx, stream, ask, true);
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *ask, CUstream stream)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    return copy_3d(call.ctx, stream, ask, true);
}

static CUresult copy_3d_peer(CUcontext ctx, CUstream stream, const CUDA_MEMCPY3D_PEER *ask,
                             bool async)
{
    if (!ask)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMCPY3D plain = {
        .srcXInBytes = ask->srcXInBytes,
        .srcY = ask->srcY,
        .srcZ = ask->srcZ,
        .srcMemoryType = ask->srcMemoryType,
        .srcHost = ask->srcHost,
        .srcDevice = ask->srcDevice,
        .srcArray = ask->srcArray,
        .srcPitch = ask->srcPitch,
        .srcHeight = ask->srcHeight,
        .dstXInBytes = ask->dstXInBytes,
        .dstY = ask->dstY,
        .dstZ = ask->dstZ,
        .dstMemoryType = ask->dstMemoryType,
        .dstHost = ask->dstHost,
        .dstDevice = ask->dstDevice,
        .dstArray = ask->dstArray,
        .dstPitch = ask->dstPitch,
        .dstHeight = ask->dstHeight,
        .WidthInBytes = ask->WidthInBytes,
        .Height = ask->Height,
        .Depth = ask->Depth,
    };
    return copy_3d(ctx, stream, &plain, async);
}

BOTH(cuMemcpy3DPeer, cuMemcpy3DPeer_ptds, (const CUDA_MEMCPY3D_PEER *ask),
     copy_3d_peer(call.ctx, stream, ask, false))

CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *ask, CUstream stream)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    return copy_3d_peer(call.ctx, stream, ask, true);
}

/* ---- arrays as lines of bytes ---- */

static bool array_line(CUarray array, size_t offset, size_t bytes, CUdeviceptr *ret_p)
{
    uint64_t address;
    size_t pitch, height;

    if (!sim_array_place(array, &address, &pitch, &height) || (bytes && offset + bytes > pitch))
        return false;
    *ret_p = address + offset;
    return true;
}

static CUresult array_to_host(CUcontext ctx, CUstream stream, void *dst, CUarray array,
                              size_t offset, size_t bytes, bool async)
{
    CUdeviceptr src;

    if (!array_line(array, offset, bytes, &src))
        return CUDA_ERROR_INVALID_VALUE;
    return copy_line(ctx, stream, (uintptr_t)dst, src, bytes, async);
}

static CUresult host_to_array(CUcontext ctx, CUstream stream, CUarray array, size_t offset,
                              const void *src, size_t bytes, bool async)
{
    CUdeviceptr dst;

    if (!array_line(array, offset, bytes, &dst))
        return CUDA_ERROR_INVALID_VALUE;
    return copy_line(ctx, stream, dst, (uintptr_t)src, bytes, async);
}

static CUresult array_to_device(CUcontext ctx, CUstream stream, CUdeviceptr dst, CUarray array,
                                size_t offset, size_t bytes)
{
    CUdeviceptr src;

    if (!array_line(array, offset, bytes, &src))
        return CUDA_ERROR_INVALID_VALUE;
    return within(ctx, stream, dst, src, bytes, false);
}

static CUresult device_to_array(CUcontext ctx, CUstream stream, CUarray array, size_t offset,
                                CUdeviceptr src, size_t bytes)
{
    CUdeviceptr dst;

    if (!array_line(array, offset, bytes, &dst))
        return CUDA_ERROR_INVALID_VALUE;
    return within(ctx, stream, dst, src, bytes, false);
}

static CUresult array_to_array(CUcontext ctx, CUstream stream, CUarray to, size_t to_offset,
                               CUarray from, size_t from_offset, size_t bytes)
{
    CUdeviceptr dst, src;

    if (!array_line(to, to_offset, bytes, &dst) || !array_line(from, from_offset, bytes, &src))
        return CUDA_ERROR_INVALID_VALUE;
    return copy_line(ctx, stream, dst, src, bytes, false);
}

BOTH(cuMemcpyAtoH_v2, cuMemcpyAtoH_v2_ptds, (void *dst, CUarray array, size_t offset, size_t bytes),
     array_to_host(call.ctx, stream, dst, array, offset, bytes, false))
BOTH(cuMemcpyHtoA_v2, cuMemcpyHtoA_v2_ptds,
     (CUarray array, size_t offset, const void *src, size_t bytes),
     host_to_array(call.ctx, stream, array, offset, src, bytes, false))
BOTH(cuMemcpyAtoD_v2, cuMemcpyAtoD_v2_ptds,
     (CUdeviceptr dst, CUarray array, size_t offset, size_t bytes),
     array_to_device(call.ctx, stream, dst, array, offset, bytes))
BOTH(cuMemcpyDtoA_v2, cuMemcpyDtoA_v2_ptds,
     (CUarray array, size_t offset, CUdeviceptr src, size_t bytes),
     device_to_array(call.ctx, stream, array, offset, src, bytes))
BOTH(cuMemcpyAtoA_v2, cuMemcpyAtoA_v2_ptds,
     (CUarray dst, size_t dst_offset, CUarray src, size_t src_offset, size_t bytes),
     array_to_array(call.ctx, stream, dst, dst_offset, src, src_offset, bytes))

CUresult cuMemcpyAtoHAsync_v2(void *dst, CUarray array, size_t offset, size_t bytes,
                              CUstream stream)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    return array_to_host(call.ctx, stream, dst, array, offset, bytes, true);
}

CUresult cuMemcpyHtoAAsync_v2(CUarray array, size_t offset, const void *src, size_t bytes,
                              CUstream stream)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    return host_to_array(call.ctx, stream, array, offset, src, bytes, true);
}
