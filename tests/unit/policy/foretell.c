/* policy/paging/plan/foretell.c: what launches use is foretold as long as they come in the order in
 * which they came before; what is not, goes by its last use. What that is worth: worth.c, below.
 * Prices of functions are the usual one. */
#include "policy/paging/plan/foretell.h"

#include "policy/paging/plan/log.h"
#include "policy/paging/plan/prices.h"
#include "policy/paging/plan/toll.h"
#include "policy/paging/plan/worth.h"
#include "tests/common/check.h"

#define PIECES 26u
#define BYTES  ((size_t)32 << 20)
#define NEAR   (4 * BYTES)

static struct ag_piece pieces[PIECES];
static unsigned dear;   /* the operand that costs ten times as much as a crossing */
static uint64_t kernel; /* of all launches; 1: one that uses a tenth of what it is given */

unsigned ag_toll_of(uint64_t of, uint64_t operand)
{
    return of == 1 ? 10 : dear && operand == dear ? 1000 : 100;
}

unsigned ag_toll_now(uint64_t of, uint64_t operand)
{
    return ag_toll_of(of, operand);
}

static struct ag_piece *piece_of(char name)
{
    return &pieces[name - 'a'];
}

static uint64_t worth_of(char name)
{
    return ag_foretell_worth(piece_of(name), NEAR);
}

/* A launch for each letter, with an operand of its own: what the last one is worth. Each launch has
 * a key of its own from the first one of `others` on, or else that of the letter. */
static uint64_t use_as(const char *names, bool on_host, uint64_t others)
{
    uint64_t worth = 0;

    for (; *names; names++) {
        piece_of(*names)->size = BYTES;
        ag_log_add_launch(others ? others++ : (uint64_t)*names, kernel, ag_worth_usual_rent());
        ag_foretell_use(piece_of(*names), (uint64_t)*names, 1, on_host);
        worth = worth_of(*names);
    }
    return worth;
}

static uint64_t use(const char *names)
{
    return use_as(names, true, 0);
}

static void begin_anew(void)
{
    ag_foretell_begin_child();
    for (unsigned i = 0; i < PIECES; i++)
        pieces[i] = (struct ag_piece){0};
}

/* --- what is expected --- */

static void test_nothing_known(void)
{
    CHECK(ag_foretell_next_use(piece_of('a')) == UINT64_MAX);
    CHECK(use("a") == 100);
    CHECK(use("bcd") == 100);
    CHECK(ag_foretell_next_use(piece_of('a')) == 3 && ag_foretell_next_use(piece_of('d')) == 0);
    CHECK(ag_foretell_next_use(piece_of('e')) == UINT64_MAX);
    CHECK(worth_of('e') == 0 && worth_of('a') == 0 && worth_of('d') == 100);
    CHECK(!ag_foretell_comes(piece_of('a')));
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
    CHECK(worth_of('q') == 2000); /* of what lies on the device, too */
    CHECK(use("r") == 100 && ag_foretell_next_use(piece_of('q')) == 7 - 1);
}

static void test_in_turn(void)
{
    use("abcdefgh"
        "abcdefgh"
        "abcdefgh");
    CHECK(ag_foretell_next_use(piece_of('h')) == 8);
    CHECK(ag_foretell_next_use(piece_of('e')) == 5);
    CHECK(use("ab") == 100); /* nobody has looked yet what is worth its rent */
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

/* Two iterations that are alike for long are told apart by what was before them. */
static void test_long_parts_alike(void)
{
    char part[81] = {0};

    begin_anew();
    for (unsigned i = 0; i < 50; i++)
        part[i] = (char)('a' + i % 10);
    for (unsigned turn = 0; turn < 3; turn++) {
        use("xk");
        use(part);
        use("l");
        use("yk");
        use(part);
        use("m");
    }
    use("xk");
    use(part);
    CHECK(ag_foretell_next_use(piece_of('l')) == 1 && ag_foretell_next_use(piece_of('m')) > 50);
}

/* So many launches that some share a place in the tables of those that were: their like is known by
 * the launch before. */
static void test_crowded(void)
{
    unsigned known = 0;

    for (unsigned iteration = 0; iteration < 3; iteration++)
        for (unsigned i = 0; i < 8000; i++) {
            const char name[] = {(char)('a' + i % PIECES), 0};

            use_as(name, true, 100000 + i);
            known += iteration == 2 && piece_of(*name)->expected == ag_log_last() + PIECES;
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
            ag_log_add_launch(1000 + i, 0, 0);
            for (unsigned j = 0; j < PIECES; j++)
                ag_foretell_use(&pieces[j], 0, 1, false);
        }
    }
    CHECK(ag_foretell_next_use(piece_of('a')) == 1);
}

/* What a kernel uses of all that it is given is what each use costs; so also what it was worth. */
static void test_part_used(void)
{
    begin_anew();
    kernel = 1;
    CHECK(use("a") == 10 && use("b") == 10);
    CHECK(use("aa") == 20);
    kernel = 0;
    CHECK(use("c") == 100);
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

/* --- what that is worth --- */

/* Iterations of these launches, and a look at them all. */
static void iterate(const char *names, unsigned n, uint64_t room)
{
    begin_anew();
    for (unsigned i = 0; i < n; i++) {
        use(names);
        ag_worth_look(room);
    }
}

/* Where all has room, that costs nothing, and what is used again is worth a move. */
static void test_room_for_all(void)
{
    unsigned move = ag_prices_of_move();

    iterate("abacadaeafag", 24, 8 * BYTES);
    CHECK(worth_of('b') >= 100 && worth_of('b') <= move);
    CHECK(worth_of('a') == move || worth_of('a') == move - 1);
    CHECK(ag_foretell_comes(piece_of('a')) && worth_of('z') == 0);
}

/* Where few have, those stay that are used most. */
static void test_room_for_few(void)
{
    iterate("abacadaeafag", 24, 2 * BYTES);
    CHECK(worth_of('a') > 100);
    CHECK(use("a") > 200); /* this use, and what follows */
    CHECK(worth_of('b') < worth_of('a') - 100);
}

/* What is used at length is worth coming for, each time, and going after it. */
static void test_comes_and_goes(void)
{
    iterate("abcbcbcdefefefghihihi", 24, 2 * BYTES);
    CHECK(ag_foretell_comes(piece_of('b')) || worth_of('b') > 0);
    CHECK(use("ab") > ag_prices_of_move());
    (void)use("cbcbc");
    CHECK(worth_of('b') == 0);
}

/* A use that is later than expected is worth less and less, and then nothing. */
static void test_overdue(void)
{
    uint64_t before;

    iterate("abacadaeafag", 24, 2 * BYTES);
    before = worth_of('a');
    (void)use("stu");
    CHECK(worth_of('a') < before);
    for (unsigned i = 0; i < 10; i++)
        (void)use("vwxyzstu");
    CHECK(worth_of('a') == 0);
}

/* An operand that costs ten times as much keeps its room. */
static void test_dear(void)
{
    dear = 'd';
    iterate("abcdefgh", 24, 2 * BYTES);
    CHECK(worth_of('d') > worth_of('c') && worth_of('d') > worth_of('e'));
    CHECK(ag_foretell_comes(piece_of('d')) && !ag_foretell_comes(piece_of('c')));
    dear = 0;
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
    test_crowded();
    test_bounds();
    test_part_used();
    test_other_memory();
    test_long_parts_alike();
    test_room_for_all();
    test_room_for_few();
    test_comes_and_goes();
    test_overdue();
    test_dear();
    test_child();
    return 0;
}
