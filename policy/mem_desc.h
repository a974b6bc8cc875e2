/* The memory descriptor: all that makes one block of memory different from another but its address,
 * size and owner. A cached block serves an allocation only if their descriptors are equal. */
#ifndef AG_POLICY_MEM_DESC_H
#define AG_POLICY_MEM_DESC_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "interpose/core/report/stats.h"
#include "interpose/core/settings/rules.h"

/* Which call of the driver it comes from, and so goes back by. */
enum ag_source {
    AG_SOURCE_NATIVE,       /* cuMemAlloc, freed by cuMemFree when the program frees it */
    AG_SOURCE_CACHED,       /* cuMemAlloc, ours to keep when the program frees it */
    AG_SOURCE_POOL,         /* our pool */
    AG_SOURCE_MOVABLE,      /* a range whose pieces lie on the device or on the host (paging/) */
    AG_SOURCE_PAGED,        /* pages of its own, unmapped when the program frees it: a guard */
    AG_SOURCE_PLAIN,        /* cuMemAllocManaged */
    AG_SOURCE_MANAGED_POOL, /* our managed pool */
};

/* cuMemAlloc takes whole pages of the device, which blocks smaller than one share. */
#define AG_NATIVE_PAGE ((uint64_t)2 << 20)

struct ag_mem_desc {
    unsigned source : 4; /* enum ag_source */
    /* Enumerations of rules.h for managed memory; 0 for other memory. */
    unsigned prefer : 4, access : 3, prefetch : 3;
    unsigned read_mostly : 1;
    unsigned
        spilled : 1; /* what did not fit; of a request for what can move: or may lie on the host */
    unsigned node : 16;
};

_Static_assert(sizeof(struct ag_mem_desc) == 4, "it has no gaps");

static inline bool ag_mem_desc_is_managed(struct ag_mem_desc desc)
{
    return desc.source >= AG_SOURCE_PLAIN;
}

/* Does it take room on the device? */
static inline bool ag_mem_desc_is_on_device(struct ag_mem_desc desc)
{
    return !ag_mem_desc_is_managed(desc) || desc.prefer == AG_PREFER_DEVICE ||
           desc.prefer == AG_PREFER_NONE;
}

/* Is it device memory that the program cannot tell from native, and that is ours to keep? */
static inline bool ag_mem_desc_is_plain_device(struct ag_mem_desc desc)
{
    return desc.source == AG_SOURCE_CACHED || desc.source == AG_SOURCE_POOL ||
           desc.source == AG_SOURCE_MOVABLE;
}

/* Is all of it on the budget of the device, by its size? Of what can move, that part is which lies
 * there, and its handles count it. */
static inline bool ag_mem_desc_is_budgeted(struct ag_mem_desc desc)
{
    return ag_mem_desc_is_on_device(desc) && desc.source != AG_SOURCE_MOVABLE;
}

/* May memory of one serve a request for the other? What can move and what is ours to keep may;
 * memory of a pool, which belongs to no context, serves none but its own. */
static inline bool ag_mem_desc_same(struct ag_mem_desc a, struct ag_mem_desc b)
{
    if (ag_mem_desc_is_plain_device(a) && a.source != AG_SOURCE_POOL)
        return ag_mem_desc_is_plain_device(b) && b.source != AG_SOURCE_POOL;
    return !memcmp(&a, &b, sizeof(a)); /* one word, without gaps */
}

/* Where the report counts it. */
static inline enum ag_placement ag_mem_desc_placement(struct ag_mem_desc desc)
{
    if (desc.spilled)
        return AG_PLACE_SPILLED;
    if (!ag_mem_desc_is_on_device(desc))
        return AG_PLACE_HOST;
    return desc.source == AG_SOURCE_POOL  ? AG_PLACE_POOL
           : ag_mem_desc_is_managed(desc) ? AG_PLACE_MANAGED
                                          : AG_PLACE_NATIVE;
}

#endif
