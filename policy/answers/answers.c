/* Questions about memory: see answers.h.
 *
 * Every attribute of CUpointer_attribute was compared on pool and native memory of the same size.
 * Those that differ, and what the program gets:
 *   CONTEXT                     pool: none      the context that allocated it, as natively
 *   MEMPOOL_HANDLE              pool: our pool  none, as natively
 *   RANGE_SIZE                  the block's     what the program asked for
 *   ALLOWED_HANDLE_TYPES        pool: file      none, as natively: our pool is not the program's
 *   IS_LEGACY_CUDA_IPC_CAPABLE  pool: 0         1 as natively, since we give a handle (ipc.h); 0
 *                                               where the device's pools cannot be handed over
 *   DEVICE_ORDINAL              where it lies   of another process' memory the opener's, as
 *                                               natively
 *   IS_GPU_DIRECT_RDMA_CAPABLE  pool: 0         the truth
 *   IS_HW_DECOMPRESS_CAPABLE    pool: 0         the truth
 *   BUFFER_ID                   the block's     one of ours for each allocation, as natively
 *   RANGE_START_ADDR            the slab's      of a piece its own; of a guarded block where the
 *                                               program's bytes begin
 *   SYNC_MEMOPS                 the slab's      of a piece what was set for it
 *   MAPPING_SIZE, MAPPING_BASE_ADDR, MEMORY_BLOCK_ID   the driver's: they only name
 * Of memory that can move, and lies on the host now, the driver says so; the program is told what
 * it would be on the device: MEMORY_TYPE, DEVICE_ORDINAL, and that it has no HOST_POINTER. Of that
 * which it asked a pool for, it is told no CONTEXT and that MEMPOOL_HANDLE.
 * The others agree. An address after the requested size, or in a block that was freed, is unknown,
 * as natively. */
#include "policy/answers/answers.h"

#include <string.h>

#include "interpose/core/driver/driver.h"
#include "policy/answers/lookup.h"
#include "policy/app/app_async.h"
#include "policy/app/app_pools.h"
#include "policy/backends/backend.h"
#include "policy/backends/managed_pool.h"
#include "policy/budget.h"
#include "policy/churn.h"
#include "policy/contexts/context.h"
#include "policy/contexts/enter.h"
#include "policy/guard/guard.h"
#include "policy/ipc/ipc.h"
#include "policy/ledger.h"
#include "policy/paging/handles.h"
#include "policy/paging/latch.h"
#include "policy/paging/ranges.h"
#include "policy/pinned/pinned_answers.h"
#include "policy/pressure.h"
#include "policy/slab.h"

/* Answers with what a card of the size that ALLOGRAFT_LIMIT says would have. */
static void answer_by_budget(struct ag_device *device, size_t *free_bytes, size_t *total)
{
    uint64_t left = ag_budget_left_now(device);

    if (*free_bytes > left)
        *free_bytes = left;
    if (total && *total > device->limit)
        *total = device->limit;
}

CUresult ag_answer_mem_info(size_t *ret_free, size_t *ret_total)
{
    struct ag_context *context = ag_context_current();
    uint64_t ours;
    size_t total = 0;
    CUresult result;

    ag_pressure_wait_for_frees();
    if (context)
        (void)ag_pressure_wait_for_others(context->device);
    result = ag_cu.cuMemGetInfo_v2(ret_free, ret_total);
    if (result != CUDA_SUCCESS || !ret_free || !context)
        return result;
    total = ret_total ? *ret_total : context->device->total_bytes;
    /* What guards keep is a count, relaxed. */
    ours = ag_pool_idle(context->device) + ag_managed_pool_idle(context->device) +
           ag_device_cached_room(context->device) + ag_app_pools_held(context->device) +
           ag_managed_kept(context->device) + ag_handles_kept(context->device) +
           atomic_load_explicit(&context->device->guard_kept, memory_order_relaxed);
    *ret_free = ours > total - *ret_free ? total : *ret_free + ours;
    answer_by_budget(context->device, ret_free, ret_total);
    return result;
}

