/* The order of frees: what a native cudaFree guarantees, without its wait.
 *
 * Delicate: everything here is about what other streams, threads and the host may notice. A native
 * cudaFree waits for all work of the context that owns the memory. Three things hang on it:
 *   1. the memory is not used again before that work is done;
 *   2. on the device, whatever is submitted later, on any stream, runs after whatever was submitted
 *      before (programs rely on it as a synchronisation of their streams);
 *   3. on the host, that work is finished when the call returns.
 * An ordered free keeps 1 and 2 by a barrier on the device, and owes 3 until somebody could tell:
 *   (a) while the context has no non-blocking stream, an event recorded on the NULL stream is such
 *       a barrier: it comes after all work of legacy, blocking and per-thread streams, also of
 *       destroyed ones, and everything later on those streams comes after it;
 *   (b) else cuCtxRecordEvent + cuCtxWaitEvent: all later work of the context waits for all earlier
 *       work, non-blocking and future streams included;
 *   (c) while a capture is open neither may be called ((b) ends a capture in any mode). A tiny
 *       block of the driver's own is then allocated and freed: that is legal, illegal and as long
 *       as the program's cudaFree natively. Under ALLOGRAFT_FREE=ordered the memory is set aside
 *       instead.
 * Since everything later waits for everything earlier, memory may be handed out again at once in
 * the same context. Others may not use it by themselves: with several contexts or peers auto
 * drains, and `ordered` makes the other contexts wait as well.
 *
 * A free that drains only records an event behind the context's work and lets the host wait for it.
 * It must hold nothing back on the device: with several GPUs in a process, work that this one waits
 * for may be submitted by another thread only now.
 *
 * Threads that free at the same time share an event: the first places it for all that had asked
 * before it was placed (the driver is slower for 16 threads than for one).
 *
 * Rules of this file:
 * - The capture guard encloses every driver call that could end a capture or would be
 *   refused in one. Beginning a capture closes it first, and waits for those inside, for a bounded
 *   time.
 * - `placed` of a fence only grows after the driver took it; `ordered_completed` only after the host
 *   waited for it.
 * - A flag that makes (a) insufficient is set before, and read again after, the call it
 *   concerns. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "policy/order.h"

#include <stdatomic.h>
#include <unistd.h>

#include "interpose/base/clock.h"
#include "interpose/base/helper.h"
#include "interpose/base/lock.h"
#include "interpose/base/log.h"
#include "interpose/base/wait.h"
#include "interpose/driver/driver.h"
#include "policy/contexts/context.h"

#define MAX_CAPTURES  256u
#define GUARD_WAIT_NS 100000000u
#define PROBE_BYTES   4096u

static enum ag_free_mode mode = AG_FREE_AUTO;
static _Atomic unsigned visible; /* bits of enum ag_visible */
static _Atomic bool exiting;
static _Atomic bool
    ever_ordered; /* what is owed now, contexts say; implies the helper that pays at the end */

/* --- the capture guard --- */

static struct {
    _Alignas(64) _Atomic unsigned inside;
} guard[AG_SLOTS];

static _Atomic unsigned open_captures;

bool ag_capture_guard_enter(void)
{
    _Atomic unsigned *inside = &guard[ag_slot()].inside;

    atomic_fetch_add_explicit(inside, 1, memory_order_seq_cst);
    if (!atomic_load_explicit(&open_captures, memory_order_seq_cst))
        return true;
    atomic_fetch_sub_explicit(inside, 1, memory_order_release);
    return false;
}

void ag_capture_guard_leave(void)
{
    atomic_fetch_sub_explicit(&guard[ag_slot()].inside, 1, memory_order_release);
}

static void wait_for_guarded(void)
{
    uint64_t until = ag_clock_ns() + GUARD_WAIT_NS;

    for (unsigned i = 0; i < AG_SLOTS; i++) {
        struct ag_wait wait = {0};

        while (atomic_load_explicit(&guard[i].inside, memory_order_acquire)) {
            if (ag_clock_ns() > until) {
                ag_log_debug("a capture begins beside a driver call of ours that takes long");
                return;
            }
            ag_wait_turn(&wait);
        }
    }
}

