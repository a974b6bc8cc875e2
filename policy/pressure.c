/* The steps, and waiting for frees that have not taken effect: see pressure.h. */
#include "policy/pressure.h"

#include "interpose/core/driver/driver.h"
#include "interpose/core/report/timing.h"
#include "interpose/core/report/trace/trace.h"
#include "policy/app/app_pools.h"
#include "policy/backends/backend.h"
#include "policy/backends/managed_pool.h"
#include "policy/budget.h"
#include "policy/contexts/context.h"
#include "policy/contexts/enter.h"
#include "policy/guard/guard.h"
#include "policy/ipc/ipc.h"
#include "policy/mem_desc.h"
#include "policy/order/capture.h"
#include "policy/order/host_wait.h"
#include "policy/order/private_stream.h"
#include "policy/paging/handles.h"

static struct ag_size pending_limit;

static void (*others_give_back)(void);

void ag_pressure_ask(void (*give_back)(void))
{
    others_give_back = give_back;
}

void ag_pressure_configure(struct ag_size pending)
{
    pending_limit = pending;
}

#define LOOK_SHARE 256u /* of the card: after so much more, is there still room? */
#define ROOM_SHARE 64u  /* of the card: for the driver */

static uint64_t missing_room(const struct ag_device *device)
{
    const uint64_t wanted = device->total_bytes / ROOM_SHARE;
    size_t free_bytes, total_bytes;

    if (device->is_integrated || ag_cu.cuMemGetInfo_v2(&free_bytes, &total_bytes) != CUDA_SUCCESS)
        return 0;
    return free_bytes < wanted ? wanted - free_bytes : 0;
}

/* Relaxed: bounds, which another thread may see a little later. */
static void set_tight(struct ag_device *device, bool is_tight)
{
    uint64_t limit = ag_budget_cache_limit(device);

    if (is_tight && limit > AG_NATIVE_PAGE)
        limit = AG_NATIVE_PAGE;
    atomic_store_explicit(&device->moved, 0, memory_order_relaxed);
    atomic_store_explicit(&device->cache_limit, limit, memory_order_relaxed);
    atomic_store_explicit(&device->is_tight, is_tight, memory_order_relaxed);
}

static uint64_t look_at_room(struct ag_device *device)
{
    uint64_t missing = missing_room(device);

    set_tight(device, missing != 0);
    return missing;
}

/* Is it time to look again, now that so many bytes more have changed hands? */
static bool has_moved(struct ag_device *device, size_t bytes)
{
    uint64_t moved = atomic_fetch_add_explicit(&device->moved, bytes, memory_order_relaxed);

    return moved + bytes >= device->total_bytes / LOOK_SHARE;
}

uint64_t ag_pressure_given(struct ag_device *device, size_t bytes)
{
    return has_moved(device, bytes) ? look_at_room(device) : 0;
}

bool ag_pressure_is_tight(const struct ag_device *device)
{
    return atomic_load_explicit(&device->is_tight, memory_order_relaxed);
}

void ag_pressure_returned(struct ag_device *device, size_t bytes)
{
    const struct ag_context *context = ag_context_current();

    if (context && context->device == device && !ag_capture_is_open() && has_moved(device, bytes))
        (void)look_at_room(device);
}

/* A native cudaFree would have waited for the work that our frees are ordered after, so waiting
 * now takes no longer than natively. But the thread that frees would have waited, not the one
 * that allocates now, and the device may be waiting for this one. So every wait has a timeout, and
 * once one has expired the next ones are short. Only who made the last of these frees waits for as
 * long as that takes: natively it would be in that call. */
#define TIMEOUT_NS       10000000000u
#define SHORT_TIMEOUT_NS 10000000u

static _Atomic bool timed_out; /* relaxed: how long to wait */

static uint64_t frees_timeout(void)
{
    return atomic_load_explicit(&timed_out, memory_order_relaxed) ? SHORT_TIMEOUT_NS : TIMEOUT_NS;
}

