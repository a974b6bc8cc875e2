/* Pool placement: one stream-ordered pool of our own on each device. */
#include "backend.h"

#include "base/log.h"
#include "driver.h"
#include "order.h"
#include "pressure.h"

static struct ag_size keep = {.value = UINT64_MAX};

enum pool_state { POOL_NONE, POOL_BEING_MADE, POOL_READY, POOL_REFUSED };

void ag_pool_configure(struct ag_size new_keep)
{
    keep = new_keep;
}

bool ag_pool_open_to_peers(CUmemoryPool pool, int ordinal)
{
    CUmemAccessDesc access = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    bool opened = true;
    int count = 0, can;

    if (ag_cu.cuDeviceGetCount(&count) != CUDA_SUCCESS || !ag_cu.cuMemPoolSetAccess)
        return true;
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    for (int peer = 0; peer < count; peer++) {
        if (peer == ordinal ||
            ag_cu.cuDeviceCanAccessPeer(&can, peer, ordinal) != CUDA_SUCCESS || !can)
            continue;
        access.location.id = peer;
        opened = ag_cu.cuMemPoolSetAccess(pool, &access, 1) == CUDA_SUCCESS && opened;
    }
    return opened;
}

static CUresult set_up(struct ag_device *device)
{
    cuuint64_t threshold = ag_size_bytes(keep, device->total_bytes);
    bool opened = true;
    int off = 0;
    CUresult result = ag_cu.cuMemPoolSetAttribute(device->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                                                  &threshold);

    /* An allocation must not be made to wait for somebody's unfinished work. */
    if (result == CUDA_SUCCESS)
        result = ag_cu.cuMemPoolSetAttribute(
            device->pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &off);
    if (result == CUDA_SUCCESS)
        opened = ag_pool_open_to_peers(device->pool, device->ordinal);
    else if (ag_cu.cuMemPoolDestroy)
        (void)ag_cu.cuMemPoolDestroy(device->pool);
    if (!opened)
        ag_log_warn("the pool of device %d could not be opened to all its peers", device->ordinal);
    return result;
}

static CUresult make_pool(struct ag_device *device)
{
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED};
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    int handles = 0;

    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device->ordinal;
    (void)ag_cu.cuDeviceGetAttribute(
        &handles, CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, device->ordinal);
    if (handles & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        result = ag_cu.cuMemPoolCreate(&device->pool, &properties);
    }
    if (result != CUDA_SUCCESS) {
        properties.handleTypes = CU_MEM_HANDLE_TYPE_NONE;
        result = ag_cu.cuMemPoolCreate(&device->pool, &properties);
    }
    return result == CUDA_SUCCESS ? set_up(device) : result;
}

static bool ready(struct ag_device *device)
{
    int state = atomic_load_explicit(&device->pool_state, memory_order_acquire);
    CUresult result;

    while (state == POOL_NONE || state == POOL_BEING_MADE) {
        if (state == POOL_NONE && !device->has_pools)
            return false;
        if (state == POOL_NONE &&
            atomic_compare_exchange_strong(&device->pool_state, &state, POOL_BEING_MADE)) {
            result = make_pool(device);
            state = result == CUDA_SUCCESS ? POOL_READY : POOL_REFUSED;
            if (result != CUDA_SUCCESS)
                ag_log_warn("no pool on device %d (%s): its memory stays native", device->ordinal,
                            ag_driver_error_name(result));
            atomic_store_explicit(&device->pool_state, state, memory_order_release);
            break;
        }
        ag_order_relax(); /* another thread is making it */
        state = atomic_load_explicit(&device->pool_state, memory_order_acquire);
    }
    return state == POOL_READY;
}

static CUresult allocate(struct ag_context *context, size_t bytes, CUdeviceptr *ret_address,
                         size_t *ret_size)
{
    CUdeviceptr address = 0;
    CUstream stream;
    CUresult result, ended;

    if (!ag_order_alloc_begin(context, &stream))
        return CUDA_ERROR_NOT_SUPPORTED;
    result = ag_cu.cuMemAllocFromPoolAsync(&address, bytes, context->device->pool, stream);
    ended = ag_order_alloc_end(context, stream, result);
    if (result == CUDA_SUCCESS && ended != CUDA_SUCCESS)
        (void)ag_cu.cuMemFreeAsync(address, stream);
    if (ended != CUDA_SUCCESS)
        return ended;
    *ret_address = address;
    *ret_size = bytes;
    return CUDA_SUCCESS;
}

const struct ag_backend ag_backend_pool = {.ready = ready, .allocate = allocate};

/* When the driver will not free it in stream order: once all work that may use it is done. */
static CUresult free_after_wait(struct ag_context *context, CUdeviceptr address)
{
    CUresult result = ag_order_wait_released(context);

    return result == CUDA_SUCCESS ? ag_cu.cuMemFree_v2(address) : result;
}

struct ag_block *ag_pool_release(struct ag_context *context, struct ag_block *blocks)
{
    CUstream stream;
    bool pushed;

    if (!blocks || !ag_order_release_begin(context, &stream, &pushed))
        return blocks;
    while (blocks) {
        struct ag_block *block = blocks;
        CUdeviceptr address = block->address;
        size_t size = block->size;

        blocks = block->next;
        ag_ledger_remove(block);
        if (ag_cu.cuMemFreeAsync(address, stream) == CUDA_SUCCESS)
            ag_pressure_pending(size);
        else
            (void)free_after_wait(context, address);
        ag_stats_add(AG_STAT_CACHE_RETURNED, 1);
    }
    ag_order_release_end(pushed);
    return NULL;
}

static bool has_pool(struct ag_device *device)
{
    return atomic_load_explicit(&device->pool_state, memory_order_acquire) == POOL_READY;
}

void ag_pool_trim(struct ag_device *device)
{
    if (has_pool(device) && ag_cu.cuMemPoolTrimTo)
        (void)ag_cu.cuMemPoolTrimTo(device->pool, 0);
}

void ag_pool_levels(struct ag_device *device, uint64_t *ret_reserved, uint64_t *ret_used)
{
    cuuint64_t reserved = 0, used = 0;

    if (has_pool(device) && ag_cu.cuMemPoolGetAttribute) {
        CUstreamCaptureMode previous = ag_order_relax_captures(); /* it ends a capture otherwise */

        (void)ag_cu.cuMemPoolGetAttribute(device->pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved);
        (void)ag_cu.cuMemPoolGetAttribute(device->pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used);
        ag_order_restore_captures(previous);
    }
    *ret_reserved = reserved;
    *ret_used = used;
}

void ag_pool_forget(struct ag_device *device)
{
    atomic_store(&device->pool_state, POOL_NONE);
}
