/* Bins of freed blocks, by size, in shards: see cache.h.
 *
 * How the limit holds, and the peak is right, though shards change apart: each shard has a number
 * of bytes that it may hold unasked, and the sum of these is at most the peak. A shard that is to
 * hold more asks, under the cache's lock. It gets more while the sum stays within the peak and the
 * limit. Else all shards are allowed nothing, so that whoever keeps a block meanwhile must ask, and
 * waits; then what they hold is added up, and each is allowed just that. The blocks of those that
 * wait count for the peak as well. So threads that free and allocate in turns soon have had all
 * their blocks in here at a time, and need not ask any more; until then each asks at every free. */
#include "policy/cache.h"

#include "interpose/core/base/pages.h"
#include "interpose/core/base/relaxed.h"
#include "interpose/core/report/stats.h"
#include "policy/ledger.h"
#include "policy/slab.h"

#define LOOKED_AT 16u /* blocks of a bin looked at: large sizes share bins */

_Atomic bool ag_cache_anything_kept;

/* The bin is the place of the highest bit, and the three after it. */
unsigned ag_cache_bin(size_t size)
{
    size_t at_least = size > AG_CACHE_SMALLEST ? size : AG_CACHE_SMALLEST;
    unsigned power = ag_log2(at_least);
    unsigned bin = (power - 10) * 8 + (unsigned)(at_least >> (power - 3));

    return bin < AG_CACHE_BINS ? bin : AG_CACHE_BINS - 1;
}

void ag_cache_init(struct ag_cache *cache)
{
    ag_lock_init(&cache->lock, AG_RANK_CACHE);
    for (unsigned i = 0; i < AG_SLOTS; i++)
        ag_spin_init(&cache->shards[i].lock, AG_RANK_SHARD);
}

/* --- shards --- */

/* How many shards, from the first on, may hold something. */
static unsigned n_used(struct ag_cache *cache)
{
    return atomic_load_explicit(&cache->n_used, memory_order_seq_cst);
}

/* The slot's shard, which may hold something from now on. */
static struct ag_cache_shard *use_shard(struct ag_cache *cache, unsigned slot)
{
    uint32_t n = atomic_load_explicit(&cache->n_used, memory_order_relaxed);

    while (n <= slot &&
           !atomic_compare_exchange_weak_explicit(&cache->n_used, &n, slot + 1,
                                                  memory_order_seq_cst, memory_order_relaxed))
        ;
    return &cache->shards[slot];
}

/* The calling thread's shard; NULL if it never held anything. Relaxed: its own calls have raised
 * the number. */
static inline struct ag_cache_shard *used_shard(struct ag_cache *cache)
{
    unsigned slot = ag_slot_of_thread - 1; /* of a thread without a slot so far, more than any */

    return slot < atomic_load_explicit(&cache->n_used, memory_order_relaxed) ? &cache->shards[slot]
                                                                             : NULL;
}

void ag_cache_prepare(struct ag_cache *cache)
{
    ag_pages_ready(use_shard(cache, ag_slot()), sizeof(struct ag_cache_shard));
}

/* Called with the lock that guards them, so relaxed. */
static void change_bytes(_Atomic uint64_t *bytes, uint64_t by)
{
    atomic_store_explicit(bytes, ag_relaxed(bytes) + by, memory_order_relaxed);
}

uint64_t ag_cache_bytes(struct ag_cache *cache)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < n_used(cache); i++)
        sum += ag_relaxed(&cache->shards[i].bytes);
    return sum;
}

uint64_t ag_cache_device_bytes(struct ag_cache *cache)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < n_used(cache); i++) {
        /* Another thread may add a block between the two reads. */
        uint64_t bytes = ag_relaxed(&cache->shards[i].bytes);
        uint64_t on_host = ag_relaxed(&cache->shards[i].host_bytes);

        sum += bytes > on_host ? bytes - on_host : 0;
    }
    return sum;
}

uint64_t ag_cache_block_bytes(struct ag_cache *cache, uint64_t *ret_pieces)
{
    uint64_t bytes = 0, pieces = 0;

    for (unsigned i = 0; i < n_used(cache); i++) {
        const struct ag_cache_shard *shard = &cache->shards[i];
        uint64_t all = ag_relaxed(&shard->bytes), on_host = ag_relaxed(&shard->host_bytes);

        bytes += all > on_host ? all - on_host : 0;
        pieces += ag_relaxed(&shard->piece_bytes);
    }
    *ret_pieces = pieces;
    return bytes > pieces ? bytes - pieces : 0;
}

