/* Copies and fills. Compiled once for each kind of default stream. */
#include "mini.h"

#include <string.h>

/* Which side of a copy is host memory; with cudaMemcpyDefault the driver tells by the address. */
static CUmemorytype source_type(enum cudaMemcpyKind kind)
{
    if (kind == cudaMemcpyDefault)
        return CU_MEMORYTYPE_UNIFIED;
    return kind == cudaMemcpyHostToDevice || kind == cudaMemcpyHostToHost ? CU_MEMORYTYPE_HOST
                                                                          : CU_MEMORYTYPE_DEVICE;
}

static CUmemorytype target_type(enum cudaMemcpyKind kind)
{
    if (kind == cudaMemcpyDefault)
        return CU_MEMORYTYPE_UNIFIED;
    return kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyHostToHost ? CU_MEMORYTYPE_HOST
                                                                          : CU_MEMORYTYPE_DEVICE;
}

static CUresult copy(void *dst, const void *src, size_t n_bytes, enum cudaMemcpyKind kind)
{
    CUdeviceptr to = (CUdeviceptr)dst, from = (CUdeviceptr)src;
    switch (kind) {
    case cudaMemcpyHostToDevice:
        return DRV_STREAM(MemcpyHtoD, 3020, 7000)(to, src, n_bytes);
    case cudaMemcpyDeviceToHost:
        return DRV_STREAM(MemcpyDtoH, 3020, 7000)(dst, from, n_bytes);
    case cudaMemcpyDeviceToDevice:
        return DRV_STREAM(MemcpyDtoD, 3020, 7000)(to, from, n_bytes);
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
        return DRV_STREAM(Memcpy, 4000, 7000)(to, from, n_bytes);
    default:
        return (CUresult)cudaErrorInvalidMemcpyDirection;
    }
}

static CUresult copy_async(void *dst, const void *src, size_t n_bytes, enum cudaMemcpyKind kind,
                           cudaStream_t stream)
{
    CUdeviceptr to = (CUdeviceptr)dst, from = (CUdeviceptr)src;
    switch (kind) {
    case cudaMemcpyHostToDevice:
        return DRV_STREAM(MemcpyHtoDAsync, 3020, 7000)(to, src, n_bytes, stream);
    case cudaMemcpyDeviceToHost:
        return DRV_STREAM(MemcpyDtoHAsync, 3020, 7000)(dst, from, n_bytes, stream);
    case cudaMemcpyDeviceToDevice:
        return DRV_STREAM(MemcpyDtoDAsync, 3020, 7000)(to, from, n_bytes, stream);
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
        return DRV_STREAM(MemcpyAsync, 4000, 7000)(to, from, n_bytes, stream);
    default:
        return (CUresult)cudaErrorInvalidMemcpyDirection;
    }
}

/* Nothing to copy is a success that the driver need not hear of. */
cudaError_t cudaMemcpy(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind)
{
    return MR_RUN(count == 0 ? CUDA_SUCCESS : copy(dst, src, count, kind));
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    return MR_RUN(count == 0 ? CUDA_SUCCESS : copy_async(dst, src, count, kind, stream));
}

/* Variables */

/* The address of [offset, offset + n_bytes) in a variable. */
static cudaError_t part_of_variable(const void *symbol, size_t n_bytes, size_t offset,
                                    void **ret_address)
{
    CUdeviceptr base;
    size_t size;
    cudaError_t error = mr_enter();
    if (error == cudaSuccess)
        error = mr_variable_of(symbol, &base, &size);
    if (error != cudaSuccess)
        return error;
    if (offset > size || n_bytes > size - offset)
        return cudaErrorInvalidValue;
    *ret_address = (void *)(base + offset);
    return cudaSuccess;
}

cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *src, size_t count, size_t offset,
                               enum cudaMemcpyKind kind)
{
    void *p;
    cudaError_t error = part_of_variable(symbol, count, offset, &p);
    return mr_finish(error != cudaSuccess ? error : (cudaError_t)copy(p, src, count, kind));
}

