/* graph/learn/variants.c: sets of payloads that take turns, with graphs that only remember
 * theirs. */
#include <stdlib.h>
#include <string.h>

#include "graph/learn/variants.h"
#include "graph/replay/builder.h"
#include "graph/tuning.h"
#include "tests/common/chance.h"
#include "tests/common/check.h"

#define MOST_OPS 40

/* What stands for a graph: the payloads it was last launched with. */
struct ag_graph {
    uint64_t payload[MOST_OPS];
};

static uint64_t words[MOST_OPS];
static struct ag_op ops[MOST_OPS];
static uint32_t n_ops;
static struct ag_variants *variants;

bool ag_graph_has(const struct ag_graph *graph, uint32_t i, const struct ag_op *op)
{
    return graph->payload[i] == *(const uint64_t *)(const void *)op->payload;
}

const unsigned char *ag_graph_payloads(const struct ag_graph *graph, uint32_t *ret_bytes)
{
    *ret_bytes = n_ops * sizeof(graph->payload[0]);
    return (const unsigned char *)graph->payload;
}

static void build(void)
{
    struct ag_graph *graph = malloc(sizeof(*graph));

    memcpy(graph->payload, words, sizeof(words));
    ag_variants_add(variants, graph);
}

static void begin(uint32_t n)
{
    n_ops = n;
    for (uint32_t i = 0; i < n; i++) {
        words[i] = 0;
        ops[i] = (struct ag_op){.payload_bytes = sizeof(words[i]), .payload = (void *)&words[i]};
    }
    variants = ag_variants_new(n);
    build();
}

static void end(void)
{
    for (uint32_t i = 0; i < ag_variants_count(variants); i++)
        free(ag_variants_at(variants, i));
    ag_variants_free(variants);
}

/* As a stream does: returns how many nodes had to be updated. */
static uint32_t launch_as(bool is_first)
{
    struct ag_graph *graph = ag_variants_pick(variants, ops);
    uint32_t updated = 0;

    for (uint32_t i = 0; i < n_ops; i++) {
        updated += !ag_graph_has(graph, i, &ops[i]);
        graph->payload[i] = words[i];
    }
    ag_variants_launched(variants, ops, updated, is_first);
    if (ag_variants_wants(variants))
        build();
    return updated;
}

static uint32_t launch(void)
{
    return launch_as(false);
}

/* All payloads of set number `set`, except that of the operation `but`, which is new each time. */
static uint32_t launch_set(uint32_t set, uint32_t but)
{
    static uint64_t fresh = 1u << 30;

    for (uint32_t i = 0; i < n_ops; i++)
        words[i] = i == but ? ++fresh : (uint64_t)set * MOST_OPS + i + 1;
    return launch();
}

/* The host waits. Nodes that are updated meanwhile; `hidden`: the device is busy for so long. */
static uint32_t wait_for(bool hidden)
{
    const unsigned char *payloads;
    struct ag_graph *graph = ag_variants_foresee(variants, &payloads);
    uint32_t updated = 0;

    for (uint32_t i = 0; graph && i < n_ops; i++) {
        uint64_t word = ((const uint64_t *)(const void *)payloads)[i];

        updated += graph->payload[i] != word;
        graph->payload[i] = word;
    }
    if (!hidden)
        ag_variants_waited(variants, updated);
    return updated;
}

static uint32_t launch_first(uint32_t set, uint32_t but)
{
    static uint64_t fresh = 1u << 29;

    for (uint32_t i = 0; i < n_ops; i++)
        words[i] = i == but ? ++fresh : (uint64_t)set * MOST_OPS + i + 1;
    return launch_as(true);
}

/* Sets in turns, one behind each wait, are known the second time, and one graph is enough for them
 * while the device hides what that costs; where it does not, each gets one. */
