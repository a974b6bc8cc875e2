/* The way of one allocation and of one free through the policy: the file to read first.
 *
 * Allocation: which context? -> decide.c: which placement? -> a cached block, or the backend's
 * driver call -> out of memory: pressure.c gives back, try again, then natively -> ledger.c.
 * Free: ledger.c: is it the program's? -> order.c: what must come first -> the cache, or the pool. */
#include "alloc.h"

#include "backend.h"
#include "base/clock.h"
#include "base/log.h"
#include "context.h"
#include "decide.h"
#include "driver.h"
#include "ledger.h"
#include "order.h"
#include "pressure.h"

static enum ag_policy policy = AG_POLICY_POOL;

static const struct ag_backend *const backends[AG_N_PLACEMENTS] = {
    [AG_PLACE_NATIVE] = &ag_backend_native,
    [AG_PLACE_POOL] = &ag_backend_pool,
    [AG_PLACE_MANAGED] = &ag_backend_managed,
};

/* Freed while a capture was open, under ALLOGRAFT_FREE=ordered. */
static _Atomic(struct ag_block *) set_aside;

void ag_alloc_configure(enum ag_policy new_policy)
{
    policy = new_policy;
}

/* --- allocation --- */

#define NO_BOOKS ((CUresult)-1) /* between functions of this file: no memory for the books */

/* A block of the placement, in the books and KEPT; the driver's error, or NO_BOOKS. */
static CUresult take_from_driver(struct ag_context *context, enum ag_placement place, size_t bytes,
                                 struct ag_block **ret_block)
{
    CUdeviceptr address;
    size_t size;
    CUresult result = backends[place]->allocate(context, bytes, &address, &size);

    if (result != CUDA_SUCCESS)
        return result;
    *ret_block = ag_ledger_enter(address, size, context, place);
    if (*ret_block)
        return CUDA_SUCCESS;
    (void)ag_cu.cuMemFree_v2(address);
    return NO_BOOKS;
}

static CUresult allocate_pool(struct ag_context *context, size_t bytes, struct ag_block **ret_block)
{
    size_t size = ag_cache_block_size(bytes);
    CUresult result;

    *ret_block = ag_cache_take(&context->cache, size);
    ag_stats_add(*ret_block ? AG_STAT_CACHE_HIT : AG_STAT_CACHE_MISS, 1);
    if (*ret_block)
        return CUDA_SUCCESS;
    result = take_from_driver(context, AG_PLACE_POOL, size, ret_block);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && ag_pressure_relieve(context->device))
        result = take_from_driver(context, AG_PLACE_POOL, bytes, ret_block);
    return result;
}

/* As the policy decides, else natively. The driver's own allocation has the last word on errors. */
static CUresult allocate(struct ag_context *context, struct ag_decision decision, size_t bytes,
                         struct ag_block **ret_block)
{
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;

    if (decision.place == AG_PLACE_POOL)
        result = allocate_pool(context, bytes, ret_block);
    else if (decision.place == AG_PLACE_MANAGED)
        result = take_from_driver(context, AG_PLACE_MANAGED, bytes, ret_block);
    if (result == CUDA_SUCCESS || result == NO_BOOKS)
        return result;
    if (decision.place != AG_PLACE_NATIVE)
        ag_stats_add(AG_STAT_FALLBACK_EXHAUSTED, 1);
    result = take_from_driver(context, AG_PLACE_NATIVE, bytes, ret_block);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && ag_pressure_relieve(context->device))
        result = take_from_driver(context, AG_PLACE_NATIVE, bytes, ret_block);
    return result;
}

static struct ag_decision decide(struct ag_context *context, size_t bytes, bool exported)
{
    struct ag_request request = {
        .bytes = bytes, .capture_open = ag_order_capture_open(), .exported = exported};
    struct ag_facts facts = {.known_context = context != NULL};
    struct ag_decision decision;

    if (context && !request.capture_open && policy == AG_POLICY_POOL)
        facts.has_pool = ag_backend_pool.ready(context->device);
    if (context && policy == AG_POLICY_MANAGED)
        facts.has_managed = ag_backend_managed.ready(context->device);
    decision = ag_decide(&request, &facts, policy);
    if (decision.fallback == AG_STAT_FALLBACK_NO_MANAGED && !ag_stats_counter(decision.fallback))
        ag_log_warn("device %d has no concurrent managed access: its memory stays native",
                    context->device->ordinal);
    if (decision.fallback != AG_N_STATS)
        ag_stats_add(decision.fallback, 1);
    return decision;
}