cudaError_t cudaMemcpyFromSymbol(void *dst, const void *symbol, size_t count, size_t offset,
                                 enum cudaMemcpyKind kind)
{
    void *p;
    cudaError_t error = part_of_variable(symbol, count, offset, &p);
    return mr_finish(error != cudaSuccess ? error : (cudaError_t)copy(dst, p, count, kind));
}

cudaError_t cudaMemcpyToSymbolAsync(const void *symbol, const void *src, size_t count,
                                    size_t offset, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    void *p;
    cudaError_t error = part_of_variable(symbol, count, offset, &p);
    if (error == cudaSuccess)
        error = (cudaError_t)copy_async(p, src, count, kind, stream);
    return mr_finish(error);
}

cudaError_t cudaMemcpyFromSymbolAsync(void *dst, const void *symbol, size_t count, size_t offset,
                                      enum cudaMemcpyKind kind, cudaStream_t stream)
{
    void *p;
    cudaError_t error = part_of_variable(symbol, count, offset, &p);
    if (error == cudaSuccess)
        error = (cudaError_t)copy_async(dst, p, count, kind, stream);
    return mr_finish(error);
}

/* Two dimensions */

static CUDA_MEMCPY2D describe_2d(void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                                 size_t width, size_t height, enum cudaMemcpyKind kind)
{
    return (CUDA_MEMCPY2D){
        .srcMemoryType = source_type(kind),
        .srcHost = src,
        .srcDevice = (CUdeviceptr)src,
        .srcPitch = src_pitch,
        .dstMemoryType = target_type(kind),
        .dstHost = dst,
        .dstDevice = (CUdeviceptr)dst,
        .dstPitch = dst_pitch,
        .WidthInBytes = width,
        .Height = height,
    };
}

cudaError_t cudaMemcpy2D(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width,
                         size_t height, enum cudaMemcpyKind kind)
{
    if (width > dpitch || width > spitch)
        return mr_finish(cudaErrorInvalidPitchValue);
    CUDA_MEMCPY2D c = describe_2d(dst, dpitch, src, spitch, width, height, kind);
    return MR_RUN(DRV_STREAM(Memcpy2DUnaligned, 3020, 7000)(&c));
}

cudaError_t cudaMemcpy2DAsync(void *dst, size_t dpitch, const void *src, size_t spitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream)
{
    if (width > dpitch || width > spitch)
        return mr_finish(cudaErrorInvalidPitchValue);
    CUDA_MEMCPY2D c = describe_2d(dst, dpitch, src, spitch, width, height, kind);
    return MR_RUN(DRV_STREAM(Memcpy2DAsync, 3020, 7000)(&c, stream));
}

/* Three dimensions */

#ifndef CUDA_API_PER_THREAD_DEFAULT_STREAM
cudaError_t mr_describe_copy(const struct cudaMemcpy3DParms *p, CUDA_MEMCPY3D *ret_copy)
{
    if (p == NULL)
        return cudaErrorInvalidValue;
    if (p->srcArray != NULL || p->dstArray != NULL)
        return cudaErrorNotSupported;
    *ret_copy = (CUDA_MEMCPY3D){
        .srcXInBytes = p->srcPos.x,
        .srcY = p->srcPos.y,
        .srcZ = p->srcPos.z,
        .srcMemoryType = source_type(p->kind),
        .srcHost = p->srcPtr.ptr,
        .srcDevice = (CUdeviceptr)p->srcPtr.ptr,
        .srcPitch = p->srcPtr.pitch,
        .srcHeight = p->srcPtr.ysize,
        .dstXInBytes = p->dstPos.x,
        .dstY = p->dstPos.y,
        .dstZ = p->dstPos.z,
        .dstMemoryType = target_type(p->kind),
        .dstHost = p->dstPtr.ptr,
        .dstDevice = (CUdeviceptr)p->dstPtr.ptr,
        .dstPitch = p->dstPtr.pitch,
        .dstHeight = p->dstPtr.ysize,
        .WidthInBytes = p->extent.width,
        .Height = p->extent.height,
        .Depth = p->extent.depth,
    };
    return cudaSuccess;
}
#endif

