/* The end of a context, and of the memory that was its. */
#include "policy/alloc/alloc.h"

#include "interpose/core/report/errors/last_launches.h"
#include "policy/alloc/freed.h"
#include "policy/alloc/later.h"
#include "policy/alloc/native.h"
#include "policy/alloc/notes.h"
#include "policy/backends/backend.h"
#include "policy/backends/managed_pool.h"
#include "policy/backends/private_pool.h"
#include "policy/budget.h"
#include "policy/contexts/enter.h"
#include "policy/guard/guard.h"
#include "policy/ipc/ipc.h"
#include "policy/managed/kernel_params.h"
#include "policy/managed/residency.h"
#include "policy/managed/spill.h"
#include "policy/order/capture.h"
#include "policy/order/fence.h"
#include "policy/order/free.h"
#include "policy/order/host_wait.h"
#include "policy/paging/handles.h"
#include "policy/pinned/pinned.h"
#include "policy/slab.h"

/* Memory of pools, and pages, are not of a context: they stay unless they are freed. */
static void give_up_block(struct ag_block *block)
{
    struct ag_block copy = *block;
    bool orphan = ag_ipc_orphan(block) || ag_ipc_is_orphan(copy.address);

    (void)ag_ipc_freed(block);
    ag_budget_forget(block);
    if (orphan)
        return;
    if (ag_native_free_single(&copy) != CUDA_SUCCESS)
        (void)ag_native_free_single(&copy); /* nobody else will ever free it */
}

static bool outlives_its_context(const struct ag_block *block)
{
    return block->desc.source == AG_SOURCE_POOL || block->desc.source == AG_SOURCE_MANAGED_POOL ||
           block->desc.source == AG_SOURCE_PAGED || block->desc.source == AG_SOURCE_MOVABLE;
}

static void note_gone(const struct ag_block *block)
{
    ag_note_freed((struct ag_freed){
        .address = block->address,
        .bytes = block->requested,
        .device = block->context->device->ordinal,
        .place = (enum ag_placement)block->placement,
        .code = AG_TRACE_BY_CONTEXT,
    });
}

/* Its slab has an entry of its own. */
static void forget_piece(struct ag_block *piece)
{
    struct ag_slab *slab = ag_block_slab(piece);
    CUdeviceptr address = piece->address;
    size_t size = piece->size;

    if (outlives_its_context(piece))
        (void)ag_ipc_orphan(piece);
    (void)ag_ipc_freed(piece);
    ag_ledger_remove(piece);
    (void)ag_slab_return(slab, address, size);
}

/* Pieces leave the list, which has their slabs too: what goes is those. */
static struct ag_block *without_pieces(struct ag_block *blocks)
{
    struct ag_block *rest = NULL;

    while (blocks) {
        struct ag_block *block = blocks;

        blocks = block->next;
        if (block->state != AG_BLOCK_KEPT)
            note_gone(block);
        if (ag_block_slab(block)) {
            forget_piece(block);
        } else {
            block->next = rest;
            rest = block;
        }
    }
    return rest;
}

/* All of the context. */
static void wait_for_all_work(struct ag_context *context, bool current)
{
    if (current || ag_capture_is_open())
        (void)ag_fence_wait_context(context);
    else
        (void)ag_fence_wait_idle(context, UINT64_MAX);
}

void ag_alloc_context_dying(struct ag_context *context)
{
    CUstreamCaptureMode mode = ag_capture_relax(); /* a context may end in any capture */
    struct ag_block *blocks;
    bool pushed;
    bool current = ag_context_make_current(context, &pushed) == CUDA_SUCCESS;

    ag_private_context_dying(context);
    /* Other contexts' work that natively was done when this one ends may use its memory. */
    if (ag_host_wait_pending())
        ag_host_wait_complete(AG_STAT_WAITED_DESTROY);
    wait_for_all_work(context, current);
    ag_context_ending(context);     /* another thread may be giving back what the cache had */
    ag_freed_forget_aside(context); /* first: others may keep in the cache what they took out */
    (void)ag_cache_empty(&context->cache);
    ag_later_forget(context);
    ag_guard_context_dying(context);
    ag_pinned_context_dying(context);
    ag_ipc_context_dying(context);
    ag_ipc_forget_held(context);
    ag_params_forget(); /* of its functions */
    ag_launches_forget();
    for (blocks = without_pieces(ag_ledger_claim_all(context)); blocks;) {
        struct ag_block *block = blocks;

        blocks = block->next;
        ag_guard_drop(block);
        ag_note_managed_gone(block);
        ag_spill_remove(block->address);
        (void)ag_residency_remove(block->address);
        if (outlives_its_context(block))
            give_up_block(block);
        else
            ag_budget_forget(block); /* goes with the context */
    }
    ag_pool_trim(context->device);
    ag_managed_pool_trim(context->device);
    (void)ag_handles_give_back(context->device, true);
    ag_context_restore(pushed);
    ag_capture_restore(mode);
    ag_free_context_gone(context);
}
