/* context.c: contexts, which of them is current, and waiting for one as a whole. */
#include "tests/sim/sim_internal.h"

#include <stdlib.h>
#include <string.h>

#define STACK_DEPTH 32
#define CREATION_FLAGS                                                                          \
    (CU_CTX_SCHED_MASK | CU_CTX_MAP_HOST | CU_CTX_LMEM_RESIZE_TO_MAX | CU_CTX_COREDUMP_ENABLE | \
     CU_CTX_USER_COREDUMP_ENABLE | CU_CTX_SYNC_MEMOPS)

static struct {
    CUcontext first;
    CUcontext primary[SIM_MAX_DEVICES];
    unsigned primary_flags[SIM_MAX_DEVICES];
    unsigned long long next_id;
} self;

static __thread struct {
    CUcontext stack[STACK_DEPTH];
    unsigned depth;
} current;

static CUcontext top(void)
{
    return current.depth ? current.stack[current.depth - 1] : NULL;
}

CUcontext sim_context_of(CUcontext ctx)
{
    return ctx && sim_handle_is(ctx, SIM_CONTEXT) && ctx->part_of && ctx->alive ? ctx->part_of
                                                                                : ctx;
}

CUcontext sim_current_part(void)
{
    return sim_context_of(top()) != top() ? top() : NULL;
}

CUcontext sim_current(void)
{
    return sim_context_of(top());
}

static void set_current(CUcontext ctx)
{
    if (!ctx) {
        current.depth -= current.depth > 0;
        return;
    }
    if (!current.depth)
        current.depth = 1;
    current.stack[current.depth - 1] = ctx;
}

void sim_make_current(CUcontext ctx)
{
    set_current(ctx);
}

CUcontext sim_contexts(void)
{
    return self.first;
}

static bool usable(CUcontext ctx)
{
    return sim_handle_is(ctx, SIM_CONTEXT) && ctx->alive;
}

/* Brings a context struct to life, if the card has room for it. Structs are never freed, so stale
 * handles can be told. */
static bool open_context(CUcontext ctx, int device, unsigned flags, unsigned api_version)
{
    if (!sim_overhead_take(device, sim_settings()->context_bytes))
        return false;
    ctx->device = device;
    ctx->flags = flags;
    ctx->api_version = api_version;
    ctx->alive = true;
    ctx->fault = CUDA_SUCCESS;
    ctx->attached = 0;
    ctx->id = ++self.next_id;
    ctx->limits[CU_LIMIT_STACK_SIZE] = 1024;
    ctx->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20;
    ctx->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20;
    ctx->limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
    ctx->limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
    ctx->limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
    ctx->legacy = sim_stream_new(ctx, SIM_STREAM_LEGACY, 0, 0);
    ctx->all = sim_stream_new(ctx, SIM_STREAM_ALL, 0, 0);
    ctx->next = self.first;
    self.first = ctx;
    return true;
}

static void forget_peer(CUcontext ctx, CUcontext peer)
{
    for (unsigned i = 0; i < ctx->n_peers; i++)
        if (ctx->peers[i] == peer)
            ctx->peers[i--] = ctx->peers[--ctx->n_peers];
}

static void close_context(CUcontext ctx)
{
    (void)sim_context_drain(ctx);
    sim_free_context_modules(ctx);
    sim_free_context_memory(ctx);
    while (ctx->first)
        sim_stream_delete(ctx->first);
    sim_stream_delete(ctx->all);
    ctx->legacy = ctx->all = NULL;
    sim_ops_finish(&ctx->barrier);
    sim_order_finish(&ctx->barrier_order);
    for (int i = 0; i < 2; i++) {
        sim_ops_finish(&ctx->orphans[i]);
        sim_order_finish(&ctx->orphan_order[i]);
    }
    ctx->n_peers = 0;
    ctx->alive = false;
    sim_overhead_give(ctx->device, sim_settings()->context_bytes + ctx->local_bytes);
    ctx->local_bytes = 0;
    sim_green_primary_gone(ctx);
    for (CUcontext *link = &self.first; *link; link = &(*link)->next) {
        if (*link == ctx) {
            *link = ctx->next;
            break;
        }
    }
    for (CUcontext other = self.first; other; other = other->next)
        forget_peer(other, ctx);
}

