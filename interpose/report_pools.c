/* The program's own pools in the report: see report_pools.h. */
#include "report_pools.h"

#include <stdio.h>

#include "app_pools.h"
#include "stats.h"

static const char *const kind_names[] = {"default", "created", "imported", "managed"};

/* A free names no pool. With one pool in use, and nothing imported, the frees are of that pool. */
static bool frees_are_known(void)
{
    struct ag_app_pool_info info;
    unsigned n_used = 0;

    for (unsigned i = 0; i < AG_APP_POOLS; i++)
        n_used += ag_app_pool_info(i, &info) &&
                  (info.counts[AG_APP_ALLOCS] || info.kind == AG_APP_POOL_IMPORTED);
    return n_used == 1 && !ag_stats_counter(AG_STAT_ASYNC_MANAGED);
}

static const char *kind_of(const struct ag_app_pool_info *info)
{
    return info->others ? "others" : kind_names[info->kind];
}

static void json_number(struct ag_text *text, const char *key, bool known, uint64_t value)
{
    if (known)
        ag_text_add(text, ",\"%s\":%llu", key, (unsigned long long)value);
    else
        ag_text_add(text, ",\"%s\":null", key);
}

static void json_pool(struct ag_text *text, const struct ag_app_pool_info *info)
{
    bool frees_known = info->counts[AG_APP_ALLOCS] && frees_are_known();

    ag_text_add(text, "{\"kind\":\"%s\"", kind_of(info));
    json_number(text, "device", info->device >= 0, (uint64_t)info->device);
    json_number(text, "allocs", true, info->counts[AG_APP_ALLOCS]);
    json_number(text, "frees", frees_known, ag_stats_counter(AG_STAT_ASYNC_FREED));
    json_number(text, "failed", true, info->counts[AG_APP_FAILED]);
    json_number(text, "alloc_bytes", true, info->counts[AG_APP_BYTES]);
    json_number(text, "other_calls", true, info->counts[AG_APP_CALLS]);
    json_number(text, "reserved_high_bytes", info->has_levels, info->reserved_high);
    json_number(text, "used_high_bytes", info->has_levels, info->used_high);
    ag_text_add(text, ",\"destroyed\":%s,\"threshold_raised\":%s}",
                info->alive || info->others ? "false" : "true", info->kept ? "true" : "false");
}

void ag_report_pools_json(struct ag_text *text)
{
    struct ag_app_pool_info info;
    bool first = true;

    for (unsigned i = 0; i < AG_APP_POOLS; i++) {
        if (!ag_app_pool_info(i, &info))
            continue;
        ag_text_add(text, first ? "\"app_pools\":[\n " : ",\n ");
        json_pool(text, &info);
        first = false;
    }
    if (!first)
        ag_text_add(text, "],\n");
}

static void text_pool(struct ag_text *text, const struct ag_app_pool_info *info)
{
    bool frees_known = info->counts[AG_APP_ALLOCS] && frees_are_known();
    char total[32], reserved[32] = "-", used[32] = "-", device[16] = "-", frees[24] = "-";

    ag_text_size(total, sizeof(total), info->counts[AG_APP_BYTES]);
    if (info->has_levels) {
        ag_text_size(reserved, sizeof(reserved), info->reserved_high);
        ag_text_size(used, sizeof(used), info->used_high);
    }
    if (info->device >= 0)
        snprintf(device, sizeof(device), "%d", info->device);
    if (frees_known)
        snprintf(frees, sizeof(frees), "%llu",
                 (unsigned long long)ag_stats_counter(AG_STAT_ASYNC_FREED));
    ag_text_add(text, "    %-8s %6s %10llu %10s %12s %12s %12s%s%s\n", kind_of(info), device,
                (unsigned long long)info->counts[AG_APP_ALLOCS], frees, total, used, reserved,
                info->kept ? "  kept" : "", info->alive || info->others ? "" : "  destroyed");
}

void ag_report_pools_text(struct ag_text *text)
{
    struct ag_app_pool_info info;
    bool first = true;

    for (unsigned i = 0; i < AG_APP_POOLS; i++) {
        if (!ag_app_pool_info(i, &info) ||
            (!info.counts[AG_APP_ALLOCS] && !info.counts[AG_APP_FAILED]))
            continue;
        if (first)
            ag_text_add(text, "  the program's own pools\n    %-8s %6s %10s %10s %12s %12s %12s\n",
                        "pool", "device", "allocs", "frees", "total", "used high", "held high");
        text_pool(text, &info);
        first = false;
    }
}
