/* pool.c: stream-ordered pools: what is reserved, what may be reused by whom, what goes back.
 *
 * A pool owns chunks of device memory, side by side in ranges of addresses, so that blocks lie
 * across chunks. What is not handed out lies in holes. A hole remembers the frees that made it;
 * another stream may have it when the pool's reuse attributes say so: its own frees always, frees
 * its work is ordered behind (FOLLOW_EVENT_DEPENDENCIES), frees that have run (OPPORTUNISTIC), any
 * free, by waiting for it (INTERNAL_DEPENDENCIES). */
#include "tests/sim/sim_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define UNIT         512u
#define CHUNK_UNIT   ((size_t)32 << 20)
#define SMALL_UNIT   ((size_t)2 << 20)
#define MAX_FREES    4
#define HANDLE_TYPES ((unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)

struct chunk {
    uint64_t base, bytes;
    struct sim_residency *residency; /* of a managed pool */
    struct chunk *next;
};

/* Addresses that chunks may come to, from `top` on: not where chunks were before (R716). A managed
 * chunk has its own. */
struct range {
    uint64_t base, bytes, top;
    struct range *next;
};

struct hole {
    uint64_t base, bytes;
    struct sim_op *frees[MAX_FREES]; /* referenced */
    unsigned n_frees;
    struct hole *next; /* by address within the list */
};

struct CUmemPoolHandle_st {
    int device;
    bool destroyed, managed, exported;
    int import_fd;     /* -1: a pool of this process */
    int64_t import_of; /* which pool of which process */
    CUmemPoolProps props;
    bool follow, opportunistic, internal;
    cuuint64_t threshold, reserved, reserved_high, used, used_high;
    unsigned open_mask;
    struct range *ranges;
    struct chunk *chunks;
    struct hole *holes;
    CUmemoryPool next;
};

static CUmemoryPool pools;
/* What the host has waited for: it knows more that has run, by queries, and pools do not (R717). */
static struct sim_order waited;

static struct chunk *chunk_of(CUmemoryPool pool, uint64_t address)
{
    for (struct chunk *chunk = pool->chunks; chunk; chunk = chunk->next)
        if (address >= chunk->base && address - chunk->base < chunk->bytes)
            return chunk;
    return NULL;
}

/* ---- life of a pool ---- */

CUmemoryPool sim_pool_new(int device, const CUmemPoolProps *props)
{
    CUmemoryPool pool = sim_handle_new(SIM_POOL, sizeof(*pool));

    pool->device = device;
    pool->props = *props;
    pool->managed = props->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED;
    pool->follow = pool->opportunistic = pool->internal = true;
    pool->open_mask = 1u << device;
    pool->import_fd = -1;
    pool->next = pools;
    pools = pool;
    return pool;
}

bool sim_pool_ok(CUmemoryPool pool)
{
    return sim_handle_is(pool, SIM_POOL) && !pool->destroyed;
}

bool sim_pool_open_to(CUmemoryPool pool, int device)
{
    return pool->managed || pool->open_mask >> device & 1;
}

int sim_pool_device(CUmemoryPool pool)
{
    return pool->device;
}

bool sim_pool_managed(CUmemoryPool pool)
{
    return pool->managed;
}

struct sim_residency *sim_pool_residency(const struct sim_block *block)
{
    return block->pool->managed ? chunk_of(block->pool, block->base)->residency : NULL;
}

int sim_pool_import(CUmemoryPool pool)
{
    return pool->import_fd;
}

void sim_pool_set_import(CUmemoryPool pool, int fd, int64_t of)
{
    pool->import_fd = fd;
    pool->import_of = of;
}

CUmemoryPool sim_pool_imported(int64_t of)
{
    for (CUmemoryPool pool = pools; pool; pool = pool->next)
        if (!pool->destroyed && pool->import_fd >= 0 && pool->import_of == of)
            return pool;
    return NULL;
}