/* All that has been submitted to the context so far, and the order that it makes. */
static void pending(CUcontext ctx, struct sim_ops *ops, struct sim_order *order)
{
    for (CUstream stream = ctx->first; stream; stream = stream->next) {
        sim_ops_add(ops, stream->last);
        sim_order_join(order, &stream->order);
    }
    sim_ops_add(ops, ctx->all->last);
    sim_order_join(order, &ctx->all->order);
    for (int i = 0; i < 2; i++) {
        for (unsigned j = 0; j < ctx->orphans[i].n; j++)
            sim_ops_add(ops, ctx->orphans[i].at[j]);
        sim_order_join(order, &ctx->orphan_order[i]);
    }
}

CUresult sim_context_drain(CUcontext ctx)
{
    struct sim_ops ops = {0};
    struct sim_order order = {0};

    pending(ctx, &ops, &order);
    while (ops.n) {
        /* In any order: each is waited for. */
        uint32_t i = sim_random(ops.n);
        struct sim_op *op = ops.at[i];
        ops.at[i] = ops.at[--ops.n];
        sim_wait(op);
        sim_op_unref(op);
    }
    sim_ops_finish(&ops);
    sim_order_join(&sim_host_order, &order);
    sim_order_finish(&order);
    if (!ctx->alive)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    for (int i = 0; i < 2; i++)
        sim_ops_prune(&ctx->orphans[i]);
    return ctx->fault;
}

static _Thread_local unsigned own_frees; /* of the calling thread: its own calls go on */

CUresult sim_context_drain_to_free(CUcontext ctx)
{
    ctx->n_freeing++;
    own_frees++;
    CUresult result = sim_context_drain(ctx);
    own_frees--;
    ctx->n_freeing--;
    sim_wake_all();
    return result;
}

bool sim_context_is_held(CUcontext ctx)
{
    return ctx && ctx->alive && ctx->n_freeing && !own_frees;
}

/* A wait that the program asks for: others, as cuMemFree's, leave pools as they are, and a later
 * trim as well (R712, R719). */
static CUresult synchronize(CUcontext ctx)
{
    CUresult result = sim_context_drain(ctx);

    sim_pools_waited(&sim_host_order);
    sim_pools_synchronised();
    return result;
}

bool sim_peers_open(CUcontext from, CUcontext to)
{
    for (unsigned i = 0; i < from->n_peers; i++)
        if (from->peers[i] == to)
            return true;
    return false;
}

bool sim_peer_device_open(CUcontext from, int device)
{
    for (unsigned i = 0; i < from->n_peers; i++)
        if (from->peers[i]->device == device)
            return true;
    return false;
}

/* ---- primary contexts ---- */

CUresult sim_primary_retain(CUcontext *ret_ctx, CUdevice dev)
{
    if (!ret_ctx)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_ok(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!self.primary[dev]) {
        self.primary[dev] = sim_handle_new(SIM_CONTEXT, sizeof(struct CUctx_st));
        self.primary[dev]->primary = true;
    }
    CUcontext ctx = self.primary[dev];
    if (!ctx->alive && !open_context(ctx, dev, self.primary_flags[dev], 3020))
        return CUDA_ERROR_OUT_OF_MEMORY;
    ctx->retained++;
    *ret_ctx = ctx;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *ret_ctx, CUdevice dev)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    return sim_primary_retain(ret_ctx, dev);
}

