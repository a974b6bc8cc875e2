/* Which block an address lies in: see lookup.h. */
#include "policy/answers/lookup.h"

#include <stdatomic.h>
#include <string.h>

#include "interpose/core/base/hash.h"
#include "interpose/core/driver/driver.h"
#include "policy/backends/backend.h"
#include "policy/churn.h"
#include "policy/contexts/context.h"
#include "policy/guard/guard.h"
#include "policy/ipc/ipc.h"
#include "policy/paging/ranges.h"
#include "policy/slab.h"

#define BASES 256u

_Alignas(4096) char ag_lookup_unknown[1];

/* Where blocks begin that addresses of the same 2 MiB were found in, by a hash of these: to be
 * tried before the driver is asked. Relaxed: the ledger says what is there. */
static _Atomic CUdeviceptr bases[BASES];

/* The block that the driver knows by that address. */
static bool look_at_base(CUdeviceptr base, struct ag_block_seen *ret_copy)
{
    return ag_ledger_look(base, ret_copy) || ag_guard_look(base, ret_copy);
}

/* The block or slab in which the address lies, which begins at *ret_base. */
static bool look_by_driver(CUdeviceptr address, struct ag_block_seen *ret_copy,
                           CUdeviceptr *ret_base)
{
    CUdeviceptr range = ag_range_base(address); /* the driver may know each piece by itself */
    size_t size;

    *ret_base = range;
    if (!range && ag_cu.cuMemGetAddressRange_v2(ret_base, &size, address) != CUDA_SUCCESS)
        return false;
    if (!look_at_base(*ret_base, ret_copy))
        return !range && ag_ipc_look_inside(address, ret_base, ret_copy);
    *ret_base = ret_copy->address; /* of a guarded block: after what lies before it */
    return true;
}

static size_t offset_in_piece(CUdeviceptr address, CUdeviceptr base, struct ag_block_seen *copy)
{
    CUdeviceptr piece = copy->cut_up ? ag_slab_find(copy->cut_up, address) : 0;

    if (piece && ag_ledger_look(piece, copy))
        base = piece;
    return address - base; /* before a guarded block: too many */
}

/* Is there no block at or near the address that the program could tell from native memory? */
static bool is_surely_native(CUdeviceptr address)
{
    return !ag_guard_is_on() && !ag_ledger_may_hold(address);
}

/* The block in which the address lies, as the ledger has it; *ret_offset bytes after its
 * beginning. Of a slab, the piece; where nothing is cut, the slab itself, which is KEPT. False also
 * where it is a native one for sure. */
static bool find_block_at(CUdeviceptr address, struct ag_block_seen *ret_copy, size_t *ret_offset)
{
    CUdeviceptr base = address;

    if (is_surely_native(address))
        return false;
    if (!ag_ledger_look(address, ret_copy) && !look_by_driver(address, ret_copy, &base))
        return false;
    *ret_offset = offset_in_piece(address, base, ret_copy);
    return true;
}

/* Does the driver know the block as the program does? Not one that got room for a guard, which then
 * failed. */
static bool is_as_native(const struct ag_block_seen *block)
{
    return block->desc.source == AG_SOURCE_NATIVE && !block->guarded &&
           block->size == block->requested;
}

static enum ag_found found_at(const struct ag_block_seen *block, size_t offset)
{
    if (is_as_native(block))
        return AG_FOUND_NOTHING;
    if (block->state == AG_BLOCK_KEPT || offset >= block->requested)
        return AG_FOUND_FREED;
    return AG_FOUND_BLOCK;
}

enum ag_found ag_lookup(CUdeviceptr address, struct ag_block_seen *ret_copy)
{
    size_t offset;

    return find_block_at(address, ret_copy, &offset) ? found_at(ret_copy, offset)
                                                     : AG_FOUND_NOTHING;
}

static _Atomic CUdeviceptr *base_near(CUdeviceptr address)
{
    return &bases[ag_hash_spread(address / AG_NATIVE_PAGE) >> 56];
}

/* Where another address near it was in a block of the program's, that one may be too: then the
 * driver need not say where it begins. Else AG_FOUND_FREED, which is not to be relied on. */
static enum ag_found find_near(CUdeviceptr address, struct ag_block_seen *ret_copy)
{
    CUdeviceptr base = atomic_load_explicit(base_near(address), memory_order_relaxed);

    if (!base || ag_guard_is_on() || !ag_ledger_look(base, ret_copy) ||
        address - base >= ret_copy->size)
        return AG_FOUND_FREED;
    return found_at(ret_copy, offset_in_piece(address, base, ret_copy));
}

enum ag_found ag_lookup_quickly(CUdeviceptr address, struct ag_block_seen *ret_copy)
{
    CUdeviceptr base = address;
    enum ag_found found;

    if (is_surely_native(address))
        return AG_FOUND_NOTHING;
    if (!ag_ledger_look(address, ret_copy)) {
        found = find_near(address, ret_copy);
        if (found != AG_FOUND_FREED)
            return found;
        if (!look_by_driver(address, ret_copy, &base))
            return AG_FOUND_NOTHING;
        if (atomic_load_explicit(base_near(address), memory_order_relaxed) != base)
            atomic_store_explicit(base_near(address), base, memory_order_relaxed);
    }
    return found_at(ret_copy, offset_in_piece(address, base, ret_copy));
}

bool ag_lookup_redirected(CUdeviceptr address, struct ag_block_seen *ret_copy)
{
    size_t offset;

    return address && find_block_at(address, ret_copy, &offset) &&
           ret_copy->state == AG_BLOCK_LIVE && !is_as_native(ret_copy) &&
           offset < ret_copy->requested;
}

CUdeviceptr ag_lookup_known(CUdeviceptr address)
{
    struct ag_block_seen block;

    return ag_lookup(address, &block) == AG_FOUND_FREED ? AG_LOOKUP_NOWHERE : address;
}

void ag_lookup_correct_unknown(void *data, CUpointer_attribute attribute, CUdeviceptr asked,
                               CUdeviceptr address)
{
    if ((attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER ||
         attribute == CU_POINTER_ATTRIBUTE_DEVICE_POINTER) &&
        !memcmp(data, &asked, sizeof(asked)))
        memcpy(data, &address, sizeof(address));
}

void ag_lookup_close_slab(const struct ag_block_seen *piece)
{
    ag_slab_close(piece->slab);
    (void)ag_backend_return_pieces(ag_cache_evict_slab(&piece->context->cache, piece->slab));
}

void ag_lookup_note_exported(CUdeviceptr address)
{
    struct ag_block_seen block;

    ag_churn_note_shared();
    if (!ag_lookup_redirected(address, &block))
        return;
    if (block.desc.source == AG_SOURCE_MOVABLE)
        ag_range_pin(block.address);
    if (block.slab)
        ag_lookup_close_slab(&block);
    else if (!ag_mem_desc_is_managed(block.desc) && block.desc.source != AG_SOURCE_POOL)
        (void)ag_ledger_note_export(block.address, AG_EXPORTED_BY_DRIVER);
}
