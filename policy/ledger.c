/* The ledger as tables in shards: see ledger.h. */
#include "policy/ledger.h"

#include <string.h>

#include "interpose/core/base/arena.h"
#include "interpose/core/base/hash.h"
#include "interpose/core/base/map.h"
#include "interpose/core/base/pages.h"
#include "interpose/core/base/threads/spin.h"
#include "interpose/core/base/threads/wait.h"

#define SHARDS       256u         /* threads at different blocks seldom meet in one */
#define FIRST_BUFFER (1ull << 48) /* the driver counts from low numbers */

#define FIRST_ENTRIES   16u
#define PREPARED_BLOCKS 256u

static struct {
    /* Guards the map, descriptors, and every state change from LIVE; what is written to blocks
     * under it is relaxed. */
    _Alignas(64) struct ag_spin lock;
    struct ag_map map;
    struct ag_map_entry first[FIRST_ENTRIES]; /* of the map */
} shards[SHARDS] = {[0 ... SHARDS - 1] = {.lock = AG_SPIN_INIT(AG_RANK_LEDGER)}};

static struct ag_arena arena = AG_ARENA_INIT(struct ag_block);
static struct ag_arena rare_arena = AG_ARENA_INIT(struct ag_block_rare);

/* How many blocks begin in the pages that fall on each place. The driver never puts memory of two
 * pools, or of a pool and of cuMemAlloc, into one page of that size. Counts are relaxed: who asks
 * about a block got its address after it was counted, and no later value lacks it while it is
 * there. */
#define PAGE_BITS 21
#define PLACES    4096u
static _Atomic unsigned begun[PLACES];

/* Where memory lies that is not as the driver's: a bit for each region of addresses, of 48 bits,
 * set for good. Few pages of it are ever touched. Relaxed: who asks about an address got it after
 * its bit was set. */
#define REGION_BITS 28
#define REGIONS     (1u << 20)
static _Atomic uint64_t regions[REGIONS / 64];

/* Neighbouring allocations lie 512 B or more apart. */
static unsigned shard_of_address(CUdeviceptr address)
{
    return (unsigned)(ag_hash_spread(address >> 9) >> 56) % SHARDS;
}

static _Atomic unsigned *begun_in_page(CUdeviceptr address)
{
    return &begun[ag_hash_spread(address >> PAGE_BITS) >> 52];
}

void ag_ledger_prepare(void)
{
    ag_pages_ready(shards, sizeof(shards));
    ag_pages_ready(begun, sizeof(begun));
    ag_arena_prepare(&arena, PREPARED_BLOCKS);
}

bool ag_ledger_may_have(CUdeviceptr address)
{
    return atomic_load_explicit(begun_in_page(address), memory_order_relaxed) != 0;
}

static _Atomic uint64_t *region(CUdeviceptr address, uint64_t *ret_bit)
{
    unsigned i = (unsigned)(address >> REGION_BITS) % REGIONS;

    *ret_bit = (uint64_t)1 << i % 64;
    return &regions[i / 64];
}

bool ag_ledger_may_hold(CUdeviceptr address)
{
    uint64_t bit;

    return (atomic_load_explicit(region(address, &bit), memory_order_relaxed) & bit) != 0;
}

void ag_ledger_note_memory(CUdeviceptr address, size_t size)
{
    CUdeviceptr last = address + (size ? size - 1 : 0);

    for (CUdeviceptr at = address >> REGION_BITS; at <= last >> REGION_BITS; at++) {
        uint64_t bit;
        _Atomic uint64_t *word = region(at << REGION_BITS, &bit);

        if (!(atomic_load_explicit(word, memory_order_relaxed) & bit))
            atomic_fetch_or_explicit(word, bit, memory_order_relaxed);
    }
}

static unsigned lock_shard(CUdeviceptr address)
{
    unsigned i = shard_of_address(address);

    ag_spin_take(&shards[i].lock);
    return i;
}

struct ag_block *ag_ledger_enter(CUdeviceptr address, size_t size, struct ag_context *context,
                                 struct ag_mem_desc desc)
{
    struct ag_block *block = ag_arena_get(&arena);
    bool entered;
    unsigned i;

    if (!block)
        return NULL;
    block->address = address;
    block->size = size;
    block->context = context;
    block->desc = desc;
    block->placement = (uint8_t)ag_mem_desc_placement(desc);
    if (desc.source != AG_SOURCE_NATIVE)
        ag_ledger_note_memory(address, size);
    i = lock_shard(address);
    if (!shards[i].map.capacity)
        ag_map_begin(&shards[i].map, shards[i].first, FIRST_ENTRIES);
    entered = ag_map_put(&shards[i].map, address, block);
    ag_spin_release(&shards[i].lock);
    if (!entered) {
        ag_arena_put(&arena, block);
        return NULL;
    }
    atomic_fetch_add_explicit(begun_in_page(address), 1, memory_order_relaxed);
    return block;
}

