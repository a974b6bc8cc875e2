/* policy/cache.c: sizes of blocks, bins, the limit, what has to make room, pieces of slabs, and
 * threads. */
#include "policy/cache.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "interpose/core/report/stats.h"
#include "policy/ledger.h"
#include "policy/slab.h"
#include "tests/common/chance.h"
#include "tests/common/check.h"

#define KIB (1ull << 10)
#define MIB (1ull << 20)
#define GIB (1ull << 30)

/* Never smaller than asked, at most an eighth and 2 MiB more (512 B for the smallest), a fixed
 * point, and never smaller for more. */
static void check_size(size_t bytes)
{
    size_t size = ag_cache_block_size(bytes), most = bytes / 8;

    if (most < 511)
        most = 511;
    if (most > 2 * MIB)
        most = 2 * MIB;
    CHECK_SAID(size >= bytes, "%zu gets %zu", bytes, size);
    CHECK_SAID(size - bytes <= most, "%zu gets %zu", bytes, size);
    CHECK_SAID(size % 512 == 0 || size == bytes, "%zu gets %zu", bytes, size);
    CHECK_SAID(ag_cache_block_size(size) == size, "%zu gets %zu", bytes, size);
    if (bytes > 1)
        CHECK_SAID(ag_cache_block_size(bytes - 1) <= size, "%zu", bytes);
}

static void sizes_fit(void)
{
    uint64_t state = 5;

    CHECK(ag_cache_block_size(1) == 512 && ag_cache_block_size(512) == 512);
    CHECK(ag_cache_block_size(513) == 1024 && ag_cache_block_size(4097) == 4608);
    CHECK(ag_cache_block_size(MIB) == MIB && ag_cache_block_size(16 * MIB + 1) == 18 * MIB);
    CHECK(ag_cache_block_size(100 * GIB + 1) == 100 * GIB + 2 * MIB);
    for (size_t bytes = 1; bytes < 300000; bytes++)
        check_size(bytes);
    for (unsigned power = 1; power < 63; power++) {
        for (int off = -3; off <= 3; off++)
            check_size(((size_t)1 << power) + (size_t)off + (power < 3 ? 4 : 0));
    }
    for (unsigned i = 0; i < 300000; i++)
        check_size(1 + (chance(&state) >> (1 + chance_below(&state, 62))));
    /* No rounding where none fits. */
    CHECK(ag_cache_block_size(SIZE_MAX) == SIZE_MAX);
    CHECK(ag_cache_block_size(SIZE_MAX - 100) >= SIZE_MAX - 100);
}

static const struct ag_mem_desc desc = {.source = AG_SOURCE_POOL};

static struct ag_block *block_of(size_t size)
{
    struct ag_block *block = aligned_alloc(_Alignof(struct ag_block), sizeof(*block));

    CHECK(block);
    memset(block, 0, sizeof(*block));
    block->size = size;
    block->desc = desc;
    return block;
}

static unsigned length(const struct ag_block *list)
{
    unsigned n = 0;

    for (; list; list = list->next)
        n++;
    return n;
}

static void let_go(struct ag_block *list)
{
    while (list) {
        struct ag_block *next = list->next;

        free(list);
        list = next;
    }
}

static uint64_t bytes_in(struct ag_cache *cache)
{
    return ag_cache_bytes(cache);
}

static struct ag_cache *new_cache(void)
{
    struct ag_cache *cache = aligned_alloc(_Alignof(struct ag_cache), sizeof(*cache));

    CHECK(cache);
    memset(cache, 0, sizeof(*cache));
    ag_cache_init(cache);
    return cache;
}

