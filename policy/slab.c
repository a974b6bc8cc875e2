/* Cutting slabs, by a map of what is in use: see slab.h. */
#include "policy/slab.h"

#include <string.h>

#include "interpose/core/base/arena.h"
#include "interpose/core/report/stats.h"
#include "policy/ledger.h"

#define GRANULE   512u
#define GRANULES  (AG_SLAB_BYTES / GRANULE)
#define WORD_BITS 64u
#define WORDS     (GRANULES / WORD_BITS)
/* A slab that nothing fitted into is looked at again when so much of it has come back. */
#define WORTH_A_LOOK (GRANULES / 4)

/* All but `shard` and `closed` are guarded by the shard's lock. What is read without it is relaxed:
 * `closed` and `sync` are for frees and questions that come after what set them; counts choose a
 * shard, or tell of room. */
struct ag_slab {
    struct ag_slab_shard *shard;  /* the same for ever */
    struct ag_slab *next, **link; /* in the list of open ones; `link` NULL: in none */
    struct ag_block *whole;       /* NULL: on the free list */
    struct ag_slabs *owner;
    CUdeviceptr address;
    uint64_t number;
    unsigned n_free, hint; /* granules; where the last cut ended */
    uint32_t n_out;        /* pieces */
    uint32_t n_counted;    /* of those out, known to be in the cache */
    _Atomic bool closed;
    _Atomic int sync;
    uint64_t used[WORDS], begins[WORDS]; /* a bit for each granule: in use; the first of a piece */
};

static struct ag_arena arena = AG_ARENA_INIT(struct ag_slab);
static _Atomic uint64_t last_number;
static uint64_t largest;

void ag_slab_configure(uint64_t new_largest)
{
    largest = new_largest;
}

uint64_t ag_slab_largest(void)
{
    return largest;
}

void ag_slab_begin_child(void)
{
    ag_arena_begin_child(&arena);
}

void ag_slabs_init(struct ag_slabs *slabs)
{
    for (unsigned i = 0; i < AG_SLOTS; i++)
        ag_spin_init(&slabs->shards[i].lock, AG_RANK_SLAB);
}

uint64_t ag_slabs_bytes(struct ag_slabs *slabs)
{
    return (uint64_t)atomic_load_explicit(&slabs->n, memory_order_relaxed) * AG_SLAB_BYTES;
}

uint64_t ag_slabs_whole_bytes(struct ag_slabs *slabs)
{
    return (uint64_t)atomic_load_explicit(&slabs->n_whole, memory_order_relaxed) * AG_SLAB_BYTES;
}

/* --- bits --- */

/* The first granule from `from` on that is in use, or not; `until` when there is none before. */
static unsigned next_granule(const uint64_t *used, unsigned from, unsigned until, bool in_use)
{
    while (from < until) {
        uint64_t word = used[from / WORD_BITS];
        uint64_t left = (in_use ? word : ~word) >> from % WORD_BITS;

        if (left) {
            from += (unsigned)__builtin_ctzll(left);
            return from < until ? from : until;
        }
        from = (from / WORD_BITS + 1) * WORD_BITS;
    }
    return until;
}

/* The first of `n` granules in a row, all free, from `from` on; GRANULES when there are none. */
static unsigned find_run(const uint64_t *used, unsigned from, unsigned n)
{
    while (from + n <= GRANULES) {
        unsigned taken = next_granule(used, from, from + n, true);

        if (taken == from + n)
            return from;
        from = next_granule(used, taken, GRANULES, false);
    }
    return GRANULES;
}

static void set_bits(uint64_t *bits, unsigned from, unsigned n, bool on)
{
    while (n) {
        unsigned at = from % WORD_BITS, part = n < WORD_BITS - at ? n : WORD_BITS - at;
        uint64_t mask = (part < WORD_BITS ? ((uint64_t)1 << part) - 1 : UINT64_MAX) << at;

        if (on)
            bits[from / WORD_BITS] |= mask;
        else
            bits[from / WORD_BITS] &= ~mask;
        from += part;
        n -= part;
    }
}

/* The last set bit up to `at`; GRANULES when there is none. */
static unsigned last_set(const uint64_t *bits, unsigned at)
{
    uint64_t word = bits[at / WORD_BITS] << (WORD_BITS - 1 - at % WORD_BITS);

    if (word)
        return at - (unsigned)__builtin_clzll(word);
    for (unsigned i = at / WORD_BITS; i-- > 0;) {
        if (bits[i])
            return i * WORD_BITS + WORD_BITS - 1 - (unsigned)__builtin_clzll(bits[i]);
    }
    return GRANULES;
}

/* --- the list of open slabs, with the shard's lock --- */

static void list_open(struct ag_slab *slab)
{
    struct ag_slab **first = &slab->shard->open;

    slab->next = *first;
    slab->link = first;
    if (*first)
        (*first)->link = &slab->next;
    *first = slab;
}

