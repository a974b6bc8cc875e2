/* The program's own stream-ordered allocations and frees: see app_async.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "policy/app/app_async.h"

#include "interpose/core/base/threads/helper.h"
#include "policy/contexts/enter.h"

#include "interpose/core/driver/driver.h"
#include "interpose/core/report/trace/trace.h"
#include "interpose/core/settings/caller.h"
#include "policy/alloc/alloc.h"
#include "policy/alloc/later.h"
#include "policy/answers/lookup.h"
#include "policy/app/app_pools.h"
#include "policy/backends/managed_pool.h"
#include "policy/backends/private_pool.h"
#include "policy/budget.h"
#include "policy/contexts/context.h"
#include "policy/guard/guard.h"
#include "policy/held.h"
#include "policy/inject.h"
#include "policy/ledger.h"
#include "policy/order/capture.h"
#include "policy/paging/ranges.h"
#include "policy/pressure.h"

static const struct ag_rules *rules; /* NULL: none has another async=, or fails such calls */
static bool any_page;                /* any of them says async=page */
static bool oversubscribe;

static enum ag_async said_by(const struct ag_rule *rule)
{
    return (rule->says & 1u << AG_SAYS_ASYNC) ? rule->params.async : AG_ASYNC_PASS;
}

void ag_app_async_configure(const struct ag_rules *new_rules, bool new_oversubscribe)
{
    rules = NULL;
    any_page = false;
    oversubscribe = new_oversubscribe;
    for (unsigned i = 0; new_rules && i < new_rules->n; i++) {
        if (said_by(&new_rules->rule[i]) != AG_ASYNC_PASS || ag_inject_any(AG_CALL_ASYNC))
            rules = new_rules;
        any_page |= said_by(&new_rules->rule[i]) == AG_ASYNC_PAGE;
    }
}

/* --- what is known of a stream --- */

static bool is_builtin(CUstream stream)
{
    return !stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

/* The device that a stream is on, NULL when unknown. Asks the driver only where there are
 * several. */
static struct ag_device *device_of_stream(CUstream stream)
{
    struct ag_context *context = NULL;
    CUcontext handle = NULL;

    if (!ag_device_met(1))
        return ag_device_met(0);
    if (!is_builtin(stream) && ag_cu.cuStreamGetCtx && !ag_capture_is_open() &&
        ag_cu.cuStreamGetCtx(stream, &handle) == CUDA_SUCCESS)
        context = ag_context_find(handle);
    if (!context)
        context = ag_context_current();
    return context ? context->device : NULL;
}

/* NULL for a pool of the host, and where it is not known. */
static struct ag_device *device_of_row(unsigned row)
{
    int ordinal = ag_stats.app_pools[row].device;
    struct ag_device *device = NULL;

    for (unsigned i = 0; ordinal >= 0 && (device = ag_device_met(i)); i++) {
        if (device->ordinal == ordinal)
            break;
    }
    return device;
}

/* --- allocation --- */

/* One call of the program. */
struct request {
    CUdeviceptr *ret_address;
    size_t bytes;
    CUstream stream;
    bool per_thread;
    const void *caller;
    uint64_t began; /* ticks; 0 where nobody traces */
};

/* NULL stands for the legacy stream alone. */
static CUstream stream_apart(const struct request *request)
{
    return !request->stream && request->per_thread ? CU_STREAM_PER_THREAD : request->stream;
}

static void trace_request(const struct request *request, enum ag_trace_kind kind,
                          CUdeviceptr address, const struct ag_device *device, CUresult result)
{
    ag_trace_add(&(struct ag_trace_event){
        .kind = (uint8_t)kind,
        .ticks = request->began,
        .duration = ag_clock_ticks() - request->began,
        .device = (int16_t)(device ? device->ordinal : AG_TRACE_NO_DEVICE),
        .placement = AG_TRACE_PLACE_APP_POOL,
        .address = address,
        .size = request->bytes,
        .stream = (uintptr_t)stream_apart(request),
        .caller = (uintptr_t)request->caller,
        .code = (uint16_t)result,
    });
}

static CUresult count_result(CUresult result, unsigned row, const struct request *request)
{
    ag_guard_note_other();
    if (result != CUDA_SUCCESS) {
        ag_stats_app_pool(row, AG_APP_FAILED, 1);
        if (ag_holders_on())
            ag_held_note(result, AG_HELD_POOL, 0, request->bytes, device_of_row(row));
        if (request->began)
            trace_request(request, AG_TRACE_FAILED, 0, device_of_row(row), result);
    } else if (ag_capture_takes(request->stream, request->per_thread)) {
        ag_stats_add(AG_STAT_ASYNC_CAPTURED, 1);
    } else {
        (void)ag_helper_start(); /* asks at the end how much was used */
        ag_stats_app_pool(row, AG_APP_ALLOCS, 1);
        ag_stats_app_pool(row, AG_APP_BYTES, request->bytes);
        if (request->began)
            trace_request(request, AG_TRACE_ALLOC_ASYNC, *request->ret_address, device_of_row(row),
                          0);
        if (ag_holders_on())
            ag_held_note(result, AG_HELD_POOL, *request->ret_address, request->bytes,
                         device_of_row(row));
    }
    return result;
}

/* ALLOGRAFT_LIMIT: as on a card of that size. In a capture the driver answers: its nodes take
 * nothing yet. It answers without a context, too: in a new thread the CUDA runtime learns so that
 * none is current, makes its own that, and asks again. Threads that ask at the same time may pass
 * the limit together. */
static bool exceeds_limit(struct ag_device *device, const CUdeviceptr *ret_address, size_t bytes)
{
    if (!ag_budget_is_limited() || !device || !ret_address || ag_capture_is_open() ||
        !ag_context_current() || ag_pressure_may_have(device, bytes))
        return false;
    ag_trace_step(AG_STAT_BUDGET_HIT, device->ordinal, bytes);
    return true;
}

/* What the rules say of the call: nothing where the driver will refuse it. What becomes a node of a
 * graph takes no memory yet. */
static struct ag_choice choose_for(const struct request *request, const struct ag_device *device)
{
    bool exporter;

    if (!rules || !request->ret_address || !request->bytes || !ag_context_current())
        return (struct ag_choice){-1, false};
    if (ag_capture_is_open() && ag_inject_any(AG_CALL_ASYNC)) {
        ag_stats_add(AG_STAT_INJECTED_CAPTURE, 1);
        return (struct ag_choice){-1, false};
    }
    exporter = ag_caller_of(request->caller) == AG_CALLER_EXPORTER;
    return ag_inject_choose(AG_CALL_ASYNC, request->bytes, device ? device->ordinal : -1, exporter,
                            request->caller);
}

/* Managed memory may exceed the card, which programs do not expect and which can hang a GPU. What
 * the pool holds unused costs nothing more; it grows only by what is free. */
static bool fits_card(CUmemoryPool pool, size_t bytes)
{
    CUstreamCaptureMode previous;
    cuuint64_t reserved = 0, used = 0;
    size_t free_bytes = 0, total;
    bool known;

    if (oversubscribe || !ag_cu.cuMemPoolGetAttribute)
        return oversubscribe;
    previous = ag_capture_relax();
    known =
        ag_cu.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved) ==
            CUDA_SUCCESS &&
        ag_cu.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used) == CUDA_SUCCESS;
    if (known && (reserved < used || bytes > reserved - used))
        known = ag_cu.cuMemGetInfo_v2(&free_bytes, &total) == CUDA_SUCCESS && bytes <= free_bytes;
    ag_capture_restore(previous);
    return known;
}

