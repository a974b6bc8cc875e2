/* stats.c: sums over the slots of many threads, levels and their peaks, the edges of the histogram,
 * devices beyond the table. */
#include "interpose/core/report/stats.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "interpose/core/report/live/allocations.h"
#include "interpose/core/report/live/live.h"
#include "tests/common/check.h"

#define PLACE_SUM(device, place, member) \
    ag_stats_sum(offsetof(struct ag_stats_slot, places[device][place].member))

#define RULE_SUM(rule, member) ag_stats_sum(offsetof(struct ag_stats_slot, rules[rule].member))

static uint64_t histogram(unsigned class)
{
    return PLACE_SUM(0, AG_PLACE_POOL, sizes[class]);
}

/* Class c holds sizes above 2^(c+8) and up to 2^(c+9); the first also all below, the last all
 * above. */
static void counts_sizes(void)
{
    for (unsigned class = 0; class < AG_SIZE_CLASSES; class ++) {
        uint64_t up_to = 1ull << (class + 9);
        const uint64_t inside[] = {class ? up_to / 2 + 1 : 1, up_to};

        for (size_t i = 0; i < N_OF(inside); i++) {
            ag_live_reset();
            ag_stats_allocated(0, AG_PLACE_POOL, inside[i], 0);
            for (unsigned other = 0; other < AG_SIZE_CLASSES; other++)
                CHECK_SAID(histogram(other) == (other == class), "%llu in class %u",
                           (unsigned long long)inside[i], other);
        }
    }
    ag_live_reset();
    ag_stats_allocated(0, AG_PLACE_POOL, 0, 0);
    ag_stats_allocated(0, AG_PLACE_POOL, UINT64_MAX, 0);
    ag_stats_allocated(0, AG_PLACE_POOL, (1ull << (AG_SIZE_CLASSES + 8)) + 1, 0);
    CHECK(histogram(0) == 1 && histogram(AG_SIZE_CLASSES - 1) == 2);
}

static void keeps_levels(void)
{
    struct ag_level level = {0};

    ag_level_add(&level, 100);
    ag_level_add(&level, 50);
    ag_level_subtract(&level, 120);
    ag_level_add(&level, 60);
    CHECK(ag_level_current(&level) == 90 && level.peak == 150);
    ag_level_add(&level, 61);
    CHECK(level.peak == 151);
    ag_level_subtract(&level, 151);
    ag_level_subtract(&level, 100); /* of the same */
    CHECK(ag_level_current(&level) == 0);
}

static void keeps_places_apart(void)
{
    static const int devices[] = {0, 1, AG_STATS_DEVICES - 1, AG_STATS_DEVICES, 1000, -1};

    ag_live_reset();
    for (size_t i = 0; i < N_OF(devices); i++) {
        ag_stats_allocated(devices[i], AG_PLACE_MANAGED, 1000, 5);
        ag_stats_allocated(devices[i], AG_PLACE_MANAGED, 10, 5);
        ag_stats_freed(devices[i], AG_PLACE_MANAGED, 10, 7);
        ag_stats_failed(devices[i], AG_PLACE_NATIVE);
    }
    for (unsigned device = 0; device < AG_STATS_DEVICES; device++) {
        /* What is not in the table shares the last row. */
        uint64_t n = device < 2 ? 1 : device == AG_STATS_DEVICES - 1 ? 4 : 0;

        CHECK(PLACE_SUM(device, AG_PLACE_MANAGED, allocs) == 2 * n);
        CHECK(PLACE_SUM(device, AG_PLACE_MANAGED, frees) == n);
        CHECK(PLACE_SUM(device, AG_PLACE_MANAGED, alloc_bytes) == 1010 * n);
        CHECK(PLACE_SUM(device, AG_PLACE_MANAGED, alloc_ticks) == 10 * n);
        CHECK(PLACE_SUM(device, AG_PLACE_MANAGED, free_ticks) == 7 * n);
        CHECK(PLACE_SUM(device, AG_PLACE_MANAGED, failed) == 0);
        CHECK(PLACE_SUM(device, AG_PLACE_NATIVE, failed) == n);
        CHECK(PLACE_SUM(device, AG_PLACE_NATIVE, allocs) == 0);
        CHECK(ag_stats_current((int)device, AG_PLACE_MANAGED) == 1000 * n);
        CHECK(ag_stats_current((int)device, AG_PLACE_POOL) == 0);
    }
}

