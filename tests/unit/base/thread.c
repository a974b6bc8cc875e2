/* Threads of our own (base/thread.h): of the usual class, on all cores, whoever starts them. */
#include "interpose/core/base/threads/thread.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "tests/common/check.h"

static _Atomic int told; /* what the thread found is there */
static int policy, n_cores;
static bool is_blocked;

static void *look(void *unused)
{
    cpu_set_t cores;
    sigset_t blocked;

    policy = sched_getscheduler(0);
    n_cores = sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : -1;
    (void)pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    is_blocked = sigismember(&blocked, SIGTERM) && sigismember(&blocked, SIGUSR1);
    atomic_store(&told, 1);
    return unused;
}

static void look_from_a_thread(void)
{
    atomic_store(&told, 0);
    CHECK(ag_thread_start(look, 64 << 10) == 0);
    for (unsigned i = 0; i < 10000 && !atomic_load(&told); i++)
        (void)usleep(1000);
    CHECK(atomic_load(&told));
}

static void bind_to_one_core(const cpu_set_t *cores)
{
    cpu_set_t one;
    int core = 0;

    while (!CPU_ISSET(core, cores))
        core++;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    CHECK(sched_setaffinity(0, sizeof(one), &one) == 0);
}

int main(void)
{
    const struct sched_param urgent = {.sched_priority = 10};
    cpu_set_t cores;

    look_from_a_thread();
    CHECK(is_blocked);
    CHECK(sched_getaffinity(0, sizeof(cores), &cores) == 0);
    bind_to_one_core(&cores);
    look_from_a_thread();
    CHECK(n_cores >= CPU_COUNT(&cores));
    /* Where that is allowed; on one core alone the other thread would not come to its turn. */
    if (CPU_COUNT(&cores) > 1 && sched_setscheduler(0, SCHED_FIFO, &urgent) == 0) {
        look_from_a_thread();
        CHECK(policy == SCHED_OTHER);
        CHECK(n_cores >= CPU_COUNT(&cores));
    }
    return 0;
}
