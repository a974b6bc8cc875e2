/* base/slot.c: a thread keeps its slot, the first threads have one of their own, the others share
 * the rest evenly. */
#include "interpose/base/slot.h"

#include <pthread.h>

#include "tests/common/check.h"

#define PASSES       3u
#define SHARED_SLOTS (AG_SLOTS - AG_OWN_SLOTS)

static _Atomic unsigned taken[AG_SLOTS];

static void *take(void *unused)
{
    unsigned mine = ag_slot();

    (void)unused;
    CHECK(mine < AG_SLOTS);
    for (unsigned i = 0; i < 100; i++)
        CHECK(ag_slot() == mine);
    atomic_fetch_add(&taken[mine], 1);
    return NULL;
}

int main(void)
{
    pthread_t threads[AG_OWN_SLOTS - 1 + SHARED_SLOTS * PASSES];

    take(NULL);
    for (size_t i = 0; i < N_OF(threads); i++)
        CHECK(!pthread_create(&threads[i], NULL, take, NULL));
    for (size_t i = 0; i < N_OF(threads); i++)
        CHECK(!pthread_join(threads[i], NULL));
    for (unsigned i = 0; i < AG_SLOTS; i++)
        CHECK_SAID(taken[i] == (i < AG_OWN_SLOTS ? 1 : PASSES), "slot %u was taken %u times", i,
                   taken[i]);
    return 0;
}