/* What was kept last comes out first; a block serves at most an eighth less than it has. */
static void serves(void)
{
    struct ag_cache *cache = new_cache();
    struct ag_block *a = block_of(MIB), *b = block_of(MIB), *c = block_of(MIB + 128 * KIB);

    CHECK(!ag_cache_take(cache, 512, desc));
    CHECK(!ag_cache_keep(cache, a, GIB) && !ag_cache_keep(cache, b, GIB));
    CHECK(!ag_cache_keep(cache, c, GIB));
    CHECK(bytes_in(cache) == 3 * MIB + 128 * KIB);
    CHECK(cache->peak == bytes_in(cache));
    CHECK(!ag_cache_take(cache, 512, desc) && !ag_cache_take(cache, 2 * MIB, desc));
    CHECK(!ag_cache_take(cache, MIB / 2, desc));
    CHECK(ag_cache_take(cache, MIB, desc) == b && ag_cache_take(cache, MIB, desc) == a && !a->next);
    CHECK(ag_cache_take(cache, MIB + 128 * KIB, desc) == c);
    CHECK(!ag_cache_take(cache, MIB, desc) && bytes_in(cache) == 0);
    free(a);
    free(b);
    free(c);
    free(cache);
}

/* What goes: one of the smallest that are enough; where none is, the largest and what then is. */
static void evicts_what_is_enough(void)
{
    static const size_t sizes[] = {4 * MIB, 2 * MIB, 16 * MIB, 3 * MIB};
    struct ag_cache *cache = new_cache();
    struct ag_block *blocks[N_OF(sizes)], *out;

    for (size_t i = 0; i < N_OF(sizes); i++) {
        blocks[i] = block_of(sizes[i]);
        CHECK(!ag_cache_keep(cache, blocks[i], GIB));
    }
    out = ag_cache_evict(cache, 2 * MIB + 1);
    CHECK(out == blocks[3] && !out->next);
    out = ag_cache_evict(cache, 17 * MIB);
    CHECK(length(out) == 2 && bytes_in(cache) == 4 * MIB); /* 16 and 2 */
    CHECK(ag_cache_evict(cache, 5 * MIB) == blocks[0] && !bytes_in(cache));
    for (size_t i = 0; i < N_OF(sizes); i++)
        free(blocks[i]);
    free(cache);
}

/* What is kept and what can move serve the same requests; memory of a pool serves its own. */
static void who_serves_whom(void)
{
    const struct ag_mem_desc cached = {.source = AG_SOURCE_CACHED},
                             movable = {.source = AG_SOURCE_MOVABLE},
                             native = {.source = AG_SOURCE_NATIVE},
                             plain = {.source = AG_SOURCE_PLAIN};
    struct ag_cache *cache = new_cache();
    struct ag_block *pooled = block_of(MIB), *kept = block_of(MIB);

    kept->desc = cached;
    CHECK(!ag_cache_keep(cache, kept, GIB) && !ag_cache_keep(cache, pooled, GIB));
    CHECK(!ag_cache_take(cache, MIB, native) && !ag_cache_take(cache, MIB, plain));
    CHECK(ag_cache_take(cache, MIB, movable) == kept && !ag_cache_take(cache, MIB, cached));
    CHECK(!ag_cache_take(cache, MIB, movable) && ag_cache_take(cache, MIB, desc) == pooled);
    kept->desc = movable;
    CHECK(!ag_cache_keep(cache, kept, GIB) && !ag_cache_take(cache, MIB, desc));
    CHECK(ag_cache_take(cache, MIB, cached) == kept);
    free(pooled);
    free(kept);
    free(cache);
}

/* Of native memory, small blocks share pages and large ones fill them up. */
static void room(void)
{
    static const struct {
        size_t size;
        enum ag_source source;
        uint64_t room, small;
    } cases[] = {
        {512, AG_SOURCE_CACHED, 0, 512},         {MIB, AG_SOURCE_CACHED, 0, MIB},
        {2 * MIB, AG_SOURCE_CACHED, 2 * MIB, 0}, {3 * MIB, AG_SOURCE_CACHED, 4 * MIB, 0},
        {3 * MIB, AG_SOURCE_POOL, 3 * MIB, 0},   {MIB, AG_SOURCE_POOL, MIB, 0},
    };
    struct ag_cache *cache = new_cache();
    uint64_t sum = 0, small_sum = 0, small;

    for (size_t i = 0; i < N_OF(cases); i++) {
        struct ag_block *block = block_of(cases[i].size);

        block->desc.source = cases[i].source;
        CHECK(!ag_cache_keep(cache, block, GIB));
        sum += cases[i].room;
        small_sum += cases[i].small;
        CHECK_SAID(ag_cache_room(cache, &small) == sum && small == small_sum, "case %zu", i);
    }
    let_go(ag_cache_evict(cache, UINT64_MAX));
    CHECK(ag_cache_room(cache, &small) == 0 && small == 0);
    free(cache);
}

