/* base/arena.c: objects are zeroed, never overlap, come back, and stay readable; also from
 * threads. */
#include "interpose/base/arena.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "tests/common/check.h"

struct odd {
    char bytes[104];
};

static struct ag_arena arena = AG_ARENA_INIT(struct odd);
static struct ag_arena large = {.lock = AG_LOCK_INIT(AG_RANK_ARENA), .object_size = 100 * 1024};

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
    for (uintptr_t i = 0; i < N_OF(threads); i++)
        CHECK(!pthread_create(&threads[i], NULL, churn, (void *)(i + 1)));
    for (size_t i = 0; i < N_OF(threads); i++)
        CHECK(!pthread_join(threads[i], NULL));
    return 0;
}
