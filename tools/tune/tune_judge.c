/* tune_judge.c: decides which settings are best, and whether that is more than chance. Pure. */
#include "tools/tune/tune.h"

#include <stdlib.h>
#include <string.h>

#define CHANCE 0.02 /* runs differ by that much anyway; a better trial must exceed it */
#define ABOUT  0.01 /* a trial must exceed that to be better than a simpler one */

static int by_duration(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static void summarise(struct trial *trial)
{
    uint64_t sorted[TUNE_MOST_RUNS];
    unsigned n = trial->n;

    trial->median_ns = trial->spread_ns = 0;
    if (!n)
        return;
    memcpy(sorted, trial->times_ns, n * sizeof(sorted[0]));
    qsort(sorted, n, sizeof(sorted[0]), by_duration);
    trial->median_ns = n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
    trial->spread_ns = n == 1 ? trial->median_ns / 8 : (sorted[n - 1 - n / 4] - sorted[n / 4]) / 2;
}

static bool is_candidate(const struct trial *trial, enum tune_metric metric)
{
    return trial->n && !trial->fault && (metric == TUNE_TIME || trial->peak_bytes);
}

double tune_gain(const struct trial *trials, unsigned i, enum tune_metric metric)
{
    double gain = 1;

    if (!is_candidate(&trials[0], metric) || !is_candidate(&trials[i], metric))
        return 0;
    if (metric != TUNE_PEAK)
        gain *=
            (double)trials[0].median_ns / (double)(trials[i].median_ns ? trials[i].median_ns : 1);
    if (metric != TUNE_TIME)
        gain *= (double)trials[0].peak_bytes / (double)trials[i].peak_bytes;
    return gain;
}

/* The relative error of the two times; peaks have none. */
static double noise(const struct trial *a, const struct trial *b, enum tune_metric metric)
{
    double of_a = a->median_ns ? (double)a->spread_ns / (double)a->median_ns : 0;
    double of_b = b->median_ns ? (double)b->spread_ns / (double)b->median_ns : 0;

    if (metric == TUNE_PEAK)
        return 0;
    return of_a > of_b ? of_a : of_b;
}

unsigned tune_unsure(const struct trial *trials, unsigned n, enum tune_metric metric)
{
    unsigned most = 0;

    for (unsigned i = 1; i < n; i++) {
        if (tune_gain(trials, i, metric) > 1 + CHANCE &&
            (!most || tune_gain(trials, i, metric) > tune_gain(trials, most, metric)))
            most = i;
    }
    return most;
}

unsigned tune_judge(struct trial *trials, unsigned n, enum tune_metric metric)
{
    unsigned best = 0;

    for (unsigned i = 0; i < n; i++)
        summarise(&trials[i]);
    for (unsigned i = 1; i < n; i++) {
        double chance = 2 * noise(&trials[0], &trials[i], metric);

        if (tune_gain(trials, i, metric) > 1 + (chance > CHANCE ? chance : CHANCE) &&
            tune_gain(trials, i, metric) > tune_gain(trials, best, metric))
            best = i;
    }
    /* Ties go to the first, which is the simplest. */
    for (unsigned i = 1; i < best; i++) {
        double about = noise(&trials[best], &trials[i], metric);

        if (tune_gain(trials, i, metric) * (1 + (about > ABOUT ? about : ABOUT)) >=
                tune_gain(trials, best, metric) &&
            tune_gain(trials, i, metric) > 1 + CHANCE)
            return i;
    }
    return best;
}