static bool wait_as_natively(enum ag_stat why)
{
    if (!ag_host_wait_complete_own(why))
        return false;
    /* What the last wait in vain was for has happened. */
    atomic_store_explicit(&timed_out, false, memory_order_relaxed);
    return true;
}

struct wait {
    uint64_t timeout_ns;
    bool in_vain;
};

static void wait_released(struct ag_context *context, void *data)
{
    struct wait *wait = data;

    if (ag_private_stream_wait(context, wait->timeout_ns) == CUDA_ERROR_NOT_READY)
        wait->in_vain = true;
}

/* Waits, within the timeout, until all frees so far have taken effect. */
static void wait_for_frees(enum ag_stat why)
{
    uint64_t pending = ag_level_current(&ag_stats.pending_bytes);
    struct wait wait = {0};

    (void)wait_as_natively(why);
    wait.timeout_ns = frees_timeout();
    ag_context_each(wait_released, &wait);
    atomic_store_explicit(&timed_out, wait.in_vain, memory_order_relaxed);
    if (wait.in_vain) {
        ag_trace_step(AG_STAT_LADDER_IN_VAIN, AG_TRACE_NO_DEVICE, pending);
        return;
    }
    ag_level_subtract(&ag_stats.pending_bytes, pending);
    ag_stats_add(why, 1);
}

bool ag_pressure_bound_pending(const struct ag_device *device)
{
    if (ag_level_current(&ag_stats.pending_bytes) <=
        ag_size_bytes(pending_limit, ag_budget_size(device)))
        return false;
    wait_for_frees(AG_STAT_WAITED_PENDING);
    return true;
}

void ag_pressure_wait_for_frees(void)
{
    if (ag_level_current(&ag_stats.pending_bytes))
        wait_for_frees(AG_STAT_WAITED_QUERY);
}

/* A context's work was waited for before, so what is left takes the driver some milliseconds. */
static bool wait_for_others(const struct ag_device *device, bool evicted)
{
    if (!ag_device_is_returning(device, evicted))
        return false;
    if (ag_device_wait_returned(device, evicted, frees_timeout()))
        return true;
    atomic_store_explicit(&timed_out, true, memory_order_relaxed);
    ag_trace_step(AG_STAT_LADDER_IN_VAIN, device->ordinal, 0);
    return false;
}

bool ag_pressure_wait_for_others(const struct ag_device *device)
{
    return wait_for_others(device, false);
}

struct room {
    struct ag_device *device;
    uint64_t bytes; /* still wanted */
    uint64_t timeout_ns;
    bool fails; /* the call that wants them, for want of memory */
    bool in_vain;
};

/* What lies on the host stays: it helps no allocation on the device. */
static void give_up_cached(struct ag_context *context, void *data)
{
    struct room *room = data;
    uint64_t before = ag_cache_device_bytes(&context->cache), after;
    struct ag_block *blocks;

    if (context->device == room->device)
        ag_ipc_give_back(context, room->timeout_ns);
    if (context->device != room->device || !before || !room->bytes)
        return;
    ag_trace_step(AG_STAT_LADDER_CACHE, context->device->ordinal,
                  room->bytes == UINT64_MAX ? 0 : room->bytes);
    blocks =
        ag_backend_release(context, ag_cache_evict(&context->cache, room->bytes), room->timeout_ns);
    if (blocks && room->fails && wait_as_natively(AG_STAT_WAITED_PRESSURE))
        blocks = ag_backend_release(context, blocks, room->timeout_ns);
    if (blocks) {
        room->in_vain = true;
        if (room->fails)
            atomic_store_explicit(&timed_out, true, memory_order_relaxed);
        ag_trace_step(AG_STAT_LADDER_IN_VAIN, context->device->ordinal, 0);
    }
    ag_cache_keep_all(&context->cache, blocks); /* those wait where they were */
    after = ag_cache_device_bytes(&context->cache);
    if (room->bytes != UINT64_MAX && after < before)
        room->bytes -= before - after < room->bytes ? before - after : room->bytes;
}

