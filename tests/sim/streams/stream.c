/* stream.c: streams, finding the one a handle means, waiting for one. */
#include "tests/sim/sim_internal.h"

#include <stdlib.h>
#include <string.h>

static struct {
    uint64_t next_id;
    bool pool_on_legacy;
    pthread_key_t thread_end;
    pthread_once_t once;
} self = {.once = PTHREAD_ONCE_INIT};

CUstream sim_stream_new(CUcontext ctx, enum sim_stream_kind kind, unsigned flags, int priority)
{
    CUstream stream = sim_handle_new(SIM_STREAM, sizeof(*stream));

    stream->ctx = ctx;
    stream->kind = kind;
    stream->flags = flags;
    stream->priority = priority;
    stream->id = ++self.next_id;
    stream->slot = sim_slot_new();
    stream->thread = sim_thread_number();
    if (kind != SIM_STREAM_ALL) {
        stream->next = ctx->first;
        ctx->first = stream;
    }
    return stream;
}

bool sim_stream_blocking(CUstream stream)
{
    return !(stream->flags & CU_STREAM_NON_BLOCKING) && stream->kind != SIM_STREAM_ALL;
}

void sim_stream_delete(CUstream stream)
{
    CUcontext ctx = stream->ctx;
    bool blocking = sim_stream_blocking(stream);

    sim_capture_forget_stream(stream);
    for (CUstream *link = &ctx->first; *link; link = &(*link)->next) {
        if (*link == stream) {
            *link = stream->next;
            break;
        }
    }
    sim_ops_add(&ctx->orphans[blocking], stream->last);
    sim_order_join(&ctx->orphan_order[blocking], &stream->order);
    sim_op_unref(stream->last);
    sim_ops_finish(&stream->before_kernel);
    sim_op_unref(stream->uploads[0]);
    sim_op_unref(stream->uploads[1]);
    sim_op_unref(stream->small_uploads[0].last);
    sim_op_unref(stream->small_uploads[1].last);
    sim_order_finish(&stream->order);
    sim_order_finish(&stream->order_before_kernel);
    sim_slot_retire(stream->slot);
    free(stream->tail);
    sim_handle_free(stream);
}

void sim_stream_pool_on_legacy(void)
{
    self.pool_on_legacy = true;
}

/* A thread ends: its streams go. The real driver never comes back from this when the process has
 * taken pool memory on the legacy stream and the stream still waits for other streams' work. */
static void end_of_thread(void *number)
{
    sim_lock();
    for (CUcontext ctx = sim_contexts(); ctx; ctx = ctx->next) {
        for (CUstream stream = ctx->first, next; stream; stream = next) {
            next = stream->next;
            if (stream->kind != SIM_STREAM_PER_THREAD || stream->thread != (int)(intptr_t)number)
                continue;
            if (self.pool_on_legacy && stream->last && stream->last->n_waiting_for)
                sim_violation(stream->last, 0, 0, NULL,
                              "a thread ends while its stream waits, after a pool allocation on "
                              "the legacy stream: the real driver hangs");
            sim_stream_delete(stream);
        }
    }
    sim_unlock();
}

static void make_key(void)
{
    (void)pthread_key_create(&self.thread_end, end_of_thread);
}

static CUstream per_thread(CUcontext ctx)
{
    int thread = sim_thread_number();

    for (CUstream stream = ctx->first; stream; stream = stream->next)
        if (stream->kind == SIM_STREAM_PER_THREAD && stream->thread == thread)
            return stream;
    (void)pthread_once(&self.once, make_key);
    (void)pthread_setspecific(self.thread_end, (void *)(intptr_t)thread);
    return sim_stream_new(ctx, SIM_STREAM_PER_THREAD, 0, 0);
}

