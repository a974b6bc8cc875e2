/* Sharded tables of blocks: see ledger.h. */
#include "ledger.h"

#include "base/arena.h"
#include "base/map.h"

#define SHARDS 64u
#define FIRST_BUFFER (1ull << 48) /* the driver counts from low numbers */

static struct {
    struct ag_lock lock; /* guards the map, and every state change from LIVE */
    struct ag_map map;
} shards[SHARDS] = {[0 ... SHARDS - 1] = {.lock = AG_LOCK_INIT(AG_RANK_LEDGER)}};

static struct ag_arena arena = AG_ARENA_INIT(struct ag_block);

/* Neighbouring allocations lie 512 B or more apart. */
static unsigned shard_of(CUdeviceptr address)
{
    return (unsigned)((address >> 9) * 0x9e3779b97f4a7c15u >> 58) % SHARDS;
}

static unsigned take(CUdeviceptr address)
{
    unsigned i = shard_of(address);

    ag_lock_take(&shards[i].lock);
    return i;
}

struct ag_block *ag_ledger_enter(CUdeviceptr address, size_t size, struct ag_context *context,
                                 enum ag_placement placement)
{
    struct ag_block *block = ag_arena_get(&arena);
    bool entered;
    unsigned i;

    if (!block)
        return NULL;
    block->address = address;
    block->size = size;
    block->context = context;
    block->placement = placement;
    i = take(address);
    entered = ag_map_put(&shards[i].map, address, block);
    ag_lock_release(&shards[i].lock);
    if (!entered) {
        ag_arena_put(&arena, block);
        return NULL;
    }
    return block;
}

void ag_ledger_give(struct ag_block *block, size_t requested)
{
    atomic_store_explicit(&block->requested, requested, memory_order_relaxed);
    atomic_store_explicit(&block->buffer_id, 0, memory_order_relaxed);
    atomic_store_explicit(&block->state, AG_BLOCK_LIVE, memory_order_release);
}

enum ag_claim ag_ledger_claim(CUdeviceptr address, struct ag_block **ret_block)
{
    unsigned i = take(address);
    struct ag_block *block = ag_map_get(&shards[i].map, address);
    int live = AG_BLOCK_LIVE;
    enum ag_claim claim = AG_CLAIM_UNKNOWN;

    if (block && atomic_compare_exchange_strong(&block->state, &live, AG_BLOCK_KEPT)) {
        *ret_block = block;
        claim = AG_CLAIM_OURS;
    } else if (block) {
        claim = AG_CLAIM_NOT_LIVE;
    }
    ag_lock_release(&shards[i].lock);
    return claim;
}

void ag_ledger_remove(struct ag_block *block)
{
    unsigned i = take(block->address);

    (void)ag_map_take(&shards[i].map, block->address);
    ag_lock_release(&shards[i].lock);
    ag_arena_put(&arena, block);
}

/* Given when somebody asks: few do, and a shared counter would cost every allocation. */
static uint64_t buffer_id(struct ag_block *block)
{
    static _Atomic uint64_t next_buffer = FIRST_BUFFER;
    uint64_t id = atomic_load_explicit(&block->buffer_id, memory_order_relaxed);

    if (!id) {
        id = atomic_fetch_add_explicit(&next_buffer, 1, memory_order_relaxed);
        atomic_store_explicit(&block->buffer_id, id, memory_order_relaxed);
    }
    return id;
}

bool ag_ledger_look(CUdeviceptr base, struct ag_block *ret_copy)
{
    unsigned i = take(base);
    struct ag_block *block = ag_map_get(&shards[i].map, base);

    if (block) {
        *ret_copy = (struct ag_block){
            .address = block->address,
            .size = block->size,
            .requested = atomic_load_explicit(&block->requested, memory_order_relaxed),
            .context = block->context,
            .placement = block->placement,
            .buffer_id = buffer_id(block),
            .state = atomic_load_explicit(&block->state, memory_order_acquire),
        };
    }
    ag_lock_release(&shards[i].lock);
    return block != NULL;
}

struct ag_block *ag_ledger_claim_all(const struct ag_context *context)
{
    struct ag_block *all = NULL;

    for (unsigned i = 0; i < SHARDS; i++) {
        ag_lock_take(&shards[i].lock);
        for (size_t place = 0; place < shards[i].map.capacity; place++) {
            struct ag_block *block = shards[i].map.entries[place].value;

            if (!shards[i].map.entries[place].key || block->context != context)
                continue;
            block->next = all;
            all = block;
        }
        ag_lock_release(&shards[i].lock);
    }
    return all;
}

void ag_ledger_forget_all(void)
{
    for (unsigned i = 0; i < SHARDS; i++)
        ag_map_finish(&shards[i].map);
}
