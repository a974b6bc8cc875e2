/* Hooks of calls that let the host, or another process or device, see unfinished work: from then on
 * frees wait for all work of the context (policy/order/drain.h). That is noted before the call, so
 * that no free in between can be ordered. */
#include <string.h>

#include "graph/record/op.h"
#include "interpose/core/driver/driver.h"
#include "interpose/core/report/trace/trace.h"
#include "interpose/core/settings/caller.h"
#include "interpose/hooks/entry.h"
#include "interpose/hooks/entry_graph.h"
#include "interpose/hooks/entry_replay.h"
#include "interpose/hooks/entry_retry.h"
#include "policy/contexts/context.h"
#include "policy/contexts/enter.h"
#include "policy/guard/guard.h"
#include "policy/held.h"
#include "policy/inject.h"
#include "policy/order/drain.h"
#include "policy/pinned/made.h"
#include "policy/pinned/pinned.h"
#include "policy/pinned/pinned_answers.h"

/* Pinned memory that CUDA's own libraries keep for themselves is none that the program reads. */
static void note_host(const void *caller, size_t bytes)
{
    (void)bytes;
    if (ag_caller_of(caller) != AG_CALLER_CUDA_LIBRARY)
        ag_drain_note_visible(AG_VISIBLE_PINNED);
}

static void note_managed(const void *caller, size_t bytes)
{
    const struct ag_context *context = ag_cache_keeps() ? ag_context_current() : NULL;

    (void)caller;
    ag_drain_note_visible(AG_VISIBLE_MANAGED);
    ag_guard_note_other();
    if (context)
        ag_pressure_yield(context->device, bytes);
}

/* Does memory that is kept serve the call? `how` as in policy/pinned/blocks.h. */
static bool kept_host(void **p, size_t bytes, unsigned how, int rule)
{
    return AG_UNLIKELY(ag_pinned_on) && p && bytes && ag_pinned_take(p, bytes, how, rule);
}

static bool kept_managed(const CUdeviceptr *p, size_t bytes, unsigned how, int rule)
{
    (void)p, (void)bytes, (void)how, (void)rule;
    return false;
}

/* What the driver gave. */
static CUresult new_host(CUresult result, void **p, size_t bytes, unsigned how, int rule)
{
    if (AG_UNLIKELY(ag_pinned_on) && result == CUDA_SUCCESS && bytes)
        ag_pinned_note(*p, bytes, how, rule);
    return result;
}

static CUresult new_managed(CUresult result, const CUdeviceptr *p, size_t bytes, unsigned how,
                            int rule)
{
    (void)p, (void)bytes, (void)how, (void)rule;
    return result;
}

/* Since `began`. */
static CUresult given_host(CUresult result, void **p, size_t bytes, uint64_t began,
                           const void *caller)
{
    if (result == CUDA_SUCCESS && bytes)
        ag_trace_pinned(began, false, *p, bytes, caller);
    return ag_held_given_host(result, p, bytes);
}

static CUresult given_managed(CUresult result, CUdeviceptr *p, size_t bytes, uint64_t began,
                              const void *caller)
{
    (void)began, (void)caller;
    return ag_held_given(result, AG_HELD_MANAGED, p, bytes);
}

/* The driver's call, made again where pinned memory that was kept can make room for it. */
#define GIVEN_NEW(kind, how, symbol, ...)                                                 \
    do {                                                                                  \
        do {                                                                              \
            result = ag_cu.symbol(__VA_ARGS__);                                           \
        } while (AG_UNLIKELY(result == CUDA_ERROR_OUT_OF_MEMORY) && ag_pinned_relieve()); \
        result = new_##kind(result, p, bytes, how, rule);                                 \
    } while (0)

/* Hooks of calls that take memory `p` of `bytes`, which a rule may fail. `kind`: of the memory, in
 * the names of the functions above. */