void ag_ledger_lend(struct ag_block *block, size_t requested)
{
    atomic_store_explicit(&block->requested, requested, memory_order_relaxed);
    atomic_store_explicit(&block->state, AG_BLOCK_FOREIGN, memory_order_release);
}

uint64_t ag_ledger_note_export(CUdeviceptr base, uint64_t number)
{
    unsigned i = lock_shard(base);
    struct ag_block *block = ag_map_get(&shards[i].map, base);
    struct ag_block_rare *rare = NULL;
    uint64_t has = 0;

    if (block && atomic_load_explicit(&block->state, memory_order_acquire) == AG_BLOCK_LIVE)
        rare = ag_ledger_rare(block);
    if (rare && atomic_compare_exchange_strong(&rare->export_number, &has, number))
        has = number;
    ag_spin_release(&shards[i].lock);
    return has;
}

void ag_ledger_hand_over(struct ag_block *block, struct ag_context *context)
{
    unsigned i = lock_shard(block->address);

    block->context = context; /* under the lock: ag_ledger_look() reads it */
    ag_spin_release(&shards[i].lock);
}

bool ag_ledger_note_sync(CUdeviceptr base, enum ag_sync_memops set)
{
    unsigned i = lock_shard(base);
    struct ag_block *block = ag_map_get(&shards[i].map, base);
    bool live = block && atomic_load_explicit(&block->state, memory_order_acquire) == AG_BLOCK_LIVE;

    if (live)
        atomic_store_explicit(&block->sync_memops, (uint8_t)set, memory_order_relaxed);
    ag_spin_release(&shards[i].lock);
    return live;
}

/* The block at `address`, or NULL. If it is LIVE it is taken over into `state`; else *ret_found is
 * what it was, KEPT also where there is none. With the lock of shard `i`, which is released. */
static inline struct ag_block *take_over(unsigned i, CUdeviceptr address, enum ag_block_state state,
                                         int *ret_found)
{
    struct ag_block *block = ag_map_get(&shards[i].map, address);
    int found = AG_BLOCK_KEPT;

    if (block) {
        found = atomic_load_explicit(&block->state, memory_order_acquire);
        if (found == AG_BLOCK_LIVE)
            atomic_store_explicit(&block->state, (uint8_t)state, memory_order_relaxed);
    }
    ag_spin_release(&shards[i].lock);
    *ret_found = found;
    return block;
}

/* Another thread is in the shard, or moves the block. */
__attribute__((noinline)) static enum ag_claim claim_waiting(CUdeviceptr address,
                                                             struct ag_block **ret_block)
{
    struct ag_wait wait = {0};
    struct ag_block *block;
    int found;

    for (;;) {
        block = take_over(lock_shard(address), address, AG_BLOCK_KEPT, &found);
        if (found != AG_BLOCK_MOVING)
            break;
        ag_wait_pause(&wait); /* a few driver calls of another thread */
    }
    if (found != AG_BLOCK_LIVE)
        return block ? AG_CLAIM_NOT_LIVE : AG_CLAIM_UNKNOWN;
    *ret_block = block;
    return AG_CLAIM_OURS;
}

enum ag_claim ag_ledger_claim(CUdeviceptr address, struct ag_block **ret_block)
{
    unsigned i = shard_of_address(address);
    struct ag_block *block;
    int found;

    if (!ag_spin_try(&shards[i].lock))
        return claim_waiting(address, ret_block);
    block = take_over(i, address, AG_BLOCK_KEPT, &found);
    if (found == AG_BLOCK_MOVING)
        return claim_waiting(address, ret_block);
    if (found != AG_BLOCK_LIVE)
        return block ? AG_CLAIM_NOT_LIVE : AG_CLAIM_UNKNOWN;
    *ret_block = block;
    return AG_CLAIM_OURS;
}

struct ag_block *ag_ledger_move(CUdeviceptr address)
{
    int found;
    struct ag_block *block = take_over(lock_shard(address), address, AG_BLOCK_MOVING, &found);

    return found == AG_BLOCK_LIVE ? block : NULL;
}

void ag_ledger_moved(struct ag_block *block, struct ag_mem_desc desc)
{
    unsigned i;

    if (desc.source != AG_SOURCE_NATIVE)
        ag_ledger_note_memory(block->address, block->size);
    i = lock_shard(block->address);
    block->desc = desc; /* under the lock: ag_ledger_look() reads it */
    block->placement = (uint8_t)ag_mem_desc_placement(desc);
    atomic_store_explicit(&block->state, AG_BLOCK_LIVE, memory_order_release);
    ag_spin_release(&shards[i].lock);
}

void ag_ledger_remove(struct ag_block *block)
{
    unsigned i = lock_shard(block->address);

    (void)ag_map_take(&shards[i].map, block->address);
    ag_spin_release(&shards[i].lock);
    atomic_fetch_sub_explicit(begun_in_page(block->address), 1, memory_order_relaxed);
    if (ag_block_rare(block))
        ag_arena_put(&rare_arena, ag_block_rare(block));
    ag_arena_put(&arena, block);
}

