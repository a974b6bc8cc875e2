/* green_context.c: green contexts: parts of a device's primary context under handles of their own.
 *
 * What is done inside one is done in the primary context; the handle only leads there. But it has
 * a default stream of its own, which waits for no other. */
#include "tests/sim/sim_internal.h"

#include <string.h>

#define GROUP 8u /* multiprocessors that stay together */

/* What CUdevResourceDesc points to. */
struct CUdevResourceDesc_st {
    unsigned n_multiprocessors;
};

struct CUgreenCtx_st {
    CUcontext inside; /* what is made current */
    int device;
    unsigned n_multiprocessors;
    CUgreenCtx next;
};

static CUgreenCtx all;

static bool green_ok(CUgreenCtx green)
{
    return sim_handle_is(green, SIM_GREEN) && green->inside->alive;
}

void sim_green_primary_gone(CUcontext primary)
{
    for (CUgreenCtx green = all; green; green = green->next)
        if (green->inside->part_of == primary)
            green->inside->alive = false;
}

/* ---- multiprocessors ---- */

static void describe(CUdevResource *resource, unsigned n)
{
    memset(resource, 0, sizeof(*resource));
    resource->type = CU_DEV_RESOURCE_TYPE_SM;
    resource->sm.smCount = n;
    resource->sm.minSmPartitionSize = resource->sm.smCoscheduledAlignment = GROUP;
}

static CUresult resource_of(CUdevResource *resource, CUdevResourceType type, unsigned n)
{
    if (!resource || type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    describe(resource, n);
    return CUDA_SUCCESS;
}

#define DEVICE_HAS 16u /* device.c */

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!sim_device_ok(device))
        return CUDA_ERROR_INVALID_DEVICE;
    return resource_of(resource, type, DEVICE_HAS);
}

CUresult cuGreenCtxGetDevResource(CUgreenCtx green, CUdevResource *resource, CUdevResourceType type)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!green_ok(green))
        return CUDA_ERROR_INVALID_CONTEXT;
    return resource_of(resource, type, green->n_multiprocessors);
}

CUresult cuDevSmResourceSplitByCount(CUdevResource *result, unsigned int *n_groups,
                                     const CUdevResource *input, CUdevResource *rest,
                                     unsigned int flags, unsigned int least)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    unsigned each = (SIM_MAX(least, 1u) + GROUP - 1) / GROUP * GROUP;

    (void)flags;
    if (!n_groups || !input || input->type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_VALUE;
    unsigned most = input->sm.smCount / each;
    *n_groups = result ? SIM_MIN(*n_groups, most) : most;
    if (!*n_groups)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    for (unsigned i = 0; result && i < *n_groups; i++)
        describe(&result[i], each);
    if (rest)
        describe(rest, input->sm.smCount - *n_groups * each);
    return CUDA_SUCCESS;
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *ret_desc, CUdevResource *resources,
                                   unsigned int n)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!ret_desc || !resources || !n)
        return CUDA_ERROR_INVALID_VALUE;
    CUdevResourceDesc desc = sim_handle_new(SIM_RESOURCES, sizeof(*desc));
    for (unsigned i = 0; i < n; i++)
        desc->n_multiprocessors += resources[i].sm.smCount;
    *ret_desc = desc;
    return CUDA_SUCCESS;
}

/* ---- green contexts ---- */

CUresult cuGreenCtxCreate(CUgreenCtx *ret_green, CUdevResourceDesc desc, CUdevice device,
                          unsigned int flags)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    CUcontext primary;

    if (!ret_green || !sim_handle_is(desc, SIM_RESOURCES) || flags != CU_GREEN_CTX_DEFAULT_STREAM)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_primary_retain(&primary, device);
    if (result != CUDA_SUCCESS)
        return result;
    CUgreenCtx green = sim_handle_new(SIM_GREEN, sizeof(*green));
    green->inside = sim_handle_new(SIM_CONTEXT, sizeof(*green->inside));
    green->inside->device = green->device = device;
    green->inside->primary = green->inside->alive = true; /* no cuCtxDestroy for it */
    green->inside->part_of = primary;
    green->inside->legacy = sim_stream_new(primary, SIM_STREAM_USER, CU_STREAM_NON_BLOCKING, 0);
    green->n_multiprocessors = desc->n_multiprocessors;
    green->next = all;
    all = green;
    *ret_green = green;
    return CUDA_SUCCESS;
}

CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!green_ok(green))
        return CUDA_ERROR_INVALID_CONTEXT;
    green->inside->alive = false;
    sim_stream_delete(green->inside->legacy);
    return sim_primary_release(green->device);
}

CUresult cuCtxFromGreenCtx(CUcontext *ret_ctx, CUgreenCtx green)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!ret_ctx || !green_ok(green))
        return CUDA_ERROR_INVALID_CONTEXT;
    *ret_ctx = green->inside;
    return CUDA_SUCCESS;
}

CUresult cuGreenCtxStreamCreate(CUstream *ret_stream, CUgreenCtx green, unsigned int flags,
                                int priority)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!ret_stream || !green_ok(green) || flags != CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    *ret_stream =
        sim_stream_new(green->inside->part_of, SIM_STREAM_USER, CU_STREAM_NON_BLOCKING, priority);
    return CUDA_SUCCESS;
}
