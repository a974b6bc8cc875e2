/* Memory that does not belong to a stream: device, pinned, managed, its attributes and sharing. */
#include "mini.h"

#include <string.h>

MR_SAME_SIZE(struct cudaMemLocation, CUmemLocation);
MR_SAME_SIZE(cudaIpcMemHandle_t, CUipcMemHandle);
MR_SAME_SIZE(cudaIpcEventHandle_t, CUipcEventHandle);

/* Element size for pitched allocations: no element crosses a boundary that the hardware minds. */
enum { PITCH_ELEMENT_BYTES = 4 };

cudaError_t cudaMalloc(void **devPtr, size_t size)
{
    if (devPtr == NULL)
        return mr_finish(cudaErrorInvalidValue);
    /* The driver refuses 0 bytes, the runtime answers with a null pointer. */
    if (size == 0) {
        cudaError_t error = mr_enter();
        if (error == cudaSuccess)
            *devPtr = NULL;
        return mr_finish(error);
    }
    return MR_RUN(DRV(MemAlloc, 3020)((CUdeviceptr *)devPtr, size));
}

cudaError_t cudaFree(void *devPtr)
{
    return MR_RUN(DRV(MemFree, 3020)((CUdeviceptr)devPtr));
}

cudaError_t cudaMallocPitch(void **devPtr, size_t *pitch, size_t width, size_t height)
{
    if (devPtr == NULL || pitch == NULL)
        return mr_finish(cudaErrorInvalidValue);
    return MR_RUN(
        DRV(MemAllocPitch, 3020)((CUdeviceptr *)devPtr, pitch, width, height, PITCH_ELEMENT_BYTES));
}

cudaError_t cudaMalloc3D(struct cudaPitchedPtr *pitchedDevPtr, struct cudaExtent extent)
{
    void *p;
    size_t pitch;
    cudaError_t error = cudaMallocPitch(&p, &pitch, extent.width, extent.height * extent.depth);
    if (error == cudaSuccess) {
        *pitchedDevPtr = (struct cudaPitchedPtr){p, pitch, extent.width, extent.height};
    }
    return error;
}

cudaError_t cudaMallocManaged(void **devPtr, size_t size, unsigned flags)
{
    return MR_RUN(DRV(MemAllocManaged, 6000)((CUdeviceptr *)devPtr, size, flags));
}

cudaError_t cudaHostAlloc(void **pHost, size_t size, unsigned flags)
{
    return MR_RUN(DRV(MemHostAlloc, 2020)(pHost, size, flags));
}

