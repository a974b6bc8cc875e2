/* Managed placement: memory that may be larger than the device, kept on it as far as it fits. */
#include "backend.h"

#include "driver.h"

#define WORTH_ADVICE (2u * 1024u * 1024u) /* smaller blocks share pages with others */

static bool ready(struct ag_device *device)
{
    return device->has_managed;
}

/* Advice and prefetch only make it faster: failures are the driver's business, not the program's. */
static void place_on_device(struct ag_context *context, CUdeviceptr address, size_t bytes)
{
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = context->device->ordinal};

    if (ag_cu.cuMemAdvise_v2)
        (void)ag_cu.cuMemAdvise_v2(address, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, here);
    else if (ag_cu.cuMemAdvise)
        (void)ag_cu.cuMemAdvise(address, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, here.id);
    if (ag_context_equip(context) != CUDA_SUCCESS)
        return;
    if (ag_cu.cuMemPrefetchAsync_v2)
        (void)ag_cu.cuMemPrefetchAsync_v2(address, bytes, here, 0, context->alloc_stream);
    else if (ag_cu.cuMemPrefetchAsync)
        (void)ag_cu.cuMemPrefetchAsync(address, bytes, here.id, context->alloc_stream);
}

/* Managed memory may exceed the card, which programs do not expect of cudaMalloc (and which can hang a
 * GPU): what natively would not fit does not fit here. */
static bool fits(const struct ag_device *device, size_t bytes)
{
    uint64_t taken = ag_stats_current(device->ordinal, AG_PLACE_MANAGED);
    size_t free_bytes = 0, total;

    if (taken > device->total_bytes || bytes > device->total_bytes - taken)
        return false;
    return ag_cu.cuMemGetInfo_v2(&free_bytes, &total) != CUDA_SUCCESS || bytes <= free_bytes;
}

static CUresult allocate(struct ag_context *context, size_t bytes, CUdeviceptr *ret_address,
                         size_t *ret_size)
{
    CUdeviceptr address;
    CUresult result;

    if (!fits(context->device, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = ag_cu.cuMemAllocManaged(&address, bytes, CU_MEM_ATTACH_GLOBAL);
    if (result != CUDA_SUCCESS)
        return result;
    if (bytes >= WORTH_ADVICE)
        place_on_device(context, address, bytes);
    *ret_address = address;
    *ret_size = bytes;
    return CUDA_SUCCESS;
}

const struct ag_backend ag_backend_managed = {.ready = ready, .allocate = allocate};
