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

#define PAGE 4096u
#define UNIT 512u
#define JUNK 0xdb

static size_t pages(size_t bytes)
{
    return (bytes + PAGE - 1) & ~(size_t)(PAGE - 1);
}

/* Where small blocks begin in their page: each at the next place (R1146). */
static size_t place_of(size_t bytes)
{
    static unsigned n;

    return bytes > UNIT ? 0 : n++ % (PAGE / UNIT) * UNIT;
}

/* Nobody clears it (R1147). */
static void litter(unsigned char *p, size_t bytes)
{
    const size_t edge = SIM_MIN(bytes, PAGE);

    memset(p, JUNK, edge);
    memset(p + bytes - edge, JUNK, edge);
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
    unsigned char *p = /* forked children share it (R1194) */
        mmap(NULL, pages(bytes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    p += place_of(bytes);
    litter(p, bytes);
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
        (void)munmap(block->bytes - block->base % PAGE, pages(block->size));
    block->bytes = NULL;
}

/* Freeing and unregistering wait for the context that the memory belongs to, and for no other
 * (R1160 to R1162). `unknown`: the answer for an address of no memory. */
static CUresult end(CUcontext ctx, void *p, enum sim_block_kind kind, CUresult unknown,
                    const char *how)
{
    CUresult result = sim_capture_check(ctx, SIM_CAPTURE_UNSAFE);

    if (result != CUDA_SUCCESS)
        return result;
    struct sim_block *block = sim_block_at((uintptr_t)p);
    if (!block)
        return unknown;
    if (block->base != (uintptr_t)p || block->kind != kind)
        return CUDA_ERROR_INVALID_VALUE;
    unsigned long long id = block->id;
    (void)sim_context_drain(block->ctx);
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

    return block && (block->kind == SIM_BLOCK_HOST || block->kind == SIM_BLOCK_REGISTERED ||
                     (block->kind == SIM_BLOCK_MAPPED && sim_mapped_open_to_host(block)))
               ? block
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

    if (!flags || !block)
        return CUDA_ERROR_INVALID_VALUE;
    /* Whatever it was asked for with: also that it is everybody's is not told (R1103 to R1107). */
    *flags = CU_MEMHOSTALLOC_DEVICEMAP;
    if (block->kind == SIM_BLOCK_HOST)
        *flags |= block->flags & CU_MEMHOSTALLOC_WRITECOMBINED;
    return CUDA_SUCCESS;
}