/* Memory that we keep no books of is the driver's in every way. */
static CUresult allocate_unseen(CUdeviceptr *ret_address, size_t bytes, struct ag_context *context)
{
    CUresult result = ag_cu.cuMemAlloc_v2(ret_address, bytes);

    if (result == CUDA_ERROR_OUT_OF_MEMORY && ag_pressure_relieve(context->device))
        result = ag_cu.cuMemAlloc_v2(ret_address, bytes);
    ag_stats_add(AG_STAT_FALLBACK_NO_BOOKS, 1);
    ag_stats_add(AG_STAT_PASSED, 1);
    return result;
}

CUresult ag_alloc(CUdeviceptr *ret_address, size_t bytes, bool exported)
{
    uint64_t began = ag_clock_ticks();
    struct ag_context *context = ag_context_current();
    struct ag_decision decision;
    struct ag_block *block;
    CUresult result;

    if (!ret_address || !bytes || !context) {
        ag_stats_add(AG_STAT_PASSED, 1);
        return ag_cu.cuMemAlloc_v2(ret_address, bytes);
    }
    decision = decide(context, bytes, exported);
    result = allocate(context, decision, bytes, &block);
    if (result == NO_BOOKS)
        return allocate_unseen(ret_address, bytes, context);
    if (result != CUDA_SUCCESS) {
        ag_stats_failed(context->device->ordinal, decision.place);
        return result;
    }
    *ret_address = block->address;
    ag_stats_allocated(context->device->ordinal, block->placement, bytes, ag_clock_ticks() - began);
    ag_stats_add(block->placement == AG_PLACE_NATIVE ? AG_STAT_PASSED : AG_STAT_REDIRECTED, 1);
    ag_ledger_give(block, bytes);
    return CUDA_SUCCESS;
}

/* --- rows of equal pitch --- */

/* The driver's own rows, after what we keep was given back if they do not fit beside it. */
static CUresult allocate_rows(CUdeviceptr *ret_address, size_t *ret_pitch, size_t width,
                              size_t height, unsigned element_bytes)
{
    CUresult result =
        ag_cu.cuMemAllocPitch_v2(ret_address, ret_pitch, width, height, element_bytes);

    if (result == CUDA_ERROR_OUT_OF_MEMORY && ag_pressure_relieve_current())
        result = ag_cu.cuMemAllocPitch_v2(ret_address, ret_pitch, width, height, element_bytes);
    return result;
}

/* What the driver makes of rows of `width` bytes; 0 when it fails. */
static size_t ask_pitch(size_t width)
{
    CUdeviceptr address;
    size_t pitch;

    if (allocate_rows(&address, &pitch, width, 1, 4) != CUDA_SUCCESS)
        return 0;
    (void)ag_cu.cuMemFree_v2(address);
    return pitch;
}

/* The driver rounds rows up to a power of two; three questions tell which. SIZE_MAX when it answers
 * something else, 0 when it did not answer. In the current context. */
static size_t ask_granule(void)
{
    size_t granule = ask_pitch(1);
    size_t next = granule ? ask_pitch(granule + 1) : 0;
    size_t exact = next ? ask_pitch(5 * granule) : 0;

    if (!exact)
        return 0;
    if ((granule & (granule - 1)) || next != 2 * granule || exact != 5 * granule)
        return SIZE_MAX;
    return granule;
}

void ag_alloc_learn_pitch(struct ag_context *context)
{
    _Atomic size_t *granule = &context->device->pitch_granule;
    bool pushed;

    if (policy == AG_POLICY_NATIVE || atomic_load_explicit(granule, memory_order_relaxed) ||
        ag_order_capture_open() || ag_context_make_current(context, &pushed) != CUDA_SUCCESS)
        return;
    atomic_store_explicit(granule, ask_granule(), memory_order_relaxed);
    ag_context_restore(pushed);
}

/* The pitch natively, or 0 when only the driver can tell or would refuse. */
static size_t pitch_of(struct ag_device *device, size_t width, size_t height, size_t *ret_bytes)
{
    size_t granule = atomic_load_explicit(&device->pitch_granule, memory_order_relaxed), pitch;

    if (!granule || granule == SIZE_MAX || width > SIZE_MAX - granule)
        return 0;
    pitch = (width + granule - 1) & ~(granule - 1);
    return __builtin_mul_overflow(pitch, height, ret_bytes) ? 0 : pitch;
}

