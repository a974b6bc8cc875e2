/* graph/learn/history.c: loops of many kinds, and in how many different segments they are cut. */
#include "graph/learn/history.h"

#include <stdbool.h>
#include <string.h>

#include "tests/common/chance.h"
#include "tests/common/check.h"

#define N_PLACES 65536u

/* --- a loop: what its operations are --- */

enum form {
    PLAIN,   /* `period` operations */
    NESTED,  /* the first of them are `inner` operations, `times` over */
    EXTRA,   /* one more operation every `times` iterations, before the `at`-th from the end */
    MISSING, /* one fewer, the `at`-th */
    RUNS,    /* the first `inner` are the same */
    TWO,     /* `period` operations `times` over, then `inner` operations `at` times over */
};

struct loop {
    enum form form;
    uint64_t period, inner, times, at;
};

static uint64_t seed;

/* The hash of operation number n of this seed's program. */
static uint64_t hash_of(uint64_t n)
{
    uint64_t state = n * 0x12345671u + seed * 0x9e3779b97f4a7c15u;

    return chance(&state);
}

static uint64_t whole(const struct loop *loop)
{
    switch (loop->form) {
    case EXTRA:
        return loop->period * loop->times + 1;
    case MISSING:
        return loop->period * loop->times - 1;
    case TWO:
        return loop->period * loop->times + loop->inner * loop->at;
    default:
        return loop->period;
    }
}

static uint64_t operation(const struct loop *loop, uint64_t i)
{
    uint64_t n = whole(loop), j = i % n, other = 1u << 20;

    switch (loop->form) {
    case PLAIN:
        break;
    case NESTED:
        return hash_of(j < loop->inner * loop->times ? j % loop->inner : other + j);
    case EXTRA:
        if (j == n - 1 - loop->at)
            return hash_of(other);
        j -= j > n - 1 - loop->at;
        break;
    case MISSING:
        j += j >= loop->at;
        break;
    case RUNS:
        return hash_of(j < loop->inner ? 0 : j);
    case TWO:
        if (j >= loop->period * loop->times)
            return hash_of(other + (j - loop->period * loop->times) % loop->inner);
        break;
    }
    return hash_of(j % loop->period);
}

/* --- counting what is cut --- */

static struct {
    uint64_t places[N_PLACES];
    unsigned n; /* different segments */
    uint64_t ends, operations;
    uint32_t longest;
} seen;

static unsigned place_of(uint64_t segment)
{
    unsigned place = (unsigned)(segment >> 40) % N_PLACES;

    while (seen.places[place] && seen.places[place] != segment)
        place = (place + 1) % N_PLACES;
    return place;
}

static void see(uint64_t segment, uint32_t length)
{
    unsigned place = place_of(segment);

    seen.n += !seen.places[place];
    seen.places[place] = segment;
    seen.ends++;
    seen.operations += length;
    if (length > seen.longest)
        seen.longest = length;
}

static uint64_t mix(uint64_t segment, uint64_t hash)
{
    uint64_t state = segment ^ hash;

    return chance(&state) | 1;
}

/* A prologue of some length, some of it with very small hashes, then the loop. What comes within
 * `warm` operations is not counted. */
static void run(const struct loop *loop, struct ag_history *history, uint64_t prologue,
                uint64_t warm, uint64_t n)
{
    uint64_t segment = 1, state = seed;

    memset(&seen, 0, sizeof(seen));
    for (uint64_t i = 0; i < warm + n; i++) {
        uint64_t hash = i < prologue ? chance(&state) >> chance_below(&state, 64)
                                     : operation(loop, i - prologue);
        uint32_t length = ag_history_length(history);

        if (ag_history_advance(history, hash, false, 0)) {
            CHECK(length > 0);
            if (i > warm)
                see(segment, length);
            ag_history_ended(history, false);
            CHECK(ag_history_length(history) == 1);
            segment = 1;
        }
        segment = mix(segment, hash);
    }
}