/* --- captures --- */

static struct {
    struct ag_lock lock; /* guards the list */
    struct {
        CUstream stream;
        int thread; /* of a per-thread stream, else 0 */
        struct ag_context *context;
    } open[MAX_CAPTURES];
    unsigned n;
} captures = {.lock = AG_LOCK_INIT(AG_RANK_CAPTURES)};

/* The handle that stands for `stream` in a call of that flavour, and whose thread it belongs to. */
static CUstream normalise(CUstream stream, bool per_thread, int *ret_thread)
{
    if (!stream && per_thread)
        stream = CU_STREAM_PER_THREAD;
    *ret_thread = stream == CU_STREAM_PER_THREAD ? gettid() : 0;
    return stream;
}

bool ag_capture_is_open(void)
{
    return atomic_load_explicit(&open_captures, memory_order_seq_cst) != 0;
}

void ag_capture_opening(void)
{
    atomic_fetch_add_explicit(&open_captures, 1, memory_order_seq_cst);
    wait_for_guarded();
}

bool ag_capture_opened(CUstream stream, bool per_thread, bool success)
{
    struct ag_context *context = success ? ag_context_current() : NULL;
    bool last = false;
    int thread;

    stream = normalise(stream, per_thread, &thread);
    ag_lock_take(&captures.lock);
    if (!success) {
        last = atomic_fetch_sub_explicit(&open_captures, 1, memory_order_seq_cst) == 1;
    } else if (captures.n < MAX_CAPTURES) {
        captures.open[captures.n].stream = stream;
        captures.open[captures.n].thread = thread;
        captures.open[captures.n++].context = context;
    } /* else the guard stays closed for good, which is slow and exact */
    ag_lock_release(&captures.lock);
    return last;
}

/* With the list's lock held. True when it was the last. */
static bool drop_capture(unsigned i)
{
    captures.open[i] = captures.open[--captures.n];
    return atomic_fetch_sub_explicit(&open_captures, 1, memory_order_seq_cst) == 1;
}

static bool drop_capture_on(CUstream stream, int thread)
{
    bool last = false;

    ag_lock_take(&captures.lock);
    for (unsigned i = 0; i < captures.n; i++) {
        if (captures.open[i].stream != stream || captures.open[i].thread != thread)
            continue;
        last = drop_capture(i);
        break;
    }
    ag_lock_release(&captures.lock);
    return last;
}

bool ag_capture_stream_destroying(CUstream stream, struct ag_context **ret_context)
{
    bool captures_here = false;

    if (!ag_capture_is_open())
        return false;
    ag_lock_take(&captures.lock);
    for (unsigned i = 0; i < captures.n && !captures_here; i++) {
        if (captures.open[i].stream != stream || captures.open[i].thread)
            continue;
        *ret_context = captures.open[i].context;
        captures.open[i] = captures.open[--captures.n];
        captures_here = true;
    }
    ag_lock_release(&captures.lock);
    return captures_here;
}

bool ag_capture_stream_destroyed(CUstream stream, struct ag_context *context, bool success)
{
    bool last = false;

    ag_lock_take(&captures.lock);
    if (success) {
        last = atomic_fetch_sub_explicit(&open_captures, 1, memory_order_seq_cst) == 1;
    } else if (captures.n < MAX_CAPTURES) {
        captures.open[captures.n].stream = stream;
        captures.open[captures.n].thread = 0;
        captures.open[captures.n++].context = context;
    }
    ag_lock_release(&captures.lock);
    return last;
}

bool ag_capture_ended(CUstream stream, bool per_thread)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    int thread;

    if (!ag_capture_is_open())
        return false;
    stream = normalise(stream, per_thread, &thread);
    if (ag_cu.cuStreamIsCapturing && ag_cu.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
        status != CU_STREAM_CAPTURE_STATUS_NONE)
        return false;
    return drop_capture_on(stream, thread);
}