CUresult ag_alloc_pitch(CUdeviceptr *ret_address, size_t *ret_pitch, size_t width, size_t height,
                        unsigned element_bytes, bool exported)
{
    struct ag_context *context = ag_context_current();
    bool known_element = element_bytes == 4 || element_bytes == 8 || element_bytes == 16;
    size_t pitch, bytes;
    CUresult result;

    if (!ret_address || !ret_pitch || !width || !height || !known_element || !context ||
        policy == AG_POLICY_NATIVE || ag_order_capture_open()) {
        ag_stats_add(AG_STAT_PASSED, 1);
        return ag_cu.cuMemAllocPitch_v2(ret_address, ret_pitch, width, height, element_bytes);
    }
    pitch = pitch_of(context->device, width, height, &bytes);
    if (!pitch) {
        ag_stats_add(AG_STAT_FALLBACK_PITCH, 1);
        return allocate_rows(ret_address, ret_pitch, width, height, element_bytes);
    }
    result = ag_alloc(ret_address, bytes, exported);
    /* The driver tells the pitch also of rows for which there is no room. */
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY)
        *ret_pitch = pitch;
    return result;
}

/* --- free --- */

/* A KEPT pool block whose users are ordered before now. */
static void keep_or_release(struct ag_block *block)
{
    struct ag_context *context = block->context;
    struct ag_block *out =
        ag_cache_keep(&context->cache, block, ag_pressure_cache_limit(context->device));

    if (!out)
        return;
    out = ag_pool_release(context, out);
    while (out) { /* not now: over the limit, until they can go */
        struct ag_block *next = out->next;

        (void)ag_cache_keep(&context->cache, out, UINT64_MAX);
        out = next;
    }
    ag_pressure_bound_pending(context->device);
}

static void put_aside(struct ag_block *block)
{
    struct ag_block *first = atomic_load_explicit(&set_aside, memory_order_relaxed);

    do {
        block->next = first;
    } while (!atomic_compare_exchange_weak_explicit(&set_aside, &first, block, memory_order_seq_cst,
                                                    memory_order_relaxed));
    if (!ag_order_capture_open()) /* it closed meanwhile */
        ag_alloc_capture_closed();
}

void ag_alloc_capture_closed(void)
{
    struct ag_block *blocks = atomic_exchange_explicit(&set_aside, NULL, memory_order_seq_cst);

    while (blocks) {
        struct ag_block *block = blocks;
        bool again = false;

        blocks = block->next;
        /* After an error the context is broken: the block stays in the books until that goes. */
        if (ag_order_free(block->context, &again) != CUDA_SUCCESS)
            continue;
        if (again)
            put_aside(block);
        else
            keep_or_release(block);
    }
}

static CUresult free_pool(struct ag_block *block)
{
    bool aside;
    CUresult result = ag_order_free(block->context, &aside);

    if (result != CUDA_SUCCESS)
        return result;
    if (aside)
        put_aside(block);
    else
        keep_or_release(block);
    return CUDA_SUCCESS;
}

/* Native and managed memory: the driver's own free waits as it must. */
static CUresult free_native(struct ag_block *block)
{
    struct ag_block copy = *block;
    CUresult result;

    ag_ledger_remove(block);
    result = ag_cu.cuMemFree_v2(copy.address);
    if (result == CUDA_SUCCESS) {
        ag_stats_add(AG_STAT_FREE_NATIVE, 1);
        return result;
    }
    ag_stats_add(AG_STAT_FREE_REFUSED, 1);
    block = ag_ledger_enter(copy.address, copy.size, copy.context, copy.placement);
    if (block)
        ag_ledger_give(block, copy.requested);
    return result;
}