/* Whoever asks what would be free if the cache were empty needs the slabs whose pieces are all in
 * here. A count in each slab that every free changes would be a line that threads share. So pieces
 * are counted when somebody asks, each once: those that came in since stand before the others in
 * their bins, since blocks are put in at the front. One that was counted tells its slab when it
 * goes out. */
__attribute__((noinline)) static void uncount(struct ag_block *block)
{
    struct ag_slab *slab = ag_block_slab(block);

    ag_block_set_counted(block, false);
    if (slab)
        ag_slab_count_piece(slab, false);
}

/* A block goes in, or out, with the shard's lock held. Pieces take room as their slabs do. */
static inline void account(struct ag_cache_shard *shard, const struct ag_block *block, bool in)
{
    uint64_t size = block->size, end = -size % AG_NATIVE_PAGE;
    struct ag_mem_desc desc = block->desc;

    change_bytes(&shard->bytes, in ? size : -size);
    if (ag_block_slab(block))
        change_bytes(&shard->piece_bytes, in ? size : -size);
    else if (desc.source != AG_SOURCE_CACHED && !ag_mem_desc_is_on_device(desc))
        change_bytes(&shard->host_bytes, in ? size : -size);
    else if (desc.source == AG_SOURCE_CACHED && size < AG_NATIVE_PAGE)
        change_bytes(&shard->small_native, in ? size : -size);
    else if (desc.source == AG_SOURCE_CACHED && end)
        change_bytes(&shard->page_ends, in ? end : -end);
}

static inline void put_in_bin(struct ag_cache_shard *shard, struct ag_block *block)
{
    struct ag_block **bin = &shard->bins[ag_cache_bin(block->size)];

    block->next = *bin;
    *bin = block;
    account(shard, block, true);
}

/* --- out --- */

/* A way to choose a block of a shard. */
typedef struct ag_block *take_function(struct ag_cache_shard *shard, size_t size, size_t most,
                                       struct ag_mem_desc desc);

static inline struct ag_block *take_uncounted(struct ag_cache_shard *shard, struct ag_block **link)
{
    struct ag_block *block = *link;

    *link = block->next;
    block->next = NULL;
    account(shard, block, false);
    return block;
}

static struct ag_block *take_out(struct ag_cache_shard *shard, struct ag_block **link)
{
    if (ag_block_is_counted(*link))
        uncount(*link);
    return take_uncounted(shard, link);
}

/* The last freed block that is from `size` to an eighth more. Shard locked. */
static struct ag_block *take_from(struct ag_cache_shard *shard, size_t size, size_t most,
                                  struct ag_mem_desc desc)
{
    struct ag_block **link = &shard->bins[ag_cache_bin(size)];

    for (unsigned i = 0; *link && i < LOOKED_AT; i++, link = &(*link)->next) {
        const struct ag_block *block = *link;

        if (block->size >= size && block->size <= most && ag_mem_desc_same(block->desc, desc))
            return take_out(shard, link);
    }
    return NULL;
}

/* One of the smallest blocks that are from `size` to `most`. Shard locked. */
static struct ag_block *take_smallest_from(struct ag_cache_shard *shard, size_t size, size_t most,
                                           struct ag_mem_desc desc)
{
    for (unsigned bin = ag_cache_bin(size); bin <= ag_cache_bin(most); bin++) {
        struct ag_block **link = &shard->bins[bin], **best = NULL;

        for (unsigned i = 0; *link && i < LOOKED_AT; i++, link = &(*link)->next) {
            const struct ag_block *block = *link;

            if (block->size >= size && block->size <= most &&
                (!best || block->size < (*best)->size) && ag_mem_desc_same(block->desc, desc))
                best = link;
        }
        if (best)
            return take_out(shard, best);
    }
    return NULL;
}

/* Other threads' shards are looked at only if nobody is in them. */
static struct ag_block *take_from_others(struct ag_cache *cache, unsigned own, size_t size,
                                         size_t most, struct ag_mem_desc desc, take_function *take)
{
    struct ag_block *block = NULL;
    unsigned n = n_used(cache), at = own;

    for (unsigned i = 0; i < n && !block; i++) {
        struct ag_cache_shard *shard;

        at = at + 1 < n ? at + 1 : 0;
        shard = &cache->shards[at];
        if (at == own || ag_relaxed(&shard->bytes) < size || ag_spin_is_taken(&shard->lock) ||
            !ag_spin_try(&shard->lock))
            continue;
        block = take(shard, size, most, desc);
        ag_spin_release(&shard->lock);
    }
    return block;
}