static void unlist(struct ag_slab *slab)
{
    if (!slab->link)
        return;
    *slab->link = slab->next;
    if (slab->next)
        slab->next->link = slab->link;
    slab->link = NULL;
}

/* Counts pieces that go out or come back, and those among them that the cache counts. Returns how
 * many are out now. Called with the shard's lock. */
static uint32_t change_pieces(struct ag_slab *slab, uint32_t out_by, uint32_t counted_by)
{
    bool was_whole = slab->n_counted && slab->n_counted == slab->n_out, is_whole;

    slab->n_out += out_by;
    slab->n_counted += counted_by;
    is_whole = slab->n_counted && slab->n_counted == slab->n_out;
    if (is_whole && !was_whole)
        atomic_fetch_add_explicit(&slab->owner->n_whole, 1, memory_order_relaxed);
    else if (was_whole && !is_whole)
        atomic_fetch_sub_explicit(&slab->owner->n_whole, 1, memory_order_relaxed);
    return slab->n_out;
}

static uint32_t change_out(struct ag_slab *slab, uint32_t by)
{
    return change_pieces(slab, by, 0);
}

/* --- cutting --- */

static struct ag_slab_shard *own_shard(struct ag_slabs *slabs)
{
    uint32_t n = atomic_load_explicit(&slabs->n, memory_order_relaxed);
    unsigned shards = n >= AG_SLOTS ? AG_SLOTS : 1u << (31 - __builtin_clz(n | 1));

    return &slabs->shards[ag_slot() & (shards - 1)];
}

/* Called with the shard's lock. */
static bool cut_piece(struct ag_slab *slab, size_t size, struct ag_slab_piece *ret)
{
    unsigned n = (unsigned)((size + GRANULE - 1) / GRANULE), at = GRANULES;

    if (n <= slab->n_free)
        at = find_run(slab->used, slab->hint, n);
    if (at == GRANULES && n <= slab->n_free)
        at = find_run(slab->used, 0, n);
    if (at == GRANULES)
        return false;
    set_bits(slab->used, at, n, true);
    set_bits(slab->begins, at, 1, true);
    slab->n_free -= n;
    slab->hint = at + n;
    (void)change_out(slab, 1);
    ret->slab = slab;
    ret->address = slab->address + (uint64_t)at * GRANULE;
    return true;
}

enum ag_slab_cut ag_slab_cut(struct ag_slabs *slabs, size_t size, struct ag_mem_desc desc,
                             struct ag_slab_piece *ret)
{
    struct ag_slab_shard *shard = own_shard(slabs);
    enum ag_slab_cut result = AG_SLAB_NEEDED;

    ret->shard = shard;
    ag_spin_take(&shard->lock);
    for (struct ag_slab *slab = shard->open, *next; slab && result != AG_SLAB_CUT; slab = next) {
        next = slab->next;
        if (!ag_mem_desc_same(slab->whole->desc, desc))
            continue;
        if (cut_piece(slab, size, ret))
            result = AG_SLAB_CUT;
        else /* so that nobody looks at it in vain again */
            unlist(slab);
    }
    if (result == AG_SLAB_NEEDED && shard->coming)
        result = AG_SLAB_COMING;
    else if (result == AG_SLAB_NEEDED)
        shard->coming = true;
    ag_spin_release(&shard->lock);
    return result;
}

void ag_slab_failed(struct ag_slab_piece *piece)
{
    ag_spin_take(&piece->shard->lock);
    piece->shard->coming = false;
    ag_spin_release(&piece->shard->lock);
}

/* Called with the shard's lock. */
static struct ag_slab *obtain_slab(struct ag_slab_shard *shard)
{
    struct ag_slab *slab = shard->freelist;

    if (slab) {
        shard->freelist = slab->next;
        return slab;
    }
    slab = ag_arena_get(&arena);
    if (slab)
        slab->shard = shard; /* once: others find the lock by it, of pieces that are gone, too */
    return slab;
}

static void fill_slab(struct ag_slab *slab, struct ag_slabs *owner, struct ag_block *whole)
{
    slab->owner = owner;
    slab->whole = whole;
    slab->address = whole->address;
    slab->number = atomic_fetch_add_explicit(&last_number, 1, memory_order_relaxed) + 1;
    slab->hint = 1;
    slab->n_free = GRANULES - 1;
    slab->n_out = slab->n_counted = 0;
    atomic_store_explicit(&slab->closed, false, memory_order_relaxed);
    atomic_store_explicit(&slab->sync, AG_SYNC_NOT_SET, memory_order_relaxed);
    memset(slab->used, 0, sizeof(slab->used));
    memset(slab->begins, 0, sizeof(slab->begins));
    set_bits(slab->used, 0, 1, true); /* where its own entry of the ledger is */
}

