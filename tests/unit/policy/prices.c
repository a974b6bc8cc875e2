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
static void note(uint64_t ns)
{
    for (unsigned i = 0; i < 1000; i++)
        ag_prices_note_moves(64 * MIB, ns);
}

static void test_usual(void)
{
    CHECK(ag_prices_of_move() == 160 && least_uses() == 2 && ag_prices_gib_ns() == 0);
    CHECK(!ag_prices_worth_moving(163) && ag_prices_worth_moving(164));
    CHECK(ag_prices_crossing_ns(1024 * MIB) == 19500000);
    ag_prices_note_copies(0, 1);
    ag_prices_note_moves(0, 1);
    CHECK(ag_prices_of_move() == 160 && ag_prices_gib_ns() == 0);
}

/* How many more bytes move before copies are measured again. */
static uint64_t moved_between(void)
{
    uint64_t moved = 0;

    for (; !ag_prices_want_copies(); moved += MIB)
        ag_prices_note_moves(MIB, 20000);
    return moved;
}

/* The bus is not believed to be so slow, but for what is copied later. */
static void test_slow_first_copy(void)
{
    ag_prices_note_copies(4 * MIB, 20000000);
    CHECK(ag_prices_gib_ns() == 5120000000 && ag_prices_of_move() == 160);
    CHECK(ag_prices_crossing_ns(1024 * MIB) == 19500000);
    ag_prices_note_copies(24 * MIB, 120000000);
    ag_prices_note_copies(1 * MIB, 5000000);
    CHECK(moved_between() == 0); /* four at least */
    ag_prices_note_copies(1 * MIB, 5000000);
    CHECK(ag_prices_crossing_ns(1024 * MIB) == 19500000);
    CHECK(moved_between() == 30 * MIB); /* and 32 MiB */
    ag_prices_note_copies(2 * MIB, 156250);
    CHECK(ag_prices_crossing_ns(1024 * MIB) == 80000000);
}

/* Half of the first bytes are measured, an eighth of those to come, and ever fewer. */
static void test_when_copies_are_measured(void)
{
    CHECK(moved_between() == 8 * 32 * MIB);
    ag_prices_note_copies(32 * MIB, 500000);
    CHECK(ag_prices_gib_ns() == 16000000);
    CHECK(moved_between() == 8 * 64 * MIB);
    ag_prices_note_copies(4096 * MIB, 64000000);
    CHECK(moved_between() == 4096 * MIB);
}

static void test_measured(void)
{
    note(1505000);
    CHECK(ag_prices_of_move() == 150 && least_uses() == 2);
    note(1975000); /* it must win 2 % */
    CHECK(ag_prices_of_move() == 197 && least_uses() == 3);
    note(1000000);
    CHECK(ag_prices_of_move() == 100 && least_uses() == 2);
    CHECK(ag_prices_crossing_ns(128 * MIB) == 2000000 && ag_prices_gib_ns() == 16000000);
}

/* A kernel that reads memory of the host has the bus for itself; copies both ways do not. */
static void test_copies_both_ways(void)
{
    ag_prices_note_copies(64 * MIB, 1400000);
    CHECK(ag_prices_gib_ns() == 16000000);
    ag_prices_note_copies(64 * MIB, 800000);
    note(1805000);
    CHECK(ag_prices_of_move() == 225 && ag_prices_crossing_ns(64 * MIB) == 800000);
}

/* Whatever it takes, memory that is used three times is worth it. */
static void test_bounded(void)
{
    note(6000000);
    CHECK(ag_prices_of_move() == 260 && least_uses() == 3);
    note(0);
    CHECK(ag_prices_of_move() == 100 && ag_prices_crossing_ns(64 * MIB) == 800000);
}

int main(void)
{
    test_usual();
    test_slow_first_copy();
    test_when_copies_are_measured();
    test_measured();
    test_copies_both_ways();
    test_bounded();
    return 0;
}
