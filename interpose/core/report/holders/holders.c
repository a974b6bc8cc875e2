/* Counts who holds memory: see holders.h.
 *
 * What is live is counted for each stack, and what a stack held at the peak is a copy of that. The
 * copy is made when memory is freed and there had been more of it than at the last copy, by one
 * part in PEAK_STEP: as long as memory only grows, none is needed, and whoever reads the tables
 * takes what is live. So a copy is at most 1 % below the peak, as Valgrind's massif has it
 * (--peak-inaccuracy), and growth by a factor of two costs 70 copies of some microseconds. */
#include "interpose/core/report/holders/holders.h"

#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "interpose/core/base/arena.h"
#include "interpose/core/base/hash.h"
#include "interpose/core/base/log.h"
#include "interpose/core/base/map.h"
#include "interpose/core/base/pages.h"
#include "interpose/core/base/raise.h"
#include "interpose/core/report/counters_file.h"
#include "interpose/core/report/deliver.h"
#include "interpose/core/report/holders/own_names.h"
#include "interpose/core/report/holders/sampling.h"
#include "interpose/core/report/holders/stacks.h"

#define SHARDS    64u
#define PEAK_STEP 100u

_Atomic unsigned ag_holders_active;

struct shard {
    _Alignas(64) struct ag_lock lock; /* guards the map */
    struct ag_map blocks;             /* address -> struct ag_held_block */
};

#define WAIT_FRAMES 16u /* of stacks that only waits are asked for by */

static struct {
    unsigned most;
    bool waits; /* asked for */
    struct ag_holders *tables;
    struct ag_lock copying; /* guards every copy of what is live */
    struct ag_arena arena;
    struct shard shards[SHARDS];
} held = {.copying = AG_LOCK_INIT(AG_RANK_HELD), .arena = AG_ARENA_INIT(struct ag_held_block)};

static struct shard *shard_of_block(uint64_t address)
{
    return &held.shards[ag_hash_spread(address) >> 58];
}
_Static_assert(SHARDS == 1u << (64 - 58), "by the upper bits");

/* --- counts --- */

/* Relaxed, as all counters; what is kept of a block is under its shard's lock. */
static void count_block(struct ag_held *sum, const struct ag_held_block *block, bool more)
{
    double weight = ag_sampling_weight(block->bytes);
    uint64_t bytes = (uint64_t)((double)block->bytes * weight + .5);
    uint64_t blocks = (uint64_t)(AG_HOLDERS_ONE * weight + .5);

    atomic_fetch_add_explicit(&sum->bytes, more ? bytes : -bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&sum->blocks, more ? blocks : -blocks, memory_order_relaxed);
}

static struct ag_held_stack *stack_of(const struct ag_held_block *block)
{
    return &held.tables->stacks[block->stack];
}

static struct ag_held_group *group_of_stack(const struct ag_held_stack *stack)
{
    return &held.tables->groups[ag_held_group((enum ag_held_kind)stack->kind, stack->device)];
}

static void count_group(const struct ag_held_block *block, bool more)
{
    struct ag_held_group *group = group_of_stack(stack_of(block));
    uint64_t bytes = (uint64_t)((double)block->bytes * ag_sampling_weight(block->bytes) + .5);
    uint64_t now =
        atomic_fetch_add_explicit(&group->live, more ? bytes : -bytes, memory_order_relaxed);

    if (more)
        ag_raise_to(&group->most, now + bytes);
}

static void count_live(const struct ag_held_block *block, bool more)
{
    count_block(&stack_of(block)->held[AG_HELD_LIVE], block, more);
    count_group(block, more);
}

/* Before memory is freed: was there more than ever? */
static void note_peak(struct ag_held_group *group)
{
    uint64_t live = atomic_load_explicit(&group->live, memory_order_relaxed);
    uint64_t last = atomic_load_explicit(&group->at_peak, memory_order_relaxed);

    if (live <= last + last / PEAK_STEP || !ag_lock_try(&held.copying))
        return;
    ag_holders_copy(held.tables, (unsigned)(group - held.tables->groups), AG_HELD_PEAK);
    ag_lock_release(&held.copying);
}

