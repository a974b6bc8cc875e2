/* Giving back blocks that the cache has let go: see room.h. */
#include "policy/alloc/room.h"

#include "interpose/core/report/stats.h"
#include "interpose/core/report/timing.h"
#include "policy/alloc/alloc.h"
#include "policy/backends/backend.h"
#include "policy/budget.h"
#include "policy/contexts/enter.h"
#include "policy/order/capture.h"
#include "policy/order/private_stream.h"
#include "policy/pressure.h"

bool ag_room_give_back(struct ag_context *context, struct ag_block *blocks, uint64_t timeout_ns)
{
    struct ag_block *stay;

    blocks = ag_backend_return_pieces(blocks);
    ag_timing_is_slow();
    stay = ag_backend_release(context, blocks, timeout_ns);
    ag_cache_keep_all(&context->cache, stay);
    return !stay;
}

#define GIVE_BACK_NS 200000000u /* more than most programs submit ahead */

/* Blocks of a pool may be of no size that the pool has a use for: what it holds goes, too. */
static bool give_to_device(struct ag_context *context, struct ag_block *blocks)
{
    bool pooled = false, all;

    ag_budget_note_given_back(blocks);
    for (const struct ag_block *block = blocks; block; block = block->next)
        pooled |= block->desc.source == AG_SOURCE_POOL;
    all = ag_room_give_back(context, blocks, GIVE_BACK_NS);
    if (!pooled)
        return all;
    if (ag_private_stream_wait(context, GIVE_BACK_NS) == CUDA_ERROR_NOT_READY)
        return false;
    ag_pool_trim(context->device);
    return all;
}

void ag_room_give_back_for_good(struct ag_context *context, struct ag_block *blocks)
{
    if (!give_to_device(context, blocks) && !ag_capture_is_open())
        ag_budget_keep_all(context->device);
}

/* Other threads' allocations that find no room wait for it: so it counts before the blocks leave
 * the cache. */
void ag_room_evict_for_good(struct ag_context *context, uint64_t bytes)
{
    atomic_fetch_add_explicit(&context->device->n_returning, 1, memory_order_seq_cst);
    ag_room_give_back_for_good(context, ag_cache_evict(&context->cache, bytes));
    atomic_fetch_sub_explicit(&context->device->n_returning, 1, memory_order_seq_cst);
}

void ag_room_leave(struct ag_context *context, size_t bytes)
{
    uint64_t missing;

    if (ag_capture_is_open())
        return;
    missing = ag_pressure_given(context->device, bytes);
    if (missing && !ag_budget_keeps_all(context->device))
        ag_room_evict_for_good(context, missing);
}

void ag_alloc_given_to_program(const struct ag_device *device, size_t bytes)
{
    struct ag_context *context = ag_context_current();

    if (context && context->device == device)
        ag_room_leave(context, bytes);
}
