/* op_context.c: a random program makes a second context, ends one, resets the device. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "diff.h"

static void must(struct world *w, bool ok)
{
    if (ok)
        return;
    say(w, "the program could not begin");
    exit(97);
}

/* Brings contexts[context] to life: with a handle, kernels and its two streams. */
void context_open(struct world *w, unsigned context, int device, bool primary)
{
    struct context *at = &w->contexts[context];
    CUresult result;

    memset(at, 0, sizeof(*at));
    at->device = device;
    at->primary = primary;
    result = primary ? cu.cuDevicePrimaryCtxRetain(&at->handle, device)
                     : cu.cuCtxCreate_v2(&at->handle, 0, device);
    must(w, did(w, result, "context c%u device %d", context, device));
    must(w, cu.cuCtxSetCurrent(at->handle) == CUDA_SUCCESS);
    w->current = context;
    must(w, kernels_load(at));
    at->legacy = stream_new(w, context, STREAM_LEGACY, CU_STREAM_LEGACY);
    at->per_thread = stream_new(w, context, STREAM_PER_THREAD, CU_STREAM_PER_THREAD);
    must(w, at->per_thread != MAX_STREAMS);
    at->alive = true;
    w->next_stream = at->legacy;
    w->n_next = 4;
}

/* ---- the end of one ---- */

static void forget_buffers(struct world *w, unsigned context)
{
    for (unsigned i = 0; i < MAX_BUFFERS; i++) {
        struct buffer *buffer = &w->buffers[i];
        bool survives =
            buffer->kind == BUFFER_ASYNC || buffer->kind == BUFFER_POOL || host_alone(buffer);
        if (buffer->live && buffer->context == context && !survives)
            buffer_gone(w, buffer);
    }
}

static void forget_context(struct world *w, unsigned context)
{
    forget_buffers(w, context);
    for (unsigned i = w->first_stream; i < w->first_stream + w->n_streams; i++)
        if (w->streams[i].context == context)
            w->streams[i].alive = false;
    for (unsigned i = 0; i < MAX_EVENTS; i++)
        if (w->events[i].context == context)
            w->events[i].alive = false;
    for (unsigned i = 0; i < MAX_GRAPHS; i++)
        if (w->graphs[i].alive && w->graphs[i].context == context)
            graph_destroy(&w->graphs[i]);
    w->contexts[context].alive = false;
    if (context < 2)
        w->peer_open[0] = w->peer_open[1] = false;
}

/* Other contexts must be through with the memory that goes. */
static bool others_are_done(struct world *w, unsigned context)
{
    for (unsigned i = 0; i < MAX_BUFFERS; i++) {
        const struct buffer *buffer = &w->buffers[i];
        if (buffer->live && buffer->context == context &&
            (!clock_covers(&w->host, &buffer->wrote) || !clock_covers(&w->host, &buffer->read) ||
             buffer_in_graph(w, buffer) || buffer->shared))
            return false;
    }
    return true;
}

/* The work of the context is over when it ends: the program has freed something, or waited. */
static void quiesce(struct world *w, unsigned context)
{
    struct buffer *buffer = buffer_pick_idle(w, 1u << BUFFER_NATIVE, true);

    use_context(w, context);
    if (buffer && buffer->context == context && chance(w, 60))
        (void)free_buffer(w, buffer);
    else if (did(w, cu.cuCtxSynchronize(), "cuCtxSynchronize c%u", context))
        host_knows_context(w, context);
}

/* Retained once more and released: nothing ends. */
static bool retain_again(struct world *w, unsigned context)
{
    int device = w->contexts[context].device;
    CUcontext handle = NULL;

    if (!did(w, cu.cuDevicePrimaryCtxRetain(&handle, device), "retain again %d", device))
        return true;
    (void)did(w, cu.cuDevicePrimaryCtxRelease_v2(device), "release again, %s",
              handle == w->contexts[context].handle ? "the same" : "another");
    return true;
}

bool op_context(struct world *w)
{
    unsigned context = draw(w, w->n_contexts);

    if (w->capture.open || w->traits->n_threads > 1)
        return false;
    if (w->traits->second_context && w->n_contexts < MAX_CONTEXTS &&
        w->n_streams + 8 < w->max_streams && chance(w, 50)) {
        context_open(w, w->n_contexts++, 0, false);
        return true;
    }
    if (!w->traits->ends || !w->contexts[context].alive ||
        (!w->traits->resets && w->contexts[context].primary) || w->n_streams + 12 > w->max_streams)
        return false;
    if (w->contexts[context].primary && chance(w, 25))
        return retain_again(w, context);
    quiesce(w, context);
    if (!others_are_done(w, context))
        return true;
    use_context(w, context);
    if (w->contexts[context].primary) {
        int device = w->contexts[context].device;
        bool ok = chance(w, 40) ? did(w, cu.cuDevicePrimaryCtxRelease_v2(device),
                                      "cuDevicePrimaryCtxRelease %d", device)
                                : did(w, cu.cuDevicePrimaryCtxReset_v2(device),
                                      "cuDevicePrimaryCtxReset %d", device);
        must(w, ok);
        forget_context(w, context);
        context_open(w, context, device, true);
        return true;
    }
    (void)did(w, cu.cuCtxDestroy_v2(w->contexts[context].handle), "cuCtxDestroy c%u", context);
    forget_context(w, context);
    w->current = MAX_CONTEXTS;
    use_context(w, 0);
    return true;
}

