/* The decision itself: see decide.h. */
#include "policy/decide.h"

static struct ag_decision fall_back(enum ag_fallback why)
{
    return (struct ag_decision){.place = AG_PLACE_NATIVE, .fallback = why};
}

struct ag_decision ag_decide(const struct ag_request *request, const struct ag_facts *facts,
                             enum ag_policy policy)
{
    struct ag_decision decision = {.place = AG_PLACE_NATIVE};

    if (policy == AG_POLICY_MANAGED)
        decision.place = AG_PLACE_MANAGED;
    else if (policy == AG_POLICY_POOL)
        decision.place = AG_PLACE_POOL;
    else if (policy == AG_POLICY_AUTO)
        decision.keeps = true;
    if (decision.place == AG_PLACE_NATIVE && !decision.keeps)
        return decision;
    /* The driver itself says whether an allocation is legal in a capture. */
    if (request->capture_open)
        return fall_back(AG_FALLBACK_CAPTURE);
    if (request->exported)
        return fall_back(AG_FALLBACK_EXPORTER);
    if (decision.place == AG_PLACE_POOL && !facts->has_pool)
        return fall_back(AG_FALLBACK_NO_POOL);
    if (decision.place == AG_PLACE_MANAGED && !facts->has_managed)
        return fall_back(AG_FALLBACK_NO_MANAGED);
    return decision;
}

static bool needs_advice(const struct ag_request_params *params)
{
    return params->prefer.kind == AG_PREFER_HOST || params->prefer.kind == AG_PREFER_NUMA ||
           params->access == AG_ACCESS_PEERS || params->read_mostly;
}

struct ag_mem_desc ag_decide_managed(const struct ag_request_params *params, size_t bytes,
                                     bool has_managed_pool)
{
    struct ag_mem_desc desc = {.source = AG_SOURCE_PLAIN};
    bool advised = bytes >= AG_WORTH_ADVICE && needs_advice(params);

    if (has_managed_pool && !advised &&
        (params->backend == AG_MANAGED_POOL ||
         (params->backend == AG_MANAGED_AUTO && bytes <= AG_MANAGED_POOL_UP_TO)))
        desc.source = AG_SOURCE_MANAGED_POOL;
    if (bytes < AG_WORTH_ADVICE) {
        desc.prefer = AG_PREFER_NONE;
        desc.access = AG_ACCESS_NONE;
        desc.prefetch = AG_PREFETCH_OFF;
        return desc;
    }
    desc.prefer = params->prefer.kind;
    desc.node = params->prefer.node & UINT16_MAX;
    desc.access = params->access;
    desc.prefetch = params->prefetch;
    desc.read_mostly = params->read_mostly;
    return desc;
}

struct ag_mem_desc ag_decide_spilled(void)
{
    return (struct ag_mem_desc){.source = AG_SOURCE_PLAIN,
                                .prefer = AG_PREFER_HOST,
                                .access = AG_ACCESS_NONE,
                                .prefetch = AG_PREFETCH_OFF,
                                .spilled = true};
}