static void test_foreseen(void)
{
    for (uint32_t hidden = 0; hidden < 2; hidden++) {
        for (uint32_t n_sets = 2; n_sets <= 31; n_sets += 11) {
            uint32_t updated = 0;

            begin(12);
            for (uint32_t i = 0; i < 30 * n_sets; i++) {
                uint32_t now = launch_first(i % n_sets, UINT32_MAX);

                CHECK_SAID(now == 0 || i <= n_sets, "%u of %u sets, launch %u: %u", i % n_sets,
                           n_sets, i, now);
                updated = wait_for(hidden);
                CHECK(ag_variants_count(variants) == 1 || !hidden);
            }
            CHECK(updated == (hidden ? 12 : 0));
            CHECK(hidden || (ag_variants_count(variants) >= n_sets &&
                             ag_variants_count(variants) <= n_sets + 1));
            end();
        }
    }
}

/* One payload that is another each time does not matter. */
static void test_foreseen_but_one(void)
{
    begin(12);
    for (uint32_t i = 0; i < 100; i++) {
        CHECK(launch_first(i % 5, 3) <= (i > 5 ? 1 : 12));
        (void)wait_for(true);
    }
    end();
}

/* What is always the same asks for nothing, and neither does what never comes again. */
static void test_not_foreseen(void)
{
    begin(12);
    for (uint32_t i = 0; i < 100; i++) {
        (void)launch_first(7, UINT32_MAX);
        CHECK(wait_for(true) == 0);
    }
    for (uint32_t i = 0; i < 200; i++) {
        (void)launch_first(100 + i, UINT32_MAX);
        CHECK(wait_for(true) == 0);
    }
    end();
}

/* Sets in no order: after some mistakes nothing is foreseen. */
static void test_wrongly_foreseen(void)
{
    uint64_t state = 5;
    uint32_t late = 0;

    begin(12);
    for (uint32_t i = 0; i < 2000; i++) {
        (void)launch_first((uint32_t)chance_below(&state, 20), UINT32_MAX);
        late += wait_for(true) && i > 300;
    }
    CHECK_SAID(!late, "%u", late);
    end();
}

/* Two sets in turns. Is the next one foreseen? */
static bool two_are_foreseen(void)
{
    bool foreseen = false;

    begin(MOST_OPS);
    for (uint32_t i = 0; i < 8; i++) {
        (void)launch_first(i % 2, UINT32_MAX);
        foreseen = wait_for(true);
    }
    return foreseen;
}

/* What is kept for that has a bound, and what goes makes room. */
static void test_much_to_foresee(void)
{
    enum { EACH = MOST_OPS * sizeof(uint64_t) * AG_VARIANTS_REMEMBERED };
    static struct ag_variants *all[1 + AG_FORESEEN_BYTES / EACH];

    for (uint32_t i = 0; i < N_OF(all); i++) {
        CHECK(two_are_foreseen() == ((i + 1) * EACH <= AG_FORESEEN_BYTES));
        all[i] = variants;
    }
    variants = all[0];
    end();
    CHECK(two_are_foreseen());
    end();
    for (uint32_t i = 1; i < N_OF(all); i++) {
        variants = all[i];
        end();
    }
}

/* So many sets in turns end with a graph each, whichever operation has a payload of its own every
 * time. */
static void test_sets_in_turns(void)
{
    for (uint32_t n = 5; n <= MOST_OPS; n += 7) {
        for (uint32_t n_sets = 1; n_sets <= 31; n_sets += 5) {
            for (uint32_t but = 0; but <= n; but += n / 2) {
                begin(n);
                for (uint32_t i = 0; i < 30 * n_sets; i++)
                    launch_set(i % n_sets, but);
                for (uint32_t i = 0; i < 3 * n_sets; i++)
                    CHECK(launch_set(i % n_sets, but) <= (but < n));
                CHECK(ag_variants_count(variants) <= n_sets + 1);
                end();
            }
        }
    }
}

/* In no order, too. */
static void test_sets_at_random(void)
{
    uint64_t state = 7;

    begin(16);
    for (uint32_t i = 0; i < 1000; i++) {
        uint32_t updated = launch_set((uint32_t)chance_below(&state, 6), UINT32_MAX);

        CHECK(i < 500 || updated == 0);
    }
    CHECK(ag_variants_count(variants) <= 7);
    end();
}

