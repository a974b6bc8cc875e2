/* base/slot.c: a thread keeps its slot, the first threads have one of their own, the others share
 * the rest evenly, once it is prepared; a thread that ends leaves its own slot to another, with
 * what was counted there, and has a shared one for what it still does. */
#include "interpose/core/base/slot.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "tests/common/check.h"

#define PASSES       3u
#define SHARED_SLOTS (AG_SLOTS - AG_OWN_SLOTS)
#define N_THREADS    (AG_OWN_SLOTS - 1 + SHARED_SLOTS * PASSES)

static _Atomic bool prepared[AG_SLOTS];
static _Atomic unsigned taken[AG_SLOTS];
static uint64_t counted[AG_SLOTS]; /* in own slots without a locked instruction, as counters are */
static pthread_barrier_t all_have_one;
static pthread_key_t late;

/* Takes long enough for others to be given the same slot, or to look which are used. */
static void prepare(unsigned slot)
{
    usleep(2000);
    CHECK(!ag_slots_have(ag_slots_used(), slot) && ag_slots_have(ag_slots_given(), slot));
    CHECK(!prepared[slot]);
    prepared[slot] = true;
}

static unsigned keep_and_count(void)
{
    unsigned mine = ag_slot();

    CHECK(mine < AG_SLOTS && prepared[mine]);
    for (unsigned i = 0; i < 100; i++)
        CHECK(ag_slot() == mine);
    if (mine < AG_OWN_SLOTS)
        counted[mine]++;
    atomic_fetch_add(&taken[mine], 1);
    return mine;
}

static void *take(void *unused)
{
    (void)unused;
    (void)keep_and_count();
    (void)pthread_barrier_wait(&all_have_one);
    return NULL;
}

/* Together: none gets the slot of another that has ended. */
static void threads_together(void)
{
    pthread_t threads[N_THREADS];

    memset(taken, 0, sizeof(taken));
    taken[ag_slot()] = 1;
    CHECK(!pthread_barrier_init(&all_have_one, NULL, N_THREADS));
    for (size_t i = 0; i < N_THREADS; i++)
        CHECK(!pthread_create(&threads[i], NULL, take, NULL));
    for (size_t i = 0; i < N_THREADS; i++)
        CHECK(!pthread_join(threads[i], NULL));
    for (unsigned i = 0; i < AG_SLOTS; i++)
        CHECK_SAID(taken[i] == (i < AG_OWN_SLOTS ? 1 : PASSES), "slot %u was taken %u times", i,
                   taken[i]);
}

/* In a destructor that comes after that of the slot. */
static void is_shared(void *unused)
{
    (void)unused;
    CHECK(ag_slot() >= AG_OWN_SLOTS);
    CHECK(ag_slot() >= AG_OWN_SLOTS);
}

static void *come_and_go(void *unused)
{
    CHECK(keep_and_count() == 1); /* the main thread has the first */
    CHECK(!pthread_setspecific(late, (void *)1));
    return unused;
}

#define N_GENERATIONS 10000u

static void threads_come_and_go(void)
{
    pthread_t thread;
    uint64_t before = counted[1];

    CHECK(ag_slot() == 0);
    CHECK(!pthread_key_create(&late, is_shared));
    for (unsigned i = 0; i < N_GENERATIONS; i++) {
        CHECK(!pthread_create(&thread, NULL, come_and_go, NULL));
        CHECK(!pthread_join(thread, NULL));
    }
    CHECK(counted[1] == before + N_GENERATIONS);
}

int main(void)
{
    CHECK(ag_slots_used() == 0);
    ag_slots_prepare_with(prepare);
    (void)ag_slot();
    CHECK(ag_slots_used() == 1);
    threads_together();
    CHECK(ag_slots_used() == UINT32_MAX);
    threads_come_and_go();
    threads_together(); /* all slots are free again */
    return 0;
}
