/* graph/learn/profit.c: the faster way is kept, whatever the noise, and asked about again. */
#include "graph/learn/profit.h"

#include <string.h>

#include "tests/common/chance.h"
#include "tests/common/check.h"

static uint64_t state = 11;

/* What iterations of the two ways take, and how much that varies. */
struct world {
    uint64_t eager, replayed;
    unsigned noise; /* per mille, either way */
    unsigned odd;   /* of a hundred iterations, not comparable */
    unsigned late;  /* times in a thousand, ten times as long */
    uint64_t least; /* that an eager one is known to take; 0: nothing is known */
};

static uint64_t with_noise(const struct world *world, uint64_t ns)
{
    uint64_t noisy = ns * (1000 - world->noise + chance_below(&state, 2 * world->noise + 1)) / 1000;

    return chance_below(&state, 1000) < world->late ? noisy * 10 : noisy;
}

/* One iteration, as the answer so far asks. Returns what it took. */
static uint64_t iterate(struct ag_profit *profit, const struct world *world, bool *ret_answered)
{
    bool replayed = ag_profit_replays(profit);
    uint64_t ns = with_noise(world, replayed ? world->replayed : world->eager);

    *ret_answered = ag_profit_note(profit, replayed,
                                   chance_below(&state, 100) < world->odd ? 0 : ns, world->least);
    return ns;
}

/* Iterations until there is an answer, at most n; *ret_eager: of them, eager ones. */
static unsigned until_answered(struct ag_profit *profit, const struct world *world, unsigned n,
                               unsigned *ret_eager)
{
    bool answered = false;

    *ret_eager = 0;
    for (unsigned i = 1; i <= n; i++) {
        *ret_eager += !ag_profit_replays(profit);
        (void)iterate(profit, world, &answered);
        if (answered)
            return i;
    }
    return 0;
}

/* How much longer n iterations take than the way that is better would, in 1000. */
static unsigned lost(struct ag_profit *profit, const struct world *world, unsigned n)
{
    uint64_t best = world->eager < world->replayed ? world->eager : world->replayed, ns = 0,
             least = (uint64_t)n * best;
    bool answered;

    for (unsigned i = 0; i < n; i++)
        ns += iterate(profit, world, &answered);
    return ns > least ? (unsigned)((ns - least) * 1000 / least) : 0;
}

/* The answer is the better way, finding it out costs a hundredth at most of what comes, and it
 * stays. */
static void either_way(void)
{
    static const struct {
        struct world world;
        bool prefers_eager;
        unsigned eager; /* iterations, before the first answer, at most */
    } rows[] = {
        {{1000000, 400000, 10, 0, 0, 0}, false, 4},  {{3000000, 300000, 10, 0, 0, 0}, false, 4},
        {{1000000, 970000, 10, 5, 0, 0}, false, 24}, {{1000000, 1000000, 2, 0, 0, 0}, false, 24},
        {{300, 250, 10, 0, 0, 0}, false, 24},        {{1000000, 1200000, 10, 0, 0, 0}, true, 48},
        {{1000000, 1500000, 10, 0, 0, 0}, true, 24}, {{1000000, 5000000, 10, 0, 0, 0}, true, 24},
        {{1000000, 1040000, 10, 5, 0, 0}, true, 48},
    };

    for (unsigned i = 0; i < N_OF(rows); i++) {
        struct ag_profit profit;
        unsigned eager, more;

        memset(&profit, 0, sizeof(profit));
        CHECK(ag_profit_replays(&profit));
        CHECK_SAID(until_answered(&profit, &rows[i].world, 4000, &eager), "row %u", i);
        CHECK_SAID(eager <= rows[i].eager, "row %u: %u eager iterations", i, eager);
        CHECK_SAID(profit.prefers_eager == rows[i].prefers_eager, "row %u", i);
        CHECK(profit.median_eager * 10 > rows[i].world.eager * 9 &&
              profit.median_eager * 10 < rows[i].world.eager * 11);
        CHECK(profit.median_replayed * 10 > rows[i].world.replayed * 9 &&
              profit.median_replayed * 10 < rows[i].world.replayed * 11);
        more = lost(&profit, &rows[i].world, 200000);
        CHECK_SAID(more <= 10, "row %u: %u in 1000 more", i, more);
        CHECK_SAID(profit.changes == rows[i].prefers_eager, "row %u", i);
    }
}

