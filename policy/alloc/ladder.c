/* The rungs, from the first to the last: see ladder.h. */
#include "policy/alloc/ladder.h"

#include "interpose/core/driver/driver.h"
#include "interpose/core/report/stats.h"
#include "interpose/core/report/timing.h"
#include "interpose/core/report/trace/trace.h"
#include "policy/alloc/plan.h"
#include "policy/alloc/room.h"
#include "policy/backends/backend.h"
#include "policy/backends/private_pool.h"
#include "policy/budget.h"
#include "policy/churn.h"
#include "policy/contexts/enter.h"
#include "policy/decide.h"
#include "policy/guard/guard.h"
#include "policy/inject.h"
#include "policy/managed/spill.h"
#include "policy/order/capture.h"
#include "policy/paging/ranges.h"
#include "policy/pressure.h"
#include "policy/slab.h"

/* The rungs below give a block of that descriptor, in the ledger and KEPT; else the driver's error,
 * or AG_LADDER_NO_LEDGER. */

/* The driver is asked, within the budget. */
static CUresult from_driver(struct ag_context *context, struct ag_mem_desc desc, size_t bytes,
                            struct ag_block **ret_block)
{
    struct ag_device *device = context->device;
    bool budgeted = ag_mem_desc_is_budgeted(desc);
    CUdeviceptr address;
    size_t size;
    CUresult result;

    ag_timing_is_slow();
    if (budgeted && !ag_budget_take(device, bytes) &&
        (!ag_pressure_make_room(device, bytes) || !ag_budget_take(device, bytes)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = ag_backend_allocate(context, bytes, desc, &address, &size);
    if (desc.source == AG_SOURCE_MOVABLE)
        desc.spilled = false; /* of the request */
    *ret_block = result == CUDA_SUCCESS ? ag_ledger_enter(address, size, context, desc) : NULL;
    if (*ret_block) {
        ag_budget_note_given(device, desc, size);
        return CUDA_SUCCESS;
    }
    if (budgeted)
        ag_budget_give(device, bytes);
    if (result != CUDA_SUCCESS)
        return result;
    if (desc.source == AG_SOURCE_MOVABLE)
        (void)ag_range_free(address);
    else
        (void)ag_cu.cuMemFree_v2(address);
    return AG_LADDER_NO_LEDGER;
}

/* The cache has no block of `size`. NULL: the driver is to be asked, and what the cache has is no
 * more than it may have then. */
static struct ag_block *larger_from_cache(struct ag_context *context, struct ag_mem_desc desc,
                                          size_t size)
{
    struct ag_block *block = NULL;
    bool asks_again;
    uint64_t excess = ag_budget_excess(context, size, &asks_again);

    if ((!excess && !asks_again) || ag_capture_is_open())
        return NULL;
    if (!ag_churn_is_shared() && !ag_guard_is_on()) /* whom its size matters to */
        block =
            ag_cache_take_smallest(&context->cache, size, ag_budget_largest(context, size), desc);
    if (block) {
        ag_budget_note_larger(block, size);
        return block;
    }
    if (excess)
        ag_room_evict_for_good(context, excess);
    return NULL;
}

/* A fresh slab and its first piece. */
static CUresult begin_slab(struct ag_context *context, struct ag_mem_desc desc, size_t size,
                           struct ag_slab_piece *piece)
{
    struct ag_block *whole = ag_cache_take(&context->cache, AG_SLAB_BYTES, desc);
    bool asks = !whole;
    CUresult result = CUDA_SUCCESS;

    if (asks) {
        result = from_driver(context, desc, AG_SLAB_BYTES, &whole);
        if (result == CUDA_SUCCESS && ag_mem_desc_is_on_device(desc))
            ag_room_leave(context, AG_SLAB_BYTES);
    }
    if (result != CUDA_SUCCESS) {
        ag_slab_failed(piece);
        return result;
    }
    if (ag_slab_begin(&context->slabs, whole, size, piece)) {
        ag_stats_add(AG_STAT_SLAB_ASKED, asks);
        return CUDA_SUCCESS;
    }
    (void)ag_cache_keep(&context->cache, whole, UINT64_MAX);
    return AG_LADDER_NO_LEDGER;
}

/* A piece of a slab. The driver is asked whether the context still works, as below, and for a slab
 * when none has room. CUDA_ERROR_OUT_OF_MEMORY also when another thread is getting one. */
static CUresult from_slab(struct ag_context *context, struct ag_mem_desc desc, size_t size,
                          struct ag_block **ret_block)
{
    struct ag_slab_piece piece;
    CUresult result = ag_context_sticky_error_here(context);
    enum ag_slab_cut found;

    if (result != CUDA_SUCCESS)
        return result;
    found = ag_slab_cut(&context->slabs, size, desc, &piece);
    if (found == AG_SLAB_NEEDED)
        result = begin_slab(context, desc, size, &piece);
    if (found == AG_SLAB_COMING)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS)
        return result;
    *ret_block = ag_ledger_enter(piece.address, size, context, ag_slab_desc(piece.slab));
    if (!*ret_block) {
        struct ag_block *whole = ag_slab_return(piece.slab, piece.address, size);

        if (whole)
            (void)ag_cache_keep(&context->cache, whole, UINT64_MAX);
        return AG_LADDER_NO_LEDGER;
    }
    ag_block_set_slab(*ret_block, piece.slab);
    ag_stats_add(AG_STAT_SLAB_CUT, 1);
    return CUDA_SUCCESS;
}

/* The cache's block is the program's, unless the context no longer works: after an error of the
 * device no allocation succeeds natively. The driver is asked nothing else. */
static CUresult from_cache(struct ag_context *context, struct ag_block *block)
{
    CUresult result;

    ag_stats_add(AG_STAT_CACHE_HIT, 1);
    result = ag_context_sticky_error_here(context);
    if (result != CUDA_SUCCESS)
        (void)ag_cache_keep(&context->cache, block, UINT64_MAX);
    return result;
}

/* A block of `size` bytes (from ag_cache_block_size, or just
 * as many as are asked for) of whoever has one first: the cache, a slab, the cache
 * again if a larger one will do, the driver. Where there is no room for a slab, or it is not there
 * yet, there may be some for the block alone. */
static CUresult from_anywhere(struct ag_context *context, struct ag_mem_desc desc, size_t size,
                              struct ag_block **ret_block)
{
    struct ag_churn *churn = &context->device->churn;
    bool cached = desc.source == AG_SOURCE_CACHED;
    size_t piece = ag_cache_block_size(size);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

