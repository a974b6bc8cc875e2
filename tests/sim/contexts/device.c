/* device.c: what the simulated devices say about themselves. */
#include "tests/sim/sim_internal.h"

#include <stdio.h>
#include <string.h>

struct attribute {
    int number, value;
};

/* Attributes that are not listed are 0. A card of compute capability 9.0. */
static const struct attribute attributes[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
    {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
    {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1000000},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1},
    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH, 131072},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH, 131072},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT, 65536},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH, 16384},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT, 16384},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH, 16384},
    {CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
    {CU_DEVICE_ATTRIBUTE_ECC_ENABLED, 1},
    {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 1000000},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 1024},
    {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 1 << 20},
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH, 268435456},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
    {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 233472},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
    {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, 2},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
    {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448},
    {CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES, 1},
    {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
    {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR},
    {CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 1},
    {CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0},
    {CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT, 4},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS, 1},
    {CU_DEVICE_ATTRIBUTE_NUMA_CONFIG, 0},
    {CU_DEVICE_ATTRIBUTE_NUMA_ID, -1},
    {CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 0},
};

static struct {
    CUmemoryPool default_pool[SIM_MAX_DEVICES], current_pool[SIM_MAX_DEVICES];
    CUmemoryPool default_managed[SIM_MAX_DEVICES + 1], current_managed[SIM_MAX_DEVICES + 1];
} self;

bool sim_device_ok(CUdevice device)
{
    return device >= 0 && device < sim_settings()->n_devices;
}

CUmemoryPool *sim_device_default_pool(int device)
{
    if (!self.default_pool[device]) {
        CUmemPoolProps props = {0};
        props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        props.location.id = device;
        self.default_pool[device] = sim_pool_new(device, &props);
    }
    return &self.default_pool[device];
}

CUmemoryPool *sim_device_current_pool(int device)
{
    if (!self.current_pool[device])
        self.current_pool[device] = *sim_device_default_pool(device);
    return &self.current_pool[device];
}

/* Managed pools: one for each device, and the last one for the host. */
static CUmemoryPool *managed_slot(const CUmemLocation *location, bool current)
{
    bool host = location->type == CU_MEM_LOCATION_TYPE_HOST;
    int i = host ? SIM_MAX_DEVICES : location->id;

    if (!self.default_managed[i]) {
        CUmemPoolProps props = {0};
        props.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED;
        props.location = *location;
        self.default_managed[i] = sim_pool_new(host ? 0 : i, &props);
        self.current_managed[i] = self.default_managed[i];
    }
    return current ? &self.current_managed[i] : &self.default_managed[i];
}

CUmemoryPool *sim_pool_slot(const CUmemLocation *location, CUmemAllocationType type, bool current)
{
    bool device = location->type == CU_MEM_LOCATION_TYPE_DEVICE && sim_device_ok(location->id);
    bool host = location->type == CU_MEM_LOCATION_TYPE_HOST;

    if (type == CU_MEM_ALLOCATION_TYPE_PINNED && device)
        return current ? sim_device_current_pool(location->id)
                       : sim_device_default_pool(location->id);
    return type == CU_MEM_ALLOCATION_TYPE_MANAGED && (device || host)
               ? managed_slot(location, current)
               : NULL;
}

static CUresult get_pool(CUmemoryPool *pool, const CUmemLocation *location,
                         CUmemAllocationType type, bool current)
{
    CUmemoryPool *slot = location ? sim_pool_slot(location, type, current) : NULL;

    if (!pool || !slot)
        return CUDA_ERROR_INVALID_VALUE;
    *pool = *slot;
    return CUDA_SUCCESS;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location,
                                CUmemAllocationType type)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    return get_pool(pool, location, type, false);
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    return get_pool(pool, location, type, true);
}

CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    CUmemoryPool *slot = location ? sim_pool_slot(location, type, true) : NULL;

    if (!slot || !sim_pool_ok(pool) ||
        sim_pool_managed(pool) != (type == CU_MEM_ALLOCATION_TYPE_MANAGED))
        return CUDA_ERROR_INVALID_VALUE;
    *slot = pool;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_ok(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = sim_settings()->n_devices;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!name || len <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_ok(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    (void)snprintf(name, (size_t)len, "Simulated GPU");
    return CUDA_SUCCESS;
}

static CUresult get_uuid(CUuuid *uuid, CUdevice dev)
{
    if (!uuid)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_ok(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    memcpy(uuid->bytes, "simulated-gpu-", 14);
    uuid->bytes[14] = (char)('0' + dev / 10);
    uuid->bytes[15] = (char)('0' + dev % 10);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    return get_uuid(uuid, dev);
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    return get_uuid(uuid, dev);
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_ok(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    *bytes = sim_settings()->memory_bytes;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice dev)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!value || attribute < 1 || attribute >= CU_DEVICE_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_ok(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    if (sim_settings_attribute((int)attribute, value))
        return CUDA_SUCCESS;
    *value = attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID ? dev + 1 : 0;
    for (size_t i = 0; i < SIM_COUNT(attributes); i++)
        if (attributes[i].number == (int)attribute)
            *value = attributes[i].value;
    return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice dev)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!major || !minor)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_ok(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    *major = 9;
    *minor = 0;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *id, int len, CUdevice dev)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!id || len <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_ok(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    (void)snprintf(id, (size_t)len, "0000:%02X:00.0", dev + 1);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *dev, const char *id)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    unsigned domain, bus;

    if (!dev || !id)
        return CUDA_ERROR_INVALID_VALUE;
    if (sscanf(id, "%x:%x", &domain, &bus) != 2 || !sim_device_ok((int)bus - 1))
        return CUDA_ERROR_INVALID_DEVICE;
    *dev = (int)bus - 1;
    return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice dev, CUdevice peer)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!can)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_ok(dev) || !sim_device_ok(peer))
        return CUDA_ERROR_INVALID_DEVICE;
    *can = dev != peer;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice src,
                                 CUdevice dst)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_ok(src) || !sim_device_ok(dst) || src == dst)
        return CUDA_ERROR_INVALID_DEVICE;
    *value = attribute == CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK ? 0 : 1;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice dev)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!pool)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_ok(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    *pool = *sim_device_default_pool(dev);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!pool)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_ok(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    *pool = *sim_device_current_pool(dev);
    return CUDA_SUCCESS;
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!sim_device_ok(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!sim_handle_is(pool, SIM_POOL) || sim_pool_device(pool) != dev)
        return CUDA_ERROR_INVALID_VALUE;
    *sim_device_current_pool(dev) = pool;
    return CUDA_SUCCESS;
}
