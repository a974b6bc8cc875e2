/* Blocks of the driver's virtual memory: see paged.h. */
#include "policy/guard/paged.h"

#include "interpose/core/base/arena.h"
#include "interpose/core/base/map.h"
#include "interpose/core/driver/driver.h"
#include "policy/contexts/context.h"
#include "policy/paging/vmm.h"

#define OLD_RANGES 4096u /* addresses of freed blocks that stay taken */

struct range {
    CUdeviceptr address; /* the program's */
    CUdeviceptr base;    /* of the pages */
    size_t mapped, reserved;
    CUmemGenericAllocationHandle memory;
};

static struct {
    struct ag_lock lock;  /* guards all below; no driver call under it */
    struct ag_map ranges; /* by address, and by base */
    struct range old[OLD_RANGES];
    uint64_t n_old; /* ever */
} self = {.lock = AG_LOCK_INIT(AG_RANK_PAGED)};

static struct ag_arena arena = AG_ARENA_INIT(struct range);

/* Opens the pages to their device, and to those that could enable peer access to it, as cudaMalloc
 * natively needs nothing more for that. */
static CUresult open_pages(const struct ag_device *device, const struct range *range)
{
    CUresult result = ag_vmm_open(device, range->base, range->mapped);

    if (result == CUDA_SUCCESS)
        (void)ag_vmm_open_to_peers(device, range->base, range->mapped);
    return result;
}

/* Puts memory under the reserved addresses; what it took is given back on failure. */
static CUresult map_pages(const struct ag_device *device, struct range *range)
{
    CUmemAllocationProp properties = ag_vmm_on_device(device);
    CUresult result = ag_cu.cuMemCreate(&range->memory, range->mapped, &properties, 0);

    if (result != CUDA_SUCCESS)
        return result;
    result = ag_cu.cuMemMap(range->base, range->mapped, 0, range->memory, 0);
    if (result == CUDA_SUCCESS) {
        result = open_pages(device, range);
        if (result == CUDA_SUCCESS)
            return CUDA_SUCCESS;
        (void)ag_cu.cuMemUnmap(range->base, range->mapped);
    }
    (void)ag_cu.cuMemRelease(range->memory);
    return result;
}

static void unmap_pages(const struct range *range)
{
    (void)ag_cu.cuMemUnmap(range->base, range->mapped);
    (void)ag_cu.cuMemRelease(range->memory);
}

/* Enters the range under both its addresses, or under none. */
static bool enter_range(struct range *range)
{
    bool entered;

    ag_lock_take(&self.lock);
    entered = ag_map_put(&self.ranges, range->address, range);
    if (entered && !ag_map_put(&self.ranges, range->base, range)) {
        (void)ag_map_take(&self.ranges, range->address);
        entered = false;
    }
    ag_lock_release(&self.lock);
    return entered;
}

/* The addresses of a block of `bytes`, and of as much again as a page after it. */
static CUresult reserve_addresses(const struct ag_device *device, size_t bytes,
                                  struct range *ret_range)
{
    CUmemAllocationProp properties = ag_vmm_on_device(device);
    size_t page = 0, aligned, end;
    CUresult result =
        ag_cu.cuMemGetAllocationGranularity(&page, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);

    if (result != CUDA_SUCCESS || !page)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (__builtin_add_overflow(bytes, 2 * page, &end))
        return CUDA_ERROR_OUT_OF_MEMORY;
    aligned = (bytes + AG_PAGED_ALIGN - 1) & ~(size_t)(AG_PAGED_ALIGN - 1);
    ret_range->mapped = (aligned + page - 1) / page * page;
    ret_range->reserved = ret_range->mapped + page;
    result = ag_cu.cuMemAddressReserve(&ret_range->base, ret_range->reserved, 0, 0, 0);
    ret_range->address = ret_range->base + ret_range->mapped - aligned;
    return result;
}

CUresult ag_paged_allocate(struct ag_context *context, size_t bytes, CUdeviceptr *ret_address)
{
    struct range *range = ag_vmm_has_functions() ? ag_arena_get(&arena) : NULL;
    CUresult result = ag_context_init_resources(context);

    if (!range)
        return CUDA_ERROR_NOT_SUPPORTED;
    /* The driver asks nothing about the context for pages, but for other memory it does. */
    if (result == CUDA_SUCCESS)
        result = ag_context_sticky_error(context);
    if (result == CUDA_SUCCESS)
        result = reserve_addresses(context->device, bytes, range);
    if (result != CUDA_SUCCESS)
        goto out;
    result = map_pages(context->device, range);
    if (result == CUDA_SUCCESS && !enter_range(range)) {
        unmap_pages(range);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS) {
        *ret_address = range->address;
        return CUDA_SUCCESS;
    }
    (void)ag_cu.cuMemAddressFree(range->base, range->reserved);
out:
    ag_arena_put(&arena, range);
    return result;
}

/* Keeps the addresses of a freed block taken, in the place of those of an older one, which
 * *ret_oldest is then. */
static bool keep_addresses(const struct range *range, struct range *ret_oldest)
{
    struct range *place;

    ag_lock_take(&self.lock);
    place = &self.old[self.n_old++ % OLD_RANGES];
    *ret_oldest = *place;
    *place = *range;
    ag_lock_release(&self.lock);
    return ret_oldest->reserved != 0;
}

CUresult ag_paged_free(CUdeviceptr address)
{
    struct range *range, freed, oldest;

    ag_lock_take(&self.lock);
    range = ag_map_take(&self.ranges, address);
    if (range)
        (void)ag_map_take(&self.ranges, range->base);
    ag_lock_release(&self.lock);
    if (!range)
        return CUDA_ERROR_INVALID_VALUE;
    freed = *range;
    ag_arena_put(&arena, range);
    unmap_pages(&freed);
    if (keep_addresses(&freed, &oldest))
        (void)ag_cu.cuMemAddressFree(oldest.base, oldest.reserved);
    return CUDA_SUCCESS;
}

CUdeviceptr ag_paged_address(CUdeviceptr base)
{
    const struct range *range;
    CUdeviceptr address = base;

    ag_lock_take(&self.lock);
    range = ag_map_get(&self.ranges, base);
    if (range)
        address = range->address;
    ag_lock_release(&self.lock);
    return address;
}

struct ag_guard_edges ag_paged_edges(CUdeviceptr address, size_t bytes)
{
    struct ag_guard_edges edges = {0, 0};
    const struct range *range;

    ag_lock_take(&self.lock);
    range = ag_map_get(&self.ranges, address);
    if (range) {
        edges.before = range->address > range->base ? AG_GUARD_EDGE : 0;
        edges.behind = (unsigned)(range->base + range->mapped - (address + bytes));
    }
    ag_lock_release(&self.lock);
    return edges;
}

void ag_paged_begin_child(void)
{
    ag_lock_init(&self.lock, AG_RANK_PAGED);
    ag_arena_begin_child(&arena);
    ag_map_finish(&self.ranges);
    self.n_old = 0;
    for (unsigned i = 0; i < OLD_RANGES; i++)
        self.old[i].reserved = 0;
}
