/* report/errors/last_launches.c: the last launches of each thread, the caller's first; none that
 * was refused or whose code is gone, none of a thread whose ring another one has, and none of
 * threads that have no slot of their own. */
#include "interpose/core/report/errors/last_launches.h"

#include <pthread.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "interpose/core/base/slot.h"
#include "tests/common/check.h"

#define MOST 16u

static struct ag_last_launch rows[MOST];

static void launch(uintptr_t what)
{
    ag_launches_add((const void *)(what * 16), (const void *)what);
}

/* The caller's launches, from the latest on. */
static void check_own(uintptr_t latest, unsigned n)
{
    CHECK(ag_launches_list(rows, MOST) >= n);
    for (unsigned i = 0; i < n; i++)
        CHECK(rows[i].what == (latest - i) * 16 && rows[i].stream == latest - i &&
              rows[i].thread == (int32_t)syscall(SYS_gettid) && !rows[i].is_graph);
}

static void keeps_the_last(void)
{
    CHECK(ag_launches_list(rows, MOST) == 0);
    for (uintptr_t i = 1; i <= 3; i++)
        launch(i);
    CHECK(ag_launches_list(rows, MOST) == 3);
    check_own(3, 3);
    for (uintptr_t i = 4; i <= 100; i++)
        launch(i);
    CHECK(ag_launches_list(rows, MOST) == AG_LAUNCH_RING);
    check_own(100, AG_LAUNCH_RING);
    CHECK(ag_launches_list(rows, 3) == 3);
    ag_launches_add(ag_launch_of_graph((const void *)160), NULL);
    CHECK(ag_launches_list(rows, 1) == 1 && rows[0].is_graph && rows[0].what == 160);
}

static void forgets(void)
{
    launch(1);
    ag_launches_forget();
    CHECK(ag_launches_list(rows, MOST) == 0);
    launch(1);
    launch(2);
    launch(3);
    ag_launches_retract();
    CHECK(ag_launches_list(rows, MOST) == 2);
    check_own(2, 2);
    launch(3);
    check_own(3, 3);
}

static pthread_barrier_t launched, looked;

static void *launch_and_wait(void *what)
{
    launch((uintptr_t)what);
    launch((uintptr_t)what + 1);
    (void)pthread_barrier_wait(&launched);
    (void)pthread_barrier_wait(&looked);
    return NULL;
}

/* With as many threads as there are slots of their own, and some more. */
static void threads_take_turns(void)
{
    pthread_t threads[AG_OWN_SLOTS + 3];
    unsigned n = AG_OWN_SLOTS + 3;

    ag_launches_forget();
    launch(1);
    (void)pthread_barrier_init(&launched, NULL, n + 1);
    (void)pthread_barrier_init(&looked, NULL, n + 1);
    for (unsigned i = 0; i < n; i++)
        CHECK(!pthread_create(&threads[i], NULL, launch_and_wait,
                              (void *)(uintptr_t)(1000 + i * 10)));
    (void)pthread_barrier_wait(&launched);
    CHECK(ag_launches_list(rows, MOST) == MOST);
    CHECK(rows[0].what == 16 && rows[0].thread == (int32_t)syscall(SYS_gettid));
    for (unsigned i = 1; i < MOST; i++)
        CHECK(rows[i].stream % 10 == 1 && rows[i].thread != rows[i - 1].thread);
    (void)pthread_barrier_wait(&looked);
    for (unsigned i = 0; i < n; i++)
        CHECK(!pthread_join(threads[i], NULL));
}

static void *list_here(void *n)
{
    launch(7);
    *(unsigned *)n = ag_launches_list(rows, MOST);
    return NULL;
}

/* What a thread launched stays when it has ended, until another one has its ring. */
static void threads_end(void)
{
    pthread_t thread;
    unsigned n = 0;

    ag_launches_forget();
    for (int i = 0; i < 2; i++) {
        CHECK(!pthread_create(&thread, NULL, list_here, &n) && !pthread_join(thread, NULL));
        CHECK(n == 1 && rows[0].what == 7 * 16);
        CHECK(ag_launches_list(rows, MOST) == 1 && rows[0].what == 7 * 16);
    }
}

int main(void)
{
    keeps_the_last();
    forgets();
    threads_take_turns();
    threads_end();
    return 0;
}
