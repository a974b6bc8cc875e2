/* base/map.c: random puts, takes and looks against a plain array, with keys that fall together;
 * many maps that share their tables. */
#include "interpose/core/base/map.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/common/chance.h"
#include "tests/common/check.h"

#define N_KEYS 3000u
#define STEPS  ALONE(200000)

/* Key i of a run: neighbouring addresses, keys that differ in high bits only, and any at all. */
static uint64_t key_of(unsigned i, unsigned kind)
{
    uint64_t state = i;

    if (kind == 0)
        return 0x7f0000000000u + (uint64_t)i * 512;
    if (kind == 1)
        return (uint64_t)(i + 1) << 48;
    return chance(&state) | 1;
}

static void check_all(const struct ag_map *map, void *const *model, unsigned kind, unsigned step)
{
    size_t count = 0;

    for (unsigned i = 0; i < N_KEYS; i++) {
        CHECK_SAID(ag_map_get(map, key_of(i, kind)) == model[i], "kind %u, step %u, key %u", kind,
                   step, i);
        count += model[i] != NULL;
    }
    CHECK_SAID(map->count == count, "kind %u, step %u", kind, step);
    CHECK(map->count * 2 <= map->capacity);
}

static void agrees_with_a_model(unsigned kind, bool is_lent)
{
    struct ag_map_entry first[16] = {{0}};
    static void *model[N_KEYS];
    static char values[N_KEYS * 2];
    struct ag_map map = {0};
    uint64_t state = kind + 1;

    memset(model, 0, sizeof(model));
    if (is_lent)
        ag_map_begin(&map, first, N_OF(first));
    CHECK(ag_map_get(&map, 5) == NULL && ag_map_take(&map, 5) == NULL);
    for (unsigned step = 0; step < STEPS; step++) {
        unsigned i = (unsigned)chance_below(&state, N_KEYS);
        /* Waves: the table fills up, then nearly empties, again and again. */
        bool put = chance_below(&state, 100) < (step / (STEPS / 10) % 2 ? 20 : 80);

        if (put) {
            model[i] = &values[chance_below(&state, sizeof(values))];
            CHECK(ag_map_put(&map, key_of(i, kind), model[i]));
        } else {
            CHECK_SAID(ag_map_take(&map, key_of(i, kind)) == model[i], "kind %u, step %u", kind,
                       step);
            model[i] = NULL;
        }
        if (step % (STEPS / 20) == 0)
            check_all(&map, model, kind, step);
    }
    check_all(&map, model, kind, STEPS);
    for (unsigned i = 0; i < N_KEYS; i++) {
        CHECK(ag_map_take(&map, key_of(i, kind)) == model[i]);
        CHECK(ag_map_take(&map, key_of(i, kind)) == NULL);
    }
    CHECK(map.count == 0);
    ag_map_finish(&map);
    CHECK(map.entries == NULL && map.capacity == 0 && ag_map_get(&map, 5) == NULL);
    ag_map_finish(&map);
}

/* Takes leave no hole in a run of neighbours and no place that only looks taken: each possible
 * table of up to 7 keys in a small window, each key taken out. */
static void closes_holes(void)
{
    uint64_t keys[64];
    unsigned n = 0;
    static char value;

    /* Keys that begin at the last places of a fresh table of 64, so that runs wrap around. */
    for (uint64_t key = 1; n < N_OF(keys) && key < 4000000; key++) {
        size_t place = (size_t)((key * 0x9e3779b97f4a7c15u) >> 32) & 63;

        if (place >= 61 || place < 2)
            keys[n++] = key;
    }
    for (unsigned gone = 0; gone < 24; gone++) {
        struct ag_map map = {0};

        for (unsigned i = 0; i < 24; i++)
            CHECK(ag_map_put(&map, keys[i], &value + i * 0));
        CHECK(map.capacity == 64);
        CHECK(ag_map_take(&map, keys[gone]) == &value);
        for (unsigned i = 0; i < 24; i++)
            CHECK_SAID((ag_map_get(&map, keys[i]) != NULL) == (i != gone), "%u without %u", i,
                       gone);
        for (unsigned i = 0; i < 24; i++)
            (void)ag_map_take(&map, keys[i]);
        for (size_t place = 0; place < map.capacity; place++)
            CHECK(map.entries[place].key == 0 && map.entries[place].value == NULL);
        ag_map_finish(&map);
    }
}

