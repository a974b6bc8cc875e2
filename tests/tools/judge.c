/* tools/tune/tune_judge.c: what is better by more than chance, and the simpler of those about as
 * good. tools/tune/tune_output.c: which lines are compared. tools/tune/tune_verdict.c: what is
 * said of it. */
#include <stdio.h>
#include <string.h>

#include "tests/common/check.h"
#include "tools/tune/tune.h"

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
    trials[3].fault = "DIFFERENT OUTPUT";
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

static void test_lines_that_tell_times(void)
{
    static const char *const times[] = {
        "Average execution time of k0: 0.000004 (s)",
        "Total kernel execution time: 0.861412 (ms)",
        "Elapsed: 12",
        "took 4 us",
        "done in 3.5s",
        "1234.5 GB/s",
        "bandwidth = 17",
        "12 iterations/sec",
        "  7(ns)",
    };
    static const char *const results[] = {
        "checksum b4d95a88",   "iterations: 20",          "sum of squares: 4 units",
        "generated 5 numbers", "time is measured below:", "0.048103 0.048322 0.048102",
        "grid 512 x 512",      "step 50, checksum 7",     "",
    };

    for (unsigned i = 0; i < sizeof(times) / sizeof(times[0]); i++)
        CHECK(tune_reports_time(times[i], strlen(times[i])));
    for (unsigned i = 0; i < sizeof(results) / sizeof(results[0]); i++)
        CHECK(!tune_reports_time(results[i], strlen(results[i])));
    CHECK(!tune_reports_time("7 ms", 2)); /* no byte behind the end */
}

static struct tune_text text(uint64_t *lines, size_t n)
{
    return (struct tune_text){lines, n, n};
}

static void test_what_is_compared(void)
{
    uint64_t first[3] = {1, 2, 3}, again[3] = {1, 9, 3}, other[3] = {1, 7, 4}, same[3] = {1, 7, 3};
    struct tune_output output = {0};
    struct tune_text lines = text(first, 3);

    tune_output_learn(&output, &lines);
    CHECK(!lines.lines && output.text.n == 3 && !tune_output_left_out(&output));
    lines = text(again, 3);
    CHECK(tune_output_differs(&output, &lines));
    tune_output_learn(&output, &lines);
    CHECK(tune_output_left_out(&output) == 1 && !output.ignored);
    lines = text(same, 3);
    CHECK(!tune_output_differs(&output, &lines));
    lines = text(same, 2);
    CHECK(tune_output_differs(&output, &lines));
    lines = text(other, 3);
    CHECK(tune_output_differs(&output, &lines));
    other[0] = 5;
    tune_output_learn(&output, &lines); /* nothing is left */
    CHECK(output.ignored && !tune_output_differs(&output, &lines));
}

/* What is said of the trials after they are judged. */
static void says(struct tune_result result, const char *gained, const char *held_back,
                 const char *to_try)
{
    static char *argv[] = {"./it's", "a b", "", "c=1", NULL};
    struct tune_verdict verdict;

    result.argv = argv;
    result.best = tune_judge((struct trial *)result.trials, result.n, result.metric);
    tune_verdict_find(&result, &verdict);
    CHECK_SAID(!strcmp(verdict.gained.data, gained), "\"%s\"", verdict.gained.data);
    CHECK_SAID(!strcmp(verdict.held_back.data, held_back), "\"%s\"", verdict.held_back.data);
    CHECK_SAID(!strcmp(verdict.to_try.data, to_try), "\"%s\"", verdict.to_try.data);
    tune_verdict_finish(&verdict);
}

static void test_words(void)
{
    static const char none[] = "nothing: no setting is better than none by more than chance";
    static const char run[] = "A=1 B=2 allograft run -- './it'\\''s' 'a b' '' c=1";
    struct trial trials[3] = {trial(1000, 10, 4000), trial(500, 10, 4000), trial(990, 10, 1000)};
    struct tune_result result = {.trials = trials, .n = 3, .runs = 5};

    trials[1].name = "one";
    trials[1].settings[0] = "A=1";
    trials[1].settings[1] = "B=2";
    trials[2].name = "two";
    says(result, "2.00x as fast with \"one\"", "nothing that was measured", run);
    trials[2].fault = "DIFFERENT OUTPUT";
    result.was_stopped = true;
    says(result, "2.00x as fast with \"one\"", "\"two\": DIFFERENT OUTPUT; it was stopped early",
         run);
    trials[2].fault = NULL;
    result.was_stopped = false;
    result.metric = TUNE_PEAK;
    trials[1].peak_bytes = 1000;
    says(result, "4.00x less peak memory with \"one\"", "nothing that was measured", run);
    result.metric = TUNE_BOTH;
    says(result, "8.00x less of time multiplied by peak memory with \"one\"",
         "nothing that was measured", run);
    result.metric = TUNE_TIME;
    trials[1] = trial(700, 300, 1);
    trials[1].name = "one";
    says(result, none, "\"one\" looked better, but by no more than its runs vary",
         "more runs (--runs 15)");
    result.runs = TUNE_MOST_RUNS;
    says(result, none, "\"one\" looked better, but by no more than its runs vary",
         "the program as it is");
    trials[1] = trial(1000, 10, 4000);
    result.is_unused = true;
    says(result, none, "nothing of the program made a CUDA call that came through",
         "the program as it is");
}

int main(void)
{
    test_words();
    test_lines_that_tell_times();
    test_what_is_compared();
    test_time();
    test_one_run();
    test_peak();
    return 0;
}