#define CALLER __builtin_return_address(0)
#define TAKES(call, kind, how, symbol, parameters, ...)                       \
    AG_ENTRY CUresult symbol parameters                                       \
    {                                                                         \
        uint64_t began = ag_trace_began();                                    \
        CUresult result = CUDA_SUCCESS;                                       \
        int rule = -1;                                                        \
                                                                              \
        AG_ENTER(symbol, __VA_ARGS__);                                        \
        if (p && bytes)                                                       \
            result = ag_inject_deciding(call, bytes, -1, CALLER, &rule);      \
        if (result == CUDA_SUCCESS)                                           \
            note_##kind(CALLER, bytes);                                       \
        if (result == CUDA_SUCCESS && !kept_##kind(p, bytes, how, rule))      \
            GIVEN_NEW(kind, how, symbol, __VA_ARGS__);                        \
        return ag_entry_leave(given_##kind(result, p, bytes, began, CALLER)); \
    }

#define DRIVERS (~0u) /* memory that is never kept */
/* Flags that the driver refuses say nothing of ours. */
#define FLAGS ((flags) & AG_PINNED_PLAIN ? DRIVERS : (flags))

TAKES(AG_CALL_HOST, host, DRIVERS, cuMemAllocHost, (void **p, unsigned int bytes), p, bytes)
TAKES(AG_CALL_HOST, host, AG_PINNED_PLAIN, cuMemAllocHost_v2, (void **p, size_t bytes), p, bytes)
TAKES(AG_CALL_HOST, host, FLAGS, cuMemHostAlloc, (void **p, size_t bytes, unsigned int flags), p,
      bytes, flags)
TAKES(AG_CALL_MANAGED, managed, DRIVERS, cuMemAllocManaged,
      (CUdeviceptr * p, size_t bytes, unsigned int flags), p, bytes, flags)

/* Pinned memory that we made is registered already; natively it was allocated, and the driver says
 * what that is to it. */
static CUresult register_host(__typeof__(&cuMemHostRegister) registers, void *p, size_t bytes,
                              unsigned int flags, const void *caller)
{
    CUresult result = p && bytes ? ag_inject(AG_CALL_HOST, bytes, -1, caller) : CUDA_SUCCESS;
    CUdeviceptr asked;

    if (result != CUDA_SUCCESS)
        return result;
    ag_entry_remaps();
    ag_drain_note_visible(AG_VISIBLE_REGISTERED);
    asked = ag_pinned_answers_as_allocated((uintptr_t)p);
    if (asked != (uintptr_t)p && bytes > AG_PINNED_LIKE_BYTES)
        bytes = AG_PINNED_LIKE_BYTES;
    do {
        result = registers((void *)asked, bytes, flags);
    } while (AG_UNLIKELY(result == CUDA_ERROR_OUT_OF_MEMORY) && ag_pinned_relieve());
    return result;
}

AG_ENTRY CUresult cuMemHostRegister(void *p, size_t bytes, unsigned int flags)
{
    AG_ENTER(cuMemHostRegister, p, bytes, flags);
    return ag_entry_leave(
        register_host(ag_cu.cuMemHostRegister, p, bytes, flags, __builtin_return_address(0)));
}

AG_ENTRY CUresult cuMemHostRegister_v2(void *p, size_t bytes, unsigned int flags)
{
    AG_ENTER(cuMemHostRegister_v2, p, bytes, flags);
    return ag_entry_leave(
        register_host(ag_cu.cuMemHostRegister_v2, p, bytes, flags, __builtin_return_address(0)));
}

/* The state of its stream, if that is replayed. A graph with a host function is none that can be
 * submitted ahead: the driver lets some 28 wait and then blocks, which a function that waits for
 * the submitting thread would never end (H100, driver 580.159). */
static struct ag_stream *pass_host_function(CUstream stream, bool per_thread)
{
    struct ag_stream *state = ag_entry_replays_now() ? ag_replay_enter(stream, per_thread) : NULL;

    if (state)
        (void)ag_replay_pass(state, AG_FLUSH_UNRECORDED);
    return state;
}

#define HOST_FUNCTION(symbol, per_thread)                                                       \
    AG_ENTRY CUresult symbol(CUstream stream, CUhostFn function, void *data)                    \
    {                                                                                           \
        struct ag_stream *state;                                                                \
                                                                                                \
        AG_ENTER(symbol, stream, function, data);                                               \
        ag_drain_note_visible(AG_VISIBLE_HOST_FUNCTION);                                        \
        ag_watch_work(stream, per_thread);                                                      \
        state = pass_host_function(stream, per_thread);                                         \
        return ag_entry_leave(ag_entry_submitted(state, ag_cu.symbol(stream, function, data))); \
    }

HOST_FUNCTION(cuLaunchHostFunc, false)
HOST_FUNCTION(cuLaunchHostFunc_ptsz, true)

/* A global of the program may be a __managed__ variable, which the host reads. */
static CUresult note_global(CUresult result, const CUdeviceptr *dptr)
{
    unsigned managed = 0;

    if (result == CUDA_SUCCESS && dptr &&
        ag_cu.cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, *dptr) ==
            CUDA_SUCCESS &&
        managed)
        ag_drain_note_visible(AG_VISIBLE_MANAGED);
    return result;
}

/* --- copies in batches --- */

/* Any other copy is done with pageable memory when its call returns. Of a batch, the driver may
 * read a source later if the order is ANY (R545 in tests/sim/RULES.md), or STREAM, by what cuda.h
 * promises; and of destinations that says only that they are written in stream order. A cudaFree
 * natively waits for that, so a batch that names pageable memory counts, whatever its order. Every
 * operand is asked for, until frees wait anyway. */

/* Arrays that the driver may refuse unread are not read. */
static void note_lines(const CUdeviceptr *to, const CUdeviceptr *from, size_t n,
                       const CUmemcpyAttributes *attributes, size_t n_attributes)
{
    if (!to || !from || !attributes || !n_attributes || n_attributes > n)
        return;
    for (size_t i = 0; i < n && ag_drain_may_begin(); i++) {
        if (ag_entry_is_pageable(from[i]) || ag_entry_is_pageable(to[i]))
            ag_drain_note_visible(AG_VISIBLE_PAGEABLE);
    }
}

static bool is_pointer(const CUmemcpy3DOperand *operand)
{
    return operand->type == CU_MEMCPY_OPERAND_TYPE_POINTER;
}

/* The memory of an array is the device's. */
static void note_boxes(const CUDA_MEMCPY3D_BATCH_OP *boxes, size_t n)
{
    for (size_t i = 0; boxes && i < n && ag_drain_may_begin(); i++) {
        const CUmemcpy3DOperand *to = &boxes[i].dst, *from = &boxes[i].src;

        if ((is_pointer(from) && ag_entry_is_pageable(from->op.ptr.ptr)) ||
            (is_pointer(to) && ag_entry_is_pageable(to->op.ptr.ptr)))
            ag_drain_note_visible(AG_VISIBLE_PAGEABLE);
    }
}

#include "interpose/hooks/made/visible.h"