int64_t sim_pool_number(CUmemoryPool pool)
{
    int64_t number = 0;

    for (; pool; pool = pool->next)
        number++;
    return number;
}

bool *sim_pool_exported(CUmemoryPool pool)
{
    return &pool->exported;
}

unsigned sim_pool_handle_types(CUmemoryPool pool)
{
    return (unsigned)pool->props.handleTypes;
}

static void add_reserved(CUmemoryPool pool, size_t bytes)
{
    pool->reserved += bytes;
    pool->reserved_high = SIM_MAX(pool->reserved_high, pool->reserved);
}

static void add_used(CUmemoryPool pool, size_t bytes)
{
    pool->used += bytes;
    pool->used_high = SIM_MAX(pool->used_high, pool->used);
}

/* The chunks that a block lies in: what a mapping of the driver's would be. */
void sim_pool_mapping(const struct sim_block *block, uint64_t *ret_base, size_t *ret_bytes)
{
    const struct chunk *chunk = chunk_of(block->pool, block->base);
    uint64_t end = chunk->base + chunk->bytes;

    while (end < block->base + block->size)
        end += chunk_of(block->pool, end)->bytes;
    *ret_base = chunk->base;
    *ret_bytes = end - chunk->base;
}

/* ---- holes ---- */

static bool all_done(const struct hole *hole)
{
    for (unsigned i = 0; i < hole->n_frees; i++)
        if (hole->frees[i]->state != SIM_OP_DONE)
            return false;
    return true;
}

/* Only then does what is there go back by a trim, or a wait. */
static bool all_waited(const struct hole *hole)
{
    for (unsigned i = 0; i < hole->n_frees; i++)
        if (!sim_order_covers(&waited, hole->frees[i]->stamp))
            return false;
    return true;
}

static void drop_frees(struct hole *hole)
{
    for (unsigned i = 0; i < hole->n_frees; i++)
        sim_op_unref(hole->frees[i]);
    hole->n_frees = 0;
}

static void add_hole(CUmemoryPool pool, uint64_t base, uint64_t bytes, struct sim_op *const *frees,
                     unsigned n_frees)
{
    struct hole *hole = calloc(1, sizeof(*hole)), **link = &pool->holes;

    if (!hole)
        abort();
    hole->base = base;
    hole->bytes = bytes;
    hole->n_frees = n_frees;
    for (unsigned i = 0; i < n_frees; i++)
        hole->frees[i] = sim_op_ref(frees[i]);
    while (*link && (*link)->base < base)
        link = &(*link)->next;
    hole->next = *link;
    *link = hole;
}

static void remove_hole(struct hole **link)
{
    struct hole *hole = *link;

    *link = hole->next;
    drop_frees(hole);
    free(hole);
}

/* Do they lie side by side, where a block may lie across both? */
static bool adjacent(CUmemoryPool pool, const struct hole *hole, const struct hole *next)
{
    return next && hole->base + hole->bytes == next->base &&
           (!pool->managed || chunk_of(pool, hole->base) == chunk_of(pool, next->base));
}

/* Joins neighbours, where the frees behind them can be remembered together. */
static void join_holes(CUmemoryPool pool)
{
    for (struct hole *hole = pool->holes; hole; hole = hole->next) {
        /* What was waited for needs no memory of itself where its having run suffices for reuse. */
        if (pool->opportunistic && all_waited(hole))
            drop_frees(hole);
        while (adjacent(pool, hole, hole->next)) {
            struct hole *next = hole->next;
            if (pool->opportunistic && all_waited(next))
                drop_frees(next);
            if (!hole->n_frees != !next->n_frees || hole->n_frees + next->n_frees > MAX_FREES)
                break;
            for (unsigned i = 0; i < next->n_frees; i++)
                hole->frees[hole->n_frees++] = sim_op_ref(next->frees[i]);
            hole->bytes += next->bytes;
            remove_hole(&hole->next);
        }
    }
}

