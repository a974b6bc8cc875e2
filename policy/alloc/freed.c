/* One free: ordered after the work that may use the block, then kept, or given back. */
#include "policy/alloc/freed.h"

#include "interpose/core/base/threads/wait.h"
#include "interpose/core/driver/driver.h"
#include "interpose/core/report/stats.h"
#include "interpose/core/report/timing.h"
#include "policy/alloc/alloc.h"
#include "policy/alloc/hand_over.h"
#include "policy/alloc/native.h"
#include "policy/alloc/notes.h"
#include "policy/alloc/room.h"
#include "policy/backends/backend.h"
#include "policy/backends/private_pool.h"
#include "policy/budget.h"
#include "policy/churn.h"
#include "policy/guard/guard.h"
#include "policy/ipc/ipc.h"
#include "policy/managed/spill.h"
#include "policy/order/capture.h"
#include "policy/order/free.h"
#include "policy/order/host_wait.h"
#include "policy/paging/place.h"
#include "policy/paging/ranges.h"
#include "policy/pressure.h"
#include "policy/slab.h"

/* Freed while a capture was open, under ALLOGRAFT_FREE=ordered. Relaxed here and below are loads
 * before an exchange, of a block in the caller's hands, and of bounds that may be seen late. */
static _Atomic(struct ag_block *) set_aside;
/* How often threads have begun to order what was set aside, all of which one of them takes out at
 * once, and how often that has ended. */
static _Atomic unsigned n_begun, n_ended;

static void put_aside(struct ag_block *block)
{
    struct ag_block *first = atomic_load_explicit(&set_aside, memory_order_relaxed);

    do {
        block->next = first;
    } while (!atomic_compare_exchange_weak_explicit(&set_aside, &first, block, memory_order_seq_cst,
                                                    memory_order_relaxed));
    if (!ag_capture_is_open()) /* it closed meanwhile */
        ag_alloc_capture_closed();
}

static void forget_those_of(const struct ag_context *context)
{
    struct ag_block *blocks = atomic_exchange_explicit(&set_aside, NULL, memory_order_seq_cst);

    while (blocks) {
        struct ag_block *block = blocks;

        blocks = block->next;
        if (block->context != context)
            put_aside(block);
    }
}

/* Blocks of the context may be in the hands of another thread, which may set them aside again:
 * there are none left once none had any before it was looked, and none has begun since. */
void ag_freed_forget_aside(const struct ag_context *context)
{
    struct ag_wait wait = {0};
    unsigned begun;

    for (;;) {
        begun = atomic_load_explicit(&n_begun, memory_order_seq_cst);
        if (atomic_load_explicit(&n_ended, memory_order_seq_cst) == begun) {
            forget_those_of(context);
            if (atomic_load_explicit(&n_begun, memory_order_seq_cst) == begun)
                return;
        }
        ag_wait_pause(&wait);
    }
}

/* Returns what the cache has no room for to the device, which is nearly full. */
static void release_for_good(struct ag_context *context, struct ag_block *out)
{
    size_t bytes = 0;

    for (const struct ag_block *block = out; block; block = block->next)
        bytes += block->size;
    ag_room_give_back_for_good(context, out);
    ag_pressure_returned(context->device, bytes);
}

/* What the cache had no room for goes back. */
__attribute__((noinline)) static void give_back_evicted(struct ag_context *context,
                                                        struct ag_block *out)
{
    struct ag_device *device = context->device;
    bool waits = ag_host_wait_pending() && ag_backend_waits_for(out);

    atomic_fetch_add_explicit(&device->n_evicting, 1, memory_order_seq_cst);
    if (ag_pressure_is_tight(device) && !ag_capture_is_open() && !ag_budget_keeps_all(device))
        release_for_good(context, out);
    else
        (void)ag_room_give_back(context, out, UINT64_MAX);
    atomic_fetch_sub_explicit(&device->n_evicting, 1, memory_order_seq_cst);
    if (!ag_pressure_bound_pending(device) && waits)
        ag_stats_add(AG_STAT_WAITED_RETURN, 1);
}

static inline uint64_t cache_limit(const struct ag_device *device)
{
    return atomic_load_explicit(&device->cache_limit, memory_order_relaxed);
}

