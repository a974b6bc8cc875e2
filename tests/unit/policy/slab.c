/* policy/slab.c: pieces do not overlap, what comes back is cut again, a slab ends with its last
 * piece; slabs whose pieces are all counted; closed slabs; threads. */
#include "policy/slab.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "policy/ledger.h"
#include "tests/common/chance.h"
#include "tests/common/check.h"

#define BASE 0x7f0000000000ull
#define KIB  1024u
#define MOST 4096u /* slabs, in all */

static const struct ag_mem_desc pool = {.source = AG_SOURCE_POOL};
static const struct ag_mem_desc managed = {.source = AG_SOURCE_PLAIN};

static struct ag_slabs slabs;

static struct ag_block *block_at(unsigned i, struct ag_mem_desc desc)
{
    static struct ag_block blocks[MOST];

    blocks[i] = (struct ag_block){
        .address = BASE + (uint64_t)i * AG_SLAB_BYTES, .size = AG_SLAB_BYTES, .desc = desc};
    return &blocks[i];
}

static struct ag_slab_piece cut(size_t size, struct ag_mem_desc desc, unsigned *n_blocks)
{
    struct ag_slab_piece piece = {0};

    if (ag_slab_cut(&slabs, size, desc, &piece) != AG_SLAB_CUT)
        CHECK(ag_slab_begin(&slabs, block_at((*n_blocks)++, desc), size, &piece));
    return piece;
}

/* No slab has room, and none comes. */
static bool has_none(size_t size, struct ag_mem_desc desc)
{
    struct ag_slab_piece piece;

    if (ag_slab_cut(&slabs, size, desc, &piece) != AG_SLAB_NEEDED)
        return false;
    ag_slab_failed(&piece);
    return true;
}

static void one_slab(void)
{
    struct ag_slab_piece piece, other;
    struct ag_block *whole = block_at(0, pool);
    unsigned n = 1;

    CHECK(ag_slab_cut(&slabs, 512, pool, &piece) == AG_SLAB_NEEDED);
    CHECK(ag_slab_cut(&slabs, 512, pool, &other) == AG_SLAB_COMING); /* another thread */
    CHECK(ag_slab_begin(&slabs, whole, 512, &piece) && ag_block_cut_up(whole) == piece.slab);
    /* Its own entry of the ledger is where it begins. */
    CHECK(piece.address == BASE + 512 && ag_slab_whole(piece.slab) == whole);
    CHECK(ag_slabs_bytes(&slabs) == AG_SLAB_BYTES);
    CHECK(has_none(512, managed)); /* of other memory */
    other = cut(64 * KIB, pool, &n);
    CHECK(n == 1 && other.slab == piece.slab && other.address == BASE + 1024);
    CHECK(ag_slab_find(piece.slab, BASE + 512) == BASE + 512);
    CHECK(ag_slab_find(piece.slab, BASE + 1023) == BASE + 512);
    CHECK(ag_slab_find(piece.slab, BASE + 1024 + 65535) == BASE + 1024);
    CHECK(!ag_slab_find(piece.slab, BASE + 511) && !ag_slab_find(piece.slab, BASE - 1));
    CHECK(!ag_slab_find(piece.slab, BASE + AG_SLAB_BYTES));
    CHECK(!ag_slab_return(piece.slab, piece.address, 512));
    CHECK(!ag_slab_find(piece.slab, BASE + 512));
    CHECK(ag_slab_return(other.slab, other.address, 64 * KIB) == whole && !ag_block_cut_up(whole));
    CHECK(!ag_slabs_bytes(&slabs) && !ag_slab_find(other.slab, BASE + 1024));
    CHECK(has_none(512, pool));
}