/* Meanwhile an allocation of another thread that finds nothing kept waits for what this one has. */
static void give_up_each(void (*give_up)(struct ag_context *context, void *room), struct room *room)
{
    atomic_fetch_add_explicit(&room->device->n_returning, 1, memory_order_seq_cst);
    ag_context_each(give_up, room);
    atomic_fetch_sub_explicit(&room->device->n_returning, 1, memory_order_seq_cst);
}

bool ag_pressure_make_room(struct ag_device *device, size_t bytes)
{
    uint64_t taken = atomic_load_explicit(&device->taken, memory_order_relaxed);
    struct room room = {device, bytes, frees_timeout(), .fails = true};

    if (device->limit == UINT64_MAX || bytes > ag_budget_left(device))
        return false;
    if (!ag_capture_is_open() && ag_guard_relieve(device, room.timeout_ns))
        taken = atomic_load_explicit(&device->taken, memory_order_relaxed);
    if (taken < device->limit)
        room.bytes -= device->limit - taken < room.bytes ? device->limit - taken : room.bytes;
    give_up_each(give_up_cached, &room);
    return true;
}

/* --- for what takes memory without failing --- */

#define YIELD_NS 200000000u /* more than most programs submit ahead; natively nothing waits here */

struct free_bytes {
    const struct ag_device *device;
    uint64_t bytes;
    bool known;
};

static void ask_free_of_device(struct ag_context *context, void *data)
{
    struct free_bytes *asked = data;
    size_t free_bytes, total_bytes;
    bool pushed;

    if (asked->known || context->device != asked->device ||
        ag_context_make_current(context, &pushed) != CUDA_SUCCESS)
        return;
    asked->known = ag_cu.cuMemGetInfo_v2(&free_bytes, &total_bytes) == CUDA_SUCCESS;
    if (asked->known)
        asked->bytes = free_bytes;
    ag_context_restore(pushed);
}

static void wait_for_pool(struct ag_context *context, void *device)
{
    if (context->device == device)
        (void)ag_private_stream_wait(context, YIELD_NS);
}

static void give_up_pooled(struct ag_device *device)
{
    if (!ag_once_is_done(&device->pool_state))
        return;
    ag_context_each(wait_for_pool, device);
    ag_pool_trim(device);
}

/* Gives back until `bytes` are free, or nothing is kept. */
static void make_free(struct ag_device *device, uint64_t bytes)
{
    struct free_bytes is = {.device = device};
    struct room room = {device, 0, YIELD_NS, .fails = false};

    ag_context_each(ask_free_of_device, &is);
    if (!is.known || is.bytes >= bytes)
        return;
    room.bytes = bytes - is.bytes;
    give_up_each(give_up_cached, &room);
    give_up_pooled(device);
}

void ag_pressure_yield(struct ag_device *device, size_t bytes)
{
    uint64_t moved;

    if (!device || device->is_integrated || !ag_cache_keeps() || ag_capture_is_open())
        return;
    if (bytes > device->total_bytes)
        bytes = device->total_bytes;
    moved = atomic_fetch_add_explicit(&device->moved, bytes, memory_order_relaxed) + bytes;
    if (moved < device->total_bytes / LOOK_SHARE)
        return;
    atomic_store_explicit(&device->moved, 0, memory_order_relaxed);
    if (ag_device_cached(device) || ag_once_is_done(&device->pool_state))
        make_free(device, moved + device->total_bytes / ROOM_SHARE);
}

/* --- for other processes --- */

#define LOOK_EVERY 8192u /* blocks: less than half a nanosecond for each */

_Thread_local uint32_t ag_pressure_unlooked = LOOK_EVERY;

/* What a cache of a full card may hold stays: the next allocations need it. */
static void give_up_excess(struct ag_context *context, void *data)
{
    const struct room *room = data;
    uint64_t limit = atomic_load_explicit(&room->device->cache_limit, memory_order_relaxed);

    if (context->device == room->device && ag_cache_device_bytes(&context->cache) > limit)
        give_up_cached(context, data);
}

