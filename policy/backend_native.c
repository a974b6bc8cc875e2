/* Native placement: the driver's own allocation. */
#include "backend.h"

#include "driver.h"

static bool ready(struct ag_device *device)
{
    (void)device;
    return true;
}

static CUresult allocate(struct ag_context *context, size_t bytes, CUdeviceptr *ret_address,
                         size_t *ret_size)
{
    CUdeviceptr address;
    CUresult result = ag_cu.cuMemAlloc_v2(&address, bytes);

    (void)context;
    if (result != CUDA_SUCCESS)
        return result;
    *ret_address = address;
    *ret_size = bytes;
    return CUDA_SUCCESS;
}

const struct ag_backend ag_backend_native = {.ready = ready, .allocate = allocate};
