/* graph/learn/profit.c: the faster way is kept, whatever the noise, and asked about again. */
#include "graph/learn/profit.h"

#include <string.h>

#include "tests/common/check.h"

static uint64_t state = 11;

/* What rounds of the two ways take, and how much that varies. */
struct world {
    uint64_t eager, replayed;
    unsigned noise; /* per mille, either way */
    unsigned odd;   /* of a hundred rounds, not comparable */
    unsigned late;  /* times in a thousand, ten times as long */
};

static uint64_t with_noise(const struct world *world, uint64_t ns)
{
    uint64_t noisy = ns * (1000 - world->noise + chance_below(&state, 2 * world->noise + 1)) / 1000;

    return chance_below(&state, 1000) < world->late ? noisy * 10 : noisy;
}

/* Rounds until a comparison is finished, at most n; *ret_eager: of them, eager ones. */
static unsigned until_compared(struct ag_profit *profit, const struct world *world, unsigned n,
                               unsigned *ret_eager)
{
    *ret_eager = 0;
    for (unsigned i = 1; i <= n; i++) {
        bool replayed = ag_profit_replays(profit);
        bool odd = chance_below(&state, 100) < world->odd;

        *ret_eager += !replayed;
        if (ag_profit_note(profit, replayed,
                           odd ? 0 : with_noise(world, replayed ? world->replayed : world->eager)))
            return i;
    }
    return 0;
}

/* The answers that come in this world, and when: nothing is decided against replay by one
 * comparison, if it is not clear. */
static void check_world(const struct world *world, bool prefers_eager, bool is_clear)
{
    unsigned n = prefers_eager && world->replayed <= world->eager * 14 / 10 ? 2 : 1,
             most = is_clear ? 8 : n * 2 * AG_PROFIT_SAMPLES,
             least = is_clear ? 3 : n * AG_PROFIT_SAMPLES;
    struct ag_profit profit;
    unsigned rounds, eager, interval = 64;

    memset(&profit, 0, sizeof(profit));
    CHECK(ag_profit_replays(&profit));
    rounds = until_compared(&profit, world, 200, &eager);
    CHECK_SAID(rounds > (is_clear ? 10 : 20) && rounds < (is_clear ? 20 : 100), "%u", rounds);
    CHECK_SAID(eager >= least && eager <= most, "%u eager rounds", eager);
    for (unsigned i = 0; i < 13; i++) {
        CHECK_SAID(ag_profit_replays(&profit) == !prefers_eager, "%lu and %lu ns, in round %lu",
                   (unsigned long)world->eager, (unsigned long)world->replayed,
                   (unsigned long)profit.rounds);
        rounds = until_compared(&profit, world, 70000, &eager);
        CHECK_SAID(rounds >= interval && rounds <= interval + 100, "%u, not %u", rounds, interval);
        if (interval < 65536)
            interval *= 2;
    }
    CHECK(profit.changes == prefers_eager);
    CHECK(profit.median_eager * 10 > world->eager * 9 &&
          profit.median_eager * 10 < world->eager * 11);
    CHECK(profit.median_replayed * 10 > world->replayed * 9 &&
          profit.median_replayed * 10 < world->replayed * 11);
}

static void either_way(void)
{
    static const struct world faster = {1000000, 400000, 10, 0, 0};
    static const struct world a_little_faster = {1000000, 970000, 10, 5, 50};
    static const struct world equal = {1000000, 1000000, 2, 0, 0};
    static const struct world slower = {1000000, 1200000, 10, 0, 50};
    static const struct world much_slower = {1000000, 1500000, 10, 0, 0};
    static const struct world a_little_slower = {1000000, 1040000, 10, 5, 50};
    static const struct world short_rounds = {300, 250, 10, 0, 0};

    check_world(&faster, false, true);
    check_world(&a_little_faster, false, false);
    check_world(&equal, false, false);
    check_world(&short_rounds, false, false);
    check_world(&slower, true, false);
    check_world(&much_slower, true, false);
    check_world(&a_little_slower, true, false);
}

/* Rounds that differ by far more than what replay gains, or loses: seldom decided against it where
 * it gains, mostly where it loses. */