CUresult sim_stream_find(CUcontext ctx, CUstream handle, CUstream *ret_stream)
{
    CUcontext part = sim_current_part();

    if (!handle || handle == CU_STREAM_LEGACY)
        *ret_stream = part && part->part_of == ctx ? part->legacy : ctx->legacy;
    else if (handle == CU_STREAM_PER_THREAD)
        *ret_stream = per_thread(ctx);
    else if (sim_handle_is(handle, SIM_STREAM))
        *ret_stream = handle;
    else
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return (*ret_stream)->ctx->fault;
}

void sim_stream_pending(CUstream stream, struct sim_ops *ops, struct sim_order *order)
{
    CUcontext ctx = stream->ctx;

    sim_ops_add(ops, stream->last);
    sim_order_join(order, &stream->order);
    if (stream->kind != SIM_STREAM_LEGACY)
        return;
    for (CUstream other = ctx->first; other; other = other->next) {
        if (!sim_stream_blocking(other))
            continue;
        sim_ops_add(ops, other->last);
        sim_order_join(order, &other->order);
    }
    for (unsigned i = 0; i < ctx->orphans[1].n; i++)
        sim_ops_add(ops, ctx->orphans[1].at[i]);
    sim_order_join(order, &ctx->orphan_order[1]);
}

CUresult sim_stream_drain(CUstream stream)
{
    CUcontext ctx = stream->ctx;
    struct sim_ops ops = {0};
    struct sim_order order = {0};

    sim_stream_pending(stream, &ops, &order);
    for (unsigned i = 0; i < ops.n; i++)
        sim_wait(ops.at[i]);
    sim_order_join(&sim_host_order, &order);
    sim_pools_waited(&order);
    sim_order_finish(&order);
    sim_ops_finish(&ops);
    sim_pools_synchronised();
    return ctx->fault;
}

void sim_stream_wait_for_legacy(CUstream stream)
{
    CUstream legacy = stream->ctx->legacy;
    struct sim_order order = {0};
    struct sim_op *last;

    if (!sim_stream_blocking(stream) || !legacy || !legacy->last)
        return;
    last = sim_op_ref(legacy->last);
    sim_order_join(&order, &legacy->order);
    sim_wait(last);
    sim_order_join(&sim_host_order, &order);
    sim_order_finish(&order);
    sim_op_unref(last);
}

CUresult sim_submit(CUstream stream, struct sim_work *work, struct sim_op **ret_op)
{
    CUresult refused = sim_capture_check_legacy(stream);

    if (refused != CUDA_SUCCESS) {
        sim_work_finish(work);
        return refused;
    }
    if (stream->capture)
        return sim_capture_add(stream, work, NULL);
    sim_enqueue(stream, work, NULL, ret_op);
    return CUDA_SUCCESS;
}

/* ---- calls ---- */

static CUresult create(CUcontext ctx, CUstream *ret_stream, unsigned flags, int priority)
{
    if (!ret_stream || flags & ~(unsigned)CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    priority = SIM_MIN(0, SIM_MAX(-5, priority));
    *ret_stream = sim_stream_new(ctx, SIM_STREAM_USER, flags, priority);
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    return create(call.ctx, stream, flags, 0);
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    return create(call.ctx, stream, flags, priority);
}

static CUresult destroy(CUstream stream)
{
    if (stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD || !stream)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!sim_handle_is(stream, SIM_STREAM) || stream->kind != SIM_STREAM_USER)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    sim_stream_delete(stream);
    return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream stream)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    return destroy(stream);
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    return destroy(stream);
}

CUresult cuStreamSynchronize(CUstream handle)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    CUstream stream;
    CUresult result = sim_stream_find(call.ctx, handle, &stream);

    if (result == CUDA_SUCCESS)
        result = sim_capture_check_stream(stream);
    if (result == CUDA_SUCCESS)
        result = sim_capture_check(stream->ctx, SIM_CAPTURE_UNSAFE);
    return result ? result : sim_stream_drain(stream);
}

