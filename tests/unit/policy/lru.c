/* policy/managed/lru.c: the oldest of many, against a plain search. */
#include "policy/managed/lru.h"

#include "tests/common/check.h"

#define N 700u

static struct ag_lru_item items[N];
static bool in[N];

static const struct ag_lru_item *oldest_by_search(void)
{
    const struct ag_lru_item *oldest = NULL;

    for (unsigned i = 0; i < N; i++) {
        if (in[i] && (!oldest || atomic_load(&items[i].used) < atomic_load(&oldest->used)))
            oldest = &items[i];
    }
    return oldest;
}

/* The oldest first, to the last. */
static void take_all(struct ag_lru *lru)
{
    while (lru->n) {
        struct ag_lru_item *oldest = ag_lru_oldest(lru);

        CHECK(oldest == oldest_by_search());
        ag_lru_remove(lru, oldest);
        in[oldest - items] = false;
    }
    CHECK(oldest_by_search() == NULL);
}

/* Times in no order, few uses: an item from the end that fills a gap may belong above it. */
static void in_no_order(void)
{
    struct ag_lru lru = {0};
    uint64_t state = 5;

    for (unsigned step = 0; step < 60000; step++) {
        unsigned i = (unsigned)chance_below(&state, N);

        if (in[i]) {
            ag_lru_remove(&lru, &items[i]);
        } else {
            atomic_store(&items[i].used, chance_below(&state, 1u << 30));
            CHECK(ag_lru_add(&lru, &items[i]));
        }
        in[i] = !in[i];
        if (step % 1500 == 1499)
            take_all(&lru);
    }
    take_all(&lru);
    ag_lru_finish(&lru);
}

static void as_time_goes(void)
{
    struct ag_lru lru = {0};
    uint64_t state = 3, now = 1;

    CHECK(ag_lru_oldest(&lru) == NULL);
    for (unsigned step = 0; step < 60000; step++) {
        unsigned i = (unsigned)chance_below(&state, N);
        unsigned what = (unsigned)chance_below(&state, 10);

        if (!in[i]) {
            atomic_store(&items[i].used, now++);
            CHECK(ag_lru_add(&lru, &items[i]));
            in[i] = true;
        } else if (what < 2) {
            ag_lru_remove(&lru, &items[i]);
            in[i] = false;
        } else {
            atomic_store(&items[i].used, now++);
        }
        if (what == 9)
            CHECK_SAID(ag_lru_oldest(&lru) == oldest_by_search(), "step %u", step);
    }
    take_all(&lru);
    ag_lru_finish(&lru);
    CHECK(!lru.items && ag_lru_oldest(&lru) == NULL);
}

int main(void)
{
    as_time_goes();
    in_no_order();
    return 0;
}
