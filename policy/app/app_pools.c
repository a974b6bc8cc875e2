/* The table of the program's pools: see app_pools.h.
 *
 * A pool gets a row when the program first creates, imports, asks for or allocates from it. The row
 * stays for the report after the pool was destroyed; when the table is full, the oldest such row is
 * used again, and what it counted goes to the last row. The default pool of a device has a row
 * before its handle is known, which is asked for when it is needed and no capture is open.
 *
 * Rules of this file:
 * - Counting and looking up take no lock: handles and counters are atomics, a row is never freed.
 * - Out of the table before the driver destroys a pool: it may give out the same handle at once.
 * - cuMemPoolGetAttribute and cuMemPoolSetAttribute end captures: ours are made under RELAXED, and
 *   those that can wait are not made while one is open. */
#include "policy/app/app_pools.h"

#include "interpose/core/base/raise.h"
#include "interpose/core/base/threads/helper.h"
#include "interpose/core/base/threads/lock.h"
#include "interpose/core/base/threads/wait.h"
#include "interpose/core/driver/driver.h"
#include "policy/backends/backend.h"
#include "policy/contexts/context.h"
#include "policy/order/capture.h"

#define OTHERS (AG_APP_POOLS - 1)
#define NO_ROW UINT32_MAX

/* What becomes of the release threshold. BUSY: one thread is at it, the others wait. */
enum keep_state { KEEP_OPEN, KEEP_BUSY, KEEP_RAISED, KEEP_LEFT };

/* What the report does not need of a pool; the rest is in ag_stats.app_pools. */
struct row {
    _Atomic(CUmemoryPool) handle; /* NULL: dead, or a default pool not asked for */
    _Atomic int keep;
    _Atomic bool alive;
    _Atomic bool unsure;         /* its device was reset: the handle may mean nothing any more */
    _Atomic bool is_shared;      /* made for other processes */
    _Atomic uint64_t kept_bytes; /* the threshold given */
    uint64_t born;               /* under the lock: which dead row is the oldest */
};

static struct {
    struct ag_lock lock; /* guards who gets which row */
    uint64_t n_born;
    _Atomic unsigned n; /* rows in use, the last one not counted */
    struct row rows[AG_APP_POOLS];
    _Atomic unsigned current[AG_MAX_DEVICES];  /* 1 + row of the device's current pool */
    _Atomic unsigned defaults[AG_MAX_DEVICES]; /* 1 + row of its default pool */
} table = {.lock = AG_LOCK_INIT(AG_RANK_APP_POOLS)};

static struct ag_size keep;

void ag_app_pools_configure(struct ag_size new_keep)
{
    keep = new_keep;
}

/* --- rows --- */

static struct ag_app_pool_stats *told_of(const struct row *row)
{
    return &ag_stats.app_pools[row - table.rows];
}

static unsigned n_rows(void)
{
    return atomic_load_explicit(&table.n, memory_order_acquire);
}

/* Called with the lock held. */
static void begin_row(unsigned i, CUmemoryPool pool, enum ag_app_pool_kind kind, int device)
{
    struct ag_app_pool_stats *told = &ag_stats.app_pools[i];
    struct row *row = &table.rows[i];

    for (unsigned which = 0; which < AG_N_APP_COUNTS; which++)
        told->before[which] += ag_stats_app_pool_sum(&ag_stats, i, which);
    told->destroyed = told->raised = told->has_levels = false;
    told->reserved_high = told->used_high = 0;
    told->device = device;
    told->kind = (int)kind;
    row->unsure = row->is_shared = false;
    row->kept_bytes = 0;
    row->keep = KEEP_OPEN;
    row->born = table.n_born++;
    row->alive = true;
    atomic_store_explicit(&row->handle, pool, memory_order_release);
}

/* The row of pools that have none. */
static unsigned others_row(void)
{
    struct ag_app_pool_stats *told = &ag_stats.app_pools[OTHERS];

    if (told->kind != AG_APP_POOL_OTHERS) {
        told->device = -1;
        told->kind = AG_APP_POOL_OTHERS;
        table.rows[OTHERS].keep = KEEP_LEFT;
    }
    return OTHERS;
}

/* Adds what the row counted to the row of others. Called with the lock held. */
static void fold(unsigned i)
{
    for (unsigned which = 0; which < AG_N_APP_COUNTS; which++)
        atomic_fetch_sub(&ag_stats.app_pools[others_row()].before[which],
                         ag_stats_app_pool_sum(&ag_stats, i, which));
}

