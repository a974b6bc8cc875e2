/* policy/ledger.c: what goes in comes out once, whoever asks; blocks of a context; forgetting. */
#include "policy/ledger.h"

#include <pthread.h>
#include <string.h>

#include "tests/common/chance.h"
#include "tests/common/check.h"

/* The ledger only compares these. */
static char context_a, context_b;
static _Alignas(64) char a_slab[64];
#define A ((struct ag_context *)(void *)&context_a)
#define B ((struct ag_context *)(void *)&context_b)

static const struct ag_mem_desc pool_shape = {.source = AG_SOURCE_POOL};
static const struct ag_mem_desc native_shape = {.source = AG_SOURCE_NATIVE};

#define BASE 0x7f0000000000ull

/* Where memory is that differs from native: every part of it, native memory not, and for good. */
static void may_hold(void)
{
    const CUdeviceptr far = BASE + (1ull << 40), part = 1u << 28;
    struct ag_block *block = ag_ledger_enter(far, 4096, A, native_shape);

    CHECK(!ag_ledger_may_hold(far));
    ag_ledger_moved(block, pool_shape);
    CHECK(ag_ledger_may_hold(far) && ag_ledger_may_hold(far + 4095));
    CHECK(!ag_ledger_may_hold(far - 1) && !ag_ledger_may_hold(far + part));
    ag_ledger_remove(block);
    block = ag_ledger_enter(far + 2 * part - 512, 5 * part + 513, A, pool_shape);
    for (unsigned i = 1; i <= 7; i++)
        CHECK_SAID(ag_ledger_may_hold(far + i * part + i), "part %u", i);
    CHECK(!ag_ledger_may_hold(far + 8 * part));
    ag_ledger_remove(block);
    CHECK(ag_ledger_may_hold(far) && ag_ledger_may_hold(far + 3 * part));
    ag_ledger_note_memory(far + 9 * part, 0);
    CHECK(ag_ledger_may_hold(far + 9 * part) && !ag_ledger_may_hold(far + 10 * part));
    ag_ledger_begin_child();
    CHECK(!ag_ledger_may_hold(far) && !ag_ledger_may_hold(far + 9 * part));
}

static void one_block(void)
{
    struct ag_block *block = ag_ledger_enter(BASE, 4096, A, pool_shape), *claimed = NULL;
    struct ag_block_seen copy;
    uint64_t first_id;

    CHECK(block && block->address == BASE && block->size == 4096 && block->context == A);
    /* Not the program's yet. */
    CHECK(ag_ledger_claim(BASE, &claimed) == AG_CLAIM_NOT_LIVE && !claimed);
    ag_ledger_give(block, 4000);
    CHECK(ag_ledger_look(BASE, &copy) && copy.requested == 4000 && copy.size == 4096);
    CHECK(copy.state == AG_BLOCK_LIVE && copy.placement == AG_PLACE_POOL && copy.context == A);
    CHECK(!ag_ledger_look(BASE + 1, &copy) && !ag_ledger_look(BASE + 512, &copy));
    CHECK(ag_ledger_claim(BASE + 1, &claimed) == AG_CLAIM_UNKNOWN && !claimed);
    first_id = ag_ledger_buffer_id(BASE);
    CHECK(first_id && ag_ledger_buffer_id(BASE) == first_id && !ag_ledger_buffer_id(BASE + 1));
    CHECK(ag_ledger_claim(BASE, &claimed) == AG_CLAIM_OURS && claimed == block);
    claimed = NULL;
    CHECK(ag_ledger_claim(BASE, &claimed) == AG_CLAIM_NOT_LIVE && !claimed);
    CHECK(ag_ledger_look(BASE, &copy) && copy.state == AG_BLOCK_KEPT);
    ag_ledger_give(block, 100); /* again, to somebody else */
    CHECK(ag_ledger_buffer_id(BASE) > first_id && block->requested == 100);
    CHECK(ag_ledger_claim(BASE, &claimed) == AG_CLAIM_OURS);
    ag_ledger_remove(block);
    CHECK(ag_ledger_claim(BASE, &claimed) == AG_CLAIM_UNKNOWN && !ag_ledger_look(BASE, &copy));
}

