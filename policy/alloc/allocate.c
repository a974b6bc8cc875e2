/* The way of one allocation through the policy: the file to read first.
 *
 * An allocation:
 *   1. Which context is current, and what do the settings and the first rule that applies ask for?
 *      plan.c turns that into a placement and a memory descriptor, by decide.c.
 *      Unless they name a policy, memory is the driver's, and churn.c says whether it is kept.
 *   2. ladder.c: cache.c may hold a freed block of that descriptor (take_last() asks it before
 *      anything else, where no setting matters). Else a small one is cut from a slab (slab.c), and
 *      for others, and for slabs, backends/ asks the driver.
 *   3. When memory runs out: pressure.c frees what we hold, and the driver is asked again; then for
 *      a native allocation; then, if ALLOGRAFT_OOM=spill, for memory on the host.
 *   4. ledger.c records the block.
 * A free (freed.c): ledger.c says whether the block is the program's; order/free.c orders it after
 * the work that may use it; the block goes into the cache, or back to its pool. Native memory goes
 * back to the driver at once (native.c), until churn.c says that it is worth keeping. */
#include "policy/alloc/alloc.h"

#include "interpose/core/driver/driver.h"
#include "interpose/core/report/holders/holders.h"
#include "interpose/core/report/stats.h"
#include "interpose/core/settings/caller.h"
#include "policy/alloc/freed.h"
#include "policy/alloc/hand_over.h"
#include "policy/alloc/ladder.h"
#include "policy/alloc/notes.h"
#include "policy/alloc/plan.h"
#include "policy/backends/private_pool.h"
#include "policy/churn.h"
#include "policy/contexts/enter.h"
#include "policy/guard/guard.h"
#include "policy/order/capture.h"
#include "policy/pressure.h"

/* All plans are the same, but for the size. */
static bool plans_alike;

void ag_alloc_configure(const struct ag_request_params *new_defaults,
                        const struct ag_rules *new_rules)
{
    plans_alike = ag_plan_configure(new_defaults, new_rules);
    ag_guard_give_to(ag_freed_unguarded);
}

void ag_alloc_prepare(struct ag_context *context, const void *caller)
{
    (void)ag_trace_on(); /* a read is enough: nobody writes there soon */
    (void)ag_holders_on();
    ag_caller_prepare(caller);
    ag_stats_prepare();
    ag_ledger_prepare();
    ag_cache_prepare(&context->cache);
}

/* Memory that is not in the ledger is the driver's in every way. */
static CUresult allocate_unseen(CUdeviceptr *ret_address, size_t bytes, struct ag_context *context)
{
    CUresult result = ag_cu.cuMemAlloc_v2(ret_address, bytes);

    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        ag_pressure_relieve(context->device);
        result = ag_cu.cuMemAlloc_v2(ret_address, bytes);
    }
    ag_stats_add(AG_STAT_FALLBACK_NO_METADATA, 1);
    ag_stats_add(AG_STAT_PASSED, 1);
    return result;
}

/* The short way, of a program that allocates what it has just freed: a block that the cache has,
 * without a plan. NULL where a plan might say anything else, or that block is not the next one. A
 * pair of cudaMalloc and cudaFree takes a third less by it. */
static inline struct ag_block *take_last(struct ag_context *context, size_t bytes,
                                         const void *caller)
{
    struct ag_device *device = context->device;

    if (!plans_alike || !(ag_churn_is_on(&device->churn) || ag_once_is_done(&device->pool_state)) ||
        ag_capture_is_open() || ag_private_of_thread || ag_context_inside ||
        ag_caller_is_exporter(caller))
        return NULL;
    return ag_cache_take_last(&context->cache, ag_cache_block_size(bytes));
}

/* False, and nothing done, after an error of the device: the long way asks the driver, which has
 * the last word on errors. */
static inline bool hand_out_last(CUdeviceptr *ret_address, size_t bytes, struct ag_block *block,
                                 const void *caller)
{
    struct ag_context *context = block->context;

    if (ag_context_sticky_error_here(context) != CUDA_SUCCESS) {
        (void)ag_cache_keep(&context->cache, block, UINT64_MAX);
        return false;
    }
    *ret_address = block->address;
    ag_stats_add(AG_STAT_CACHE_HIT, 1);
    ag_stats_add(AG_STAT_REDIRECTED, 1);
    ag_note_allocated(block, bytes, caller);
    ag_ledger_give(block, bytes);
    return true;
}

/* Allocates by a plan. It is apart from the short way, which has less to put aside. */
__attribute__((noinline)) static CUresult alloc_planned(CUdeviceptr *ret_address, size_t bytes,
                                                        struct ag_context *context,
                                                        const void *caller)
{
    struct ag_block *block = NULL;
    struct ag_plan plan;
    CUresult result;

    ag_plan_make(&plan, context, bytes, caller);
    if (__builtin_expect(plan.choice.fails, 0))
        result = ag_ladder_by_rule(context);
    else if (__builtin_expect(ag_private_of_thread != 0, 0))
        result = ag_ladder_for_capture(context, plan.room, &block);
    else
        result = ag_ladder_climb(context, plan.desc, plan.room, &block);
    if (result == AG_LADDER_NO_LEDGER)
        return allocate_unseen(ret_address, bytes, context);
    if (result != CUDA_SUCCESS || !block) { /* the same */
        ag_note_failed(context->device->ordinal, ag_mem_desc_placement(plan.desc), bytes, caller,
                       result);
        return result;
    }
    if (plan.guarded)
        ag_guard_begin(block, bytes, caller);
    *ret_address = block->address;
    ag_note_allocated(block, bytes, caller);
    ag_stats_add(block->desc.source == AG_SOURCE_NATIVE ? AG_STAT_PASSED : AG_STAT_REDIRECTED, 1);
    if (plan.ruled)
        ag_stats_rule_hit(plan.choice.rule, bytes);
    ag_hand_over(block, bytes);
    return CUDA_SUCCESS;
}

CUresult ag_alloc(CUdeviceptr *ret_address, size_t bytes, const void *caller)
{
    struct ag_context *context;
    struct ag_block *block;

    ag_timing_begin();
    context = ag_context_current();
    if (!ret_address || !bytes || !context) {
        ag_stats_add(AG_STAT_PASSED, 1);
        return ag_cu.cuMemAlloc_v2(ret_address, bytes);
    }
    block = take_last(context, bytes, caller);
    if (block && hand_out_last(ret_address, bytes, block, caller))
        return CUDA_SUCCESS;
    return alloc_planned(ret_address, bytes, context, caller);
}