/* --- pieces of slabs --- */

#define N_PIECES (2u * (AG_SLAB_BYTES / 512 - 1)) /* as many as fill two slabs */

static struct ag_slabs slabs;
static struct ag_block *pieces;

static size_t pieces_size(void)
{
    return N_PIECES * sizeof(*pieces);
}

static void cut_pieces(void)
{
    static struct ag_block wholes[2];
    unsigned n = 0;

    pieces = mmap(NULL, pieces_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pieces != MAP_FAILED);
    ag_slabs_init(&slabs);
    ag_slab_configure(64 * KIB);
    for (unsigned i = 0; i < N_PIECES; i++) {
        struct ag_slab_piece piece;

        if (ag_slab_cut(&slabs, 512, desc, &piece) != AG_SLAB_CUT) {
            CHECK(n < N_OF(wholes));
            wholes[n] = (struct ag_block){
                .address = (1ull << 40) + n * AG_SLAB_BYTES, .size = AG_SLAB_BYTES, .desc = desc};
            CHECK(ag_slab_begin(&slabs, &wholes[n++], 512, &piece));
        }
        pieces[i] = (struct ag_block){.address = piece.address, .size = 512, .desc = desc};
        ag_block_set_slab(&pieces[i], piece.slab);
    }
    CHECK(n == N_OF(wholes));
}

static void protect_pieces(int how)
{
    CHECK(!mprotect(pieces, pieces_size(), how));
}

static uint64_t whole_bytes(struct ag_cache *cache)
{
    ag_cache_count_pieces(cache);
    return ag_slabs_whole_bytes(&slabs);
}

/* However many are in the cache, each is counted once: those that were are not looked at again. */
static void counts_pieces_once(void)
{
    struct ag_cache *cache = new_cache();
    struct ag_block *other = block_of(512), *taken, *out;
    struct ag_slab *slab;

    cut_pieces();
    CHECK(!whole_bytes(cache));
    for (unsigned i = 0; i + 1 < N_PIECES; i++)
        CHECK(!ag_cache_keep(cache, &pieces[i], GIB));
    CHECK(!ag_cache_keep(cache, other, GIB));   /* before them: the only one looked at again */
    CHECK(whole_bytes(cache) == AG_SLAB_BYTES); /* of the other slab one is missing */
    protect_pieces(PROT_NONE);
    CHECK(whole_bytes(cache) == AG_SLAB_BYTES);
    protect_pieces(PROT_READ | PROT_WRITE);
    CHECK(ag_cache_take(cache, 512, desc) == other && !ag_block_is_counted(other));
    CHECK(!ag_cache_keep(cache, &pieces[N_PIECES - 1], GIB));
    CHECK(whole_bytes(cache) == 2 * AG_SLAB_BYTES);
    CHECK(!ag_cache_take_last(cache, 512)); /* that is for what was not counted */
    taken = ag_cache_take(cache, 512, desc);
    CHECK(taken == &pieces[N_PIECES - 1] && whole_bytes(cache) == AG_SLAB_BYTES);
    CHECK(!ag_cache_keep(cache, taken, GIB) && ag_slabs_whole_bytes(&slabs) == AG_SLAB_BYTES);
    CHECK(whole_bytes(cache) == 2 * AG_SLAB_BYTES);
    /* What goes out for its slab's sake; then nothing of it is left to look for. */
    slab = ag_block_slab(taken);
    out = ag_cache_evict_slab(cache, slab);
    CHECK(length(out) == N_PIECES / 2 && whole_bytes(cache) == AG_SLAB_BYTES);
    for (; out; out = out->next)
        CHECK(ag_block_slab(out) == slab && !ag_block_is_counted(out));
    CHECK(!ag_cache_keep(cache, other, GIB) && whole_bytes(cache) == AG_SLAB_BYTES);
    protect_pieces(PROT_NONE);
    CHECK(!ag_cache_evict_slab(cache, slab));
    protect_pieces(PROT_READ | PROT_WRITE);
    CHECK(length(ag_cache_empty(cache)) == N_PIECES / 2 + 1 && !whole_bytes(cache));
    CHECK(!munmap(pieces, pieces_size()));
    free(other);
    free(cache);
}

