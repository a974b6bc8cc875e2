/* live.c: what the program has and the most it had, to the byte, though threads count apart. In
 * one thread, in one that a second joins, in threads one after the other, and in threads together,
 * where only one at a time has certain bytes, which bounds what any order of the calls can come to.
 */
#include "interpose/core/report/live/live.h"

#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/common/chance.h"
#include "tests/common/check.h"

#define PLACE AG_PLACE_POOL

static uint64_t peak(void)
{
    return ag_stats.peak_bytes[0][PLACE];
}

static void add(uint64_t bytes)
{
    ag_live_add(ag_slot(), 0, PLACE, bytes);
}

static void subtract(uint64_t bytes)
{
    ag_live_subtract(ag_slot(), 0, PLACE, bytes);
}

static uint64_t now(void)
{
    return ag_live_of(&ag_stats, 0, PLACE);
}

/* Against a plain count. */
static void one_thread(void)
{
    uint64_t state = 7, current = 0, most = 0;

    ag_live_reset();
    for (unsigned i = 0; i < 100000; i++) {
        uint64_t bytes = chance_below(&state, 1000);

        if (chance_below(&state, 2) && current >= bytes) {
            subtract(bytes);
            current -= bytes;
        } else {
            add(bytes);
            current += bytes;
        }
        most = current > most ? current : most;
        CHECK(now() == current && peak() == most);
    }
}

/* --- a second thread comes while the first has more and more; nothing is freed, so the peak is
 * what there is, in whichever order --- */

static _Atomic bool has_come;

static void *come(void *unused)
{
    for (unsigned i = 0; i < 100; i++)
        add(1);
    atomic_store(&has_come, true);
    return unused;
}

/* In a process of its own, whose slots nobody but this thread had. */
static int second_comes(void)
{
    uint64_t mine = 0;
    pthread_t second;

    ag_live_reset();
    add(1);
    CHECK(!pthread_create(&second, NULL, come, NULL));
    do {
        add(1);
        mine++;
        CHECK(peak() > mine);
    } while (!atomic_load(&has_come));
    CHECK(!pthread_join(second, NULL));
    add(1);
    CHECK(now() == mine + 102 && peak() == now());
    return 0;
}

static void a_second_thread(void)
{
    for (unsigned i = 0; i < 100; i++) {
        int status = -1;
        pid_t child = fork();

        if (!child)
            _exit(second_comes());
        CHECK(child > 0 && waitpid(child, &status, 0) == child && !status);
    }
}

static void *add_a_little(void *unused)
{
    add(1);
    return unused;
}

/* The first thread had more than it was ever allowed, and allocates no more. */
static int second_is_small(void)
{
    pthread_t second;

    ag_live_reset();
    add(1000);
    CHECK(!pthread_create(&second, NULL, add_a_little, NULL) && !pthread_join(second, NULL));
    CHECK(now() == 1001 && peak() == now());
    return 0;
}

static void a_small_second_thread(void)
{
    int status = -1;
    pid_t child = fork();

    if (!child)
        _exit(second_is_small());
    CHECK(child > 0 && waitpid(child, &status, 0) == child && !status);
}

/* A step that a thread makes while the others wait. */
struct step {
    pthread_barrier_t begins, ends;
    bool over;
    int64_t bytes;
    unsigned thread, place;
};
static struct step step;

static void *take_steps(void *number)
{
    for (;;) {
        (void)pthread_barrier_wait(&step.begins);
        if (step.over)
            return NULL;
        if (step.thread == (uintptr_t)number && step.bytes >= 0)
            ag_live_add(ag_slot(), 0, step.place, (uint64_t)step.bytes);
        else if (step.thread == (uintptr_t)number)
            ag_live_subtract(ag_slot(), 0, step.place, (uint64_t)-step.bytes);
        (void)pthread_barrier_wait(&step.ends);
    }
}

#define N_STEPPERS 24u /* some of them share a slot */

/* What there is by a plain count, and the most there was. */
struct count {
    uint64_t current, most;
};

static void is_counted(struct count *count, int64_t bytes, uint64_t said_now, uint64_t said_most)
{
    count->current += (uint64_t)bytes;
    count->most = count->current > count->most ? count->current : count->most;
    CHECK_SAID(said_now == count->current && said_most == count->most,
               "%llu of %llu, peak %llu of %llu", (unsigned long long)said_now,
               (unsigned long long)count->current, (unsigned long long)said_most,
               (unsigned long long)count->most);
}

