/* policy/paging/plan/foretell.c: what launches use is foretold as long as they come in the order in
 * which they came before; what is not, goes by its last use. Prices of functions are the usual one.
 */
#include "policy/paging/plan/foretell.h"

#include "policy/paging/plan/toll.h"
#include "tests/common/check.h"

#define PIECES 26u
#define BYTES  ((size_t)32 << 20)
#define NEAR   (4 * BYTES)

static struct ag_piece pieces[PIECES];
static unsigned dear; /* the operand that costs ten times as much as a crossing */

unsigned ag_toll_of(uint64_t operand)
{
    return dear && operand == dear ? 1000 : 100;
}

static struct ag_piece *piece_of(char name)
{
    return &pieces[name - 'a'];
}

/* A launch for each letter, with an operand of its own: the price of the last one. Each launch has
 * a key of its own from the first one of `others` on, or else that of the letter. */
static unsigned use_as(const char *names, bool on_host, uint64_t others)
{
    unsigned price = 0;

    for (; *names; names++) {
        piece_of(*names)->size = BYTES;
        ag_foretell_launch(others ? others++ : (uint64_t)*names);
        price = ag_foretell_use(piece_of(*names), (uint64_t)*names, 1, on_host, NEAR);
    }
    return price;
}

static unsigned use(const char *names)
{
    return use_as(names, true, 0);
}

static void test_nothing_known(void)
{
    CHECK(ag_foretell_next_use(piece_of('a')) == UINT64_MAX);
    CHECK(use("a") == 100);
    CHECK(use("bcd") == 100);
    CHECK(ag_foretell_next_use(piece_of('a')) == 3 && ag_foretell_next_use(piece_of('d')) == 0);
    CHECK(ag_foretell_next_use(piece_of('e')) == UINT64_MAX);
    CHECK(ag_foretell_price(piece_of('e'), NEAR) == 0);
}

/* Used just now, it may go on so; after long it will not. */
static void test_by_now(void)
{
    CHECK(use("xyx") == 200);
    CHECK(use("klmnopx") == 100);
}

/* The same again is one launch that costs more. */
static void test_repeated(void)
{
    CHECK(use("qq") == 200 && use("q") == 300);
    for (unsigned i = 3; i < 20; i++)
        (void)use_as("q", false, 0);
    CHECK(ag_foretell_price(piece_of('q'), NEAR) == 2000); /* of what lies on the device, too */
    CHECK(use("r") == 100 && ag_foretell_next_use(piece_of('q')) == 7 - 1);
}

static void test_in_turn(void)
{
    use("abcdefgh"
        "abcdefgh"
        "abcdefgh");
    CHECK(ag_foretell_next_use(piece_of('h')) == 8);
    CHECK(ag_foretell_next_use(piece_of('e')) == 5);
    CHECK(use("ab") == 100); /* as far apart as eight others are */
    CHECK(ag_foretell_next_use(piece_of('a')) == 7 && ag_foretell_next_use(piece_of('c')) == 1);
}

/* There and back: what comes soon is told from what comes late. */
static void test_there_and_back(void)
{
    use("ijklmnonmlkji"
        "stuv"
        "ijklmnonmlkji"
        "stuv"
        "ijklmnonmlkji"
        "stuv"
        "ijklmn");
    CHECK(ag_foretell_next_use(piece_of('n')) == 2 && ag_foretell_next_use(piece_of('m')) == 3);
    CHECK(ag_foretell_next_use(piece_of('i')) == 7);
    CHECK(use("onm") == 100);
    CHECK(ag_foretell_next_use(piece_of('n')) == 17 - 3);
}

/* What is to follow soon counts from the first use on, at its own price. */
static void test_prices_to_come(void)
{
    for (unsigned i = 0; i < 3; i++)
        use("abcd"
            "wywy"
            "efgh"
            "ijkl");
    use("abcd");
    CHECK(use("w") == 200 && ag_foretell_price(piece_of('w'), NEAR) == 200);
    dear = 'y';
    CHECK(use("y") == 1000); /* and no more than that is asked */
    dear = 0;
}

/* A piece that is on the host knows when it is due, and what it then costs, from its last use on.
 */
