/* What a guard found: a line on stderr, and a row of the report. */
#ifndef AG_GUARD_FINDING_H
#define AG_GUARD_FINDING_H

#include "interpose/core/report/stats.h"
#include "policy/guard/device_bytes.h"

/* The block that was checked. */
struct ag_guard_checked {
    CUdeviceptr address;
    size_t bytes;
    int device;
    const void *allocated_by; /* return addresses of the program's calls */
    const void *freed_by;     /* NULL: it is not freed */
    enum ag_guard_occasion when;
};

/* `wrong`: offsets into the canary, or the block. */
void ag_guard_tell(const struct ag_guard_checked *checked, enum ag_guard_where where,
                   struct ag_guard_wrong wrong);

#endif