cudaError_t cudaMemcpy3D(const struct cudaMemcpy3DParms *p)
{
    CUDA_MEMCPY3D c;
    cudaError_t error = mr_describe_copy(p, &c);
    if (error != cudaSuccess)
        return mr_finish(error);
    return MR_RUN(DRV_STREAM(Memcpy3D, 3020, 7000)(&c));
}

cudaError_t cudaMemcpy3DAsync(const struct cudaMemcpy3DParms *p, cudaStream_t stream)
{
    CUDA_MEMCPY3D c;
    cudaError_t error = mr_describe_copy(p, &c);
    if (error != cudaSuccess)
        return mr_finish(error);
    return MR_RUN(DRV_STREAM(Memcpy3DAsync, 3020, 7000)(&c, stream));
}

/* Fills */

cudaError_t cudaMemset(void *devPtr, int value, size_t count)
{
    return MR_RUN(count == 0 ? CUDA_SUCCESS
                             : DRV_STREAM(MemsetD8, 3020, 7000)((CUdeviceptr)devPtr,
                                                                (unsigned char)value, count));
}

cudaError_t cudaMemsetAsync(void *devPtr, int value, size_t count, cudaStream_t stream)
{
    return MR_RUN(count == 0 ? CUDA_SUCCESS
                             : DRV_STREAM(MemsetD8Async, 3020, 7000)(
                                   (CUdeviceptr)devPtr, (unsigned char)value, count, stream));
}

cudaError_t cudaMemset2D(void *devPtr, size_t pitch, int value, size_t width, size_t height)
{
    return MR_RUN(DRV_STREAM(MemsetD2D8, 3020, 7000)((CUdeviceptr)devPtr, pitch,
                                                     (unsigned char)value, width, height));
}

cudaError_t cudaMemset2DAsync(void *devPtr, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream)
{
    return MR_RUN(DRV_STREAM(MemsetD2D8Async, 3020, 7000)(
        (CUdeviceptr)devPtr, pitch, (unsigned char)value, width, height, stream));
}

/* One call a slice: between two slices there may be rows that are not to be touched. */
cudaError_t cudaMemset3D(struct cudaPitchedPtr pitchedDevPtr, int value, struct cudaExtent extent)
{
    char *slice = pitchedDevPtr.ptr;
    cudaError_t error = cudaSuccess;
    for (size_t z = 0; error == cudaSuccess && z < extent.depth; z++) {
        error = cudaMemset2D(slice, pitchedDevPtr.pitch, value, extent.width, extent.height);
        slice += pitchedDevPtr.pitch * pitchedDevPtr.ysize;
    }
    return error;
}

cudaError_t cudaMemset3DAsync(struct cudaPitchedPtr pitchedDevPtr, int value,
                              struct cudaExtent extent, cudaStream_t stream)
{
    char *slice = pitchedDevPtr.ptr;
    cudaError_t error = cudaSuccess;
    for (size_t z = 0; error == cudaSuccess && z < extent.depth; z++) {
        error = cudaMemset2DAsync(slice, pitchedDevPtr.pitch, value, extent.width, extent.height,
                                  stream);
        slice += pitchedDevPtr.pitch * pitchedDevPtr.ysize;
    }
    return error;
}

/* Managed memory */

cudaError_t cudaMemPrefetchAsync(const void *devPtr, size_t count, struct cudaMemLocation location,
                                 unsigned flags, cudaStream_t stream)
{
    CUmemLocation same;
    memcpy(&same, &location, sizeof(same));
    return MR_RUN(DRV_STREAM(MemPrefetchAsync, 12020, 12020)((CUdeviceptr)devPtr, count, same,
                                                             flags, stream));
}

cudaError_t cudaStreamAttachMemAsync(cudaStream_t stream, void *devPtr, size_t length,
                                     unsigned flags)
{
    return MR_RUN(
        DRV_STREAM(StreamAttachMemAsync, 6000, 7000)(stream, (CUdeviceptr)devPtr, length, flags));
}