static void noisy(void)
{
    enum { RUNS = 1000 };
    static const struct {
        struct world world;
        unsigned least, most; /* runs in which replay is given up at first */
    } rows[] = {
        {{1000000, 920000, 100, 0, 50}, 0, RUNS / 50},
        {{1000000, 960000, 30, 0, 50}, 0, RUNS / 500},
        {{1000000, 1040000, 30, 0, 50}, RUNS * 8 / 10, RUNS},
        {{1000000, 1100000, 100, 0, 50}, RUNS * 6 / 10, RUNS},
    };

    for (unsigned i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        unsigned given_up = 0, eager;

        for (unsigned k = 0; k < RUNS; k++) {
            struct ag_profit profit;

            memset(&profit, 0, sizeof(profit));
            CHECK(until_compared(&profit, &rows[i].world, 400, &eager));
            given_up += !ag_profit_replays(&profit);
        }
        CHECK_SAID(given_up >= rows[i].least && given_up <= rows[i].most, "row %u: %u of %u", i,
                   given_up, (unsigned)RUNS);
    }
}

/* What was right becomes wrong, and is found out at the next check. */
static void drift(void)
{
    struct world world = {1000000, 500000, 10, 0, 0};
    struct ag_profit profit;
    unsigned eager;

    memset(&profit, 0, sizeof(profit));
    for (unsigned i = 0; i < 6; i++) {
        uint64_t slow = world.replayed;

        CHECK(until_compared(&profit, &world, 70000, &eager));
        CHECK(until_compared(&profit, &world, 70000, &eager));
        CHECK(ag_profit_replays(&profit) == (world.replayed < world.eager));
        CHECK(profit.changes == i && profit.interval == (i ? 256 : 128));
        world.replayed = world.eager;
        world.eager = slow;
        CHECK(until_compared(&profit, &world, 70000, &eager));
        CHECK(profit.interval == 64 && profit.changes == i + 1);
    }
}

/* Both get slower and slower: neither is mistaken for the slower one. */
static void both_drift(void)
{
    struct world world = {1000000, 960000, 2, 0, 0};
    struct ag_profit profit;

    memset(&profit, 0, sizeof(profit));
    for (unsigned i = 0; i < 100000; i++) {
        bool replayed = ag_profit_replays(&profit);

        (void)ag_profit_note(&profit, replayed,
                             with_noise(&world, replayed ? world.replayed : world.eager));
        world.eager += world.eager / 2000;
        world.replayed = world.eager / 100 * 96;
        if (world.eager > 1000000000)
            world.eager = 1000000;
    }
    CHECK(profit.median_eager && !profit.changes);
}

/* What went before anything was replayed decides where it was much slower, and only there. */
static void known_before(void)
{
    static const struct {
        uint64_t first, second, replayed;
        unsigned n_before;
        bool spared;
    } rows[] = {
        {5000, 3000, 1000, 2, true},  {3000, 5000, 1000, 2, true},  {3000, 3000, 2300, 2, true},
        {3000, 3000, 2500, 2, false}, {5000, 1100, 1000, 2, false}, {3000, 3000, 1000, 1, false},
        {3000, 3000, 4000, 2, false},
    };

    for (unsigned i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct ag_profit profit;
        bool compared = false;
        unsigned eager = 0;

        memset(&profit, 0, sizeof(profit));
        ag_profit_before(&profit, 0); /* not comparable */
        ag_profit_before(&profit, rows[i].first);
        if (rows[i].n_before == 2)
            ag_profit_before(&profit, rows[i].second);
        for (unsigned k = 0; k < 200 && !compared; k++) {
            bool replayed = ag_profit_replays(&profit);

            eager += !replayed;
            compared = ag_profit_note(&profit, replayed, replayed ? rows[i].replayed : 3000);
        }
        CHECK_SAID(compared && !eager == rows[i].spared, "row %u: %u eager rounds", i, eager);
        CHECK(ag_profit_replays(&profit) == (rows[i].replayed <= 3000));
        CHECK(profit.interval == 64 && profit.median_replayed == rows[i].replayed);
        CHECK(until_compared(&profit, &(struct world){3000, 1000, 0, 0, 0}, 400, &eager) > 60);
    }
}

/* Rounds that are never of the way that was asked for: nothing is decided, and nothing hangs. */
static void never_comparable(void)
{
    struct ag_profit profit;
    unsigned compared = 0, replays = 0;

    memset(&profit, 0, sizeof(profit));
    for (unsigned i = 0; i < 1000; i++)
        compared += ag_profit_note(&profit, true, 0);
    CHECK(!compared && ag_profit_replays(&profit) && !profit.rounds);
    for (unsigned i = 0; i < 10000; i++) {
        replays += ag_profit_replays(&profit);
        compared += ag_profit_note(&profit, true, 1000);
    }
    CHECK(!compared && !profit.changes && !profit.median_eager && replays > 8000);
}

int main(void)
{
    either_way();
    noisy();
    drift();
    both_drift();
    known_before();
    never_comparable();
    return 0;
}
