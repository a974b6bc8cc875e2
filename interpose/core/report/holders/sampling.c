/* Draws samples of allocations: see sampling.h. Logarithm and exponential are our own, since the
 * library needs libc alone; both are as exact as a double, nearly. */
#include "interpose/core/report/holders/sampling.h"

#include <string.h>
#include <time.h>

#include "interpose/core/base/hash.h"

static uint64_t mean_bytes;

static _Thread_local uint64_t random_state; /* 0: the thread has drawn none yet */
static _Thread_local uint64_t bytes_left;   /* to the next sample */

/* ln(x), x > 0 and normal: by the exponent, and of the fraction m in [0.7, 1.4] by the series of
 * 2 artanh((m - 1) / (m + 1)). */
static double logarithm(double x)
{
    uint64_t bits;
    int exponent;
    double m, t, sum = 0, power;

    memcpy(&bits, &x, sizeof(bits));
    exponent = (int)(bits >> 52) - 1023;
    bits = (bits & ((1ull << 52) - 1)) | 1023ull << 52;
    memcpy(&m, &bits, sizeof(m));
    if (m > 1.4142135623730951) {
        m /= 2;
        exponent++;
    }
    t = (m - 1) / (m + 1);
    power = t;
    for (int i = 1; i < 24; i += 2) {
        sum += power / i;
        power *= t * t;
    }
    return 2 * sum + exponent * 0.6931471805599453;
}

/* 1 - exp(-x), x >= 0. The series of a part of x below 1/8, and 1 - (1 - p)^2 = p (2 - p) for each
 * doubling. */
static double chance_of(double x)
{
    unsigned doublings = 0;
    double p = 0, term;

    if (x > 40)
        return 1;
    while (x > 0.125) {
        x /= 2;
        doublings++;
    }
    term = x;
    for (int i = 2; i < 12; i++) {
        p += term;
        term *= -x / i;
    }
    for (; doublings; doublings--)
        p *= 2 - p;
    return p;
}

/* xorshift64*: Vigna, "An experimental exploration of Marsaglia's xorshift generators", 2016. */
static uint64_t draw_random(void)
{
    uint64_t x = random_state;

    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    random_state = x;
    return x * 0x2545f4914f6cdd1du;
}

static uint64_t draw_distance(void)
{
    double u = (double)((draw_random() >> 11) + 1) * 0x1p-53;
    double distance = -logarithm(u) * (double)mean_bytes;

    return distance < 1e18 ? (uint64_t)distance : (uint64_t)1e18;
}

static void begin_thread(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    random_state = ag_hash_word((uint64_t)now.tv_nsec + (uint64_t)now.tv_sec,
                                (uint64_t)(uintptr_t)&random_state) |
                   1;
    bytes_left = draw_distance();
}

void ag_sampling_configure(uint64_t mean)
{
    mean_bytes = mean;
}

uint64_t ag_sampling_mean(void)
{
    return mean_bytes;
}

bool ag_sampling_takes(uint64_t bytes)
{
    if (!mean_bytes)
        return true;
    if (!random_state)
        begin_thread();
    if (bytes <= bytes_left) {
        bytes_left -= bytes;
        return false;
    }
    bytes_left = draw_distance(); /* as long as ever: a Poisson process remembers nothing */
    return true;
}

double ag_sampling_weight(uint64_t bytes)
{
    return mean_bytes ? 1 / chance_of((double)bytes / (double)mean_bytes) : 1;
}
