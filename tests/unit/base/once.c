/* interpose/core/base/threads/once.h: of many threads one makes it, all see it made; a failure may
 * be tried again or stands for good. */
#include "interpose/core/base/threads/once.h"

#include <pthread.h>
#include <unistd.h>

#include "tests/common/check.h"

#define THREADS   8u
#define PASSES    30u
#define MAKING_US 2000u

static struct {
    _Atomic int state;
    int made; /* no atomic: what the maker wrote must be visible to all */
    _Atomic unsigned n_attempts;
    unsigned n_failures; /* attempts that fail first */
} thing;

static void *use(void *unused)
{
    (void)unused;
    while (!ag_once_is_done(&thing.state)) {
        unsigned attempt;

        if (!ag_once_begin(&thing.state))
            continue;
        attempt = atomic_fetch_add(&thing.n_attempts, 1);
        (void)usleep(MAKING_US); /* the others come meanwhile */
        thing.made += attempt == thing.n_failures;
        ag_once_end(&thing.state, thing.made ? AG_ONCE_DONE : AG_ONCE_TO_DO);
    }
    CHECK(thing.made == 1);
    return NULL;
}

static void made_by_one(unsigned n_failures)
{
    pthread_t threads[THREADS];

    thing.made = 0;
    thing.n_failures = n_failures;
    atomic_store(&thing.n_attempts, 0);
    atomic_store(&thing.state, AG_ONCE_TO_DO);
    for (unsigned i = 0; i < THREADS; i++)
        CHECK(!pthread_create(&threads[i], NULL, use, NULL));
    for (unsigned i = 0; i < THREADS; i++)
        CHECK(!pthread_join(threads[i], NULL));
    CHECK(thing.made == 1 && atomic_load(&thing.n_attempts) == n_failures + 1);
}

static void failed_for_good(void)
{
    _Atomic int state = AG_ONCE_TO_DO;

    CHECK(ag_once_begin(&state) && !ag_once_is_done(&state));
    ag_once_end(&state, AG_ONCE_FAILED);
    CHECK(!ag_once_begin(&state) && ag_once_state(&state) == AG_ONCE_FAILED);
    CHECK(!ag_once_is_done(&state));
}

int main(void)
{
    for (unsigned i = 0; i < PASSES; i++)
        made_by_one(i % 3);
    failed_for_good();
    return 0;
}
