/* The table of the program's pools: see app_pools.h.
 *
 * A row is met for the first time when the program makes, imports, asks for or allocates from a pool,
 * and stays for the report when the pool is destroyed; only when the table is full, the oldest such row
 * is taken again and what it counted goes to the last row. The default pool of a device has a row
 * before anybody knows its handle: that is asked for when needed and when no capture is open.
 *
 * Rules of this file:
 * - Counting and looking up take no lock: handles and counters are atomics, a row is never freed.
 * - Out of the table before the driver destroys a pool: it may give out the same handle at once.
 * - cuMemPoolGetAttribute and cuMemPoolSetAttribute end captures: ours are made under RELAXED, and those
 *   that can wait are not made while one is open. */
#include "app_pools.h"

#include "base/arena.h"
#include "base/lock.h"
#include "base/slot.h"
#include "context.h"
#include "driver.h"
#include "order.h"

#define OTHERS (AG_APP_POOLS - 1)
#define NO_ROW UINT32_MAX

/* What becomes of the release threshold. BUSY: one thread is at it, the others wait. */
enum keep_state { KEEP_OPEN, KEEP_BUSY, KEEP_RAISED, KEEP_LEFT };

struct row {
    _Atomic int kind, device, keep;
    _Atomic bool alive;
    _Atomic bool unsure; /* its device was reset: the handle may mean nothing any more */
    _Atomic bool has_levels;
    _Atomic uint64_t reserved_high, used_high;
    _Atomic uint64_t kept_bytes; /* the threshold given */
    uint64_t born;               /* under the table's lock: which dead row is the oldest */
    _Atomic uint64_t base[AG_N_APP_COUNTS]; /* counted before the row was this pool's */
    struct {
        _Alignas(64) _Atomic uint64_t counts[AG_N_APP_COUNTS];
    } slots[AG_SLOTS];
};

static struct {
    struct ag_lock lock; /* guards who gets which row */
    uint64_t n_born;
    _Atomic unsigned n;                             /* rows in use, the last one not counted */
    _Atomic(CUmemoryPool) handles[AG_APP_POOLS];    /* NULL: dead, or a default pool not asked for */
    _Atomic(struct row *) rows[AG_APP_POOLS];
    _Atomic unsigned current[AG_MAX_DEVICES];       /* 1 + row of the device's current pool */
    _Atomic unsigned defaults[AG_MAX_DEVICES];      /* 1 + row of its default pool */
} table = {.lock = AG_LOCK_INIT(AG_RANK_APP_POOLS)};

static struct ag_arena arena = AG_ARENA_INIT(struct row);
static struct ag_size keep;

void ag_app_pools_configure(struct ag_size new_keep)
{
    keep = new_keep;
}

/* --- rows --- */

static struct row *row_at(unsigned i)
{
    return atomic_load_explicit(&table.rows[i], memory_order_acquire);
}

static uint64_t sum_of(const struct row *row, enum ag_app_count which)
{
    uint64_t sum = 0;

    for (unsigned slot = 0; slot < AG_SLOTS; slot++)
        sum += atomic_load_explicit(&row->slots[slot].counts[which], memory_order_relaxed);
    return sum;
}

void ag_app_pools_count(unsigned i, enum ag_app_count which, uint64_t n)
{
    struct row *row = row_at(i);
    unsigned slot = ag_slot();

    if (row)
        ag_stats_count(slot, &row->slots[slot].counts[which], n);
}

/* The row itself, made on first use. With the lock held. NULL: no memory. */
static struct row *provide(unsigned i)
{
    struct row *row = atomic_load_explicit(&table.rows[i], memory_order_relaxed);

    if (row || !(row = ag_arena_get(&arena)))
        return row;
    row->device = -1;
    row->kind = AG_APP_POOL_CREATED;
    row->keep = KEEP_LEFT;
    atomic_store_explicit(&table.rows[i], row, memory_order_release);
    return row;
}

static void begin_row(struct row *row, enum ag_app_pool_kind kind, int device)
{
    for (unsigned which = 0; which < AG_N_APP_COUNTS; which++)
        row->base[which] = sum_of(row, which);
    row->has_levels = row->unsure = false;
    row->reserved_high = row->used_high = row->kept_bytes = 0;
    row->kind = (int)kind;
    row->device = device;
    row->keep = KEEP_OPEN;
    row->born = table.n_born++;
    row->alive = true;
}

