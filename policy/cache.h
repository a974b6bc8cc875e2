/* Freed blocks of one context, ready for its next allocations.
 *
 * Every block in here was freed in an order (order/free.h) that puts its earlier users before
 * anything the context will submit. So a block that goes out may be used at once, and the driver is
 * not asked. No driver call is made here: blocks that must go back to their pool are handed to the
 * caller.
 *
 * Each slot of threads has a shard of its own, with its own lock, and threads that allocate and
 * free in pairs write to nothing else. Anybody may come for another's blocks: a thread whose own
 * shard has none, and whoever empties the cache. A thread that ends leaves its shard to the next
 * one that has its slot. */
#ifndef AG_POLICY_CACHE_H
#define AG_POLICY_CACHE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "interpose/core/base/bits.h"
#include "interpose/core/base/slot.h"
#include "interpose/core/base/threads/lock.h"
#include "interpose/core/base/threads/spin.h"
#include "policy/mem_desc.h"

#define AG_CACHE_BINS 256u /* 8 a doubling, from 512 B on */

struct ag_block;
struct ag_slab;

struct ag_cache_shard {
    _Alignas(64) struct ag_spin lock; /* guards the rest */
    /* In here; read by anybody, relaxed: who finds too little asks the driver, and looks again
     * if that has none. */
    _Atomic uint64_t bytes;
    _Atomic uint64_t host_bytes; /* of them, those that take no room on the device */
    /* Bytes of native blocks smaller than a page of the driver; and by how many bytes larger ones
     * fall short of whole pages. */
    _Atomic uint64_t small_native, page_ends;
    _Atomic uint64_t piece_bytes;         /* of those on the device, pieces of slabs */
    uint64_t allowed;                     /* what `bytes` may come to unasked: see cache.c */
    struct ag_block *bins[AG_CACHE_BINS]; /* linked by ag_block.next, most recently freed first */
};

struct ag_cache {
    struct ag_lock lock;      /* guards every change of what shards may hold */
    _Atomic uint64_t allowed; /* the sum of that */
    _Atomic uint64_t coming;  /* bytes of the blocks that threads ask to keep */
    _Atomic uint64_t peak;    /* most bytes in here and coming so far; `allowed` is never more */
    _Atomic uint32_t n_used;  /* shards from the first on: the others never had a block */
    struct ag_cache_shard shards[AG_SLOTS];
};

#define AG_CACHE_SMALLEST 512u

/* The size a block for a request of `bytes` has: at most one eighth, and 2 MiB, more. Blocks are a
 * whole number of steps large: an eighth of the power of two below, from the smallest size on and
 * up to 2 MiB. */
static inline size_t ag_cache_block_size(size_t bytes)
{
    size_t last = bytes ? bytes - 1 : 0;
    unsigned power = ag_log2(last | 8 * AG_CACHE_SMALLEST) - 3;
    size_t end = last | (((size_t)1 << (power < 21 ? power : 21)) - 1);

    return end == SIZE_MAX ? bytes : end + 1;
}

/* Does a block of `size` bytes, which there is, have such a size? */
static inline bool ag_cache_is_block_size(size_t size)
{
    unsigned power = ag_log2((size - 1) | 8 * AG_CACHE_SMALLEST) - 3;

    return !(size & (((size_t)1 << (power < 21 ? power : 21)) - 1));
}

/* The bin of a size, below AG_CACHE_BINS. Sizes in one bin differ by at most an eighth. */
unsigned ag_cache_bin(size_t size);

/* Has the process ever kept memory that the driver could have back: in a cache, kept by guards, or
 * in graphs of ours? Until then, a call that finds none needs no other look. Relaxed: the call that
 * failed for what is kept came after it. */
extern _Atomic bool ag_cache_anything_kept;
static inline bool ag_cache_keeps(void)
{
    return atomic_load_explicit(&ag_cache_anything_kept, memory_order_relaxed);
}
static inline void ag_cache_note_kept(void)
{
    if (!ag_cache_keeps())
        atomic_store_explicit(&ag_cache_anything_kept, true, memory_order_relaxed);
}

void ag_cache_init(struct ag_cache *cache);
/* Bytes in all shards, and of them those that take room on the device. */
uint64_t ag_cache_bytes(struct ag_cache *cache);
uint64_t ag_cache_device_bytes(struct ag_cache *cache);
/* Touches the memory that the calling thread's blocks take. */
void ag_cache_prepare(struct ag_cache *cache);
/* A block of that descriptor, of at least `size` (from ag_cache_block_size) and at most one eighth
 * more, or NULL. */
struct ag_block *ag_cache_take(struct ag_cache *cache, size_t size, struct ag_mem_desc desc);
/* A block of about the least size of those from `size` to `most`, or NULL. */
struct ag_block *ag_cache_take_smallest(struct ag_cache *cache, size_t size, size_t most,
                                        struct ag_mem_desc desc);
/* A block of the calling thread's shard that is just so large, and the program cannot tell from
 * native, if the last one freed of its bin is; or NULL. */
struct ag_block *ag_cache_take_last(struct ag_cache *cache, size_t size);
/* Keeps `block` if that leaves at most `limit` bytes in the cache. Blocks that had to make room, or
 * `block` itself, come back linked by ->next, for the caller to give to the pool. */
struct ag_block *ag_cache_keep(struct ag_cache *cache, struct ag_block *block, uint64_t limit);
/* Keeps all of a list, over any limit: of blocks that could not go back. */
void ag_cache_keep_all(struct ag_cache *cache, struct ag_block *blocks);
/* Takes out blocks that take room on the device until they have at least `bytes` together: one of
 * the smallest that are enough alone, where there is one. Linked by ->next. */
struct ag_block *ag_cache_evict(struct ag_cache *cache, uint64_t bytes);
/* Bytes in all shards that take room on the device, but for pieces of slabs (*ret_pieces bytes): a
 * slab goes back only when all of it is free. */
uint64_t ag_cache_block_bytes(struct ag_cache *cache, uint64_t *ret_pieces);
/* Tells slabs of their pieces that came in here since the last time (ag_slabs_whole_bytes()). */
void ag_cache_count_pieces(struct ag_cache *cache);
/* Takes out the pieces of that slab; linked by ->next. */
struct ag_block *ag_cache_evict_slab(struct ag_cache *cache, struct ag_slab *slab);
/* How much of the device would be free if the driver had the cache's blocks back, but for native
 * ones that share pages (*ret_small bytes) and pieces of slabs. */
uint64_t ag_cache_room(struct ag_cache *cache, uint64_t *ret_small);
/* Empties the cache; all blocks linked by ->next. */
struct ag_block *ag_cache_empty(struct ag_cache *cache);

#endif
