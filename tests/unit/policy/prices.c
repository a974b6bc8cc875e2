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
    CHECK(ag_prices_of_move() == 200 && least_uses() == 3 && ag_prices_gib_ns() == 0);
    CHECK(!ag_prices_worth_moving(204) && ag_prices_worth_moving(205));
    CHECK(ag_prices_crossing_ns(1024 * MIB) == 19500000);
    ag_prices_note(0, 1, 1);
    CHECK(ag_prices_of_move() == 200 && ag_prices_gib_ns() == 0);
}

/* The bus is not believed to be so slow, but for what is copied later. */
static void test_slow_first_copy(void)
{
    ag_prices_note(8 * MIB, 40000000, 0);
    CHECK(ag_prices_gib_ns() == 5120000000 && ag_prices_of_move() == 100);
    CHECK(ag_prices_crossing_ns(1024 * MIB) == 19500000);
    ag_prices_note(64 * MIB, 5000000, 0);
    CHECK(ag_prices_crossing_ns(1024 * MIB) == 80000000);
}

static void test_measured(void)
{
    note(1000000, 505000);
    CHECK(ag_prices_of_move() == 150 && least_uses() == 2);
    note(1000000, 975000); /* it must win 2 % */
    CHECK(ag_prices_of_move() == 197 && least_uses() == 3);
    note(1000000, 0);
    CHECK(ag_prices_of_move() == 100 && least_uses() == 2);
    CHECK(ag_prices_crossing_ns(128 * MIB) == 2000000 && ag_prices_gib_ns() == 16000000);
}

/* A kernel that reads memory of the host has the bus for itself; copies both ways do not. */
static void test_copies_both_ways(void)
{
    note(1400000, 605000);
    CHECK(ag_prices_of_move() == 200 && ag_prices_gib_ns() == 16000000);
    ag_prices_note(64 * MIB, 800000, 0);
    note(1400000, 405000);
    CHECK(ag_prices_of_move() == 225 && ag_prices_crossing_ns(64 * MIB) == 800000);
}

/* Whatever it takes, memory that is used three times is worth it. */
static void test_bounded(void)
{
    note(1000000, 5000000);
    CHECK(ag_prices_of_move() == 260 && least_uses() == 3);
    note(0, 0);
    CHECK(ag_prices_of_move() == 100 && ag_prices_crossing_ns(64 * MIB) == 800000);
}

int main(void)
{
    test_usual();
    test_slow_first_copy();
    test_measured();
    test_copies_both_ways();
    test_bounded();
    return 0;
}
