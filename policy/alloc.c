/* The way of one allocation and of one free through the policy: the file to read first.
 *
 * An allocation:
 *   1. Which context is current, and what do the settings and the first rule that applies ask for?
 *      decide.c turns that into a placement and a memory descriptor.
 *      Unless they name a policy, memory is native until churn.c says that it is time for a pool.
 *   2. cache.c may hold a freed block of that descriptor (take_last() asks it before anything else,
 *      where no setting matters). Else a small one is cut from a slab
 *      (slab.c), and for others, and for slabs, backends/ asks the driver.
 *   3. When memory runs out: pressure.c frees what we hold, and the driver is asked again; then for
 *      a native allocation; then, if ALLOGRAFT_OOM=spill, for memory on the host.
 *   4. ledger.c records the block.
 * A free: ledger.c says whether the block is the program's; order/free.c orders it behind the work
 * that may use it; the block goes into the cache, or back to its pool. Native memory goes back to
 * the driver at once, until churn.c says that it is worth keeping. */
#include "policy/alloc.h"

#include "interpose/core/base/clock.h"
#include "interpose/core/base/log.h"
#include "interpose/core/driver/driver.h"
#include "interpose/core/report/errors/last_launches.h"
#include "interpose/core/report/holders/holders.h"
#include "interpose/core/report/live/allocations.h"
#include "interpose/core/report/timing.h"
#include "interpose/core/report/trace/trace.h"
#include "interpose/core/settings/caller.h"
#include "policy/backends/backend.h"
#include "policy/backends/managed_pool.h"
#include "policy/backends/private_pool.h"
#include "policy/budget.h"
#include "policy/churn.h"
#include "policy/contexts/context.h"
#include "policy/contexts/enter.h"
#include "policy/decide.h"
#include "policy/guard/guard.h"
#include "policy/guard/paged.h"
#include "policy/inject.h"
#include "policy/ipc/ipc.h"
#include "policy/ledger.h"
#include "policy/managed/kernel_params.h"
#include "policy/managed/residency.h"
#include "policy/managed/spill.h"
#include "policy/order/capture.h"
#include "policy/order/fence.h"
#include "policy/order/free.h"
#include "policy/order/host_wait.h"
#include "policy/order/private_stream.h"
#include "policy/pressure.h"
#include "policy/slab.h"

static struct ag_request_params defaults = {.policy = AG_POLICY_AUTO};
static const struct ag_rules *rules;

/* No setting makes a difference between requests but that of their size. */
static bool plans_alike;

/* Freed while a capture was open, under ALLOGRAFT_FREE=ordered. */
static _Atomic(struct ag_block *) set_aside;

static void free_unguarded(struct ag_block *block);

