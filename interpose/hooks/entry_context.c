/* Hooks of contexts: which device each belongs to, and whose memory is freed with it. */
#include "graph/copies.h"
#include "graph/record/func_attrs.h"
#include "graph/replayer.h"
#include "interpose/api/api.h"
#include "interpose/copies/copying.h"
#include "interpose/core/driver/driver.h"
#include "interpose/core/report/holders/holders.h"
#include "interpose/hooks/entry_retry.h"
#include "interpose/lifecycle.h"
#include "policy/alloc/alloc.h"
#include "policy/app/app_pools.h"
#include "policy/contexts/context.h"
#include "policy/contexts/enter.h"
#include "policy/contexts/green_context.h"
#include "policy/ipc/ipc.h"
#include "policy/order/drain.h"
#include "policy/order/fence.h"
#include "policy/order/free.h"
#include "policy/order/users.h"

/* `caller`: of the hook; most often what allocates next. */
static CUresult entered(CUresult result, const CUcontext *handle, CUdevice device,
                        const void *caller)
{
    struct ag_context *context;

    if (result != CUDA_SUCCESS || !handle)
        return result;
    ag_lifecycle_context_exists();
    context = ag_context_enter(*handle, device);
    ag_latch_enter(); /* what moves now does not know of its work; later nothing does */
    ag_latch_leave();
    if (context) {
        ag_alloc_prepare(context, caller);
        ag_ipc_context_entered(context);
    }
    return result;
}

/* Notes flags of a context, or of all its later ones. */
static void note_flags(unsigned flags)
{
    if (flags & CU_CTX_SYNC_MEMOPS)
        ag_copies_note_synchronous();
}

AG_ENTRY CUresult cuCtxSetFlags(unsigned int flags)
{
    AG_ENTER(cuCtxSetFlags, flags);
    note_flags(flags);
    return ag_entry_leave(ag_cu.cuCtxSetFlags(flags));
}

/* Before a call that ends a context, whose work it waits for, or none: `context` is NULL. It waits
 * for no other's. */
static void flush_ending(struct ag_context *context)
{
    if (context)
        ag_replay_flush_context(context, AG_FLUSH_END);
    if (ag_replay_holds())
        ag_replay_flush_all(AG_FLUSH_CALL);
    ag_entry_remaps();
}

/* Does what has to be done before the call that ends a context. */
static void ending(struct ag_context *context)
{
    flush_ending(context);
    ag_api_context_dying(context->handle);
    if (ag_holders_on())
        ag_holders_ended(context, -1);
    ag_alloc_context_dying(context);
}

/* Forgets the context after the call, whatever that returned: the ledger has nothing of the context
 * any more. */
static void finish_ended(struct ag_context *context)
{
    ag_context_ended(context);
    if (ag_entry_replays_now()) {
        ag_replay_context_gone(context);
        ag_func_attrs_forget();
    }
    ag_copying_context_gone(context);
    ag_context_recycle(context);
    if (!ag_capture_is_open()) /* any more: those of its streams have ended with it */
        ag_alloc_capture_closed();
}

static CUresult destroy_context(CUcontext handle, CUresult (*real)(CUcontext))
{
    struct ag_context *context = ag_context_find(handle);
    CUresult result;

    if (!context || context->primary_references) { /* the driver refuses it */
        flush_ending(NULL);
        return real(handle);
    }
    ending(context);
    ag_context_forget(context);
    result = real(handle);
    finish_ended(context);
    return result;
}

AG_ENTRY CUresult cuCtxDestroy(CUcontext handle)
{
    AG_ENTER(cuCtxDestroy, handle);
    return ag_entry_leave(destroy_context(handle, ag_cu.cuCtxDestroy));
}

AG_ENTRY CUresult cuCtxDestroy_v2(CUcontext handle)
{
    AG_ENTER(cuCtxDestroy_v2, handle);
    return ag_entry_leave(destroy_context(handle, ag_cu.cuCtxDestroy_v2));
}

AG_ENTRY CUresult cuCtxAttach(CUcontext *handle, unsigned int flags)
{
    struct ag_context *context;
    CUresult result;

    AG_ENTER(cuCtxAttach, handle, flags);
    result = ag_cu.cuCtxAttach(handle, flags);
    context = result == CUDA_SUCCESS && handle ? ag_context_find(*handle) : NULL;
    if (context)
        atomic_fetch_add(&context->attached, 1);
    return ag_entry_leave(result);
}

/* Takes one attachment from a context that has any. */
static bool detached(CUcontext handle)
{
    struct ag_context *context = ag_context_find(handle);
    unsigned n = context ? atomic_load(&context->attached) : 0;

    while (n) {
        if (atomic_compare_exchange_weak(&context->attached, &n, n - 1))
            return true;
    }
    return false;
}

/* The last one to detach destroys. */
AG_ENTRY CUresult cuCtxDetach(CUcontext handle)
{
    AG_ENTER(cuCtxDetach, handle);
    if (detached(handle)) {
        flush_ending(NULL);
        return ag_entry_leave(ag_cu.cuCtxDetach(handle));
    }
    return ag_entry_leave(destroy_context(handle, ag_cu.cuCtxDetach));
}