static CUresult query(CUstream stream)
{
    CUcontext ctx = stream->ctx;
    struct sim_ops ops = {0};
    struct sim_order order = {0};
    bool done = true;

    sim_stream_pending(stream, &ops, &order);
    for (unsigned i = 0; i < ops.n; i++) {
        sim_nudge(ops.at[i]);
        done = done && ops.at[i]->state == SIM_OP_DONE;
    }
    if (done)
        sim_order_join(&sim_host_order, &order);
    sim_order_finish(&order);
    sim_ops_finish(&ops);
    return ctx->fault ? ctx->fault : done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamQuery(CUstream handle)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    CUstream stream;
    CUresult result = sim_stream_find(call.ctx, handle, &stream);

    if (result == CUDA_SUCCESS)
        result = sim_capture_check_stream(stream);
    if (result == CUDA_SUCCESS)
        result = sim_capture_check(stream->ctx, SIM_CAPTURE_UNSAFE);
    if (result != CUDA_SUCCESS)
        return result;
    return query(stream);
}

CUresult cuStreamGetFlags(CUstream handle, unsigned int *flags)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    CUstream stream;
    CUresult result = sim_stream_find(call.ctx, handle, &stream);

    if (result != CUDA_SUCCESS)
        return result;
    if (!flags)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = stream->flags;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetPriority(CUstream handle, int *priority)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    CUstream stream;
    CUresult result = sim_stream_find(call.ctx, handle, &stream);

    if (result != CUDA_SUCCESS)
        return result;
    if (!priority)
        return CUDA_ERROR_INVALID_VALUE;
    *priority = stream->priority;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream handle, unsigned long long *id)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    CUstream stream;
    CUresult result = sim_stream_find(call.ctx, handle, &stream);

    if (result != CUDA_SUCCESS)
        return result;
    if (!id)
        return CUDA_ERROR_INVALID_VALUE;
    *id = stream->id;
    return CUDA_SUCCESS;
}

static CUresult get_context(CUcontext current, CUstream handle, CUcontext *ctx)
{
    CUstream stream;
    CUresult result = sim_stream_find(current, handle, &stream);

    if (result != CUDA_SUCCESS)
        return result;
    if (!ctx)
        return CUDA_ERROR_INVALID_VALUE;
    *ctx = stream->ctx;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext *ctx)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    return get_context(call.ctx, handle, ctx);
}

CUresult cuStreamGetCtx_v2(CUstream handle, CUcontext *ctx, CUgreenCtx *green)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    CUresult result = get_context(call.ctx, handle, ctx);

    if (result == CUDA_SUCCESS && green)
        *green = NULL;
    return result;
}

CUresult cuStreamGetDevice(CUstream handle, CUdevice *device)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    CUstream stream;
    CUresult result = sim_stream_find(call.ctx, handle, &stream);

    if (result != CUDA_SUCCESS)
        return result;
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    *device = stream->ctx->device;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetAttribute(CUstream handle, CUstreamAttrID attribute, CUstreamAttrValue *value)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    CUstream stream;
    CUresult result = sim_stream_find(call.ctx, handle, &stream);

    if (result != CUDA_SUCCESS)
        return result;
    if (!value || (unsigned)attribute >= CU_LAUNCH_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    *value = stream->attributes[attribute];
    if (attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY)
        value->priority = stream->priority;
    return CUDA_SUCCESS;
}

CUresult cuStreamSetAttribute(CUstream handle, CUstreamAttrID attribute,
                              const CUstreamAttrValue *value)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    CUstream stream;
    CUresult result = sim_stream_find(call.ctx, handle, &stream);

    if (result != CUDA_SUCCESS)
        return result;
    if (!value || (unsigned)attribute >= CU_LAUNCH_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    stream->attributes[attribute] = *value;
    return CUDA_SUCCESS;
}

CUresult cuStreamCopyAttributes(CUstream dst, CUstream src)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    CUstream to, from;

    if (sim_stream_find(call.ctx, dst, &to) || sim_stream_find(call.ctx, src, &from))
        return CUDA_ERROR_INVALID_HANDLE;
    memcpy(to->attributes, from->attributes, sizeof(to->attributes));
    return CUDA_SUCCESS;
}
