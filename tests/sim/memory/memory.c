/* memory.c: cuMemAlloc and its kin: device memory of a context. */
#include "tests/sim/sim_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNIT        512u
#define CHUNK       ((size_t)2 << 20)
#define FREED_ASYNC "cuMemFreeAsync of cuMemAlloc memory"

/* Small allocations share chunks, as far as the card's accounting goes; large ones have their
 * own. */
static size_t small_bytes[SIM_MAX_DEVICES];
/* The same for what the driver itself needs. */
static size_t overhead_bytes[SIM_MAX_DEVICES];

static size_t chunks(size_t bytes)
{
    return (bytes + CHUNK - 1) / CHUNK * CHUNK;
}

static bool take(int device, size_t bytes)
{
    size_t more = bytes >= CHUNK
                      ? chunks(bytes)
                      : chunks(small_bytes[device] + bytes) - chunks(small_bytes[device]);

    if (!sim_card_claim(device, more))
        return false;
    if (bytes < CHUNK)
        small_bytes[device] += bytes;
    return true;
}

static void give(int device, size_t bytes)
{
    if (bytes >= CHUNK) {
        sim_card_give(device, chunks(bytes));
        return;
    }
    sim_card_give(device, chunks(small_bytes[device]) - chunks(small_bytes[device] - bytes));
    small_bytes[device] -= bytes;
}

bool sim_overhead_take(int device, size_t bytes)
{
    size_t *sum = &overhead_bytes[device];

    if (!sim_card_claim(device, chunks(*sum + bytes) - chunks(*sum)))
        return false;
    *sum += bytes;
    return true;
}

void sim_overhead_give(int device, size_t bytes)
{
    size_t *sum = &overhead_bytes[device];

    sim_card_give(device, chunks(*sum) - chunks(*sum - bytes));
    *sum -= bytes;
}

