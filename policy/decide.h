/* Request + settings + what the device can do -> where the memory comes from. Pure. */
#ifndef AG_POLICY_DECIDE_H
#define AG_POLICY_DECIDE_H

#include <stdbool.h>
#include <stddef.h>

#include "options.h"
#include "stats.h"

struct ag_request {
    size_t bytes;
    bool capture_open; /* in any thread */
    bool exported;     /* to be handed to other processes or devices */
};

struct ag_facts {
    bool known_context; /* we keep books for it */
    bool has_pool;      /* our pool exists on its device */
    bool has_managed;   /* the device has concurrent managed access */
};

struct ag_decision {
    enum ag_placement place;
    enum ag_stat fallback; /* why not where the policy says; AG_N_STATS when it is there */
};

struct ag_decision ag_decide(const struct ag_request *request, const struct ag_facts *facts,
                             enum ag_policy policy);

#endif
