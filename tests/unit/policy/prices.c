/* policy/paging/plan/prices.c: what moving costs is learnt of what it took, and decides from how
 * many uses on it is worth it, each of which is one crossing of the bus. */
#include "policy/paging/plan/prices.h"

#include "tests/common/check.h"

#define MIB ((uint64_t)1 << 20)

static unsigned least_uses(void)
{
    unsigned uses = 0;

    while (!ag_prices_worth_moving(100 * uses))
        uses++;
    return uses;
}

/* Batches until only they count. */
static void note(uint64_t copy_ns, uint64_t rest_ns)
{
    for (unsigned i = 0; i < 1000; i++)
        ag_prices_note(64 * MIB, copy_ns, rest_ns);
}

static void test_usual(void)
{
    CHECK(ag_prices_of_move() == 180 && least_uses() == 2);
    CHECK(!ag_prices_worth_moving(183) && ag_prices_worth_moving(184));
    CHECK(ag_prices_crossing_ns(1024 * MIB) == 21000000);
}

static void test_measured(void)
{
    note(1000000, 505000);
    CHECK(ag_prices_of_move() == 150 && least_uses() == 2);
    note(1000000, 975000); /* it must win 2 % */
    CHECK(ag_prices_of_move() == 197 && least_uses() == 3);
    note(1000000, 1805000);
    CHECK(ag_prices_of_move() == 280 && least_uses() == 3);
    note(1000000, 0);
    CHECK(ag_prices_of_move() == 100 && least_uses() == 2);
    CHECK(ag_prices_crossing_ns(128 * MIB) == 2000000);
}

/* Whatever it takes, memory that is used often is worth it. */
static void test_bounded(void)
{
    note(1, UINT64_MAX / 4000000);
    CHECK(ag_prices_of_move() == 300 && least_uses() == 4);
    note(0, 0);
    CHECK(ag_prices_of_move() <= 300 && least_uses() <= 4);
}

int main(void)
{
    test_usual();
    test_measured();
    test_bounded();
    return 0;
}
