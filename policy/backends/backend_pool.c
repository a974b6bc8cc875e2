/* Pool placement: one stream-ordered pool of our own on each device. */
#include "policy/backends/backend.h"

#include "interpose/core/base/log.h"
#include "interpose/core/base/threads/once.h"
#include "interpose/core/driver/driver.h"
#include "policy/backends/given.h"
#include "policy/order/capture.h"
#include "policy/order/private_stream.h"

static struct ag_size keep = {.value = UINT64_MAX};

void ag_pool_configure(struct ag_size new_keep)
{
    keep = new_keep;
}

/* False: not to all of them. */
static bool open_to_peers(CUmemoryPool pool, int ordinal)
{
    CUmemAccessDesc access = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    bool opened = true;
    int count = 0, can;

    if (ag_cu.cuDeviceGetCount(&count) != CUDA_SUCCESS || !ag_cu.cuMemPoolSetAccess)
        return false;
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    for (int peer = 0; peer < count && opened; peer++) {
        if (peer == ordinal)
            continue;
        access.location.id = peer;
        opened = ag_cu.cuDeviceCanAccessPeer(&can, peer, ordinal) == CUDA_SUCCESS &&
                 (!can || ag_cu.cuMemPoolSetAccess(pool, &access, 1) == CUDA_SUCCESS);
    }
    return opened;
}

static void destroy_pool(CUmemoryPool pool)
{
    if (ag_cu.cuMemPoolDestroy)
        (void)ag_cu.cuMemPoolDestroy(pool);
}

CUresult ag_pool_set_up(const struct ag_device *device, CUmemoryPool pool, struct ag_size to_keep,
                        bool *ret_opened)
{
    uint64_t kept = ag_size_bytes(to_keep, device->total_bytes);
    cuuint64_t threshold = kept < device->limit ? kept : device->limit;
    int off = 0;
    CUresult result =
        ag_cu.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold);

    /* An allocation must not be made to wait for somebody's unfinished work. */
    if (result == CUDA_SUCCESS)
        result = ag_cu.cuMemPoolSetAttribute(
            pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &off);
    *ret_opened = result == CUDA_SUCCESS && open_to_peers(pool, device->ordinal);
    if (result != CUDA_SUCCESS)
        destroy_pool(pool);
    return result;
}

static CUresult set_up_pool(struct ag_device *device)
{
    bool opened;
    CUresult result = ag_pool_set_up(device, device->pool, keep, &opened);

    if (result != CUDA_SUCCESS || opened)
        return result;
    destroy_pool(device->pool);
    return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
}

static CUresult make_pool(struct ag_device *device)
{
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED};
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    int handles = 0;

    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device->ordinal;
    (void)ag_cu.cuDeviceGetAttribute(&handles, CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES,
                                     device->ordinal);
    if (handles & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        result = ag_cu.cuMemPoolCreate(&device->pool, &properties);
    }
    device->pool_is_shareable = result == CUDA_SUCCESS;
    if (result != CUDA_SUCCESS) {
        properties.handleTypes = CU_MEM_HANDLE_TYPE_NONE;
        result = ag_cu.cuMemPoolCreate(&device->pool, &properties);
    }
    return result == CUDA_SUCCESS ? set_up_pool(device) : result;
}

bool ag_pool_ready(struct ag_device *device)
{
    CUresult result;

    if (!device->has_pools)
        return false;
    if (ag_once_begin(&device->pool_state)) {
        result = make_pool(device);
        if (result == CUDA_SUCCESS)
            ag_stats_add(AG_STAT_POOL_MADE, 1);
        else
            ag_log_warn("no pool on device %d (%s): its memory stays native", device->ordinal,
                        ag_driver_error_name(result));
        ag_once_end(&device->pool_state, result == CUDA_SUCCESS ? AG_ONCE_DONE : AG_ONCE_FAILED);
    }
    return ag_once_is_done(&device->pool_state);
}

CUresult ag_pool_allocate(struct ag_context *context, CUmemoryPool pool, size_t bytes,
                          CUdeviceptr *ret_address, size_t *ret_size)
{
    CUdeviceptr address = 0;
    CUstream stream;
    CUresult result;

    if (!ag_private_stream_begin_alloc(context, &stream))
        return CUDA_ERROR_NOT_SUPPORTED;
    result = ag_cu.cuMemAllocFromPoolAsync(&address, bytes, pool, stream);
    if (result != CUDA_SUCCESS)
        return result;
    result = ag_private_stream_end_alloc(context, stream);
    if (result != CUDA_SUCCESS) {
        (void)ag_cu.cuMemFreeAsync(address, stream);
        return result;
    }
    *ret_address = address;
    *ret_size = bytes;
    return CUDA_SUCCESS;
}

static bool is_pool_made(struct ag_device *device)
{
    return ag_once_is_done(&device->pool_state);
}

void ag_pool_give_idle_back(CUmemoryPool pool)
{
    CUstreamCaptureMode previous;

    if (!ag_cu.cuMemPoolTrimTo)
        return;
    previous = ag_capture_relax();
    (void)ag_cu.cuMemPoolTrimTo(pool, 0);
    ag_capture_restore(previous);
}

void ag_pool_trim(struct ag_device *device)
{
    if (!is_pool_made(device))
        return;
    ag_pool_give_idle_back(device->pool);
    ag_given_trimmed(device);
}

uint64_t ag_pool_idle_in(CUmemoryPool pool)
{
    CUstreamCaptureMode previous;
    cuuint64_t reserved = 0, used = 0;

    if (!ag_cu.cuMemPoolGetAttribute)
        return 0;
    previous = ag_capture_relax(); /* it ends a capture otherwise */
    (void)ag_cu.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved);
    (void)ag_cu.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used);
    ag_capture_restore(previous);
    return reserved > used ? reserved - used : 0;
}

uint64_t ag_pool_idle(struct ag_device *device)
{
    return is_pool_made(device) ? ag_pool_idle_in(device->pool) : 0;
}

void ag_pool_begin_child(struct ag_device *device)
{
    atomic_store(&device->pool_state, AG_ONCE_TO_DO);
}