/* For every class of sizes: a block put in under its own size is found again. */
static void finds_every_size(void)
{
    struct ag_cache *cache = new_cache();

    for (size_t bytes = 1; bytes < 300 * GIB; bytes += bytes / 20 + 1) {
        size_t size = ag_cache_block_size(bytes);
        struct ag_block *block = block_of(size);

        CHECK(!ag_cache_keep(cache, block, UINT64_MAX));
        CHECK_SAID(ag_cache_take(cache, size, desc) == block, "%zu", size);
        free(block);
    }
    free(cache);
}

/* Whatever is kept, the limit holds in one thread; nothing is lost, nothing is twice. */
static void limit_holds(void)
{
    const uint64_t limit = 10 * MIB;
    struct ag_cache *cache = new_cache();
    unsigned in = 0, out = 0;
    uint64_t state = 3;

    for (unsigned i = 0; i < 20000; i++) {
        size_t size = ag_cache_block_size(1 + chance_below(&state, 3 * MIB) / (1 + i % 50));
        struct ag_block *back = ag_cache_keep(cache, block_of(size), limit);

        in++;
        out += length(back);
        let_go(back);
        CHECK_SAID(bytes_in(cache) <= limit, "after %u blocks", i);
        if (i % 3 == 0) {
            struct ag_block *taken = ag_cache_take(cache, size, desc);

            CHECK(!taken || (taken->size >= size && taken->size - size <= size / 8));
            out += taken != NULL;
            free(taken);
        }
    }
    {
        struct ag_block *rest = ag_cache_empty(cache);

        CHECK(in == out + length(rest));
        let_go(rest);
    }
    CHECK(bytes_in(cache) == 0 && !ag_cache_empty(cache));
    free(cache);
}

static void edges_of_the_limit(void)
{
    struct ag_cache *cache = new_cache();
    struct ag_block *small = block_of(512), *large = block_of(4 * MIB), *other = block_of(4 * MIB);

    CHECK(ag_cache_keep(cache, small, 0) == small && !small->next); /* nothing is kept */
    CHECK(ag_cache_keep(cache, large, 4 * MIB - 1) == large);
    CHECK(!ag_cache_keep(cache, large, 4 * MIB)); /* exactly full */
    CHECK(!ag_cache_keep(cache, other, 8 * MIB));
    /* A small one comes: a large one makes room, the other stays. */
    CHECK(length(ag_cache_empty(cache)) == 2);
    CHECK(!ag_cache_keep(cache, large, 8 * MIB) && !ag_cache_keep(cache, other, 8 * MIB));
    CHECK(ag_cache_keep(cache, small, 8 * MIB) == other && bytes_in(cache) == 4 * MIB + 512);
    CHECK(length(ag_cache_empty(cache)) == 2);
    free(small);
    free(large);
    free(other);
    free(cache);
}

/* --- threads in turn: what one left is another's, and counts --- */

struct visit {
    struct ag_cache *cache;
    struct ag_block *keep, *took;
    size_t take;
    uint64_t limit;
};

static void *visits(void *visit_)
{
    struct visit *visit = visit_;

    if (visit->keep)
        visit->keep = ag_cache_keep(visit->cache, visit->keep, visit->limit);
    if (visit->take)
        visit->took = ag_cache_take(visit->cache, visit->take, desc);
    return NULL;
}

/* What the thread got, or what of it went out. */
static struct ag_block *in_a_thread(struct ag_cache *cache, struct ag_block *keep, uint64_t limit,
                                    size_t take)
{
    struct visit visit = {cache, keep, NULL, take, limit};
    pthread_t thread;

    CHECK(!pthread_create(&thread, NULL, visits, &visit));
    CHECK(!pthread_join(thread, NULL));
    return take ? visit.took : visit.keep;
}