/* Against plain counts of each placement and of all. */
static void are_counted(struct count counts[AG_N_PLACEMENTS + 1], unsigned place, int64_t bytes)
{
    uint64_t sum = 0;

    is_counted(&counts[place], bytes, ag_live_of(&ag_stats, 0, place),
               ag_stats.peak_bytes[0][place]);
    for (unsigned i = 0; i < AG_N_PLACEMENTS; i++)
        sum += ag_live_of(&ag_stats, 0, i);
    is_counted(&counts[AG_N_PLACEMENTS], bytes, sum, ag_stats.peak_all[0]);
}

/* Of one of the first three placements, of which there are other sizes: sometimes all of it. */
static int64_t choose(uint64_t *state, const struct count *counts, unsigned *ret_place)
{
    unsigned place = chance_below(state, 3);
    uint64_t most = chance_below(state, 8) ? 100 : 1000;
    uint64_t bytes = 1 + chance_below(state, most), has = counts[place].current;

    *ret_place = place;
    if (!chance_below(state, 2))
        return (int64_t)bytes;
    return -(int64_t)(chance_below(state, 4) && bytes < has ? bytes : has);
}

static int one_thread_of_several_placements(void)
{
    struct count counts[AG_N_PLACEMENTS + 1] = {0};
    uint64_t state = 5;

    ag_live_reset();
    for (unsigned i = 0; i < 100000; i++) {
        unsigned place;
        int64_t bytes = choose(&state, counts, &place);

        if (bytes > 0)
            ag_live_add(ag_slot(), 0, place, (uint64_t)bytes);
        else
            ag_live_subtract(ag_slot(), 0, place, (uint64_t)-bytes);
        are_counted(counts, place, bytes);
    }
    return 0;
}

/* In a process of its own, where no thread was before. */
static void several_placements(void)
{
    int status = -1;
    pid_t child = fork();

    if (!child)
        _exit(one_thread_of_several_placements());
    CHECK(child > 0 && waitpid(child, &status, 0) == child && !status);
}

/* Threads in turn, one frees what another allocated: no order is open. */
static void threads_in_turn(void)
{
    struct count counts[AG_N_PLACEMENTS + 1] = {0};
    pthread_t threads[N_STEPPERS];
    uint64_t state = 3;

    ag_live_reset();
    step.over = false;
    CHECK(!pthread_barrier_init(&step.begins, NULL, N_STEPPERS + 1));
    CHECK(!pthread_barrier_init(&step.ends, NULL, N_STEPPERS + 1));
    for (uintptr_t i = 0; i < N_STEPPERS; i++)
        CHECK(!pthread_create(&threads[i], NULL, take_steps, (void *)i));
    for (unsigned i = 0; i < 1500; i++) {
        step.bytes = choose(&state, counts, &step.place);
        step.thread = chance_below(&state, N_STEPPERS);
        (void)pthread_barrier_wait(&step.begins);
        (void)pthread_barrier_wait(&step.ends);
        are_counted(counts, step.place, step.bytes);
    }
    step.over = true;
    (void)pthread_barrier_wait(&step.begins);
    for (unsigned i = 0; i < N_STEPPERS; i++)
        CHECK(!pthread_join(threads[i], NULL));
}

/* --- together: some bytes wander between threads, while one thread has more and more --- */

#define N_TOGETHER 4u
#define BYTES      1000000u /* which one thread at a time has, if any */

static _Atomic bool taken, stop;

/* The bytes are free for others only once they are subtracted. */
static void *wander(void *unused)
{
    for (unsigned i = 0; !atomic_load(&stop); i++) {
        if (atomic_exchange(&taken, true))
            continue;
        add(BYTES);
        if (i % 8 == 0)
            (void)sched_yield(); /* so that it is found there */
        subtract(BYTES);
        atomic_store(&taken, false);
    }
    return unused;
}

#define N_ADDED 200000u

static void threads_together(void)
{
    pthread_t threads[N_TOGETHER];

    ag_live_reset();
    for (unsigned i = 0; i < N_TOGETHER; i++)
        CHECK(!pthread_create(&threads[i], NULL, wander, NULL));
    for (uint64_t i = 1; i <= N_ADDED; i++) {
        uint64_t most;

        add(1);
        most = peak();
        CHECK_SAID(most >= i && most <= i + BYTES, "%llu with %llu", (unsigned long long)most,
                   (unsigned long long)i);
    }
    atomic_store(&stop, true);
    for (unsigned i = 0; i < N_TOGETHER; i++)
        CHECK(!pthread_join(threads[i], NULL));
    CHECK(now() == N_ADDED);
    /* What they were allowed is anybody's again. */
    for (unsigned i = 0; i < 10; i++)
        add(BYTES);
    CHECK(now() == N_ADDED + 10 * BYTES && peak() == now());
}

int main(void)
{
    one_thread();
    several_placements();
    a_second_thread();
    a_small_second_thread();
    threads_in_turn();
    threads_together();
    return 0;
}
