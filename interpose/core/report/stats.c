/* The counters' memory and their sums: see stats.h. */
#include "interpose/core/report/stats.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "interpose/core/base/hash.h"
#include "interpose/core/base/pages.h"
#include "interpose/core/settings/options.h"

struct ag_stats ag_stats;

const struct ag_stat_row ag_stat_rows[AG_N_STATS] = {
#define AG_STAT(id, group, key, label) {#group, #key, label},
#include "interpose/core/report/stats.def"
};

const char *const ag_placement_names[AG_N_PLACEMENTS] = {"native", "pool", "managed", "host",
                                                         "spilled"};

const char *const ag_guard_where_names[3] = {
    [AG_GUARD_BEFORE] = "before",
    [AG_GUARD_BEHIND] = "behind",
    [AG_GUARD_INSIDE] = "after the free of",
};
const char *const ag_guard_occasion_names[4] = {
    [AG_GUARD_WHEN_FREED] = "when it was freed",
    [AG_GUARD_WHEN_REUSED] = "before it was used again",
    [AG_GUARD_WHEN_CONTEXT] = "when its context ended",
    [AG_GUARD_WHEN_EXIT] = "when the process ended",
};

_Static_assert(sizeof(struct ag_stats) % AG_STATS_PAGE == 0, "other variables share its pages");

void ag_stats_prepare(void)
{
    struct ag_stats_slot *own = &ag_stats.slots[ag_slot()];

    ag_pages_ready(own, offsetof(struct ag_stats_slot, places) + sizeof(own->places[0]));
}

static uint64_t mix(uint64_t hash, const char *text)
{
    return ag_hash_bytes(hash, text, strlen(text) + 1);
}

uint64_t ag_stats_fingerprint(void)
{
    static const char *const names[] = {
#define AG_STAT(id, group, key, label) #group "." #key,
#include "interpose/core/report/stats.def"
#define AG_HOOK(base, symbol, since, flavour, need, flush) #symbol,
#include "interpose/core/driver/hooks.def"
    };
    uint64_t hash = AG_HASH_FNV;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        hash = mix(hash, names[i]);
    for (size_t i = 0; i < ag_options_count(); i++)
        hash = mix(hash, ag_option_info(i)->name);
    hash ^= (uint64_t)offsetof(struct ag_stats, slots) << 40 ^
            (uint64_t)sizeof(struct ag_stats_slot) << 20 ^ offsetof(struct ag_stats, pending_bytes);
    return hash;
}

unsigned ag_stats_find_own(void)
{
    unsigned slot = ag_slot();

    if (slot < AG_OWN_SLOTS)
        ag_slot_counters = &ag_stats.slots[slot];
    return slot;
}

void ag_stats_add_first(enum ag_stat id, uint64_t n)
{
    unsigned slot = ag_stats_find_own();

    ag_stats_count(slot, &ag_stats.slots[slot].counters[id], n);
}

void ag_stats_hit_first(enum ag_hook hook)
{
    unsigned slot = ag_stats_find_own();

    ag_stats_count(slot, &ag_stats.slots[slot].hits[hook], 1);
}

void ag_stats_replay(const char *unavailable)
{
    snprintf(ag_stats.head.replay, sizeof(ag_stats.head.replay), "%s",
             unavailable ? unavailable : "on");
}

bool ag_stats_mark(const char *name, uint64_t ns, uint64_t bytes)
{
    char cut[sizeof(ag_stats.marks[0].name)];
    struct ag_mark_stats *mark = NULL;
    uint32_t n, i = 0;

    snprintf(cut, sizeof(cut), "%s", name);
    n = atomic_load_explicit(&ag_stats.n_marks, memory_order_relaxed);
    while (i < n && strcmp(ag_stats.marks[i].name, cut) != 0)
        i++;
    if (i < AG_MARKS)
        mark = &ag_stats.marks[i];
    if (mark && i == n) {
        memcpy(mark->name, cut, sizeof(cut));
        atomic_store_explicit(&mark->first_ns, ns, memory_order_relaxed);
        atomic_store_explicit(&ag_stats.n_marks, n + 1, memory_order_release);
    }
    if (!mark)
        return false;
    atomic_store_explicit(&mark->last_ns, ns, memory_order_relaxed);
    atomic_store_explicit(&mark->bytes, bytes, memory_order_relaxed);
    (void)atomic_fetch_add_explicit(&mark->count, 1, memory_order_relaxed);
    return true;
}

void ag_stats_device_met(int ordinal, const char *name, uint64_t total_bytes)
{
    uint32_t n = atomic_load_explicit(&ag_stats.n_devices, memory_order_relaxed);

    if (n >= AG_STATS_DEVICES_MET)
        return;
    ag_stats.devices[n] = (struct ag_stats_device){.ordinal = ordinal, .total_bytes = total_bytes};
    snprintf(ag_stats.devices[n].name, sizeof(ag_stats.devices[n].name), "%s", name);
    atomic_store_explicit(&ag_stats.n_devices, n + 1, memory_order_release);
}

uint64_t ag_stats_sum(size_t offset)
{
    return ag_stats_sum_of(&ag_stats, offset);
}

uint64_t ag_stats_sum_of(const struct ag_stats *stats, size_t offset)
{
    uint32_t slots = stats == &ag_stats ? ag_slots_used() : UINT32_MAX;
    uint64_t sum = 0;

    for (unsigned i = 0; i < AG_SLOTS; i++) {
        const char *slot = (const char *)&stats->slots[i];

        if (!ag_slots_have(slots, i))
            continue; /* its pages may not be there yet */
        /* In the order that the caller asks: ag_live_of() takes one sum before the other. */
        sum += atomic_load_explicit((const _Atomic uint64_t *)(const void *)(slot + offset),
                                    memory_order_acquire);
    }
    return sum;
}

uint64_t ag_stats_counter_of(const struct ag_stats *stats, enum ag_stat id)
{
    return ag_stats_sum_of(stats, offsetof(struct ag_stats_slot, counters) + id * sizeof(uint64_t));
}

uint64_t ag_stats_counter(enum ag_stat id)
{
    return ag_stats_counter_of(&ag_stats, id);
}

uint64_t ag_stats_hits(enum ag_hook hook)
{
    return ag_stats_sum(offsetof(struct ag_stats_slot, hits) + hook * sizeof(uint64_t));
}

/* `before` is relaxed: changed under the lock of the table of pools, and read for the report. */
uint64_t ag_stats_app_pool_sum(const struct ag_stats *stats, unsigned row, enum ag_app_count which)
{
    return ag_stats_sum_of(stats, offsetof(struct ag_stats_slot, app_pools[row][which])) -
           atomic_load_explicit(&stats->app_pools[row].before[which], memory_order_relaxed);
}