CUstreamCaptureMode ag_capture_relax(void)
{
    CUstreamCaptureMode previous = CU_STREAM_CAPTURE_MODE_RELAXED;

    if (ag_cu.cuThreadExchangeStreamCaptureMode)
        (void)ag_cu.cuThreadExchangeStreamCaptureMode(&previous);
    return previous;
}

void ag_capture_restore(CUstreamCaptureMode previous)
{
    if (ag_cu.cuThreadExchangeStreamCaptureMode)
        (void)ag_cu.cuThreadExchangeStreamCaptureMode(&previous);
}

/* --- fences --- */

enum placed { PLACED, NOT_PLACED, IN_CAPTURE };

static bool needs_context_fence(struct ag_context *context)
{
    return atomic_load_explicit(&context->has_nonblocking_stream, memory_order_seq_cst) ||
           ag_context_count() > 1;
}

struct wait_request {
    CUevent event;
    CUresult result;
};

static void make_wait(struct ag_context *context, void *data)
{
    struct wait_request *request = data;
    CUresult result = ag_cu.cuCtxWaitEvent(context->handle, request->event);

    if (result != CUDA_SUCCESS)
        request->result = result;
}

/* All future work of every context waits for `event`, which is of `context`. */
static CUresult wait_everywhere(struct ag_context *context, CUevent event)
{
    struct wait_request request = {event, CUDA_SUCCESS};

    if (ag_context_count() == 1)
        return ag_cu.cuCtxWaitEvent(context->handle, event);
    ag_context_each(make_wait, &request);
    return request.result;
}

static CUresult record_on_null_stream(struct ag_context *context, CUevent event)
{
    bool pushed;
    CUresult result = ag_context_make_current(context, &pushed);

    if (result == CUDA_SUCCESS)
        result = ag_cu.cuEventRecord(event, NULL);
    ag_context_restore(pushed);
    return result;
}

/* Places the fence behind all work so far. Inside the capture guard. */
typedef CUresult fence_function(struct ag_context *context, CUevent event);

/* A barrier: everything later comes after it too. Ways (a) and (b). */
static CUresult place_barrier(struct ag_context *context, CUevent event)
{
    CUresult result;

    if (!needs_context_fence(context)) {
        result = record_on_null_stream(context, event);
        if (result != CUDA_SUCCESS || !needs_context_fence(context))
            return result;
    }
    if (!context->device->has_fences)
        return CUDA_ERROR_NOT_SUPPORTED;
    result = ag_cu.cuCtxRecordEvent(context->handle, event);
    return result == CUDA_SUCCESS ? wait_everywhere(context, event) : result;
}

/* Nothing waits for it but the host. */
static CUresult place_mark(struct ag_context *context, CUevent event)
{
    if (context->device->has_fences)
        return ag_cu.cuCtxRecordEvent(context->handle, event);
    return needs_context_fence(context) ? CUDA_ERROR_NOT_SUPPORTED
                                        : record_on_null_stream(context, event);
}

/* By the thread that has the turn. */
static enum placed place_now(struct ag_context *context, CUevent *event, fence_function *function)
{
    CUresult result = ag_context_init_resources(context);

    if (result != CUDA_SUCCESS)
        return NOT_PLACED;
    if (!ag_capture_guard_enter())
        return IN_CAPTURE;
    result = function(context, *event);
    ag_capture_guard_leave();
    return result == CUDA_SUCCESS ? PLACED : NOT_PLACED;
}

static enum placed place(struct ag_context *context, struct ag_fence *fence,
                         fence_function *function)
{
    uint64_t ticket = atomic_fetch_add_explicit(&fence->requested, 1, memory_order_seq_cst) + 1;
    struct ag_wait wait = {0};

    for (;;) {
        enum placed placed;
        uint64_t covers;

        if (atomic_load_explicit(&fence->placed, memory_order_acquire) >= ticket)
            return PLACED;
        if (atomic_flag_test_and_set_explicit(&fence->turn, memory_order_acquire)) {
            ag_wait_turn(&wait);
            continue;
        }
        covers = atomic_load_explicit(&fence->requested, memory_order_seq_cst);
        placed = place_now(context, &fence->event, function);
        if (placed == PLACED)
            atomic_store_explicit(&fence->placed, covers, memory_order_release);
        atomic_flag_clear_explicit(&fence->turn, memory_order_release);
        return placed;
    }
}

