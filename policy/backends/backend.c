/* Choosing the source of a block by its memory descriptor, and releasing it there: see
 * backend.h. */
#include "policy/backends/backend.h"

#include "interpose/core/driver/driver.h"
#include "policy/backends/managed_pool.h"
#include "policy/budget.h"
#include "policy/guard/paged.h"
#include "policy/order/capture.h"
#include "policy/order/fence.h"
#include "policy/order/private_stream.h"
#include "policy/paging/ranges.h"

static CUresult allocate_managed_pool(struct ag_context *context, size_t bytes,
                                      struct ag_mem_desc desc, CUdeviceptr *ret_address,
                                      size_t *ret_size)
{
    CUmemoryPool pool;
    CUresult result;

    if (!ag_managed_fits(context, bytes, desc))
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = ag_managed_pool(context->device, &pool);
    return result == CUDA_SUCCESS ? ag_pool_allocate(context, pool, bytes, ret_address, ret_size)
                                  : result;
}

static CUresult allocate_paged(struct ag_context *context, size_t bytes, CUdeviceptr *ret_address,
                               size_t *ret_size)
{
    CUresult result = ag_paged_allocate(context, bytes, ret_address);

    if (result == CUDA_SUCCESS)
        *ret_size = bytes;
    return result;
}

CUresult ag_backend_allocate(struct ag_context *context, size_t bytes, struct ag_mem_desc desc,
                             CUdeviceptr *ret_address, size_t *ret_size)
{
    CUdeviceptr address;
    CUresult result;

    switch ((enum ag_source)desc.source) {
    case AG_SOURCE_POOL:
        return ag_pool_allocate(context, context->device->pool, bytes, ret_address, ret_size);
    case AG_SOURCE_PLAIN:
        return ag_managed_allocate(context, bytes, desc, ret_address, ret_size);
    case AG_SOURCE_MANAGED_POOL:
        return allocate_managed_pool(context, bytes, desc, ret_address, ret_size);
    case AG_SOURCE_PAGED:
        return allocate_paged(context, bytes, ret_address, ret_size);
    case AG_SOURCE_MOVABLE:
        *ret_size = bytes;
        return ag_range_allocate(context, bytes, desc.spilled, ret_address);
    case AG_SOURCE_NATIVE:
    case AG_SOURCE_CACHED:
        break;
    }
    result = ag_cu.cuMemAlloc_v2(&address, bytes);
    if (result != CUDA_SUCCESS)
        return result;
    *ret_address = address;
    *ret_size = bytes;
    return CUDA_SUCCESS;
}

/* --- back --- */

/* Frees once all work that may use the memory is done, where the driver will not free it in stream
 * order. */
static void free_after_wait(struct ag_context *context, CUdeviceptr address)
{
    (void)ag_private_stream_wait(context, UINT64_MAX);
    (void)ag_cu.cuMemFree_v2(address);
}

/* What no pool holds goes by the driver's own free, which waits for the device. */
static void free_waiting(CUdeviceptr address)
{
    CUstreamCaptureMode previous = ag_capture_relax();

    (void)ag_cu.cuMemFree_v2(address);
    ag_capture_restore(previous);
}

/* Does the driver know it as an allocation of its own, that cuMemFree frees and waits for; or is it
 * freed as those are? */
static bool is_single(const struct ag_block *block)
{
    return block->desc.source != AG_SOURCE_POOL && block->desc.source != AG_SOURCE_MANAGED_POOL;
}

bool ag_backend_waits_for(const struct ag_block *blocks)
{
    for (; blocks; blocks = blocks->next) {
        if (!ag_block_slab(blocks) && is_single(blocks))
            return true;
    }
    return false;
}

static void release_one(struct ag_context *context, struct ag_block *block, CUstream stream)
{
    CUdeviceptr address = block->address;
    enum ag_source source = (enum ag_source)block->desc.source;
    bool on_device = ag_mem_desc_is_on_device(block->desc), single = is_single(block);
    size_t size = block->size;

    ag_budget_forget(block);
    if (source == AG_SOURCE_PLAIN && on_device)
        ag_managed_freed(context->device, size);
    if (source == AG_SOURCE_MOVABLE)
        (void)ag_range_free(address); /* at once: its users were waited for */
    else if (single)
        free_waiting(address);
    else if (ag_cu.cuMemFreeAsync(address, stream) == CUDA_SUCCESS)
        ag_level_add(&ag_stats.pending_bytes, size); /* its users may be at work */
    else
        free_after_wait(context, address);
    ag_stats_add(AG_STAT_CACHE_RETURNED, 1);
}

static bool any_single(const struct ag_block *blocks)
{
    while (blocks && !is_single(blocks))
        blocks = blocks->next;
    return blocks;
}

/* Takes single allocations out of the list. */
static struct ag_block *take_singles(struct ag_block **blocks)
{
    struct ag_block *singles = NULL, **link = blocks;

    while (*link) {
        struct ag_block *block = *link;

        if (!is_single(block)) {
            link = &block->next;
            continue;
        }
        *link = block->next;
        block->next = singles;
        singles = block;
    }
    return singles;
}

static struct ag_block *joined(struct ag_block *first, struct ag_block *second)
{
    struct ag_block **end = &first;

    while (*end)
        end = &(*end)->next;
    *end = second;
    return first;
}

/* Takes out of the list what must stay, since the driver's wait for it would be too long. In a
 * capture nothing tells how long that is. */
static struct ag_block *hold_back(struct ag_context *context, struct ag_block **blocks,
                                  uint64_t timeout_ns)
{
    bool unbounded = timeout_ns == UINT64_MAX || ag_capture_is_open();
    struct ag_block *singles = unbounded ? NULL : take_singles(blocks);

    if (!singles || !ag_fence_wait_idle(context, timeout_ns))
        return singles;
    *blocks = joined(singles, *blocks);
    return NULL;
}

/* The slab that it was the last piece of, or NULL. Out of the ledger first: who cuts the slab may
 * get the same address at once. */
static struct ag_block *return_piece(struct ag_block *piece)
{
    struct ag_slab *slab = ag_block_slab(piece);
    CUdeviceptr address = piece->address;
    size_t size = piece->size;

    ag_ledger_remove(piece);
    return ag_slab_return(slab, address, size);
}

struct ag_block *ag_backend_return_pieces(struct ag_block *blocks)
{
    struct ag_block *rest = NULL;

    while (blocks) {
        struct ag_block *block = blocks;

        blocks = block->next;
        if (ag_block_slab(block))
            block = return_piece(block);
        if (!block)
            continue;
        block->next = rest;
        rest = block;
    }
    return rest;
}

struct ag_block *ag_backend_release(struct ag_context *context, struct ag_block *blocks,
                                    uint64_t timeout_ns)
{
    struct ag_block *held;
    struct ag_release to;

    blocks = ag_backend_return_pieces(blocks);
    held = hold_back(context, &blocks, timeout_ns);
    if (!blocks || !ag_private_stream_begin_release(context, any_single(blocks), timeout_ns, &to))
        return joined(held, blocks);
    while (blocks) {
        struct ag_block *block = blocks;

        blocks = block->next;
        release_one(context, block, to.stream);
    }
    ag_private_stream_end_release(&to);
    return held;
}
