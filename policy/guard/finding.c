/* Telling what was found: see finding.h. */
#include "policy/guard/finding.h"

#include <inttypes.h>
#include <stdio.h>

#include "interpose/core/base/log.h"
#include "interpose/core/settings/caller.h"

/* The next free row of the report, or NULL. Relaxed: each number is one thread's. */
static struct ag_guard_finding *next_row(void)
{
    uint32_t i = atomic_fetch_add_explicit(&ag_stats.n_guard_findings, 1, memory_order_relaxed);

    return i < AG_GUARD_FINDINGS ? &ag_stats.guard_findings[i] : NULL;
}

static void count_finding(enum ag_guard_where where)
{
    static const enum ag_stat counters[] = {
        [AG_GUARD_BEFORE] = AG_STAT_GUARD_BEFORE,
        [AG_GUARD_BEHIND] = AG_STAT_GUARD_BEHIND,
        [AG_GUARD_INSIDE] = AG_STAT_GUARD_INSIDE,
    };

    ag_stats_add(counters[where], 1);
}

/* The offset of the first wrong byte, counted from the program's address. */
static int64_t offset_from_block(const struct ag_guard_checked *checked, enum ag_guard_where where,
                                 uint64_t first)
{
    if (where == AG_GUARD_BEFORE)
        return (int64_t)first - (int64_t)AG_GUARD_EDGE;
    return (int64_t)(where == AG_GUARD_BEHIND ? checked->bytes + first : first);
}

static void tell_finding(const struct ag_guard_finding *finding)
{
    ag_log_warn(
        "guard: %" PRIu64 " bytes were written %s the block of %" PRIu64 " bytes at 0x%" PRIx64
        ", the first at offset %" PRId64 "; allocated by %s, %s%s, found %s",
        finding->wrong, ag_guard_where_names[finding->where], finding->bytes, finding->address,
        finding->offset, finding->allocated_by, *finding->freed_by ? "freed by " : "not freed",
        finding->freed_by, ag_guard_occasion_names[finding->when]);
}

void ag_guard_tell(const struct ag_guard_checked *checked, enum ag_guard_where where,
                   struct ag_guard_wrong wrong)
{
    struct ag_guard_finding finding = {
        .where = where,
        .when = checked->when,
        .device = checked->device,
        .address = checked->address,
        .bytes = checked->bytes,
        .offset = offset_from_block(checked, where, wrong.first),
        .wrong = wrong.n,
    };
    struct ag_guard_finding *row;

    if (!wrong.n)
        return;
    ag_caller_text(checked->allocated_by, finding.allocated_by, sizeof(finding.allocated_by));
    if (checked->freed_by)
        ag_caller_text(checked->freed_by, finding.freed_by, sizeof(finding.freed_by));
    count_finding(where);
    tell_finding(&finding);
    row = next_row();
    if (row) {
        finding.used = 1;
        *row = finding;
    }
}
