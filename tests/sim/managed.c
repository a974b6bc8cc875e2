/* managed.c: managed memory: one address for host and devices; advice and prefetch. */
#include "sim_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* What cuMemRangeGetAttribute answers; kept for the block as a whole. */
struct advice {
    bool read_mostly;
    CUmemLocation preferred, prefetched;
    unsigned accessed_by; /* devices */
    bool accessed_by_host;
};

static size_t pages(size_t bytes)
{
    return (bytes + 4095) & ~(size_t)4095;
}

CUresult sim_managed_alloc(CUcontext ctx, size_t bytes, unsigned flags,
                           struct sim_block **ret_block)
{
    void *p = mmap(NULL, pages(bytes), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (p == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct sim_block *block =
        sim_block_new(SIM_BLOCK_MANAGED, (uintptr_t)p, bytes, ctx->device, ctx);
    block->bytes = p;
    block->flags = flags;
    block->extra = calloc(1, sizeof(struct advice));
    if (!block->extra)
        abort();
    (void)snprintf(block->how_born, sizeof(block->how_born), "cuMemAllocManaged");
    *ret_block = block;
    return CUDA_SUCCESS;
}

void sim_managed_free(struct sim_block *block)
{
    sim_block_bury(block, "cuMemFree");
    sim_block_end(block, &sim_host_order);
    (void)munmap(block->bytes, pages(block->size));
    block->bytes = NULL;
    free(block->extra);
    block->extra = NULL;
}

CUresult cuMemAllocManaged(CUdeviceptr *ret_p, size_t bytes, unsigned int flags)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    struct sim_block *block;

    if (!ret_p || !bytes || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_capture_check(call.ctx, SIM_CAPTURE_UNSAFE);
    if (result == CUDA_SUCCESS && bytes > (size_t)1 << 46)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        result = sim_managed_alloc(call.ctx, bytes, flags, &block);
    if (result == CUDA_SUCCESS)
        *ret_p = block->base;
    return result;
}

/* The managed block that holds the whole range. */
static CUresult find(CUdeviceptr p, size_t count, struct sim_block **ret_block)
{
    struct sim_block *block = sim_block_at(p);

    if (!block || !count || count > block->size - (p - block->base))
        return CUDA_ERROR_INVALID_VALUE;
    if (block->kind == SIM_BLOCK_POOL && sim_pool_managed(block->pool)) {
        *ret_block = block;
        return CUDA_SUCCESS;
    }
    if (block->kind != SIM_BLOCK_MANAGED)
        return CUDA_ERROR_INVALID_VALUE;
    *ret_block = block;
    return CUDA_SUCCESS;
}

static bool location_ok(CUmemLocation location)
{
    switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return sim_device_ok(location.id);
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        return true;
    default:
        return false;
    }
}

/* The older calls name a device, or CU_DEVICE_CPU. */
static CUmemLocation location_of(CUdevice device)
{
    CUmemLocation location = {0};

    location.type =
        device == CU_DEVICE_CPU ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE;
    location.id = device == CU_DEVICE_CPU ? 0 : device;
    return location;
}

static CUresult advise(CUdeviceptr p, size_t count, CUmem_advise what, CUmemLocation location)
{
    struct sim_block *block;
    CUresult result = find(p, count, &block);

    if (result != CUDA_SUCCESS)
        return result;
    if (block->kind == SIM_BLOCK_POOL)
        return CUDA_ERROR_NOT_SUPPORTED;
    struct advice *advice = block->extra;
    bool needs_location = what == CU_MEM_ADVISE_SET_PREFERRED_LOCATION ||
                          what == CU_MEM_ADVISE_SET_ACCESSED_BY ||
                          what == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
    if (needs_location && !location_ok(location))
        return CUDA_ERROR_INVALID_DEVICE;
    bool host = location.type != CU_MEM_LOCATION_TYPE_DEVICE;
    switch (what) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        advice->read_mostly = what == CU_MEM_ADVISE_SET_READ_MOSTLY;
        return CUDA_SUCCESS;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        advice->preferred = location;
        return CUDA_SUCCESS;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        advice->preferred = (CUmemLocation){0};
        return CUDA_SUCCESS;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
        advice->accessed_by |= host ? 0 : 1u << location.id;
        advice->accessed_by_host |= host;
        return CUDA_SUCCESS;
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
        advice->accessed_by &= host ? ~0u : ~(1u << location.id);
        advice->accessed_by_host &= !host;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuMemAdvise(CUdeviceptr p, size_t count, CUmem_advise what, CUdevice device)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    return advise(p, count, what, location_of(device));
}

CUresult cuMemAdvise_v2(CUdeviceptr p, size_t count, CUmem_advise what, CUmemLocation location)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    return advise(p, count, what, location);
}

