/* sampling.c: what samples stand for, and that sums of it are right on average. */
#include "interpose/core/report/holders/sampling.h"

#include <pthread.h>

#include "tests/common/chance.h"
#include "tests/common/check.h"

#define MEAN 65536u

static bool is_near(double value, double wanted, double share)
{
    return value > wanted * (1 - share) && value < wanted * (1 + share);
}

static void takes_all_without(void)
{
    ag_sampling_configure(0);
    for (uint64_t bytes = 1; bytes < 1ull << 40; bytes *= 7)
        CHECK(ag_sampling_takes(bytes) && ag_sampling_weight(bytes) == 1);
}

/* 1 / (1 - exp(-s / mean)) */
static void weighs(void)
{
    static const struct {
        double share, weight;
    } rows[] = {
        {1. / 65536, 65536.50000127}, {1. / 64, 64.50130207804},
        {.125, 8.510413955002},       {.5, 2.541494082537},
        {1, 1.581976706869},          {3, 1.052395696491},
        {20, 1.000000002061},         {1000, 1},
    };

    ag_sampling_configure(MEAN);
    for (size_t i = 0; i < N_OF(rows); i++)
        CHECK_SAID(
            is_near(ag_sampling_weight((uint64_t)(rows[i].share * MEAN)), rows[i].weight, 1e-9),
            "row %zu: %.12g, not %.12g", i, ag_sampling_weight((uint64_t)(rows[i].share * MEAN)),
            rows[i].weight);
}

/* Of blocks of one size: its variance for n of them is n s^2 (1 - p) / p, so that 8 standard
 * deviations are the share below. */
static void estimates_size(uint64_t bytes, unsigned n, double share)
{
    double weight = ag_sampling_weight(bytes), blocks = 0;

    for (unsigned i = 0; i < n; i++) {
        if (ag_sampling_takes(bytes))
            blocks += weight;
    }
    CHECK_SAID(is_near(blocks, n, share), "%g blocks of %llu bytes, not %u", blocks,
               (unsigned long long)bytes, n);
}

/* Of many sizes in turn, as programs have them: by bytes, and by number. */
static void estimates_mixture(void)
{
    uint64_t state = 3;
    double bytes = 0, blocks = 0, true_bytes = 0;
    unsigned n = 1000000;

    for (unsigned i = 0; i < n; i++) {
        uint64_t size = 4096 + chance_below(&state, 1u << chance_below(&state, 20));

        true_bytes += (double)size;
        if (ag_sampling_takes(size)) {
            blocks += ag_sampling_weight(size);
            bytes += ag_sampling_weight(size) * (double)size;
        }
    }
    CHECK_SAID(is_near(bytes, true_bytes, .02), "%g bytes, not %g", bytes, true_bytes);
    CHECK_SAID(is_near(blocks, n, .05), "%g blocks, not %u", blocks, n);
}

static void *estimate(void *unused)
{
    estimates_size(16384, 400000, .03);
    return unused;
}

int main(void)
{
    pthread_t threads[3];

    takes_all_without();
    weighs();
    estimates_size(256, 4000000, .08);
    estimates_size(MEAN, 1000000, .01);
    estimates_size(10 * MEAN, 100000, .001);
    estimates_mixture();
    for (size_t i = 0; i < N_OF(threads); i++) /* each draws its own */
        OK(pthread_create(&threads[i], NULL, estimate, NULL));
    for (size_t i = 0; i < N_OF(threads); i++)
        OK(pthread_join(threads[i], NULL));
    return 0;
}