/* May an allocation on the stream have the hole? Adds what it must wait for to *waits. */
static bool reusable(CUmemoryPool pool, const struct hole *hole, CUstream stream,
                     const struct sim_order *order, struct sim_ops *waits)
{
    for (unsigned i = 0; i < hole->n_frees; i++) {
        struct sim_op *op = hole->frees[i];
        if (op->stamp.slot == stream->slot)
            continue;
        if (pool->follow && sim_order_covers(order, op->stamp))
            continue;
        if (pool->opportunistic && op->state == SIM_OP_DONE)
            continue;
        if (!pool->internal)
            return false;
        sim_ops_add(waits, op);
    }
    return true;
}

/* ---- growing and giving back ---- */

static size_t round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

static void add_chunk(CUmemoryPool pool, uint64_t base, size_t bytes,
                      struct sim_residency *residency)
{
    struct chunk *chunk = calloc(1, sizeof(*chunk));

    if (!chunk)
        abort();
    *chunk = (struct chunk){base, bytes, residency, pool->chunks};
    pool->chunks = chunk;
    add_reserved(pool, bytes);
}

static bool has_chunk(CUmemoryPool pool, const struct range *range)
{
    for (const struct chunk *chunk = pool->chunks; chunk; chunk = chunk->next)
        if (chunk->base >= range->base && chunk->base - range->base < range->bytes)
            return true;
    return false;
}

static void drop_empty_ranges(CUmemoryPool pool)
{
    for (struct range **link = &pool->ranges; *link;) {
        struct range *range = *link;
        if (has_chunk(pool, range)) {
            link = &range->next;
            continue;
        }
        sim_arena_give(pool->device, range->base, range->bytes);
        *link = range->next;
        free(range);
    }
}

/* Addresses for all that the card holds, or for as much as there are. */
static struct range *new_range(CUmemoryPool pool, size_t need)
{
    size_t least = round_up(need, CHUNK_UNIT);
    size_t bytes = SIM_MAX(least, round_up(sim_settings()->memory_bytes, CHUNK_UNIT));
    uint64_t base;
    struct range *range;

    while (!(base = sim_arena_take(pool->device, bytes, SMALL_UNIT)) && bytes > least)
        bytes = SIM_MAX(least, round_up(bytes / 2, CHUNK_UNIT));
    if (!base)
        return NULL;
    range = calloc(1, sizeof(*range));
    if (!range)
        abort();
    *range = (struct range){base, bytes, base, pool->ranges};
    pool->ranges = range;
    return range;
}

/* The bytes right before an address that an allocation on the stream may have. */
static size_t usable_before(CUmemoryPool pool, uint64_t end, CUstream stream)
{
    const struct hole *hole = pool->holes;
    struct sim_order order = {0};
    uint64_t reached = 0, bytes = 0;

    sim_order_of_next(stream, &order);
    for (; hole && hole->base < end; hole = hole->next) {
        struct sim_ops waits = {0};
        bool ok = reusable(pool, hole, stream, &order, &waits);
        bytes = !ok ? 0 : hole->base == reached ? bytes + hole->bytes : hole->bytes;
        reached = hole->base + hole->bytes;
        sim_ops_finish(&waits);
    }
    sim_order_finish(&order);
    return reached == end ? bytes : 0;
}

struct place {
    struct range *range;
    size_t bytes;
};

/* Where the pool can grow so that there is room for `need` with what lies before: in this range
 * rather than at the place found so far, if that takes less. */
static void consider(CUmemoryPool pool, struct range *range, size_t need, size_t unit,
                     CUstream stream, struct place *place)
{
    size_t before = usable_before(pool, range->top, stream);
    size_t bytes = round_up(need > before ? need - before : 1, unit);

    if (bytes <= range->base + range->bytes - range->top && (!place->range || bytes < place->bytes))
        *place = (struct place){range, bytes};
}