/* Where what was seen of eager operations says enough, no iteration runs eager. */
static void known_before(void)
{
    static const struct {
        uint64_t least, replayed;
        bool spared;
    } rows[] = {
        {3000, 1000, true},  {3000, 2300, true}, {3000, 2310, false},
        {3000, 3000, false}, {0, 1000, false},   {3000, 4000, false},
    };

    for (unsigned i = 0; i < N_OF(rows); i++) {
        struct world world = {3000, rows[i].replayed, 0, 0, 0, rows[i].least};
        struct ag_profit profit;
        unsigned eager, n;

        memset(&profit, 0, sizeof(profit));
        n = until_answered(&profit, &world, 4000, &eager);
        CHECK_SAID(n && !eager == rows[i].spared, "row %u: %u eager iterations", i, eager);
        CHECK(!rows[i].spared || n == AG_PROFIT_CLEAR);
        CHECK(ag_profit_replays(&profit) == (rows[i].replayed <= 3000));
        CHECK(profit.interval == 64 && profit.median_replayed == rows[i].replayed);
    }
}

/* One slow iteration is not enough for an answer, and one quick one is not either. */
static void not_by_chance(void)
{
    struct ag_profit profit;

    memset(&profit, 0, sizeof(profit));
    for (unsigned i = 0; i < AG_PROFIT_WATCHED - 1; i++)
        CHECK(!ag_profit_note(&profit, true, i % AG_PROFIT_CLEAR ? 1000 : 2900, 3000));
}

/* A plain answer is not checked before it can be afforded: in short programs never. */
static void plain_answers_are_cheap(void)
{
    static const struct world worlds[] = {{3000, 1000, 10, 0, 0, 2900},
                                          {5000, 1000, 10, 0, 0, 4900}};

    for (unsigned i = 0; i < N_OF(worlds); i++) {
        struct ag_profit profit;
        unsigned eager, n = 0;
        bool answered;

        memset(&profit, 0, sizeof(profit));
        for (; ag_profit_replays(&profit); n++)
            (void)iterate(&profit, &worlds[i], &answered);
        CHECK_SAID(n >= AG_PROFIT_PHASE * 2 * AG_PROFIT_COST_SHARE - 100, "%u", n);
        CHECK(until_answered(&profit, &worlds[i], 100, &eager) && eager <= AG_PROFIT_PHASE);
        CHECK(ag_profit_replays(&profit));
    }
}

/* Iterations that differ by far more than what replay gains, or loses: seldom decided against it
 * where it gains, mostly where it loses. */
static void noisy(void)
{
    enum { RUNS = 1000 };
    static const struct {
        struct world world;
        unsigned least, most; /* runs in which replay is given up at first */
    } rows[] = {
        {{1000000, 920000, 100, 0, 50, 0}, 0, RUNS / 50},
        {{1000000, 960000, 30, 0, 50, 0}, 0, RUNS / 500},
        {{1000000, 1040000, 30, 0, 50, 0}, RUNS * 8 / 10, RUNS},
        {{1000000, 1100000, 100, 0, 50, 0}, RUNS * 6 / 10, RUNS},
    };

    for (unsigned i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        unsigned given_up = 0, eager;

        for (unsigned k = 0; k < RUNS; k++) {
            struct ag_profit profit;

            memset(&profit, 0, sizeof(profit));
            CHECK(until_answered(&profit, &rows[i].world, 4000, &eager));
            given_up += !ag_profit_replays(&profit);
        }
        CHECK_SAID(given_up >= rows[i].least && given_up <= rows[i].most, "row %u: %u of %u", i,
                   given_up, (unsigned)RUNS);
    }
}