/* A row for a new pool: a fresh one, else that of the pool which died first. With the lock held. */
static unsigned free_row(void)
{
    unsigned n = n_rows(), oldest = NO_ROW;

    if (n < OTHERS) {
        atomic_store_explicit(&table.n, n + 1, memory_order_release);
        return n;
    }
    for (unsigned i = 0; i < n; i++) {
        const struct row *row = &table.rows[i];

        if (!row->alive && (oldest == NO_ROW || row->born < table.rows[oldest].born))
            oldest = i;
    }
    if (oldest != NO_ROW)
        fold(oldest);
    return oldest;
}

static unsigned row_of_pool(CUmemoryPool pool)
{
    unsigned n = n_rows();

    for (unsigned i = 0; pool && i < n; i++) {
        if (atomic_load_explicit(&table.rows[i].handle, memory_order_acquire) == pool)
            return i;
    }
    return NO_ROW;
}

/* What used it as the device's current pool has the default pool again. */
static void unchoose(unsigned row)
{
    for (unsigned i = 0; i < AG_MAX_DEVICES; i++) {
        unsigned chosen = row + 1;

        (void)atomic_compare_exchange_strong(&table.current[i], &chosen, 0);
    }
}

/* A pool that is imported again is the same pool (R927). */
static bool was_imported(unsigned i, enum ag_app_pool_kind kind)
{
    return kind == AG_APP_POOL_IMPORTED && i != NO_ROW && table.rows[i].alive &&
           (ag_stats.app_pools[i].kind == AG_APP_POOL_IMPORTED || table.rows[i].is_shared);
}

/* Enters a pool. Another one that has the same handle must have died unseen. */
static unsigned enter_app_pool(CUmemoryPool pool, enum ag_app_pool_kind kind, int device)
{
    unsigned i, known;

    ag_lock_take(&table.lock);
    known = row_of_pool(pool);
    if (was_imported(known, kind)) {
        ag_lock_release(&table.lock);
        return known;
    }
    if (known != NO_ROW) {
        table.rows[known].alive = false;
        /* Relaxed: the new pool of that handle is known to nobody yet. */
        atomic_store_explicit(&table.rows[known].handle, NULL, memory_order_relaxed);
        unchoose(known);
    }
    i = free_row();
    if (i != NO_ROW)
        begin_row(i, pool, kind, device);
    ag_lock_release(&table.lock);
    return i == NO_ROW ? others_row() : i;
}

static bool is_device_ordinal(int ordinal)
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
        begin_row(i, NULL, AG_APP_POOL_DEFAULT, ordinal);
        atomic_store_explicit(&table.defaults[ordinal], i + 1, memory_order_release);
    }
    ag_lock_release(&table.lock);
    return i == NO_ROW ? others_row() : i;
}

static void bind_default(int ordinal, CUmemoryPool pool)
{
    unsigned i = default_row(ordinal);

    if (i != OTHERS)
        atomic_store_explicit(&table.rows[i].handle, pool, memory_order_release);
}

bool ag_app_pools_is_private(unsigned row)
{
    int kind = ag_stats.app_pools[row].kind;

    return kind == AG_APP_POOL_DEFAULT ||
           (kind == AG_APP_POOL_CREATED && !table.rows[row].is_shared);
}

void ag_app_pools_shared(CUmemoryPool pool)
{
    unsigned row = row_of_pool(pool);

    if (row != NO_ROW)
        table.rows[row].is_shared = true;
}

unsigned ag_app_pools_current(int ordinal)
{
    unsigned found;

    if (!is_device_ordinal(ordinal))
        return others_row();
    found = atomic_load_explicit(&table.current[ordinal], memory_order_acquire);
    return found ? found - 1 : default_row(ordinal);
}

static CUmemoryPool ask_default(int ordinal)
{
    CUmemoryPool pool = NULL;

    return ag_cu.cuDeviceGetDefaultMemPool &&
                   ag_cu.cuDeviceGetDefaultMemPool(&pool, ordinal) == CUDA_SUCCESS
               ? pool
               : NULL;
}

