/* What a device is: its attributes and the cudaDeviceProp made of them. */
#include "mini.h"

#include <string.h>

/* Where an attribute of the driver goes in cudaDeviceProp; wide fields are size_t, others int. */
static const struct property {
    int attribute;
    bool wide;
    size_t offset;
} properties[] = {
#define NARROW(field, attribute) \
    {CU_DEVICE_ATTRIBUTE_##attribute, false, offsetof(struct cudaDeviceProp, field)}
#define WIDE(field, attribute) \
    {CU_DEVICE_ATTRIBUTE_##attribute, true, offsetof(struct cudaDeviceProp, field)}
    WIDE(sharedMemPerBlock, MAX_SHARED_MEMORY_PER_BLOCK),
    NARROW(regsPerBlock, MAX_REGISTERS_PER_BLOCK),
    NARROW(warpSize, WARP_SIZE),
    WIDE(memPitch, MAX_PITCH),
    NARROW(maxThreadsPerBlock, MAX_THREADS_PER_BLOCK),
    NARROW(maxThreadsDim[0], MAX_BLOCK_DIM_X),
    NARROW(maxThreadsDim[1], MAX_BLOCK_DIM_Y),
    NARROW(maxThreadsDim[2], MAX_BLOCK_DIM_Z),
    NARROW(maxGridSize[0], MAX_GRID_DIM_X),
    NARROW(maxGridSize[1], MAX_GRID_DIM_Y),
    NARROW(maxGridSize[2], MAX_GRID_DIM_Z),
    WIDE(totalConstMem, TOTAL_CONSTANT_MEMORY),
    NARROW(major, COMPUTE_CAPABILITY_MAJOR),
    NARROW(minor, COMPUTE_CAPABILITY_MINOR),
    WIDE(textureAlignment, TEXTURE_ALIGNMENT),
    WIDE(texturePitchAlignment, TEXTURE_PITCH_ALIGNMENT),
    NARROW(multiProcessorCount, MULTIPROCESSOR_COUNT),
    NARROW(integrated, INTEGRATED),
    NARROW(canMapHostMemory, CAN_MAP_HOST_MEMORY),
    WIDE(surfaceAlignment, SURFACE_ALIGNMENT),
    NARROW(concurrentKernels, CONCURRENT_KERNELS),
    NARROW(ECCEnabled, ECC_ENABLED),
    NARROW(pciBusID, PCI_BUS_ID),
    NARROW(pciDeviceID, PCI_DEVICE_ID),
    NARROW(pciDomainID, PCI_DOMAIN_ID),
    NARROW(tccDriver, TCC_DRIVER),
    NARROW(asyncEngineCount, ASYNC_ENGINE_COUNT),
    NARROW(unifiedAddressing, UNIFIED_ADDRESSING),
    NARROW(memoryBusWidth, GLOBAL_MEMORY_BUS_WIDTH),
    NARROW(l2CacheSize, L2_CACHE_SIZE),
    NARROW(persistingL2CacheMaxSize, MAX_PERSISTING_L2_CACHE_SIZE),
    NARROW(maxThreadsPerMultiProcessor, MAX_THREADS_PER_MULTIPROCESSOR),
    NARROW(streamPrioritiesSupported, STREAM_PRIORITIES_SUPPORTED),
    NARROW(globalL1CacheSupported, GLOBAL_L1_CACHE_SUPPORTED),
    NARROW(localL1CacheSupported, LOCAL_L1_CACHE_SUPPORTED),
    WIDE(sharedMemPerMultiprocessor, MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
    NARROW(regsPerMultiprocessor, MAX_REGISTERS_PER_MULTIPROCESSOR),
    NARROW(managedMemory, MANAGED_MEMORY),
    NARROW(isMultiGpuBoard, MULTI_GPU_BOARD),
    NARROW(multiGpuBoardGroupID, MULTI_GPU_BOARD_GROUP_ID),
    NARROW(hostNativeAtomicSupported, HOST_NATIVE_ATOMIC_SUPPORTED),
    NARROW(pageableMemoryAccess, PAGEABLE_MEMORY_ACCESS),
    NARROW(concurrentManagedAccess, CONCURRENT_MANAGED_ACCESS),
    NARROW(computePreemptionSupported, COMPUTE_PREEMPTION_SUPPORTED),
    NARROW(canUseHostPointerForRegisteredMem, CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM),
    NARROW(cooperativeLaunch, COOPERATIVE_LAUNCH),
    WIDE(sharedMemPerBlockOptin, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
    NARROW(pageableMemoryAccessUsesHostPageTables, PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES),
    NARROW(directManagedMemAccessFromHost, DIRECT_MANAGED_MEM_ACCESS_FROM_HOST),
    NARROW(maxBlocksPerMultiProcessor, MAX_BLOCKS_PER_MULTIPROCESSOR),
    NARROW(accessPolicyMaxWindowSize, MAX_ACCESS_POLICY_WINDOW_SIZE),
    WIDE(reservedSharedMemPerBlock, RESERVED_SHARED_MEMORY_PER_BLOCK),
    NARROW(hostRegisterSupported, HOST_REGISTER_SUPPORTED),
    NARROW(hostRegisterReadOnlySupported, READ_ONLY_HOST_REGISTER_SUPPORTED),
    NARROW(timelineSemaphoreInteropSupported, TIMELINE_SEMAPHORE_INTEROP_SUPPORTED),
    NARROW(memoryPoolsSupported, MEMORY_POOLS_SUPPORTED),
    NARROW(gpuDirectRDMASupported, GPU_DIRECT_RDMA_SUPPORTED),
    NARROW(gpuDirectRDMAFlushWritesOptions, GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS),
    NARROW(gpuDirectRDMAWritesOrdering, GPU_DIRECT_RDMA_WRITES_ORDERING),
    NARROW(memoryPoolSupportedHandleTypes, MEMPOOL_SUPPORTED_HANDLE_TYPES),
    NARROW(ipcEventSupported, IPC_EVENT_SUPPORTED),
    NARROW(clusterLaunch, CLUSTER_LAUNCH),
    NARROW(unifiedFunctionPointers, UNIFIED_FUNCTION_POINTERS),
    NARROW(deviceNumaConfig, NUMA_CONFIG),
    NARROW(deviceNumaId, NUMA_ID),
    NARROW(mpsEnabled, MPS_ENABLED),
    NARROW(hostNumaId, HOST_NUMA_ID),
#undef NARROW
#undef WIDE
};

static CUresult fill_properties(struct cudaDeviceProp *prop, int device)
{
    memset(prop, 0, sizeof(*prop));
    CUresult result = DRV(DeviceGetName, 2000)(prop->name, sizeof(prop->name), device);
    if (result != CUDA_SUCCESS)
        return result;
    result = DRV(DeviceTotalMem, 3020)(&prop->totalGlobalMem, device);
    if (result != CUDA_SUCCESS)
        return result;
    result = DRV_AS(DeviceGetUuid, 9020, 11040)((CUuuid *)&prop->uuid, device);
    if (result != CUDA_SUCCESS)
        return result;
    for (size_t i = 0; i < sizeof(properties) / sizeof(*properties); i++) {
        const struct property *p = &properties[i];
        int value = 0;
        /* An attribute that this driver does not know stays 0. */
        (void)DRV(DeviceGetAttribute, 2000)(&value, (CUdevice_attribute)p->attribute, device);
        char *field = (char *)prop + p->offset;
        size_t wide = (size_t)value;
        memcpy(field, p->wide ? (void *)&wide : (void *)&value,
               p->wide ? sizeof(wide) : sizeof(value));
    }
    return CUDA_SUCCESS;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
    if (prop == NULL)
        return mr_finish(cudaErrorInvalidValue);
    return MR_RUN_NO_CONTEXT(fill_properties(prop, device));
}

/* Runtime and driver number the attributes alike. */
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
    return MR_RUN_NO_CONTEXT(
        DRV(DeviceGetAttribute, 2000)(value, (CUdevice_attribute)attr, device));
}

cudaError_t cudaDeviceGetP2PAttribute(int *value, enum cudaDeviceP2PAttr attr, int srcDevice,
                                      int dstDevice)
{
    return MR_RUN_NO_CONTEXT(
        DRV(DeviceGetP2PAttribute, 8000)(value, (CUdevice_P2PAttribute)attr, srcDevice, dstDevice));
}

cudaError_t cudaDeviceGetPCIBusId(char *pciBusId, int len, int device)
{
    return MR_RUN_NO_CONTEXT(DRV(DeviceGetPCIBusId, 4010)(pciBusId, len, device));
}

cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *pciBusId)
{
    return MR_RUN_NO_CONTEXT(DRV(DeviceGetByPCIBusId, 4010)(device, pciBusId));
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *leastPriority, int *greatestPriority)
{
    return MR_RUN(DRV(CtxGetStreamPriorityRange, 5050)(leastPriority, greatestPriority));
}

cudaError_t cudaDeviceGetLimit(size_t *pValue, enum cudaLimit limit)
{
    return MR_RUN(DRV(CtxGetLimit, 3010)(pValue, (CUlimit)limit));
}

cudaError_t cudaDeviceSetLimit(enum cudaLimit limit, size_t value)
{
    return MR_RUN(DRV(CtxSetLimit, 3010)((CUlimit)limit, value));
}

cudaError_t cudaDeviceGetCacheConfig(enum cudaFuncCache *pCacheConfig)
{
    return MR_RUN(DRV(CtxGetCacheConfig, 3020)((CUfunc_cache *)pCacheConfig));
}

cudaError_t cudaDeviceSetCacheConfig(enum cudaFuncCache cacheConfig)
{
    return MR_RUN(DRV(CtxSetCacheConfig, 3020)((CUfunc_cache)cacheConfig));
}

cudaError_t cudaDriverGetVersion(int *driverVersion)
{
    if (driverVersion == NULL)
        return mr_finish(cudaErrorInvalidValue);
    *driverVersion = 0;
    /* Without a driver the version is 0, which is no error; an old driver still tells its own. */
    if (mr_driver_load() != cudaSuccess && mr_driver_asker() == NULL)
        return cudaSuccess;
    return mr_finish((cudaError_t)DRV(DriverGetVersion, 2020)(driverVersion));
}

cudaError_t cudaRuntimeGetVersion(int *runtimeVersion)
{
    if (runtimeVersion == NULL)
        return mr_finish(cudaErrorInvalidValue);
    *runtimeVersion = CUDART_VERSION;
    return cudaSuccess;
}

/* The profiler's prototypes are in a header of their own, which not every package has. */
typedef CUresult (*profiler_fn)(void);

MR_EXPORT cudaError_t cudaProfilerStart(void)
{
    return MR_RUN(((profiler_fn)mr_calls[MR_ProfilerStart_4000])());
}

MR_EXPORT cudaError_t cudaProfilerStop(void)
{
    return MR_RUN(((profiler_fn)mr_calls[MR_ProfilerStop_4000])());
}
