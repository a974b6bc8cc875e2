/* policy/paging/plan/extents.c: what kernels are given an address of reaches to the next one that
 * they are given, in blocks of a GiB or more, and in all blocks no further than it could where it
 * was nearest to a block's end; what was given long ago is forgotten. */
#include "policy/paging/plan/extents.h"

#include "tests/common/check.h"

#define PIECES 40u
#define PIECE  ((size_t)32 << 20)
#define AT     ((CUdeviceptr)1 << 40)

static struct ag_piece pieces[PIECES];
static struct ag_movable range = {
    .address = AT, .size = PIECES * PIECE, .pieces = pieces, .n_pieces = PIECES};

static CUdeviceptr address_of(double piece)
{
    return AT + (CUdeviceptr)(piece * PIECE);
}

static size_t end_of(double piece)
{
    return ag_extents_end(&range, address_of(piece));
}

static void give(double piece)
{
    ag_extents_note(&range, address_of(piece));
}

static void test_one_address(void)
{
    give(0);
    CHECK(end_of(0) == PIECES && end_of(3) == PIECES);
}

static void test_to_the_next_one(void)
{
    give(4);
    CHECK(end_of(0) == 4); /* which begins with a piece */
    give(2.5);
    CHECK(end_of(0) == 3 && end_of(1) == 3); /* half of a piece is of each */
    CHECK(end_of(2.5) == 4);
}

static void test_within_a_piece(void)
{
    give(10.25);
    give(10.5);
    CHECK(end_of(10.25) == 11 && end_of(10) == 11);
    give(10.75);
    CHECK(end_of(10.5) == 11);
}

/* The last one is no larger than the largest: from the fourth piece into the tenth. */
static void test_the_last_one(void)
{
    CHECK(end_of(10.75) == 10 + 7);
    give(38);
    CHECK(end_of(10.75) == 38 && end_of(38) == PIECES);
}

static void test_blocks_that_are_no_pool(void)
{
    struct ag_movable small = range;

    small.n_pieces = 31;
    small.size = 31 * PIECE;
    CHECK(!ag_extents_are_learnt(&small) && ag_extents_are_learnt(&range));
    CHECK(ag_extents_end(&small, address_of(0)) == 31);
}

/* Divided anew, in halves: thirty thousand addresses later the parts of before are no more. */
static void test_forgets(void)
{
    for (unsigned i = 0; i < 40000; i++)
        give(i % 2 ? 0 : 20);
    CHECK(end_of(0) == 20 && end_of(20) == PIECES);
}

static void test_reach_of_an_operand(void)
{
    CHECK(ag_extents_reach(7, 128) == 128 && ag_extents_reach(8, 64) == 64);
    CHECK(ag_extents_reach(7, 32) == 32);
    CHECK(ag_extents_reach(7, 128) == 32 && ag_extents_reach(8, 96) == 64);
    ag_extents_begin_child();
    CHECK(ag_extents_reach(7, 128) == 128);
}

/* Of two that share a row the later one is known, and no other. */
static void test_more_operands_than_rows(void)
{
    for (uint64_t operand = 1; operand <= 100000; operand++)
        CHECK(ag_extents_reach(operand, operand) == operand);
    CHECK(ag_extents_reach(100000, 200000) == 100000);
}

int main(void)
{
    for (unsigned i = 0; i < PIECES; i++)
        pieces[i] = (struct ag_piece){.offset = i * PIECE, .size = PIECE};
    test_one_address();
    test_to_the_next_one();
    test_within_a_piece();
    test_the_last_one();
    test_blocks_that_are_no_pool();
    test_forgets();
    test_reach_of_an_operand();
    test_more_operands_than_rows();
    return 0;
}
