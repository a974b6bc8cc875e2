/* The decision itself: see decide.h. */
#include "decide.h"

static struct ag_decision fall_back(enum ag_stat why)
{
    return (struct ag_decision){AG_PLACE_NATIVE, why};
}

struct ag_decision ag_decide(const struct ag_request *request, const struct ag_facts *facts,
                             enum ag_policy policy)
{
    enum ag_placement place = policy == AG_POLICY_POOL      ? AG_PLACE_POOL
                              : policy == AG_POLICY_MANAGED ? AG_PLACE_MANAGED
                                                            : AG_PLACE_NATIVE;

    if (place == AG_PLACE_NATIVE)
        return (struct ag_decision){place, AG_N_STATS};
    if (!facts->known_context)
        return fall_back(AG_STAT_FALLBACK_NO_CONTEXT);
    /* The driver's own allocation is legal or not exactly as natively. */
    if (request->capture_open)
        return fall_back(AG_STAT_FALLBACK_CAPTURE);
    if (request->exported)
        return fall_back(AG_STAT_FALLBACK_EXPORTER);
    if (place == AG_PLACE_POOL && !facts->has_pool)
        return fall_back(AG_STAT_FALLBACK_NO_POOL);
    if (place == AG_PLACE_MANAGED && !facts->has_managed)
        return fall_back(AG_STAT_FALLBACK_NO_MANAGED);
    return (struct ag_decision){place, AG_N_STATS};
}
