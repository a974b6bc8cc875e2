/* block.c: every piece of memory, from its allocation to the last operation that may touch it.
 *
 * The host and the streams see different lives. To the host a block lives from the return of the
 * allocating call to the freeing call; to the streams from the allocating operation to the freeing
 * one. Between the two views two blocks may share an address: the old one, buried but still in use
 * by earlier work, and the new one. */
#include "tests/sim/sim_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_REMEMBERED 1024
#define POISON       0xdb
#define POISON_FULLY (128u << 10)
#define POISON_EDGE  (64u << 10)

static struct {
    struct sim_block **live; /* sorted by base */
    size_t n_live, capacity;
    struct sim_block *zombies; /* newest first */
    size_t n_zombies;
    unsigned long long next_id;
} self;

/* Index of the first live block with base > address. */
static size_t above(uint64_t address)
{
    size_t low = 0, high = self.n_live;

    while (low < high) {
        size_t middle = (low + high) / 2;
        if (self.live[middle]->base <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct sim_block *sim_block_new(enum sim_block_kind kind, uint64_t base, size_t size, int device,
                                CUcontext ctx)
{
    struct sim_block *block = calloc(1, sizeof(*block));
    size_t i = above(base);

    if (self.n_live == self.capacity) {
        self.capacity = self.capacity ? self.capacity * 2 : 256;
        self.live = realloc(self.live, self.capacity * sizeof(*self.live));
    }
    if (!block || !self.live)
        abort();
    memmove(&self.live[i + 1], &self.live[i], (self.n_live - i) * sizeof(*self.live));
    self.live[i] = block;
    self.n_live++;
    block->kind = kind;
    block->base = base;
    block->size = block->taken = size;
    block->device = device;
    block->ctx = ctx;
    block->id = sim_memory_id();
    block->born_after = sim_last_op_id();
    return block;
}

unsigned long long sim_memory_id(void)
{
    return ++self.next_id;
}

struct sim_block *sim_block_at(uint64_t address)
{
    size_t i = above(address);

    if (!i || address - self.live[i - 1]->base >= self.live[i - 1]->size)
        return NULL;
    return self.live[i - 1];
}

struct sim_block *sim_block_starting_at(uint64_t address)
{
    size_t i = above(address);

    return i && self.live[i - 1]->base == address ? self.live[i - 1] : NULL;
}

struct sim_block *sim_block_overlapping(uint64_t address, size_t bytes)
{
    struct sim_block *block = sim_block_at(address);

    if (block)
        return block;
    block = sim_block_next(address);
    return block && block->base - address < bytes ? block : NULL;
}

struct sim_block *sim_block_next(uint64_t from)
{
    size_t i = from ? above(from - 1) : 0;

    return i < self.n_live ? self.live[i] : NULL;
}

static void forget_old_zombies(void)
{
    struct sim_block **link = &self.zombies;
    size_t kept = 0;

    self.n_zombies = 0;
    while (*link) {
        struct sim_block *block = *link;
        if (!block->dead || block->pins || kept++ < N_REMEMBERED) {
            self.n_zombies++;
            link = &block->next_zombie;
            continue;
        }
        *link = block->next_zombie;
        free(block->accesses);
        free(block);
    }
}

void sim_block_bury(struct sim_block *block, const char *how)
{
    size_t i = above(block->base) - 1;

    self.n_live--;
    memmove(&self.live[i], &self.live[i + 1], (self.n_live - i) * sizeof(*self.live));
    block->zombie = true;
    (void)snprintf(block->how_freed, sizeof(block->how_freed), "%s", how);
    block->next_zombie = self.zombies;
    self.zombies = block;
    if (++self.n_zombies > 2 * N_REMEMBERED)
        forget_old_zombies();
}

struct sim_block *sim_zombies(void)
{
    return self.zombies;
}

/* Large blocks are spoilt at both ends only. Each page that nothing else touched costs a fault:
 * filling blocks of up to 16 MiB was half of what random programs cost. */
static void poison(struct sim_block *block)
{
    if (block->size <= POISON_FULLY) {
        memset(block->bytes, POISON, block->size);
        return;
    }
    memset(block->bytes, POISON, POISON_EDGE);
    memset(block->bytes + block->size - POISON_EDGE, POISON, POISON_EDGE);
}

void sim_block_end(struct sim_block *block, const struct sim_order *order)
{
    if (block->dead)
        return;
    for (unsigned i = 0; i < block->n_accesses; i++) {
        const struct sim_access *access = &block->accesses[i];
        char what[160];

        if (sim_order_covers(order, access->stamp))
            continue;
        (void)snprintf(what, sizeof(what),
                       "memory freed although op %llu of stream %llu, which used it, is not "
                       "ordered before the free",
                       (unsigned long long)access->op_id, (unsigned long long)access->stream_id);
        sim_violation(sim_running, block->base, block->size, block, what);
    }
    block->dead = true;
    /* Registered, mapped and imported memory lives on in other hands. */
    if (block->kind != SIM_BLOCK_REGISTERED && block->kind != SIM_BLOCK_MAPPED &&
        block->kind != SIM_BLOCK_IMPORTED && !block->exported)
        poison(block);
}

void sim_block_describe(const struct sim_block *block, char *text, size_t bytes)
{
    static const char *const kinds[] = {"device memory",   "pool memory",       "managed memory",
                                        "pinned memory",   "registered memory", "mapped memory",
                                        "imported memory", "graph memory"};

    (void)snprintf(text, bytes, "%s 0x%llx, %zu bytes, device %d: allocated by %s; %s%s",
                   kinds[block->kind], (unsigned long long)block->base, block->size, block->device,
                   block->how_born, block->zombie ? "freed by " : "in use",
                   block->zombie ? block->how_freed : "");
}
