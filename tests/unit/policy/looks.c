/* policy/waiting/looks.c with places.c, on a clock of the test's: how late waits of many lengths
 * end, and for how long their threads are awake. The timer is as late as in a virtual machine. */
#include "policy/waiting/looks.h"

#include <stdlib.h>
#include <time.h>

#include "interpose/core/base/threads/wait.h"
#include "policy/order/fence.h"
#include "policy/waiting/places.h"
#include "tests/common/check.h"

#define US     1000u
#define MS     1000000u
#define LOOK   300u   /* what a look takes */
#define WAKING 10000u /* what sleeping takes of a core */
#define WAITS  4000
#define LEARNS 30 /* waits of which nothing is asked */

static uint64_t now_ns = MS, ends_ns, awake_ns;
static unsigned n_sleeps;

/* --- what the waits are made of --- */

int __wrap_clock_gettime(clockid_t clock, struct timespec *time);

int __wrap_clock_gettime(clockid_t clock, struct timespec *time)
{
    (void)clock;
    *time = (struct timespec){(time_t)(now_ns / 1000000000u), (long)(now_ns % 1000000000u)};
    return 0;
}

static uint32_t draw(uint32_t below)
{
    static uint64_t state = 1;

    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % below;
}

void ag_wait_asleep(uint64_t ns)
{
    n_sleeps++;
    awake_ns += WAKING;
    now_ns += ns + 50 * US + draw(30 * US);
}

CUresult ag_fence_poll(CUevent event, uint64_t timeout_ns)
{
    uint64_t from = now_ns;
    CUresult result;

    (void)event;
    do {
        result = now_ns < ends_ns ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
        now_ns += LOOK;
    } while (result != CUDA_SUCCESS && now_ns < from + timeout_ns);
    awake_ns += now_ns - from;
    return result;
}

/* --- many waits at a place --- */

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

struct outcome {
    uint64_t median_ns, mean_ns, most_ns; /* late */
    double core;
};

/* How late the wait was. */
static uint64_t wait_once(uint64_t place, uint64_t ns)
{
    const struct ag_looks looks = {place, now_ns, ag_place_foreseen(place), false};

    ends_ns = now_ns + ns;
    CHECK(ag_looks_wait(&looks, NULL) == CUDA_SUCCESS);
    CHECK(now_ns >= ends_ns);
    return now_ns - ends_ns;
}

static struct outcome wait_often(uint64_t place, uint64_t lasting(unsigned i))
{
    static uint64_t late[WAITS];
    struct outcome outcome = {0};
    uint64_t began = 0, sum = 0;

    for (unsigned i = 0; i < LEARNS + WAITS; i++) {
        if (i == LEARNS) {
            began = now_ns;
            awake_ns = 0;
        }
        late[i < LEARNS ? 0 : i - LEARNS] = wait_once(place, lasting(i));
    }
    for (unsigned i = 0; i < WAITS; i++)
        sum += late[i];
    qsort(late, WAITS, sizeof(*late), by_size);
    outcome.median_ns = late[WAITS / 2];
    outcome.mean_ns = sum / WAITS;
    outcome.most_ns = late[WAITS - 1];
    outcome.core = (double)awake_ns / (double)(now_ns - began);
    return outcome;
}

static uint64_t steady(unsigned i)
{
    (void)i;
    return 5 * MS + draw(5 * US);
}

static uint64_t nearly_steady(unsigned i)
{
    (void)i;
    return 5 * MS + draw(100 * US);
}

static uint64_t in_turns(unsigned i)
{
    return i % 2 ? 5 * MS : MS;
}

static uint64_t of_all_lengths(unsigned i)
{
    (void)i;
    return MS / 5 + draw(5 * MS - MS / 5);
}

static uint64_t rarely_short(unsigned i)
{
    return i % 5 ? 5 * MS : MS / 10;
}

/* More waits of a length than a place is wary for, and then others. */
static uint64_t steps(unsigned i)
{
    return (1 + i / 40 % 6) * MS;
}

static void judge(const char *name, uint64_t lasting(unsigned i), uint64_t median_ns,
                  uint64_t mean_ns, double core)
{
    static unsigned n;
    struct outcome it = wait_often(ag_place_of(++n, NULL, NULL), lasting);

    CHECK_SAID(it.median_ns <= median_ns && it.mean_ns <= mean_ns && it.core <= core,
               "%s: median %.1f us, mean %.1f, %.2f %% of a core", name,
               1e-3 * (double)it.median_ns, 1e-3 * (double)it.mean_ns, 100 * it.core);
}

/* --- single waits --- */

/* Whatever is foreseen, a wait that ends early is found within some five times its time, and a late
 * one a twelfth late. */
static void harm_is_bounded(void)
{
    uint64_t place = ag_place_of(100, NULL, NULL);

    for (uint64_t foreseen = MS / 5; foreseen < 600 * MS; foreseen *= 2) {
        for (uint64_t ns = 60 * US; ns < 2000 * MS; ns += ns / 3) {
            uint64_t late;

            ag_place_early(place, foreseen);
            late = wait_once(place, ns);
            CHECK_SAID(late <= (ns < foreseen ? 9 * ns / 2 + 350 * US : ns / 12 + 220 * US),
                       "%.1f ms, foreseen %.1f: %.3f late", 1e-6 * (double)ns,
                       1e-6 * (double)foreseen, 1e-6 * (double)late);
        }
    }
}

/* A wait of an hour looks once every 7 seconds. */
static void long_waits_look_rarely(void)
{
    n_sleeps = 0;
    (void)wait_once(ag_place_of(101, NULL, NULL), (uint64_t)3600000 * MS);
    CHECK_SAID(n_sleeps < 10000, "slept %u times", n_sleeps);
}

static CUresult give_up(uint64_t place, uint64_t foreseen_ns, uint64_t ns)
{
    const struct ag_looks looks = {place, now_ns, foreseen_ns, true};

    ends_ns = now_ns + ns;
    return ag_looks_wait(&looks, NULL);
}

static void gives_up(void)
{
    uint64_t place = ag_place_of(102, NULL, NULL), began = now_ns;

    n_sleeps = 0;
    CHECK(give_up(place, 0, 5 * MS) == CUDA_ERROR_NOT_READY);
    CHECK(n_sleeps == 0 && now_ns - began < 100 * US);
    CHECK(give_up(place, 0, 40 * US) == CUDA_SUCCESS);
    began = now_ns;
    CHECK(give_up(place, 5 * MS, 6 * MS) == CUDA_ERROR_NOT_READY);
    CHECK(now_ns - began < 5400 * US);
    CHECK(give_up(place, 5 * MS, 5100 * US) == CUDA_SUCCESS);
    CHECK(give_up(place, 5 * MS, 3 * MS) == CUDA_SUCCESS);
}

int main(void)
{
    judge("steady", steady, 1 * US, 5 * US, 0.016);
    judge("nearly steady", nearly_steady, 20 * US, 100 * US, 0.03);
    judge("in turns", in_turns, 120 * US, 90 * US, 0.06);
    judge("of all lengths", of_all_lengths, 130 * US, 140 * US, 0.07);
    judge("rarely short", rarely_short, 150 * US, 150 * US, 0.08);
    judge("steps", steps, 20 * US, 150 * US, 0.06);
    harm_is_bounded();
    long_waits_look_rarely();
    gives_up();
    return 0;
}