cudaError_t cudaMallocHost(void **ptr, size_t size)
{
    return cudaHostAlloc(ptr, size, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void *ptr)
{
    if (ptr == NULL)
        return mr_finish(mr_enter());
    return MR_RUN(DRV(MemFreeHost, 2000)(ptr));
}

cudaError_t cudaHostRegister(void *ptr, size_t size, unsigned flags)
{
    return MR_RUN(DRV(MemHostRegister, 6050)(ptr, size, flags));
}

cudaError_t cudaHostUnregister(void *ptr)
{
    return MR_RUN(DRV(MemHostUnregister, 4000)(ptr));
}

cudaError_t cudaHostGetDevicePointer(void **pDevice, void *pHost, unsigned flags)
{
    return MR_RUN(DRV(MemHostGetDevicePointer, 3020)((CUdeviceptr *)pDevice, pHost, flags));
}

cudaError_t cudaHostGetFlags(unsigned *pFlags, void *pHost)
{
    return MR_RUN(DRV(MemHostGetFlags, 2030)(pFlags, pHost));
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total)
{
    return MR_RUN(DRV(MemGetInfo, 3020)(free, total));
}

/* Memory that the driver does not know has memory type 0 and is plain host memory. */
static cudaError_t get_pointer_attributes(struct cudaPointerAttributes *ret_attributes,
                                          const void *ptr)
{
    unsigned memory_type = 0;
    int ordinal = cudaInvalidDeviceId;
    unsigned managed = 0;
    void *device_pointer = NULL, *host_pointer = NULL;
    CUpointer_attribute wanted[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
        CU_POINTER_ATTRIBUTE_HOST_POINTER};
    void *answers[] = {&memory_type, &ordinal, &managed, &device_pointer, &host_pointer};
    CUresult result = DRV(PointerGetAttributes, 7000)(sizeof(wanted) / sizeof(*wanted), wanted,
                                                      answers, (CUdeviceptr)ptr);
    if (result != CUDA_SUCCESS)
        return (cudaError_t)result;
    *ret_attributes = (struct cudaPointerAttributes){
        .device = ordinal, .devicePointer = device_pointer, .hostPointer = host_pointer};
    if (memory_type == 0) {
        ret_attributes->type = cudaMemoryTypeUnregistered;
        ret_attributes->device = cudaInvalidDeviceId;
        ret_attributes->hostPointer = (void *)ptr;
    } else if (managed) {
        ret_attributes->type = cudaMemoryTypeManaged;
    } else {
        ret_attributes->type =
            memory_type == CU_MEMORYTYPE_HOST ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
    }
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *ptr)
{
    if (attributes == NULL)
        return mr_finish(cudaErrorInvalidValue);
    return MR_RUN(get_pointer_attributes(attributes, ptr));
}

static CUmemLocation driver_location(struct cudaMemLocation location)
{
    CUmemLocation same;
    memcpy(&same, &location, sizeof(same));
    return same;
}

cudaError_t cudaMemAdvise(const void *devPtr, size_t count, enum cudaMemoryAdvise advice,
                          struct cudaMemLocation location)
{
    return MR_RUN(DRV(MemAdvise, 12020)((CUdeviceptr)devPtr, count, (CUmem_advise)advice,
                                        driver_location(location)));
}

cudaError_t cudaMemRangeGetAttribute(void *data, size_t dataSize,
                                     enum cudaMemRangeAttribute attribute, const void *devPtr,
                                     size_t count)
{
    return MR_RUN(DRV(MemRangeGetAttribute, 8000)(data, dataSize, (CUmem_range_attribute)attribute,
                                                  (CUdeviceptr)devPtr, count));
}

/* Peers */

cudaError_t cudaDeviceCanAccessPeer(int *canAccessPeer, int device, int peerDevice)
{
    return MR_RUN_NO_CONTEXT(DRV(DeviceCanAccessPeer, 4000)(canAccessPeer, device, peerDevice));
}

static cudaError_t enable_peer(int device, unsigned flags)
{
    CUcontext peer;
    cudaError_t error = mr_primary_context(device, &peer);
    if (error != cudaSuccess)
        return error;
    return (cudaError_t)DRV(CtxEnablePeerAccess, 4000)(peer, flags);
}

static cudaError_t disable_peer(int device)
{
    CUcontext peer;
    cudaError_t error = mr_primary_context(device, &peer);
    if (error != cudaSuccess)
        return error;
    return (cudaError_t)DRV(CtxDisablePeerAccess, 4000)(peer);
}

cudaError_t cudaDeviceEnablePeerAccess(int peerDevice, unsigned flags)
{
    return MR_RUN(enable_peer(peerDevice, flags));
}

cudaError_t cudaDeviceDisablePeerAccess(int peerDevice)
{
    return MR_RUN(disable_peer(peerDevice));
}

static cudaError_t copy_between(void *dst, int dst_device, const void *src, int src_device,
                                size_t n_bytes, bool async, cudaStream_t stream)
{
    CUcontext to, from;
    cudaError_t error = mr_primary_context(dst_device, &to);
    if (error == cudaSuccess)
        error = mr_primary_context(src_device, &from);
    if (error != cudaSuccess)
        return error;
    CUdeviceptr d = (CUdeviceptr)dst, s = (CUdeviceptr)src;
    if (async)
        return (cudaError_t)DRV(MemcpyPeerAsync, 4000)(d, to, s, from, n_bytes, stream);
    return (cudaError_t)DRV(MemcpyPeer, 4000)(d, to, s, from, n_bytes);
}

cudaError_t cudaMemcpyPeer(void *dst, int dstDevice, const void *src, int srcDevice, size_t count)
{
    return MR_RUN(copy_between(dst, dstDevice, src, srcDevice, count, false, NULL));
}

cudaError_t cudaMemcpyPeerAsync(void *dst, int dstDevice, const void *src, int srcDevice,
                                size_t count, cudaStream_t stream)
{
    return MR_RUN(copy_between(dst, dstDevice, src, srcDevice, count, true, stream));
}

/* Other processes */

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *devPtr)
{
    return MR_RUN(DRV(IpcGetMemHandle, 4010)((CUipcMemHandle *)handle, (CUdeviceptr)devPtr));
}

cudaError_t cudaIpcOpenMemHandle(void **devPtr, cudaIpcMemHandle_t handle, unsigned flags)
{
    CUipcMemHandle same;
    memcpy(&same, &handle, sizeof(same));
    return MR_RUN(DRV(IpcOpenMemHandle, 11000)((CUdeviceptr *)devPtr, same, flags));
}

cudaError_t cudaIpcCloseMemHandle(void *devPtr)
{
    return MR_RUN(DRV(IpcCloseMemHandle, 4010)((CUdeviceptr)devPtr));
}

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *handle, cudaEvent_t event)
{
    return MR_RUN(DRV(IpcGetEventHandle, 4010)((CUipcEventHandle *)handle, event));
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *event, cudaIpcEventHandle_t handle)
{
    CUipcEventHandle same;
    memcpy(&same, &handle, sizeof(same));
    return MR_RUN(DRV(IpcOpenEventHandle, 4010)(event, same));
}