/* --- what the host is owed --- */

static void raise_to(_Atomic uint64_t *value, uint64_t to)
{
    uint64_t now = atomic_load_explicit(value, memory_order_relaxed);

    while (now < to && !atomic_compare_exchange_weak_explicit(value, &now, to, memory_order_release,
                                                              memory_order_relaxed))
        ;
}

/* The host waits for `event`, whatever is captured meanwhile. */
static CUresult wait_on_host(CUevent event)
{
    bool in_capture = ag_capture_is_open();
    CUstreamCaptureMode previous = CU_STREAM_CAPTURE_MODE_GLOBAL;
    CUresult result;

    if (in_capture)
        previous = ag_capture_relax();
    result = ag_cu.cuEventSynchronize(event);
    if (in_capture)
        ag_capture_restore(previous);
    return result;
}

static bool is_owed(struct ag_context *context, uint64_t *ret_placed)
{
    *ret_placed = atomic_load_explicit(&context->ordered.placed, memory_order_acquire);
    return *ret_placed > atomic_load_explicit(&context->ordered_completed, memory_order_acquire);
}

static void pay_context(struct ag_context *context, void *data)
{
    bool *paid = data;
    uint64_t placed;

    if (!is_owed(context, &placed))
        return;
    (void)wait_on_host(context->ordered.event);
    raise_to(&context->ordered_completed, placed);
    *paid = true;
}

static bool owes(struct ag_context *context)
{
    uint64_t placed;

    return is_owed(context, &placed);
}

/* Until the wait is over, also if another thread is waiting already. */
bool ag_host_wait_pending(void)
{
    return atomic_load_explicit(&ever_ordered, memory_order_acquire) && ag_context_any(owes);
}

void ag_host_wait_complete(enum ag_stat why)
{
    bool paid = false;

    if (!ag_host_wait_pending())
        return;
    ag_context_each(pay_context, &paid);
    if (paid)
        ag_stats_add(why, 1);
}

void ag_free_context_gone(struct ag_context *context)
{
    raise_to(&context->ordered_completed,
             atomic_load_explicit(&context->ordered.placed, memory_order_acquire));
    ag_lock_take(&captures.lock);
    for (unsigned i = captures.n; i-- > 0;) {
        if (captures.open[i].context == context)
            (void)drop_capture(i);
    }
    ag_lock_release(&captures.lock);
}

/* --- the end of the process --- */

/* Which thread that is, for as long as the process lives: 1, 2, 3 ... */
static uint64_t own_number(void)
{
    static _Atomic uint64_t n_threads;
    static _Thread_local uint64_t number;

    if (!number)
        number = atomic_fetch_add_explicit(&n_threads, 1, memory_order_relaxed) + 1;
    return number;
}

/* The calling thread owes the wait for what it has freed, together with others that did so at
 * once. */
static void owe(struct ag_context *context)
{
    uint64_t self = own_number();

    if (atomic_load_explicit(&context->ordered_by, memory_order_relaxed) != self)
        atomic_store_explicit(&context->ordered_by, self, memory_order_relaxed);
}

static void note_who_owes(struct ag_context *context, void *data)
{
    enum ag_host_wait_owner *owner = data;
    uint64_t placed;

    if (!is_owed(context, &placed) || *owner == AG_HOST_WAIT_OF_OTHERS)
        return;
    *owner = atomic_load_explicit(&context->ordered_by, memory_order_relaxed) == own_number()
                 ? AG_HOST_WAIT_OF_CALLER
                 : AG_HOST_WAIT_OF_OTHERS;
}

enum ag_host_wait_owner ag_host_wait_owner(void)
{
    enum ag_host_wait_owner owner = AG_HOST_WAIT_OF_NOBODY;

