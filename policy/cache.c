/* Bins of freed blocks, by size, in shards: see cache.h. */
#include "policy/cache.h"

#include "interpose/base/slot.h"
#include "policy/ledger.h"

#define SMALLEST     512u
#define LARGEST_STEP (2u * 1024u * 1024u)
#define LOOKED_AT    16u /* blocks of a bin looked at: large sizes share bins */

static unsigned log2_of(size_t value)
{
    return 63u - (unsigned)__builtin_clzll(value);
}

size_t ag_cache_block_size(size_t bytes)
{
    size_t step;

    if (bytes <= SMALLEST)
        return SMALLEST;
    step = (size_t)1 << log2_of(bytes - 1) >> 3;
    if (step < SMALLEST)
        step = SMALLEST;
    if (step > LARGEST_STEP)
        step = LARGEST_STEP;
    if (bytes > SIZE_MAX - step)
        return bytes;
    return (bytes + step - 1) & ~(step - 1);
}

/* Sizes in one bin differ by at most an eighth. */
static unsigned bin_of(size_t size)
{
    unsigned power = log2_of(size);
    unsigned bin = power < 9 ? 0 : (power - 9) * 8 + (unsigned)(size >> (power - 3) & 7);

    return bin < AG_CACHE_BINS ? bin : AG_CACHE_BINS - 1;
}

void ag_cache_init(struct ag_cache *cache)
{
    for (unsigned i = 0; i < AG_CACHE_SHARDS; i++)
        ag_lock_init(&cache->shards[i].lock, AG_RANK_CACHE);
}

static void account_native(struct ag_cache_shard *shard, const struct ag_block *block, bool in)
{
    bool small = block->size < AG_NATIVE_PAGE;
    _Atomic uint64_t *sum = small ? &shard->small_native : &shard->page_ends;
    uint64_t bytes = small ? block->size : -block->size % AG_NATIVE_PAGE;

    if (block->desc.source == AG_SOURCE_CACHED)
        atomic_store_explicit(
            sum, atomic_load_explicit(sum, memory_order_relaxed) + (in ? bytes : -bytes),
            memory_order_relaxed);
}

static void account_out(struct ag_cache *cache, struct ag_cache_shard *shard,
                        struct ag_block *block)
{
    shard->bytes -= block->size;
    account_native(shard, block, false);
    ag_level_subtract(&cache->bytes, block->size);
    if (ag_mem_desc_is_on_device(block->desc))
        ag_level_subtract(&cache->device_bytes, block->size);
}

static void account_in(struct ag_cache *cache, struct ag_cache_shard *shard, struct ag_block *block)
{
    uint64_t peak;

    shard->bytes += block->size;
    account_native(shard, block, true);
    ag_level_add(&cache->bytes, block->size);
    if (ag_mem_desc_is_on_device(block->desc))
        ag_level_add(&cache->device_bytes, block->size);
    peak = atomic_load_explicit(&cache->bytes.peak, memory_order_relaxed);
    if (peak > atomic_load_explicit(&ag_stats.cached_peak, memory_order_relaxed))
        atomic_store_explicit(&ag_stats.cached_peak, peak, memory_order_relaxed);
}

/* With the shard's lock held. */
static struct ag_block *take_from(struct ag_cache *cache, struct ag_cache_shard *shard, size_t size,
                                  struct ag_mem_desc desc)
{
    struct ag_block **link = &shard->bins[bin_of(size)];

    for (unsigned i = 0; *link && i < LOOKED_AT; i++, link = &(*link)->next) {
        struct ag_block *block = *link;

        if (block->size < size || block->size - size > size / 8 ||
            !ag_mem_desc_same(block->desc, desc))
            continue;
        *link = block->next;
        block->next = NULL;
        account_out(cache, shard, block);
        return block;
    }
    return NULL;
}

struct ag_block *ag_cache_take(struct ag_cache *cache, size_t size, struct ag_mem_desc desc)
{
    unsigned own = ag_slot() % AG_CACHE_SHARDS;
    struct ag_block *block = NULL;

    if (ag_level_current(&cache->bytes) < size)
        return NULL;
    for (unsigned i = 0; i < AG_CACHE_SHARDS && !block; i++) {
        struct ag_cache_shard *shard = &cache->shards[(own + i) % AG_CACHE_SHARDS];

        /* Other threads' shards are looked at only if nobody is in them. */
        if (i == 0)
            ag_lock_take(&shard->lock);
        else if (!ag_lock_try(&shard->lock))
            continue;
        block = take_from(cache, shard, size, desc);
        ag_lock_release(&shard->lock);
    }
    return block;
}

enum which { ALL_BLOCKS, DEVICE_BLOCKS };

/* Takes blocks out, large ones first, until at least `bytes` came together. Shard locked. */
static struct ag_block *evict(struct ag_cache *cache, struct ag_cache_shard *shard, uint64_t bytes,
                              enum which which, uint64_t *ret_freed)
{
    struct ag_block *evicted = NULL;
    uint64_t freed = 0;

    for (unsigned bin = AG_CACHE_BINS; bin-- > 0 && freed < bytes;) {
        struct ag_block **link = &shard->bins[bin];

        while (*link && freed < bytes) {
            struct ag_block *block = *link;

            if (which == DEVICE_BLOCKS && !ag_mem_desc_is_on_device(block->desc)) {
                link = &block->next;
                continue;
            }
            *link = block->next;
            block->next = evicted;
            evicted = block;
            freed += block->size;
            account_out(cache, shard, block);
        }
    }
    *ret_freed = freed;
    return evicted;
}

struct ag_block *ag_cache_keep(struct ag_cache *cache, struct ag_block *block, uint64_t limit)
{
    struct ag_cache_shard *shard = &cache->shards[ag_slot() % AG_CACHE_SHARDS];
    struct ag_block *out = NULL;
    uint64_t after, freed;

    block->next = NULL;
    if (block->size > limit)
        return block;
    ag_lock_take(&shard->lock);
    after = ag_level_current(&cache->bytes) + block->size;
    if (after > limit)
        out = evict(cache, shard, after - limit, ALL_BLOCKS, &freed);
    after = ag_level_current(&cache->bytes) + block->size;
    if (after > limit) { /* other threads' shards hold the rest */
        block->next = out;
        out = block;
    } else {
        struct ag_block **bin = &shard->bins[bin_of(block->size)];

        block->next = *bin;
        *bin = block;
        account_in(cache, shard, block);
    }
    ag_lock_release(&shard->lock);
    return out;
}

static struct ag_block *evict_from_all(struct ag_cache *cache, uint64_t bytes, enum which which)
{
    struct ag_block *all = NULL;

    for (unsigned i = 0; i < AG_CACHE_SHARDS && bytes; i++) {
        struct ag_block *part, *last;
        uint64_t freed;

        ag_lock_take(&cache->shards[i].lock);
        part = evict(cache, &cache->shards[i], bytes, which, &freed);
        ag_lock_release(&cache->shards[i].lock);
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
    uint64_t small = 0, ends = 0, bytes = ag_level_current(&cache->device_bytes);

    for (unsigned i = 0; i < AG_CACHE_SHARDS; i++) {
        small += atomic_load_explicit(&cache->shards[i].small_native, memory_order_relaxed);
        ends += atomic_load_explicit(&cache->shards[i].page_ends, memory_order_relaxed);
    }
    *ret_small = small;
    return (bytes > small ? bytes - small : 0) + ends;
}

struct ag_block *ag_cache_empty(struct ag_cache *cache)
{
    return evict_from_all(cache, UINT64_MAX, ALL_BLOCKS);
}