static inline struct ag_block *take_by(take_function *take, struct ag_cache *cache, size_t size,
                                       size_t most, struct ag_mem_desc desc)
{
    unsigned own = ag_slot();
    struct ag_cache_shard *shard = &cache->shards[own];
    struct ag_block *block = NULL;

    if (ag_relaxed(&shard->bytes) >= size) {
        ag_spin_take(&shard->lock);
        block = take(shard, size, most, desc);
        ag_spin_release(&shard->lock);
    }
    return block ? block : take_from_others(cache, own, size, most, desc, take);
}

struct ag_block *ag_cache_take(struct ag_cache *cache, size_t size, struct ag_mem_desc desc)
{
    return take_by(take_from, cache, size, size + size / 8, desc);
}

struct ag_block *ag_cache_take_smallest(struct ag_cache *cache, size_t size, size_t most,
                                        struct ag_mem_desc desc)
{
    return take_by(take_smallest_from, cache, size, most, desc);
}

/* Where another thread is in the shard just now, ag_cache_take() waits for it; of a block that was
 * counted it tells the slab. So mostly this calls nothing. */
struct ag_block *ag_cache_take_last(struct ag_cache *cache, size_t size)
{
    struct ag_cache_shard *shard = used_shard(cache);
    struct ag_block **bin, *block;

    if (!shard || ag_relaxed(&shard->bytes) < size || !ag_spin_try(&shard->lock))
        return NULL;
    bin = &shard->bins[ag_cache_bin(size)];
    block = *bin;
    if (block && block->size == size && ag_mem_desc_is_plain_device(block->desc) &&
        !ag_block_is_counted(block)) {
        (void)take_uncounted(shard, bin);
    } else {
        block = NULL;
    }
    ag_spin_release(&shard->lock);
    return block;
}

enum which { ALL_BLOCKS, DEVICE_BLOCKS };

static struct ag_block **find(struct ag_cache_shard *shard, unsigned bin, uint64_t at_least,
                              enum which which)
{
    struct ag_block **link = &shard->bins[bin];

    while (*link && ((*link)->size < at_least ||
                     (which == DEVICE_BLOCKS && !ag_mem_desc_is_on_device((*link)->desc))))
        link = &(*link)->next;
    return *link ? link : NULL;
}

/* The block to go where `bytes` are wanted: of those that are enough, one of the smallest, else one
 * of the largest. There are none in the bins above *top. Shard locked. */
static struct ag_block **next_out(struct ag_cache_shard *shard, uint64_t bytes, enum which which,
                                  unsigned *top)
{
    struct ag_block **link = NULL;

    for (unsigned bin = ag_cache_bin(bytes); bin <= *top && !link; bin++)
        link = find(shard, bin, bytes, which);
    while (!link && !(link = find(shard, *top, 0, which)) && *top)
        --*top;
    return link;
}

/* Takes blocks out until at least `bytes` came together. Shard locked. */
static struct ag_block *evict_blocks(struct ag_cache_shard *shard, uint64_t bytes, enum which which,
                                     uint64_t *ret_freed)
{
    struct ag_block *evicted = NULL, **link;
    unsigned top = AG_CACHE_BINS - 1;
    uint64_t freed = 0;

    while (freed < bytes && (link = next_out(shard, bytes - freed, which, &top))) {
        struct ag_block *block = take_out(shard, link);

        block->next = evicted;
        evicted = block;
        freed += block->size;
    }
    *ret_freed = freed;
    return evicted;
}

static struct ag_block *evict_from_all(struct ag_cache *cache, uint64_t bytes, enum which which)
{
    struct ag_block *all = NULL;

    for (unsigned i = 0; i < n_used(cache) && bytes; i++) {
        struct ag_block *part, *last;
        uint64_t freed;

        ag_spin_take(&cache->shards[i].lock);
        part = evict_blocks(&cache->shards[i], bytes, which, &freed);
        ag_spin_release(&cache->shards[i].lock);
        bytes -= freed < bytes ? freed : bytes;
        for (last = part; last && last->next; last = last->next)
            ;
        if (last) {
            last->next = all;
            all = part;
        }
    }
    return all;
}

struct ag_block *ag_cache_evict(struct ag_cache *cache, uint64_t bytes)
{
    return evict_from_all(cache, bytes, DEVICE_BLOCKS);
}

