/* What an allocation is to be, by the settings, the first rule that applies, and the device. */
#ifndef AG_POLICY_ALLOC_PLAN_H
#define AG_POLICY_ALLOC_PLAN_H

#include <stdbool.h>
#include <stddef.h>

#include "interpose/core/settings/options.h"
#include "interpose/core/settings/rules.h"
#include "policy/contexts/context.h"
#include "policy/decide.h"
#include "policy/inject.h"
#include "policy/mem_desc.h"

struct ag_plan {
    struct ag_decision decision;
    struct ag_mem_desc desc;
    struct ag_choice choice; /* of a rule */
    bool ruled;              /* there are rules */
    size_t room;             /* bytes to allocate, with those of guards */
    bool guarded;
};

/* Before the first allocation; the rules (NULL for none) must stay. True: no setting makes a
 * difference between requests but that of their size. */
bool ag_plan_configure(const struct ag_request_params *defaults, const struct ag_rules *rules);

void ag_plan_make(struct ag_plan *plan, struct ag_context *context, size_t bytes,
                  const void *caller);

/* Are blocks of that descriptor and of `size` (from ag_cache_block_size) cut from slabs? */
bool ag_plan_cuts(const struct ag_device *device, struct ag_mem_desc desc, size_t size);

/* Could an allocation be anything but native, or over a limit? */
bool ag_plan_redirects(void);

#endif
