/* Hooks of memory: allocation, free, and the questions about it. */
#include "graph/copies.h"
#include "graph/replayer.h"
#include "interpose/api/api.h"
#include "interpose/core/driver/driver.h"
#include "interpose/core/report/trace/trace.h"
#include "interpose/hooks/entry.h"
#include "interpose/hooks/entry_waits.h"
#include "policy/alloc/alloc.h"
#include "policy/answers/answers.h"
#include "policy/answers/lookup.h"
#include "policy/contexts/context.h"
#include "policy/held.h"
#include "policy/ledger.h"
#include "policy/order/drain.h"
#include "policy/pinned/pinned_answers.h"

AG_ENTRY CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
    AG_ENTER(cuMemAlloc_v2, dptr, bytesize);
    return ag_entry_leave(ag_held_given(ag_alloc(dptr, bytesize, __builtin_return_address(0)),
                                        AG_HELD_DEVICE, dptr, bytesize));
}

static CUresult given_rows(CUresult result, const CUdeviceptr *dptr, const size_t *pitch,
                           size_t width, size_t height)
{
    return ag_held_given(result, AG_HELD_DEVICE, dptr,
                         height * (result == CUDA_SUCCESS ? *pitch : width));
}

AG_ENTRY CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pitch, size_t width, size_t height,
                                     unsigned int element_bytes)
{
    AG_ENTER(cuMemAllocPitch_v2, dptr, pitch, width, height, element_bytes);
    return ag_entry_leave(given_rows(
        ag_alloc_pitch(dptr, pitch, width, height, element_bytes, __builtin_return_address(0)),
        dptr, pitch, width, height));
}

/* A free that others are told of: who holds memory or who waits is asked for, or it may be managed
 * memory of the control API, which counts it. */
static __attribute__((noinline)) CUresult free_told(CUdeviceptr dptr, const void *caller)
{
    struct ag_api_owned *owned = ag_api_owned_take(dptr);
    struct ag_waiting wait = ag_waiting_begin();
    struct ag_held_free held;
    CUresult result;

    ag_held_free_begin(&held, dptr);
    result = ag_held_free_end(&held, ag_free(dptr, caller));
    ag_waiting_end(&wait, AG_WAIT_FREE, "cuMemFree_v2");
    if (owned && result == CUDA_SUCCESS)
        ag_api_owned_freed(owned);
    else if (owned)
        ag_api_owned_put_back(owned);
    return result;
}

/* A free waits for the context that has the memory, whichever is current. So what is withheld there
 * is submitted, however long that takes: before, it was only tried for a while. That of nothing
 * waits for nothing. */
static inline void flush_before_free(CUdeviceptr dptr)
{
    struct ag_block_seen block;

    if (dptr)
        ag_entry_before(AG_FLUSH_FREE);
    if (AG_UNLIKELY(ag_replay_holds()) && ag_context_count() > 1 && ag_ledger_look(dptr, &block))
        ag_replay_flush_context(block.context, AG_FLUSH_DEVICE);
}

AG_ENTRY CUresult cuMemFree_v2(CUdeviceptr dptr)
{
    const void *caller = __builtin_return_address(0);

    AG_ENTER(cuMemFree_v2, dptr);
    flush_before_free(dptr);
    if (AG_UNLIKELY(ag_holders_any(AG_HOLDERS_OF_MEMORY | AG_HOLDERS_OF_WAITS) || ag_api_owns()))
        return ag_entry_leave(free_told(dptr, caller));
    return ag_entry_leave(ag_free(dptr, caller));
}

AG_ENTRY CUresult cuMemGetInfo_v2(size_t *ret_free, size_t *ret_total)
{
    AG_ENTER(cuMemGetInfo_v2, ret_free, ret_total);
    return ag_entry_leave(ag_answer_mem_info(ret_free, ret_total));
}

AG_ENTRY CUresult cuMemGetAddressRange_v2(CUdeviceptr *ret_base, size_t *ret_size, CUdeviceptr dptr)
{
    AG_ENTER(cuMemGetAddressRange_v2, ret_base, ret_size, dptr);
    return ag_entry_leave(ag_answer_address_range(ret_base, ret_size, dptr));
}

AG_ENTRY CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    AG_ENTER(cuPointerGetAttribute, data, attribute, ptr);
    if (attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS) {
        ag_drain_note_visible(AG_VISIBLE_RDMA);
        ag_lookup_note_exported(ptr);
    }
    return ag_entry_leave(ag_answer_attribute(data, attribute, ptr));
}

AG_ENTRY CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes,
                                         void **data, CUdeviceptr ptr)
{
    AG_ENTER(cuPointerGetAttributes, count, attributes, data, ptr);
    return ag_entry_leave(ag_answer_attributes(count, attributes, data, ptr));
}

AG_ENTRY CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
                                        CUdeviceptr ptr)
{
    AG_ENTER(cuPointerSetAttribute, value, attribute, ptr);
    ag_drain_note_visible(AG_VISIBLE_RDMA); /* SYNC_MEMOPS: who sets it shares with other devices */
    ag_copies_note_synchronous();
    return ag_entry_leave(ag_answer_set_attribute(value, attribute, ptr));
}

static CUresult free_pinned(void *p)
{
    struct ag_held_free held;

    ag_held_free_begin(&held, (uintptr_t)p);
    return ag_held_free_end(&held, ag_pinned_free(p));
}

static CUresult told_free(uint64_t began, const void *p, const void *caller, CUresult result)
{
    if (result == CUDA_SUCCESS && p)
        ag_trace_pinned(began, true, p, 0, caller);
    return result;
}

/* It waits for all work, so the hook is left before, as in WAITS of made/kinds.c.in. */
AG_ENTRY CUresult cuMemFreeHost(void *p)
{
    const void *caller = __builtin_return_address(0);
    uint64_t began = ag_trace_began();
    struct ag_held_free held;

    AG_ENTER(cuMemFreeHost, p);
    AG_TIMES_WAIT(AG_WAIT_FREE, cuMemFreeHost);
    if (AG_UNLIKELY(ag_pinned_on))
        return ag_entry_leave(told_free(began, p, caller, free_pinned(p)));
    ag_watch_work(CU_STREAM_PER_THREAD, true); /* of whatever stream */
    ag_held_free_begin(&held, (uintptr_t)p);
    (void)ag_entry_leave(CUDA_SUCCESS);
    return told_free(began, p, caller, ag_held_free_end(&held, ag_cu.cuMemFreeHost(p)));
}

AG_ENTRY CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *ret_p, void *p, unsigned int flags)
{
    AG_ENTER(cuMemHostGetDevicePointer_v2, ret_p, p, flags);
    p = (void *)ag_pinned_answers_address((uintptr_t)p);
    return ag_entry_leave(ag_cu.cuMemHostGetDevicePointer_v2(ret_p, p, flags));
}

AG_ENTRY CUresult cuMemHostGetFlags(unsigned int *flags, void *p)
{
    AG_ENTER(cuMemHostGetFlags, flags, p);
    p = (void *)ag_pinned_answers_as_allocated((uintptr_t)p);
    return ag_entry_leave(ag_cu.cuMemHostGetFlags(flags, p));
}