static void check_loop(const struct loop *loop, uint32_t cap, unsigned most, double shortest_mean)
{
    struct ag_history_limits limits = {.shortest = 16, .first = 16, .cap = cap};
    uint64_t n = whole(loop), warm = n > 5000 ? 140000 + 4 * n : 5000 + 8 * n;

    for (seed = 1; seed <= (n > 5000 ? 4 : 20); seed++) {
        struct ag_history *history = ag_history_new(&limits);

        CHECK(history);
        run(loop, history, hash_of(1) % 3000, warm, 6 * n + 8 * cap);
        ag_history_free(history);
        CHECK_SAID(seen.ends && seen.n <= most,
                   "form %d, period %lu, %lu, %lu, cap %u, seed %lu: %u segments, at most %u",
                   loop->form, (unsigned long)loop->period, (unsigned long)loop->inner,
                   (unsigned long)loop->times, cap, (unsigned long)seed, seen.n, most);
        CHECK_SAID((double)seen.operations / (double)seen.ends >= shortest_mean,
                   "form %d, period %lu, cap %u, seed %lu: %lu operations in %lu segments",
                   loop->form, (unsigned long)loop->period, cap, (unsigned long)seed,
                   (unsigned long)seen.operations, (unsigned long)seen.ends);
        CHECK(seen.longest < cap + limits.shortest);
    }
}

/* One path an iteration, in segments near the cap. */
static void plain_loops(uint32_t cap)
{
    static const uint64_t periods[] = {1,  2,  3,   7,   17,  20,   50,   63,   64,
                                       65, 85, 160, 161, 200, 1000, 5000, 50000};

    for (unsigned i = 0; i < N_OF(periods); i++) {
        struct loop loop = {.form = PLAIN, .period = periods[i]};
        unsigned most = (unsigned)((periods[i] + cap - 1) / cap);

        check_loop(&loop, cap, most, periods[i] <= cap ? cap / 2 : 0.9 * (double)periods[i] / most);
    }
}

static void loops_in_loops(uint32_t cap)
{
    static const struct loop loops[] = {
        {NESTED, 200, 5, 10, 0},     {NESTED, 200, 1, 40, 0},     {NESTED, 2000, 5, 300, 0},
        {NESTED, 30000, 5, 3000, 0}, {NESTED, 30000, 7, 3000, 0}, {RUNS, 21, 20, 0, 0},
        {RUNS, 7, 6, 0, 0},          {TWO, 5, 3, 100, 200},
    };

    for (unsigned i = 0; i < N_OF(loops); i++)
        check_loop(&loops[i], cap, (unsigned)(whole(&loops[i]) / cap) + 10,
                   loops[i].form == RUNS ? 20 : cap / 3.5); /* the anchor may lie in the run */
}

/* Some more than without irregularities: what is around them. */
static void irregular_loops(uint32_t cap)
{
    static const uint64_t rows[][2] = {{1, 10},    {1, 65},   {1, 1000}, {2, 100},  {3, 1000},
                                       {20, 2},    {20, 3},   {20, 10},  {20, 100}, {20, 1000},
                                       {63, 10},   {63, 100}, {200, 2},  {200, 10}, {200, 100},
                                       {1000, 10}, {5000, 5}};

    for (unsigned i = 0; i < N_OF(rows); i++) {
        struct loop loop = {EXTRA, rows[i][0], 0, rows[i][1], rows[i][0] / 3};
        unsigned most = (unsigned)(2 * whole(&loop) / cap < 4 * rows[i][0] / cap + 40
                                       ? 2 * whole(&loop) / cap
                                       : 4 * rows[i][0] / cap + 40);

        check_loop(&loop, cap, most + 10, 15);
        loop.form = MISSING;
        if (rows[i][0] > 1)
            check_loop(&loop, cap, most + 25, 15);
    }
}

/* --- flushes, marks, pace --- */

static struct ag_history_limits usual = {.shortest = 16, .first = 16, .cap = 160};

static uint64_t op_ns, now_ns; /* how long an operation takes; 0: not known */

/* Lengths until a flush after n operations; anchors would be every 7th. */
static void check_growth(struct ag_history *history, const uint32_t *lengths, unsigned n)
{
    unsigned at = 0;

    for (uint64_t i = 0; i < n; i++) {
        uint32_t length = ag_history_length(history);

        now_ns += op_ns;
        if (ag_history_advance(history, hash_of(i % 7), false, op_ns && i % 8 == 0 ? now_ns : 0)) {
            CHECK_SAID(length == lengths[at], "%u instead of %u", length, lengths[at]);
            at++;
            ag_history_ended(history, false);
        }
    }
    CHECK(!lengths[at]);
    ag_history_ended(history, true);
    CHECK(!ag_history_length(history));
}

