/* timing.c: a thread's first calls are timed, then a sample that stands for all, at no beat; slow
 * calls are timed in any case, and all while there is a trace. */
#include "interpose/core/report/timing.h"

#include "tests/common/check.h"

#define N_CALLS 400000u

static void first_ones(void)
{
    for (unsigned i = 0; i < AG_TIMED_FIRST; i++) {
        ag_timing_begin();
        CHECK(ag_timing.began && ag_timing.stands_for == 1);
        CHECK(ag_timing_end().sum == 0 || ag_timing.stands_for == 1);
    }
}

/* Of calls at a beat of 16, each is met about as often as any other. */
static void sample(void)
{
    unsigned met[AG_TIMED_EVERY] = {0};
    uint64_t stand_for = 0, n = 0;

    for (unsigned i = 0; i < N_CALLS; i++) {
        struct ag_timed timed;

        ag_timing_begin();
        timed = ag_timing_end();
        CHECK(timed.began || (!timed.ticks && !timed.sum));
        if (!timed.began)
            continue;
        CHECK(timed.sum == timed.ticks * AG_TIMED_EVERY);
        stand_for += ag_timing.stands_for;
        met[i % AG_TIMED_EVERY]++;
        n++;
    }
    CHECK_SAID(stand_for > N_CALLS / 100 * 98 && stand_for < N_CALLS / 100 * 102, "%llu of %u",
               (unsigned long long)stand_for, N_CALLS);
    for (unsigned i = 0; i < AG_TIMED_EVERY; i++)
        CHECK_SAID(met[i] > n / AG_TIMED_EVERY / 10 * 9 && met[i] < n / AG_TIMED_EVERY / 10 * 11,
                   "call %u: %u of %llu", i, met[i], (unsigned long long)n);
}

static void slow_ones(void)
{
    for (unsigned i = 0; i < 100; i++) {
        struct ag_timed timed;

        ag_timing_begin();
        ag_timing_is_slow();
        timed = ag_timing_end();
        CHECK(timed.began && timed.sum == timed.ticks);
    }
}

static void all_with_a_trace(void)
{
    ag_trace_active = true;
    for (unsigned i = 0; i < 100; i++) {
        struct ag_timed timed;

        ag_timing_begin();
        timed = ag_timing_end();
        CHECK(timed.began && timed.sum == timed.ticks);
    }
    ag_trace_active = false;
}

int main(void)
{
    first_ones();
    sample();
    slow_ones();
    all_with_a_trace();
    return 0;
}
