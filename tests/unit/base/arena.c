/* base/arena.c: objects are zeroed, never overlap, come back, and stay readable; also from
 * threads; which pages are touched. */
#include "interpose/core/base/arena.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/common/chance.h"
#include "tests/common/check.h"

struct odd {
    char bytes[104];
};

static struct ag_arena arena = AG_ARENA_INIT(struct odd);
static struct ag_arena large = {.lock = AG_SPIN_INIT(AG_RANK_ARENA), .object_size = 100 * 1024};

static bool is_filled(const char *bytes, size_t size, char with)
{
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != with)
            return false;
    }
    return true;
}

/* More objects than a slab has; each keeps its own pattern. */
static void objects_are_apart(void)
{
    enum { N = 6000 };
    static struct odd *objects[N];

    for (unsigned i = 0; i < N; i++) {
        objects[i] = ag_arena_get(&arena);
        CHECK(objects[i] && (uintptr_t)objects[i] % sizeof(void *) == 0);
        CHECK(is_filled(objects[i]->bytes, sizeof(struct odd), 0));
        memset(objects[i], (int)(1 + i % 100), sizeof(struct odd));
    }
    for (unsigned i = 0; i < N; i++)
        CHECK_SAID(is_filled(objects[i]->bytes, sizeof(struct odd), (char)(1 + i % 100)), "%u", i);
    for (unsigned i = 0; i < N; i++)
        ag_arena_put(&arena, objects[i]);
    CHECK(objects[0]->bytes[20] == 1); /* taken back, but still there for a late reader */
}

/* What was given back is used again, zeroed, before the kernel is asked for more. */
static void objects_come_back(void)
{
    struct odd *first = ag_arena_get(&arena), *second = ag_arena_get(&arena);
    char *end = arena.fresh;

    memset(first, 7, sizeof(*first));
    ag_arena_put(&arena, first);
    ag_arena_put(&arena, second);
    CHECK(ag_arena_get(&arena) == second && ag_arena_get(&arena) == first);
    CHECK(is_filled(first->bytes, sizeof(*first), 0) && arena.fresh == end);
}

static void large_objects_fit(void)
{
    char *objects[5];

    for (unsigned i = 0; i < N_OF(objects); i++) {
        objects[i] = ag_arena_get(&large);
        CHECK(objects[i]);
        memset(objects[i], (int)i + 1, large.object_size);
    }
    for (unsigned i = 0; i < N_OF(objects); i++)
        CHECK(is_filled(objects[i], large.object_size, (char)(i + 1)));
}

/* --- which pages are touched --- */

static size_t n_there(const struct ag_arena *of)
{
    static unsigned char there[512];
    size_t bytes = (size_t)(of->fresh_end - of->first), page = (size_t)sysconf(_SC_PAGESIZE);
    size_t n = 0;

    CHECK(bytes / page <= N_OF(there) && !mincore(of->first, bytes, there));
    for (size_t i = 0; i < bytes / page; i++)
        n += there[i] & 1;
    return n * page;
}

/* Those of small objects are there before the objects, but no more than as much again and a page,
 * or 64 KiB; those of large ones nobody has touched. */
static void pages_are_made_ahead(void)
{
    static struct ag_arena small = {.lock = AG_SPIN_INIT(AG_RANK_ARENA), .object_size = 128};
    static struct ag_arena big = {.lock = AG_SPIN_INIT(AG_RANK_ARENA), .object_size = 100 * 1024};
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);

    for (unsigned i = 0; i < 3000; i++) {
        size_t used, there;

        CHECK(ag_arena_get(&small));
        used = (size_t)(small.fresh - small.first);
        there = n_there(&small);
        CHECK_SAID(there >= used && there <= 2 * used + page && there <= used + 64 * 1024 + page,
                   "%zu of %zu", used, there);
    }
    CHECK(ag_arena_get(&big) && n_there(&big) == 0);
    CHECK(ag_arena_get(&big) && n_there(&big) == 0);
    for (unsigned i = 0; i < 10; i++) /* no more for being told again */
        ag_arena_prepare(&small, 100);
    CHECK(n_there(&small) <= 2 * (size_t)(small.fresh - small.first) + 4 * page);
}

static void *churn(void *seed)
{
    uint64_t state = (uintptr_t)seed;
    struct odd *mine[50] = {0};

    for (unsigned step = 0; step < 100000; step++) {
        size_t i = chance_below(&state, N_OF(mine));

        if (mine[i]) {
            CHECK(is_filled(mine[i]->bytes, sizeof(struct odd), (char)(uintptr_t)seed));
            ag_arena_put(&arena, mine[i]);
            mine[i] = NULL;
        } else {
            mine[i] = ag_arena_get(&arena);
            CHECK(is_filled(mine[i]->bytes, sizeof(struct odd), 0));
            memset(mine[i], (int)(uintptr_t)seed, sizeof(struct odd));
        }
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[4];

    objects_are_apart();
    objects_come_back();
    large_objects_fit();
    pages_are_made_ahead();
    for (uintptr_t i = 0; i < N_OF(threads); i++)
        CHECK(!pthread_create(&threads[i], NULL, churn, (void *)(i + 1)));
    for (size_t i = 0; i < N_OF(threads); i++)
        CHECK(!pthread_join(threads[i], NULL));
    return 0;
}