/* What few blocks have is found with the block, and gone with it. */
static void rare_things(void)
{
    struct ag_block *block = ag_ledger_enter(BASE, 4096, A, pool_shape);
    struct ag_block_seen seen;

    CHECK(!ag_block_rare(block) && !ag_block_export_number(block) && !ag_block_guarded(block));
    CHECK(!ag_ledger_note_export(BASE, 7)); /* not live */
    ag_ledger_give(block, 4096);
    CHECK(ag_ledger_note_export(BASE, 7) == 7 && ag_ledger_note_export(BASE, 8) == 7);
    CHECK(ag_ledger_rare(block) == ag_block_rare(block) && ag_block_export_number(block) == 7);
    ag_block_rare(block)->guarded = (struct ag_guarded *)(void *)&context_a;
    ag_block_rare(block)->private_pool = 9;
    CHECK(ag_ledger_look(BASE, &seen) && seen.export_number == 7);
    CHECK(seen.guarded == ag_block_guarded(block) && ag_block_private_pool(block) == 9);
    CHECK(!ag_ledger_note_export(BASE + 512, 7));
    ag_ledger_remove(block);
    block = ag_ledger_enter(BASE, 4096, A, pool_shape);
    CHECK(!ag_block_rare(block) && ag_ledger_look(BASE, &seen) && !seen.export_number);
    CHECK(!ag_ledger_rare(block)->export_number &&
          !ag_block_guarded(block)); /* not the last one's */
    ag_ledger_remove(block);
}

/* A piece knows its slab, and a slab that it is one; nothing is both. */
static void slabs(void)
{
    struct ag_block *block = ag_ledger_enter(BASE, 4096, A, pool_shape);
    struct ag_slab *slab = (struct ag_slab *)(void *)a_slab;
    struct ag_block_seen seen;

    CHECK(!ag_block_slab(block) && !ag_block_cut_up(block));
    ag_block_set_slab(block, slab);
    CHECK(ag_ledger_look(BASE, &seen) && seen.slab == slab && !seen.cut_up);
    ag_block_set_cut_up(block, slab);
    CHECK(ag_ledger_look(BASE, &seen) && !seen.slab && seen.cut_up == slab);
    ag_block_set_cut_up(block, NULL);
    CHECK(!ag_block_slab(block) && !ag_block_cut_up(block));
    ag_ledger_remove(block);
}

/* Under its new address and no other; in another page, and in another shard or the same. */
static void another_address(void)
{
    const CUdeviceptr far = BASE + (5ull << 40);
    struct ag_block *block = ag_ledger_enter(BASE, 4096, A, pool_shape), *claimed = NULL;
    struct ag_block_seen copy;

    for (unsigned shift = 512; shift <= 4096; shift += 512) {
        CHECK(ag_ledger_rename(block, BASE + shift, false) && block->address == BASE + shift);
        CHECK(ag_ledger_look(BASE + shift, &copy) && !ag_ledger_look(BASE, &copy));
        CHECK(ag_ledger_rename(block, BASE, false) && ag_ledger_look(BASE, &copy));
        CHECK(!ag_ledger_look(BASE + shift, &copy));
    }
    CHECK(ag_ledger_rename(block, far, false) && ag_ledger_may_have(far) &&
          !ag_ledger_may_have(BASE));
    ag_ledger_give(block, 100);
    CHECK(ag_ledger_claim(BASE, &claimed) == AG_CLAIM_UNKNOWN && !claimed);
    CHECK(ag_ledger_claim(far, &claimed) == AG_CLAIM_OURS && claimed == block);
    ag_ledger_remove(block);
    CHECK(!ag_ledger_may_have(far) && ag_ledger_claim(far, &claimed) == AG_CLAIM_UNKNOWN);
}

/* Never wrong when it says no; yes is only a hint. */
static void may_have(void)
{
    struct ag_block *blocks[64];
    unsigned n_elsewhere = 0;

    CHECK(!ag_ledger_may_have(BASE));
    for (unsigned i = 0; i < 64; i++) {
        blocks[i] = ag_ledger_enter(BASE + i * (3ull << 20), 512, A, pool_shape);
        CHECK(blocks[i]);
    }
    for (unsigned i = 0; i < 64; i++)
        CHECK(ag_ledger_may_have(BASE + i * (3ull << 20)));
    for (unsigned i = 0; i < 1000; i++)
        n_elsewhere += ag_ledger_may_have(BASE + (1ull << 40) + i * (2ull << 20));
    CHECK(n_elsewhere < 100);
    for (unsigned i = 1; i < 64; i++)
        ag_ledger_remove(blocks[i]);
    CHECK(ag_ledger_may_have(BASE));
    ag_ledger_remove(blocks[0]);
    for (unsigned i = 0; i < 64; i++)
        CHECK(!ag_ledger_may_have(BASE + i * (3ull << 20)));
    CHECK(ag_ledger_enter(BASE, 512, A, pool_shape));
    ag_ledger_begin_child();
    CHECK(!ag_ledger_may_have(BASE));
}

