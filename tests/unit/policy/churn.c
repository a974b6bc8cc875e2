/* policy/churn.c: when small blocks are cut, and frees are kept. */
#include "policy/churn.h"

#include "tests/common/check.h"

/* A program that frees at its end only: nothing is kept. */
static void nothing_before_churn(void)
{
    struct ag_churn churn = {0};

    for (unsigned i = 0; i < 1000; i++)
        ag_churn_allocates(&churn);
    for (unsigned i = 0; i < 1000; i++)
        CHECK(!ag_churn_keeps(&churn));
    CHECK(churn.phase == AG_CHURN_FREED);
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
    CHECK(ag_churn_keeps(&churn));
    ag_churn_begin_child(&churn);
    CHECK(churn.phase == AG_CHURN_NOT && !ag_churn_keeps(&churn));
}

/* What others may do with memory is known of the process, and a forked child has none. */
static void others_use_memory(void)
{
    struct ag_churn churn = {.phase = AG_CHURN_ON};

    CHECK(!ag_churn_is_shared() && !ag_churn_is_reached());
    ag_churn_note_shared();
    CHECK(ag_churn_is_shared() && !ag_churn_is_reached());
    ag_churn_note_reached();
    CHECK(ag_churn_is_reached() && ag_churn_keeps(&churn) && ag_churn_cuts(&churn));
    ag_churn_begin_child(&churn);
    CHECK(!ag_churn_is_shared() && !ag_churn_is_reached());
}

int main(void)
{
    nothing_before_churn();
    many_small_blocks();
    first_allocation_after_a_free();
    others_use_memory();
    return 0;
}
