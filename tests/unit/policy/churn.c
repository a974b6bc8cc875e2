/* policy/churn.c: when frees are kept, and when a pool is made. */
#include "policy/churn.h"

#include "tests/common/check.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

/* How many misses of that size it takes. */
static unsigned misses_of(size_t bytes, unsigned most)
{
    struct ag_churn churn = {.phase = AG_CHURN_ON};
    unsigned n = 0;

    for (; n < most && !ag_churn_wants_pool(&churn); n++)
        ag_churn_missed(&churn, bytes);
    CHECK(churn.misses == n);
    return n;
}

static unsigned returns_of(size_t bytes)
{
    struct ag_churn churn = {.phase = AG_CHURN_ON};
    unsigned n = 0;

    for (; !ag_churn_wants_pool(&churn); n++)
        ag_churn_returned(&churn, bytes);
    return n;
}

/* A program that frees at its end only: nothing is kept, nothing counts. */
static void nothing_before_churn(void)
{
    struct ag_churn churn = {0};

    for (unsigned i = 0; i < 100000; i++) {
        ag_churn_allocates(&churn);
        ag_churn_missed(&churn, MIB);
    }
    for (unsigned i = 0; i < 100000; i++) {
        CHECK(!ag_churn_keeps(&churn));
        ag_churn_returned(&churn, MIB);
    }
    CHECK(!ag_churn_wants_pool(&churn) && !churn.misses && churn.phase == AG_CHURN_FREED);
}

/* Many small blocks are worth slabs, in a program that frees nothing. */
static void many_small_blocks(void)
{
    struct ag_churn churn = {0};

    for (unsigned i = 0; i < AG_CHURN_MANY; i++) {
        CHECK(!ag_churn_cuts(&churn));
        ag_churn_allocates(&churn);
        ag_churn_small(&churn);
    }
    CHECK(ag_churn_cuts(&churn) && !ag_churn_is_on(&churn) && !ag_churn_keeps(&churn));
    ag_churn_begin_child(&churn);
    CHECK(!ag_churn_cuts(&churn));
}

static void first_allocation_after_a_free(void)
{
    struct ag_churn churn = {0};

    ag_churn_allocates(&churn);
    CHECK(!ag_churn_keeps(&churn) && !ag_churn_keeps(&churn));
    ag_churn_allocates(&churn);
    CHECK(churn.phase == AG_CHURN_ON && ag_churn_keeps(&churn));
    ag_churn_allocates(&churn);
    CHECK(ag_churn_keeps(&churn) && !ag_churn_wants_pool(&churn));
    ag_churn_begin_child(&churn);
    CHECK(churn.phase == AG_CHURN_NOT && !ag_churn_keeps(&churn));
}

/* The pool's start is 8 ms: what the driver has taken by then, more than a pool would, is about as
 * much. */
static void costs_add_up(void)
{
    CHECK(misses_of(4 * KIB, 100000) > 4000 && misses_of(4 * KIB, 100000) < 10000);
    CHECK(misses_of(64 * KIB, 100000) > 2000 && misses_of(64 * KIB, 100000) < 5000);
    CHECK(misses_of(MIB, 100000) > 300 && misses_of(MIB, 100000) < 500);
    CHECK(misses_of(2 * MIB, 1000) == misses_of(32 * MIB, 1000));
    CHECK(misses_of(2 * MIB, 1000) > 150 && misses_of(2 * MIB, 1000) < 200);
    CHECK(misses_of(64 * MIB, 1000) == 1000); /* where a pool is slower */
    CHECK(returns_of(MIB) > 150 && returns_of(MIB) < 170);
    CHECK(returns_of(1024 * MIB) > 20 && returns_of(1024 * MIB) < 25);
}

static void is_configured(void)
{
    struct ag_churn churn = {0};

    ag_churn_configure(0);
    CHECK(ag_churn_wants_pool(&churn) && !ag_churn_keeps(&churn));
    ag_churn_configure(100);
    CHECK(misses_of(2 * MIB, 100) == 3);
}

/* Other processes can open native memory only. */
static void sharing_ends_it(void)
{
    struct ag_churn churn = {.phase = AG_CHURN_ON};

    ag_churn_configure(100);
    CHECK(misses_of(2 * MIB, 100) == 3);
    ag_churn_note_shared();
    CHECK(misses_of(2 * MIB, 100) == 100);
    CHECK(ag_churn_keeps(&churn));
    ag_churn_begin_child(&churn);
    CHECK(misses_of(2 * MIB, 100) == 3);
}

/* Nor do other devices get at memory of a pool. */
static void being_reached_ends_it(void)
{
    struct ag_churn churn = {.phase = AG_CHURN_ON};

    ag_churn_configure(100);
    ag_churn_note_reached();
    CHECK(misses_of(2 * MIB, 100) == 100);
    CHECK(ag_churn_keeps(&churn) && ag_churn_cuts(&churn) && !ag_churn_is_shared());
    ag_churn_begin_child(&churn);
    CHECK(misses_of(2 * MIB, 100) == 3);
}

int main(void)
{
    ag_churn_configure(8000);
    nothing_before_churn();
    many_small_blocks();
    first_allocation_after_a_free();
    costs_add_up();
    is_configured();
    sharing_ends_it();
    being_reached_ends_it();
    return 0;
}