    if (atomic_load_explicit(&ever_ordered, memory_order_acquire))
        ag_context_each(note_who_owes, &owner);
    return owner;
}

/* By the helper. It asks again and again, so that who waits for it sees whether the driver answers,
 * and so that it is out of the driver soon after nobody waits any more. */
static void pay_at_end(struct ag_context *context, void *data)
{
    struct ag_wait wait = {0};
    bool *paid = data;
    uint64_t placed;
    CUresult result;

    if (!is_owed(context, &placed))
        return;
    while ((result = ag_cu.cuEventQuery(context->ordered.event)) == CUDA_ERROR_NOT_READY &&
           ag_helper_beat())
        ag_wait_turn(&wait);
    if (result == CUDA_ERROR_NOT_READY)
        return;
    *paid = true;
    (void)ag_cu.cuEventSynchronize(
        context->ordered.event); /* what kernels print comes out in a wait only */
    raise_to(&context->ordered_completed, placed);
}

void ag_host_wait_complete_at_exit(void)
{
    CUstreamCaptureMode previous = ag_capture_relax();
    bool paid = false;

    ag_context_each(pay_at_end, &paid);
    ag_capture_restore(previous);
    if (paid)
        ag_stats_add(AG_STAT_WAITED_EXIT, 1);
}

void ag_drain_exiting(void)
{
    atomic_store_explicit(&exiting, true, memory_order_seq_cst);
}

/* --- who can see --- */

void ag_drain_configure(enum ag_free_mode new_mode)
{
    mode = new_mode;
}

void ag_drain_note_visible(enum ag_visible how)
{
    unsigned bit = 1u << how;

    if (atomic_load_explicit(&visible, memory_order_relaxed) & bit)
        return;
    if (atomic_fetch_or_explicit(&visible, bit, memory_order_seq_cst) & bit)
        return;
    ag_host_wait_complete(AG_STAT_WAITED_VISIBLE);
}

static void finish_streams(struct ag_context *context, void *unused)
{
    (void)unused;
    (void)ag_private_stream_wait(context, UINT64_MAX);
}

void ag_free_context_entered(void)
{
    if (ag_context_count() < 2)
        return;
    /* The new context waited for nothing so far: neither for what was allocated on a stream, nor
     * for what frees were ordered behind. */
    ag_context_each(finish_streams, NULL);
    ag_host_wait_complete(AG_STAT_WAITED_VISIBLE);
    ag_drain_note_visible(AG_VISIBLE_CONTEXTS);
}

/* Why a free has to drain, as an AG_STAT_DRAIN_* row; AG_N_STATS when it need not. */
static enum ag_stat drain_reason(void)
{
    unsigned bits;

    if (atomic_load_explicit(&exiting, memory_order_relaxed))
        return AG_STAT_DRAIN_EXITING;
    if (mode == AG_FREE_ORDERED)
        return AG_N_STATS;
    if (mode == AG_FREE_SYNC)
        return AG_STAT_DRAIN_ASKED;
    bits = atomic_load_explicit(&visible, memory_order_seq_cst);
    return bits ? (enum ag_stat)(AG_STAT_DRAIN_PINNED + __builtin_ctz(bits)) : AG_N_STATS;
}

_Static_assert(AG_STAT_DRAIN_CONTEXTS - AG_STAT_DRAIN_PINNED == AG_VISIBLE_CONTEXTS,
               "the drains in stats.def stand in the order of enum ag_visible");

/* --- a free --- */

/* Way (c): the driver's own free decides whether a free is legal now, and waits as it does. */
static CUresult free_like_the_driver(struct ag_context *context)
{
    CUdeviceptr probe = 0;
    bool pushed;
    CUresult result = ag_context_make_current(context, &pushed);

    if (result != CUDA_SUCCESS)
        return result;
    result = ag_cu.cuMemAlloc_v2(&probe, 1);
    if (result ==
        CUDA_ERROR_OUT_OF_MEMORY) /* a managed one obeys the same rules and needs no room */
        result = ag_cu.cuMemAllocManaged(&probe, PROBE_BYTES, CU_MEM_ATTACH_GLOBAL);
    if (result == CUDA_SUCCESS)
        result = ag_cu.cuMemFree_v2(probe);
    ag_context_restore(pushed);
    return result;
}