uint64_t ag_cache_room(struct ag_cache *cache, uint64_t *ret_small)
{
    uint64_t pieces, bytes = ag_cache_block_bytes(cache, &pieces);
    uint64_t small = 0, ends = 0;

    for (unsigned i = 0; i < n_used(cache); i++) {
        small += ag_relaxed(&cache->shards[i].small_native);
        ends += ag_relaxed(&cache->shards[i].page_ends);
    }
    *ret_small = small;
    return (bytes > small ? bytes - small : 0) + ends;
}

/* --- pieces of slabs --- */

/* Shard locked. */
static void count_pieces(struct ag_cache_shard *shard)
{
    for (unsigned bin = 0; bin <= ag_cache_bin(ag_slab_largest()); bin++) {
        struct ag_block *block = shard->bins[bin];

        for (; block && !ag_block_is_counted(block); block = block->next) {
            if (ag_block_slab(block))
                ag_slab_count_piece(ag_block_slab(block), true);
            ag_block_set_counted(block, true);
        }
    }
}

void ag_cache_count_pieces(struct ag_cache *cache)
{
    for (unsigned i = 0; i < n_used(cache); i++) {
        struct ag_cache_shard *shard = &cache->shards[i];

        if (!ag_relaxed(&shard->piece_bytes))
            continue;
        ag_spin_take(&shard->lock);
        count_pieces(shard);
        ag_spin_release(&shard->lock);
    }
}

/* Takes those of the slab out of the bin, while there may be more of them. Shard locked. */
static void evict_pieces(struct ag_cache_shard *shard, unsigned bin, struct ag_slab *slab,
                         uint32_t *n_left, struct ag_block **out)
{
    struct ag_block **link = &shard->bins[bin];

    while (*link && *n_left) {
        struct ag_block *block = *link;

        if (ag_block_slab(block) != slab) {
            link = &block->next;
            continue;
        }
        (void)take_out(shard, link);
        block->next = *out;
        *out = block;
        --*n_left;
    }
}

struct ag_block *ag_cache_evict_slab(struct ag_cache *cache, struct ag_slab *slab)
{
    struct ag_block *out = NULL;
    uint32_t n_left;

    ag_cache_count_pieces(cache);
    n_left = ag_slab_counted(slab);
    for (unsigned i = 0; i < n_used(cache) && n_left; i++) {
        struct ag_cache_shard *shard = &cache->shards[i];

        ag_spin_take(&shard->lock);
        for (unsigned bin = 0; bin <= ag_cache_bin(ag_slab_largest()); bin++)
            evict_pieces(shard, bin, slab, &n_left, &out);
        ag_spin_release(&shard->lock);
    }
    return out;
}

struct ag_block *ag_cache_empty(struct ag_cache *cache)
{
    return evict_from_all(cache, UINT64_MAX, ALL_BLOCKS);
}

/* --- in --- */

static void set_allowed(struct ag_cache_shard *shard, uint64_t bytes)
{
    ag_spin_take(&shard->lock);
    shard->allowed = bytes;
    ag_spin_release(&shard->lock);
}

/* Called with the cache's lock. */
static void raise_peak(struct ag_cache *cache, uint64_t bytes)
{
    if (bytes <= ag_relaxed(&cache->peak))
        return;
    atomic_store_explicit(&cache->peak, bytes, memory_order_relaxed);
    ag_raise_to(&ag_stats.cached_peak, bytes);
}

/* Counts all that the shards hold, which is what they may hold from now on. Called with the cache's
 * lock. While it is added up nothing is kept, so no block that goes from one to another counts
 * twice. */
static void recount_shards(struct ag_cache *cache, uint64_t limit)
{
    unsigned n = n_used(cache); /* a shard that is new may hold nothing */
    uint64_t sum = 0;

    for (unsigned i = 0; i < n; i++)
        set_allowed(&cache->shards[i], 0);
    for (unsigned i = 0; i < n; i++) {
        struct ag_cache_shard *shard = &cache->shards[i];
        uint64_t bytes = ag_relaxed(&shard->bytes);

        set_allowed(shard, bytes); /* more than it holds by now, if blocks went out meanwhile */
        sum += bytes;
    }
    atomic_store_explicit(&cache->allowed, sum, memory_order_relaxed);
    sum += ag_relaxed(&cache->coming);
    raise_peak(cache, sum < limit ? sum : limit);
}

/* The shard may hold `more` from now on, and the cache. Both locked. */
static void grant(struct ag_cache *cache, struct ag_cache_shard *shard, uint64_t more)
{
    shard->allowed += more;
    change_bytes(&cache->allowed, more);
    raise_peak(cache, ag_relaxed(&cache->allowed));
}