/* What never comes again has one graph, whatever it is changed to. */
static void test_always_new(void)
{
    for (uint32_t n = 2; n <= MOST_OPS; n += 19) {
        begin(n);
        for (uint32_t i = 0; i < 1000; i++)
            CHECK(launch_set(i, UINT32_MAX) == n);
        CHECK(ag_variants_count(variants) == 1);
        end();
    }
}

/* A graph is built when changes have cost as much: not for what comes twice. */
static void test_rent(void)
{
    begin(20);
    for (uint32_t i = 0; i < 4; i++) {
        CHECK(launch_set(i % 2, UINT32_MAX) == 20);
        CHECK(ag_variants_count(variants) == 1);
    }
    for (uint32_t i = 0; i < 20; i++)
        (void)launch_set(i % 2, UINT32_MAX);
    CHECK(ag_variants_count(variants) == 2);
    end();
}

/* A few nodes are not worth a graph. */
static void test_little_changes(void)
{
    begin(40);
    for (uint32_t i = 0; i < 100; i++) {
        words[0] = words[13] = i % 2;
        CHECK(launch() <= 2);
    }
    CHECK(ag_variants_count(variants) == 1);
    end();
}

/* More sets than graphs: no worse than with one. Then other sets: the old graphs become theirs. */
static void test_full(void)
{
    begin(16);
    for (uint32_t i = 0; i < 4000; i++)
        CHECK(launch_set(i % 60, UINT32_MAX) <= 16);
    CHECK(ag_variants_count(variants) <= 32);
    for (uint32_t i = 0; i < 4000; i++)
        (void)launch_set(1000 + i % 20, UINT32_MAX);
    for (uint32_t i = 0; i < 40; i++)
        CHECK(launch_set(1000 + i % 20, UINT32_MAX) == 0);
    for (uint32_t i = 0; i < 2000; i++)
        (void)launch_set(5000 + i % 31, UINT32_MAX);
    for (uint32_t i = 0; i < 20000; i++)
        (void)launch_set(9000 + i % 10, UINT32_MAX);
    for (uint32_t i = 0; i < 40; i++)
        CHECK(launch_set(9000 + i % 10, UINT32_MAX) == 0);
    end();
}

/* What is taken out is what was not picked for longest; the others stay as they are. */
static void test_taking(void)
{
    begin(8);
    for (uint32_t i = 0; i < 500; i++)
        (void)launch_set(i % 9, UINT32_MAX);
    CHECK(ag_variants_count(variants) == 9);
    for (uint32_t n = 9; n > 0; n--) {
        for (uint32_t set = 0; set < n; set++)
            CHECK(launch_set(set, UINT32_MAX) == 0);
        while (ag_variants_count(variants) > n)
            free(ag_variants_take(variants));
        for (uint32_t set = 0; set < n; set++)
            CHECK_SAID(launch_set(set, UINT32_MAX) == 0, "%u of %u", set, n);
    }
    for (uint32_t i = 0; i < 500; i++)
        (void)launch_set(20 + i % 9, UINT32_MAX);
    for (uint32_t i = 0; i < 9; i++)
        CHECK(launch_set(20 + (500 + i) % 9, UINT32_MAX) == 0);
    end();
}

/* The one picked last is still that when it takes the place of the one taken: the next to be built
 * makes it the spare one. */
static void test_taking_moves_the_picked(void)
{
    struct ag_graph *last;

    begin(4);
    for (words[0] = 1; words[0] < 3; words[0]++)
        build();
    last = ag_variants_at(variants, 2);
    free(ag_variants_take(variants));
    CHECK(ag_variants_at(variants, 0) == last);
    for (uint32_t i = 0; i < 4; i++)
        words[i] = 10 + i;
    build();
    for (uint32_t i = 0; i < 4; i++)
        words[i] = 20 + i; /* as none has */
    CHECK(ag_variants_pick(variants, ops) == last);
    end();
}

int main(void)
{
    test_taking_moves_the_picked();
    test_foreseen();
    test_foreseen_but_one();
    test_much_to_foresee();
    test_not_foreseen();
    test_wrongly_foreseen();
    test_sets_in_turns();
    test_sets_at_random();
    test_always_new();
    test_rent();
    test_little_changes();
    test_full();
    test_taking();
    return 0;
}