bool ag_slab_begin(struct ag_slabs *slabs, struct ag_block *whole, size_t size,
                   struct ag_slab_piece *piece)
{
    struct ag_slab_shard *shard = piece->shard;
    struct ag_slab *slab;

    ag_spin_take(&shard->lock);
    shard->coming = false;
    slab = obtain_slab(shard);
    if (slab) {
        fill_slab(slab, slabs, whole);
        (void)cut_piece(slab, size, piece);
        list_open(slab);
        ag_block_set_cut_up(whole, slab);
    }
    ag_spin_release(&shard->lock);
    if (!slab)
        return false;
    atomic_fetch_add_explicit(&slabs->n, 1, memory_order_relaxed);
    ag_stats_add(AG_STAT_SLAB_MADE, 1);
    ag_level_add(&ag_stats.slab_bytes, AG_SLAB_BYTES);
    return true;
}

struct ag_mem_desc ag_slab_desc(const struct ag_slab *slab)
{
    return slab->whole->desc;
}

const struct ag_block *ag_slab_whole(const struct ag_slab *slab)
{
    return slab->whole;
}

uint64_t ag_slab_number(const struct ag_slab *slab)
{
    return slab->number;
}

/* --- back --- */

/* The slab has all its pieces back. With the shard's lock; its block. */
static struct ag_block *end_slab(struct ag_slab *slab)
{
    struct ag_block *whole = slab->whole;

    unlist(slab);
    ag_block_set_cut_up(whole, NULL);
    atomic_fetch_sub_explicit(&slab->owner->n, 1, memory_order_relaxed);
    slab->whole = NULL;
    slab->next = slab->shard->freelist;
    slab->shard->freelist = slab;
    return whole;
}

struct ag_block *ag_slab_return(struct ag_slab *slab, CUdeviceptr address, size_t size)
{
    unsigned at = (unsigned)((address - slab->address) / GRANULE);
    unsigned n = (unsigned)((size + GRANULE - 1) / GRANULE);
    struct ag_block *whole = NULL;

    ag_spin_take(&slab->shard->lock);
    set_bits(slab->begins, at, 1, false);
    if (!ag_slab_is_closed(slab)) {
        set_bits(slab->used, at, n, false);
        slab->n_free += n;
        if (!slab->link && slab->n_free >= WORTH_A_LOOK)
            list_open(slab);
    }
    if (change_out(slab, (uint32_t)-1) == 0)
        whole = end_slab(slab);
    ag_spin_release(&slab->shard->lock);
    if (whole) {
        ag_stats_add(AG_STAT_SLAB_ENDED, 1);
        ag_level_subtract(&ag_stats.slab_bytes, AG_SLAB_BYTES);
    }
    return whole;
}

void ag_slab_count_piece(struct ag_slab *slab, bool in)
{
    ag_spin_take(&slab->shard->lock);
    (void)change_pieces(slab, 0, in ? 1 : (uint32_t)-1);
    ag_spin_release(&slab->shard->lock);
}

uint32_t ag_slab_counted(struct ag_slab *slab)
{
    uint32_t n;

    ag_spin_take(&slab->shard->lock);
    n = slab->n_counted;
    ag_spin_release(&slab->shard->lock);
    return n;
}

CUdeviceptr ag_slab_find(struct ag_slab *slab, CUdeviceptr address)
{
    unsigned at = GRANULES;
    CUdeviceptr found = 0;

    ag_spin_take(&slab->shard->lock);
    if (slab->whole && address >= slab->address && address - slab->address < AG_SLAB_BYTES)
        at = last_set(slab->begins, (unsigned)((address - slab->address) / GRANULE));
    if (at != GRANULES)
        found = slab->address + (uint64_t)at * GRANULE;
    ag_spin_release(&slab->shard->lock);
    return found;
}

void ag_slab_close(struct ag_slab *slab)
{
    ag_spin_take(&slab->shard->lock);
    atomic_store_explicit(&slab->closed, true, memory_order_relaxed);
    unlist(slab);
    ag_spin_release(&slab->shard->lock);
}

bool ag_slab_is_closed(const struct ag_slab *slab)
{
    return atomic_load_explicit(&slab->closed, memory_order_relaxed);
}

void ag_slab_note_sync(struct ag_slab *slab, int was)
{
    atomic_store_explicit(&slab->sync, was, memory_order_relaxed);
}

int ag_slab_sync(const struct ag_slab *slab)
{
    return atomic_load_explicit(&slab->sync, memory_order_relaxed);
}

void ag_slabs_clear(struct ag_slabs *slabs)
{
    atomic_store_explicit(&slabs->n, 0, memory_order_relaxed);
    atomic_store_explicit(&slabs->n_whole, 0, memory_order_relaxed);
    for (unsigned i = 0; i < AG_SLOTS; i++) {
        slabs->shards[i].open = NULL;
        slabs->shards[i].coming = false;
    }
}