/* Allocates from the device's managed pool. Returns AG_N_STATS, or the counter of the reason why
 * the driver has to do it. */
static enum ag_stat alloc_managed(CUdeviceptr *ret_address, size_t bytes, CUstream stream,
                                  bool per_thread, struct ag_device *device)
{
    CUmemoryPool pool;
    CUresult result;

    if (ag_capture_is_open())
        return AG_STAT_ASYNC_CAPTURE_OPEN;
    /* what the program made of its own pool, such as exportable, it expects of the memory */
    if (!ag_app_pools_current_is_default(device->ordinal))
        return AG_STAT_ASYNC_OWN_POOL;
    /* what is freed of it is not counted: it cannot be held to a limit */
    if (ag_budget_is_limited())
        return AG_STAT_ASYNC_EXHAUSTED;
    result = ag_managed_pool(device, &pool);
    if (result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
        return AG_STAT_ASYNC_CAPTURE_OPEN;
    if (result != CUDA_SUCCESS)
        return AG_STAT_ASYNC_NO_MANAGED;
    if (!fits_card(pool, bytes))
        return AG_STAT_ASYNC_EXHAUSTED;
    result = per_thread ? ag_cu.cuMemAllocFromPoolAsync_ptsz(ret_address, bytes, pool, stream)
                        : ag_cu.cuMemAllocFromPoolAsync(ret_address, bytes, pool, stream);
    if (result != CUDA_SUCCESS)
        return AG_STAT_ASYNC_EXHAUSTED;
    ag_stats_add(AG_STAT_ASYNC_MANAGED, 1);
    ag_stats_add(AG_STAT_ASYNC_MANAGED_BYTES, bytes);
    return AG_N_STATS;
}

/* True when the rule asked for it and it worked. */
static bool redirected(const struct request *request, struct ag_device *device, int rule)
{
    enum ag_stat why;

    if (rule < 0 || !device || said_by(&rules->rule[rule]) != AG_ASYNC_MANAGED)
        return false;
    why = alloc_managed(request->ret_address, request->bytes, request->stream, request->per_thread,
                        device);
    if (why != AG_N_STATS) {
        ag_stats_add(why, 1);
        return false;
    }
    ag_stats_rule_hit(rule, request->bytes);
    if (request->began)
        trace_request(request, AG_TRACE_ALLOC_ASYNC, *request->ret_address, device, 0);
    if (ag_holders_on())
        ag_held_note(CUDA_SUCCESS, AG_HELD_POOL, *request->ret_address, request->bytes, device);
    return true;
}

/* --- memory that can move --- */

static CUstream stream_named_by(const struct request *request)
{
    if (request->stream)
        return request->stream;
    return request->per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

/* An allocation on the legacy stream is work there, which waits for other streams as they wait for
 * it: so there is a tiny one for it. */
static bool is_work(CUstream stream)
{
    CUdeviceptr tiny;

    if (stream != CU_STREAM_LEGACY)
        return true;
    return ag_cu.cuMemAllocAsync(&tiny, 1, stream) == CUDA_SUCCESS &&
           ag_cu.cuMemFreeAsync(tiny, stream) == CUDA_SUCCESS;
}

/* What cudaMalloc gives, if that can move: the driver frees no other in the order of a stream that
 * has work. */
static bool alloc_movable(const struct request *request)
{
    if (ag_alloc(request->ret_address, request->bytes, request->caller) != CUDA_SUCCESS)
        return false;
    if (ag_range_base(*request->ret_address))
        return true;
    (void)ag_free(*request->ret_address, request->caller);
    return false;
}

/* Tries again with what streams have come to by now. */
static bool alloc_of_freed(const struct request *request)
{
    ag_later_collect(true);
    return alloc_movable(request);
}

/* Is the request for memory that may be of another kind than what the driver has for it? What is
 * smaller shares pages with others in the driver's pool. Where there are several devices nothing
 * moves, and others may have access to the pool. */
static bool may_be_movable(const struct request *request, const struct ag_device *device, int rule)
{
    const struct ag_context *context;

    if (rule < 0 || said_by(&rules->rule[rule]) != AG_ASYNC_PAGE || !ag_ranges_wanted() ||
        request->bytes < AG_RANGE_LEAST || ag_device_met(1) || ag_guard_is_on())
        return false;
    if (ag_capture_is_open()) {
        ag_stats_add(AG_STAT_ASYNC_CAPTURE_OPEN, 1);
        return false;
    }
    context = ag_context_current();
    return context && context->device == device && is_work(stream_named_by(request));
}

/* True when the rule asked for memory that can move, and there is some. NULL: the pool is the
 * default one. */
static bool paged(const struct request *request, const struct ag_device *device, int rule,
                  CUmemoryPool pool)
{
    if (!may_be_movable(request, device, rule))
        return false;
    if (!ag_later_take(request->ret_address, request->bytes, stream_named_by(request),
                       request->caller)) {
        ag_later_collect(false);
        if (!alloc_movable(request) && !alloc_of_freed(request)) {
            ag_stats_add(AG_STAT_ASYNC_EXHAUSTED, 1);
            return false;
        }
    }
    ag_range_begin_pool(*request->ret_address, pool);
    ag_stats_add(AG_STAT_ASYNC_PAGED, 1);
    ag_stats_add(AG_STAT_ASYNC_PAGED_BYTES, request->bytes);
    return true;
}

/* --- one call --- */

static CUresult fail_request(unsigned row, const struct request *request)
{
    return count_result(ag_inject_error(ag_context_current()), row, request);
}

CUresult ag_app_alloc(CUdeviceptr *ret_address, size_t bytes, CUstream stream, bool per_thread,
                      const void *caller)
{
    CUresult (*alloc)(CUdeviceptr *, size_t, CUstream) =
        per_thread ? ag_cu.cuMemAllocAsync_ptsz : ag_cu.cuMemAllocAsync;
    const struct request request = {ret_address, bytes,  stream,
                                    per_thread,  caller, ag_trace_began()};
    struct ag_device *device = device_of_stream(stream);
    const struct ag_choice choice = choose_for(&request, device);
    struct ag_relief relief = {0};
    unsigned row;
    CUresult result;

    if (!choice.fails && redirected(&request, device, choice.rule))
        return CUDA_SUCCESS;
    if (!choice.fails && choice.rule >= 0 && device &&
        ag_app_pools_current_is_default(device->ordinal) &&
        paged(&request, device, choice.rule, NULL))
        return CUDA_SUCCESS;
    row = ag_app_pools_current(device ? device->ordinal : -1);
    if (choice.fails)
        return fail_request(row, &request);
    if (exceeds_limit(device, ret_address, bytes))
        return fail_request(row, &request);
    ag_app_pools_keep(row);
    result = alloc(ret_address, bytes, stream);
    while (result == CUDA_ERROR_OUT_OF_MEMORY && ag_pressure_relieve_for_call(device, &relief))
        result = alloc(ret_address, bytes, stream);
    return count_result(result, row, &request);
}

CUresult ag_app_alloc_from_pool(CUdeviceptr *ret_address, size_t bytes, CUmemoryPool pool,
                                CUstream stream, bool per_thread, const void *caller)
{
    CUresult (*alloc)(CUdeviceptr *, size_t, CUmemoryPool, CUstream) =
        per_thread ? ag_cu.cuMemAllocFromPoolAsync_ptsz : ag_cu.cuMemAllocFromPoolAsync;
    const struct request request = {ret_address, bytes,  stream,
                                    per_thread,  caller, ag_trace_began()};
    unsigned row = ag_app_pools_find(pool);
    struct ag_device *device = device_of_row(row);
    const struct ag_choice choice = pool && (any_page || ag_inject_any(AG_CALL_ASYNC))
                                        ? choose_for(&request, device)
                                        : (struct ag_choice){-1, false};
    struct ag_relief relief = {0};
    CUresult result;

    if (choice.fails)
        return fail_request(row, &request);
    if (ag_app_pools_is_private(row) && paged(&request, device, choice.rule, pool))
        return CUDA_SUCCESS;
    if (exceeds_limit(device, ret_address, bytes))
        return fail_request(row, &request);
    ag_app_pools_keep(row);
    result = alloc(ret_address, bytes, pool, stream);
    while (result == CUDA_ERROR_OUT_OF_MEMORY && ag_pressure_relieve_for_call(device, &relief))
        result = alloc(ret_address, bytes, pool, stream);
    return count_result(result, row, &request);
}

/* --- free --- */

CUresult ag_app_free(CUdeviceptr address, CUstream stream, bool per_thread, const void *caller)
{
    CUresult (*free_async)(CUdeviceptr, CUstream) =
        per_thread ? ag_cu.cuMemFreeAsync_ptsz : ag_cu.cuMemFreeAsync;
    const struct request request = {NULL, 0, stream, per_thread, caller, ag_trace_began()};
    struct ag_block_seen block;
    bool captured;
    CUresult result;

    /* In a capture the driver refuses memory from before it, and the capture goes on. */
    if (address && ag_ledger_may_have(address) && ag_ledger_look(address, &block) &&
        ((ag_private_of_thread && block.private_pool) || !ag_capture_takes(stream, per_thread)))
        return ag_free_async(
            address, stream_apart(&request), free_async,
            per_thread ? ag_cu.cuStreamSynchronize_ptsz : ag_cu.cuStreamSynchronize, caller);
    result = free_async(address, stream);
    if (result != CUDA_SUCCESS)
        return result;
    captured = ag_capture_takes(stream, per_thread);
    ag_stats_add(captured ? AG_STAT_ASYNC_CAPTURED : AG_STAT_ASYNC_FREED, 1);
    if (request.began && !captured)
        trace_request(&request, AG_TRACE_FREE_ASYNC, address, NULL, 0);
    return result;
}

/* --- questions about what was redirected --- */

static struct ag_device *device_of_managed(CUmemoryPool pool)
{
    struct ag_device *device = NULL;

    for (unsigned i = 0; pool && (device = ag_device_met(i)); i++) {
        if (ag_managed_pool_is_of(device, pool))
            break;
    }
    return device;
}

void ag_app_answer_pool(CUmemoryPool *pool)
{
    const struct ag_device *device = device_of_managed(*pool);
    CUstreamCaptureMode previous;
    CUmemoryPool usual;

    if (!device)
        return;
    previous = ag_capture_relax();
    usual = ag_app_pools_default_handle(device->ordinal);
    ag_capture_restore(previous);
    if (usual)
        *pool = usual;
}

bool ag_app_is_managed(CUdeviceptr address)
{
    CUmemoryPool pool = NULL;
    bool any = false;

    for (unsigned i = 0; ag_device_met(i) && !any; i++)
        any = ag_managed_pool_exists(ag_device_met(i));
    return any &&
           ag_cu.cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address) ==
               CUDA_SUCCESS &&
           device_of_managed(pool);
}

CUresult ag_app_range_handle(void *ret_handle, CUdeviceptr address, size_t size,
                             CUmemRangeHandleType type, unsigned long long flags)
{
    ag_lookup_note_exported(address);
    if (!ag_app_is_managed(address))
        return ag_cu.cuMemGetHandleForAddressRange(ret_handle, ag_lookup_known(address), size, type,
                                                   flags);
    return CUDA_ERROR_INVALID_VALUE;
}