bool ag_error_is_sticky(CUresult result)
{
    return (result >= CUDA_ERROR_ILLEGAL_ADDRESS && result <= CUDA_ERROR_LAUNCH_FAILED) ||
           result == CUDA_ERROR_ECC_UNCORRECTABLE || result == CUDA_ERROR_DEINITIALIZED;
}

/* Would a native free say so? It refuses in a capture, and tells of a context that is broken. What
 * else our probes ran into is not the program's business. */
static bool is_native_answer(CUresult result)
{
    return (result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
            result <= CUDA_ERROR_CAPTURED_EVENT) ||
           ag_error_is_sticky(result);
}

CUresult ag_context_sticky_error(struct ag_context *context)
{
    CUstreamCaptureStatus status;
    CUresult result;

    if (!ag_cu.cuStreamIsCapturing ||
        !atomic_load_explicit(&context->resources_state, memory_order_acquire))
        return CUDA_SUCCESS;
    result = ag_cu.cuStreamIsCapturing(context->free_stream, &status);
    return ag_error_is_sticky(result) ? result : CUDA_SUCCESS;
}

/* The memory waits for the end of the capture, if the call was legal. */
static CUresult set_aside(CUresult probed, bool *ret_set_aside)
{
    *ret_set_aside = !is_native_answer(probed);
    ag_stats_add(*ret_set_aside ? AG_STAT_FREE_SET_ASIDE : AG_STAT_FREE_REFUSED, 1);
    return *ret_set_aside ? CUDA_SUCCESS : probed;
}

static CUresult free_in_capture(struct ag_context *context, bool *ret_set_aside)
{
    CUresult result;

    if (mode == AG_FREE_ORDERED && !atomic_load_explicit(&exiting, memory_order_relaxed) &&
        ag_context_init_resources(context) == CUDA_SUCCESS)
        return set_aside(ag_cu.cuStreamQuery(context->free_stream), ret_set_aside);
    result = free_like_the_driver(context);
    if (result != CUDA_SUCCESS)
        return set_aside(result, ret_set_aside);
    ag_stats_add(AG_STAT_FREE_DRAINED, 1);
    ag_stats_add(AG_STAT_DRAIN_CAPTURE, 1);
    return result;
}

/* Waits for the context with nothing but cuCtxSynchronize: no event could be placed. */
static CUresult drain_without_fence(struct ag_context *context)
{
    bool pushed;
    CUresult result = ag_context_make_current(context, &pushed);

    if (result == CUDA_SUCCESS)
        result = ag_cu.cuCtxSynchronize();
    ag_context_restore(pushed);
    return result;
}

static CUresult drain(struct ag_context *context, enum ag_stat reason, bool *ret_set_aside)
{
    uint64_t owed = atomic_load_explicit(&context->ordered.placed, memory_order_acquire);
    enum placed placed = place(context, &context->draining, place_mark);
    CUresult result;

    if (placed == IN_CAPTURE)
        return free_in_capture(context, ret_set_aside);
    result = placed == PLACED ? wait_on_host(context->draining.event) : CUDA_ERROR_NOT_SUPPORTED;
    if (result != CUDA_SUCCESS && !ag_capture_is_open())
        result = drain_without_fence(context); /* what it says, a native free would say */
    if (result != CUDA_SUCCESS) {
        ag_stats_add(AG_STAT_FREE_REFUSED, 1);
        return result;
    }
    raise_to(&context->ordered_completed, owed);
    ag_stats_add(AG_STAT_FREE_DRAINED, 1);
    ag_stats_add(reason, 1);
    return CUDA_SUCCESS;
}

/* Is there somebody to pay at the end of the process? Else nothing is to be owed. */
static bool may_owe(void)
{
    if (atomic_load_explicit(&ever_ordered, memory_order_relaxed))
        return true;
    if (!ag_helper_start())
        return false;
    atomic_store_explicit(&ever_ordered, true, memory_order_release);
    return true;
}

