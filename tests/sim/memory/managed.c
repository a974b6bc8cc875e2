/* managed.c: calls about managed memory: one address for host and devices; advice, prefetch. */
#include "tests/sim/sim_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

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
    block->extra = sim_residency_new(block->base, bytes);
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
    sim_residency_delete(block->extra);
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

#define NUMA_NODES 2

static bool location_ok(CUmemLocation location)
{
    int concurrent = 1;

    (void)sim_settings_attribute(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, &concurrent);
    switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return sim_device_ok(location.id) && concurrent;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        return location.id >= 0 && location.id < NUMA_NODES;
    case CU_MEM_LOCATION_TYPE_HOST:
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

static void advise_page(struct sim_page *page, CUmem_advise what, CUmemLocation location)
{
    bool host = location.type != CU_MEM_LOCATION_TYPE_DEVICE;

    switch (what) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        page->read_mostly = what == CU_MEM_ADVISE_SET_READ_MOSTLY;
        return;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        page->preferred = location;
        return;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        page->preferred = (CUmemLocation){0};
        return;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
        page->accessed_by |= (uint16_t)(host ? 0 : 1u << location.id);
        page->accessed_by_host |= host;
        return;
    default:
        page->accessed_by &= (uint16_t)(host ? ~0u : ~(1u << location.id));
        page->accessed_by_host &= !host;
    }
}

/* May advice of this kind name the location? Some kinds do not look at it. */
static CUresult check_advice(CUmem_advise what, CUmemLocation location)
{
    switch (what) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        return CUDA_SUCCESS;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
        if (location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
            location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT)
            return CUDA_ERROR_INVALID_VALUE;
        break;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    return location_ok(location) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult advise(CUdeviceptr p, size_t count, CUmem_advise what, CUmemLocation location)
{
    struct sim_block *block;
    CUresult result = find(p, count, &block);
    size_t n;

    if (result == CUDA_SUCCESS && block->kind == SIM_BLOCK_POOL)
        result = CUDA_ERROR_NOT_SUPPORTED;
    if (result == CUDA_SUCCESS)
        result = check_advice(what, location);
    if (result != CUDA_SUCCESS)
        return result;
    struct sim_page *page = sim_residency_pages(block->extra, p, count, &n);
    for (size_t i = 0; i < n; i++)
        advise_page(&page[i], what, location);
    return CUDA_SUCCESS;
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
    size_t n;
    struct sim_page *page = sim_residency_pages(sim_residency_of(block), p, count, &n);
    for (size_t i = 0; i < n; i++)
        page[i].prefetched = location;
    struct sim_work work = {.kind = SIM_WORK_PREFETCH, .u.prefetch = {p, count, location}};
    return sim_submit(stream, &work, NULL);
}

/* Migrating is a use of the memory: a free must be ordered behind it as behind any other. */
void sim_run_prefetch(struct sim_op *op)
{
    const struct sim_prefetch *ask = &op->work.u.prefetch;
    bool ok = sim_check(op, ask->address, ask->bytes, false, false) != NULL;
    struct sim_block *block = ok ? sim_block_at(ask->address) : NULL;
    struct sim_residency *residency = block ? sim_residency_of(block) : NULL;

    if (residency) /* not freed since, as the host sees it */
        sim_residency_move(residency, ask->address, ask->bytes, ask->location);
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

/* What all pages have in common; locations that differ are none. */
static struct sim_page in_common(const struct sim_page *page, size_t n)
{
    struct sim_page all = page[0];

    for (size_t i = 1; i < n; i++) {
        all.read_mostly &= page[i].read_mostly;
        all.accessed_by &= page[i].accessed_by;
        all.accessed_by_host &= page[i].accessed_by_host;
        if (memcmp(&all.preferred, &page[i].preferred, sizeof(all.preferred)) != 0)
            all.preferred = (CUmemLocation){0};
        if (memcmp(&all.prefetched, &page[i].prefetched, sizeof(all.prefetched)) != 0)
            all.prefetched = (CUmemLocation){0};
    }
    return all;
}

static void list_accessed_by(const struct sim_page *page, int *list, size_t n)
{
    size_t at = 0;

    if (page->accessed_by_host && at < n)
        list[at++] = CU_DEVICE_CPU;
    for (int device = 0; device < SIM_MAX_DEVICES && at < n; device++)
        if (page->accessed_by >> device & 1)
            list[at++] = device;
    while (at < n)
        list[at++] = CU_DEVICE_INVALID;
}

static CUresult get_attribute(void *data, size_t size, CUmem_range_attribute attribute,
                              CUdeviceptr p, size_t count)
{
    struct sim_block *block;
    CUresult result = find(p, count, &block);
    bool list = attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY;
    int *value = data;
    size_t n;

    if (result != CUDA_SUCCESS)
        return result;
    if (!data || !size || (list ? size % sizeof(int) : size != sizeof(int)))
        return CUDA_ERROR_INVALID_VALUE;
    const struct sim_page *pages = sim_residency_pages(sim_residency_of(block), p, count, &n);
    struct sim_page page = in_common(pages, n);
    switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
        *value = page.read_mostly;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
        *value = as_device(page.preferred);
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
        *value = as_device(page.prefetched);
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
        list_accessed_by(&page, value, size / sizeof(int));
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
        *value = (int)page.preferred.type;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
        *value = page.preferred.id;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
        *value = (int)page.prefetched.type;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
        *value = page.prefetched.id;
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
