/* From the settings, the rules and the phase of the device to a memory descriptor: see plan.h. */
#include "policy/alloc/plan.h"

#include "interpose/core/base/log.h"
#include "interpose/core/report/stats.h"
#include "interpose/core/settings/caller.h"
#include "policy/alloc/alloc.h"
#include "policy/backends/backend.h"
#include "policy/backends/managed_pool.h"
#include "policy/budget.h"
#include "policy/churn.h"
#include "policy/guard/guard.h"
#include "policy/managed/spill.h"
#include "policy/order/capture.h"
#include "policy/paging/ranges.h"
#include "policy/slab.h"

static struct ag_request_params defaults = {.policy = AG_POLICY_AUTO};
static const struct ag_rules *rules;

bool ag_plan_configure(const struct ag_request_params *new_defaults,
                       const struct ag_rules *new_rules)
{
    defaults = *new_defaults;
    rules = new_rules && new_rules->n ? new_rules : NULL;
    return !rules && !ag_guard_is_on() && !ag_budget_is_limited() &&
           (defaults.policy == AG_POLICY_AUTO || defaults.policy == AG_POLICY_POOL);
}

/* Does the rule say where memory is to come from? */
static bool names_placement(int rule)
{
    return rule >= 0 && rules->rule[rule].says & 1u << AG_SAYS_POLICY;
}

/* Native memory that a process with an IPC handle may ask for is the driver's, as long as nothing
 * is known of the program but that it allocates a little, or once it has shared some. */
static bool is_cut_natively(const struct ag_device *device)
{
    return ag_churn_cuts(&device->churn) && !ag_churn_is_shared();
}

bool ag_plan_cuts(const struct ag_device *device, struct ag_mem_desc desc, size_t size)
{
    return size <= ag_slab_largest() && desc.source != AG_SOURCE_NATIVE &&
           ag_mem_desc_is_on_device(desc) && device->limit >= AG_SLAB_LIMIT &&
           (desc.source != AG_SOURCE_CACHED || is_cut_natively(device));
}

/* On managed memory, by the program itself. Relaxed: of what is allocated after the first. */
static _Atomic bool expects_advice;

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
        (params->backend == AG_MANAGED_AUTO &&
         ag_plan_cuts(device, desc, ag_cache_block_size(bytes))) ||
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
static bool pool_serves(struct ag_device *device, enum ag_policy policy)
{
    if (policy == AG_POLICY_AUTO)
        ag_churn_allocates(&device->churn);
    return policy == AG_POLICY_POOL && ag_pool_ready(device);
}

/* Pages of its own take the place of any other memory of the device. */
static void guard(struct ag_plan *plan, size_t bytes, bool exported)
{
    plan->guarded = ag_guard_wants(exported);
    if (!plan->guarded)
        return;
    plan->room = ag_guard_room(bytes);
    if (ag_guard_mode == AG_GUARD_PAGE && !ag_mem_desc_is_managed(plan->desc))
        plan->desc = (struct ag_mem_desc){.source = AG_SOURCE_PAGED};
}

/* Is plain device memory to be of the kind that can move? Not what others may get at by themselves,
 * nor what a rule has put somewhere. */
static bool can_move(const struct ag_plan *plan, const struct ag_request *request, size_t bytes)
{
    return bytes >= AG_RANGE_LEAST && !request->capture_open && !request->exported &&
           !ag_mem_desc_is_managed(plan->desc) && !ag_guard_is_on() &&
           !names_placement(plan->choice.rule) && !ag_churn_is_shared() && !ag_churn_is_reached();
}

void ag_plan_make(struct ag_plan *plan, struct ag_context *context, size_t bytes,
                  const void *caller)
{
    struct ag_request request = {.capture_open = ag_capture_is_open()};
    struct ag_facts facts = {.has_managed = context->device->has_managed};
    struct ag_request_params params = defaults;
    bool exporter = ag_caller_is_exporter(caller);

    *plan = (struct ag_plan){.choice.rule = -1, .ruled = rules, .room = bytes};
    if (rules)
        plan->choice =
            ag_inject_choose(AG_CALL_DEVICE, bytes, context->device->ordinal, exporter, caller);
    if (plan->choice.fails)
        return;
    if (plan->choice.rule >= 0)
        ag_rule_apply(&rules->rule[plan->choice.rule], &params);
    request.exported = exporter && !names_placement(plan->choice.rule);
    if (!request.capture_open && !request.exported)
        facts.has_pool = pool_serves(context->device, params.policy);
    plan->decision = ag_decide(&request, &facts, params.policy);
    if (plan->decision.fallback != AG_FALLBACK_NONE)
        count_fallback(context->device, plan->decision.fallback);
    plan->desc = desc_of(context->device, plan->decision, &params, bytes);
    if (ag_ranges_wanted() && can_move(plan, &request, bytes))
        plan->desc = (struct ag_mem_desc){.source = AG_SOURCE_MOVABLE};
    if (ag_guard_is_on())
        guard(plan, bytes, request.exported);
}

bool ag_plan_redirects(void)
{
    return defaults.policy != AG_POLICY_NATIVE || rules || ag_budget_is_limited() ||
           ag_spill_wanted() || ag_ranges_wanted() || ag_guard_is_on();
}
