/* graph/learn/kinds.c: rounds of several kinds, each with its own answer. */
#include "graph/learn/kinds.h"

#include <string.h>

#include "tests/common/check.h"

static uint64_t state = 3;
static struct ag_kinds kinds;

/* What a round of this kind takes: odd kinds are faster as graphs, even ones slower. */
static uint64_t time_of(uint64_t kind, bool replayed)
{
    uint64_t noise = chance_below(&state, 40 * kind);

    return 1000 * kind + noise - (replayed && kind % 2 ? 200 * kind : 0) +
           (replayed && kind % 2 == 0 ? 150 * kind : 0);
}

static const struct ag_profit *run(uint64_t kind, bool *ret_replayed)
{
    struct ag_round round = {.path = kind};

    round.was_to_replay = round.replayed = *ret_replayed = ag_kinds_replay(&kinds);
    round.ns = time_of(kind, round.replayed);
    return ag_kinds_note(&kinds, &round);
}

/* Rounds of a kind that went the better way. */
static unsigned well(uint64_t kind, bool replayed)
{
    return replayed == (kind % 2 != 0);
}

/* One after the other: the second answer is found at once, whatever the first was. */
static void test_phases(void)
{
    static const uint64_t phases[] = {1, 2, 3, 4, 1, 2, 5, 6, 7, 8, 9, 10, 3, 4};
    bool replayed;

    memset(&kinds, 0, sizeof(kinds));
    for (unsigned i = 0; i < N_OF(phases); i++) {
        unsigned good = 0;

        for (unsigned k = 0; k < 400; k++) {
            (void)run(phases[i], &replayed);
            good += k >= 200 && well(phases[i], replayed);
        }
        CHECK_SAID(good > 160, "phase %u, kind %lu: %u", i, (unsigned long)phases[i], good);
    }
}

/* In turns of any length: every kind's round goes its better way, but for those that compare. */
static void test_turns(void)
{
    bool replayed;

    for (unsigned length = 1; length <= 20; length += 3) {
        unsigned good = 0, n = 0;

        memset(&kinds, 0, sizeof(kinds));
        for (unsigned k = 0; k < 6000; k++) {
            uint64_t kind = 1 + k / length % 2;

            (void)run(kind, &replayed);
            if (k >= 2000 && (length == 1 || k % length > 0)) {
                good += well(kind, replayed);
                n++;
            }
        }
        CHECK_SAID(good * 10 > n * 9, "turns of %u: %u of %u", length, good, n);
    }
}

/* Kinds that come once take no place from those that come often. */
static void test_strangers(void)
{
    uint64_t stranger = 1000;
    unsigned good = 0, n = 0;
    bool replayed;

    memset(&kinds, 0, sizeof(kinds));
    for (unsigned k = 0; k < 8000; k++) {
        struct ag_round once = {.path = stranger++, .ns = 5, .replayed = false};

        (void)run(2, &replayed);
        good += k >= 2000 && well(2, replayed);
        n += k >= 2000;
        if (k % 3 == 0)
            (void)ag_kinds_note(&kinds, &once);
    }
    CHECK_SAID(good * 10 > n * 9, "%u of %u", good, n);
    CHECK(ag_kinds_compared(&kinds, 2) && !ag_kinds_compared(&kinds, 1000));
}

/* What is told is of the kind that takes the most time, and only when a comparison ended. */
static void test_told(void)
{
    const struct ag_profit *told;
    unsigned n = 0;
    bool replayed;

    memset(&kinds, 0, sizeof(kinds));
    for (unsigned k = 0; k < 3000; k++) {
        CHECK(!run(1, &replayed));
        told = run(4, &replayed);
        if (told) {
            n++;
            CHECK_SAID(told->median_eager >= 4000 && told->median_eager < 4200, "%lu",
                       (unsigned long)told->median_eager);
        }
    }
    CHECK_SAID(n >= 3 && n <= 12, "%u", n);
}

/* Rounds in which something was built are not compared, unless there is no end of it. */
static void test_building(void)
{
    memset(&kinds, 0, sizeof(kinds));
    for (unsigned k = 0; k < 1000; k++) {
        struct ag_round round = {.path = 7, .built = k < 60};

        round.was_to_replay = round.replayed = ag_kinds_replay(&kinds);
        round.ns = round.built ? 9000 : round.replayed ? 500 : 1000;
        CHECK(k >= 60 || round.replayed);
        (void)ag_kinds_note(&kinds, &round);
    }
    CHECK(ag_kinds_replay(&kinds));
    memset(&kinds, 0, sizeof(kinds));
    for (unsigned k = 0; k < 1000; k++) {
        struct ag_round round = {.path = 7};

        round.was_to_replay = round.replayed = round.built = ag_kinds_replay(&kinds);
        round.ns = round.replayed ? 9000 : 1000;
        (void)ag_kinds_note(&kinds, &round);
    }
    CHECK(!ag_kinds_replay(&kinds));
}

int main(void)
{
    test_phases();
    test_turns();
    test_strangers();
    test_told();
    test_building();
    return 0;
}
