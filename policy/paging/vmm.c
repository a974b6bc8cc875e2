/* Calls of the driver's virtual memory that several parts make: see vmm.h. */
#include "policy/paging/vmm.h"

#include "interpose/core/driver/driver.h"
#include "policy/contexts/context.h"

bool ag_vmm_has_functions(void)
{
    return ag_cu.cuMemAddressReserve && ag_cu.cuMemAddressFree && ag_cu.cuMemCreate &&
           ag_cu.cuMemMap && ag_cu.cuMemUnmap && ag_cu.cuMemRelease && ag_cu.cuMemSetAccess &&
           ag_cu.cuMemGetAllocationGranularity;
}

CUmemAllocationProp ag_vmm_on_device(const struct ag_device *device)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};

    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device->ordinal;
    return properties;
}

CUmemAllocationProp ag_vmm_on_host(const struct ag_device *device)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    int node = 0;

    if (ag_cu.cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device->ordinal) !=
            CUDA_SUCCESS ||
        node < 0)
        node = 0; /* of a machine that has one node */
    properties.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    properties.location.id = node;
    return properties;
}

static CUresult open_to_device(int device, CUdeviceptr address, size_t bytes)
{
    CUmemAccessDesc access = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device;
    return ag_cu.cuMemSetAccess(address, bytes, &access, 1);
}

CUresult ag_vmm_open(const struct ag_device *device, CUdeviceptr address, size_t bytes)
{
    return open_to_device(device->ordinal, address, bytes);
}

CUresult ag_vmm_open_to_peers(const struct ag_device *device, CUdeviceptr address, size_t bytes)
{
    int count = 0, can;
    CUresult result = CUDA_SUCCESS, opened;

    if (ag_cu.cuDeviceGetCount(&count) != CUDA_SUCCESS)
        return CUDA_SUCCESS;
    for (int peer = 0; peer < count; peer++) {
        if (peer == device->ordinal ||
            ag_cu.cuDeviceCanAccessPeer(&can, peer, device->ordinal) != CUDA_SUCCESS || !can)
            continue;
        opened = open_to_device(peer, address, bytes);
        if (result == CUDA_SUCCESS)
            result = opened;
    }
    return result;
}