/* The native driver's 32 blocks of 64 KiB are 31 here, and the rest serves smaller ones. */
static void a_full_slab(void)
{
    struct ag_slab_piece pieces[31], last;
    struct ag_block *whole = NULL;
    unsigned n = 0;

    for (unsigned i = 0; i < 31; i++)
        pieces[i] = cut(64 * KIB, pool, &n);
    CHECK(n == 1);
    last = cut(64 * KIB - 512, pool, &n);
    CHECK(n == 1 && last.address + 64 * KIB - 512 == BASE + AG_SLAB_BYTES);
    CHECK(has_none(512, pool));
    /* A hole is found again, and two of them are one. */
    for (unsigned i = 10; i < 20; i++)
        CHECK(!ag_slab_return(pieces[i].slab, pieces[i].address, 64 * KIB));
    pieces[10] = cut(256 * KIB, pool, &n);
    CHECK(n == 1 && pieces[10].address == BASE + 512 + 10 * 64 * KIB);
    CHECK(!ag_slab_return(pieces[10].slab, pieces[10].address, 256 * KIB));
    for (unsigned i = 0; i < 31; i++) {
        if (i < 10 || i >= 20)
            CHECK(!ag_slab_return(pieces[i].slab, pieces[i].address, 64 * KIB));
    }
    whole = ag_slab_return(last.slab, last.address, 64 * KIB - 512);
    CHECK(whole && whole->address == BASE);
}

/* Nothing is cut from it, and what comes back stays uncut. */
static void closed(void)
{
    struct ag_slab_piece piece, other;
    unsigned n = 0;

    piece = cut(4 * KIB, pool, &n);
    other = cut(4 * KIB, pool, &n);
    ag_slab_close(piece.slab);
    CHECK(n == 1 && ag_slab_is_closed(piece.slab));
    CHECK(has_none(512, pool));
    CHECK(!ag_slab_return(piece.slab, piece.address, 4 * KIB));
    CHECK(has_none(512, pool));
    CHECK(ag_slab_return(other.slab, other.address, 4 * KIB));
    piece = cut(4 * KIB, pool, &n); /* the next one is not */
    CHECK(n == 2 && !ag_slab_is_closed(piece.slab));
    CHECK(ag_slab_return(piece.slab, piece.address, 4 * KIB));
}

/* A slab is whole while all its pieces are counted in the cache, whichever way that comes about. */
static void counted(void)
{
    struct ag_slab_piece a, b, c;
    unsigned n = 0;

    a = cut(4 * KIB, pool, &n);
    b = cut(4 * KIB, pool, &n);
    CHECK(!ag_slabs_whole_bytes(&slabs) && !ag_slab_counted(a.slab));
    ag_slab_count_piece(a.slab, true);
    CHECK(!ag_slabs_whole_bytes(&slabs) && ag_slab_counted(a.slab) == 1);
    ag_slab_count_piece(b.slab, true);
    CHECK(ag_slabs_whole_bytes(&slabs) == AG_SLAB_BYTES && ag_slab_counted(a.slab) == 2);
    c = cut(4 * KIB, pool, &n);
    CHECK(n == 1 && !ag_slabs_whole_bytes(&slabs));
    CHECK(!ag_slab_return(c.slab, c.address, 4 * KIB));
    CHECK(ag_slabs_whole_bytes(&slabs) == AG_SLAB_BYTES);
    ag_slab_count_piece(a.slab, false);
    CHECK(!ag_slabs_whole_bytes(&slabs));
    CHECK(!ag_slab_return(a.slab, a.address, 4 * KIB));
    CHECK(ag_slabs_whole_bytes(&slabs) == AG_SLAB_BYTES);
    ag_slab_count_piece(b.slab, false);
    CHECK(!ag_slabs_whole_bytes(&slabs) && !ag_slab_counted(b.slab));
    CHECK(ag_slab_return(b.slab, b.address, 4 * KIB));
}

#define PIECES 2000u