static void replaces(void)
{
    struct ag_map map = {0};
    int a, b;

    CHECK(ag_map_put(&map, 42, &a) && ag_map_put(&map, 42, &b));
    CHECK(map.count == 1 && ag_map_get(&map, 42) == &b && ag_map_take(&map, 42) == &b);
    CHECK(map.count == 0 && ag_map_take(&map, 42) == NULL);
    ag_map_finish(&map);
}

/* --- many maps that share their tables, from threads --- */

#define N_MAPS 64u

/* All grow together, up to tables of their own, and shrink to nothing: no table is in two of them,
 * and a table that another had is clear. */
static void *many_maps(void *seed)
{
    struct ag_map *maps = calloc(N_MAPS, sizeof(*maps));
    const unsigned n_keys = 20 << (uintptr_t)seed % 6;

    CHECK(maps);
    for (unsigned turn = 0; turn < 20; turn++) {
        for (unsigned key = 1; key <= n_keys; key++) {
            for (unsigned i = 0; i < N_MAPS; i++) {
                CHECK(!ag_map_get(&maps[i], key * 512ull));
                CHECK(ag_map_put(&maps[i], key * 512ull, &maps[i]));
            }
        }
        for (unsigned i = 0; i < N_MAPS; i++) {
            CHECK(maps[i].count == n_keys);
            for (unsigned key = 1; key <= n_keys; key++)
                CHECK(ag_map_get(&maps[i], key * 512ull) == &maps[i]);
            ag_map_finish(&maps[i]);
        }
    }
    free(maps);
    return NULL;
}

static void maps_share_tables(void)
{
    pthread_t threads[6];

    for (uintptr_t i = 0; i < N_OF(threads); i++)
        CHECK(!pthread_create(&threads[i], NULL, many_maps, (void *)i));
    for (size_t i = 0; i < N_OF(threads); i++)
        CHECK(!pthread_join(threads[i], NULL));
}

/* In how many pages of 4 KiB tables begin. */
static unsigned n_pages_of(const struct ag_map *maps, unsigned n)
{
    unsigned n_pages = 0;

    for (unsigned i = 0; i < n; i++) {
        unsigned before = 0;

        while (before < i && ((uintptr_t)maps[before].entries ^ (uintptr_t)maps[i].entries) >> 12)
            before++;
        n_pages += before == i;
    }
    return n_pages;
}

/* Small tables of many maps share pages; and a child has maps of its own. */
static void tables_share_pages(void)
{
    static struct ag_map maps[256];
    pid_t child;
    int status = -1;

    for (uint64_t i = 1; i <= 256 * 10; i++)
        CHECK(ag_map_put(&maps[i % 256], i, maps));
    CHECK_SAID(n_pages_of(maps, N_OF(maps)) <= 48, "%u", n_pages_of(maps, N_OF(maps)));
    child = fork();
    if (!child) {
        ag_map_begin_child();
        for (unsigned i = 0; i < N_OF(maps); i++)
            ag_map_finish(&maps[i]);
        (void)many_maps((void *)5);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && !status);
    for (uint64_t i = 1; i <= 256 * 10; i++)
        CHECK(ag_map_take(&maps[i % 256], i) == maps);
    for (unsigned i = 0; i < N_OF(maps); i++)
        ag_map_finish(&maps[i]);
}

int main(void)
{
    for (unsigned kind = 0; kind < 3; kind++) {
        agrees_with_a_model(kind, false);
        agrees_with_a_model(kind, true);
    }
    closes_holes();
    replaces();
    tables_share_pages();
    maps_share_tables();
    return 0;
}