/* What the row counted goes to the others'. With the lock held. */
static void fold(const struct row *row)
{
    struct row *others = provide(OTHERS);

    for (unsigned which = 0; others && which < AG_N_APP_COUNTS; which++)
        atomic_fetch_sub(&others->base[which], sum_of(row, which) - row->base[which]);
}

/* A row for a new pool: a fresh one, else that of the pool which died first. With the lock held. */
static unsigned free_row(void)
{
    unsigned n = atomic_load_explicit(&table.n, memory_order_relaxed), oldest = NO_ROW;

    if (n < OTHERS) {
        if (!provide(n))
            return NO_ROW;
        atomic_store_explicit(&table.n, n + 1, memory_order_release);
        return n;
    }
    for (unsigned i = 0; i < n; i++) {
        if (!row_at(i)->alive && (oldest == NO_ROW || row_at(i)->born < row_at(oldest)->born))
            oldest = i;
    }
    if (oldest != NO_ROW)
        fold(row_at(oldest));
    return oldest;
}

static unsigned look(CUmemoryPool pool)
{
    unsigned n = atomic_load_explicit(&table.n, memory_order_acquire);

    for (unsigned i = 0; pool && i < n; i++) {
        if (atomic_load_explicit(&table.handles[i], memory_order_acquire) == pool)
            return i;
    }
    return NO_ROW;
}

/* The row of pools that have none. */
static unsigned others_row(void)
{
    if (row_at(OTHERS))
        return OTHERS;
    ag_lock_take(&table.lock);
    (void)provide(OTHERS);
    ag_lock_release(&table.lock);
    return OTHERS;
}

/* What used it as the device's current pool has the default pool again. */
static void unchoose(unsigned row)
{
    for (unsigned i = 0; i < AG_MAX_DEVICES; i++) {
        unsigned chosen = row + 1;

        (void)atomic_compare_exchange_strong(&table.current[i], &chosen, 0);
    }
}

/* Enters a pool. One that has the same handle must have died unseen: handles are unique. */
static unsigned enter(CUmemoryPool pool, enum ag_app_pool_kind kind, int device)
{
    unsigned i, dead;

    ag_lock_take(&table.lock);
    dead = look(pool);
    if (dead != NO_ROW) {
        row_at(dead)->alive = false;
        atomic_store_explicit(&table.handles[dead], NULL, memory_order_relaxed);
        unchoose(dead);
    }
    i = free_row();
    if (i != NO_ROW) {
        begin_row(row_at(i), kind, device);
        atomic_store_explicit(&table.handles[i], pool, memory_order_release);
    }
    ag_lock_release(&table.lock);
    return i == NO_ROW ? others_row() : i;
}

static bool is_device(int ordinal)
{
    return ordinal >= 0 && (unsigned)ordinal < AG_MAX_DEVICES;
}

/* The row of a device's default pool, whose handle may not be known yet. */
static unsigned default_row(int ordinal)
{
    unsigned found = atomic_load_explicit(&table.defaults[ordinal], memory_order_acquire), i;

    if (found)
        return found - 1;
    ag_lock_take(&table.lock);
    found = atomic_load_explicit(&table.defaults[ordinal], memory_order_relaxed);
    i = found ? found - 1 : free_row();
    if (!found && i != NO_ROW) {
        begin_row(row_at(i), AG_APP_POOL_DEFAULT, ordinal);
        atomic_store_explicit(&table.defaults[ordinal], i + 1, memory_order_release);
    }
    ag_lock_release(&table.lock);
    return i == NO_ROW ? others_row() : i;
}

static void bind_default(int ordinal, CUmemoryPool pool)
{
    unsigned i = default_row(ordinal);

    if (i != OTHERS)
        atomic_store_explicit(&table.handles[i], pool, memory_order_release);
}

unsigned ag_app_pools_current(int ordinal)
{
    unsigned found;

    if (!is_device(ordinal))
        return others_row();
    found = atomic_load_explicit(&table.current[ordinal], memory_order_acquire);
    return found ? found - 1 : default_row(ordinal);
}

/* The handle of a row's pool. A default pool's is asked for, which makes a driver call. */
static CUmemoryPool handle_of(unsigned i)
{
    CUmemoryPool pool = atomic_load_explicit(&table.handles[i], memory_order_acquire);
    const struct row *row = row_at(i);

    if (pool || i == OTHERS || row->kind != AG_APP_POOL_DEFAULT || !is_device(row->device) ||
        !ag_cu.cuDeviceGetDefaultMemPool ||
        ag_cu.cuDeviceGetDefaultMemPool(&pool, row->device) != CUDA_SUCCESS)
        return pool;
    atomic_store_explicit(&table.handles[i], pool, memory_order_release);
    return pool;
}