static bool has_context(void)
{
    CUcontext current = NULL;

    return ag_cu.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current;
}

static CUresult pinned_range(CUdeviceptr *ret_base, size_t *ret_size, CUdeviceptr address,
                             const struct ag_pinned_seen *pinned)
{
    CUresult result = ag_cu.cuMemGetAddressRange_v2(ret_base, ret_size,
                                                    ag_pinned_answers_allocated(address, pinned));

    if (result == CUDA_SUCCESS && ret_base)
        *ret_base = pinned->address;
    if (result == CUDA_SUCCESS && ret_size)
        *ret_size = pinned->requested;
    return result;
}

CUresult ag_answer_address_range(CUdeviceptr *ret_base, size_t *ret_size, CUdeviceptr address)
{
    struct ag_block_seen block;
    struct ag_pinned_seen pinned;
    enum ag_found found;

    if (ag_pinned_answers_find(address, &pinned))
        return pinned_range(ret_base, ret_size, address, &pinned);
    found = ret_base || ret_size ? ag_lookup(address, &block) : AG_FOUND_NOTHING;

    /* Without a current context the driver refuses it, whatever the address is (580.159). */
    if (found == AG_FOUND_NOTHING || !has_context())
        return ag_cu.cuMemGetAddressRange_v2(ret_base, ret_size, address);
    if (found == AG_FOUND_FREED)
        return CUDA_ERROR_NOT_FOUND;
    if (ret_base)
        *ret_base = block.address;
    if (ret_size)
        *ret_size = block.requested;
    return CUDA_SUCCESS;
}

/* What is of the block, and not of its slab. Device memory has it off until it is set, managed
 * memory on (R308 and R309 in tests/sim/RULES.md). Where a piece's was not set, it is what the
 * driver said of the slab before anybody set that. */
static void correct_sync(void *data, const struct ag_block_seen *block)
{
    int sync = block->sync_memops;

    if (sync == AG_SYNC_NOT_SET && ag_mem_desc_is_managed(block->desc))
        sync = AG_SYNC_OFF;
    else if (sync == AG_SYNC_NOT_SET && block->slab)
        sync = ag_slab_sync(block->slab);
    if (sync != AG_SYNC_NOT_SET)
        *(unsigned char *)data = sync == AG_SYNC_ON; /* a truth value of the driver's width */
}

/* Is it, to the program, memory of a pool? */
static bool is_of_pool(const struct ag_block_seen *block, CUmemoryPool *ret_pool)
{
    *ret_pool = NULL;
    if (block->desc.source != AG_SOURCE_MOVABLE || !ag_range_pool(block->address, ret_pool))
        return false;
    return *ret_pool || ag_cu.cuDeviceGetDefaultMemPool(
                            ret_pool, block->context->device->ordinal) == CUDA_SUCCESS;
}

/* Replaces the driver's answer in *data where natively it would be another. */
static void correct(void *data, CUpointer_attribute attribute, const struct ag_block_seen *block)
{
    const unsigned long long none = 0;
    CUmemoryPool pool;
    CUcontext handle;

    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        handle = is_of_pool(block, &pool) ? NULL : block->context->handle;
        memcpy(data, &handle, sizeof(CUcontext));
        break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        (void)is_of_pool(block, &pool);
        memcpy(data, &pool, sizeof(CUmemoryPool));
        break;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        memcpy(data, &none, sizeof(unsigned long long));
        break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: /* a truth value of the driver's width */
        if (block->state == AG_BLOCK_LIVE && block->desc.source == AG_SOURCE_POOL &&
            block->context->device->pool_is_shareable)
            *(unsigned char *)data = 1;
        if (block->guarded && ag_guard_shifts())
            *(unsigned char *)data = 0;
        break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        if (block->desc.source == AG_SOURCE_MOVABLE)
            memcpy(data, &(unsigned){CU_MEMORYTYPE_DEVICE}, sizeof(unsigned));
        break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (block->desc.source == AG_SOURCE_MOVABLE)
            memcpy(data, &none, sizeof(void *));
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        if (block->state == AG_BLOCK_FOREIGN || block->desc.source == AG_SOURCE_MOVABLE)
            memcpy(data, &block->context->device->ordinal, sizeof(int));
        break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: {
        unsigned long long id = ag_ledger_buffer_id(block->address);

        if (id)
            memcpy(data, &id, sizeof(id));
        break;
    }
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        memcpy(data, &block->address, sizeof(block->address));
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: {
        size_t requested = block->requested;

        memcpy(data, &requested, sizeof(requested));
        break;
    }
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        correct_sync(data, block);
        break;
    default:
        break;
    }
}