CUresult ag_free(CUdeviceptr address)
{
    uint64_t began = ag_clock_ticks();
    struct ag_block *block;
    enum ag_placement place;
    enum ag_claim claim;
    CUresult result;
    size_t bytes;
    int device;

    if (!address)
        return ag_cu.cuMemFree_v2(address);
    claim = ag_ledger_claim(address, &block);
    if (claim == AG_CLAIM_NOT_LIVE)
        return CUDA_ERROR_INVALID_VALUE;
    if (claim == AG_CLAIM_UNKNOWN) {
        /* The program's own pool memory goes at once: work that natively was done may still use it. */
        if (ag_order_owes())
            ag_order_pay(AG_STAT_PAID_DESTROY);
        return ag_cu.cuMemFree_v2(address);
    }
    place = block->placement;
    bytes = atomic_load_explicit(&block->requested, memory_order_relaxed);
    device = block->context->device->ordinal;
    result = place == AG_PLACE_POOL ? free_pool(block) : free_native(block);
    if (result == CUDA_SUCCESS)
        ag_stats_freed(device, place, bytes, ag_clock_ticks() - began);
    else if (place == AG_PLACE_POOL)
        ag_ledger_give(block, bytes);
    return result;
}

/* Gives up a claimed block in stream order; the books have it no more. */
static CUresult free_in_stream_order(struct ag_block *block, CUstream stream,
                                     CUresult (*free_async)(CUdeviceptr, CUstream),
                                     CUresult (*synchronize)(CUstream))
{
    CUdeviceptr address = block->address;
    enum ag_placement place = block->placement;
    CUresult result = CUDA_SUCCESS;

    ag_ledger_remove(block);
    if (place != AG_PLACE_MANAGED)
        return free_async(address, stream);
    /* The driver frees no managed memory in stream order. */
    result = synchronize(stream);
    return result == CUDA_SUCCESS ? ag_cu.cuMemFree_v2(address) : result;
}

CUresult ag_free_async(CUdeviceptr address, CUstream stream,
                       CUresult (*free_async)(CUdeviceptr, CUstream),
                       CUresult (*synchronize)(CUstream))
{
    struct ag_block *block, copy;
    CUresult result;

    switch (address ? ag_ledger_claim(address, &block) : AG_CLAIM_UNKNOWN) {
    case AG_CLAIM_UNKNOWN:
        return free_async(address, stream);
    case AG_CLAIM_NOT_LIVE:
        return CUDA_ERROR_INVALID_VALUE;
    case AG_CLAIM_OURS:
        break;
    }
    copy = *block;
    result = free_in_stream_order(block, stream, free_async, synchronize);
    if (result == CUDA_SUCCESS) {
        ag_stats_freed(copy.context->device->ordinal, copy.placement, copy.requested, 0);
        ag_stats_add(AG_STAT_FREE_NATIVE, 1);
        return result;
    }
    block = ag_ledger_enter(address, copy.size, copy.context, copy.placement);
    if (block)
        ag_ledger_give(block, copy.requested);
    return result;
}

/* --- the end of a context --- */

/* Leaves only other contexts' blocks on the list of what was set aside. */
static void forget_set_aside(const struct ag_context *context)
{
    struct ag_block *blocks = atomic_exchange_explicit(&set_aside, NULL, memory_order_seq_cst);

    while (blocks) {
        struct ag_block *block = blocks;

        blocks = block->next;
        if (block->context != context)
            put_aside(block);
    }
}

/* Pool memory is not of a context: it stays unless it is freed. */
static void give_up(CUdeviceptr address, struct ag_block *block)
{
    ag_ledger_remove(block);
    if (ag_cu.cuMemFree_v2(address) != CUDA_SUCCESS)
        (void)ag_cu.cuMemFree_v2(address); /* nobody else will ever free it */
}

void ag_alloc_context_dying(struct ag_context *context)
{
    struct ag_block *blocks;
    bool pushed;
    bool current = ag_context_make_current(context, &pushed) == CUDA_SUCCESS;

    if (current && !ag_order_capture_open())
        (void)ag_cu.cuCtxSynchronize();
    (void)ag_cache_empty(&context->cache);
    forget_set_aside(context);
    for (blocks = ag_ledger_claim_all(context); blocks;) {
        struct ag_block *block = blocks;

        blocks = block->next;
        if (block->state == AG_BLOCK_LIVE)
            ag_stats_freed(context->device->ordinal, block->placement, block->requested, 0);
        if (block->placement == AG_PLACE_POOL)
            give_up(block->address, block);
        else
            ag_ledger_remove(block); /* goes with the context */
    }
    ag_pool_trim(context->device);
    ag_context_restore(pushed);
    ag_order_settle(context);
}
