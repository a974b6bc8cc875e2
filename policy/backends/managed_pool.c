/* The managed pool of a device: see managed_pool.h. */
#include "policy/backends/managed_pool.h"

#include "interpose/core/base/log.h"
#include "interpose/core/base/threads/once.h"
#include "interpose/core/driver/driver.h"
#include "policy/backends/backend.h"
#include "policy/order/capture.h"

#define FIRST_DRIVER 13000 /* pools of managed memory */

static struct ag_size keep = {.value = UINT64_MAX};

void ag_managed_pool_configure(struct ag_size new_keep)
{
    keep = new_keep;
}

static bool has_managed_pools(const struct ag_device *device)
{
    int version = 0;

    return device->has_pools && device->has_managed &&
           ag_cu.cuDriverGetVersion(&version) == CUDA_SUCCESS && version >= FIRST_DRIVER;
}

/* Makes the pool without handle types: the driver exports no managed pool. */
static CUresult make_managed_pool(struct ag_device *device)
{
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED,
                                 .handleTypes = CU_MEM_HANDLE_TYPE_NONE};
    CUmemoryPool pool;
    CUresult result;
    bool opened; /* managed memory is open to the peers anyhow */

    if (!has_managed_pools(device))
        return CUDA_ERROR_NOT_SUPPORTED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device->ordinal;
    result = ag_cu.cuMemPoolCreate(&pool, &properties);
    if (result == CUDA_SUCCESS)
        result = ag_pool_set_up(device, pool, keep, &opened);
    if (result == CUDA_SUCCESS)
        device->managed_pool = pool;
    return result;
}

/* Makes the pool, in the first thread that needs it. A capture that begins meanwhile is not
 * harmed. */
static enum ag_once make_now(struct ag_device *device)
{
    CUstreamCaptureMode previous = ag_capture_relax();
    CUresult result = make_managed_pool(device);

    ag_capture_restore(previous);
    device->managed_refusal = result;
    if (result != CUDA_SUCCESS)
        ag_log_info("device %d has no managed pool (%s)", device->ordinal,
                    ag_driver_error_name(result));
    return result == CUDA_SUCCESS ? AG_ONCE_DONE : AG_ONCE_FAILED;
}

CUresult ag_managed_pool(struct ag_device *device, CUmemoryPool *ret_pool)
{
    if (ag_once_state(&device->managed_state) == AG_ONCE_TO_DO && ag_capture_is_open())
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (ag_once_begin(&device->managed_state))
        ag_once_end(&device->managed_state, make_now(device));
    if (!ag_once_is_done(&device->managed_state))
        return device->managed_refusal;
    *ret_pool = device->managed_pool;
    return CUDA_SUCCESS;
}

bool ag_managed_pool_exists(struct ag_device *device)
{
    return ag_once_is_done(&device->managed_state);
}

bool ag_managed_pool_is_of(struct ag_device *device, CUmemoryPool pool)
{
    return ag_managed_pool_exists(device) && device->managed_pool == pool;
}

void ag_managed_pool_trim(struct ag_device *device)
{
    if (ag_managed_pool_exists(device))
        ag_pool_give_idle_back(device->managed_pool);
}

uint64_t ag_managed_pool_idle(struct ag_device *device)
{
    return ag_managed_pool_exists(device) ? ag_pool_idle_in(device->managed_pool) : 0;
}

void ag_managed_pool_begin_child(struct ag_device *device)
{
    atomic_store(&device->managed_state, AG_ONCE_TO_DO);
}