CUresult ag_free_order(struct ag_context *context, bool *ret_set_aside)
{
    enum ag_stat reason = drain_reason();
    enum placed placed;

    *ret_set_aside = false;
    if (ag_capture_is_open())
        return free_in_capture(context, ret_set_aside);
    if (reason != AG_N_STATS)
        return drain(context, reason, ret_set_aside);
    if (!may_owe())
        return drain(context, AG_STAT_DRAIN_NO_THREAD, ret_set_aside);
    placed = place(context, &context->ordered, place_barrier);
    if (placed == IN_CAPTURE)
        return free_in_capture(context, ret_set_aside);
    owe(context);
    /* Asked again: what became visible before the barrier was placed has not been paid for. */
    reason = drain_reason();
    if (placed == NOT_PLACED || reason != AG_N_STATS)
        return drain(context, reason == AG_N_STATS ? AG_STAT_DRAIN_NO_FENCE : reason,
                     ret_set_aside);
    ag_stats_add(
        needs_context_fence(context) ? AG_STAT_FREE_CONTEXT_FENCE : AG_STAT_FREE_NULL_STREAM, 1);
    return CUDA_SUCCESS;
}

/* --- around the driver's own allocation and release ---
 *
 * On private streams, never on the NULL stream: with one pool allocation on the NULL stream in the
 * process, a thread that exits while its per-thread stream still waits for a barrier never returns
 * from the driver (580.159, tests/gpu/order.cu cross-per-thread). */

bool ag_private_stream_begin_alloc(struct ag_context *context, CUstream *ret_stream)
{
    if (ag_context_init_resources(context) != CUDA_SUCCESS || !ag_capture_guard_enter())
        return false;
    *ret_stream = context->alloc_stream;
    return true;
}

/* All work from now on comes after what `stream` holds. It holds nothing unfinished unless a fence
 * of the whole context is behind it, which is when waiting for it could take long. */
static CUresult publish(struct ag_context *context, CUstream stream)
{
    CUresult result;

    if (!context->device->has_fences || !needs_context_fence(context) ||
        drain_reason() != AG_N_STATS)
        return ag_cu.cuStreamSynchronize(stream);
    result = ag_cu.cuEventRecord(context->alloc_event, stream);
    return result == CUDA_SUCCESS ? wait_everywhere(context, context->alloc_event) : result;
}

CUresult ag_private_stream_end_alloc(struct ag_context *context, CUstream stream, CUresult result)
{
    if (result == CUDA_SUCCESS)
        result = publish(context, stream);
    ag_capture_guard_leave();
    return result;
}

/* The private stream comes after all work that may use what is given back on it: after the barrier
 * that the last ordered free placed, for blocks were not used since they were freed. Not after
 * anything submitted later, which may be waiting for the host, which may be waiting for this
 * memory. When frees drain the host has waited already, and for those before that, it was paid. */
static CUresult make_release_wait(struct ag_context *context)
{
    if (drain_reason() != AG_N_STATS ||
        !atomic_load_explicit(&context->ordered.placed, memory_order_acquire))
        return CUDA_SUCCESS;
    return ag_cu.cuStreamWaitEvent(context->free_stream, context->ordered.event, 0);
}

bool ag_private_stream_begin_release(struct ag_context *context, CUstream *ret_stream,
                                     bool *ret_pushed)
{
    if (ag_context_init_resources(context) != CUDA_SUCCESS || !ag_capture_guard_enter())
        return false;
    if (ag_context_make_current(context, ret_pushed) != CUDA_SUCCESS) {
        ag_capture_guard_leave();
        return false;
    }
    *ret_stream = context->free_stream;
    if (make_release_wait(context) == CUDA_SUCCESS)
        return true;
    ag_private_stream_end_release(*ret_pushed);
    return false;
}

/* One turn of asking whether something is done; false when timeout is over. */
static bool wait_a_little(struct ag_wait *wait, uint64_t began, uint64_t timeout_ns)
{
    if (ag_clock_ns() - began > timeout_ns)
        return false;
    ag_wait_turn(wait);
    return true;
}