static bool find_place(CUmemoryPool pool, size_t need, size_t unit, CUstream stream,
                       struct place *ret_place)
{
    struct range *fresh;

    *ret_place = (struct place){0};
    for (struct range *range = pool->ranges; range; range = range->next)
        consider(pool, range, need, unit, stream, ret_place);
    if (!ret_place->range && (fresh = new_range(pool, need)))
        consider(pool, fresh, need, unit, stream, ret_place);
    return ret_place->range != NULL;
}

static bool is_too_much(CUmemoryPool pool, size_t bytes)
{
    return pool->props.maxSize && pool->reserved + bytes > pool->props.maxSize;
}

/* What makes room on the card may be memory of this very pool: the place is looked for again. */
static bool claim(CUmemoryPool pool, size_t need, size_t unit, CUstream stream,
                  struct place *ret_place)
{
    if (!find_place(pool, need, unit, stream, ret_place) || is_too_much(pool, ret_place->bytes))
        return false;
    if (sim_card_take(pool->device, ret_place->bytes))
        return true;
    if (!sim_card_claim(pool->device, ret_place->bytes))
        return false;
    sim_card_give(pool->device, ret_place->bytes);
    return find_place(pool, need, unit, stream, ret_place) &&
           !is_too_much(pool, ret_place->bytes) && sim_card_take(pool->device, ret_place->bytes);
}

