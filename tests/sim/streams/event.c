/* event.c: events, and waiting for whole contexts through them. */
#include "tests/sim/sim_internal.h"

#include <stdlib.h>

#define EVENT_FLAGS (CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS)

CUresult cuEventCreate(CUevent *ret_event, unsigned int flags)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    if (!ret_event || flags & ~(unsigned)EVENT_FLAGS)
        return CUDA_ERROR_INVALID_VALUE;
    if (flags & CU_EVENT_INTERPROCESS && !(flags & CU_EVENT_DISABLE_TIMING))
        return CUDA_ERROR_INVALID_VALUE;
    CUevent event = sim_handle_new(SIM_EVENT, sizeof(*event));
    event->ctx = call.ctx;
    event->ctx_id = call.ctx->id;
    event->flags = flags;
    *ret_event = event;
    return CUDA_SUCCESS;
}

bool sim_event_alive(CUevent event)
{
    return event->ctx->alive && event->ctx->id == event->ctx_id;
}

static CUresult destroy(CUevent event)
{
    if (!sim_handle_is(event, SIM_EVENT))
        return event ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_HANDLE;
    sim_op_unref(event->op);
    free(event->nodes);
    sim_event_share_finish(event);
    sim_handle_free(event);
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    return destroy(event);
}

CUresult cuEventDestroy_v2(CUevent event)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    return destroy(event);
}

void sim_event_set(CUevent event, struct sim_op *op)
{
    sim_op_ref(op);
    sim_op_unref(event->op);
    event->op = op;
    if (op && event->shared)
        sim_event_share_record(event, op);
    event->capture = NULL;
    free(event->nodes);
    event->nodes = NULL;
    event->n_nodes = 0;
}

static CUresult record(CUcontext ctx, CUevent event, CUstream handle, unsigned flags)
{
    CUstream stream;
    CUresult result = sim_stream_find(ctx, handle, &stream);

    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_handle_is(event, SIM_EVENT))
        return CUDA_ERROR_INVALID_HANDLE;
    if (flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    if (event->ctx != stream->ctx || !sim_event_alive(event))
        return CUDA_ERROR_INVALID_HANDLE;
    result = sim_capture_check_legacy(stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (stream->capture)
        return sim_capture_record(stream, event, flags);
    if (flags & CU_EVENT_RECORD_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_work work = {.kind = SIM_WORK_EVENT_RECORD};
    struct sim_op *op = NULL;
    sim_enqueue(stream, &work, NULL, &op);
    sim_event_set(event, op);
    sim_op_unref(op);
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    return record(call.ctx, event, stream, 0);
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    return record(call.ctx, event, stream, flags);
}

static CUresult wait_outside_capture(CUstream stream, CUevent event)
{
    struct sim_work work = {.kind = SIM_WORK_EVENT_WAIT};
    struct sim_op *before = event->op;
    uint64_t foreign = event->shared ? sim_event_share_pending(event) : 0;

    /* The newest record counts, be it ours or another process's. */
    if (foreign && (!before || before->shared_number != foreign)) {
        work.shared_page = sim_event_share_page(event);
        work.shared_number = foreign;
        sim_enqueue(stream, &work, NULL, NULL);
    } else if (before) {
        sim_enqueue(stream, &work, &(struct sim_ops){&before, 1, 1}, NULL);
    }
    return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned int flags)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    CUstream stream;
    CUresult result = sim_stream_find(call.ctx, handle, &stream);

    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_handle_is(event, SIM_EVENT))
        return CUDA_ERROR_INVALID_HANDLE;
    if (flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_capture_check_legacy(stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (stream->capture || event->capture)
        return sim_capture_wait(stream, event, flags);
    if (flags & CU_EVENT_WAIT_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    return wait_outside_capture(stream, event);
}

/* Is the newest record another process's, and not done? */
static bool foreign_pending(CUevent event)
{
    uint64_t number = event->shared ? sim_event_share_pending(event) : 0;

    return number && (!event->op || event->op->shared_number != number);
}

CUresult cuEventQuery(CUevent event)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!sim_handle_is(event, SIM_EVENT))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!sim_event_alive(event))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    CUresult result = sim_capture_check_event(event);
    if (result != CUDA_SUCCESS)
        return result;
    struct sim_op *op = sim_op_ref(event->op);
    CUcontext ctx = event->ctx;
    if (foreign_pending(event)) {
        sim_op_unref(op);
        return CUDA_ERROR_NOT_READY;
    }
    if (!op)
        return CUDA_SUCCESS;
    sim_nudge(op);
    bool done = op->state == SIM_OP_DONE;
    if (done)
        sim_order_join(&sim_host_order, &op->order);
    sim_op_unref(op);
    if (ctx->fault)
        return ctx->fault;
    return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent event)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!sim_handle_is(event, SIM_EVENT))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!sim_event_alive(event))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    CUresult result = sim_capture_check_event(event);
    if (result != CUDA_SUCCESS)
        return result;
    CUcontext ctx = event->ctx;
    while (sim_handle_is(event, SIM_EVENT) && foreign_pending(event))
        sim_sleep_for_change(1);
    if (!sim_handle_is(event, SIM_EVENT))
        return CUDA_ERROR_INVALID_HANDLE;
    struct sim_op *op = event->op ? sim_op_ref(event->op) : NULL;
    sim_wait(op);
    if (op)
        sim_pools_waited(&op->order);
    sim_op_unref(op);
    sim_pools_synchronised();
    return ctx->fault;
}