#define N_THREADS 40u /* more than there are slots */
#define N_COUNTS  2000u

static void *count(void *unused)
{
    (void)unused;
    for (unsigned i = 0; i < N_COUNTS; i++) {
        ag_stats_add(AG_STAT_CACHE_HIT, 2);
        ag_stats_hit((enum ag_hook)(AG_N_HOOKS - 1));
        ag_stats_allocated(0, AG_PLACE_POOL, 4096, 1);
        ag_stats_freed(0, AG_PLACE_POOL, 4096, 1);
    }
    return NULL;
}

static void counts_in_threads(void)
{
    pthread_t threads[N_THREADS];
    const uint64_t n = (uint64_t)N_THREADS * N_COUNTS;

    ag_live_reset();
    for (unsigned i = 0; i < N_THREADS; i++)
        CHECK(!pthread_create(&threads[i], NULL, count, NULL));
    for (unsigned i = 0; i < N_THREADS; i++)
        CHECK(!pthread_join(threads[i], NULL));
    CHECK(ag_stats_counter(AG_STAT_CACHE_HIT) == 2 * n &&
          ag_stats_counter(AG_STAT_CACHE_MISS) == 0);
    CHECK(ag_stats_hits((enum ag_hook)(AG_N_HOOKS - 1)) == n &&
          ag_stats_hits((enum ag_hook)0) == 0);
    CHECK(PLACE_SUM(0, AG_PLACE_POOL, allocs) == n && histogram(3) == n);
    CHECK(ag_stats_current(0, AG_PLACE_POOL) == 0);
    CHECK(ag_stats.peak_bytes[0][AG_PLACE_POOL] >= 4096);
    CHECK(ag_stats.peak_bytes[0][AG_PLACE_POOL] <= 4096 * N_THREADS);
}

/* The rows that the code indexes by an enumeration of another file. */
static void rows_are_unlike(void)
{
    static const struct {
        const char *group, *key;
    } rows[] = {
#define AG_STAT(id, group, key, label) {#group, #key},
#include "interpose/core/report/stats.def"
    };

    CHECK(N_OF(rows) == AG_N_STATS);
    for (size_t i = 0; i < N_OF(rows); i++) {
        for (size_t j = 0; j < i; j++)
            CHECK_SAID(strcmp(rows[i].group, rows[j].group) || strcmp(rows[i].key, rows[j].key),
                       "%s.%s is there twice", rows[i].group, rows[i].key);
    }
}

static void counts_rules(void)
{
    static const int rules[] = {0, 1, AG_MAX_RULES - 1, -1, AG_MAX_RULES, 1000};

    ag_live_reset();
    for (size_t i = 0; i < N_OF(rules); i++)
        ag_stats_rule_hit(rules[i], 10 + i);
    ag_stats_rule_hit(1, 100);
    CHECK(RULE_SUM(0, hits) == 1 && RULE_SUM(0, bytes) == 10);
    CHECK(RULE_SUM(1, hits) == 2 && RULE_SUM(1, bytes) == 111);
    CHECK(RULE_SUM(2, hits) == 0 && RULE_SUM(AG_MAX_RULES - 1, bytes) == 12);
    CHECK(RULE_SUM(AG_MAX_RULES, hits) == 3 && RULE_SUM(AG_MAX_RULES, bytes) == 13 + 14 + 15);
}

int main(void)
{
    counts_sizes();
    keeps_levels();
    counts_rules();
    keeps_places_apart();
    counts_in_threads();
    rows_are_unlike();
    return 0;
}
