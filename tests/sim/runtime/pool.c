/* Memory pools: making, configuring and sharing them. */
#include "mini.h"

#include <string.h>

MR_SAME_SIZE(struct cudaMemPoolProps, CUmemPoolProps);
MR_SAME_SIZE(struct cudaMemAccessDesc, CUmemAccessDesc);
MR_SAME_SIZE(struct cudaMemPoolPtrExportData, CUmemPoolPtrExportData);
MR_SAME_SIZE(struct cudaMemLocation, CUmemLocation);

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *memPool, int device)
{
    return MR_RUN_NO_CONTEXT(DRV(DeviceGetDefaultMemPool, 11020)(memPool, device));
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *memPool, int device)
{
    return MR_RUN_NO_CONTEXT(DRV(DeviceGetMemPool, 11020)(memPool, device));
}

cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t memPool)
{
    return MR_RUN_NO_CONTEXT(DRV(DeviceSetMemPool, 11020)(device, memPool));
}

cudaError_t cudaMemGetDefaultMemPool(cudaMemPool_t *memPool, struct cudaMemLocation *location,
                                     enum cudaMemAllocationType type)
{
    return MR_RUN(DRV(MemGetDefaultMemPool, 13000)(memPool, (CUmemLocation *)location,
                                                   (CUmemAllocationType)type));
}

cudaError_t cudaMemGetMemPool(cudaMemPool_t *memPool, struct cudaMemLocation *location,
                              enum cudaMemAllocationType type)
{
    return MR_RUN(
        DRV(MemGetMemPool, 13000)(memPool, (CUmemLocation *)location, (CUmemAllocationType)type));
}

cudaError_t cudaMemSetMemPool(struct cudaMemLocation *location, enum cudaMemAllocationType type,
                              cudaMemPool_t memPool)
{
    return MR_RUN(
        DRV(MemSetMemPool, 13000)((CUmemLocation *)location, (CUmemAllocationType)type, memPool));
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t *memPool, const struct cudaMemPoolProps *poolProps)
{
    return MR_RUN(DRV(MemPoolCreate, 11020)(memPool, (const CUmemPoolProps *)poolProps));
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t memPool)
{
    return MR_RUN(DRV(MemPoolDestroy, 11020)(memPool));
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t memPool, size_t minBytesToKeep)
{
    return MR_RUN(DRV(MemPoolTrimTo, 11020)(memPool, minBytesToKeep));
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t memPool, enum cudaMemPoolAttr attr, void *value)
{
    return MR_RUN(DRV(MemPoolSetAttribute, 11020)(memPool, (CUmemPool_attribute)attr, value));
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t memPool, enum cudaMemPoolAttr attr, void *value)
{
    return MR_RUN(DRV(MemPoolGetAttribute, 11020)(memPool, (CUmemPool_attribute)attr, value));
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t memPool, const struct cudaMemAccessDesc *descList,
                                 size_t count)
{
    return MR_RUN(DRV(MemPoolSetAccess, 11020)(memPool, (const CUmemAccessDesc *)descList, count));
}

cudaError_t cudaMemPoolGetAccess(enum cudaMemAccessFlags *flags, cudaMemPool_t memPool,
                                 struct cudaMemLocation *location)
{
    return MR_RUN(DRV(MemPoolGetAccess, 11020)((CUmemAccess_flags *)flags, memPool,
                                               (CUmemLocation *)location));
}

cudaError_t cudaMemPoolExportToShareableHandle(void *shareableHandle, cudaMemPool_t memPool,
                                               enum cudaMemAllocationHandleType handleType,
                                               unsigned flags)
{
    return MR_RUN(DRV(MemPoolExportToShareableHandle, 11020)(
        shareableHandle, memPool, (CUmemAllocationHandleType)handleType, flags));
}

cudaError_t cudaMemPoolImportFromShareableHandle(cudaMemPool_t *memPool, void *shareableHandle,
                                                 enum cudaMemAllocationHandleType handleType,
                                                 unsigned flags)
{
    return MR_RUN(DRV(MemPoolImportFromShareableHandle, 11020)(
        memPool, shareableHandle, (CUmemAllocationHandleType)handleType, flags));
}

cudaError_t cudaMemPoolExportPointer(struct cudaMemPoolPtrExportData *exportData, void *ptr)
{
    return MR_RUN(
        DRV(MemPoolExportPointer, 11020)((CUmemPoolPtrExportData *)exportData, (CUdeviceptr)ptr));
}

cudaError_t cudaMemPoolImportPointer(void **ptr, cudaMemPool_t memPool,
                                     struct cudaMemPoolPtrExportData *exportData)
{
    return MR_RUN(DRV(MemPoolImportPointer, 11020)((CUdeviceptr *)ptr, memPool,
                                                   (CUmemPoolPtrExportData *)exportData));
}