void ag_alloc_configure(const struct ag_request_params *new_defaults,
                        const struct ag_rules *new_rules)
{
    defaults = *new_defaults;
    rules = new_rules && new_rules->n ? new_rules : NULL;
    plans_alike = !rules && !ag_guard_is_on() && !ag_budget_is_limited() &&
                  (defaults.policy == AG_POLICY_AUTO || defaults.policy == AG_POLICY_POOL);
    ag_guard_give_to(free_unguarded);
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

/* --- counters and trace --- */

/* For the trace. Calls are timed while it is on, but not one that began before that. */
static uint64_t began_of(const struct ag_timed *timed)
{
    return timed->began ? timed->began : ag_clock_ticks();
}

/* Apart from its caller, which has less to put aside while the trace is off. */
__attribute__((noinline)) static void trace_allocated(const struct ag_block *block, size_t bytes,
                                                      const void *caller, struct ag_timed timed)
{
    ag_trace_add(&(struct ag_trace_event){
        .kind = AG_TRACE_ALLOC,
        .ticks = began_of(&timed),
        .duration = timed.ticks,
        .device = (int16_t)block->context->device->ordinal,
        .placement = (uint8_t)block->placement,
        .address = block->address,
        .size = bytes,
        .caller = (uintptr_t)caller,
    });
}

static inline void note_allocated(const struct ag_block *block, size_t bytes, const void *caller)
{
    struct ag_timed timed = ag_timing_end();

    ag_stats_allocated(block->context->device->ordinal, block->placement, bytes, timed.sum);
    if (ag_trace_on())
        trace_allocated(block, bytes, caller, timed);
}

static void note_failed(int device, enum ag_placement place, size_t bytes, const void *caller,
                        CUresult result)
{
    struct ag_timed timed = ag_timing_end();

    ag_stats_failed(device, place);
    if (ag_trace_on())
        ag_trace_add(&(struct ag_trace_event){
            .kind = AG_TRACE_FAILED,
            .ticks = began_of(&timed),
            .duration = timed.ticks,
            .device = (int16_t)device,
            .placement = (uint8_t)place,
            .size = bytes,
            .caller = (uintptr_t)caller,
            .code = (uint16_t)result,
        });
}

/* What a free that has succeeded was of; the block may be another's by then. */
struct freed {
    CUdeviceptr address;
    size_t bytes;
    CUstream stream;
    const void *caller;
    int device;
    enum ag_placement place;
    uint16_t code;         /* of the trace */
    struct ag_timed timed; /* nothing: nobody waited */
};

__attribute__((noinline)) static void trace_freed(struct freed freed)
{
    ag_trace_add(&(struct ag_trace_event){
        .kind = AG_TRACE_FREE,
        .ticks = began_of(&freed.timed),
        .duration = freed.timed.ticks,
        .device = (int16_t)freed.device,
        .placement = (uint8_t)freed.place,
        .address = freed.address,
        .size = freed.bytes,
        .stream = (uintptr_t)freed.stream,
        .caller = (uintptr_t)freed.caller,
        .code = freed.code,
    });
}

static inline void note_freed(struct freed freed)
{
    ag_stats_freed(freed.device, freed.place, freed.bytes, freed.timed.sum);
    if (ag_trace_on())
        trace_freed(freed);
}

/* --- what is asked for, and what is possible --- */

/* Does the rule say where memory is to come from? */
static bool names_placement(int rule)
{
    return rule >= 0 && rules->rule[rule].says & 1u << AG_SAYS_POLICY;
}

struct plan {
    struct ag_decision decision;
    struct ag_mem_desc desc;
    struct ag_choice choice; /* of a rule */
    size_t room;             /* bytes to allocate, with those of guards */
    bool guarded;
};

/* Native memory that a process with an IPC handle may ask for is the driver's, as long as nothing
 * is known of the program but that it allocates a little, or once it has shared some. */
static bool is_cut_natively(const struct ag_device *device)
{
    return ag_churn_cuts(&device->churn) && !ag_churn_is_shared();
}

/* Are blocks of that descriptor and of `size` (from ag_cache_block_size) cut from slabs? */
static bool is_cut(const struct ag_device *device, struct ag_mem_desc desc, size_t size)
{
    return size <= ag_slab_largest() && desc.source != AG_SOURCE_NATIVE &&
           ag_mem_desc_is_on_device(desc) && device->limit >= AG_SLAB_LIMIT &&
           (desc.source != AG_SOURCE_CACHED || is_cut_natively(device));
}

static _Atomic bool expects_advice; /* on managed memory, by the program itself */

void ag_alloc_expect_advice(void)
{
    if (!atomic_load_explicit(&expects_advice, memory_order_relaxed))
        atomic_store_explicit(&expects_advice, true, memory_order_relaxed);
}

/* Blocks of the managed pool take no advice. */
static bool may_pool(const struct ag_request_params *params)
{
    return params->backend == AG_MANAGED_POOL ||
           (params->backend == AG_MANAGED_AUTO &&
            !atomic_load_explicit(&expects_advice, memory_order_relaxed));
}

static struct ag_mem_desc desc_of(struct ag_device *device, struct ag_decision decision,
                                  const struct ag_request_params *params, size_t bytes)
{
    struct ag_mem_desc desc;
    CUmemoryPool pool;

    if (decision.place == AG_PLACE_POOL)
        return (struct ag_mem_desc){.source = AG_SOURCE_POOL};
    if (decision.place != AG_PLACE_MANAGED)
        return (struct ag_mem_desc){.source = decision.keeps ? AG_SOURCE_CACHED : AG_SOURCE_NATIVE};
    desc = ag_decide_managed(params, bytes, false);
    /* What is cut costs the same from either, and single allocations take the program's advice. */
    if (!may_pool(params) ||
        (params->backend == AG_MANAGED_AUTO && is_cut(device, desc, ag_cache_block_size(bytes))) ||
        ag_managed_pool(device, &pool) != CUDA_SUCCESS)
        return desc;
    return ag_decide_managed(params, bytes, true);
}

static void count_fallback(const struct ag_device *device, enum ag_fallback why)
{
    static const enum ag_stat counters[AG_N_FALLBACKS] = {
        [AG_FALLBACK_CAPTURE] = AG_STAT_FALLBACK_CAPTURE,
        [AG_FALLBACK_EXPORTER] = AG_STAT_FALLBACK_EXPORTER,
        [AG_FALLBACK_NO_POOL] = AG_STAT_FALLBACK_NO_POOL,
        [AG_FALLBACK_NO_MANAGED] = AG_STAT_FALLBACK_NO_MANAGED,
    };

    if (why == AG_FALLBACK_NO_MANAGED && !ag_stats_counter(counters[why]))
        ag_log_warn("device %d has no concurrent managed access: its memory stays native",
                    device->ordinal);
    ag_stats_add(counters[why], 1);
}

/* Is there a pool for a request of that policy? Makes it when there is to be one. */
static bool has_pool(struct ag_device *device, enum ag_policy policy)
{
    if (policy == AG_POLICY_POOL)
        return ag_pool_ready(device);
    if (policy != AG_POLICY_AUTO)
        return false;
    ag_churn_allocates(&device->churn);
    return ag_churn_wants_pool(&device->churn) && ag_pool_ready(device);
}

/* Pages of its own take the place of any other memory of the device. */
static void guard(struct plan *plan, size_t bytes, bool exported)
{
    plan->guarded = ag_guard_wants(exported);
    if (!plan->guarded)
        return;
    plan->room = ag_guard_room(bytes);
    if (ag_guard_mode == AG_GUARD_PAGE && !ag_mem_desc_is_managed(plan->desc))
        plan->desc = (struct ag_mem_desc){.source = AG_SOURCE_PAGED};
}

static void make_plan(struct plan *plan, struct ag_context *context, size_t bytes,
                      const void *caller)
{
    struct ag_request request = {.capture_open = ag_capture_is_open()};
    struct ag_facts facts = {.has_managed = context->device->has_managed};
    struct ag_request_params params = defaults;
    bool exporter = ag_caller_is_exporter(caller);

    *plan = (struct plan){.choice.rule = -1, .room = bytes};
    if (rules)
        plan->choice =
            ag_inject_choose(AG_CALL_DEVICE, bytes, context->device->ordinal, exporter, caller);
    if (plan->choice.fails)
        return;
    if (plan->choice.rule >= 0)
        ag_rule_apply(&rules->rule[plan->choice.rule], &params);
    request.exported = exporter && !names_placement(plan->choice.rule);
    if (!request.capture_open && !request.exported)
        facts.has_pool = has_pool(context->device, params.policy);
    plan->decision = ag_decide(&request, &facts, params.policy);
    if (plan->decision.fallback != AG_FALLBACK_NONE)
        count_fallback(context->device, plan->decision.fallback);
    plan->desc = desc_of(context->device, plan->decision, &params, bytes);
    if (ag_guard_is_on())
        guard(plan, bytes, request.exported);
}

/* --- allocation --- */

#define NO_LEDGER ((CUresult) - 1) /* between functions of this file: no memory for the ledger */

/* A block of that descriptor, in the ledger and KEPT; else the driver's error, or NO_LEDGER. */
static CUresult take_from_driver(struct ag_context *context, struct ag_mem_desc desc, size_t bytes,
                                 struct ag_block **ret_block)
{
    struct ag_device *device = context->device;
    bool budgeted = ag_mem_desc_is_on_device(desc);
    CUdeviceptr address;
    size_t size;
    CUresult result;

    ag_timing_is_slow();
    if (budgeted && !ag_budget_take(device, bytes) &&
        (!ag_pressure_make_room(device, bytes) || !ag_budget_take(device, bytes)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = ag_backend_allocate(context, bytes, desc, &address, &size);
    *ret_block = result == CUDA_SUCCESS ? ag_ledger_enter(address, size, context, desc) : NULL;
    if (*ret_block) {
        ag_budget_note_given(device, desc, size);
        return CUDA_SUCCESS;
    }
    if (budgeted)
        ag_budget_give(device, bytes);
    if (result != CUDA_SUCCESS)
        return result;
    (void)ag_cu.cuMemFree_v2(address);
    return NO_LEDGER;
}

/* Of the blocks that leave the cache, those that a pool would have taken back for less. */
static void count_returned(const struct ag_block *blocks)
{
    for (; blocks; blocks = blocks->next) {
        if (blocks->desc.source == AG_SOURCE_CACHED)
            ag_churn_returned(&blocks->context->device->churn, blocks->size);
    }
}

/* Blocks that have left the cache go back to the driver. False if some cannot, or not within the
 * time: they are in the cache again, over its limit. */
static bool give_back(struct ag_context *context, struct ag_block *blocks, uint64_t timeout_ns)
{
    struct ag_block *stay;

    blocks = ag_backend_return_pieces(blocks);
    count_returned(blocks);
    ag_timing_is_slow();
    stay = ag_backend_release(context, blocks, timeout_ns);
    ag_cache_keep_all(&context->cache, stay);
    return !stay;
}

/* Does plain device memory of that descriptor stay with us when the program frees it? */
static bool is_kept(const struct ag_device *device, struct ag_mem_desc desc)
{
    return desc.source == AG_SOURCE_POOL ||
           (desc.source == AG_SOURCE_CACHED && ag_churn_is_on(&device->churn));
}

#define GIVE_BACK_NS 200000000u /* more than most programs submit ahead */

/* The same, to the device: blocks of a pool may be of no size that it has a use for either. */
static bool give_to_device(struct ag_context *context, struct ag_block *blocks)
{
    bool pooled = false, all;

    ag_budget_note_given_back(blocks);
    for (const struct ag_block *block = blocks; block; block = block->next)
        pooled |= block->desc.source == AG_SOURCE_POOL;
    all = give_back(context, blocks, GIVE_BACK_NS);
    if (!pooled)
        return all;
    if (ag_private_stream_wait(context, GIVE_BACK_NS) == CUDA_ERROR_NOT_READY)
        return false;
    ag_pool_trim(context->device);
    return all;
}

/* The same; where it takes too long, all is kept from then on. */
static void give_back_for_good(struct ag_context *context, struct ag_block *blocks)
{
    if (!give_to_device(context, blocks) && !ag_capture_is_open())
        ag_budget_keep_all(context->device);
}

/* The cache has no block of `size`. NULL: the driver is to be asked, and what the cache has is no
 * more than it may have then. */
static struct ag_block *take_within_bound(struct ag_context *context, struct ag_mem_desc desc,
                                          size_t size)
{
    uint64_t excess = ag_budget_excess(context, size);
    struct ag_block *block = NULL;

    if ((!excess && !ag_budget_asks_again(context->device)) || ag_capture_is_open())
        return NULL;
    if (!ag_churn_is_shared() && !ag_guard_is_on()) /* whom its size matters to */
        block =
            ag_cache_take_smallest(&context->cache, size, ag_budget_largest(context, size), desc);
    if (block) {
        ag_budget_note_larger(block, size);
        return block;
    }
    if (excess)
        give_back_for_good(context, ag_cache_evict(&context->cache, excess));
    return NULL;
}

/* The driver has given `bytes`: has it still room for itself? */
static void leave_room(struct ag_context *context, size_t bytes)
{
    uint64_t missing;

    if (ag_capture_is_open())
        return;
    missing = ag_pressure_given(context->device, bytes);
    if (missing && !ag_budget_keeps_all(context->device))
        give_back_for_good(context, ag_cache_evict(&context->cache, missing));
}

void ag_alloc_given_to_program(const struct ag_device *device, size_t bytes)
{
    struct ag_context *context = ag_context_current();

    if (context && context->device == device)
        leave_room(context, bytes);
}

static CUresult take_with_room_left(struct ag_context *context, struct ag_mem_desc desc,
                                    size_t bytes, struct ag_block **ret_block)
{
    CUresult result = take_from_driver(context, desc, bytes, ret_block);

    if (result == CUDA_SUCCESS && ag_mem_desc_is_on_device(desc))
        leave_room(context, bytes);
    return result;
}

/* A fresh slab and its first piece. */
static CUresult begin_slab(struct ag_context *context, struct ag_mem_desc desc, size_t size,
                           struct ag_slab_piece *piece)
{
    struct ag_block *whole = ag_cache_take(&context->cache, AG_SLAB_BYTES, desc);
    bool asks = !whole;
    CUresult result = CUDA_SUCCESS;

    if (asks) {
        if (desc.source == AG_SOURCE_CACHED)
            ag_churn_missed(&context->device->churn, AG_SLAB_BYTES);
        result = take_with_room_left(context, desc, AG_SLAB_BYTES, &whole);
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
    return NO_LEDGER;
}

/* A piece of a slab. The driver is asked whether the context still works, as below, and for a slab
 * when none has room. CUDA_ERROR_OUT_OF_MEMORY also when another thread is getting one. */
static CUresult cut(struct ag_context *context, struct ag_mem_desc desc, size_t size,
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
        return NO_LEDGER;
    }
    ag_block_set_slab(*ret_block, piece.slab);
    ag_stats_add(AG_STAT_SLAB_CUT, 1);
    return CUDA_SUCCESS;
}

/* The cache's block is the program's, unless the context no longer works: after an error of the
 * device no allocation succeeds natively. The driver is asked nothing else. */
static CUresult take_cached(struct ag_context *context, struct ag_block *block)
{
    CUresult result;

    ag_stats_add(AG_STAT_CACHE_HIT, 1);
    result = ag_context_sticky_error_here(context);
    if (result != CUDA_SUCCESS)
        (void)ag_cache_keep(&context->cache, block, UINT64_MAX);
    return result;
}

/* What the cache does not have. Where there is no room for a slab, or it is not there yet, there
 * may be some for the block alone. */
static CUresult take_fresh(struct ag_context *context, struct ag_mem_desc desc, size_t size,
                           struct ag_block **ret_block)
{
    size_t piece = ag_cache_block_size(size);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

    if (is_cut(context->device, desc, piece))
        result = cut(context, desc, piece, ret_block);
    if (result != CUDA_ERROR_OUT_OF_MEMORY)
        return result;
    if (is_kept(context->device, desc)) {
        *ret_block = take_within_bound(context, desc, size);
        if (*ret_block)
            return take_cached(context, *ret_block);
    }
    ag_stats_add(AG_STAT_CACHE_MISS, 1);
    if (desc.source == AG_SOURCE_CACHED) {
        ag_churn_missed(&context->device->churn, size);
        if (piece <= ag_slab_largest())
            ag_churn_small(&context->device->churn);
    }
    return take_with_room_left(context, desc, size, ret_block);
}

/* The same, of `size` bytes (from size_of_block), from the cache if it has one. */
static CUresult take(struct ag_context *context, struct ag_mem_desc desc, size_t size,
                     struct ag_block **ret_block)
{
    *ret_block = ag_cache_take(&context->cache, size, desc);
    return *ret_block ? take_cached(context, *ret_block)
                      : take_fresh(context, desc, size, ret_block);
}

/* What we hold goes back; then `bytes` and no more. */
static CUresult take_after_relief(struct ag_context *context, struct ag_mem_desc desc, size_t bytes,
                                  struct ag_block **ret_block)
{
    CUresult result;

    ag_pressure_relieve(context->device);
    result = take_from_driver(context, desc, bytes, ret_block);
    if (result == CUDA_SUCCESS)
        ag_trace_step(AG_STAT_LADDER_RETRY, context->device->ordinal, bytes);
    return result;
}

/* How large a block for `bytes` is: native memory that would not be kept no larger than that, as
 * others may see its size. */
static size_t size_of_block(const struct ag_context *context, struct ag_mem_desc desc, size_t bytes)
{
    if (desc.source == AG_SOURCE_PAGED)
        return bytes;
    if (desc.source == AG_SOURCE_CACHED && !ag_churn_is_on(&context->device->churn))
        return bytes;
    return ag_cache_block_size(bytes);
}

/* The first rung that holds: as planned; after what we hold went back; natively and of no more than
 * was asked for, since the driver's own allocation has the last word on errors. */
static CUresult take_on_device(struct ag_context *context, struct ag_mem_desc desc, size_t bytes,
                               struct ag_block **ret_block)
{
    const struct ag_mem_desc native = {.source = AG_SOURCE_NATIVE};
    bool relieved = false, planned = desc.source != AG_SOURCE_NATIVE;
    CUresult result;

    if (planned && (ag_mem_desc_is_managed(desc) || bytes <= context->device->total_bytes)) {
        result = take(context, desc, size_of_block(context, desc, bytes), ret_block);
        if (result == CUDA_ERROR_OUT_OF_MEMORY) {
            result = take_after_relief(context, desc, bytes, ret_block);
            relieved = result == CUDA_ERROR_OUT_OF_MEMORY; /* else it failed otherwise */
        }
        if (result == CUDA_SUCCESS || result == NO_LEDGER)
            return result;
        if (desc.source != AG_SOURCE_CACHED && desc.source != AG_SOURCE_PAGED)
            ag_stats_add(AG_STAT_FALLBACK_EXHAUSTED, 1);
    }
    result = take_from_driver(context, native, bytes, ret_block);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && !relieved)
        result = take_after_relief(context, native, bytes, ret_block);
    if (result == CUDA_SUCCESS && planned)
        ag_trace_step(AG_STAT_LADDER_NATIVE, context->device->ordinal, bytes);
    return result;
}

static CUresult spill(struct ag_context *context, size_t bytes, struct ag_block **ret_block)
{
    size_t size = ag_cache_block_size(bytes < AG_WORTH_ADVICE ? AG_WORTH_ADVICE : bytes);
    CUresult result;

    if (!context->device->has_managed)
        return CUDA_ERROR_OUT_OF_MEMORY;
    /* In a capture the driver decides whether any allocation is legal. */
    result = ag_capture_is_open() ? take_from_driver(context, ag_decide_spilled(), size, ret_block)
                                  : take(context, ag_decide_spilled(), size, ret_block);
    if (result == CUDA_SUCCESS)
        ag_trace_step(AG_STAT_LADDER_SPILL, context->device->ordinal, bytes);
    else if (result != NO_LEDGER && !ag_capture_is_open() && !ag_error_is_sticky(result))
        result = CUDA_ERROR_OUT_OF_MEMORY; /* whatever managed memory failed for */
    return result;
}

/* Over the limit: the driver's answer to an allocation of any size, then ours. */
static CUresult refuse(struct ag_context *context)
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

static bool is_over_limit(struct ag_device *device, struct ag_mem_desc desc, size_t bytes)
{
    if (!ag_mem_desc_is_on_device(desc) || bytes <= ag_budget_left(device))
        return false;
    return !ag_pressure_wait_for_others(device) || bytes > ag_budget_left(device);
}

/* The ladder. */
static CUresult allocate(struct ag_context *context, struct ag_mem_desc desc, size_t bytes,
                         struct ag_block **ret_block)
{
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

    if (is_over_limit(context->device, desc, bytes))
        ag_trace_step(AG_STAT_BUDGET_HIT, context->device->ordinal, bytes);
    else
        result = take_on_device(context, desc, bytes, ret_block);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && ag_spill_wanted())
        result = spill(context, bytes, ret_block);
    else if (result == CUDA_ERROR_OUT_OF_MEMORY && ag_budget_is_limited())
        result = refuse(context);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        ag_trace_step(AG_STAT_LADDER_ERROR, context->device->ordinal, bytes);
    return result;
}

/* The same when a green context is current: its memory is the primary's. */
static CUresult allocate_from_inside(struct ag_context *context, struct ag_mem_desc desc,
                                     size_t bytes, struct ag_block **ret_block)
{
    bool pushed;
    CUresult result = ag_context_make_current(context, &pushed);

    if (result == CUDA_SUCCESS)
        result = allocate(context, desc, bytes, ret_block);
    ag_context_restore(pushed);
    return result;
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

/* The program has the block from now on. */
static void give(struct ag_block *block, size_t bytes)
{
    if (block->desc.spilled)
        ag_spill_add(block);
    if (block->desc.prefetch == AG_PREFETCH_LAUNCH && ag_mem_desc_is_on_device(block->desc))
        ag_residency_add(block->address, block->size, block->lies_on - 1);
    ag_ledger_give(block, bytes);
}

/* The program has freed the block; before anybody else may get the memory. */
static void take_back(struct ag_block *block)
{
    if (block->desc.spilled)
        ag_spill_remove(block->address);
    if (block->desc.prefetch == AG_PREFETCH_LAUNCH)
        block->lies_on = (uint8_t)(ag_residency_remove(block->address) + 1);
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

/* While a graph of the control API is captured: memory that was freed before, or the driver's,
 * which gives it in a capture to a thread that asks for that. */
static CUresult allocate_private(struct ag_context *context, size_t bytes,
                                 struct ag_block **ret_block)
{
    const struct ag_mem_desc native = {.source = AG_SOURCE_NATIVE};
    CUstreamCaptureMode mode;
    CUresult result = CUDA_SUCCESS;

    *ret_block = ag_private_take(context, bytes);
    if (!*ret_block) {
        mode = ag_capture_relax();
        result = take_from_driver(context, native, bytes, ret_block);
        ag_capture_restore(mode);
    }
    if (result != CUDA_SUCCESS)
        return result;
    if (!ag_private_mark(*ret_block)) {
        give_up_unseen(*ret_block);
        return NO_LEDGER;
    }
    ag_stats_add(AG_STAT_API_PRIVATE, 1);
    return result;
}

/* What the rule that fails the call makes of it. In a capture the driver decides whether any
 * allocation is legal. */
static CUresult fail(struct ag_context *context)
{
    CUresult result = refuse(context);

    return result == CUDA_ERROR_OUT_OF_MEMORY ? ag_inject_error(context) : result;
}

static CUresult allocate_planned(struct ag_context *context, const struct plan *plan,
                                 struct ag_block **ret_block)
{
    size_t bytes = plan->room;

    if (__builtin_expect(plan->choice.fails, 0))
        return fail(context);
    if (__builtin_expect(ag_private_of_thread != 0, 0))
        return allocate_private(context, bytes, ret_block);
    return ag_context_is_inside() ? allocate_from_inside(context, plan->desc, bytes, ret_block)
                                  : allocate(context, plan->desc, bytes, ret_block);
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
static inline bool give_last(CUdeviceptr *ret_address, size_t bytes, struct ag_block *block,
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
    note_allocated(block, bytes, caller);
    ag_ledger_give(block, bytes);
    return true;
}

/* Apart from the short way, which has less to put aside. */
__attribute__((noinline)) static CUresult alloc_planned(CUdeviceptr *ret_address, size_t bytes,
                                                        struct ag_context *context,
                                                        const void *caller)
{
    struct ag_block *block = NULL;
    struct plan plan;
    CUresult result;

    make_plan(&plan, context, bytes, caller);
    result = allocate_planned(context, &plan, &block);
    if (result == NO_LEDGER)
        return allocate_unseen(ret_address, bytes, context);
    if (result != CUDA_SUCCESS || !block) { /* the same */
        note_failed(context->device->ordinal, ag_mem_desc_placement(plan.desc), bytes, caller,
                    result);
        return result;
    }
    if (plan.guarded)
        ag_guard_begin(block, bytes, caller);
    *ret_address = block->address;
    note_allocated(block, bytes, caller);
    ag_stats_add(block->desc.source == AG_SOURCE_NATIVE ? AG_STAT_PASSED : AG_STAT_REDIRECTED, 1);
    if (rules)
        ag_stats_rule_hit(plan.choice.rule, bytes);
    give(block, bytes);
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
    if (block && give_last(ret_address, bytes, block, caller))
        return CUDA_SUCCESS;
    return alloc_planned(ret_address, bytes, context, caller);
}

/* --- rows of equal pitch --- */

/* Could an allocation be anything but native, or over a limit? */
static bool redirects(void)
{
    return defaults.policy != AG_POLICY_NATIVE || rules || ag_budget_is_limited() ||
           ag_spill_wanted() || ag_guard_is_on();
}

/* The driver's own pitched allocation, tried again after we have freed what we hold. */
static CUresult allocate_rows(CUdeviceptr *ret_address, size_t *ret_pitch, size_t width,
                              size_t height, unsigned element_bytes)
{
    CUresult result =
        ag_cu.cuMemAllocPitch_v2(ret_address, ret_pitch, width, height, element_bytes);

    if (result == CUDA_ERROR_OUT_OF_MEMORY && ag_pressure_relieve_for_call(NULL))
        result = ag_cu.cuMemAllocPitch_v2(ret_address, ret_pitch, width, height, element_bytes);
    return result;
}

/* What the driver has given already, of the budget, and KEPT, in the ledger; else the driver has it
 * again. */
static struct ag_block *enter_rows(struct ag_context *context, CUdeviceptr address, size_t bytes,
                                   struct ag_mem_desc desc)
{
    struct ag_block *block = ag_ledger_enter(address, bytes, context, desc);

    if (block) {
        ag_budget_note_given(context->device, desc, bytes);
    } else {
        ag_budget_give(context->device, bytes);
        (void)ag_cu.cuMemFree_v2(address);
    }
    return block;
}

/* Rows that nobody will use: allocated for their pitch alone, or without room for them. Kept until
 * room is made, since a free would wait for what is in flight, and no allocation does natively. */
static void keep_rows(struct ag_context *context, CUdeviceptr address, size_t bytes)
{
    const struct ag_mem_desc cached = {.source = AG_SOURCE_CACHED};
    struct ag_block *block;

    ag_budget_overdraw(context->device, bytes);
    block = enter_rows(context, address, bytes, cached);
    if (block)
        (void)ag_cache_keep(&context->cache, block, UINT64_MAX);
}

/* What the driver makes of rows of `width` bytes; 0 when it fails. */
static size_t ask_pitch(struct ag_context *context, size_t width)
{
    CUdeviceptr address;
    size_t pitch;

    if (allocate_rows(&address, &pitch, width, 1, 4) != CUDA_SUCCESS)
        return 0;
    keep_rows(context, address, pitch);
    return pitch;
}

/* The driver rounds rows up to a power of two; three questions find out which. SIZE_MAX when it
 * answers something else, 0 when it did not answer. In the current context. */
static size_t ask_granule(struct ag_context *context)
{
    size_t granule = ask_pitch(context, 1);
    size_t next = granule ? ask_pitch(context, granule + 1) : 0;
    size_t exact = next ? ask_pitch(context, 5 * granule) : 0;

    if (!exact)
        return 0;
    if ((granule & (granule - 1)) || next != 2 * granule || exact != 5 * granule)
        return SIZE_MAX;
    return granule;
}

/* Once a device: at its first pitched allocation. */
static size_t granule_of(struct ag_context *context)
{
    _Atomic size_t *known = &context->device->pitch_granule;
    size_t granule = atomic_load_explicit(known, memory_order_relaxed);
    bool pushed;

    if (granule || ag_capture_is_open() ||
        ag_context_make_current(context, &pushed) != CUDA_SUCCESS)
        return granule;
    granule = ask_granule(context);
    atomic_store_explicit(known, granule, memory_order_relaxed);
    ag_context_restore(pushed);
    return granule;
}

/* The pitch natively, or 0 when only the driver can tell or would refuse. */
static size_t pitch_of(struct ag_context *context, size_t width, size_t height, size_t *ret_bytes)
{
    size_t granule = granule_of(context), pitch;

    if (!granule || granule == SIZE_MAX || width > SIZE_MAX - granule)
        return 0;
    pitch = (width + granule - 1) & ~(granule - 1);
    return __builtin_mul_overflow(pitch, height, ret_bytes) ? 0 : pitch;
}

/* Rows that the driver gave are of the budget as well, and go back to it as native memory. */
static CUresult budget_rows(struct ag_context *context, CUdeviceptr address, size_t bytes,
                            const void *caller)
{
    const struct ag_mem_desc native = {.source = AG_SOURCE_NATIVE};
    struct ag_block *block = NULL;

    if (ag_budget_take(context->device, bytes))
        block = enter_rows(context, address, bytes, native);
    else
        keep_rows(context, address, bytes);
    if (!block) {
        ag_trace_step(AG_STAT_BUDGET_HIT, context->device->ordinal, bytes);
        note_failed(context->device->ordinal, AG_PLACE_NATIVE, bytes, caller,
                    CUDA_ERROR_OUT_OF_MEMORY);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    note_allocated(block, bytes, caller);
    give(block, bytes);
    return CUDA_SUCCESS;
}

CUresult ag_alloc_pitch(CUdeviceptr *ret_address, size_t *ret_pitch, size_t width, size_t height,
                        unsigned element_bytes, const void *caller)
{
    struct ag_context *context = ag_context_current();
    bool known_element = element_bytes == 4 || element_bytes == 8 || element_bytes == 16;
    size_t pitch, bytes;
    CUresult result;

    if (!ret_address || !ret_pitch || !width || !height || !known_element || !context ||
        !redirects()) {
        ag_stats_add(AG_STAT_PASSED, 1);
        return ag_cu.cuMemAllocPitch_v2(ret_address, ret_pitch, width, height, element_bytes);
    }
    pitch = pitch_of(context, width, height, &bytes);
    if (!pitch) {
        ag_stats_add(AG_STAT_FALLBACK_PITCH, 1);
        ag_timing_begin();
        ag_timing_is_slow();
        result = allocate_rows(ret_address, ret_pitch, width, height, element_bytes);
        return result == CUDA_SUCCESS && ag_budget_is_limited()
                   ? budget_rows(context, *ret_address, *ret_pitch * height, caller)
                   : result;
    }
    result = ag_alloc(ret_address, bytes, caller);
    /* The driver tells the pitch also of rows for which there is no room. */
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY)
        *ret_pitch = pitch;
    return result;
}

/* --- free --- */

static void put_aside(struct ag_block *block)
{
    struct ag_block *first = atomic_load_explicit(&set_aside, memory_order_relaxed);

    do {
        block->next = first;
    } while (!atomic_compare_exchange_weak_explicit(&set_aside, &first, block, memory_order_seq_cst,
                                                    memory_order_relaxed));
    if (!ag_capture_is_open()) /* it closed meanwhile */
        ag_alloc_capture_closed();
}

/* To the device, which is nearly full. */
static void release_for_good(struct ag_context *context, struct ag_block *out)
{
    size_t bytes = 0;

    for (const struct ag_block *block = out; block; block = block->next)
        bytes += block->size;
    give_back_for_good(context, out);
    ag_pressure_returned(context->device, bytes);
}

/* What the cache had no room for goes back. */
__attribute__((noinline)) static void release(struct ag_context *context, struct ag_block *out)
{
    struct ag_device *device = context->device;
    bool waits = ag_host_wait_pending() && ag_backend_waits_for(out);

    if (ag_pressure_is_tight(device) && !ag_capture_is_open() && !ag_budget_keeps_all(device))
        release_for_good(context, out);
    else
        (void)give_back(context, out, UINT64_MAX);
    if (!ag_pressure_bound_pending(device) && waits)
        ag_stats_add(AG_STAT_WAITED_RETURN, 1);
}

/* There is hardly ever one in use. */
static inline void note_too_large_freed(const struct ag_block *block)
{
    if (__builtin_expect(
            atomic_load_explicit(&block->context->too_large, memory_order_relaxed) != 0, 0))
        ag_budget_note_freed(block);
}

static inline uint64_t cache_limit(const struct ag_device *device)
{
    return atomic_load_explicit(&device->cache_limit, memory_order_relaxed);
}

/* The cache may not hold more, and not since the device is nearly full. */
static void count_over_limit(const struct ag_device *device, const struct ag_block *blocks)
{
    uint64_t n = 0;

    for (; blocks; blocks = blocks->next)
        n++;
    if (!ag_pressure_is_tight(device))
        ag_stats_add(AG_STAT_CACHE_FULL, n);
}

/* A KEPT block whose users are ordered before now. */
static inline void keep_or_release(struct ag_block *block)
{
    struct ag_context *context = block->context;
    const struct ag_slab *slab = ag_block_slab(block);
    bool closed = slab && ag_slab_is_closed(slab);
    enum ag_ipc_sharing sharing;
    bool keeps;
    struct ag_block *out = NULL;

    note_too_large_freed(block);
    if (closed && ag_capture_is_open()) { /* its slab may not go, and must not be kept */
        put_aside(block);
        return;
    }
    sharing = ag_ipc_hold(block);
    keeps = sharing == AG_IPC_NOT_SHARED && !closed &&
            atomic_load_explicit(&block->sync_memops, memory_order_relaxed) == AG_SYNC_NOT_SET;
    if (sharing != AG_IPC_OPEN_ELSEWHERE)
        out = ag_cache_keep(&context->cache, block, keeps ? cache_limit(context->device) : 0);
    if (!out) {
        ag_pressure_kept(context->device);
        return;
    }
    if (keeps)
        count_over_limit(context->device, out);
    release(context, out);
}

void ag_alloc_capture_closed(void)
{
    struct ag_block *blocks = atomic_exchange_explicit(&set_aside, NULL, memory_order_seq_cst);

    while (blocks) {
        struct ag_block *block = blocks;
        bool again = false;

        blocks = block->next;
        /* After an error the context is broken: the block stays in the ledger until that goes. */
        if (ag_free_order(block->context, &again) != CUDA_SUCCESS)
            continue;
        if (again)
            put_aside(block);
        else
            keep_or_release(block);
    }
}

/* Memory that is kept, or goes back in the order of a stream of ours. */
static CUresult free_ordered(struct ag_block *block)
{
    bool aside;
    CUresult result = ag_free_order(block->context, &aside);

    if (result != CUDA_SUCCESS)
        return result;
    if (aside)
        put_aside(block);
    else
        keep_or_release(block);
    return CUDA_SUCCESS;
}

/* A block that has left the ledger; of pages, one that nobody uses any more. */
static CUresult free_single(const struct ag_block *copy)
{
    return copy->desc.source == AG_SOURCE_PAGED ? ag_paged_free(copy->address)
                                                : ag_cu.cuMemFree_v2(copy->address);
}

/* The driver has refused to free it: the program has it still, with the guard that it had. */
static void give_again(const struct ag_block *copy, uint64_t export_number, bool guarded,
                       const void *caller)
{
    struct ag_block *block = ag_ledger_enter(copy->address, copy->size, copy->context, copy->desc);

    if (!block)
        return;
    if (export_number && ag_ledger_rare(block))
        atomic_store(&ag_ledger_rare(block)->export_number, export_number);
    atomic_store(&block->sync_memops, copy->sync_memops);
    if (guarded)
        ag_guard_resume(block, copy->requested, caller);
    give(block, copy->requested);
}

/* The driver's own free waits as it must. `guarded`: the block was; `caller`: of its free then. */
__attribute__((noinline)) static CUresult free_native(struct ag_block *block, bool guarded,
                                                      const void *caller)
{
    struct ag_block copy = *block;
    uint64_t export_number = ag_block_export_number(block);
    CUresult result;

    ag_timing_is_slow();
    /* It waits for its own context. What another context's free has left pending, natively done by
     * now, may use the memory, too. */
    if (ag_context_count() > 1 && ag_host_wait_pending())
        ag_host_wait_complete(AG_STAT_WAITED_DESTROY);
    ag_ledger_remove(block);
    result = free_single(&copy);
    if (result == CUDA_SUCCESS) {
        ag_budget_give(copy.context->device, copy.size);
        ag_budget_note_returned(copy.context->device, copy.desc, copy.size);
        note_too_large_freed(&copy);
        if (ag_pressure_is_tight(copy.context->device))
            ag_pressure_returned(copy.context->device, copy.size);
        return result;
    }
    give_again(&copy, export_number, guarded, caller);
    return result;
}

/* The same, of a block whose free nothing else has counted. */
static CUresult free_native_and_count(struct ag_block *block)
{
    CUresult result = free_native(block, false, NULL);

    ag_stats_add(result == CUDA_SUCCESS ? AG_STAT_FREE_NATIVE : AG_STAT_FREE_REFUSED, 1);
    return result;
}

/* Is the block the driver's again as soon as the program frees it? What the driver gave a handle of
 * never becomes anybody else's; what the cache has no room for, or no request, would only be
 * ordered in vain. A piece of a slab is none of the driver's. */
static inline bool is_freed_natively(struct ag_block *block)
{
    struct ag_device *device = block->context->device;
    bool keeps;

    if (block->desc.source != AG_SOURCE_CACHED)
        return block->desc.source == AG_SOURCE_NATIVE || block->desc.source == AG_SOURCE_PAGED;
    keeps = ag_churn_keeps(&device->churn);
    if (ag_block_slab(block))
        return false;
    if (!keeps || !ag_cache_is_block_size(block->size) || ag_block_export_number(block))
        return true;
    if (block->size <= cache_limit(device))
        return false;
    if (!ag_pressure_is_tight(device)) { /* a pool would be no better */
        ag_churn_returned(&device->churn, block->size);
        ag_stats_add(AG_STAT_CACHE_FULL, 1);
    }
    return true;
}

/* `block` is KEPT and the caller's; the program's again, with `bytes`, when the free is refused. */
static inline CUresult free_block(struct ag_block *block, size_t bytes)
{
    bool native = is_freed_natively(block);
    CUresult result;

    result = native ? free_native_and_count(block) : free_ordered(block);
    if (result != CUDA_SUCCESS && !native)
        give(block, bytes);
    return result;
}

/* A guarded block, or pages whose guard failed: the free comes once all work of the context is
 * done, as natively. */
static CUresult free_guarded(struct ag_block *block, const void *caller)
{
    bool captured = ag_capture_is_open(), guarded = ag_block_guarded(block) != NULL, aside;
    CUresult result = ag_free_order(block->context, &aside);

    if (result != CUDA_SUCCESS) {
        ag_ledger_give(block, atomic_load_explicit(&block->requested, memory_order_relaxed));
        return result;
    }
    take_back(block);
    if (guarded &&
        ag_guard_end(block, caller, captured || aside ? AG_GUARD_CAPTURED : AG_GUARD_CHECK))
        return CUDA_SUCCESS;
    if (aside)
        put_aside(block);
    else if (is_freed_natively(block))
        return free_native(block, guarded, caller);
    else
        keep_or_release(block);
    return CUDA_SUCCESS;
}

/* A KEPT block that a guard had, whose users are done, goes where freed blocks go. */
static void free_unguarded(struct ag_block *block)
{
    if (is_freed_natively(block))
        (void)free_native(block, false, NULL);
    else
        keep_or_release(block);
}

/* A KEPT block of a pool of captures: what natively was done by now is, or is ordered, and the pool
 * keeps it. */
static CUresult free_private(struct ag_block *block)
{
    bool aside;
    CUresult result = ag_private_of_thread ? CUDA_SUCCESS : ag_free_order(block->context, &aside);

    if (result != CUDA_SUCCESS) {
        give(block, atomic_load_explicit(&block->requested, memory_order_relaxed));
        return result;
    }
    if (ag_private_keep(block))
        return CUDA_SUCCESS;
    return ag_private_of_thread ? free_native_and_count(block) : free_native(block, false, NULL);
}

void ag_alloc_pool_ended(struct ag_block *blocks)
{
    CUstreamCaptureMode mode;
    bool pushed;

    if (!blocks)
        return;
    mode = ag_capture_relax();
    while (blocks) {
        struct ag_block copy = *blocks;

        ag_ledger_remove(blocks);
        blocks = copy.next;
        if (ag_context_make_current(copy.context, &pushed) == CUDA_SUCCESS)
            (void)ag_cu.cuMemFree_v2(copy.address);
        ag_context_restore(pushed);
        ag_budget_give(copy.context->device, copy.size);
        ag_budget_note_returned(copy.context->device, copy.desc, copy.size);
    }
    ag_capture_restore(mode);
}

/* A block that is not just device memory. */
__attribute__((noinline)) static CUresult free_special(struct ag_block *block, size_t bytes,
                                                       const void *caller)
{
    if (ag_block_guarded(block) || block->desc.source == AG_SOURCE_PAGED)
        return free_guarded(block, caller);
    if (ag_block_private_pool(block))
        return free_private(block);
    take_back(block);
    return free_block(block, bytes);
}

/* Does the driver know a block of ours by it, which the program has under another address? */
static bool is_of_guarded(CUdeviceptr address)
{
    struct ag_block_seen seen;

    return ag_guard_shifts() && ag_ledger_look(ag_guard_address(address), &seen);
}

/* What is not the program's, or not ours. */
__attribute__((noinline)) static CUresult free_foreign(CUdeviceptr address, enum ag_claim claim)
{
    if (claim == AG_CLAIM_NOT_LIVE || is_of_guarded(address))
        return CUDA_ERROR_INVALID_VALUE;
    /* The program's own pool memory goes at once: work that natively was done may still use it. */
    if (address && ag_host_wait_pending())
        ag_host_wait_complete(AG_STAT_WAITED_DESTROY);
    return ag_cu.cuMemFree_v2(address);
}

CUresult ag_free(CUdeviceptr address, const void *caller)
{
    struct ag_block *block, *claimed;
    struct ag_device *device;
    enum ag_claim claim;
    enum ag_placement place;
    size_t bytes;
    CUresult result;

    ag_timing_begin();
    claim = address ? ag_ledger_claim(address, &claimed) : AG_CLAIM_UNKNOWN;
    if (claim != AG_CLAIM_OURS)
        return free_foreign(address, claim);
    block = claimed;
    place = (enum ag_placement)block->placement;
    bytes = atomic_load_explicit(&block->requested, memory_order_relaxed);
    device = block->context->device;
    if (ag_block_rare(block) || !ag_mem_desc_is_plain_device(block->desc))
        result = free_special(block, bytes, caller);
    else
        result = free_block(block, bytes);
    if (result != CUDA_SUCCESS)
        return result;
    note_freed((struct freed){
        .address = address,
        .bytes = bytes,
        .caller = caller,
        .device = device->ordinal,
        .place = place,
        .timed = ag_timing_end(),
    });
    ag_spill_move_back(device);
    return result;
}

/* A block that is none any more has left pages that the driver still counts as in use. */
static void note_managed_gone(const struct ag_block *block)
{
    if (block->desc.source == AG_SOURCE_PLAIN && ag_mem_desc_is_on_device(block->desc))
        ag_managed_freed(block->context->device, block->size);
}

/* Gives up a claimed block in stream order; it has left the ledger. */
static CUresult free_in_stream_order(struct ag_block *block, CUstream stream,
                                     CUresult (*free_async)(CUdeviceptr, CUstream),
                                     CUresult (*synchronize)(CUstream))
{
    struct ag_block single = *block;
    bool plain = block->desc.source == AG_SOURCE_PLAIN || block->desc.source == AG_SOURCE_PAGED;
    CUresult result = CUDA_SUCCESS;

    /* The driver may lock up over native memory and a stream that is not done (580.159), as
     * natively it is after a cudaFree. */
    if (!ag_mem_desc_is_managed(block->desc) && block->desc.source != AG_SOURCE_POOL &&
        ag_host_wait_pending())
        ag_host_wait_complete(AG_STAT_WAITED_DESTROY);
    ag_ledger_remove(block);
    if (!plain)
        return free_async(single.address, stream);
    /* The driver frees no single managed allocation in stream order, and no pages. */
    result = synchronize(stream);
    return result == CUDA_SUCCESS ? free_single(&single) : result;
}

/* The driver knows no piece of a slab: once the stream is done, like any free. */
static CUresult free_piece_async(struct ag_block *block, CUstream stream,
                                 CUresult (*synchronize)(CUstream))
{
    size_t bytes = atomic_load_explicit(&block->requested, memory_order_relaxed);
    CUresult result = synchronize(stream);

    if (result == CUDA_SUCCESS)
        result = free_ordered(block);
    if (result != CUDA_SUCCESS)
        ag_ledger_give(block, bytes);
    return result;
}

CUresult ag_free_async(CUdeviceptr address, CUstream stream,
                       CUresult (*free_async)(CUdeviceptr, CUstream),
                       CUresult (*synchronize)(CUstream), const void *caller)
{
    struct freed freed = {.address = address, .stream = stream};
    struct ag_block *block, copy;
    uint64_t export_number;
    CUresult result;
    bool guarded;

    switch (address ? ag_ledger_claim(address, &block) : AG_CLAIM_UNKNOWN) {
    case AG_CLAIM_UNKNOWN:
        return free_async(address, stream);
    case AG_CLAIM_NOT_LIVE:
        return CUDA_ERROR_INVALID_VALUE;
    case AG_CLAIM_OURS:
        break;
    }
    freed.device = block->context->device->ordinal;
    freed.place = (enum ag_placement)block->placement;
    freed.bytes = atomic_load_explicit(&block->requested, memory_order_relaxed);
    if (ag_block_private_pool(block) &&
        ag_private_keep(block)) { /* later than the stream asks for */
        note_freed(freed);
        return CUDA_SUCCESS;
    }
    if (ag_block_slab(block)) {
        result = free_piece_async(block, stream, synchronize);
        if (result == CUDA_SUCCESS)
            note_freed(freed);
        return result;
    }
    take_back(block);
    guarded = ag_block_guarded(block) != NULL;
    if (guarded)
        (void)ag_guard_end(block, caller, AG_GUARD_ASYNC);
    copy = *block;
    export_number = ag_block_export_number(block);
    result = free_in_stream_order(block, stream, free_async, synchronize);
    if (result == CUDA_SUCCESS) {
        ag_ipc_number_freed(export_number);
        if (ag_mem_desc_is_on_device(copy.desc))
            ag_budget_give(copy.context->device, copy.size);
        ag_budget_note_returned(copy.context->device, copy.desc, copy.size);
        note_managed_gone(&copy);
        note_too_large_freed(&copy);
        note_freed(freed);
        ag_stats_add(AG_STAT_FREE_NATIVE, 1);
        return result;
    }
    give_again(&copy, export_number, guarded, caller);
    return result;
}

/* --- the end of a context --- */

/* Leaves only other contexts' blocks on the list of what was set aside. */
static void forget_set_aside(const struct ag_context *context)
{
    struct ag_block *blocks = atomic_exchange_explicit(&set_aside, NULL, memory_order_seq_cst);

    while (blocks) {
        struct ag_block *block = blocks;

        blocks = block->next;
        if (block->context != context)
            put_aside(block);
    }
}

/* Memory of pools, and pages, are not of a context: they stay unless they are freed. */
static void give_up(struct ag_block *block)
{
    struct ag_block copy = *block;
    bool orphan = ag_ipc_orphan(block) || ag_ipc_is_orphan(copy.address);

    (void)ag_ipc_freed(block);
    ag_budget_forget(block);
    if (orphan)
        return;
    if (free_single(&copy) != CUDA_SUCCESS)
        (void)free_single(&copy); /* nobody else will ever free it */
}

static bool outlives_its_context(const struct ag_block *block)
{
    return block->desc.source == AG_SOURCE_POOL || block->desc.source == AG_SOURCE_MANAGED_POOL ||
           block->desc.source == AG_SOURCE_PAGED;
}

static void note_gone(const struct ag_block *block)
{
    note_freed((struct freed){
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
static void wait_for_work(struct ag_context *context, bool current)
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
    wait_for_work(context, current);
    ag_context_ending(context); /* another thread may be giving back what the cache had */
    (void)ag_cache_empty(&context->cache);
    forget_set_aside(context);
    ag_guard_context_dying(context);
    ag_ipc_context_dying(context);
    ag_ipc_forget_held(context);
    ag_params_forget(); /* of its functions */
    ag_launches_forget();
    for (blocks = without_pieces(ag_ledger_claim_all(context)); blocks;) {
        struct ag_block *block = blocks;

        blocks = block->next;
        ag_guard_drop(block);
        note_managed_gone(block);
        ag_spill_remove(block->address);
        (void)ag_residency_remove(block->address);
        if (outlives_its_context(block))
            give_up(block);
        else
            ag_budget_forget(block); /* goes with the context */
    }
    ag_pool_trim(context->device);
    ag_managed_pool_trim(context->device);
    ag_context_restore(pushed);
    ag_capture_restore(mode);
    ag_free_context_gone(context);
}