void ag_pressure_look_beside(struct ag_device *device)
{
    struct free_bytes is = {.device = device};
    struct room room = {device, UINT64_MAX, YIELD_NS, .fails = false};

    ag_pressure_unlooked = LOOK_EVERY;
    if (device->is_integrated || ag_capture_is_open())
        return;
    ag_timing_is_slow();
    ag_context_each(ask_free_of_device, &is);
    if (!is.known)
        return;
    set_tight(device, is.bytes < device->total_bytes / ROOM_SHARE);
    if (!ag_pressure_is_tight(device))
        return;
    give_up_each(give_up_excess, &room);
    give_up_pooled(device);
}

/* --- when there is none left --- */

/* `all`: what others have, too. False: not all of it could go back in time. */
static bool relieve(struct ag_device *device, bool all)
{
    struct room room = {device, UINT64_MAX, frees_timeout(), .fails = true};

    if (!ag_capture_is_open()) { /* what is guarded is read first */
        (void)ag_guard_relieve(device, room.timeout_ns);
        if (all && others_give_back)
            others_give_back();
    }
    give_up_each(give_up_cached, &room);
    wait_for_frees(AG_STAT_WAITED_PRESSURE);
    if (!wait_for_others(device, true) && ag_device_is_returning(device, true))
        room.in_vain = true;
    ag_pool_trim(device);
    ag_managed_pool_trim(device);
    ag_app_pools_trim(device);
    (void)ag_handles_give_back(device, false);
    if (device->limit == UINT64_MAX && !device->is_integrated)
        set_tight(device, true); /* by the call that is to follow */
    ag_trace_step(AG_STAT_LADDER_TRIM, device->ordinal, 0);
    return !room.in_vain;
}

void ag_pressure_relieve(struct ag_device *device)
{
    (void)relieve(device, true);
}

#define MOST_RELIEFS 32u /* of one call, while others allocate and free */

/* Bytes that we have of the driver; UINT64_MAX while a thread is giving some back. */
static uint64_t bytes_of_driver(struct ag_device *device)
{
    return ag_device_is_returning(device, true)
               ? UINT64_MAX
               : atomic_load_explicit(&device->taken, memory_order_seq_cst);
}

bool ag_pressure_relieve_again(struct ag_device *device, struct ag_relief *relief)
{
    if (relief->n && (relief->n == MOST_RELIEFS || !relief->all ||
                      (relief->before != UINT64_MAX && relief->before == bytes_of_driver(device) &&
                       !ag_device_cached_room(device))))
        return false;
    relief->n++;
    relief->all = relieve(device, true);
    relief->before = bytes_of_driver(device);
    return true;
}

bool ag_pressure_may_have(struct ag_device *device, size_t bytes)
{
    if (bytes <= ag_budget_left(device))
        return true;
    (void)wait_for_others(device, true); /* they may be done by now */
    return bytes <= ag_budget_left(device);
}

bool ag_pressure_take_budget(struct ag_device *device, size_t bytes)
{
    struct ag_relief relief = {0};
    bool taken = ag_budget_take(device, bytes);

    if (taken || !ag_pressure_may_have(device, bytes))
        return taken;
    (void)ag_pressure_make_room(device, bytes);
    while (!(taken = ag_budget_take(device, bytes)) && ag_pressure_relieve_again(device, &relief))
        ;
    return taken;
}

static struct ag_device *current_device(void)
{
    struct ag_context *context = ag_context_current();

    return context ? context->device : NULL;
}

bool ag_pressure_relieve_for_call(struct ag_device *device, struct ag_relief *relief)
{
    if (!device)
        device = current_device();
    if (!device || !ag_pressure_relieve_again(device, relief))
        return false;
    ag_trace_step(AG_STAT_LADDER_OTHER, device->ordinal, 0);
    return true;
}

bool ag_pressure_relieve_for_withheld(void)
{
    struct ag_device *device = current_device();

    if (!device)
        return false;
    (void)relieve(device, false);
    ag_trace_step(AG_STAT_LADDER_OTHER, device->ordinal, 0);
    return true;
}