    *ret_block = ag_cache_take(&context->cache, size, desc);
    if (*ret_block)
        return from_cache(context, *ret_block);
    if (ag_plan_cuts(context->device, desc, piece))
        result = from_slab(context, desc, piece, ret_block);
    if (result != CUDA_ERROR_OUT_OF_MEMORY)
        return result;
    /* Does it stay with us when the program frees it? */
    if (desc.source == AG_SOURCE_POOL || desc.source == AG_SOURCE_MOVABLE ||
        (cached && ag_churn_is_on(churn)))
        *ret_block = larger_from_cache(context, desc, size);
    if (*ret_block)
        return from_cache(context, *ret_block);
    ag_stats_add(AG_STAT_CACHE_MISS, 1);
    if (cached && piece <= ag_slab_largest())
        ag_churn_small(churn);
    result = from_driver(context, desc, size, ret_block);
    if (result == CUDA_SUCCESS && ag_mem_desc_is_on_device(desc))
        ag_room_leave(context, size);
    return result;
}

/* Allocates after what we hold has gone back: `bytes` and no more. */
static CUresult after_relief(struct ag_context *context, struct ag_mem_desc desc, size_t bytes,
                             struct ag_block **ret_block)
{
    struct ag_device *device = context->device;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    struct ag_relief relief = {0};

