/* fail.c: which numbers fail, and chances as text. */
#include "interpose/core/settings/fail.h"

#include <string.h>

#include "tests/common/check.h"

/* '.' and 'F' for the calls 1, 2, ... */
static void numbers(struct ag_fail fail, const char *expected)
{
    for (uint64_t n = 1; expected[n - 1]; n++)
        CHECK_SAID(ag_fail_is_due(&fail, n) == (expected[n - 1] == 'F'), "%s: number %u", expected,
                   (unsigned)n);
}

static void by_number(void)
{
    struct ag_fail fail = AG_FAIL_ALL;

    numbers(fail, "FFFFFF");
    CHECK(ag_fail_is_all(&fail));
    fail.every = 3;
    numbers(fail, "..F..F..F..F");
    CHECK(!ag_fail_is_all(&fail));
    fail.after = 2;
    numbers(fail, "....F..F..F");
    fail.every = 1;
    numbers(fail, "..FFFF");
    CHECK(!ag_fail_is_all(&fail));
    fail = AG_FAIL_ALL;
    fail.after = UINT64_MAX;
    CHECK(!ag_fail_is_due(&fail, UINT64_MAX));
    fail = AG_FAIL_ALL;
    fail.over = 5;
    CHECK(!ag_fail_is_all(&fail));
    fail = AG_FAIL_ALL;
    fail.chance_ppm = 999999;
    CHECK(!ag_fail_is_all(&fail));
}

/* How many of a million calls fail. */
static unsigned drawn(uint64_t chance_ppm, uint64_t seed)
{
    struct ag_fail fail = AG_FAIL_ALL;
    unsigned sum = 0;

    fail.chance_ppm = chance_ppm;
    fail.seed = seed;
    for (uint64_t n = 1; n <= 1000000; n++)
        sum += ag_fail_is_due(&fail, n);
    return sum;
}

/* Of a million independent calls, within five standard deviations; neither seeds nor neighbours go
 * together. */
static void by_chance(void)
{
    struct ag_fail a = AG_FAIL_ALL, b = AG_FAIL_ALL;
    unsigned both = 0, neighbours = 0;

    for (uint64_t seed = 0; seed < 4; seed++) {
        unsigned tenth = drawn(100000, seed), few = drawn(1000, seed);

        CHECK_SAID(tenth > 98500 && tenth < 101500, "%u", tenth);
        CHECK_SAID(few > 840 && few < 1160, "%u", few);
    }
    CHECK(drawn(AG_CHANCE_ALWAYS, 1) == 1000000);
    a.chance_ppm = b.chance_ppm = 500000;
    b.seed = 1;
    for (uint64_t n = 1; n <= 100000; n++) {
        both += ag_fail_is_due(&a, n) && ag_fail_is_due(&b, n);
        neighbours += ag_fail_is_due(&a, n) && ag_fail_is_due(&a, n + 1);
    }
    CHECK_SAID(both > 24000 && both < 26000, "%u", both);
    CHECK_SAID(neighbours > 24000 && neighbours < 26000, "%u", neighbours);
}

/* The same calls fail in every version: somebody has written the seed down. */
static void seeds_stay(void)
{
    struct ag_fail fail = AG_FAIL_ALL;

    fail.chance_ppm = 250000;
    fail.seed = 7;
    numbers(fail, ".....F...F.......F.......F....FFF.....F.");
}

static void chances_as_text(void)
{
    static const struct {
        const char *text;
        uint64_t ppm; /* 0: refused */
        const char *printed;
    } cases[] = {
        {"1", 1000000, "1"},
        {"1.0", 1000000, "1"},
        {"100%", 1000000, "1"},
        {"0.5", 500000, "0.5"},
        {"5%", 50000, "0.05"},
        {"0.05", 50000, "0.05"},
        {"0.1%", 1000, "0.001"},
        {"0.000001", 1, "0.000001"},
        {"0.0001%", 1, "0.000001"},
        {"12.5%", 125000, "0.125"},
        {"0.123456", 123456, "0.123456"},
        {"0", 0, ""},
        {"0%", 0, ""},
        {"0.0", 0, ""},
        {"1.000001", 0, ""},
        {"101%", 0, ""},
        {"2", 0, ""},
        {"", 0, ""},
        {"%", 0, ""},
        {".5", 0, ""},
        {"0.", 0, ""},
        {"5 %", 0, ""},
        {"5%%", 0, ""},
        {"%5", 0, ""},
        {"0.0000001", 0, ""},
        {"-0.5", 0, ""},
        {"+0.5", 0, ""},
        {"1e-3", 0, ""},
        {"0,5", 0, ""},
        {"18446744073709551617", 0, ""},
    };
    char printed[AG_CHANCE_TEXT];
    uint64_t ppm;

    for (size_t i = 0; i < N_OF(cases); i++) {
        ppm = 77;
        CHECK_SAID(ag_chance_parse(cases[i].text, &ppm) == (cases[i].ppm != 0), "%s",
                   cases[i].text);
        CHECK_SAID(ppm == (cases[i].ppm ? cases[i].ppm : 77), "%s", cases[i].text);
        if (!cases[i].ppm)
            continue;
        CHECK_SAID(!strcmp(ag_chance_print(printed, ppm), cases[i].printed), "%s: %s",
                   cases[i].text, printed);
    }
}

int main(void)
{
    by_number();
    by_chance();
    seeds_stay();
    chances_as_text();
    return 0;
}