/* The handle of a row's pool. A default pool's is asked for, which makes a driver call. */
static CUmemoryPool handle_of(unsigned i)
{
    CUmemoryPool pool = atomic_load_explicit(&table.rows[i].handle, memory_order_acquire);
    const struct ag_app_pool_stats *told = &ag_stats.app_pools[i];

    if (pool || told->kind != AG_APP_POOL_DEFAULT || !is_device_ordinal(told->device))
        return pool;
    pool = ask_default(told->device);
    if (pool)
        atomic_store_explicit(&table.rows[i].handle, pool, memory_order_release);
    return pool;
}

CUmemoryPool ag_app_pools_default_handle(int ordinal)
{
    unsigned i = is_device_ordinal(ordinal) ? default_row(ordinal) : OTHERS;

    return i == OTHERS ? ask_default(ordinal) : handle_of(i);
}

bool ag_app_pools_current_is_default(int ordinal)
{
    unsigned found = is_device_ordinal(ordinal)
                         ? atomic_load_explicit(&table.current[ordinal], memory_order_acquire)
                         : others_row() + 1;

    return !found || ag_stats.app_pools[found - 1].kind == AG_APP_POOL_DEFAULT;
}

/* The handles of default pools that were never asked for: a program may know one from an attribute
 * of its memory. */
static void ask_defaults(void)
{
    const struct ag_device *device;

    for (unsigned i = 0; !ag_capture_is_open() && (device = ag_device_met(i)); i++) {
        CUstreamCaptureMode previous;
        unsigned row = is_device_ordinal(device->ordinal) ? default_row(device->ordinal) : OTHERS;

        if (row == OTHERS || atomic_load_explicit(&table.rows[row].handle, memory_order_acquire))
            continue;
        previous = ag_capture_relax();
        (void)handle_of(row);
        ag_capture_restore(previous);
    }
}

unsigned ag_app_pools_find(CUmemoryPool pool)
{
    unsigned i = row_of_pool(pool);

    if (i != NO_ROW || !pool)
        return i == NO_ROW ? others_row() : i;
    ask_defaults();
    i = row_of_pool(pool);
    return i == NO_ROW ? others_row() : i;
}

/* --- levels --- */

/* Asks the driver for the highest levels of the row's pool, if something was taken from it. */
static void ask_pool_levels(unsigned i)
{
    struct ag_app_pool_stats *told = &ag_stats.app_pools[i];
    cuuint64_t reserved = 0, used = 0;
    CUstreamCaptureMode previous;
    CUmemoryPool pool;

    if (!table.rows[i].alive || table.rows[i].unsure || told->kind == AG_APP_POOL_IMPORTED ||
        !ag_cu.cuMemPoolGetAttribute || !ag_stats_app_pool_sum(&ag_stats, i, AG_APP_ALLOCS))
        return;
    previous = ag_capture_relax();
    pool = handle_of(i);
    if (pool &&
        ag_cu.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &reserved) ==
            CUDA_SUCCESS &&
        ag_cu.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &used) == CUDA_SUCCESS) {
        ag_raise_to(&told->reserved_high, reserved);
        ag_raise_to(&told->used_high, used);
        told->has_levels = true;
    }
    ag_capture_restore(previous);
}

/* --- ALLOGRAFT_APP_POOL_KEEP --- */

/* One thread at a time deals with the threshold; the state it found. */
static int begin_threshold(struct row *row)
{
    int state = atomic_load_explicit(&row->keep, memory_order_acquire);
    struct ag_wait wait = {0};

    while (state == KEEP_BUSY || !atomic_compare_exchange_weak(&row->keep, &state, KEEP_BUSY)) {
        ag_wait_pause(&wait);
        state = atomic_load_explicit(&row->keep, memory_order_acquire);
    }
    return state;
}

/* Raises the threshold of a pool that was left at 0. */
static enum keep_state raise_threshold(unsigned i, struct row *row)
{
    cuuint64_t threshold = 0, wanted;
    CUmemoryPool pool = handle_of(i);
    size_t total = 0;

    if (!pool || ag_cu.cuDeviceTotalMem_v2(&total, told_of(row)->device) != CUDA_SUCCESS ||
        ag_cu.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold) !=
            CUDA_SUCCESS)
        return KEEP_LEFT;
    wanted = ag_size_bytes(keep, total);
    if (threshold || !wanted ||
        ag_cu.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &wanted) !=
            CUDA_SUCCESS)
        return KEEP_LEFT;
    row->kept_bytes = wanted;
    told_of(row)->raised = true;
    ag_stats_add(AG_STAT_ASYNC_KEPT, 1);
    return KEEP_RAISED;
}