    while (result == CUDA_ERROR_OUT_OF_MEMORY && ag_pressure_relieve_again(device, &relief))
        result = from_driver(context, desc, bytes, ret_block);
    if (result == CUDA_SUCCESS)
        ag_trace_step(AG_STAT_LADDER_RETRY, device->ordinal, bytes);
    return result;
}

/* Allocates no more than was asked for, as the driver would, since its own allocation has the last
 * word on errors. `relieved`: what we hold went back before. */
static CUresult natively(struct ag_context *context, size_t bytes, bool relieved,
                         struct ag_block **ret_block)
{
    const struct ag_mem_desc native = {.source = AG_SOURCE_NATIVE};
    CUresult result = from_driver(context, native, bytes, ret_block);

    if (result == CUDA_ERROR_OUT_OF_MEMORY && !relieved)
        result = after_relief(context, native, bytes, ret_block);
    return result;
}

/* The first rung that holds: as planned; after what we hold went back; natively. */
static CUresult climb_on_device(struct ag_context *context, struct ag_mem_desc desc, size_t bytes,
                                struct ag_block **ret_block)
{
    bool relieved = false, planned = desc.source != AG_SOURCE_NATIVE;
    /* Others may see the size of native memory that would not be kept. */
    bool exact = desc.source == AG_SOURCE_PAGED ||
                 (desc.source == AG_SOURCE_CACHED && !ag_churn_is_on(&context->device->churn));
    CUresult result;

