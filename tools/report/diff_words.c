/* diff_words.c: says what a run gained or lost, with placements added up: see diff_words.h. */
#include "tools/report/diff_words.h"

#include <math.h>

#include "tools/report/job.h"

#define ALIKE      .005 /* too small to be called a difference */
#define CHANCE     .05  /* times of single runs vary by that much */
#define OTHER_WORK .01  /* runs that do the same work allocate about as often */

struct pair {
    double a, b;
};

/* The difference as a share of the larger value. */
static double difference(struct pair pair)
{
    double most = pair.a > pair.b ? pair.a : pair.b;

    return most > 0 ? fabs(pair.b - pair.a) / most : 0;
}

static bool find_pair(const struct process sides[2], enum figure figure, struct pair *ret)
{
    return figure_of(&sides[0], figure, &ret->a) && figure_of(&sides[1], figure, &ret->b);
}

/* ": 171.39 ms -> 162.87 ms (-5.0 %)" */
static void add_pair(struct ag_text *text, enum unit unit, struct pair pair)
{
    char a[32], b[32];

    ag_text_add(text, ": %s -> %s", unit_text(a, sizeof(a), unit, pair.a),
                unit_text(b, sizeof(b), unit, pair.b));
    if (unit != UNIT_PERCENT && pair.a > 0 && pair.b > 0)
        ag_text_add(text, " (%+.1f %%)", 100 * (pair.b - pair.a) / pair.a);
}

/* Adds a line for a cost, of which less is better: "8.52 ms less for the whole run". */
static void add_cost_words(struct ag_text *text, enum unit unit, struct pair pair, const char *what)
{
    char by[32];

    if (difference(pair) < ALIKE) {
        ag_text_add(text, "    same    %s %s\n", unit_text(by, sizeof(by), unit, pair.b), what);
        return;
    }
    ag_text_add(text, "    %s  %s %s %s", pair.b < pair.a ? "gained" : "lost  ",
                unit_text(by, sizeof(by), unit, fabs(pair.b - pair.a)),
                pair.b < pair.a ? "less" : "more", what);
    add_pair(text, unit, pair);
    ag_text_add(text, "\n");
}

static bool may_be_chance(struct pair pair)
{
    return difference(pair) >= ALIKE && difference(pair) < CHANCE;
}

static void add_time_words(struct ag_text *text, const struct process sides[2])
{
    struct pair run = {0, 0}, calls = {0, 0};

    if (find_pair(sides, FIGURE_ELAPSED, &run))
        add_cost_words(text, UNIT_NS, run, "for the whole run");
    else
        ag_text_add(text, "    (how long a killed process ran is not known)\n");
    if (find_pair(sides, FIGURE_CALL_NS, &calls) && calls.a + calls.b > 0)
        add_cost_words(text, UNIT_NS, calls, "in allocs and frees");
    if (may_be_chance(run) || may_be_chance(calls))
        ag_text_add(text, "    (times this close may be chance; `allograft tune` compares several "
                          "runs)\n");
}

static double failures_of(const struct process *process)
{
    double sum = 0;

    for (unsigned row = 0; row < AG_STATS_DEVICES; row++) {
        for (unsigned place = 0; place < AG_N_PLACEMENTS; place++)
            sum += (double)process_place(process, row, place)->failed;
    }
    return sum;
}

/* Adds a line for each count that differs. */
static void add_events(struct ag_text *text, const struct process sides[2])
{
    struct pair pair = {failures_of(&sides[0]), failures_of(&sides[1])};

    if (pair.a != pair.b)
        add_cost_words(text, UNIT_COUNT, pair, "allocations that failed");
    if (find_pair(sides, FIGURE_WAITED, &pair) && difference(pair) >= ALIKE)
        add_cost_words(text, UNIT_COUNT, pair, "frees that made the host wait");
    pair = (struct pair){0, 0};
    (void)figure_of(&sides[0], FIGURE_REPLAYED, &pair.a);
    (void)figure_of(&sides[1], FIGURE_REPLAYED, &pair.b);
    if (pair.a == pair.b)
        return;
    ag_text_add(text, "    %s  operations launched in graphs",
                pair.b > pair.a ? "gained" : "lost  ");
    add_pair(text, UNIT_PERCENT, pair);
    ag_text_add(text, "\n");
}

static struct pair allocations_in(const struct process sides[2], unsigned place)
{
    struct pair pair = {0, 0};

    for (unsigned row = 0; row < AG_STATS_DEVICES; row++) {
        pair.a += (double)process_place(&sides[0], row, place)->allocs;
        pair.b += (double)process_place(&sides[1], row, place)->allocs;
    }
    return pair;
}

/* Adds a line if allocations moved between placements, as other settings make them. */
static void add_places(struct ag_text *text, const struct process sides[2])
{
    struct pair all = {0, 0};
    bool any = false;

    (void)find_pair(sides, FIGURE_ALLOCS, &all);
    for (unsigned place = 0; place < AG_N_PLACEMENTS && all.a > 0 && all.b > 0; place++) {
        struct pair here = allocations_in(sides, place);

        if (fabs(here.a / all.a - here.b / all.b) < ALIKE)
            continue;
        ag_text_add(text, "%s%s %.0f -> %.0f",
                    any ? ", " : "    moved   allocations: ", ag_placement_names[place], here.a,
                    here.b);
        any = true;
    }
    ag_text_add(text, "%s", any ? "\n" : "");
    if (difference(all) < OTHER_WORK)
        return;
    ag_text_add(text, "    (different work? allocations");
    add_pair(text, UNIT_COUNT, all);
    ag_text_add(text, ")\n");
}

void diff_words(struct ag_text *text, const struct process sides[2], bool times)
{
    struct pair pair;

    ag_text_add(text, "B against A\n");
    if (times)
        add_time_words(text, sides);
    if (find_pair(sides, FIGURE_PEAK, &pair) && pair.a + pair.b > 0)
        add_cost_words(text, UNIT_BYTES, pair, "of peak memory");
    if (find_pair(sides, FIGURE_GIVEN, &pair) && pair.a + pair.b > 0)
        add_cost_words(text, UNIT_BYTES, pair, "taken of the device at the most");
    add_events(text, sides);
    add_places(text, sides);
}