static CUresult retained(CUresult result, const CUcontext *handle, CUdevice device,
                         const void *caller)
{
    if (result == CUDA_SUCCESS && handle)
        ag_context_primary_retained(*handle, device);
    return entered(result, handle, device, caller);
}

/* The primary context's NULL stream waits for none of a green context's streams, the default one
 * included. */
static CUresult green_created(CUresult result, const CUgreenCtx *green, CUdevice device,
                              const void *caller)
{
    CUcontext primary = result == CUDA_SUCCESS ? ag_context_primary_handle(device) : NULL;

    if (!primary)
        return result;
    ag_context_primary_retained(primary, device);
    ag_green_created(*green, device);
    result = entered(result, &primary, device, caller);
    ag_fence_nonblocking_coming(ag_context_find(primary));
    ag_free_nonblocking_created(ag_context_find(primary));
    return result;
}

#include "interpose/hooks/made/contexts.h"

/* Before the call: if it ends the primary context, its memory goes. NULL when it lives on. */
static struct ag_context *primary_ending(CUdevice device, bool reset)
{
    struct ag_context *context = ag_context_primary_leaving(device, reset);

    if (context) {
        ag_app_pools_device_ending(device);
        if (ag_holders_on())
            ag_holders_ended(NULL, device);
        ending(context);
    } else {
        flush_ending(NULL);
    }
    return context;
}

static CUresult after_primary_release(CUresult result, struct ag_context *dying, CUdevice device)
{
    if (!dying) {
        if (result != CUDA_SUCCESS)
            ag_context_primary_kept(device);
        return result;
    }
    ag_context_forget(dying);
    finish_ended(dying);
    return result;
}

/* A reset keeps the references: the next use of the device makes a new context of the same kind. */
static CUresult was_reset(CUresult result, struct ag_context *dying)
{
    if (dying) {
        ag_context_forget(dying);
        finish_ended(dying);
    }
    return result;
}

AG_ENTRY CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    struct ag_context *dying;

    AG_ENTER(cuDevicePrimaryCtxRelease, device);
    dying = primary_ending(device, false);
    return ag_entry_leave(
        after_primary_release(ag_cu.cuDevicePrimaryCtxRelease(device), dying, device));
}

AG_ENTRY CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    struct ag_context *dying;

    AG_ENTER(cuDevicePrimaryCtxRelease_v2, device);
    dying = primary_ending(device, false);
    return ag_entry_leave(
        after_primary_release(ag_cu.cuDevicePrimaryCtxRelease_v2(device), dying, device));
}

/* --- threads that begin to use a context count from here on (policy/order/users.h) --- */

/* Some programs make a context current before each of their calls, so a thread that is known
 * jumps on. */
#define MAKES_CURRENT(symbol)                                                   \
    static __attribute__((noinline)) CUresult noted_##symbol(CUcontext context) \
    {                                                                           \
        AG_ENTER(symbol, context);                                              \
        return ag_entry_leave(ag_cu.symbol(context));                           \
    }                                                                           \
    AG_ENTRY CUresult symbol(CUcontext context)                                 \
    {                                                                           \
        __typeof__(&symbol) way = ag_cu.symbol;                                 \
                                                                                \
        if (AG_UNLIKELY(!way || !ag_users_knows_caller()))                      \
            way = noted_##symbol;                                               \
        return way(context);                                                    \
    }

MAKES_CURRENT(cuCtxPushCurrent_v2)
MAKES_CURRENT(cuCtxSetCurrent)

/* --- green contexts: each holds a reference to the primary context --- */

AG_ENTRY CUresult cuCtxFromGreenCtx(CUcontext *handle, CUgreenCtx green)
{
    CUresult result;

    AG_ENTER(cuCtxFromGreenCtx, handle, green);
    result = ag_cu.cuCtxFromGreenCtx(handle, green);
    if (result == CUDA_SUCCESS)
        ag_green_converted(green, *handle);
    return ag_entry_leave(result);
}

AG_ENTRY CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
    struct ag_context *dying;
    CUresult result;
    int device;

    AG_ENTER(cuGreenCtxDestroy, green);
    device = ag_green_device(green);
    dying = primary_ending(device, false);
    ag_green_destroyed(green);
    result = after_primary_release(ag_cu.cuGreenCtxDestroy(green), dying, device);
    ag_context_changed();
    return ag_entry_leave(result);
}

AG_ENTRY CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
    struct ag_context *dying;

    AG_ENTER(cuDevicePrimaryCtxReset, device);
    dying = primary_ending(device, true);
    return ag_entry_leave(was_reset(ag_cu.cuDevicePrimaryCtxReset(device), dying));
}

AG_ENTRY CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    struct ag_context *dying;

    AG_ENTER(cuDevicePrimaryCtxReset_v2, device);
    dying = primary_ending(device, true);
    return ag_entry_leave(was_reset(ag_cu.cuDevicePrimaryCtxReset_v2(device), dying));
}