static CUresult wait_for_stream(CUstream stream, uint64_t timeout_ns)
{
    struct ag_wait wait = {0};
    uint64_t began;
    CUresult result;

    if (timeout_ns == UINT64_MAX)
        return ag_cu.cuStreamSynchronize(stream);
    began = ag_clock_ns();
    while ((result = ag_cu.cuStreamQuery(stream)) == CUDA_ERROR_NOT_READY &&
           wait_a_little(&wait, began, timeout_ns))
        ;
    return result;
}

bool ag_fence_wait_idle(struct ag_context *context, uint64_t timeout_ns)
{
    CUstreamCaptureMode previous;
    uint64_t began = ag_clock_ns();
    struct ag_wait wait = {0};
    CUresult result;

    switch (place(context, &context->draining, place_mark)) {
    case PLACED:
        break;
    case NOT_PLACED: /* the driver's own wait then, as long as it takes */
        return true;
    case IN_CAPTURE:
        return false;
    }
    previous = ag_capture_relax(); /* one may begin meanwhile */
    while ((result = ag_cu.cuEventQuery(context->draining.event)) == CUDA_ERROR_NOT_READY &&
           wait_a_little(&wait, began, timeout_ns))
        ;
    ag_capture_restore(previous);
    return result != CUDA_ERROR_NOT_READY;
}

CUresult ag_private_stream_wait(struct ag_context *context, uint64_t timeout_ns)
{
    bool in_capture = ag_capture_is_open();
    CUstreamCaptureMode previous = CU_STREAM_CAPTURE_MODE_GLOBAL;
    CUresult result;

    if (!atomic_load_explicit(&context->resources_state, memory_order_acquire))
        return CUDA_SUCCESS;
    if (in_capture)
        previous = ag_capture_relax();
    result = wait_for_stream(context->free_stream, timeout_ns);
    if (result == CUDA_SUCCESS) /* allocations that failed half-way went back on it */
        result = wait_for_stream(context->alloc_stream, timeout_ns);
    if (in_capture)
        ag_capture_restore(previous);
    return result;
}

void ag_private_stream_end_release(bool pushed)
{
    ag_context_restore(pushed);
    ag_capture_guard_leave();
}

static void note_nonblocking(struct ag_context *context, void *unused)
{
    (void)unused;
    atomic_store_explicit(&context->has_nonblocking_stream, true, memory_order_seq_cst);
}

void ag_fence_nonblocking_coming(struct ag_context *context)
{
    if (context)
        note_nonblocking(context, NULL);
    else
        ag_context_each(note_nonblocking, NULL);
}

static void settle_nonblocking(struct ag_context *context, void *unused)
{
    CUstreamCaptureMode previous;
    enum placed placed;

    (void)unused;
    /* What was freed or allocated in the order of the NULL stream so far holds for the new stream
     * too, once it waits. In a capture no barrier may be placed; the driver's own free waits. */
    if (!atomic_load_explicit(&context->resources_state, memory_order_acquire))
        return; /* nothing was ever ordered here */
    if (drain_reason() != AG_N_STATS)
        return; /* the host has waited for everything that was freed */
    placed = place(context, &context->ordered, place_barrier);
    if (placed == NOT_PLACED)
        (void)drain_without_fence(context);
    if (placed != IN_CAPTURE)
        return;
    previous = ag_capture_relax(); /* creating a stream is legal natively, whatever is captured */
    (void)free_like_the_driver(context);
    ag_capture_restore(previous);
}

void ag_free_nonblocking_created(struct ag_context *context)
{
    if (context)
        settle_nonblocking(context, NULL);
    else
        ag_context_each(settle_nonblocking, NULL);
}

void ag_free_begin_child(void)
{
    atomic_store(&open_captures, 0);
    atomic_store(&ever_ordered, false);
    atomic_store(&visible, 0);
    captures.n = 0;
    for (unsigned i = 0; i < AG_SLOTS; i++)
        atomic_store(&guard[i].inside, 0);
}