/* Opens the other device's memory to one context, or shuts it; now and then what is so already. */
bool op_peers(struct world *w)
{
    unsigned from = draw(w, 2);
    bool open;

    if (!w->traits->peers || w->capture.open || !w->contexts[0].alive || !w->contexts[1].alive ||
        w->contexts[0].device == w->contexts[1].device)
        return false;
    use_context(w, from);
    open = chance(w, 15) ? w->peer_open[from] : !w->peer_open[from];
    if (open) {
        (void)did(w, cu.cuCtxEnablePeerAccess(w->contexts[!from].handle, 0), "peer c%u", from);
        w->peer_open[from] = true;
        return true;
    }
    if (did(w, cu.cuCtxSynchronize(), "cuCtxSynchronize c%u", from))
        host_knows_context(w, from);
    (void)did(w, cu.cuCtxDisablePeerAccess(w->contexts[!from].handle), "no peer c%u", from);
    w->peer_open[from] = false;
    return true;
}

/* Another context of the program becomes current. */
bool op_push(struct world *w)
{
    unsigned context = draw(w, w->n_contexts);

    if (w->capture.open || !w->contexts[context].alive || context == w->current)
        return false;
    use_context(w, context);
    return true;
}

static CUresult make_green(CUgreenCtx *green, CUcontext *inside, CUstream *handle)
{
    CUdevResource all, part;
    CUdevResourceDesc desc;
    unsigned n_groups = 1;
    CUresult result = cu.cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM);

    if (result == CUDA_SUCCESS)
        result = cu.cuDevSmResourceSplitByCount(&part, &n_groups, &all, NULL, 0, 8);
    if (result == CUDA_SUCCESS)
        result = cu.cuDevResourceGenerateDesc(&desc, &part, 1);
    if (result == CUDA_SUCCESS)
        result = cu.cuGreenCtxCreate(green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM);
    if (result == CUDA_SUCCESS)
        result = cu.cuCtxFromGreenCtx(inside, *green);
    return result ? result : cu.cuGreenCtxStreamCreate(handle, *green, CU_STREAM_NON_BLOCKING, 0);
}

/* Inside: memory is freed under work of the green context's own stream; some is left behind. */
static void inside_green(struct world *w, CUstream handle, struct buffer *left)
{
    uint32_t n = (uint32_t)left->extent, value = w->op;
    CUdeviceptr p[2] = {0, 0};
    CUcontext owner = NULL;
    CUresult result = CUDA_SUCCESS;

    for (unsigned i = 0; i < 3 && result == CUDA_SUCCESS; i++) {
        void *args[] = {&p[i % 2], &n, &value};
        if (i == 2)
            result = cu.cuMemFree_v2(p[0]);
        if (result == CUDA_SUCCESS)
            result = ROOM_OR_HOST(w, 0, left->bytes, cu.cuMemAlloc_v2(&p[i % 2], left->bytes));
        if (result == CUDA_SUCCESS)
            result = cu.cuLaunchKernel(w->contexts[0].kernels[KERNEL_FILL], 1, 1, 1, 1, 1, 1, 0,
                                       handle, args, NULL);
        value++;
    }
    (void)did(w, result, "work in a green context");
    (void)cu.cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, p[1]);
    say(w, "its memory is of %s", owner == w->contexts[0].handle ? "the primary" : "another");
    (void)did(w, cu.cuStreamSynchronize(handle), "cuStreamSynchronize there");
    if (p[0])
        (void)did(w, cu.cuMemFree_v2(p[0]), "cuMemFree there");
    left->p = p[1];
    left->live = left->filled = p[1] != 0;
    w->bytes_live += left->live ? left->bytes : 0;
}

/* A part of the primary context of device 0, for the length of one operation. */
bool op_green(struct world *w)
{
    struct buffer *left = buffer_new(w, BUFFER_NATIVE, 0, 1024u << draw(w, 4));
    CUcontext inside = NULL;
    CUgreenCtx green = NULL;
    CUstream handle = NULL;

    if (!w->traits->greens || w->capture.open || !left || !w->contexts[0].alive ||
        w->contexts[0].device)
        return false;
    if (!did(w, make_green(&green, &inside, &handle), "a green context"))
        return true;
    (void)did(w, cu.cuCtxSetCurrent(inside), "cuCtxSetCurrent of it");
    w->current = MAX_CONTEXTS;
    inside_green(w, handle, left);
    if (chance(w, 70))
        (void)did(w, cu.cuStreamDestroy_v2(handle), "cuStreamDestroy there");
    if (chance(w, 50))
        use_context(w, 0);
    (void)did(w, cu.cuGreenCtxDestroy(green), "cuGreenCtxDestroy");
    use_context(w, 0);
    return true;
}