/* One thread at random: no byte belongs to two, and all memory comes back. */
static void at_random(void)
{
    static unsigned char owned[40 * (AG_SLAB_BYTES / 512)];
    static struct {
        struct ag_slab_piece piece;
        size_t size;
    } have[PIECES];
    uint64_t state = 3;
    unsigned n_blocks = 0, n_wrong = 0, n_ended = 0;

    for (unsigned turn = 0; turn < 100000; turn++) {
        unsigned i = (unsigned)chance_below(&state, turn < 90000 ? PIECES / 2 : PIECES);
        size_t from, n;

        if (!have[i].size && (turn >= 90000 || n_blocks >= 40))
            continue;
        if (!have[i].size) {
            have[i].size = (1 + chance_below(&state, chance_below(&state, 8) ? 8 : 128)) * 512;
            have[i].piece = cut(have[i].size, pool, &n_blocks);
        }
        from = (have[i].piece.address - BASE) / 512;
        n = have[i].size / 512;
        for (size_t k = from; k < from + n; k++)
            n_wrong += owned[k] != 0 && owned[k] != 1 + i % 250;
        if (owned[from]) { /* it was there before this turn */
            memset(owned + from, 0, n);
            n_ended +=
                ag_slab_return(have[i].piece.slab, have[i].piece.address, have[i].size) != NULL;
            have[i].size = 0;
        } else {
            memset(owned + from, (int)(1 + i % 250), n);
        }
    }
    for (unsigned i = 0; i < PIECES; i++) {
        if (have[i].size)
            n_ended +=
                ag_slab_return(have[i].piece.slab, have[i].piece.address, have[i].size) != NULL;
    }
    CHECK(!n_wrong && n_ended == n_blocks && !ag_slabs_bytes(&slabs));
    /* Some 1000 pieces of 5 KiB in the mean: 5 MiB, in slabs with holes. */
    CHECK_SAID(n_blocks >= 2 && n_blocks < 12, "%u slabs", n_blocks);
}

static _Atomic unsigned n_begun;

/* Cuts 50 pieces and gives most of them back, again and again. How many were another's as well? */
static void *take_and_give(void *unused)
{
    static _Atomic unsigned char owners[MOST * (AG_SLAB_BYTES / 512)];
    struct ag_slab_piece pieces[50];
    uintptr_t n_wrong = 0;

    for (unsigned turn = 0; turn < 200; turn++) {
        for (unsigned i = 0; i < 50; i++) {
            enum ag_slab_cut found;

            while ((found = ag_slab_cut(&slabs, 16 * KIB, pool, &pieces[i])) == AG_SLAB_COMING)
                sched_yield();
            if (found == AG_SLAB_NEEDED) {
                unsigned block = n_begun++;

                CHECK(block < MOST);
                CHECK(ag_slab_begin(&slabs, block_at(block, pool), 16 * KIB, &pieces[i]));
            }
            n_wrong += owners[(pieces[i].address - BASE) / 512]++ != 0;
        }
        for (unsigned i = turn % 8 == 7; i < 50; i++) {
            owners[(pieces[i].address - BASE) / 512]--;
            (void)ag_slab_return(pieces[i].slab, pieces[i].address, 16 * KIB);
        }
    }
    (void)unused;
    return (void *)n_wrong;
}

static void in_threads(void)
{
    pthread_t all[4];
    void *n_wrong;

    for (unsigned i = 0; i < 4; i++)
        CHECK(!pthread_create(&all[i], NULL, take_and_give, NULL));
    for (unsigned i = 0; i < 4; i++)
        CHECK(!pthread_join(all[i], &n_wrong) && !n_wrong);
    /* Four times 25 pieces are out, 127 of which a slab holds. */
    CHECK(ag_slabs_bytes(&slabs) >= AG_SLAB_BYTES && ag_slabs_bytes(&slabs) <= 40 * AG_SLAB_BYTES);
}

int main(void)
{
    ag_slabs_init(&slabs);
    ag_slab_configure(64 * KIB);
    CHECK(ag_slab_largest() == 64 * KIB);
    one_slab();
    a_full_slab();
    closed();
    counted();
    at_random();
    in_threads();
    return 0;
}