/* Large steps, and smaller ones when the card or the pool's limit has no room for those. */
static CUresult grow_device(CUmemoryPool pool, size_t need, CUstream stream)
{
    static const size_t units[] = {CHUNK_UNIT, SMALL_UNIT};
    struct place place;

    for (size_t i = 0; i < SIM_COUNT(units); i++) {
        if (!claim(pool, need, units[i], stream, &place))
            continue;
        uint64_t base = place.range->top;
        for (size_t at = 0; at < place.bytes; at += units[i])
            add_chunk(pool, base + at, units[i], NULL);
        add_hole(pool, base, place.bytes, NULL, 0);
        place.range->top += place.bytes;
        return CUDA_SUCCESS;
    }
    drop_empty_ranges(pool);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Managed chunks lie where the pool does from the beginning, as far as there is room. */
static struct sim_residency *residency_for(CUmemoryPool pool, uint64_t base, size_t bytes)
{
    struct sim_residency *residency = sim_residency_new(base, bytes);
    size_t n;
    struct sim_page *pages = sim_residency_pages(residency, base, bytes, &n);

    for (size_t i = 0; i < n; i++)
        pages[i].preferred = pool->props.location;
    sim_residency_move(residency, base, bytes, pool->props.location);
    return residency;
}

static CUresult grow_managed(CUmemoryPool pool, size_t need)
{
    size_t bytes = round_up(need, CHUNK_UNIT);
    void *p;

    if (is_too_much(pool, bytes))
        bytes = round_up(need, SMALL_UNIT);
    p = is_too_much(pool, bytes) ? MAP_FAILED
                                 : mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    add_chunk(pool, (uintptr_t)p, bytes, residency_for(pool, (uintptr_t)p, bytes));
    add_hole(pool, (uintptr_t)p, bytes, NULL, 0);
    return CUDA_SUCCESS;
}

static CUresult grow(CUmemoryPool pool, size_t need, CUstream stream)
{
    if (need > (size_t)1 << 47)
        return CUDA_ERROR_OUT_OF_MEMORY;
    return pool->managed ? grow_managed(pool, need) : grow_device(pool, need, stream);
}

static uint64_t end_of(const struct hole *hole)
{
    return hole->base + hole->bytes;
}

/* The bytes of a hole that lie in the chunk. */
static uint64_t overlap(const struct hole *hole, const struct chunk *chunk)
{
    uint64_t from = SIM_MAX(hole->base, chunk->base), end = chunk->base + chunk->bytes;

    end = end_of(hole) < end ? end_of(hole) : end;
    return end > from ? end - from : 0;
}

static bool chunk_free(CUmemoryPool pool, const struct chunk *chunk,
                       bool (*is_free)(const struct hole *))
{
    uint64_t bytes = 0;

    for (const struct hole *hole = pool->holes; hole; hole = hole->next)
        if (is_free(hole))
            bytes += overlap(hole, chunk);
    return bytes == chunk->bytes;
}

/* What lies in holes beside the chunk stays. */
static void cut_chunk(CUmemoryPool pool, const struct chunk *chunk)
{
    uint64_t chunk_end = chunk->base + chunk->bytes;

    for (struct hole **link = &pool->holes; *link;) {
        struct hole *hole = *link;
        if (!overlap(hole, chunk)) {
            link = &hole->next;
            continue;
        }
        if (end_of(hole) > chunk_end)
            add_hole(pool, chunk_end, end_of(hole) - chunk_end, hole->frees, hole->n_frees);
        if (hole->base < chunk->base)
            hole->bytes = chunk->base - hole->base;
        else
            remove_hole(link);
    }
}

static void release_chunk(CUmemoryPool pool, struct chunk **link)
{
    struct chunk *chunk = *link;

    cut_chunk(pool, chunk);
    pool->reserved -= chunk->bytes;
    if (pool->managed) {
        sim_residency_give_back(chunk->residency, pool->device);
        sim_residency_delete(chunk->residency);
        (void)munmap((void *)(uintptr_t)chunk->base, chunk->bytes);
    } else {
        sim_arena_zero(pool->device, chunk->base, chunk->bytes);
        sim_card_give(pool->device, chunk->bytes);
    }
    *link = chunk->next;
    free(chunk);
}

/* Gives whole free chunks back until no more than keep bytes are reserved. */
static bool release(CUmemoryPool pool, cuuint64_t keep, bool (*is_free)(const struct hole *))
{
    bool any = false;

    for (struct chunk **link = &pool->chunks; *link && pool->reserved > keep;) {
        if (chunk_free(pool, *link, is_free)) {
            release_chunk(pool, link);
            any = true;
        } else {
            link = &(*link)->next;
        }
    }
    if (any)
        drop_empty_ranges(pool);
    return any;
}

void sim_pools_waited(const struct sim_order *order)
{
    sim_order_join(&waited, order);
}

void sim_pools_synchronised(void)
{
    for (CUmemoryPool pool = pools; pool; pool = pool->next)
        if (pool->reserved > (pool->destroyed ? 0 : pool->threshold))
            (void)release(pool, pool->destroyed ? 0 : pool->threshold, all_waited);
}

/* For want of memory the driver looks itself at what has run. */
bool sim_pools_squeeze(int device)
{
    bool any = false;

    for (CUmemoryPool pool = pools; pool; pool = pool->next)
        if (pool->device == device && !pool->managed)
            any |= release(pool, 0, all_done);
    return any;
}

/* ---- allocating ---- */

/* Do holes side by side, from this one on, have room for an allocation on the stream? Adds what it
 * must wait for. */
static bool has_room(CUmemoryPool pool, const struct hole *hole, size_t need, CUstream stream,
                     const struct sim_order *order, struct sim_ops *waits)
{
    uint64_t bytes = 0;

    for (; reusable(pool, hole, stream, order, waits); hole = hole->next) {
        bytes += hole->bytes;
        if (bytes >= need)
            return true;
        if (!adjacent(pool, hole, hole->next))
            break;
    }
    return false;
}

/* Any of them; but one that was freed before rather than a fresh one. */
static struct hole **choose(CUmemoryPool pool, size_t need, CUstream stream, struct sim_ops *waits)
{
    struct sim_order order = {0};
    struct hole **best = NULL;
    bool best_is_used = false;
    uint32_t n = 0;

    sim_order_of_next(stream, &order);
    for (struct hole **link = &pool->holes; *link; link = &(*link)->next) {
        struct sim_ops need_waits = {0};
        bool ok = has_room(pool, *link, need, stream, &order, &need_waits);
        bool is_used = (*link)->n_frees > 0;
        ok &= is_used || !best_is_used;
        if (ok && is_used != best_is_used)
            n = 0;
        if (ok && sim_random(++n) == 0) {
            best = link;
            best_is_used = is_used;
            sim_ops_finish(waits);
            *waits = need_waits;
        } else {
            sim_ops_finish(&need_waits);
        }
    }
    sim_order_finish(&order);
    return best;
}

/* Of the hole, and of as many behind it as it takes. */
static uint64_t cut(CUmemoryPool pool, struct hole **link, size_t need)
{
    uint64_t base = (*link)->base, end = base + need;

    while (*link && (*link)->base < end) {
        struct hole *hole = *link;
        /* The rest lies behind the hole in the list, so link still points to the hole. */
        if (end_of(hole) > end)
            add_hole(pool, end, end_of(hole) - end, hole->frees, hole->n_frees);
        remove_hole(link);
    }
    return base;
}

static CUresult alloc(CUmemoryPool pool, size_t bytes, CUstream stream,
                      struct sim_block **ret_block)
{
    struct sim_ops waits = {0};
    size_t need = (SIM_MAX(bytes, 1u) + UNIT - 1) / UNIT * UNIT;

    if (need < bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    join_holes(pool);
    struct hole **link = choose(pool, need, stream, &waits);
    if (!link) {
        CUresult result = grow(pool, need, stream);
        if (result == CUDA_SUCCESS)
            link = choose(pool, need, stream, &waits);
        if (!link)
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    uint64_t base = cut(pool, link, need);
    struct sim_block *block =
        sim_block_new(SIM_BLOCK_POOL, base, SIM_MAX(bytes, 1u), pool->device, stream->ctx);
    block->pool = pool;
    block->taken = need;
    block->bytes =
        pool->managed ? (unsigned char *)(uintptr_t)base : sim_arena_bytes(pool->device, base);
    block->born_async = true;
    block->pins = 1;
    add_used(pool, block->size);
    struct sim_work work = {.kind = SIM_WORK_ALLOC, .u.block = block};
    struct sim_op *op;
    uint64_t stream_id = stream->id;
    sim_enqueue(stream, &work, &waits, &op);
    block->born_at = op->stamp;
    (void)snprintf(block->how_born, sizeof(block->how_born), "op %llu of stream %llu",
                   (unsigned long long)op->id, (unsigned long long)stream_id);
    sim_op_unref(op);
    sim_ops_finish(&waits);
    *ret_block = block;
    return CUDA_SUCCESS;
}

static CUresult alloc_call(CUcontext ctx, CUdeviceptr *ret_p, size_t bytes, CUmemoryPool pool,
                           CUstream handle)
{
    struct sim_block *block;
    CUstream stream;
    CUresult result = sim_stream_find(ctx, handle, &stream);

    if (result != CUDA_SUCCESS)
        return result;
    if (!ret_p || !sim_pool_ok(pool) || pool->import_fd >= 0)
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_capture_check_legacy(stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (stream->capture)
        return sim_capture_alloc(stream, ret_p, bytes, pool);
    result = sim_capture_check(ctx, SIM_CAPTURE_UNSAFE);
    if (result == CUDA_SUCCESS)
        result = alloc(pool, bytes, stream, &block);
    if (result != CUDA_SUCCESS)
        return result;
    if (stream->kind == SIM_STREAM_LEGACY)
        sim_stream_pool_on_legacy();
    *ret_p = block->base;
    return CUDA_SUCCESS;
}

CUresult cuMemAllocAsync(CUdeviceptr *p, size_t bytes, CUstream stream)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    CUstream found;
    CUmemoryPool pool = NULL;

    /* The current pool of the stream's device, whatever context is current. */
    if (sim_stream_find(call.ctx, stream, &found) == CUDA_SUCCESS)
        pool = *sim_device_current_pool(found->ctx->device);
    return alloc_call(call.ctx, p, bytes, pool, stream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *p, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    return alloc_call(call.ctx, p, bytes, pool, stream);
}

/* ---- freeing ---- */

void sim_block_freed_in_order(struct sim_block *block)
{
    const struct sim_op *op = sim_running;

    if (block->born_async && (!block->born || !sim_order_covers(&op->order, block->born_at)))
        sim_violation(op, block->base, block->size, block,
                      "memory freed by work that is not ordered behind its allocation");
    sim_block_end(block, &op->order);
    block->pins--;
    if (block->kind == SIM_BLOCK_GRAPH)
        sim_graph_block_gone(block);
    else if (block->kind == SIM_BLOCK_IMPORTED)
        sim_import_gone(block);
}

void sim_block_free_in(struct sim_block *block, CUstream stream, const char *how)
{
    struct sim_work work = {.kind = SIM_WORK_FREE, .u.block = block};
    CUmemoryPool pool = block->kind == SIM_BLOCK_POOL ? block->pool : NULL;
    uint64_t base = block->base, stream_id = stream->id;
    size_t taken = block->taken, size = block->size;
    struct sim_op *op;

    sim_block_bury(block, how);
    block->pins += 2; /* ours too: the operation may have run before we are through */
    sim_enqueue(stream, &work, NULL, &op);
    block->dead_at = op->stamp;
    block->has_dead_at = true;
    (void)snprintf(block->how_freed, sizeof(block->how_freed), "%s, op %llu of stream %llu", how,
                   (unsigned long long)op->id, (unsigned long long)stream_id);
    block->pins--;
    if (pool) {
        pool->used -= size;
        add_hole(pool, base, taken, &op, 1);
    }
    sim_op_unref(op);
}

CUresult cuMemFreeAsync(CUdeviceptr p, CUstream handle)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    CUstream stream;
    CUresult result = sim_stream_find(call.ctx, handle, &stream);
    struct sim_block *block = sim_block_starting_at(p);

    if (result != CUDA_SUCCESS)
        return result;
    result = sim_capture_check_legacy(stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (stream->capture)
        return sim_capture_free(stream, p);
    result = sim_capture_check(call.ctx, SIM_CAPTURE_UNSAFE);
    if (result != CUDA_SUCCESS || !p)
        return result;
    if (!block)
        return sim_freed_async_again(p) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    switch (block->kind) {
    case SIM_BLOCK_NATIVE:
        return sim_native_free_async(block, stream);
    case SIM_BLOCK_MANAGED:
        return CUDA_ERROR_NOT_SUPPORTED;
    case SIM_BLOCK_POOL:
    case SIM_BLOCK_GRAPH:
        break;
    default:
        if (block->kind != SIM_BLOCK_IMPORTED || !block->pool)
            return CUDA_ERROR_INVALID_VALUE;
    }
    sim_block_free_in(block, stream, "cuMemFreeAsync");
    return CUDA_SUCCESS;
}

void sim_pool_free_now(struct sim_block *block, const char *how)
{
    CUmemoryPool pool = block->pool;

    sim_block_bury(block, how);
    pool->used -= block->size;
    sim_block_end(block, &sim_host_order);
    add_hole(pool, block->base, block->taken, NULL, 0);
}

/* ---- calls about pools ---- */

CUresult cuMemPoolCreate(CUmemoryPool *ret_pool, const CUmemPoolProps *props)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!ret_pool || !props)
        return CUDA_ERROR_INVALID_VALUE;
    bool managed = props->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED &&
                   sim_settings()->driver_version >= 13000;
    bool host = props->location.type == CU_MEM_LOCATION_TYPE_HOST ||
                props->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
    if (props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED && !managed)
        return CUDA_ERROR_INVALID_VALUE;
    if ((unsigned)props->handleTypes & ~HANDLE_TYPES)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (managed && props->handleTypes != CU_MEM_HANDLE_TYPE_NONE)
        return CUDA_ERROR_INVALID_VALUE;
    if (host && !managed)
        return CUDA_ERROR_NOT_SUPPORTED;
    int device = host ? 0 : props->location.id;
    if (!host && (props->location.type != CU_MEM_LOCATION_TYPE_DEVICE || !sim_device_ok(device)))
        return CUDA_ERROR_INVALID_VALUE;
    *ret_pool = sim_pool_new(device, props);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!sim_pool_ok(pool))
        return CUDA_ERROR_INVALID_VALUE;
    if (pool == *sim_device_default_pool(pool->device))
        return CUDA_ERROR_INVALID_VALUE;
    if (*sim_device_current_pool(pool->device) == pool)
        *sim_device_current_pool(pool->device) = *sim_device_default_pool(pool->device);
    /* What is still allocated lives on; the struct stays for its sake. */
    pool->destroyed = true;
    if (pool->import_fd >= 0)
        (void)close(pool->import_fd);
    (void)release(pool, 0, all_done); /* an H100 left nothing of one whose work had run */
    return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    CUresult refused = sim_capture_check(NULL, SIM_CAPTURE_UNSAFE);

    if (refused != CUDA_SUCCESS)
        return refused;
    if (!sim_pool_ok(pool))
        return CUDA_ERROR_INVALID_VALUE;
    (void)release(pool, keep, all_waited);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    CUresult refused = sim_capture_check(NULL, SIM_CAPTURE_UNSAFE);

    if (refused != CUDA_SUCCESS)
        return refused;
    if (!sim_pool_ok(pool) || !value)
        return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
        pool->follow = *(int *)value != 0;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
        pool->opportunistic = *(int *)value != 0;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        pool->internal = *(int *)value != 0;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        pool->threshold = *(cuuint64_t *)value;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        if (*(cuuint64_t *)value)
            return CUDA_ERROR_INVALID_VALUE;
        if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
            pool->used_high = pool->used;
        else
            pool->reserved_high = pool->reserved;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    CUresult refused = sim_capture_check(NULL, SIM_CAPTURE_UNSAFE);

    if (refused != CUDA_SUCCESS)
        return refused;
    CUresult result = call.ctx ? sim_capture_check(call.ctx, SIM_CAPTURE_UNSAFE) : CUDA_SUCCESS;

    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_pool_ok(pool) || !value)
        return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
        *(int *)value = pool->follow;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
        *(int *)value = pool->opportunistic;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        *(int *)value = pool->internal;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        *(cuuint64_t *)value = pool->threshold;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        *(cuuint64_t *)value = pool->reserved;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        *(cuuint64_t *)value = pool->reserved_high;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        *(cuuint64_t *)value = pool->used;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        *(cuuint64_t *)value = pool->used_high;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!sim_pool_ok(pool) || (!map && count))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        int device = map[i].location.id;
        if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE)
            return CUDA_ERROR_INVALID_VALUE;
        if (!sim_device_ok(device))
            return CUDA_ERROR_INVALID_DEVICE;
        if (map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ)
            return CUDA_ERROR_INVALID_VALUE;
        if (device == pool->device && map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE)
            return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count; i++) {
        unsigned bit = 1u << map[i].location.id;
        if (map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE)
            pool->open_mask &= ~bit;
        else
            pool->open_mask |= bit;
    }
    return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool pool, CUmemLocation *location)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!flags || !sim_pool_ok(pool) || !location)
        return CUDA_ERROR_INVALID_VALUE;
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || !sim_device_ok(location->id))
        return CUDA_ERROR_INVALID_VALUE;
    *flags = sim_pool_open_to(pool, location->id) ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                                  : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}