/* Flushes are expected at the distance of the last two: a handful of operations before one goes
 * with what was before. */
static void short_tails(void)
{
    static const struct {
        unsigned n;
        uint32_t before[4], after[4];
    } rows[] = {
        {18, {16, 0}, {0}},
        {22, {16, 0}, {0}},
        {16 + AG_TAIL_FIRST, {16, 0}, {0}},
        {16 + AG_TAIL_FIRST + 1, {16, 0}, {16, 0}},
        {16 + 64 + AG_TAIL_LEAST, {16, 64, 0}, {16, 0}},
        {16 + 64 + AG_TAIL_LEAST + 1, {16, 64, 0}, {16, 64, 0}},
        {16 + 64 + 160 + 8, {16, 64, 160, 0}, {16, 64, 160, 0}},
    };

    for (unsigned i = 0; i < N_OF(rows); i++) {
        struct ag_history *history = ag_history_new(&usual);

        CHECK(history);
        check_growth(history, rows[i].before, rows[i].n);
        for (unsigned k = 0; k < 5; k++)
            check_growth(history, rows[i].after, rows[i].n);
        if (rows[i].n <= 16 + AG_TAIL_FIRST) /* it does not come: an end, all the same */
            check_growth(history, (const uint32_t[]){rows[i].n, 0}, rows[i].n + 30);
        ag_history_free(history);
    }
}

/* Iterations of 500 operations, nodes of which were updated or not. */
static void check_updated(struct ag_history *history, unsigned n, bool updated, bool is_slow)
{
    static const uint32_t slow[] = {16, 32, 32, 64, 64, 128, 128, 0};
    static const uint32_t fast[] = {16, 64, 160, 160, 0};

    for (unsigned i = 0; i < n; i++) {
        ag_history_updating(history, updated);
        ag_history_updating(history, false); /* of another graph of this iteration */
        check_growth(history, is_slow ? slow : fast, 500);
    }
}

/* Where nodes are updated again and again, segments grow half as fast; but other lengths ask for
 * other graphs, so that does not change with each iteration. */
static void updated_loops(void)
{
    struct ag_history *history = ag_history_new(&usual);

    CHECK(history);
    check_updated(history, AG_UPDATES_VOTES_SOME - 1, true, false);
    check_updated(history, 1, false, false);
    check_updated(history, AG_UPDATES_VOTES_SOME, true, false);
    check_updated(history, AG_UPDATES_VOTES_NONE - 1, false, true);
    check_updated(history, 1, true, true);
    check_updated(history, AG_UPDATES_VOTES_NONE, false, true);
    check_updated(history, AG_UPDATES_VOTES_SOME, true, false);
    for (unsigned i = 0; i < 6; i++) /* and the first graph begins early */
        check_growth(history, (const uint32_t[]){16, 0}, 16 + AG_TAIL_LEAST + 1);
    ag_history_free(history);
}

/* Where flushes come often, anchors are of no account: iterations of 400, then 3000 operations. */
static void flushed_loops(void)
{
    static const uint32_t few[] = {16, 64, 160, 0};
    static const uint32_t many[] = {16,  64,  160, 160, 160, 160, 160, 160, 160, 160, 160,
                                    160, 160, 160, 160, 160, 160, 160, 160, 160, 0};
    struct ag_history *history = ag_history_new(&usual);
    uint32_t length = 0;

    CHECK(history);
    for (unsigned i = 0; i < 50; i++)
        check_growth(history, few, 400);
    for (unsigned i = 0; i < 2 * 3000; i++) { /* the first two are not yet known to be flushed */
        if (ag_history_advance(history, hash_of(i % 3000 % 7), false, 0))
            ag_history_ended(history, false);
        if (i % 3000 == 2999)
            ag_history_ended(history, true);
    }
    for (unsigned i = 0; i < 10; i++)
        check_growth(history, many, 3000);
    for (unsigned i = 0; i < 20000; i++) { /* no flush any more */
        if (ag_history_advance(history, hash_of(i % 7), false, 0)) {
            length = ag_history_length(history) - 1;
            ag_history_ended(history, false);
        }
    }
    CHECK(length == 154);
    ag_history_free(history);
}

