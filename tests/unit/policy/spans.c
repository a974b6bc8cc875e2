/* policy/managed/spans.c: random ranges of every size against a plain array, and readers beside a
 * writer.
 */
#include "policy/managed/spans.h"

#include <pthread.h>
#include <string.h>

#include "tests/common/check.h"

#define N_SPANS 400u
#define BASE    0x7f0000000000u

/* Range i lies in a region of its own of 1 << 34 bytes, so that no two overlap. */
static struct ag_span spans_of[N_SPANS];
static struct {
    bool in;
    uint64_t first, bytes;
} model[N_SPANS];

static uint64_t region(unsigned i)
{
    return BASE + ((uint64_t)i << 34);
}

/* Any power of two up to a whole region, a little more or less; where the region lets it begin. */
static void choose_range(uint64_t *state, unsigned i)
{
    uint64_t bytes = 1ull << chance_below(state, 35);

    bytes += chance_below(state, 3) - 1;
    bytes = bytes < 1 ? 1 : bytes > 1ull << 34 ? 1ull << 34 : bytes;
    model[i].bytes = bytes;
    model[i].first = region(i) + chance_below(state, (1ull << 34) - bytes + 1);
}

static void check_edges(struct ag_spans *spans, unsigned i, unsigned step)
{
    uint64_t first = model[i].first, last = first + model[i].bytes - 1;
    struct ag_span *there = model[i].in ? &spans_of[i] : NULL;

    CHECK_SAID(ag_spans_find(spans, first) == there, "step %u, range %u", step, i);
    CHECK_SAID(ag_spans_find(spans, last) == there, "step %u, range %u", step, i);
    CHECK_SAID(ag_spans_find(spans, first + model[i].bytes / 3) == there, "step %u", step);
    /* Its neighbours may be there, it may not. */
    CHECK_SAID(ag_spans_find(spans, first - 1) != &spans_of[i], "step %u, range %u", step, i);
    CHECK_SAID(ag_spans_find(spans, last + 1) != &spans_of[i], "step %u, range %u", step, i);
}

static void agrees_with_a_model(void)
{
    struct ag_spans spans = {0};
    uint64_t state = 1;

    CHECK(ag_spans_find(&spans, BASE) == NULL);
    for (unsigned step = 0; step < 40000; step++) {
        unsigned i = (unsigned)chance_below(&state, N_SPANS);

        if (model[i].in) {
            ag_spans_remove(&spans, &spans_of[i]);
        } else {
            choose_range(&state, i);
            CHECK(ag_spans_add(&spans, &spans_of[i], model[i].first, model[i].bytes));
        }
        model[i].in = !model[i].in;
        check_edges(&spans, i, step);
        check_edges(&spans, (unsigned)chance_below(&state, N_SPANS), step);
        /* Words that are no addresses. */
        CHECK(!ag_spans_find(&spans, step) && !ag_spans_find(&spans, UINT64_MAX - step));
        CHECK(!ag_spans_find(&spans, BASE + (1ull << 60)));
    }
    for (unsigned i = 0; i < N_SPANS; i++) {
        if (model[i].in)
            ag_spans_remove(&spans, &spans_of[i]);
    }
    CHECK(spans.n_entries == 0 && atomic_load(&spans.used_levels) == 0);
}

/* Blocks that touch each other: as a driver packs small ones. */
static void neighbours(void)
{
    static struct ag_span packed[1000];
    struct ag_spans spans = {0};

    for (unsigned i = 0; i < N_OF(packed); i++)
        CHECK(ag_spans_add(&spans, &packed[i], BASE + i * 512u, 512));
    for (unsigned at = 0; at < N_OF(packed) * 512u; at += 8)
        CHECK(ag_spans_find(&spans, BASE + at) == &packed[at / 512]);
    CHECK(!ag_spans_find(&spans, BASE - 1) && !ag_spans_find(&spans, BASE + N_OF(packed) * 512u));
}

/* --- threads --- */

static struct ag_spans shared;
static struct ag_span steady[64], moving[256];
static _Atomic bool done;

static void *read_all(void *unused)
{
    uint64_t state = (uintptr_t)&state;

    (void)unused;
    while (!atomic_load(&done)) {
        unsigned i = (unsigned)chance_below(&state, N_OF(steady));
        struct ag_span *found;

        CHECK(ag_spans_find(&shared, BASE + ((uint64_t)i << 24) + 77) == &steady[i]);
        i = (unsigned)chance_below(&state, N_OF(moving));
        found = ag_spans_find(&shared, region(1) + ((uint64_t)i << 22) + 5);
        CHECK(!found || found == &moving[i]);
    }
    return NULL;
}

static void readers_beside_a_writer(void)
{
    pthread_t readers[3];
    bool in[N_OF(moving)] = {0};
    uint64_t state = 9;

    for (unsigned i = 0; i < N_OF(steady); i++)
        CHECK(ag_spans_add(&shared, &steady[i], BASE + ((uint64_t)i << 24), 1u << 20));
    for (unsigned i = 0; i < N_OF(readers); i++)
        CHECK(!pthread_create(&readers[i], NULL, read_all, NULL));
    for (unsigned step = 0; step < 60000; step++) {
        unsigned i = (unsigned)chance_below(&state, N_OF(moving));

        if (in[i])
            ag_spans_remove(&shared, &moving[i]);
        else
            CHECK(ag_spans_add(&shared, &moving[i], region(1) + ((uint64_t)i << 22),
                               512u << chance_below(&state, 13)));
        in[i] = !in[i];
    }
    atomic_store(&done, true);
    for (unsigned i = 0; i < N_OF(readers); i++)
        CHECK(!pthread_join(readers[i], NULL));
}

int main(void)
{
    agrees_with_a_model();
    neighbours();
    readers_beside_a_writer();
    return 0;
}