/* --- blocks --- */

static bool enter_block(uint64_t address, const struct ag_held_block *block)
{
    struct ag_held_block *entry = ag_arena_get(&held.arena), *before;
    struct shard *shard = shard_of_block(address);
    bool good;

    if (!entry)
        return false;
    *entry = *block;
    ag_lock_take(&shard->lock);
    before = ag_map_get(&shard->blocks, address);
    good = ag_map_put(&shard->blocks, address, entry);
    ag_lock_release(&shard->lock);
    if (!good)
        ag_arena_put(&held.arena, entry);
    else if (before) { /* it was freed past us */
        count_live(before, false);
        ag_arena_put(&held.arena, before);
    }
    return good;
}

uint32_t ag_holders_add(enum ag_held_kind kind, uint64_t address, uint64_t bytes, const void *owner,
                        int device)
{
    struct ag_held_block block = {.bytes = bytes, .owner = owner};

    if (!address || !bytes || !ag_sampling_takes(bytes))
        return AG_HOLDERS_STACKS;
    block.stack = ag_stacks_take(kind, device);
    if (block.stack == AG_HOLDERS_STACKS || !enter_block(address, &block)) {
        atomic_fetch_add_explicit(&held.tables->lost, 1, memory_order_relaxed);
        return AG_HOLDERS_STACKS;
    }
    count_block(&stack_of(&block)->held[AG_HELD_EVER], &block, true);
    count_live(&block, true);
    return block.stack;
}

static struct ag_held_block *remove_block(uint64_t address)
{
    struct shard *shard = shard_of_block(address);
    struct ag_held_block *block;

    ag_lock_take(&shard->lock);
    block = ag_map_take(&shard->blocks, address);
    ag_lock_release(&shard->lock);
    return block;
}

bool ag_holders_take(uint64_t address, struct ag_held_block *ret)
{
    struct ag_held_block *block = address ? remove_block(address) : NULL;

    if (!block)
        return false;
    *ret = *block;
    ag_arena_put(&held.arena, block);
    note_peak(group_of_stack(stack_of(ret)));
    count_live(ret, false);
    return true;
}

void ag_holders_put_back(uint64_t address, const struct ag_held_block *block)
{
    if (enter_block(address, block))
        count_live(block, true);
}

void ag_holders_moved(uint32_t row, uint64_t block_bytes, enum ag_held_move what, uint64_t bytes)
{
    double counted = (double)bytes * ag_sampling_weight(block_bytes);

    atomic_fetch_add_explicit(&held.tables->stacks[row].moved[what], (uint64_t)(counted + .5),
                              memory_order_relaxed);
}

/* --- the end of contexts --- */

static bool goes_with(const struct ag_held_block *block, const void *owner, int device)
{
    const struct ag_held_stack *stack = stack_of(block);

    return (owner && block->owner == owner) ||
           (stack->kind == AG_HELD_POOL && stack->device == device && device >= 0);
}

/* One block of the shard that goes; NULL when there is none. */
static struct ag_held_block *take_one(struct shard *shard, const void *owner, int device)
{
    struct ag_held_block *block = NULL;

    ag_lock_take(&shard->lock);
    for (size_t i = 0; i < shard->blocks.capacity && !block; i++) {
        const struct ag_map_entry *entry = &shard->blocks.entries[i];

        if (entry->key && goes_with(entry->value, owner, device))
            block = ag_map_take(&shard->blocks, entry->key);
    }
    ag_lock_release(&shard->lock);
    return block;
}