/* Corrects an answer about memory that may not be a block of ours: then it can still be what a rule
 * redirected of the program's own stream-ordered allocations. */
static void correct_found(void *data, CUpointer_attribute attribute, enum ag_found found,
                          const struct ag_block_seen *block)
{
    if (found == AG_FOUND_BLOCK)
        correct(data, attribute, block);
    else if (attribute == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE)
        ag_app_answer_pool(data);
}

static CUresult pinned_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr address,
                                 const struct ag_pinned_seen *pinned)
{
    CUresult result = ag_cu.cuPointerGetAttribute(
        data, attribute, ag_pinned_answers_asked(address, attribute, pinned));

    if (result == CUDA_SUCCESS)
        ag_pinned_answers_correct(data, attribute, pinned);
    return result;
}

static CUresult pinned_attributes(unsigned count, CUpointer_attribute *attributes, void **data,
                                  CUdeviceptr address, const struct ag_pinned_seen *pinned)
{
    CUdeviceptr known = ag_pinned_answers_known(address, pinned);
    CUresult result = ag_cu.cuPointerGetAttributes(count, attributes, data, known);

    for (unsigned i = 0; result == CUDA_SUCCESS && i < count; i++) {
        CUdeviceptr asked = ag_pinned_answers_asked(address, attributes[i], pinned);

        if (asked != known)
            (void)ag_cu.cuPointerGetAttribute(data[i], attributes[i], asked);
        if (known == address)
            ag_pinned_answers_correct(data[i], attributes[i], pinned);
        else
            ag_lookup_correct_unknown(data[i], attributes[i], known, address);
    }
    return result;
}

/* The driver knows nothing of a piece that is being mapped to other memory: before it is asked
 * about what can move, nothing does any more, until ag_latch_leave(). False: that is not due. */
static bool keep_in_place(CUdeviceptr address)
{
    bool may_move = ag_range_may_hold(address);

    if (may_move)
        ag_latch_enter();
    return may_move;
}

CUresult ag_answer_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
    struct ag_block_seen block;
    struct ag_pinned_seen pinned;
    enum ag_found found;
    CUresult result;
    bool is_kept;

    if (ag_pinned_answers_find(address, &pinned))
        return pinned_attribute(data, attribute, address, &pinned);
    found = ag_lookup_quickly(address, &block);
    if (found == AG_FOUND_FREED)
        return CUDA_ERROR_INVALID_VALUE;
    if (found == AG_FOUND_BLOCK && block.desc.source == AG_SOURCE_MOVABLE &&
        attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER)
        return CUDA_ERROR_INVALID_VALUE;
    is_kept = keep_in_place(address);
    result = ag_cu.cuPointerGetAttribute(data, attribute, address);
    if (is_kept)
        ag_latch_leave();
    if (result == CUDA_SUCCESS)
        correct_found(data, attribute, found, &block);
    return result;
}