/* Flushes that come anywhere, as the watchdog's: soon after each, all is as before. */
static void flushes_anywhere(void)
{
    static const uint64_t periods[] = {1, 20, 63, 161, 1000};

    for (unsigned i = 0; i < N_OF(periods); i++) {
        struct loop loop = {.form = PLAIN, .period = periods[i]};
        struct ag_history *history = ag_history_new(&usual);
        uint64_t segment = 1, as_usual = 0, state = 9;

        CHECK(history);
        seed = i + 1;
        run(&loop, history, 0, 5000 + 4 * periods[i], 6 * periods[i] + 2000);
        for (uint64_t op = 11000 + 10 * periods[i]; op < 400000; op++) {
            uint64_t hash = operation(&loop, op);

            if (ag_history_advance(history, hash, false, 0)) {
                if (seen.places[place_of(segment)])
                    as_usual += ag_history_length(history) - 1;
                ag_history_ended(history, false);
                segment = 1;
            }
            segment = mix(segment, hash);
            if (chance_below(&state, 4000) == 0) {
                ag_history_ended(history, true);
                segment = 1;
            }
        }
        ag_history_free(history);
        CHECK_SAID(as_usual > 300000, "period %lu: %lu of 400000", (unsigned long)periods[i],
                   (unsigned long)as_usual);
    }
}

/* Two programs at once: what would be an anchor is none, only marks are. */
static void marked_loops(void)
{
    struct ag_history_limits limits = usual;
    struct ag_history *history;
    uint32_t ends = 0;

    limits.marked = true;
    history = ag_history_new(&limits);
    CHECK(history);
    for (uint64_t i = 0; i < 100000; i++) {
        uint32_t length = ag_history_length(history);

        if (ag_history_advance(history, hash_of(i % 7), i % 200 == 50, 0)) {
            if (i > 1000) {
                CHECK_SAID((i % 200 == 50 && length == 40) || (i % 200 == 10 && length == 160),
                           "%lu: %u", (unsigned long)i, length);
                ends++;
            }
            ag_history_ended(history, false);
        }
    }
    CHECK(ends == 2 * 99000 / 200);
    CHECK(ag_history_anchors(history) == 100000 / 200);
    ag_history_free(history);
}

/* Anchors that flush_only takes away. */
static void without_anchors(void)
{
    struct ag_history_limits limits = usual;
    struct loop loop = {.form = PLAIN, .period = 7};
    struct ag_history *history;

    limits.flush_only = true;
    history = ag_history_new(&limits);
    CHECK(history);
    run(&loop, history, 0, 5000, 20000);
    CHECK(seen.n == 7 && seen.longest == 160);
    ag_history_free(history);
}

/* The lengths that come out when operations take so long each. */
static uint32_t lengths_at(struct ag_history *history, uint64_t *now, uint64_t ns, unsigned n)
{
    uint32_t length = 0;

    for (unsigned i = 0; i < n; i++) {
        *now += ns;
        if (ag_history_advance(history, hash_of(i), false, i % 8 ? 0 : *now)) {
            length = ag_history_length(history) - 1;
            ag_history_ended(history, false);
        }
    }
    return length;
}

static void pace(void)
{
    struct ag_history_limits limits = usual;
    struct ag_history *history;
    uint64_t now = 1000;

    limits.hold_ns = 200000;
    history = ag_history_new(&limits);
    CHECK(history);
    CHECK(lengths_at(history, &now, 100, 4000) == 160);
    CHECK(lengths_at(history, &now, 5000, 4000) == 160); /* as long as the driver takes */
    CHECK(lengths_at(history, &now, 6000, 4000) == 80);
    CHECK(lengths_at(history, &now, 5000, 8000) == 80); /* not to and fro */
    CHECK(lengths_at(history, &now, 50000, 4000) == 10);
    CHECK(lengths_at(history, &now, 100, 4000) == 160);
    ag_history_ended(history, true);
    now += 1000000000; /* waiting is no pace */
    CHECK(lengths_at(history, &now, 100, 4000) == 160);
    ag_history_free(history);
}

