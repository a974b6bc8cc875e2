/* Where the memory for a request comes from: a pure function of the request, the settings and what
 * the device can do. */
#ifndef AG_POLICY_DECIDE_H
#define AG_POLICY_DECIDE_H

#include <stdbool.h>
#include <stddef.h>

#include "interpose/core/report/stats.h"
#include "interpose/core/settings/options.h"
#include "policy/mem_desc.h"

/* What is asked for. */
struct ag_request {
    bool capture_open; /* in any thread */
    bool exported;     /* to be handed to other processes or devices */
};

/* What the device can do. */
struct ag_facts {
    bool has_pool;    /* our pool exists on it */
    bool has_managed; /* it has concurrent managed access */
};

/* Why memory is not where the policy says. */
enum ag_fallback {
    AG_FALLBACK_NONE, /* it is */
    AG_FALLBACK_CAPTURE,
    AG_FALLBACK_EXPORTER,
    AG_FALLBACK_NO_POOL,
    AG_FALLBACK_NO_MANAGED,
    AG_N_FALLBACKS
};

struct ag_decision {
    enum ag_placement place;
    enum ag_fallback fallback;
    bool keeps; /* native memory that is ours to keep when it is freed */
};

/* Smaller blocks share pages with others, so they are neither advised nor prefetched. */
#define AG_WORTH_ADVICE (2u * 1024u * 1024u)
/* The size up to which the managed pool is faster than a single allocation (H200: 0.09 ms against
 * 0.2 ms for 32 MiB); above that it is slower (28 ms against 7 to 11 ms for 2 GiB). */
#define AG_MANAGED_POOL_UP_TO (32u * 1024u * 1024u)

struct ag_decision ag_decide(const struct ag_request *request, const struct ag_facts *facts,
                             enum ag_policy policy);

/* The descriptor of managed memory as `params` asks for it. Memory of the
 * managed pool takes no advice: what needs some is allocated singly. */
struct ag_mem_desc ag_decide_managed(const struct ag_request_params *params, size_t bytes,
                                     bool has_managed_pool);

/* The descriptor of memory that did not fit on the device: on the host, read over the bus. It is
 * not marked as accessed by the device, since mapping it at its first touch takes half the time
 * (H200: 204 ms against 384 ms per GiB; then 51 GB/s either way). */
struct ag_mem_desc ag_decide_spilled(void);

#endif