static void threads_leave_all(void)
{
    struct ag_cache *cache = new_cache();
    struct ag_block *first = block_of(MIB), *second = block_of(MIB), *third = block_of(MIB);

    CHECK(!in_a_thread(cache, first, 2 * MIB, 0));
    CHECK(bytes_in(cache) == MIB && ag_cache_device_bytes(cache) == MIB);
    CHECK(!ag_cache_keep(cache, second, 2 * MIB)); /* exactly full, in two shards */
    CHECK(cache->peak == 2 * MIB);
    CHECK(in_a_thread(cache, third, 2 * MIB, 0) == first && !first->next); /* of its slot */
    CHECK(ag_cache_take(cache, MIB, desc) == second);
    CHECK(ag_cache_take(cache, MIB, desc) == third); /* which the other thread left */
    CHECK(!bytes_in(cache) && !ag_cache_take(cache, MIB, desc));
    /* What the other slot may hold without asking counts for nothing. */
    CHECK(!ag_cache_keep(cache, first, 2 * MIB) && !ag_cache_keep(cache, second, 2 * MIB));
    CHECK(cache->peak == 2 * MIB && bytes_in(cache) == 2 * MIB);
    CHECK(in_a_thread(cache, NULL, 0, MIB) == second);
    CHECK(!in_a_thread(cache, third, 2 * MIB, 0) && !in_a_thread(cache, second, 3 * MIB, 0));
    CHECK(cache->peak == 3 * MIB && length(ag_cache_evict(cache, 2 * MIB + 1)) == 3);
    free(first);
    free(second);
    free(third);
    free(cache);
}

/* The smallest that is large enough and not too large, of any bin; another thread's last. */
static void serves_by_the_smallest(void)
{
    static const size_t sizes[] = {4 * MIB, 2 * MIB, 9 * MIB, 3 * MIB};
    const struct ag_mem_desc plain = {.source = AG_SOURCE_PLAIN};
    struct ag_cache *cache = new_cache();
    struct ag_block *blocks[N_OF(sizes)];

    for (size_t i = 0; i < N_OF(sizes); i++) {
        blocks[i] = block_of(sizes[i]);
        if (i)
            CHECK(!ag_cache_keep(cache, blocks[i], GIB));
    }
    CHECK(!in_a_thread(cache, blocks[0], GIB, 0));
    CHECK(!ag_cache_take_smallest(cache, MIB, 2 * MIB - 1, desc));
    CHECK(!ag_cache_take_smallest(cache, 10 * MIB, SIZE_MAX, desc));
    CHECK(!ag_cache_take_smallest(cache, MIB, SIZE_MAX, plain));
    CHECK(ag_cache_take_smallest(cache, MIB, 2 * MIB, desc) == blocks[1]);
    CHECK(ag_cache_take_smallest(cache, MIB, SIZE_MAX, desc) == blocks[3]);
    CHECK(ag_cache_take_smallest(cache, MIB, 8 * MIB, desc) == blocks[0]); /* of another thread */
    CHECK(ag_cache_take_smallest(cache, 5 * MIB, 9 * MIB, desc) == blocks[2] && !bytes_in(cache));
    for (size_t i = 0; i < N_OF(sizes); i++)
        free(blocks[i]);
    free(cache);
}

/* A block that another thread asks to keep is one that the cache has had: once it is in, neither
 * thread has to ask again, though never both blocks were in. */
static void who_waits_counts(void)
{
    struct ag_cache *cache = new_cache();
    struct ag_block *first = block_of(MIB), *second = block_of(MIB);

    atomic_store(&cache->coming, MIB);
    CHECK(!ag_cache_keep(cache, first, 8 * MIB) && cache->peak == 2 * MIB);
    atomic_store(&cache->coming, 0);
    CHECK(ag_cache_take(cache, MIB, desc) == first);
    CHECK(!in_a_thread(cache, second, 8 * MIB, 0));
    CHECK(cache->allowed == 2 * MIB && cache->peak == 2 * MIB); /* of this slot, and of that */
    CHECK(ag_cache_take(cache, MIB, desc) == second);
    CHECK(!ag_cache_keep(cache, first, MIB + MIB / 2) && cache->peak == 2 * MIB);
    free(first);
    free(second);
    free(cache);
}

