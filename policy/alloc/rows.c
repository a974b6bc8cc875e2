/* Rows of equal pitch, as the driver would lay them out. */
#include "policy/alloc/alloc.h"

#include "interpose/core/driver/driver.h"
#include "interpose/core/report/stats.h"
#include "interpose/core/report/timing.h"
#include "interpose/core/report/trace/trace.h"
#include "policy/alloc/hand_over.h"
#include "policy/alloc/notes.h"
#include "policy/alloc/plan.h"
#include "policy/budget.h"
#include "policy/contexts/enter.h"
#include "policy/order/capture.h"
#include "policy/pressure.h"

/* The driver's own pitched allocation, tried again after we have freed what we hold. */
static CUresult allocate_rows(CUdeviceptr *ret_address, size_t *ret_pitch, size_t width,
                              size_t height, unsigned element_bytes)
{
    CUresult result =
        ag_cu.cuMemAllocPitch_v2(ret_address, ret_pitch, width, height, element_bytes);
    struct ag_relief relief = {0};

    while (result == CUDA_ERROR_OUT_OF_MEMORY && ag_pressure_relieve_for_call(NULL, &relief))
        result = ag_cu.cuMemAllocPitch_v2(ret_address, ret_pitch, width, height, element_bytes);
    return result;
}

/* What the driver has given already, of the budget, and KEPT, in the ledger; else the driver has it
 * again. */
static struct ag_block *enter_rows(struct ag_context *context, CUdeviceptr address, size_t bytes,
                                   struct ag_mem_desc desc)
{
    struct ag_block *block = ag_ledger_enter(address, bytes, context, desc);

    if (block) {
        ag_budget_note_given(context->device, desc, bytes);
    } else {
        ag_budget_give(context->device, bytes);
        (void)ag_cu.cuMemFree_v2(address);
    }
    return block;
}

/* Rows that nobody will use: allocated for their pitch alone, or without room for them. Kept until
 * room is made, since a free would wait for what is in flight, and no allocation does natively. */
static void keep_rows(struct ag_context *context, CUdeviceptr address, size_t bytes)
{
    const struct ag_mem_desc cached = {.source = AG_SOURCE_CACHED};
    struct ag_block *block;

    ag_budget_overdraw(context->device, bytes);
    block = enter_rows(context, address, bytes, cached);
    if (block)
        (void)ag_cache_keep(&context->cache, block, UINT64_MAX);
}

/* What the driver makes of rows of `width` bytes; 0 when it fails. */
static size_t ask_pitch(struct ag_context *context, size_t width)
{
    CUdeviceptr address;
    size_t pitch;

    if (allocate_rows(&address, &pitch, width, 1, 4) != CUDA_SUCCESS)
        return 0;
    keep_rows(context, address, pitch);
    return pitch;
}

/* The driver rounds rows up to a power of two; three questions find out which. SIZE_MAX when it
 * answers something else, 0 when it did not answer. In the current context. */
static size_t ask_granule(struct ag_context *context)
{
    size_t granule = ask_pitch(context, 1);
    size_t next = granule ? ask_pitch(context, granule + 1) : 0;
    size_t exact = next ? ask_pitch(context, 5 * granule) : 0;

    if (!exact)
        return 0;
    if ((granule & (granule - 1)) || next != 2 * granule || exact != 5 * granule)
        return SIZE_MAX;
    return granule;
}

/* The granule of pitched rows, asked for once a device, at its first pitched allocation. Relaxed:
 * each thread is told the same. */
static size_t granule_of(struct ag_context *context)
{
    _Atomic size_t *known = &context->device->pitch_granule;
    size_t granule = atomic_load_explicit(known, memory_order_relaxed);
    bool pushed;

    if (granule || ag_capture_is_open() ||
        ag_context_make_current(context, &pushed) != CUDA_SUCCESS)
        return granule;
    granule = ask_granule(context);
    atomic_store_explicit(known, granule, memory_order_relaxed);
    ag_context_restore(pushed);
    return granule;
}

/* The pitch natively, or 0 when only the driver can tell or would refuse. */
static size_t pitch_of(struct ag_context *context, size_t width, size_t height, size_t *ret_bytes)
{
    size_t granule = granule_of(context), pitch;

    if (!granule || granule == SIZE_MAX || width > SIZE_MAX - granule)
        return 0;
    pitch = (width + granule - 1) & ~(granule - 1);
    return __builtin_mul_overflow(pitch, height, ret_bytes) ? 0 : pitch;
}

/* Rows that the driver gave are of the budget as well, and go back to it as native memory. What our
 * caches have makes room for them. */
static CUresult budget_rows(struct ag_context *context, CUdeviceptr address, size_t bytes,
                            const void *caller)
{
    const struct ag_mem_desc native = {.source = AG_SOURCE_NATIVE};
    struct ag_block *block = NULL;

    if (ag_pressure_take_budget(context->device, bytes))
        block = enter_rows(context, address, bytes, native);
    else
        keep_rows(context, address, bytes);
    if (!block) {
        ag_trace_step(AG_STAT_BUDGET_HIT, context->device->ordinal, bytes);
        ag_note_failed(context->device->ordinal, AG_PLACE_NATIVE, bytes, caller,
                       CUDA_ERROR_OUT_OF_MEMORY);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    ag_note_allocated(block, bytes, caller);
    ag_hand_over(block, bytes);
    return CUDA_SUCCESS;
}

CUresult ag_alloc_pitch(CUdeviceptr *ret_address, size_t *ret_pitch, size_t width, size_t height,
                        unsigned element_bytes, const void *caller)
{
    struct ag_context *context = ag_context_current();
    bool known_element = element_bytes == 4 || element_bytes == 8 || element_bytes == 16;
    size_t pitch, bytes;
    CUresult result;

    if (!ret_address || !ret_pitch || !width || !height || !known_element || !context ||
        !ag_plan_redirects()) {
        ag_stats_add(AG_STAT_PASSED, 1);
        return ag_cu.cuMemAllocPitch_v2(ret_address, ret_pitch, width, height, element_bytes);
    }
    pitch = pitch_of(context, width, height, &bytes);
    if (!pitch) {
        ag_stats_add(AG_STAT_FALLBACK_PITCH, 1);
        ag_timing_begin();
        ag_timing_is_slow();
        result = allocate_rows(ret_address, ret_pitch, width, height, element_bytes);
        return result == CUDA_SUCCESS && ag_budget_is_limited()
                   ? budget_rows(context, *ret_address, *ret_pitch * height, caller)
                   : result;
    }
    result = ag_alloc(ret_address, bytes, caller);
    /* The driver tells the pitch also of rows for which there is no room. */
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY)
        *ret_pitch = pitch;
    return result;
}