CUresult sim_native_alloc(CUcontext ctx, size_t bytes, struct sim_block **ret_block)
{
    int device = ctx->device;

    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes > sim_settings()->memory_bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    size_t taken = (bytes + UNIT - 1) / UNIT * UNIT;
    if (!take(device, taken))
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t base = sim_arena_take(device, taken, bytes >= CHUNK ? CHUNK : UNIT);
    if (!base) {
        give(device, taken);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct sim_block *block = sim_block_new(SIM_BLOCK_NATIVE, base, bytes, device, ctx);
    block->taken = taken;
    block->bytes = sim_arena_bytes(device, base);
    (void)snprintf(block->how_born, sizeof(block->how_born), "cuMemAlloc after op %llu",
                   (unsigned long long)block->born_after);
    *ret_block = block;
    return CUDA_SUCCESS;
}

void sim_native_free(struct sim_block *block, const char *how)
{
    sim_block_bury(block, how);
    sim_block_end(block, &sim_host_order);
    if (!block->exported) /* else nobody else ever gets these bytes */
        sim_arena_give(block->device, block->base, block->taken);
    give(block->device, block->taken);
}

/* What a context's end takes with it. Pool memory is not of a context and stays. */
void sim_free_context_memory(CUcontext ctx)
{
    struct sim_block *next;

    for (struct sim_block *block = sim_block_next(0); block; block = next) {
        next = sim_block_next(block->base + 1);
        if (block->ctx != ctx)
            continue;
        if (block->kind == SIM_BLOCK_NATIVE)
            sim_native_free(block, "the end of its context");
        else if (block->kind == SIM_BLOCK_MANAGED)
            sim_managed_free(block);
        else if (block->kind == SIM_BLOCK_HOST || block->kind == SIM_BLOCK_REGISTERED)
            sim_host_free(block, "the end of its context");
        else if (block->kind == SIM_BLOCK_IMPORTED && !block->pool)
            sim_import_close(block);
    }
}

CUresult cuMemAlloc_v2(CUdeviceptr *ret_p, size_t bytes)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    struct sim_block *block;

    if (!ret_p)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_capture_check(call.ctx, SIM_CAPTURE_UNSAFE);
    if (result == CUDA_SUCCESS)
        result = sim_native_alloc(call.ctx, bytes, &block);
    if (result == CUDA_SUCCESS)
        *ret_p = block->base;
    return result;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *ret_p, size_t *ret_pitch, size_t width, size_t height,
                            unsigned int element_bytes)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    struct sim_block *block;

    if (!ret_p || !ret_pitch || !width || !height)
        return CUDA_ERROR_INVALID_VALUE;
    if (element_bytes != 4 && element_bytes != 8 && element_bytes != 16)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_capture_check(call.ctx, SIM_CAPTURE_UNSAFE);
    if (result != CUDA_SUCCESS)
        return result;
    size_t pitch = (width + UNIT - 1) / UNIT * UNIT, bytes;
    if (__builtin_mul_overflow(pitch, height, &bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *ret_pitch = pitch; /* told also when there is no room for such rows */
    result = sim_native_alloc(call.ctx, bytes, &block);
    if (result != CUDA_SUCCESS)
        return result;
    *ret_p = block->base;
    return CUDA_SUCCESS;
}

/* Waiting may let another thread in, so the block is looked up again afterwards. */
static CUresult drain_and_find(struct sim_block **block, uint64_t address)
{
    unsigned long long id = (*block)->id;
    CUcontext ctx = (*block)->ctx;
    CUresult result = ctx->alive ? sim_context_drain_to_free(ctx) : CUDA_SUCCESS;

    *block = sim_block_starting_at(address);
    if (!*block || (*block)->id != id)
        return CUDA_ERROR_INVALID_VALUE;
    return result;
}

/* cuMemFreeAsync takes memory of cuMemAlloc as well (580.159), but with work pending the driver
 * may lock up later: nothing should rely on it. */
CUresult sim_native_free_async(struct sim_block *block, CUstream stream)
{
    if (stream->last && stream->last->state != SIM_OP_DONE)
        sim_violation(NULL, block->base, block->size, block,
                      "cuMemFreeAsync of cuMemAlloc memory on a stream with work pending");
    CUresult result = drain_and_find(&block, block->base);
    if (block && result == CUDA_SUCCESS)
        sim_native_free(block, FREED_ASYNC);
    return result;
}

/* The last block at this address, when it ended by sim_native_free_async. */
static struct sim_block *freed_async(CUdeviceptr p)
{
    for (struct sim_block *block = sim_zombies(); block; block = block->next_zombie)
        if (block->base == p)
            return strcmp(block->how_freed, FREED_ASYNC) ? NULL : block;
    return NULL;
}

bool sim_freed_async_again(CUdeviceptr p)
{
    struct sim_block *block = freed_async(p);

    if (block)
        block->freeable = true; /* so that cuMemFree takes it once more */
    return block != NULL;
}

static bool free_once_more(CUdeviceptr p)
{
    struct sim_block *block = freed_async(p);
    bool yes = block && block->freeable;

    if (yes)
        block->freeable = false;
    return yes;
}

CUresult cuMemFree_v2(CUdeviceptr p)
{
    SIM_ENTER(SIM_USES_CONTEXT); /* of the context that has the memory (580.159) */
    CUresult result = sim_capture_check(call.ctx, SIM_CAPTURE_UNSAFE);

    if (result != CUDA_SUCCESS)
        return result;
    if (!p)
        return CUDA_SUCCESS;
    struct sim_block *block = sim_block_starting_at(p);
    if (!block)
        return free_once_more(p) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    switch (block->kind) {
    case SIM_BLOCK_NATIVE:
        result = drain_and_find(&block, p);
        if (block && result == CUDA_SUCCESS)
            sim_native_free(block, "cuMemFree");
        return result;
    case SIM_BLOCK_MANAGED:
        result = drain_and_find(&block, p);
        if (block && result == CUDA_SUCCESS)
            sim_managed_free(block);
        return result;
    case SIM_BLOCK_POOL:
        /* No wait, as the documentation says: the caller must have waited. */
        sim_pool_free_now(block, "cuMemFree, which does not wait for pool memory");
        return CUDA_SUCCESS;
    case SIM_BLOCK_GRAPH:
        sim_block_bury(block, "cuMemFree");
        sim_block_end(block, &sim_host_order);
        sim_graph_block_gone(block);
        return CUDA_SUCCESS;
    case SIM_BLOCK_IMPORTED:
        if (!block->pool && !block->freeable)
            return CUDA_ERROR_INVALID_VALUE;
        if (block->freeable)
            result = drain_and_find(&block, p);
        if (!block)
            return result;
        sim_import_close(block);
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    if (free_bytes)
        *free_bytes = sim_card_free(call.ctx->device);
    if (total_bytes)
        *total_bytes = sim_settings()->memory_bytes;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr p)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    const struct sim_block *block = sim_block_at(p);

    if (!base && !size)
        return CUDA_SUCCESS;
    if (!block)
        return CUDA_ERROR_NOT_FOUND;
    if (base)
        *base = block->base;
    if (size)
        *size = block->size;
    return CUDA_SUCCESS;
}

size_t sim_bytes_in_use(int device)
{
    size_t total = 0;

    sim_lock();
    for (struct sim_block *block = sim_block_next(0); block;
         block = sim_block_next(block->base + 1))
        if (block->device == device &&
            (block->kind == SIM_BLOCK_NATIVE || block->kind == SIM_BLOCK_POOL))
            total += block->size;
    sim_unlock();
    return total;
}