/* The cache may not hold more, and not since the device is nearly full. */
static void count_over_limit(const struct ag_device *device, const struct ag_block *blocks)
{
    uint64_t n = 0;

    for (; blocks; blocks = blocks->next)
        n++;
    if (!ag_pressure_is_tight(device))
        ag_stats_add(AG_STAT_CACHE_FULL, n);
}

void ag_freed_movable(const struct ag_block *block)
{
    ag_place_end(block->address);
    ag_range_end_pool(block->address);
}

/* A KEPT block whose users are ordered before now. */
static inline void keep_or_release(struct ag_block *block)
{
    struct ag_context *context = block->context;
    const struct ag_slab *slab = ag_block_slab(block);
    bool closed = slab && ag_slab_is_closed(slab);
    enum ag_ipc_sharing sharing;
    bool keeps;
    struct ag_block *out = NULL;

    ag_note_larger_freed(block);
    if (block->desc.source == AG_SOURCE_MOVABLE)
        ag_freed_movable(block);
    if (closed && ag_capture_is_open()) { /* its slab may not go, and must not be kept */
        put_aside(block);
        return;
    }
    sharing = ag_ipc_hold(block);
    keeps = sharing == AG_IPC_NOT_SHARED && !closed &&
            atomic_load_explicit(&block->sync_memops, memory_order_relaxed) == AG_SYNC_NOT_SET;
    if (sharing != AG_IPC_OPEN_ELSEWHERE)
        out = ag_cache_keep(&context->cache, block, keeps ? cache_limit(context->device) : 0);
    if (!out) {
        ag_pressure_kept(context->device);
        return;
    }
    if (keeps)
        count_over_limit(context->device, out);
    give_back_evicted(context, out);
}

static void order_those_set_aside(void)
{
    struct ag_block *blocks = atomic_exchange_explicit(&set_aside, NULL, memory_order_seq_cst);

    while (blocks) {
        struct ag_block *block = blocks;
        bool again = false;

        blocks = block->next;
        /* After an error the context is broken: the block stays in the ledger until that goes. */
        if (ag_free_order(block->context, &again) != CUDA_SUCCESS)
            continue;
        if (again)
            put_aside(block);
        else
            keep_or_release(block);
    }
}

void ag_alloc_capture_closed(void)
{
    atomic_fetch_add_explicit(&n_begun, 1, memory_order_seq_cst);
    order_those_set_aside();
    atomic_fetch_add_explicit(&n_ended, 1, memory_order_seq_cst);
}

static inline CUresult free_ordered(struct ag_block *block)
{
    bool aside;
    CUresult result = ag_free_order(block->context, &aside);

    if (result != CUDA_SUCCESS)
        return result;
    if (aside)
        put_aside(block);
    else
        keep_or_release(block);
    /* The capture of a thread that has ended closes without a call. */
    if (__builtin_expect(atomic_load_explicit(&set_aside, memory_order_relaxed) != NULL, 0) &&
        !ag_capture_is_open())
        ag_alloc_capture_closed();
    return CUDA_SUCCESS;
}

CUresult ag_freed_ordered(struct ag_block *block)
{
    return free_ordered(block);
}

/* Frees natively, and counts, a block whose free nothing else has counted. */
static CUresult free_native_and_count(struct ag_block *block)
{
    CUresult result = ag_native_free(block, false, NULL);

    ag_stats_add(result == CUDA_SUCCESS ? AG_STAT_FREE_NATIVE : AG_STAT_FREE_REFUSED, 1);
    return result;
}

/* Is the block the driver's again as soon as the program frees it? What the driver gave a handle of
 * never becomes anybody else's; what the cache has no room for, or no request, would only be
 * ordered in vain. A piece of a slab is none of the driver's. */
static inline bool is_freed_natively(struct ag_block *block)
{
    struct ag_device *device = block->context->device;
    bool keeps;

    if (block->desc.source == AG_SOURCE_MOVABLE)
        return ag_block_export_number(block) != 0;
    if (block->desc.source != AG_SOURCE_CACHED)
        return block->desc.source == AG_SOURCE_NATIVE || block->desc.source == AG_SOURCE_PAGED;
    keeps = ag_churn_keeps(&device->churn);
    if (ag_block_slab(block))
        return false;
    if (!keeps || !ag_cache_is_block_size(block->size) || ag_block_export_number(block))
        return true;
    if (block->size <= cache_limit(device))
        return false;
    if (!ag_pressure_is_tight(device))
        ag_stats_add(AG_STAT_CACHE_FULL, 1);
    return true;
}