/* What was right becomes wrong in the middle, and is found out within so many iterations. */
static void changes_in_the_middle(void)
{
    static const struct {
        struct world before, after;
        bool prefers_eager; /* after */
        unsigned most;      /* iterations until that is so, at most */
    } rows[] = {
        /* the driver or the program gets quicker, eagerly: only eager iterations can tell */
        {{3000000, 1000000, 10, 0, 5, 2900000}, {900000, 1000000, 10, 0, 5, 900000}, true, 9000},
        /* parameters begin to change: replay is slower at once */
        {{3000000, 1000000, 10, 0, 5, 2900000}, {3000000, 3300000, 10, 0, 5, 2900000}, true, 200},
        {{1100000, 1000000, 10, 0, 5, 0}, {1100000, 1300000, 10, 0, 5, 0}, true, 4000},
        /* the device gets busy, and both take the same: nothing to change */
        {{3000000, 1000000, 10, 0, 5, 2900000}, {9000000, 9000000, 5, 0, 5, 2900000}, false, 0},
        /* the host gets slow: replay was not worth it, and is now */
        {{1000000, 1200000, 10, 0, 5, 900000}, {4000000, 1300000, 10, 0, 5, 900000}, false, 4000},
    };

    for (unsigned i = 0; i < N_OF(rows); i++) {
        struct ag_profit profit;
        unsigned n = 0;
        bool answered;

        memset(&profit, 0, sizeof(profit));
        (void)lost(&profit, &rows[i].before, 2000);
        CHECK_SAID(profit.interval &&
                       profit.prefers_eager == (rows[i].before.eager < rows[i].before.replayed),
                   "row %u", i);
        for (; n < rows[i].most && profit.prefers_eager != rows[i].prefers_eager; n++)
            (void)iterate(&profit, &rows[i].after, &answered);
        CHECK_SAID(profit.prefers_eager == rows[i].prefers_eager, "row %u", i);
        (void)lost(&profit, &rows[i].after, 3000);
        CHECK_SAID(profit.prefers_eager == rows[i].prefers_eager, "row %u", i);
        CHECK_SAID(lost(&profit, &rows[i].after, 50000) <= 75, "row %u", i); /* late ones: 45 */
    }
}

/* Both get slower and slower: neither is mistaken for the slower one. */
static void both_drift(void)
{
    struct world world = {1000000, 960000, 2, 0, 0, 0};
    struct ag_profit profit;

    memset(&profit, 0, sizeof(profit));
    for (unsigned i = 0; i < 100000; i++) {
        bool replayed = ag_profit_replays(&profit);

        (void)ag_profit_note(&profit, replayed,
                             with_noise(&world, replayed ? world.replayed : world.eager), 0);
        world.eager += world.eager / 2000;
        world.replayed = world.eager / 100 * 96;
        if (world.eager > 1000000000)
            world.eager = 1000000;
    }
    CHECK(profit.median_eager && !profit.changes);
}

/* Iterations that are never of the way that was asked for: nothing is decided, and nothing hangs.
 */
static void never_comparable(void)
{
    struct ag_profit profit;
    unsigned compared = 0, replays = 0;

    memset(&profit, 0, sizeof(profit));
    for (unsigned i = 0; i < 1000; i++)
        compared += ag_profit_note(&profit, true, 0, 0);
    CHECK(!compared && ag_profit_replays(&profit) && !profit.n_replayed);
    for (unsigned i = 0; i < 10000; i++) {
        replays += ag_profit_replays(&profit);
        compared += ag_profit_note(&profit, true, 1000, 0);
    }
    CHECK(!compared && !profit.changes && !profit.median_eager && replays > 8000);
}

int main(void)
{
    either_way();
    known_before();
    not_by_chance();
    plain_answers_are_cheap();
    noisy();
    changes_in_the_middle();
    both_drift();
    never_comparable();
    return 0;
}