    if (planned && (ag_mem_desc_is_managed(desc) || bytes <= context->device->total_bytes)) {
        size_t size = exact ? bytes : ag_cache_block_size(bytes);

        result = from_anywhere(context, desc, size, ret_block);
        if (result == CUDA_ERROR_OUT_OF_MEMORY) {
            result = after_relief(context, desc, bytes, ret_block);
            relieved = result == CUDA_ERROR_OUT_OF_MEMORY; /* else it failed otherwise */
        }
        if (result == CUDA_SUCCESS || result == AG_LADDER_NO_LEDGER)
            return result;
        if (desc.source == AG_SOURCE_MOVABLE && result != CUDA_ERROR_NOT_SUPPORTED)
            return result; /* the rest of the device is for what cannot move */
        if (desc.source == AG_SOURCE_POOL || ag_mem_desc_is_managed(desc))
            ag_stats_add(AG_STAT_FALLBACK_EXHAUSTED, 1);
    }
    result = natively(context, bytes, relieved, ret_block);
    if (result == CUDA_SUCCESS && planned)
        ag_trace_step(AG_STAT_LADDER_NATIVE, context->device->ordinal, bytes);
    return result;
}

static CUresult on_host(struct ag_context *context, size_t bytes, struct ag_block **ret_block)
{
    size_t size = ag_cache_block_size(bytes < AG_WORTH_ADVICE ? AG_WORTH_ADVICE : bytes);
    CUresult result;

    if (!context->device->has_managed)
        return CUDA_ERROR_OUT_OF_MEMORY;
    /* In a capture the driver decides whether any allocation is legal. */
    result = ag_capture_is_open() ? from_driver(context, ag_decide_spilled(), size, ret_block)
                                  : from_anywhere(context, ag_decide_spilled(), size, ret_block);
    if (result == CUDA_SUCCESS)
        ag_trace_step(AG_STAT_LADDER_SPILL, context->device->ordinal, bytes);
    else if (result != AG_LADDER_NO_LEDGER && !ag_capture_is_open() && !ag_error_is_sticky(result))
        result = CUDA_ERROR_OUT_OF_MEMORY; /* whatever managed memory failed for */
    return result;
}

/* Refuses an allocation over the limit: the driver's answer to an allocation of any size comes
 * first, then ours. */
static CUresult refuse_over_limit(struct ag_context *context)
{
    CUdeviceptr probe;
    CUresult result = ag_context_sticky_error_here(context);

    if (result == CUDA_SUCCESS && ag_capture_is_open()) {
        result = ag_cu.cuMemAlloc_v2(&probe, 1);
        if (result == CUDA_SUCCESS)
            (void)ag_cu.cuMemFree_v2(probe);
    }
    return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

/* Memory that can move, whose pieces lie on the host where the device has no room. */
static CUresult on_both(struct ag_context *context, size_t bytes, struct ag_block **ret_block)
{
    const struct ag_mem_desc anywhere = {.source = AG_SOURCE_MOVABLE, .spilled = true};
    CUresult result = refuse_over_limit(context);
    CUstreamCaptureMode mode;

    if (result != CUDA_ERROR_OUT_OF_MEMORY)
        return result;
    mode = ag_capture_relax();
    result = ag_capture_is_open()
                 ? from_driver(context, anywhere, bytes, ret_block)
                 : from_anywhere(context, anywhere, ag_cache_block_size(bytes), ret_block);
    ag_capture_restore(mode);
    return result == CUDA_ERROR_NOT_SUPPORTED ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

static bool is_beyond_limit(struct ag_device *device, struct ag_mem_desc desc, size_t bytes)
{
    if (!ag_mem_desc_is_on_device(desc) || bytes <= ag_budget_left(device))
        return false;
    return !ag_pressure_wait_for_others(device) || bytes > ag_budget_left(device);
}

CUresult ag_ladder_climb(struct ag_context *context, struct ag_mem_desc desc, size_t bytes,
                         struct ag_block **ret_block)
{
    bool inside = ag_context_inside, pushed; /* a green context, whose memory is the primary's */
    CUresult result = inside ? ag_context_make_current(context, &pushed) : CUDA_SUCCESS;

    if (result != CUDA_SUCCESS)
        goto out;
    result = CUDA_ERROR_OUT_OF_MEMORY;
    if (context->device->limit != UINT64_MAX && is_beyond_limit(context->device, desc, bytes))
        ag_trace_step(AG_STAT_BUDGET_HIT, context->device->ordinal, bytes);
    else
        result = climb_on_device(context, desc, bytes, ret_block);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && ag_ranges_wanted())
        result = on_both(context, bytes, ret_block);
    else if (result == CUDA_ERROR_OUT_OF_MEMORY && ag_spill_wanted())
        result = on_host(context, bytes, ret_block);
    else if (result == CUDA_ERROR_OUT_OF_MEMORY && ag_budget_is_limited())
        result = refuse_over_limit(context);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        ag_trace_step(AG_STAT_LADDER_ERROR, context->device->ordinal, bytes);
out:
    if (inside)
        ag_context_restore(pushed);
    return result;
}

/* A block that nobody has got goes back to the driver. */
static void give_up_unseen(struct ag_block *block)
{
    CUstreamCaptureMode mode = ag_capture_relax();
    CUdeviceptr address = block->address;

    ag_budget_forget(block);
    (void)ag_cu.cuMemFree_v2(address);
    ag_capture_restore(mode);
}

CUresult ag_ladder_for_capture(struct ag_context *context, size_t bytes,
                               struct ag_block **ret_block)
{
    /* The driver does not answer for it, since it knows of no free, nor of what is there next. */
    const struct ag_mem_desc cached = {.source = AG_SOURCE_CACHED};
    CUstreamCaptureMode mode;
    CUresult result = CUDA_SUCCESS;

    *ret_block = ag_private_take(context, bytes);
    if (!*ret_block) {
        mode = ag_capture_relax();
        result = from_driver(context, cached, bytes, ret_block);
        if (result == CUDA_ERROR_OUT_OF_MEMORY)
            result = after_relief(context, cached, bytes, ret_block);
        ag_capture_restore(mode);
    }
    if (result != CUDA_SUCCESS)
        return result;
    if (!ag_private_adopt(*ret_block)) {
        give_up_unseen(*ret_block);
        return AG_LADDER_NO_LEDGER;
    }
    ag_stats_add(AG_STAT_API_PRIVATE, 1);
    return result;
}

CUresult ag_ladder_by_rule(struct ag_context *context)
{
    CUresult result = refuse_over_limit(context);

    return result == CUDA_ERROR_OUT_OF_MEMORY ? ag_inject_error(context) : result;
}