/* The handles of default pools that were never asked for: a program may know one from an attribute of
 * its memory. */
static void ask_defaults(void)
{
    const struct ag_device *device;

    for (unsigned i = 0; !ag_order_capture_open() && (device = ag_device_met(i)); i++) {
        CUstreamCaptureMode previous;
        unsigned row = is_device(device->ordinal) ? default_row(device->ordinal) : OTHERS;

        if (row == OTHERS || atomic_load_explicit(&table.handles[row], memory_order_acquire))
            continue;
        previous = ag_order_relax_captures();
        (void)handle_of(row);
        ag_order_restore_captures(previous);
    }
}

unsigned ag_app_pools_find(CUmemoryPool pool)
{
    unsigned i = look(pool);

    if (i != NO_ROW || !pool)
        return i == NO_ROW ? others_row() : i;
    ask_defaults();
    i = look(pool);
    return i == NO_ROW ? others_row() : i;
}

/* --- levels --- */

static void raise_to(_Atomic uint64_t *value, uint64_t to)
{
    uint64_t now = atomic_load_explicit(value, memory_order_relaxed);

    while (now < to && !atomic_compare_exchange_weak_explicit(
                           value, &now, to, memory_order_relaxed, memory_order_relaxed))
        ;
}

/* Asks the driver for the highest levels of the row's pool. */
static void ask_levels(unsigned i)
{
    struct row *row = row_at(i);
    cuuint64_t reserved = 0, used = 0;
    CUstreamCaptureMode previous;
    CUmemoryPool pool;

    if (!row || !row->alive || row->unsure || row->kind == AG_APP_POOL_IMPORTED ||
        !ag_cu.cuMemPoolGetAttribute)
        return;
    previous = ag_order_relax_captures();
    pool = handle_of(i);
    if (pool &&
        ag_cu.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &reserved) == CUDA_SUCCESS &&
        ag_cu.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &used) == CUDA_SUCCESS) {
        raise_to(&row->reserved_high, reserved);
        raise_to(&row->used_high, used);
        row->has_levels = true;
    }
    ag_order_restore_captures(previous);
}

/* --- ALLOGRAFT_APP_POOL_KEEP --- */

/* One thread at a time deals with the threshold; the state it found. */
static int begin_threshold(struct row *row)
{
    int state = atomic_load_explicit(&row->keep, memory_order_acquire);

    while (state == KEEP_BUSY ||
           !atomic_compare_exchange_weak(&row->keep, &state, KEEP_BUSY)) {
        ag_order_relax();
        state = atomic_load_explicit(&row->keep, memory_order_acquire);
    }
    return state;
}

/* Raises the threshold of a pool that was left at 0 (or was raised before a reset of the device). */
static enum keep_state raise_threshold(unsigned i, struct row *row)
{
    cuuint64_t threshold = 0, wanted;
    CUmemoryPool pool = handle_of(i);
    size_t total = 0;

    if (!pool || ag_cu.cuDeviceTotalMem_v2(&total, row->device) != CUDA_SUCCESS ||
        ag_cu.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold) != CUDA_SUCCESS)
        return KEEP_LEFT;
    wanted = ag_size_bytes(keep, total);
    if (threshold && threshold == row->kept_bytes)
        return KEEP_RAISED;
    if (threshold || !wanted ||
        ag_cu.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &wanted) != CUDA_SUCCESS)
        return KEEP_LEFT;
    row->kept_bytes = wanted;
    ag_stats_add(AG_STAT_ASYNC_KEPT, 1);
    return KEEP_RAISED;
}

void ag_app_pools_keep(unsigned i)
{
    struct row *row = keep.value ? row_at(i) : NULL;
    CUstreamCaptureMode previous;
    int state;

    if (!row || atomic_load_explicit(&row->keep, memory_order_acquire) != KEEP_OPEN ||
        ag_order_capture_open())
        return;
    state = begin_threshold(row);
    if (state == KEEP_OPEN && is_device(row->device) && row->kind != AG_APP_POOL_IMPORTED &&
        ag_cu.cuMemPoolSetAttribute && ag_cu.cuMemPoolGetAttribute) {
        previous = ag_order_relax_captures();
        state = raise_threshold(i, row);
        ag_order_restore_captures(previous);
    } else if (state == KEEP_OPEN) {
        state = KEEP_LEFT;
    }
    atomic_store_explicit(&row->keep, state, memory_order_release);
}