static void blocks_of_a_context(void)
{
    enum { N = 5000 };
    struct ag_block *all;
    struct ag_block_seen copy;
    unsigned n = 0;

    for (unsigned i = 0; i < N; i++) {
        struct ag_block *block =
            ag_ledger_enter(BASE + i * 512ull, 512, i % 3 ? A : B, native_shape);

        CHECK(block);
        if (i % 2)
            ag_ledger_give(block, i + 1);
    }
    all = ag_ledger_claim_all(B);
    while (all) {
        struct ag_block *next = all->next;

        size_t i = (all->address - BASE) / 512;

        CHECK(all->context == B && i % 3 == 0);
        CHECK(all->state == (i % 2 ? AG_BLOCK_LIVE : AG_BLOCK_KEPT));
        ag_ledger_remove(all);
        all = next;
        n++;
    }
    CHECK(n == (N + 2) / 3 && !ag_ledger_claim_all(B));
    for (unsigned i = 0; i < N; i++) {
        CHECK(ag_ledger_look(BASE + i * 512ull, &copy) == (i % 3 != 0));
        if (i % 3)
            CHECK(copy.state == (i % 2 ? AG_BLOCK_LIVE : AG_BLOCK_KEPT));
    }
    ag_ledger_begin_child();
    for (unsigned i = 0; i < N; i++)
        CHECK(!ag_ledger_look(BASE + i * 512ull, &copy));
    CHECK(ag_ledger_enter(BASE, 1, A, pool_shape)); /* and begins anew */
    ag_ledger_begin_child();
}

/* --- threads --- */

#define N_THREADS 4u
#define N_BLOCKS  2000u

static pthread_barrier_t ready;
static _Atomic unsigned n_claimed, n_refused;
static _Atomic(struct ag_block *) claimed_blocks[N_BLOCKS];
static _Atomic uint64_t ids[N_BLOCKS];

/* Every thread asks every block for what few have: all get the same. */
static void *ask_all_blocks(void *unused)
{
    (void)unused;
    pthread_barrier_wait(&ready);
    for (unsigned i = 0; i < N_BLOCKS; i++) {
        uint64_t id = ag_ledger_buffer_id(BASE + i * 512ull), none = 0;

        CHECK(id && id == ag_ledger_buffer_id(BASE + i * 512ull));
        CHECK(atomic_compare_exchange_strong(&ids[i], &none, id) || none == id);
    }
    return NULL;
}

/* Every thread tries to claim every block; each block is claimed once. */
static void *claim_all_blocks(void *unused)
{
    (void)unused;
    pthread_barrier_wait(&ready);
    for (unsigned i = 0; i < N_BLOCKS; i++) {
        struct ag_block *block = NULL;
        enum ag_claim claim = ag_ledger_claim(BASE + i * 512ull, &block);

        CHECK(claim != AG_CLAIM_UNKNOWN && (claim == AG_CLAIM_OURS) == (block != NULL));
        if (block)
            CHECK(!atomic_exchange(&claimed_blocks[i], block));
        atomic_fetch_add(block ? &n_claimed : &n_refused, 1);
    }
    return NULL;
}

/* Each thread enters, gives, claims and removes addresses of its own, among the others' in the
 * same shards. */
static void *come_and_go(void *seed)
{
    uint64_t state = (uintptr_t)seed;
    struct ag_block *mine[64] = {0};

    pthread_barrier_wait(&ready);
    for (unsigned step = 0; step < 50000; step++) {
        size_t i = chance_below(&state, N_OF(mine));
        CUdeviceptr address = 2 * BASE + (i * N_THREADS + (uintptr_t)seed) * 512;
        struct ag_block *block = NULL;
        struct ag_block_seen copy;

        CHECK(ag_ledger_look(address, &copy) == (mine[i] != NULL));
        if (!mine[i]) {
            mine[i] = ag_ledger_enter(address, 512, A, pool_shape);
            CHECK(mine[i]);
            ag_ledger_give(mine[i], step + 1);
            continue;
        }
        CHECK(ag_ledger_claim(address, &block) == AG_CLAIM_OURS && block == mine[i]);
        if (step % 4) {
            ag_ledger_remove(block);
            mine[i] = NULL;
        } else {
            ag_ledger_give(block, step + 1);
        }
    }
    return NULL;
}

static void in_threads(void *(*work)(void *))
{
    pthread_t threads[N_THREADS];

    CHECK(!pthread_barrier_init(&ready, NULL, N_THREADS));
    for (uintptr_t i = 0; i < N_THREADS; i++)
        CHECK(!pthread_create(&threads[i], NULL, work, (void *)(i + 1)));
    for (unsigned i = 0; i < N_THREADS; i++)
        CHECK(!pthread_join(threads[i], NULL));
    CHECK(!pthread_barrier_destroy(&ready));
}

int main(void)
{
    may_have();
    may_hold();
    one_block();
    rare_things();
    slabs();
    another_address();
    blocks_of_a_context();
    for (unsigned i = 0; i < N_BLOCKS; i++)
        ag_ledger_give(ag_ledger_enter(BASE + i * 512ull, 512, A, pool_shape), 1);
    in_threads(ask_all_blocks);
    in_threads(claim_all_blocks);
    CHECK_SAID(n_claimed == N_BLOCKS, "%u claimed", n_claimed);
    CHECK(n_refused == N_BLOCKS * (N_THREADS - 1));
    in_threads(come_and_go);
    return 0;
}