/* Segments that grow, or not, and are to come together within the time that replay allows them. */
static struct ag_history *paced(uint32_t first, uint32_t cap)
{
    struct ag_history_limits limits = usual;
    struct ag_history *history;

    limits.first = first;
    limits.cap = cap;
    limits.hold_ns = 400000;
    history = ag_history_new(&limits);
    CHECK(history);
    return history;
}

/* Iterations of a slow program begin with few operations, those of a fast one do not. */
static void slow_pace(void)
{
    static const uint32_t slow[] = {1, 4, 12, 20, 20, 20, 20, 0},
                          later[] = {1, 4, 12, 20, 20, 20, 20, 20, 0},
                          sooner[] = {1, 4, 12, 20, 20, 20, 0}, quick[] = {4, 16, 48, 0};
    struct ag_history *history = paced(4, usual.cap);

    op_ns = 20000;
    (void)lengths_at(history, &now_ns, op_ns, 4000);
    ag_history_ended(history, true);
    for (unsigned i = 0; i < 5; i++)
        check_growth(history, slow, 111);
    check_growth(history, sooner, 90);
    check_growth(history, slow, 111);
    check_growth(history, later, 130);
    (void)lengths_at(history, &now_ns, op_ns, 300);
    ag_history_ended(history, true);
    check_growth(history, slow, 111);
    for (op_ns = 100; op_ns < 200; op_ns++)
        (void)lengths_at(history, &now_ns, op_ns, 4000);
    ag_history_ended(history, true);
    for (unsigned i = 0; i < 5; i++)
        check_growth(history, quick, 111);
    op_ns = 0;
    ag_history_free(history);
    history = paced(40, 40); /* as long as the settings say */
    op_ns = 12000;
    (void)lengths_at(history, &now_ns, op_ns, 4000);
    ag_history_ended(history, true);
    for (unsigned i = 0; i < 5; i++)
        check_growth(history, (const uint32_t[]){40, 40, 0}, 111);
    op_ns = 0;
    ag_history_free(history);
}

/* Operations of a loop until a segment of it comes again, behind a gap in which what was random
 * before it became a loop. */
static uint64_t until_again(uint32_t period)
{
    struct loop loop = {.form = PLAIN, .period = period};
    struct ag_history *history = ag_history_new(&usual);
    uint64_t segment = 1, state = seed, i;

    CHECK(history);
    memset(&seen, 0, sizeof(seen));
    for (i = 0; i < 1100; i++) {
        if (ag_history_advance(history, chance(&state), false, 0))
            ag_history_ended(history, false);
        if (i % 500 == 499) /* as a back-off does */
            ag_history_ended(history, true);
    }
    ag_history_ended(history, true);
    ag_history_resumed(history);
    for (i = 0;; i++) {
        if (ag_history_advance(history, operation(&loop, i), false, 0)) {
            if (seen.places[place_of(segment)])
                break;
            see(segment, ag_history_length(history));
            ag_history_ended(history, false);
            segment = 1;
        }
        segment = mix(segment, operation(&loop, i));
    }
    ag_history_free(history);
    return i;
}

/* Wherever it is entered, and whatever came before. */
static void found_behind_a_gap(void)
{
    static const uint32_t periods[] = {5, 13, 40, 100};

    for (seed = 1; seed <= 200; seed++) {
        for (unsigned i = 0; i < N_OF(periods); i++) {
            uint64_t n = until_again(periods[i]), most = 16 + 2 * periods[i] + 3 * usual.cap;

            CHECK_SAID(n <= most, "seed %lu: %u operations come again after %lu",
                       (unsigned long)seed, periods[i], (unsigned long)n);
        }
    }
}

int main(void)
{
    static const uint32_t caps[] = {64, 160};

    for (unsigned i = 0; i < N_OF(caps); i++) {
        plain_loops(caps[i]);
        loops_in_loops(caps[i]);
        irregular_loops(caps[i]);
    }
    flushed_loops();
    short_tails();
    updated_loops();
    flushes_anywhere();
    marked_loops();
    without_anchors();
    pace();
    slow_pace();
    found_behind_a_gap();
    return 0;
}
