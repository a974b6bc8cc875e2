/* host_memory.c: pinned and registered host memory. */
#include "tests/sim/sim_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ALLOC_FLAGS \
    (CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED)
#define REGISTER_FLAGS                                                                          \
    (CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_IOMEMORY | \
     CU_MEMHOSTREGISTER_READ_ONLY)

static size_t pages(size_t bytes)
{
    return (bytes + 4095) & ~(size_t)4095;
}

static CUresult alloc(CUcontext ctx, void **ret_p, size_t bytes, unsigned flags)
{
    if (!ret_p || flags & ~(unsigned)ALLOC_FLAGS)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_capture_check(ctx, SIM_CAPTURE_UNSAFE);
    if (result != CUDA_SUCCESS)
        return result;
    if (!bytes) {
        *ret_p = NULL;
        return CUDA_SUCCESS;
    }
    void *p = mmap(NULL, pages(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct sim_block *block = sim_block_new(SIM_BLOCK_HOST, (uintptr_t)p, bytes, ctx->device, ctx);
    block->bytes = p;
    block->flags = flags | CU_MEMHOSTALLOC_DEVICEMAP;
    (void)snprintf(block->how_born, sizeof(block->how_born), "cuMemHostAlloc");
    *ret_p = p;
    return CUDA_SUCCESS;
}

CUresult cuMemAllocHost(void **p, unsigned int bytes)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    return alloc(call.ctx, p, bytes, 0);
}

CUresult cuMemAllocHost_v2(void **p, size_t bytes)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    return alloc(call.ctx, p, bytes, 0);
}

CUresult cuMemHostAlloc(void **p, size_t bytes, unsigned int flags)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    return alloc(call.ctx, p, bytes, flags);
}

void sim_host_free(struct sim_block *block, const char *how)
{
    sim_block_bury(block, how);
    sim_block_end(block, &sim_host_order);
    if (block->kind == SIM_BLOCK_HOST)
        (void)munmap(block->bytes, pages(block->size));
    block->bytes = NULL;
}

/* Freeing and unregistering wait for the context that the memory belongs to. `unknown`: the answer
 * for an address that no host memory begins at. */
static CUresult end(CUcontext ctx, void *p, enum sim_block_kind kind, CUresult unknown,
                    const char *how)
{
    CUresult result = sim_capture_check(ctx, SIM_CAPTURE_UNSAFE);

    if (result != CUDA_SUCCESS)
        return result;
    struct sim_block *block = sim_block_starting_at((uintptr_t)p);
    if (block && block->kind == SIM_BLOCK_HOST && kind != SIM_BLOCK_HOST)
        return CUDA_ERROR_INVALID_VALUE;
    if (!block || block->kind != kind)
        return unknown;
    unsigned long long id = block->id;
    for (CUcontext other = sim_contexts(); other; other = other->next)
        (void)sim_context_drain(other);
    block = sim_block_starting_at((uintptr_t)p);
    if (!block || block->id != id)
        return unknown;
    sim_host_free(block, how);
    return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void *p)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    if (!p)
        return CUDA_SUCCESS;
    return end(call.ctx, p, SIM_BLOCK_HOST, CUDA_ERROR_INVALID_VALUE, "cuMemFreeHost");
}

static CUresult enter_in_ledger(CUcontext ctx, void *p, size_t bytes, unsigned flags)
{
    if (!p || !bytes || flags & ~(unsigned)REGISTER_FLAGS)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_capture_check(ctx, SIM_CAPTURE_UNSAFE);
    if (result != CUDA_SUCCESS)
        return result;
    if (sim_arena_has((uintptr_t)p, NULL))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_block *other = sim_block_overlapping((uintptr_t)p, bytes);
    if (other)
        return other->kind == SIM_BLOCK_REGISTERED ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
                                                   : CUDA_ERROR_INVALID_VALUE;
    struct sim_block *block =
        sim_block_new(SIM_BLOCK_REGISTERED, (uintptr_t)p, bytes, ctx->device, ctx);
    block->bytes = p;
    block->flags = flags;
    if (flags & CU_MEMHOSTREGISTER_READ_ONLY)
        block->read_only_mask = ~0u;
    (void)snprintf(block->how_born, sizeof(block->how_born), "cuMemHostRegister");
    return CUDA_SUCCESS;
}

CUresult cuMemHostRegister(void *p, size_t bytes, unsigned int flags)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    return enter_in_ledger(call.ctx, p, bytes, flags);
}

CUresult cuMemHostRegister_v2(void *p, size_t bytes, unsigned int flags)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    return enter_in_ledger(call.ctx, p, bytes, flags);
}

CUresult cuMemHostUnregister(void *p)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
    return end(call.ctx, p, SIM_BLOCK_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
               "cuMemHostUnregister");
}

static const struct sim_block *host_block(const void *p)
{
    const struct sim_block *block = sim_block_at((uintptr_t)p);

    return block && (block->kind == SIM_BLOCK_HOST || block->kind == SIM_BLOCK_REGISTERED) ? block
                                                                                           : NULL;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *ret_p, void *p, unsigned int flags)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    if (!ret_p || flags || !host_block(p))
        return CUDA_ERROR_INVALID_VALUE;
    *ret_p = (uintptr_t)p;
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int *flags, void *p)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    const struct sim_block *block = host_block(p);

    if (!flags || !block || block->kind != SIM_BLOCK_HOST)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = block->flags;
    return CUDA_SUCCESS;
}