void ag_app_pools_keep(unsigned i)
{
    struct row *row = &table.rows[i];
    CUstreamCaptureMode previous;
    int state;

    if (!keep.value || atomic_load_explicit(&row->keep, memory_order_acquire) != KEEP_OPEN ||
        ag_capture_is_open())
        return;
    state = begin_threshold(row);
    if (state == KEEP_OPEN && is_device_ordinal(told_of(row)->device) &&
        told_of(row)->kind != AG_APP_POOL_IMPORTED && ag_cu.cuMemPoolSetAttribute &&
        ag_cu.cuMemPoolGetAttribute) {
        previous = ag_capture_relax();
        state = raise_threshold(i, row);
        ag_capture_restore(previous);
    } else if (state == KEEP_OPEN) {
        state = KEEP_LEFT;
    }
    atomic_store_explicit(&row->keep, state, memory_order_release);
}

/* The program chooses the threshold: ours is out of the question from now on. */
static CUresult set_threshold(CUmemoryPool pool, void *value)
{
    unsigned i = ag_app_pools_find(pool);
    struct row *row = i == OTHERS ? NULL : &table.rows[i];
    int before = row ? begin_threshold(row) : KEEP_LEFT;
    CUresult result = ag_cu.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, value);

    if (row)
        atomic_store_explicit(&row->keep, result == CUDA_SUCCESS ? KEEP_LEFT : before,
                              memory_order_release);
    return result;
}

CUresult ag_app_pools_set_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    unsigned i = row_of_pool(pool);

    if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD && keep.value)
        return ag_app_pools_touched(set_threshold(pool, value), pool);
    /* The program begins to count anew; we do not. */
    if (i != NO_ROW && (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH ||
                        attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH))
        ask_pool_levels(i);
    return ag_app_pools_touched(ag_cu.cuMemPoolSetAttribute(pool, attribute, value), pool);
}

/* Is the threshold ours? Asked before and after the driver's answer: it may become ours
 * meanwhile. */
static bool is_raised(unsigned i)
{
    struct row *row = i == NO_ROW ? NULL : &table.rows[i];
    int state = row ? atomic_load_explicit(&row->keep, memory_order_acquire) : KEEP_LEFT;
    struct ag_wait wait = {0};

    while (state == KEEP_BUSY) {
        ag_wait_pause(&wait);
        state = atomic_load_explicit(&row->keep, memory_order_acquire);
    }
    return state == KEEP_RAISED;
}

CUresult ag_app_pools_get_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    bool asks = attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD && keep.value;
    unsigned i = row_of_pool(pool);
    bool raised = asks && is_raised(i);
    CUresult result = ag_cu.cuMemPoolGetAttribute(pool, attribute, value);

    if (asks && result == CUDA_SUCCESS && i != NO_ROW && (raised || is_raised(i)) &&
        *(cuuint64_t *)value == table.rows[i].kept_bytes)
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
    unsigned i = row_of_pool(pool);

    if (i != NO_ROW)
        ag_stats_app_pool(i, AG_APP_CALLS, 1);
    return result;
}

CUresult ag_app_pools_made(CUresult result, const CUmemoryPool *pool, enum ag_app_pool_kind kind,
                           const CUmemLocation *location)
{
    unsigned i;

    if (result != CUDA_SUCCESS || !pool || !*pool)
        return result;
    i = enter_app_pool(*pool, kind, ordinal_of(location));
    ag_stats_app_pool(i, AG_APP_CALLS, 1);
    ag_app_pools_keep(i);
    return result;
}

/* The pool of device memory that cuMemAllocAsync may use: those of managed memory are apart. */
static bool is_for_async(const CUmemLocation *location, CUmemAllocationType type)
{
    return type == CU_MEM_ALLOCATION_TYPE_PINNED && is_device_ordinal(ordinal_of(location));
}