static CUresult release(CUdevice dev, bool reset)
{
    if (!sim_device_ok(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    CUcontext ctx = self.primary[dev];
    if (!ctx || !ctx->alive)
        return reset ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
    if (!reset && --ctx->retained)
        return CUDA_SUCCESS;
    ctx->retained = 0;
    close_context(ctx);
    return CUDA_SUCCESS;
}

CUresult sim_primary_release(CUdevice dev)
{
    return release(dev, false);
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    return release(dev, false);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    return release(dev, false);
}

CUresult cuDevicePrimaryCtxReset(CUdevice dev)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    return release(dev, true);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    return release(dev, true);
}

static CUresult set_primary_flags(CUdevice dev, unsigned flags)
{
    if (!sim_device_ok(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    if (flags & ~(unsigned)CREATION_FLAGS)
        return CUDA_ERROR_INVALID_VALUE;
    self.primary_flags[dev] = flags;
    if (self.primary[dev] && self.primary[dev]->alive)
        self.primary[dev]->flags = flags;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    return set_primary_flags(dev, flags);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    return set_primary_flags(dev, flags);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!flags || !active)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_ok(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    *flags = self.primary_flags[dev];
    *active = self.primary[dev] && self.primary[dev]->alive;
    return CUDA_SUCCESS;
}

/* ---- created contexts ---- */

static CUresult create(CUcontext *ret_ctx, unsigned flags, CUdevice dev, unsigned api_version)
{
    if (!ret_ctx || flags & ~(unsigned)CREATION_FLAGS)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_ok(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    if (current.depth == STACK_DEPTH)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUcontext ctx = sim_handle_new(SIM_CONTEXT, sizeof(*ctx));
    if (!open_context(ctx, dev, flags, api_version))
        return CUDA_ERROR_OUT_OF_MEMORY;
    current.stack[current.depth++] = ctx;
    *ret_ctx = ctx;
    return CUDA_SUCCESS;
}

CUresult cuCtxCreate(CUcontext *ctx, unsigned int flags, CUdevice dev)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    return create(ctx, flags, dev, 3010);
}

CUresult cuCtxCreate_v2(CUcontext *ctx, unsigned int flags, CUdevice dev)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    return create(ctx, flags, dev, 3020);
}

CUresult cuCtxCreate_v3(CUcontext *ctx, CUexecAffinityParam *params, int n_params,
                        unsigned int flags, CUdevice dev)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (n_params)
        return params ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY : CUDA_ERROR_INVALID_VALUE;
    return create(ctx, flags, dev, 3020);
}

CUresult cuCtxCreate_v4(CUcontext *ctx, CUctxCreateParams *params, unsigned int flags, CUdevice dev)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (params && (params->numExecAffinityParams || params->cigParams))
        return CUDA_ERROR_NOT_SUPPORTED;
    return create(ctx, flags, dev, 3020);
}

static CUresult destroy(CUcontext ctx)
{
    if (!sim_handle_is(ctx, SIM_CONTEXT))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!ctx->alive)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (ctx->primary)
        return CUDA_ERROR_INVALID_CONTEXT;
    close_context(ctx);
    if (top() == ctx)
        current.depth--;
    return CUDA_SUCCESS;
}

CUresult cuCtxDestroy(CUcontext ctx)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    return destroy(ctx);
}

CUresult cuCtxDestroy_v2(CUcontext ctx)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    return destroy(ctx);
}

CUresult cuCtxAttach(CUcontext *ctx, unsigned int flags)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    if (!ctx || flags)
        return CUDA_ERROR_INVALID_VALUE;
    *ctx = call.ctx;
    call.ctx->attached++;
    return CUDA_SUCCESS;
}

CUresult cuCtxDetach(CUcontext ctx)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    if (ctx != call.ctx)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!ctx->attached)
        return destroy(ctx);
    ctx->attached--;
    return CUDA_SUCCESS;
}

/* ---- which one is current ---- */

static CUresult push_current(CUcontext ctx)
{
    if (!ctx || !sim_handle_is(ctx, SIM_CONTEXT))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!ctx->alive)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (current.depth == STACK_DEPTH)
        return CUDA_ERROR_OUT_OF_MEMORY;
    current.stack[current.depth++] = ctx;
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext ctx)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    return push_current(ctx);
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    return push_current(ctx);
}

static CUresult pop_current(CUcontext *ctx)
{
    if (!current.depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    current.depth--;
    if (ctx)
        *ctx = current.stack[current.depth];
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *ctx)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    return pop_current(ctx);
}

CUresult cuCtxPopCurrent_v2(CUcontext *ctx)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    return pop_current(ctx);
}