bool ag_ledger_rename(struct ag_block *block, CUdeviceptr address, bool always)
{
    CUdeviceptr before = block->address;
    unsigned i = lock_shard(address);
    bool entered;

    if (!shards[i].map.capacity)
        ag_map_begin(&shards[i].map, shards[i].first, FIRST_ENTRIES);
    entered = ag_map_put(&shards[i].map, address, block);
    if (entered || always)
        block->address = address;
    ag_spin_release(&shards[i].lock);
    if (!entered && !always)
        return false;
    atomic_fetch_add_explicit(begun_in_page(address), 1, memory_order_relaxed);
    i = lock_shard(before);
    (void)ag_map_take(&shards[i].map, before);
    ag_spin_release(&shards[i].lock);
    atomic_fetch_sub_explicit(begun_in_page(before), 1, memory_order_relaxed);
    return entered;
}

/* Two threads may be at it: one that asks for the block's handle, and one that its guard is of. */
struct ag_block_rare *ag_ledger_rare(struct ag_block *block)
{
    struct ag_block_rare *rare = ag_block_rare(block), *fresh;

    if (rare)
        return rare;
    fresh = ag_arena_get(&rare_arena);
    if (!fresh)
        return NULL;
    if (atomic_compare_exchange_strong(&block->rare, &rare, fresh))
        return fresh;
    ag_arena_put(&rare_arena, fresh);
    return rare;
}

uint64_t ag_ledger_new_buffer_id(void)
{
    static _Atomic uint64_t next_buffer = FIRST_BUFFER; /* relaxed: a number */

    return atomic_fetch_add_explicit(&next_buffer, 1, memory_order_relaxed);
}

/* Given when somebody asks: few do, and a shared counter would cost every allocation. */
uint64_t ag_ledger_buffer_id(CUdeviceptr base)
{
    unsigned i = lock_shard(base);
    struct ag_block *block = ag_map_get(&shards[i].map, base);
    struct ag_block_rare *rare = block ? ag_ledger_rare(block) : NULL;
    uint64_t id = rare ? atomic_load_explicit(&rare->buffer_id, memory_order_relaxed) : 0;

    if (rare && !id) {
        id = ag_ledger_new_buffer_id();
        atomic_store_explicit(&rare->buffer_id, id, memory_order_relaxed);
    }
    ag_spin_release(&shards[i].lock);
    return id;
}

bool ag_ledger_look(CUdeviceptr base, struct ag_block_seen *ret_seen)
{
    unsigned i = lock_shard(base);
    struct ag_block *block = ag_map_get(&shards[i].map, base);

    if (block) {
        *ret_seen = (struct ag_block_seen){
            .address = block->address,
            .size = block->size,
            .requested = atomic_load_explicit(&block->requested, memory_order_relaxed),
            .context = block->context,
            .desc = block->desc,
            .placement = (enum ag_placement)block->placement,
            .export_number = ag_block_export_number(block),
            .private_pool = ag_block_private_pool(block),
            .guarded = ag_block_guarded(block),
            .slab = ag_block_slab(block),
            .cut_up = ag_block_cut_up(block),
            .sync_memops = (enum ag_sync_memops)block->sync_memops,
            .state = (enum ag_block_state)block->state,
        };
    }
    ag_spin_release(&shards[i].lock);
    return block != NULL;
}

struct ag_block *ag_ledger_claim_all(const struct ag_context *context)
{
    struct ag_block *all = NULL;

    for (unsigned i = 0; i < SHARDS; i++) {
        ag_spin_take(&shards[i].lock);
        for (size_t place = 0; place < shards[i].map.capacity; place++) {
            struct ag_block *block = shards[i].map.entries[place].value;

            if (!shards[i].map.entries[place].key || block->context != context)
                continue;
            block->next = all;
            all = block;
        }
        ag_spin_release(&shards[i].lock);
    }
    return all;
}

void ag_ledger_begin_child(void)
{
    ag_arena_begin_child(&arena);
    ag_arena_begin_child(&rare_arena);
    for (unsigned i = 0; i < SHARDS; i++) {
        ag_spin_init(&shards[i].lock, AG_RANK_LEDGER); /* its holder is the parent's */
        ag_map_finish(&shards[i].map);
        memset(shards[i].first, 0, sizeof(shards[i].first));
    }
    for (unsigned i = 0; i < PLACES; i++)
        atomic_store_explicit(&begun[i], 0, memory_order_relaxed);
    for (unsigned i = 0; i < REGIONS / 64; i++) {
        if (atomic_load_explicit(&regions[i], memory_order_relaxed)) /* so that pages stay unused */
            atomic_store_explicit(&regions[i], 0, memory_order_relaxed);
    }
}