static CUresult elapsed(float *ms, CUevent start, CUevent end)
{
    if (!sim_handle_is(start, SIM_EVENT) || !sim_handle_is(end, SIM_EVENT))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!ms)
        return CUDA_ERROR_INVALID_VALUE;
    if ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING || !start->op || !end->op)
        return CUDA_ERROR_INVALID_HANDLE;
    if (start->op->state != SIM_OP_DONE || end->op->state != SIM_OP_DONE)
        return CUDA_ERROR_NOT_READY;
    *ms = (float)((double)(int64_t)(end->op->done_ns - start->op->done_ns) / 1e6);
    return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    return elapsed(ms, start, end);
}

CUresult cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    return elapsed(ms, start, end);
}

/* ---- whole contexts ---- */

CUresult cuCtxRecordEvent(CUcontext ctx, CUevent event)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    ctx = ctx ? sim_context_of(ctx) : sim_current();
    if (!sim_handle_is(ctx, SIM_CONTEXT) || !ctx->alive)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!sim_handle_is(event, SIM_EVENT) || event->ctx != ctx)
        return CUDA_ERROR_INVALID_HANDLE;
    if (ctx->fault)
        return ctx->fault;
    CUresult refused = sim_capture_check(ctx, SIM_CAPTURE_CONTEXT_WIDE);
    if (refused != CUDA_SUCCESS)
        return refused;
    struct sim_work work = {.kind = SIM_WORK_EVENT_RECORD};
    struct sim_op *op = NULL;
    sim_enqueue(ctx->all, &work, NULL, &op);
    sim_event_set(event, op);
    sim_op_unref(op);
    return CUDA_SUCCESS;
}

CUresult cuCtxWaitEvent(CUcontext ctx, CUevent event)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    ctx = ctx ? sim_context_of(ctx) : sim_current();
    if (!sim_handle_is(ctx, SIM_CONTEXT) || !ctx->alive)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!sim_handle_is(event, SIM_EVENT))
        return CUDA_ERROR_INVALID_HANDLE;
    if (ctx->fault)
        return ctx->fault;
    CUresult refused = sim_capture_check(ctx, SIM_CAPTURE_CONTEXT_WIDE);
    if (refused != CUDA_SUCCESS)
        return refused;
    if (event->capture)
        return CUDA_ERROR_CAPTURED_EVENT;
    if (!event->op)
        return CUDA_SUCCESS;
    sim_order_join(&ctx->barrier_order, &event->op->order);
    sim_ops_prune(&ctx->barrier);
    sim_ops_add(&ctx->barrier, event->op);
    return CUDA_SUCCESS;
}