/* Bytes beyond what the shard may hold. */
static uint64_t missing(const struct ag_cache_shard *shard, uint64_t bytes)
{
    return bytes > shard->allowed ? bytes - shard->allowed : 0;
}

/* Nothing is kept by others, and all that is allowed is held. Makes room in the caller's shard; if
 * other threads' hold too much, `block` goes out too. With the cache's lock. */
static struct ag_block *keep_or_evict(struct ag_cache *cache, struct ag_cache_shard *shard,
                                      struct ag_block *block, uint64_t limit)
{
    uint64_t allowed = ag_relaxed(&cache->allowed), freed = 0;
    struct ag_block *out = NULL;

    ag_spin_take(&shard->lock);
    if (allowed > limit - block->size)
        out = evict_blocks(shard, allowed - (limit - block->size), ALL_BLOCKS, &freed);
    shard->allowed -= freed;
    change_bytes(&cache->allowed, -freed);
    if (allowed - freed > limit - block->size) {
        block->next = out;
        out = block;
    } else {
        grant(cache, shard, missing(shard, ag_relaxed(&shard->bytes) + block->size));
        put_in_bin(shard, block);
    }
    ag_spin_release(&shard->lock);
    return out;
}

/* False: only all shards together can tell. With the cache's lock. */
static bool keep_if_granted(struct ag_cache *cache, struct ag_cache_shard *shard,
                            struct ag_block *block, uint64_t limit)
{
    uint64_t most = ag_relaxed(&cache->peak) < limit ? ag_relaxed(&cache->peak) : limit;
    uint64_t allowed = ag_relaxed(&cache->allowed), more;
    bool granted;

    ag_spin_take(&shard->lock);
    more = missing(shard, ag_relaxed(&shard->bytes) + block->size);
    granted = allowed <= most && more <= most - allowed;
    if (granted) {
        grant(cache, shard, more);
        put_in_bin(shard, block);
    }
    ag_spin_release(&shard->lock);
    return granted;
}

/* Called with the shard's lock, which is released. */
static inline bool keep_unasked(struct ag_cache *cache, struct ag_cache_shard *shard,
                                struct ag_block *block, uint64_t limit)
{
    bool allowed = !missing(shard, ag_relaxed(&shard->bytes) + block->size) &&
                   ag_relaxed(&cache->allowed) <= limit;

    if (allowed)
        put_in_bin(shard, block);
    ag_spin_release(&shard->lock);
    return allowed;
}

__attribute__((noinline)) static struct ag_block *keep_asking(struct ag_cache *cache,
                                                              struct ag_cache_shard *shard,
                                                              struct ag_block *block,
                                                              uint64_t limit)
{
    struct ag_block *out = NULL;
    size_t size = block->size;

    atomic_fetch_add_explicit(&cache->coming, size, memory_order_relaxed);
    ag_lock_take(&cache->lock);
    if (!keep_if_granted(cache, shard, block, limit)) {
        recount_shards(cache, limit);
        out = keep_or_evict(cache, shard, block, limit);
    }
    atomic_fetch_sub_explicit(&cache->coming, size, memory_order_relaxed);
    ag_lock_release(&cache->lock);
    return out;
}

/* The shard may be in use by another thread, or may not hold the block unasked. */
__attribute__((noinline)) static struct ag_block *keep_slowly(struct ag_cache *cache,
                                                              struct ag_block *block,
                                                              uint64_t limit)
{
    struct ag_cache_shard *shard = use_shard(cache, ag_slot());

    ag_cache_note_kept(); /* if not here, in a pool */
    block->next = NULL;
    if (block->size > limit)
        return block;
    ag_spin_take(&shard->lock);
    return keep_unasked(cache, shard, block, limit) ? NULL
                                                    : keep_asking(cache, shard, block, limit);
}

/* Mostly it is only put into a shard that nobody is in: that way calls nothing, and so has no
 * registers to put aside. */
struct ag_block *ag_cache_keep(struct ag_cache *cache, struct ag_block *block, uint64_t limit)
{
    struct ag_cache_shard *shard = used_shard(cache);

    if (shard && block->size <= limit && ag_spin_try(&shard->lock) &&
        keep_unasked(cache, shard, block, limit))
        return NULL;
    return keep_slowly(cache, block, limit);
}

void ag_cache_keep_all(struct ag_cache *cache, struct ag_block *blocks)
{
    while (blocks) {
        struct ag_block *next = blocks->next;

        (void)ag_cache_keep(cache, blocks, UINT64_MAX);
        blocks = next;
    }
}