CUresult ag_answer_attributes(unsigned count, CUpointer_attribute *attributes, void **data,
                              CUdeviceptr address)
{
    struct ag_block_seen block;
    struct ag_pinned_seen pinned;
    CUdeviceptr asked = address;
    enum ag_found found;
    CUresult result;
    bool is_kept;

    if (ag_pinned_answers_find(address, &pinned))
        return pinned_attributes(count, attributes, data, address, &pinned);
    found = ag_lookup_quickly(address, &block);
    if (found == AG_FOUND_FREED)
        asked = AG_LOOKUP_UNKNOWN;
    is_kept = keep_in_place(asked);
    result = ag_cu.cuPointerGetAttributes(count, attributes, data, asked);
    if (is_kept)
        ag_latch_leave();

    for (unsigned i = 0; result == CUDA_SUCCESS && i < count; i++) {
        if (found == AG_FOUND_FREED)
            ag_lookup_correct_unknown(data[i], attributes[i], asked, address);
        correct_found(data[i], attributes[i], found, &block);
    }
    return result;
}

/* The driver keeps none of memory that can move (CUDA_ERROR_NOT_SUPPORTED): there what copies and
 * fills makes them wait, by what the ledger says of the whole block. */
static CUresult set_by_ledger(CUresult result, const struct ag_block_seen *block,
                              CUdeviceptr address, unsigned wanted)
{
    if (result == CUDA_ERROR_NOT_SUPPORTED && block->desc.source == AG_SOURCE_MOVABLE)
        result = CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        (void)ag_ledger_note_sync(address, wanted ? AG_SYNC_ON : AG_SYNC_OFF);
    return result;
}

static CUresult set_in_place(const void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
    bool is_kept = keep_in_place(address);
    CUresult result = ag_cu.cuPointerSetAttribute(value, attribute, address);

    if (is_kept)
        ag_latch_leave();
    return result;
}

/* There is one SYNC_MEMOPS for the whole slab: that is on as soon as one piece's is. So the copies
 * and fills of others wait as well; they are never made to wait less. */
static CUresult set_of_piece(const void *value, const struct ag_block_seen *piece)
{
    CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
    CUdeviceptr slab = ag_slab_whole(piece->slab)->address;
    unsigned was = 0, wanted;
    CUresult result;

    memcpy(&wanted, value, sizeof(wanted));
    if (ag_slab_sync(piece->slab) == AG_SYNC_NOT_SET &&
        ag_cu.cuPointerGetAttribute(&was, attribute, slab) == CUDA_SUCCESS)
        ag_slab_note_sync(piece->slab, was & 1 ? AG_SYNC_ON : AG_SYNC_OFF);
    ag_lookup_close_slab(piece);
    result = wanted ? set_in_place(value, attribute, slab) : CUDA_SUCCESS;
    if (wanted && piece->desc.source == AG_SOURCE_MOVABLE)
        (void)set_by_ledger(result, piece, slab, wanted);
    return set_by_ledger(result, piece, piece->address, wanted);
}

/* The driver keeps it with the memory, which so must not be anybody else's. */
static CUresult set_of_block(const void *value, CUdeviceptr address,
                             const struct ag_block_seen *block)
{
    CUresult result = ag_cu.cuPointerSetAttribute(value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address);
    unsigned wanted;

    memcpy(&wanted, value, sizeof(wanted));
    return set_by_ledger(result, block, block->address, wanted);
}

CUresult ag_answer_set_attribute(const void *value, CUpointer_attribute attribute,
                                 CUdeviceptr address)
{
    struct ag_block_seen block;
    struct ag_pinned_seen pinned;
    bool is_sync;

    if (ag_pinned_answers_find(address, &pinned)) {
        ag_pinned_blocks_note_altered(pinned.address);
        return ag_cu.cuPointerSetAttribute(value, attribute,
                                           ag_pinned_answers_known(address, &pinned));
    }
    is_sync = value && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS && has_context() &&
              ag_lookup_redirected(address, &block);

    if (is_sync && block.slab) {
        ag_churn_note_shared();
        return set_of_piece(value, &block);
    }
    ag_lookup_note_exported(address);
    if (is_sync)
        return set_of_block(value, address, &block);
    return ag_cu.cuPointerSetAttribute(value, attribute, ag_lookup_known(address));
}
