/* The program's own pools in a report: see render_pools.h. */
#include "interpose/core/report/render_pools.h"

#include <stddef.h>
#include <stdio.h>

static const char *const kind_names[] = {
    [AG_APP_POOL_UNUSED] = "unknown",  [AG_APP_POOL_DEFAULT] = "default",
    [AG_APP_POOL_CREATED] = "created", [AG_APP_POOL_IMPORTED] = "imported",
    [AG_APP_POOL_MANAGED] = "managed", [AG_APP_POOL_OTHERS] = "others",
};

/* One row, read once. */
struct pool {
    enum ag_app_pool_kind kind;
    int device;
    bool destroyed, raised, has_levels, frees_known;
    uint64_t reserved_high, used_high, frees, counts[AG_N_APP_COUNTS];
};

/* False when the row is not in use. */
static bool read_pool(const struct ag_stats *stats, unsigned i, struct pool *ret)
{
    const struct ag_app_pool_stats *row = &stats->app_pools[i];
    int kind = row->kind;
    uint64_t sum = 0;

    if (kind < 0 || kind > AG_APP_POOL_OTHERS)
        kind = AG_APP_POOL_UNUSED; /* a file of counters may hold anything */
    *ret = (struct pool){.kind = (enum ag_app_pool_kind)kind,
                         .device = row->device,
                         .destroyed = row->destroyed,
                         .raised = row->raised,
                         .has_levels = row->has_levels,
                         .reserved_high = row->reserved_high,
                         .used_high = row->used_high};
    for (unsigned which = 0; which < AG_N_APP_COUNTS; which++)
        sum += ret->counts[which] = ag_stats_app_pool_sum(stats, i, which);
    return sum != 0;
}

/* A free names no pool. With one pool in use, and nothing imported, the frees are of that pool. */
static bool frees_are_known(const struct ag_stats *stats)
{
    struct pool pool;
    unsigned n_used = 0;

    for (unsigned i = 0; i < AG_APP_POOLS; i++)
        n_used += read_pool(stats, i, &pool) &&
                  (pool.counts[AG_APP_ALLOCS] || pool.kind == AG_APP_POOL_IMPORTED);
    return n_used == 1 && !ag_stats_counter_of(stats, AG_STAT_ASYNC_MANAGED);
}

/* With its frees. */
static bool read_whole(const struct ag_stats *stats, unsigned i, struct pool *ret)
{
    if (!read_pool(stats, i, ret))
        return false;
    ret->frees_known = ret->counts[AG_APP_ALLOCS] && frees_are_known(stats);
    ret->frees = ag_stats_counter_of(stats, AG_STAT_ASYNC_FREED);
    return true;
}

/* null for what nobody knows. */
static void json_number(struct ag_emitter *json, const char *key, bool known, uint64_t value)
{
    if (known)
        ag_emit_number(json, key, value);
    else
        ag_emit_raw(json, key, "null");
}

static void json_pool(struct ag_emitter *json, const struct pool *pool)
{
    ag_emit_line(json, 1);
    ag_emit_object(json, NULL);
    ag_emit_string(json, "kind", kind_names[pool->kind]);
    json_number(json, "device", pool->device >= 0, (uint64_t)pool->device);
    ag_emit_number(json, "allocs", pool->counts[AG_APP_ALLOCS]);
    json_number(json, "frees", pool->frees_known, pool->frees);
    ag_emit_number(json, "failed", pool->counts[AG_APP_FAILED]);
    ag_emit_number(json, "alloc_bytes", pool->counts[AG_APP_BYTES]);
    ag_emit_number(json, "other_calls", pool->counts[AG_APP_CALLS]);
    json_number(json, "reserved_high_bytes", pool->has_levels, pool->reserved_high);
    json_number(json, "used_high_bytes", pool->has_levels, pool->used_high);
    ag_emit_bool(json, "destroyed", pool->destroyed);
    ag_emit_bool(json, "threshold_raised", pool->raised);
    ag_emit_end(json);
}

void ag_render_pools_json(struct ag_emitter *json, const struct ag_stats *stats)
{
    struct pool pool;
    bool any = false;

    for (unsigned i = 0; i < AG_APP_POOLS; i++) {
        if (!read_whole(stats, i, &pool))
            continue;
        if (!any) {
            ag_emit_line(json, 0);
            ag_emit_array(json, "app_pools");
        }
        json_pool(json, &pool);
        any = true;
    }
    if (any)
        ag_emit_end(json);
}

static void text_app_pool(struct ag_text *text, const struct pool *pool)
{
    char total[32], reserved[32] = "-", used[32] = "-", device[16] = "-", frees[24] = "-";

    ag_text_size(total, sizeof(total), pool->counts[AG_APP_BYTES]);
    if (pool->has_levels) {
        ag_text_size(reserved, sizeof(reserved), pool->reserved_high);
        ag_text_size(used, sizeof(used), pool->used_high);
    }
    if (pool->device >= 0)
        snprintf(device, sizeof(device), "%d", pool->device);
    if (pool->frees_known)
        snprintf(frees, sizeof(frees), "%llu", (unsigned long long)pool->frees);
    ag_text_add(text, "    %-8s %6s %10llu %10s %12s %12s %12s%s%s\n", kind_names[pool->kind],
                device, (unsigned long long)pool->counts[AG_APP_ALLOCS], frees, total, used,
                reserved, pool->raised ? "  kept" : "", pool->destroyed ? "  destroyed" : "");
}

/* Renders only pools that something was asked of: many programs look at the default pool and leave
 * it. */
void ag_render_pools_text(struct ag_text *text, const struct ag_stats *stats)
{
    struct pool pool;
    bool first = true;

    for (unsigned i = 0; i < AG_APP_POOLS; i++) {
        if (!read_whole(stats, i, &pool) ||
            (!pool.counts[AG_APP_ALLOCS] && !pool.counts[AG_APP_FAILED]))
            continue;
        if (first)
            ag_text_add(text, "  the program's own pools\n    %-8s %6s %10s %10s %12s %12s %12s\n",
                        "pool", "device", "allocs", "frees", "total", "used high", "held high");
        text_app_pool(text, &pool);
        first = false;
    }
}