static CUresult prefetch(CUcontext ctx, CUdeviceptr p, size_t count, CUmemLocation location,
                         CUstream handle)
{
    struct sim_block *block;
    CUstream stream;
    CUresult result = sim_stream_find(ctx, handle, &stream);

    if (result == CUDA_SUCCESS)
        result = sim_capture_unsupported(stream);
    if (result == CUDA_SUCCESS)
        result = find(p, count, &block);
    if (result != CUDA_SUCCESS)
        return result;
    if (!location_ok(location))
        return CUDA_ERROR_INVALID_DEVICE;
    if (block->extra)
        ((struct advice *)block->extra)->prefetched = location;
    struct sim_work work = {.kind = SIM_WORK_EMPTY};
    return sim_submit(stream, &work, NULL);
}

CUresult cuMemPrefetchAsync(CUdeviceptr p, size_t count, CUdevice device, CUstream stream)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    return prefetch(call.ctx, p, count, location_of(device), stream);
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr p, size_t count, CUmemLocation location,
                               unsigned int flags, CUstream stream)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    return prefetch(call.ctx, p, count, location, stream);
}

CUresult cuMemPrefetchBatchAsync(CUdeviceptr *p, size_t *sizes, size_t count,
                                 CUmemLocation *locations, size_t *indices, size_t n_locations,
                                 unsigned long long flags, CUstream stream)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    CUresult result = p && sizes && count && locations && indices && n_locations && !flags
                          ? CUDA_SUCCESS
                          : CUDA_ERROR_INVALID_VALUE;
    size_t at = 0;

    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        while (at + 1 < n_locations && indices[at + 1] <= i)
            at++;
        result = prefetch(call.ctx, p[i], sizes[i], locations[at], stream);
    }
    return result;
}

/* What is discarded may read as anything afterwards; that is left to the program's own writes. */
static CUresult discard(CUcontext ctx, CUdeviceptr p, size_t size, CUstream handle)
{
    struct sim_block *block;
    struct sim_work work = {.kind = SIM_WORK_EMPTY};
    CUstream stream;
    CUresult result = sim_stream_find(ctx, handle, &stream);

    if (result == CUDA_SUCCESS)
        result = sim_capture_unsupported(stream);
    if (result == CUDA_SUCCESS)
        result = find(p, size, &block);
    return result ? result : sim_submit(stream, &work, NULL);
}

CUresult cuMemDiscardBatchAsync(CUdeviceptr *p, size_t *sizes, size_t count,
                                unsigned long long flags, CUstream stream)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    CUresult result = p && sizes && count && !flags ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = discard(call.ctx, p[i], sizes[i], stream);
    return result;
}

CUresult cuStreamAttachMemAsync(CUstream handle, CUdeviceptr p, size_t length, unsigned int flags)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    CUstream stream;
    CUresult result = sim_stream_find(call.ctx, handle, &stream);
    struct sim_block *block = sim_block_starting_at(p);

    (void)flags;
    if (result != CUDA_SUCCESS)
        return result;
    if (!block || block->kind != SIM_BLOCK_MANAGED || (length && length != block->size))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_work work = {.kind = SIM_WORK_EMPTY};
    return sim_submit(stream, &work, NULL);
}

static int as_device(CUmemLocation location)
{
    switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return location.id;
    case CU_MEM_LOCATION_TYPE_HOST:
        return CU_DEVICE_CPU;
    default:
        return CU_DEVICE_INVALID;
    }
}

static void list_accessed_by(const struct advice *advice, int *list, size_t n)
{
    size_t at = 0;

    if (advice->accessed_by_host && at < n)
        list[at++] = CU_DEVICE_CPU;
    for (int device = 0; device < SIM_MAX_DEVICES && at < n; device++)
        if (advice->accessed_by >> device & 1)
            list[at++] = device;
    while (at < n)
        list[at++] = CU_DEVICE_INVALID;
}

static CUresult get_attribute(void *data, size_t size, CUmem_range_attribute attribute,
                              CUdeviceptr p, size_t count)
{
    struct sim_block *block;
    CUresult result = find(p, count, &block);

    if (result != CUDA_SUCCESS)
        return result;
    if (!data || size < sizeof(int) || size % sizeof(int) || !block->extra)
        return CUDA_ERROR_INVALID_VALUE;
    const struct advice *advice = block->extra;
    int *value = data;
    switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
        *value = advice->read_mostly;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
        *value = as_device(advice->preferred);
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
        *value = as_device(advice->prefetched);
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
        list_accessed_by(advice, value, size / sizeof(int));
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
        *value = (int)advice->preferred.type;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
        *value = advice->preferred.id;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
        *value = (int)advice->prefetched.type;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
        *value = advice->prefetched.id;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuMemRangeGetAttribute(void *data, size_t size, CUmem_range_attribute attribute,
                                CUdeviceptr p, size_t count)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    return get_attribute(data, size, attribute, p, count);
}

CUresult cuMemRangeGetAttributes(void **data, size_t *sizes, CUmem_range_attribute *attributes,
                                 size_t n, CUdeviceptr p, size_t count)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    CUresult result = data && sizes && attributes && n ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

    for (size_t i = 0; i < n && result == CUDA_SUCCESS; i++)
        result = get_attribute(data[i], sizes[i], attributes[i], p, count);
    return result;
}