static void test_due(void)
{
    uint64_t launches = 0;

    CHECK(ag_foretell_due(piece_of('z'), 99 * BYTES, &launches) == 0);
    for (unsigned i = 0; i < 3; i++)
        use("zabcdvefghuvw");
    CHECK(use("za") == 100);
    CHECK(ag_foretell_due(piece_of('v'), NEAR, &launches) == 100 && launches == 4);
    CHECK(ag_foretell_due(piece_of('v'), NEAR - 1, &launches) == 0);
    CHECK(ag_foretell_due(piece_of('v'), 7 * BYTES, &launches) == 200);
    CHECK(ag_foretell_due(piece_of('v'), 5 * BYTES, &launches) == 100);
    CHECK(ag_foretell_due(piece_of('z'), 12 * BYTES, &launches) && launches == 12);
    CHECK(ag_foretell_due(piece_of('z'), 12 * BYTES - 1, &launches) == 0);
    CHECK(ag_foretell_due(piece_of('q'), NEAR, &launches) == 0);
    CHECK(ag_foretell_due(piece_of('q'), 99 * BYTES, &launches) == 0);
    use("vx");
    CHECK(ag_foretell_due(piece_of('x'), 99 * BYTES, &launches) == 0);
}

/* So many launches that some share a place in the table of those that were: their like is known by
 * the launch before. */
static void test_crowded(void)
{
    uint64_t launches;
    unsigned known = 0;

    for (unsigned iteration = 0; iteration < 3; iteration++)
        for (unsigned i = 0; i < 8000; i++) {
            const char name[] = {(char)('a' + i % PIECES), 0};

            use_as(name, true, 100000 + i);
            known += iteration == 2 && ag_foretell_due(piece_of(*name), 99 * BYTES, &launches) > 0;
        }
    CHECK(known > 8000 - 2 * PIECES);
}

/* More launches than the log has, and more uses: the oldest are forgotten, and no other. */
static void test_bounds(void)
{
    for (unsigned i = 0; i < 70000; i++)
        use(i % 2 ? "b" : "c");
    CHECK(ag_foretell_next_use(piece_of('w')) > 60000);
    for (unsigned turn = 0; turn < 3; turn++) {
        for (uint64_t i = 0; i < 4096; i++) {
            ag_foretell_launch(1000 + i);
            for (unsigned j = 0; j < PIECES; j++)
                (void)ag_foretell_use(&pieces[j], 0, 1, false, NEAR);
        }
    }
    CHECK(ag_foretell_next_use(piece_of('a')) == 1);
}

static void begin_anew(void)
{
    ag_foretell_begin_child();
    for (unsigned i = 0; i < PIECES; i++)
        pieces[i] = (struct ag_piece){0};
}

/* Kernels are the same in each turn, the rest of their memory is not. */
static void test_other_memory(void)
{
    begin_anew();
    use_as("abcdefgh", false, 1000);
    use_as("a", false, 2000);
    CHECK(ag_foretell_next_use(piece_of('b')) == 7 && ag_foretell_next_use(piece_of('a')) == 8);
    use_as("b", true, 3000); /* which says how long a turn is */
    CHECK(ag_foretell_next_use(piece_of('c')) == 1 && ag_foretell_next_use(piece_of('h')) == 6);
    CHECK(ag_foretell_next_use(piece_of('a')) == 7 && ag_foretell_next_use(piece_of('b')) == 8);
    use_as("cdefgh", false, 4000);
    CHECK(ag_foretell_next_use(piece_of('a')) == 1 && ag_foretell_next_use(piece_of('h')) == 8);
    use_as("xx", false, 5000); /* later than ever: it is as far ahead as it was used ago */
    CHECK(ag_foretell_next_use(piece_of('a')) == 9);
}

/* What only one launch uses, that is made again and again, is expected as often as it was seen. */
static void test_once_an_iteration(void)
{
    begin_anew();
    for (unsigned i = 1; i < 6; i++) {
        use("zabcdefgh");
        CHECK(ag_foretell_price(piece_of('z'), NEAR) == (i < 3 ? 100 : 100 * (i - 1)));
    }
    CHECK(ag_foretell_price(piece_of('z'), 9 * BYTES) == 200); /* both follow soon */
}

/* A child begins anew. */
static void test_child(void)
{
    begin_anew();
    CHECK(use("a") == 100 && use("b") == 100);
    CHECK(ag_foretell_next_use(piece_of('a')) == 1);
}

int main(void)
{
    test_nothing_known();
    test_by_now();
    test_repeated();
    test_in_turn();
    test_there_and_back();
    test_prices_to_come();
    test_due();
    test_crowded();
    test_bounds();
    test_other_memory();
    test_once_an_iteration();
    test_child();
    return 0;
}