/* Over a limit for once, as blocks are that cannot go back now: the next ones feel the limit. */
static void limit_is_back(void)
{
    struct ag_cache *cache = new_cache();
    struct ag_block *a = block_of(MIB), *b = block_of(MIB), *c = block_of(MIB), *out;

    CHECK(!ag_cache_keep(cache, a, UINT64_MAX) && !ag_cache_keep(cache, b, UINT64_MAX));
    CHECK(ag_cache_take(cache, MIB, desc) == b);
    out = ag_cache_keep(cache, b, MIB);
    CHECK(out && !out->next && bytes_in(cache) == MIB);
    CHECK(!in_a_thread(cache, out, UINT64_MAX, 0));
    CHECK(in_a_thread(cache, c, MIB, 0) && length(ag_cache_empty(cache)) == 1);
    free(a);
    free(b);
    free(c);
    free(cache);
}

/* 1,000 threads that come and go leave blocks in one shard, not in a thousand. */
static void generations_share_a_shard(void)
{
    struct ag_cache *cache = new_cache();

    for (unsigned i = 0; i < 1000; i++)
        CHECK(!in_a_thread(cache, block_of(4096), GIB, 0));
    CHECK(bytes_in(cache) == 1000 * 4096 && cache->n_used == 2);
    let_go(ag_cache_empty(cache));
    free(cache);
}

/* --- threads: blocks of their own go in, anybody's come out --- */

#define N_THREADS     4u
#define N_STEPS       30000u
#define THREADS_LIMIT (64 * MIB)

static struct ag_cache *shared;
static _Atomic int64_t n_inside;

static void count_out(struct ag_block *list)
{
    while (list) {
        struct ag_block *next = list->next;

        CHECK(atomic_exchange(&list->state, AG_BLOCK_LIVE) == AG_BLOCK_KEPT); /* only once out */
        atomic_fetch_sub(&n_inside, 1);
        free(list);
        list = next;
    }
}

static void *use(void *seed)
{
    uint64_t state = (uintptr_t)seed;

    for (unsigned i = 0; i < N_STEPS; i++) {
        size_t size = ag_cache_block_size(1 + chance_below(&state, 256 * KIB));

        if (chance_below(&state, 2)) {
            struct ag_block *taken = ag_cache_take(shared, size, desc);

            CHECK(!taken || (taken->size >= size && !taken->next));
            count_out(taken);
        } else {
            struct ag_block *block = block_of(size);

            block->state = AG_BLOCK_KEPT;
            atomic_fetch_add(&n_inside, 1);
            count_out(ag_cache_keep(shared, block, THREADS_LIMIT));
        }
        if (i % 5000 == 4999)
            count_out(ag_cache_empty(shared));
    }
    return NULL;
}

static void threads_share(void)
{
    pthread_t threads[N_THREADS];

    shared = new_cache();
    for (uintptr_t i = 0; i < N_THREADS; i++)
        CHECK(!pthread_create(&threads[i], NULL, use, (void *)(i + 1)));
    for (unsigned i = 0; i < N_THREADS; i++)
        CHECK(!pthread_join(threads[i], NULL));
    CHECK(bytes_in(shared) <= THREADS_LIMIT && shared->peak <= THREADS_LIMIT);
    count_out(ag_cache_empty(shared));
    CHECK(n_inside == 0 && bytes_in(shared) == 0);
    free(shared);
}

int main(void)
{
    sizes_fit();
    serves();
    serves_by_the_smallest();
    evicts_what_is_enough();
    who_serves_whom();
    room();
    counts_pieces_once();
    finds_every_size();
    limit_holds();
    edges_of_the_limit();
    threads_leave_all();
    who_waits_counts();
    limit_is_back();
    generations_share_a_shard();
    threads_share();
    return 0;
}