void ag_holders_ended(const void *owner, int device)
{
    struct ag_held_block *block;

    for (unsigned i = 0; i < SHARDS; i++) {
        while ((block = take_one(&held.shards[i], owner, device))) {
            note_peak(group_of_stack(stack_of(block)));
            count_live(block, false);
            count_block(&stack_of(block)->held[AG_HELD_ENDED], block, true);
            ag_arena_put(&held.arena, block);
        }
    }
}

/* --- failures --- */

/* A thread that is cancelled while it writes would never leave its hook. */
static void say_on_stderr(struct ag_text *text)
{
    char why[128];
    int cancel_state;

    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    if (text->length)
        (void)ag_deliver_to_stderr(text, why, sizeof(why));
    (void)pthread_setcancelstate(cancel_state, NULL);
    ag_text_finish(text);
}

void ag_holders_failed(const struct ag_held_failure *failure)
{
    struct ag_held_failure *last = &held.tables->failure;
    uint64_t n = atomic_fetch_add_explicit(&last->n, 1, memory_order_relaxed) + 1;
    struct ag_text text = {0};

    if (!ag_lock_try(&held.copying)) /* another thread tells the same */
        return;
    ag_holders_copy(held.tables, ag_held_group((enum ag_held_kind)failure->kind, failure->device),
                    AG_HELD_FAILED);
    memcpy(&last->bytes, &failure->bytes, sizeof(*last) - offsetof(struct ag_held_failure, bytes));
    if (!(n & (n - 1)) && ag_log_shows(AG_LOG_WARN))
        ag_render_failure_text(&text, "allograft: ", held.tables, ag_own_names, NULL);
    ag_lock_release(&held.copying);
    say_on_stderr(&text);
}

/* --- beginning --- */

void ag_holders_configure(unsigned most, uint64_t sample_bytes, bool waits)
{
    held.most = most;
    held.waits = waits;
    ag_sampling_configure(sample_bytes);
}

bool ag_holders_wanted(void)
{
    return held.most != 0 || held.waits;
}

static void init_locks(void)
{
    ag_lock_init(&held.copying, AG_RANK_HELD);
    for (unsigned i = 0; i < SHARDS; i++)
        ag_lock_init(&held.shards[i].lock, AG_RANK_HELD);
}

void ag_holders_begin(void)
{
    struct ag_holders *tables = ag_record_extend(sizeof(*tables));

    if (!tables)
        tables = ag_pages_get(sizeof(*tables));
    if (!tables || !ag_stacks_begin(tables, held.most ? held.most : WAIT_FRAMES)) {
        ag_log_error("no memory for stacks: none are taken");
        return;
    }
    init_locks();
    memcpy(tables->magic, AG_HOLDERS_MAGIC, sizeof(AG_HOLDERS_MAGIC));
    tables->bytes = sizeof(*tables);
    tables->most_frames = held.most;
    tables->sample_bytes = ag_sampling_mean();
    held.tables = tables;
    atomic_store_explicit(&ag_holders_active, held.most ? AG_HOLDERS_OF_MEMORY : 0,
                          memory_order_release);
}

struct ag_holders *ag_holders_for_waits(void)
{
    return held.waits ? held.tables : NULL;
}

/* The blocks are the parent's. */
void ag_holders_begin_child(void)
{
    atomic_store(&ag_holders_active, 0);
    held.tables = NULL;
    ag_arena_begin_child(&held.arena);
    for (unsigned i = 0; i < SHARDS; i++)
        ag_map_finish(&held.shards[i].blocks);
    init_locks();
    ag_stacks_begin_child();
}

const struct ag_holders *ag_holders_complete_now(void)
{
    if (!ag_holders_any(AG_HOLDERS_OF_MEMORY | AG_HOLDERS_OF_WAITS))
        return NULL;
    if (ag_lock_try(&held.copying)) { /* else another thread may never give it back */
        ag_holders_complete(held.tables);
        ag_lock_release(&held.copying);
    }
    return held.tables;
}
