/* policy/lru.c: the oldest of many, against a plain search. */
#include "lru.h"

#include "check.h"

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

int main(void)
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
    while (lru.n) {
        struct ag_lru_item *oldest = ag_lru_oldest(&lru);

        CHECK(oldest == oldest_by_search());
        ag_lru_remove(&lru, oldest);
        in[oldest - items] = false;
    }
    CHECK(oldest_by_search() == NULL);
    ag_lru_finish(&lru);
    CHECK(!lru.items && ag_lru_oldest(&lru) == NULL);
    return 0;
}
