/* Private pools of captures: see private_pool.h.
 *
 * Memory that was freed in one capture is used again only from the next capture on. Within one
 * capture nothing but the edges of the graph orders its users, and a capture may have forked.
 * Graphs that share a pool are replayed in the order of their captures. */
#include "policy/backends/private_pool.h"

#include <stdlib.h>

#include "interpose/core/base/threads/lock.h"

struct pool {
    struct pool *next;
    uint64_t number;
    unsigned users;
    bool capturing;
    struct ag_block *free,
        *freed; /* before the capture that is open, or the next; since it began */
};

_Thread_local uint64_t ag_private_of_thread;

static struct ag_lock lock = AG_LOCK_INIT(AG_RANK_PRIVATE);
static struct pool *pools; /* under the lock, with all that is in them */

static struct pool *find_private_pool(uint64_t number)
{
    struct pool *pool = pools;

    while (pool && pool->number != number)
        pool = pool->next;
    return pool;
}

bool ag_private_hold(uint64_t number)
{
    struct pool *pool, *fresh = calloc(1, sizeof(*fresh));

    ag_lock_take(&lock);
    pool = find_private_pool(number);
    if (!pool && fresh) {
        pool = fresh;
        fresh = NULL;
        pool->number = number;
        pool->next = pools;
        pools = pool;
    }
    if (pool)
        pool->users++;
    ag_lock_release(&lock);
    free(fresh);
    return pool != NULL;
}

static void splice(struct ag_block **list, struct ag_block *blocks)
{
    while (blocks) {
        struct ag_block *block = blocks;

        blocks = block->next;
        block->next = *list;
        *list = block;
    }
}

struct ag_block *ag_private_let_go(uint64_t number)
{
    struct pool *pool, *ended = NULL;
    struct ag_block *blocks;

    ag_lock_take(&lock);
    pool = find_private_pool(number);
    if (pool && !--pool->users) {
        struct pool **link = &pools;

        while (*link != pool)
            link = &(*link)->next;
        *link = pool->next;
        ended = pool;
    }
    ag_lock_release(&lock);
    if (!ended)
        return NULL;
    splice(&ended->free, ended->freed);
    blocks = ended->free;
    free(ended);
    return blocks;
}

bool ag_private_begin(uint64_t number)
{
    struct pool *pool;
    bool begins;

    ag_lock_take(&lock);
    pool = find_private_pool(number);
    begins = pool && !pool->capturing;
    if (begins) {
        pool->capturing = true;
        splice(&pool->free, pool->freed);
        pool->freed = NULL;
    }
    ag_lock_release(&lock);
    if (begins)
        ag_private_of_thread = number;
    return begins;
}

void ag_private_end(void)
{
    struct pool *pool;

    ag_lock_take(&lock);
    pool = find_private_pool(ag_private_of_thread);
    if (pool)
        pool->capturing = false;
    ag_lock_release(&lock);
    ag_private_of_thread = 0;
}

struct ag_block *ag_private_take(const struct ag_context *context, size_t bytes)
{
    struct ag_block **best = NULL, *found = NULL;
    struct pool *pool;

    ag_lock_take(&lock);
    pool = find_private_pool(ag_private_of_thread);
    for (struct ag_block **at = pool ? &pool->free : NULL; at && *at; at = &(*at)->next) {
        if ((*at)->context == context && (*at)->size >= bytes && (*at)->size / 2 <= bytes &&
            (!best || (*at)->size < (*best)->size))
            best = at;
    }
    if (best) {
        found = *best;
        *best = found->next;
    }
    ag_lock_release(&lock);
    return found;
}

bool ag_private_adopt(struct ag_block *block)
{
    struct ag_block_rare *rare = ag_ledger_rare(block);

    if (rare)
        rare->private_pool = ag_private_of_thread;
    return rare != NULL;
}

bool ag_private_keep(struct ag_block *block)
{
    struct pool *pool;

    ag_lock_take(&lock);
    pool = find_private_pool(ag_block_private_pool(block));
    if (pool) {
        block->next = pool->freed;
        pool->freed = block;
    }
    ag_lock_release(&lock);
    return pool != NULL;
}

static void drop_blocks_of(struct ag_block **list, const struct ag_context *context)
{
    while (*list) {
        if ((*list)->context == context)
            *list = (*list)->next;
        else
            list = &(*list)->next;
    }
}

void ag_private_context_dying(const struct ag_context *context)
{
    ag_lock_take(&lock);
    for (struct pool *pool = pools; pool; pool = pool->next) {
        drop_blocks_of(&pool->free, context);
        drop_blocks_of(&pool->freed, context);
    }
    ag_lock_release(&lock);
}

void ag_private_begin_child(void)
{
    ag_lock_init(&lock, AG_RANK_PRIVATE);
    pools = NULL; /* the parent's: not worth the risk of freeing under its allocator's lock */
    ag_private_of_thread = 0;
}
