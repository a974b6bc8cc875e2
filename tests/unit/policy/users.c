/* policy/order/users.c: which threads count as users of CUDA, and from when to when. Each scenario
 * is a process of its own. */
#include "policy/order/users.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/common/check.h"

#define DRAINS 100 /* more than it takes until a thread that does nothing counts no more */

static bool watched = true;
static unsigned n_looks;

/* A thread that acts when it is told to. */
static struct {
    pthread_t thread;
    pthread_barrier_t turn;
    bool is_to_end;
} other;

static void *act(void *unused)
{
    for (;;) {
        pthread_barrier_wait(&other.turn);
        if (other.is_to_end)
            return unused;
        ag_users_note();
        pthread_barrier_wait(&other.turn);
    }
}

static void other_begins(void)
{
    OK(pthread_barrier_init(&other.turn, NULL, 2));
    OK(pthread_create(&other.thread, NULL, act, NULL));
}

static void other_calls(void)
{
    pthread_barrier_wait(&other.turn);
    pthread_barrier_wait(&other.turn);
}

static void other_ends(void)
{
    other.is_to_end = true;
    pthread_barrier_wait(&other.turn);
    OK(pthread_join(other.thread, NULL));
}

static void drain(unsigned n)
{
    while (n--)
        n_looks += ag_users_drained(watched);
}

static void one_thread_is_alone(void)
{
    CHECK(!ag_users_are_several());
    CHECK(!ag_users_knows_caller());
    ag_users_note();
    CHECK(ag_users_knows_caller());
    ag_users_note();
    CHECK(!ag_users_are_several());
}

static void another_counts_until_it_ends(void)
{
    ag_users_note();
    other_begins();
    CHECK(!ag_users_are_several());
    other_calls();
    CHECK(ag_users_are_several());
    other_calls();
    CHECK(ag_users_are_several());
    other_ends();
    CHECK(!ag_users_are_several());
}

/* Whoever frees is not taken for one who does nothing. */
static void who_does_nothing_counts_no_more(void)
{
    ag_users_note();
    other_begins();
    other_calls();
    drain(DRAINS);
    CHECK(!ag_users_are_several());
    CHECK(ag_users_knows_caller());
    CHECK(n_looks > 0);
    other_ends();
    CHECK(!ag_users_are_several());
}

static void who_calls_now_and_then_counts(void)
{
    ag_users_note();
    other_begins();
    for (unsigned i = 0; i < DRAINS; i++) {
        other_calls();
        drain(7);
        CHECK(ag_users_are_several());
    }
    other_ends();
}

static void who_comes_back_counts_again(void)
{
    ag_users_note();
    other_begins();
    for (unsigned i = 0; i < 3; i++) {
        other_calls();
        CHECK(ag_users_are_several());
        drain(DRAINS);
        CHECK(!ag_users_are_several());
    }
    other_ends();
    CHECK(!ag_users_are_several());
}

/* Nobody sees launches of a thread that needs no pass. */
static void without_watching_everybody_counts(void)
{
    watched = false;
    ag_users_note();
    other_begins();
    other_calls();
    drain(DRAINS);
    CHECK(ag_users_are_several());
    CHECK(n_looks == 0);
    other_ends();
}

static void a_child_is_alone(void)
{
    int status;
    pid_t pid;

    ag_users_note();
    other_begins();
    other_calls();
    pid = fork();
    if (!pid) {
        ag_users_begin_child();
        CHECK(!ag_users_are_several());
        ag_users_note();
        CHECK(!ag_users_are_several());
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    other_ends();
}

/* The end of a thread that nothing can be kept of is not seen, so threads count from then on. */
static void without_keys_everybody_counts(void)
{
    pthread_key_t key;

    while (!pthread_key_create(&key, NULL))
        ;
    ag_users_note();
    CHECK(ag_users_are_several());
    CHECK(ag_users_knows_caller());
}

static void in_a_process(void (*scenario)(void))
{
    int status;
    pid_t pid = fork();

    if (!pid) {
        scenario();
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

int main(void)
{
    static void (*const scenarios[])(void) = {
        one_thread_is_alone,
        another_counts_until_it_ends,
        who_does_nothing_counts_no_more,
        who_calls_now_and_then_counts,
        who_comes_back_counts_again,
        without_watching_everybody_counts,
        a_child_is_alone,
        without_keys_everybody_counts,
    };

    for (size_t i = 0; i < N_OF(scenarios); i++)
        in_a_process(scenarios[i]);
    return 0;
}