/* The program chooses the threshold: ours is out of the question from now on. */
static CUresult set_threshold(CUmemoryPool pool, void *value)
{
    unsigned i = ag_app_pools_find(pool);
    struct row *row = i == OTHERS ? NULL : row_at(i);
    int before = row ? begin_threshold(row) : KEEP_LEFT;
    CUresult result =
        ag_cu.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, value);

    if (row)
        atomic_store_explicit(&row->keep, result == CUDA_SUCCESS ? KEEP_LEFT : before,
                              memory_order_release);
    return result;
}

CUresult ag_app_pools_set_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    unsigned i = look(pool);

    if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD && keep.value)
        return ag_app_pools_touched(set_threshold(pool, value), pool);
    /* The program begins to count anew; we do not. */
    if (i != NO_ROW && (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH ||
                        attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH))
        ask_levels(i);
    return ag_app_pools_touched(ag_cu.cuMemPoolSetAttribute(pool, attribute, value), pool);
}

/* Is the threshold ours? Asked before and after the driver's answer: it may become ours meanwhile. */
static bool is_raised(unsigned i)
{
    struct row *row = i == NO_ROW ? NULL : row_at(i);
    int state = row ? atomic_load_explicit(&row->keep, memory_order_acquire) : KEEP_LEFT;

    while (state == KEEP_BUSY) {
        ag_order_relax();
        state = atomic_load_explicit(&row->keep, memory_order_acquire);
    }
    return state == KEEP_RAISED;
}

CUresult ag_app_pools_get_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    bool asks = attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD && keep.value;
    unsigned i = look(pool);
    bool raised = asks && is_raised(i);
    CUresult result = ag_cu.cuMemPoolGetAttribute(pool, attribute, value);

    if (asks && result == CUDA_SUCCESS && i != NO_ROW && (raised || is_raised(i)) &&
        *(cuuint64_t *)value == row_at(i)->kept_bytes)
        *(cuuint64_t *)value = 0;
    return ag_app_pools_touched(result, pool);
}

/* --- the other calls --- */

static int ordinal_of(const CUmemLocation *location)
{
    return location && location->type == CU_MEM_LOCATION_TYPE_DEVICE ? location->id : -1;
}

CUresult ag_app_pools_touched(CUresult result, CUmemoryPool pool)
{
    unsigned i = look(pool);

    if (i != NO_ROW)
        ag_app_pools_count(i, AG_APP_CALLS, 1);
    return result;
}

CUresult ag_app_pools_made(CUresult result, const CUmemoryPool *pool, enum ag_app_pool_kind kind,
                           const CUmemLocation *location)
{
    unsigned i;

    if (result != CUDA_SUCCESS || !pool || !*pool)
        return result;
    i = enter(*pool, kind, ordinal_of(location));
    ag_app_pools_count(i, AG_APP_CALLS, 1);
    ag_app_pools_keep(i);
    return result;
}

/* The pool of device memory that cuMemAllocAsync may use: those of managed memory are apart. */
static bool is_for_async(const CUmemLocation *location, CUmemAllocationType type)
{
    return type == CU_MEM_ALLOCATION_TYPE_PINNED && is_device(ordinal_of(location));
}

CUresult ag_app_pools_given(CUresult result, const CUmemoryPool *pool, bool current,
                            const CUmemLocation *location, CUmemAllocationType type)
{
    if (result != CUDA_SUCCESS || !pool || !*pool)
        return result;
    if (look(*pool) == NO_ROW) {
        if (!is_for_async(location, type))
            (void)enter(*pool, type == CU_MEM_ALLOCATION_TYPE_MANAGED ? AG_APP_POOL_MANAGED
                                                                      : AG_APP_POOL_DEFAULT,
                        ordinal_of(location));
        else if (!current || !table.current[location->id])
            bind_default(location->id, *pool);
    }
    return ag_app_pools_touched(result, *pool);
}

CUresult ag_app_pools_chosen(CUresult result, CUmemoryPool pool, const CUmemLocation *location,
                             CUmemAllocationType type)
{
    if (result != CUDA_SUCCESS)
        return result;
    if (is_for_async(location, type))
        atomic_store_explicit(&table.current[location->id], ag_app_pools_find(pool) + 1,
                              memory_order_release);
    return ag_app_pools_touched(result, pool);
}