/* `block` is KEPT and the caller's; the program's again when the free is refused. */
static inline CUresult free_block(struct ag_block *block)
{
    bool native = is_freed_natively(block);
    CUresult result;

    result = native ? free_native_and_count(block) : free_ordered(block);
    if (result != CUDA_SUCCESS && !native)
        ag_hand_over_again(block);
    return result;
}

/* A guarded block, or pages whose guard failed: the free comes once all work of the context is
 * done, as natively. */
static CUresult free_guarded(struct ag_block *block, const void *caller)
{
    bool captured = ag_capture_is_open(), guarded = ag_block_guarded(block) != NULL, aside;
    CUresult result = ag_free_order(block->context, &aside);

    if (result != CUDA_SUCCESS) {
        ag_ledger_give_again(block);
        return result;
    }
    ag_hand_back(block);
    if (guarded &&
        ag_guard_end(block, caller, captured || aside ? AG_GUARD_CAPTURED : AG_GUARD_CHECK))
        return CUDA_SUCCESS;
    if (aside)
        put_aside(block);
    else if (is_freed_natively(block))
        return ag_native_free(block, guarded, caller);
    else
        keep_or_release(block);
    return CUDA_SUCCESS;
}

void ag_freed_unguarded(struct ag_block *block)
{
    if (is_freed_natively(block))
        (void)ag_native_free(block, false, NULL);
    else
        keep_or_release(block);
}

/* A KEPT block of a pool of captures: what natively was done by now is, or is ordered, and the pool
 * keeps it. */
static CUresult free_private(struct ag_block *block)
{
    bool aside;
    CUresult result = ag_private_of_thread ? CUDA_SUCCESS : ag_free_order(block->context, &aside);

    if (result != CUDA_SUCCESS) {
        ag_hand_over_again(block);
        return result;
    }
    if (ag_private_keep(block))
        return CUDA_SUCCESS;
    return ag_private_of_thread ? free_native_and_count(block) : ag_native_free(block, false, NULL);
}

/* A block that is not just device memory. */
__attribute__((noinline)) static CUresult free_special(struct ag_block *block, const void *caller)
{
    if (ag_block_guarded(block) || block->desc.source == AG_SOURCE_PAGED)
        return free_guarded(block, caller);
    if (ag_block_private_pool(block))
        return free_private(block);
    ag_hand_back(block);
    return free_block(block);
}

/* Does the driver know a block of ours by it, which the program has under another address? */
static bool is_of_guarded(CUdeviceptr address)
{
    struct ag_block_seen seen;

    return ag_guard_look(address, &seen);
}

/* What is not the program's, or not ours. */
__attribute__((noinline)) static CUresult free_foreign(CUdeviceptr address, enum ag_claim claim)
{
    if (claim == AG_CLAIM_NOT_LIVE || is_of_guarded(address))
        return CUDA_ERROR_INVALID_VALUE;
    /* The program's own pool memory goes at once: work that natively was done may still use it. */
    if (address && ag_host_wait_pending())
        ag_host_wait_complete(AG_STAT_WAITED_DESTROY);
    return ag_cu.cuMemFree_v2(address);
}

CUresult ag_free(CUdeviceptr address, const void *caller)
{
    struct ag_block *block, *claimed;
    struct ag_device *device;
    enum ag_claim claim;
    enum ag_placement place;
    size_t bytes;
    CUresult result;

    ag_timing_begin();
    claim = address ? ag_ledger_claim(address, &claimed) : AG_CLAIM_UNKNOWN;
    if (claim != AG_CLAIM_OURS)
        return free_foreign(address, claim);
    block = claimed;
    place = (enum ag_placement)block->placement;
    bytes = atomic_load_explicit(&block->requested, memory_order_relaxed);
    device = block->context->device;
    if (ag_block_rare(block) || !ag_mem_desc_is_plain_device(block->desc))
        result = free_special(block, caller);
    else
        result = free_block(block);
    if (result != CUDA_SUCCESS)
        return result;
    ag_note_freed((struct ag_freed){
        .address = address,
        .bytes = bytes,
        .caller = caller,
        .device = device->ordinal,
        .place = place,
        .timed = ag_timing_end(),
    });
    ag_spill_move_back(device);
    return result;
}
