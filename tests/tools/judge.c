/* tools/tune_judge.c: what is better by more than chance, and the simpler of those about as good.
 */
#include <stdio.h>
#include <string.h>

#include "tune.h"

static int wrong;

#define CHECK(condition)                                           \
    do {                                                           \
        if (!(condition)) {                                        \
            printf("%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            wrong = 1;                                             \
        }                                                          \
    } while (0)

/* Runs of `median` ns, the middle half of which lies `spread` around it. */
static struct trial trial(uint64_t median, uint64_t spread, uint64_t peak)
{
    struct trial trial = {.name = "", .peak_bytes = peak, .n = 5};
    const uint64_t times[5] = {median, median + spread, median - spread, median + 2 * spread,
                               median - 2 * spread};

    memcpy(trial.times_ns, times, sizeof(times));
    return trial;
}

static void test_time(void)
{
    struct trial trials[4] = {trial(1000, 10, 1), trial(990, 10, 1), trial(700, 10, 1),
                              trial(695, 10, 1)};

    CHECK(tune_judge(trials, 2, TUNE_TIME) == 0); /* chance */
    CHECK(tune_judge(trials, 4, TUNE_TIME) == 2); /* the simpler of two about as good */
    CHECK(trials[2].median_ns == 700 && trials[2].spread_ns == 10);
    CHECK(tune_gain(trials, 2, TUNE_TIME) > 1.42 && tune_gain(trials, 2, TUNE_TIME) < 1.43);
    trials[3] = trial(500, 10, 1);
    CHECK(tune_judge(trials, 4, TUNE_TIME) == 3);
    trials[3].fault = "OTHER OUTPUT";
    CHECK(tune_judge(trials, 4, TUNE_TIME) == 2);
    trials[2] = trial(700, 300, 1); /* may be anything */
    CHECK(tune_judge(trials, 4, TUNE_TIME) == 0);
    CHECK(tune_unsure(trials, 2, TUNE_TIME) == 0 && tune_unsure(trials, 4, TUNE_TIME) == 2);
    trials[0].n = 0;
    CHECK(tune_judge(trials, 4, TUNE_TIME) == 0);
}

static void test_one_run(void)
{
    struct trial trials[2] = {trial(1000, 0, 1), trial(900, 0, 1)};

    trials[0].n = trials[1].n = 1;
    CHECK(tune_judge(trials, 2, TUNE_TIME) == 0);
    trials[1].times_ns[0] = 500;
    CHECK(tune_judge(trials, 2, TUNE_TIME) == 1);
}

static void test_peak(void)
{
    struct trial trials[3] = {trial(1000, 10, 4000), trial(1500, 10, 1000), trial(800, 10, 4000)};

    CHECK(tune_judge(trials, 3, TUNE_PEAK) == 1);
    CHECK(tune_judge(trials, 3, TUNE_TIME) == 2);
    CHECK(tune_judge(trials, 3, TUNE_BOTH) == 1);
    trials[1].peak_bytes = 0; /* not known */
    CHECK(tune_judge(trials, 3, TUNE_PEAK) == 0);
    CHECK(tune_judge(trials, 3, TUNE_BOTH) == 2);
}

int main(void)
{
    test_time();
    test_one_run();
    test_peak();
    return wrong;
}