CUresult ag_app_pools_destroy(CUmemoryPool pool)
{
    unsigned i = look(pool);
    CUresult result;

    if (i == NO_ROW)
        return ag_cu.cuMemPoolDestroy(pool);
    ask_levels(i);
    ag_app_pools_count(i, AG_APP_CALLS, 1);
    atomic_store_explicit(&table.handles[i], NULL, memory_order_release);
    result = ag_cu.cuMemPoolDestroy(pool);
    if (result == CUDA_SUCCESS) {
        row_at(i)->alive = false;
        unchoose(i);
    } else {
        atomic_store_explicit(&table.handles[i], pool, memory_order_release);
    }
    return result;
}

/* --- ends --- */

void ag_app_pools_device_ending(int ordinal)
{
    unsigned n = atomic_load_explicit(&table.n, memory_order_acquire);

    for (unsigned i = 0; i < n; i++) {
        struct row *row = row_at(i);

        if (row->device != ordinal || !row->alive)
            continue;
        ask_levels(i);
        if (row->kind == AG_APP_POOL_DEFAULT)
            atomic_store_explicit(&table.handles[i], NULL, memory_order_release);
        else
            row->unsure = true;
        if (keep.value) {
            (void)begin_threshold(row);
            atomic_store_explicit(&row->keep, KEEP_OPEN, memory_order_release);
        }
    }
}

void ag_app_pools_exit(void)
{
    unsigned n = atomic_load_explicit(&table.n, memory_order_acquire);

    for (unsigned i = 0; i < n; i++)
        ask_levels(i);
}

void ag_app_pools_forget_all(void)
{
    ag_lock_init(&table.lock, AG_RANK_APP_POOLS);
    for (unsigned i = 0; i < AG_APP_POOLS; i++) {
        struct row *row = row_at(i);

        atomic_store(&table.handles[i], NULL);
        if (row)
            begin_row(row, AG_APP_POOL_CREATED, -1);
        if (row)
            row->alive = false;
    }
    for (unsigned i = 0; i < AG_MAX_DEVICES; i++)
        table.current[i] = table.defaults[i] = 0;
    atomic_store(&table.n, 0);
}

/* --- what our threshold holds --- */

static uint64_t held_by(unsigned i)
{
    CUmemoryPool pool = atomic_load_explicit(&table.handles[i], memory_order_acquire);
    cuuint64_t reserved = 0, used = 0;

    if (!pool ||
        ag_cu.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved) !=
            CUDA_SUCCESS ||
        ag_cu.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used) != CUDA_SUCCESS)
        return 0;
    return reserved > used ? reserved - used : 0;
}

static bool is_kept(unsigned i, int ordinal)
{
    const struct row *row = row_at(i);

    return row->alive && !row->unsure && row->device == ordinal && row->keep == KEEP_RAISED;
}

uint64_t ag_app_pools_held(int ordinal)
{
    unsigned n = keep.value ? atomic_load_explicit(&table.n, memory_order_acquire) : 0;
    CUstreamCaptureMode previous;
    uint64_t held = 0;

    if (!n)
        return 0;
    previous = ag_order_relax_captures();
    for (unsigned i = 0; i < n; i++)
        held += is_kept(i, ordinal) ? held_by(i) : 0;
    ag_order_restore_captures(previous);
    return held;
}

void ag_app_pools_trim(int ordinal)
{
    unsigned n = keep.value ? atomic_load_explicit(&table.n, memory_order_acquire) : 0;

    for (unsigned i = 0; i < n; i++) {
        CUmemoryPool pool = atomic_load_explicit(&table.handles[i], memory_order_acquire);

        if (pool && ag_cu.cuMemPoolTrimTo && is_kept(i, ordinal))
            (void)ag_cu.cuMemPoolTrimTo(pool, 0);
    }
}

/* --- report --- */

bool ag_app_pool_info(unsigned i, struct ag_app_pool_info *ret_info)
{
    const struct row *row = row_at(i);
    uint64_t sum = 0;

    if (!row)
        return false;
    *ret_info = (struct ag_app_pool_info){
        .kind = (enum ag_app_pool_kind)row->kind,
        .device = row->device,
        .others = i == OTHERS,
        .alive = row->alive,
        .kept = row->keep == KEEP_RAISED || row->kept_bytes,
        .has_levels = row->has_levels,
        .reserved_high = row->reserved_high,
        .used_high = row->used_high,
    };
    for (unsigned which = 0; which < AG_N_APP_COUNTS; which++)
        sum += ret_info->counts[which] = sum_of(row, which) - row->base[which];
    return sum != 0;
}
