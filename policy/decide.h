/* Request + settings + what the device can do -> where the memory comes from. Pure. */
#ifndef AG_POLICY_DECIDE_H
#define AG_POLICY_DECIDE_H

#include <stdbool.h>
#include <stddef.h>

#include "interpose/report/stats.h"
#include "interpose/settings/options.h"
#include "policy/mem_desc.h"

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

/* Blocks below it share pages with others: they are neither advised nor prefetched. */
#define AG_WORTH_ADVICE (2u * 1024u * 1024u)
/* Up to this size the managed pool is ready sooner than a single allocation (H200: 32 MiB 0.09 ms
 * against 0.2 ms), beyond it later (2 GiB: 28 ms against 7 to 11). */
#define AG_MANAGED_POOL_UP_TO (32u * 1024u * 1024u)

/* The memory descriptor of managed memory that serves the params. Memory of the managed pool takes no advice:
 * where the params needs some, single allocations serve it. */
struct ag_mem_desc ag_decide_managed(const struct ag_request_params *params, size_t bytes,
                                     bool has_managed_pool);

/* The memory descriptor of what did not fit: on the host, read by the device over the bus. Not marked as
 * accessed by the device: it is mapped at its first touch just as well, and that takes half the
 * time then (H200: 204 ms against 384 ms per GiB, then 51 GB/s both). */
struct ag_mem_desc ag_decide_spilled(void);

struct ag_decision ag_decide(const struct ag_request *request, const struct ag_facts *facts,
                             enum ag_policy policy);

#endif
