/* policy/decide.c: the whole truth table, against the rules as the documentation tells them. */
#include "policy/decide.h"

#include "tests/common/check.h"

static void check_row(unsigned bits, enum ag_policy policy)
{
    const struct ag_request request = {.capture_open = bits & 1, .exported = bits & 2};
    const struct ag_facts facts = {.has_pool = bits & 4, .has_managed = bits & 8};
    struct ag_decision decision = ag_decide(&request, &facts, policy);
    bool kept = policy == AG_POLICY_AUTO && !request.capture_open && !request.exported;
    bool could = policy == AG_POLICY_MANAGED ? facts.has_managed : facts.has_pool;

    CHECK_SAID(decision.keeps == kept, "bits %#x policy %d", bits, (int)policy);
    if (policy == AG_POLICY_NATIVE || kept) {
        CHECK(decision.place == AG_PLACE_NATIVE && decision.fallback == AG_FALLBACK_NONE);
    } else if (!request.capture_open && !request.exported && could) {
        CHECK_SAID(decision.place ==
                           (policy == AG_POLICY_MANAGED ? AG_PLACE_MANAGED : AG_PLACE_POOL) &&
                       decision.fallback == AG_FALLBACK_NONE,
                   "bits %#x policy %d", bits, (int)policy);
    } else {
        enum ag_fallback why = request.capture_open       ? AG_FALLBACK_CAPTURE
                               : request.exported         ? AG_FALLBACK_EXPORTER
                               : policy == AG_POLICY_POOL ? AG_FALLBACK_NO_POOL
                                                          : AG_FALLBACK_NO_MANAGED;

        CHECK_SAID(decision.place == AG_PLACE_NATIVE && decision.fallback == why,
                   "bits %#x policy %d: fallback %d", bits, (int)policy, (int)decision.fallback);
    }
}

int main(void)
{
    static const enum ag_policy policies[] = {AG_POLICY_AUTO, AG_POLICY_POOL, AG_POLICY_NATIVE,
                                              AG_POLICY_MANAGED};

    for (unsigned bits = 0; bits < 16; bits++) {
        for (size_t i = 0; i < N_OF(policies); i++)
            check_row(bits, policies[i]);
    }
    return 0;
}
