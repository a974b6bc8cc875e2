/* pointer.c: what the driver says about a pointer. */
#include "tests/sim/sim_internal.h"

#include <string.h>

static bool is_host(const struct sim_block *block)
{
    return block->kind == SIM_BLOCK_HOST || block->kind == SIM_BLOCK_REGISTERED ||
           (block->kind == SIM_BLOCK_MAPPED && block->device == CU_DEVICE_CPU);
}

static bool is_managed(const struct sim_block *block)
{
    return block->kind == SIM_BLOCK_MANAGED ||
           (block->kind == SIM_BLOCK_POOL && sim_pool_managed(block->pool));
}

/* Of memory of the host that is mapped it depends on whether the host was let in (R1255, R1256). */
static bool has_host_pointer(const struct sim_block *block)
{
    return block->kind == SIM_BLOCK_MAPPED ? sim_mapped_open_to_host(block)
                                           : is_host(block) || is_managed(block);
}

/* Memory of another process is of the device that opened it. No GPU but the first was asked about
 * mapped memory of the host. */
static int ordinal_of(const struct sim_block *block, CUcontext ctx)
{
    if (block->kind == SIM_BLOCK_IMPORTED && block->ctx)
        return block->ctx->device;
    if (block->kind == SIM_BLOCK_MAPPED && block->device == CU_DEVICE_CPU)
        return ctx ? ctx->device : 0;
    return block->device;
}

static unsigned mapped_access_flags(const struct sim_block *block, int device)
{
    if (device == CU_DEVICE_CPU || !(block->access_mask >> device & 1))
        return CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE;
    return block->read_only_mask >> device & 1 ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ
                                               : CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
}

static unsigned access_flags(const struct sim_block *block, CUcontext ctx)
{
    int device = ctx ? ctx->device : block->device;

    if (block->kind == SIM_BLOCK_POOL && device != block->device &&
        !sim_pool_open_to(block->pool, device))
        return CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE;
    if (block->kind == SIM_BLOCK_MAPPED)
        return mapped_access_flags(block, device);
    if (block->kind == SIM_BLOCK_REGISTERED && block->read_only_mask)
        return CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ;
    return CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
}

/* The piece of the card that the driver has mapped for the block and its neighbours. */
static void mapping_of(const struct sim_block *block, uint64_t *ret_base, size_t *ret_bytes)
{
    const uint64_t unit = (uint64_t)2 << 20;

    if (block->kind == SIM_BLOCK_POOL) {
        sim_pool_mapping(block, ret_base, ret_bytes);
        return;
    }
    *ret_base = block->base / unit * unit;
    *ret_bytes = (block->base + block->size + unit - 1) / unit * unit - *ret_base;
}

static void range_of(const struct sim_block *block, CUdeviceptr *ret_base, size_t *ret_bytes)
{
    *ret_base = block->base;
    *ret_bytes = block->size;
    if (block->kind == SIM_BLOCK_MAPPED)
        sim_reservation_of(block->base, ret_base, ret_bytes);
}

/* Facts about the allocation itself: who owns it, how it may be shared. */
static CUresult of_allocation(void *data, CUpointer_attribute attribute,
                              const struct sim_block *block)
{
    bool native = block->kind == SIM_BLOCK_NATIVE;

    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)data = block->kind == SIM_BLOCK_POOL ? NULL : block->ctx;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(unsigned long long *)data = block->id;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID: /* of what is mapped, wherever it is (R1265) */
        *(unsigned long long *)data =
            block->kind == SIM_BLOCK_MAPPED ? sim_mapped_memory_id(block) : block->id;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(int *)data = native;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        *(int *)data = native;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(unsigned long long *)data =
            block->kind == SIM_BLOCK_POOL ? sim_pool_handle_types(block->pool) : 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)data = block->pool;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: /* of managed memory 1 until it is set, and nothing waits
                                            */
        *(int *)data =
            block->sync_memops || (block->kind == SIM_BLOCK_MANAGED && !block->sync_memops_set);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        *(int *)data = native;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
        memset(data, 0, sizeof(CUDA_POINTER_ATTRIBUTE_P2P_TOKENS));
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* Facts about the address. */
static CUresult of_address(void *data, CUpointer_attribute attribute, uint64_t p,
                           const struct sim_block *block, CUcontext ctx)
{
    CUdeviceptr range;
    uint64_t base;
    size_t bytes;

    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)data = is_host(block) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)data = p;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (!has_host_pointer(block))
            return CUDA_ERROR_INVALID_VALUE;
        *(void **)data = (void *)(uintptr_t)p;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(int *)data = is_managed(block);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = ordinal_of(block, ctx);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        range_of(block, (CUdeviceptr *)data, &bytes);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        range_of(block, &range, (size_t *)data);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        mapping_of(block, (uint64_t *)data, &bytes);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        mapping_of(block, &base, (size_t *)data);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(int *)data = 1;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *(unsigned *)data = access_flags(block, ctx);
        return CUDA_SUCCESS;
    default:
        return of_allocation(data, attribute, block);
    }
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr p)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    const struct sim_block *block = sim_block_at(p);

    if (!data || !block)
        return CUDA_ERROR_INVALID_VALUE;
    return of_address(data, attribute, p, block, sim_current());
}

static size_t attribute_bytes(CUpointer_attribute attribute)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        return 4;
    default:
        return 8;
    }
}

/* Of a pointer that the driver does not know: zeros, but it takes it for one that the host has. */
static void of_nothing(void *data, CUpointer_attribute attribute, CUdeviceptr p)
{
    memset(data, 0, attribute_bytes(attribute));
    if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
        *(int *)data = -2;
    else if (attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER)
        *(CUdeviceptr *)data = p;
}

/* Never fails for a pointer it does not know. */
CUresult cuPointerGetAttributes(unsigned int n, CUpointer_attribute *attributes, void **data,
                                CUdeviceptr p)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    const struct sim_block *block = sim_block_at(p);

    if (!n || !attributes || !data)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < n; i++) {
        if (!data[i])
            return CUDA_ERROR_INVALID_VALUE;
        if (block && of_address(data[i], attributes[i], p, block, sim_current()) == CUDA_SUCCESS)
            continue;
        if (block)
            memset(data[i], 0, attribute_bytes(attributes[i]));
        else
            of_nothing(data[i], attributes[i], p);
    }
    return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr p)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    struct sim_block *block = sim_block_at(p);

    if (!value || !block || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
        return CUDA_ERROR_INVALID_VALUE;
    if (block->kind == SIM_BLOCK_MAPPED)
        return CUDA_ERROR_NOT_SUPPORTED;
    block->sync_memops = *(const int *)value != 0;
    block->sync_memops_set = 1;
    return CUDA_SUCCESS;
}