CUresult ag_app_pools_given(CUresult result, const CUmemoryPool *pool, bool current,
                            const CUmemLocation *location, CUmemAllocationType type)
{
    if (result != CUDA_SUCCESS || !pool || !*pool)
        return result;
    if (row_of_pool(*pool) == NO_ROW) {
        if (!is_for_async(location, type))
            (void)enter_app_pool(*pool,
                                 type == CU_MEM_ALLOCATION_TYPE_MANAGED ? AG_APP_POOL_MANAGED
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
    unsigned i = row_of_pool(pool);
    CUresult result;

    if (i == NO_ROW)
        return ag_cu.cuMemPoolDestroy(pool);
    ask_pool_levels(i);
    ag_stats_app_pool(i, AG_APP_CALLS, 1);
    atomic_store_explicit(&table.rows[i].handle, NULL, memory_order_release);
    result = ag_cu.cuMemPoolDestroy(pool);
    if (result == CUDA_SUCCESS) {
        table.rows[i].alive = false;
        ag_stats.app_pools[i].destroyed = true;
        unchoose(i);
    } else {
        atomic_store_explicit(&table.rows[i].handle, pool, memory_order_release);
    }
    return result;
}

/* --- ends --- */

void ag_app_pools_device_ending(int ordinal)
{
    unsigned n = n_rows();

    for (unsigned i = 0; i < n; i++) {
        struct row *row = &table.rows[i];

        if (told_of(row)->device != ordinal || !row->alive)
            continue;
        ask_pool_levels(i);
        if (told_of(row)->kind == AG_APP_POOL_DEFAULT)
            atomic_store_explicit(&row->handle, NULL, memory_order_release);
        else
            row->unsure = true;
    }
}

void ag_app_pools_exit(void)
{
    unsigned n = n_rows();

    for (unsigned i = 0; i < n && ag_helper_beat(); i++)
        ask_pool_levels(i);
}

bool ag_app_pools_met(void)
{
    return n_rows() > 0;
}

void ag_app_pools_begin_child(void)
{
    ag_lock_init(&table.lock, AG_RANK_APP_POOLS);
    atomic_store(&table.n, 0);
    for (unsigned i = 0; i < AG_APP_POOLS; i++) {
        table.rows[i].alive = false;
        table.rows[i].handle = NULL;
    }
    for (unsigned i = 0; i < AG_MAX_DEVICES; i++)
        table.current[i] = table.defaults[i] = 0;
}

/* --- what the pools hold --- */

static cuuint64_t pool_level(CUmemoryPool pool, CUmemPool_attribute which)
{
    cuuint64_t value = 0;

    return ag_cu.cuMemPoolGetAttribute(pool, which, &value) == CUDA_SUCCESS ? value : 0;
}

static uint64_t used_by(unsigned i)
{
    CUmemoryPool pool = handle_of(i);

    return pool ? pool_level(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) : 0;
}

static uint64_t held_by(unsigned i)
{
    CUmemoryPool pool = table.rows[i].handle;
    uint64_t reserved, used;

    if (!pool || table.rows[i].keep != KEEP_RAISED)
        return 0;
    used = pool_level(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
    reserved = pool_level(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    return reserved > used ? reserved - used : 0;
}

/* A pool of the device's memory that may be asked. */
static bool is_on(unsigned i, int ordinal)
{
    const struct ag_app_pool_stats *told = &ag_stats.app_pools[i];

    return table.rows[i].alive && !table.rows[i].unsure && told->device == ordinal &&
           told->kind != AG_APP_POOL_IMPORTED;
}

static uint64_t sum_on(int ordinal, uint64_t (*of)(unsigned i))
{
    unsigned n = ag_cu.cuMemPoolGetAttribute ? n_rows() : 0;
    CUstreamCaptureMode previous;
    uint64_t sum = 0;

    if (!n)
        return 0;
    previous = ag_capture_relax();
    for (unsigned i = 0; i < n; i++)
        sum += is_on(i, ordinal) ? of(i) : 0;
    ag_capture_restore(previous);
    return sum;
}

uint64_t ag_app_pools_used(const struct ag_device *device)
{
    return sum_on(device->ordinal, used_by);
}

uint64_t ag_app_pools_held(const struct ag_device *device)
{
    return keep.value ? sum_on(device->ordinal, held_by) : 0;
}

void ag_app_pools_trim(const struct ag_device *device)
{
    unsigned n = keep.value ? n_rows() : 0;

    for (unsigned i = 0; i < n; i++) {
        CUmemoryPool pool = table.rows[i].handle;

        if (pool && is_on(i, device->ordinal) && table.rows[i].keep == KEEP_RAISED)
            ag_pool_give_idle_back(pool);
    }
}