CUresult cuCtxSetCurrent(CUcontext ctx)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (ctx && !sim_handle_is(ctx, SIM_CONTEXT))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (ctx && !ctx->alive)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    set_current(ctx);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *ctx)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!ctx)
        return CUDA_ERROR_INVALID_VALUE;
    *ctx = top();
    return CUDA_SUCCESS;
}

/* ---- questions ---- */

CUresult cuCtxGetDevice(CUdevice *dev)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT_EVEN_FAULTED);
    if (!dev)
        return CUDA_ERROR_INVALID_VALUE;
    *dev = call.ctx->device;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice_v2(CUdevice *dev, CUcontext ctx)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!dev)
        return CUDA_ERROR_INVALID_VALUE;
    ctx = ctx ? sim_context_of(ctx) : sim_current();
    if (!usable(ctx))
        return CUDA_ERROR_INVALID_CONTEXT;
    *dev = ctx->device;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned int *flags)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT_EVEN_FAULTED);
    if (!flags)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = call.ctx->flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned int flags)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT_EVEN_FAULTED);
    if (flags & ~(unsigned)CREATION_FLAGS)
        return CUDA_ERROR_INVALID_VALUE;
    call.ctx->flags = flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long *id)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!id)
        return CUDA_ERROR_INVALID_VALUE;
    ctx = ctx ? sim_context_of(ctx) : sim_current();
    if (!usable(ctx))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *id = ctx->id;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int *version)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    ctx = ctx ? sim_context_of(ctx) : sim_current();
    if (!usable(ctx))
        return CUDA_ERROR_INVALID_CONTEXT;
    *version = ctx->api_version;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT_EVEN_FAULTED);
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetLimit(size_t *value, CUlimit limit)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT_EVEN_FAULTED);
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    if ((unsigned)limit >= CU_LIMIT_MAX)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    *value = call.ctx->limits[limit];
    return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT_EVEN_FAULTED);
    if ((unsigned)limit >= CU_LIMIT_MAX)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    call.ctx->limits[limit] = value;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache *config)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT_EVEN_FAULTED);
    if (!config)
        return CUDA_ERROR_INVALID_VALUE;
    *config = (CUfunc_cache)call.ctx->cache_config;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT_EVEN_FAULTED);
    call.ctx->cache_config = config;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig *config)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT_EVEN_FAULTED);
    if (!config)
        return CUDA_ERROR_INVALID_VALUE;
    *config = (CUsharedconfig)call.ctx->shared_config;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT_EVEN_FAULTED);
    call.ctx->shared_config = config;
    return CUDA_SUCCESS;
}

CUresult cuCtxResetPersistingL2Cache(void)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT_EVEN_FAULTED);
    return CUDA_SUCCESS;
}

/* ---- waiting and peers ---- */

CUresult cuCtxSynchronize(void)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    CUresult refused = sim_capture_check(call.ctx, SIM_CAPTURE_CONTEXT_WIDE);
    return refused ? refused : synchronize(call.ctx);
}

CUresult cuCtxSynchronize_v2(CUcontext ctx)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    ctx = ctx ? sim_context_of(ctx) : sim_current();
    if (!usable(ctx))
        return CUDA_ERROR_INVALID_CONTEXT;
    CUresult refused = sim_capture_check(ctx, SIM_CAPTURE_CONTEXT_WIDE);
    return refused ? refused : synchronize(ctx);
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    peer = sim_context_of(peer);
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (!usable(peer))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (peer == call.ctx)
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    if (sim_peers_open(call.ctx, peer))
        return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    CUcontext ctx = call.ctx;
    ctx->peers = realloc(ctx->peers, (ctx->n_peers + 1) * sizeof(*ctx->peers));
    if (!ctx->peers)
        abort();
    ctx->peers[ctx->n_peers++] = peer;
    return CUDA_SUCCESS;
}

CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    peer = sim_context_of(peer);
    if (!usable(peer))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!sim_peers_open(call.ctx, peer))
        return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    forget_peer(call.ctx, peer);
    return CUDA_SUCCESS;
}
