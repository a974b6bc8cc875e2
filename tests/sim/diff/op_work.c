/* op_work.c: a random program computes, copies and looks at the results. */
#include <stdlib.h>
#include <string.h>

#include "diff.h"

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

bool host_side(const struct buffer *buffer)
{
    return buffer->kind == BUFFER_PINNED || buffer->kind == BUFFER_REGISTERED ||
           buffer->kind == BUFFER_MANAGED;
}

bool host_alone(const struct buffer *buffer)
{
    return buffer->kind == BUFFER_VARIABLE || buffer->kind == BUFFER_PAGEABLE;
}

unsigned default_stream(struct world *w)
{
    unsigned stream =
        w->traits->per_thread ? w->contexts[w->current].per_thread : w->contexts[w->current].legacy;

    if (!w->contexts[w->current].alive || !w->streams[stream].alive ||
        w->streams[stream].capturing || capture_forbids_waiting(w) ||
        (w->streams[stream].kind == STREAM_LEGACY && capture_forbids_legacy(w)))
        return MAX_STREAMS;
    return stream;
}

void used_both(struct world *w, unsigned stream, struct buffer *dst, struct buffer *src)
{
    struct clock stamp;

    stream_submit(w, stream, &stamp);
    if (src)
        buffer_used(w, src, stream, &stamp, false);
    if (dst)
        buffer_used(w, dst, stream, &stamp, true);
}

bool op_kernel(struct world *w)
{
    static const char *const names[] = {"fill", "copy", "add", "hash"};
    enum kernel kernel = (enum kernel)draw(w, KERNEL_MARK);
    unsigned stream = stream_pick(w);
    struct buffer *dst, *src = NULL;
    size_t n;

    if (stream == MAX_STREAMS)
        return false;
    dst = buffer_pick(w, stream, true, kernel == KERNEL_ADD || kernel == KERNEL_HASH, NULL);
    if (!dst)
        return false;
    if (kernel == KERNEL_FILL) {
        if (did(w, launch_fill(w, stream, dst->p, dst->extent, draw(w, 1u << 30)), "fill b%u s%u",
                dst->id, stream))
            used_both(w, stream, dst, NULL);
        return true;
    }
    src = buffer_pick(w, stream, false, true, dst);
    if (!src)
        return false;
    n = kernel == KERNEL_HASH ? src->extent : smaller(dst->extent, src->extent);
    if (!dst->filled && n < dst->extent)
        return false;
    if (did(w, launch_two(w, stream, kernel, dst->p, src->p, n), "%s b%u b%u %zu s%u",
            names[kernel], dst->id, src->id, n, stream))
        used_both(w, stream, dst, src);
    return true;
}

static CUresult copy_async(struct world *w, unsigned stream, struct buffer *dst, struct buffer *src,
                           size_t n)
{
    unsigned from = src->context, to = dst->context;
    CUstream handle = stream_handle(w, stream);

    if (host_side(dst) || host_side(src))
        return cu.cuMemcpyAsync(dst->p, src->p, n, handle);
    if (w->contexts[from].alive && w->contexts[to].alive &&
        chance(w, from != to          ? 70
                  : w->traits->narrow ? 25
                                      : 5))
        return cu.cuMemcpyPeerAsync(dst->p, w->contexts[to].handle, src->p,
                                    w->contexts[from].handle, n, handle);
    if (n >= 64 && chance(w, 15)) {
        CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                              .srcDevice = src->p,
                              .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                              .dstDevice = dst->p,
                              .srcPitch = n / 4,
                              .dstPitch = n / 4,
                              .WidthInBytes = n / 4,
                              .Height = 4};
        return cu.cuMemcpy2DAsync_v2(&rows, handle);
    }
    return cu.cuMemcpyDtoDAsync_v2(dst->p, src->p, n, handle);
}

bool op_copy(struct world *w)
{
    bool async = chance(w, 75);
    unsigned stream = async ? stream_pick(w) : default_stream(w);
    struct buffer *dst, *src;
    CUresult result;
    size_t n;

    if (stream == MAX_STREAMS)
        return false;
    dst = buffer_pick(w, stream, true, false, NULL);
    src = dst ? buffer_pick(w, stream, false, true, dst) : NULL;
    if (!src)
        return false;
    /* A default pool is open to its own device only; a copy to or from another would do nothing. */
    if (w->contexts[dst->context].device != w->contexts[src->context].device &&
        (dst->kind == BUFFER_ASYNC || src->kind == BUFFER_ASYNC) && !host_side(dst) &&
        !host_side(src))
        return false;
    n = smaller(dst->extent, src->extent) & ~(size_t)15;
    if ((!dst->filled && n < dst->extent) || (!async && (host_side(dst) || host_side(src))))
        return false;
    n &= ~(size_t)63;
    if (!n || (!dst->filled && n < dst->extent))
        return false;
    if (async)
        result = copy_async(w, stream, dst, src, n);
    else
        result = cu.cuMemcpyDtoD_v2(dst->p, src->p, n);
    if (did(w, result, "copy%s b%u b%u %zu s%u", async ? "" : " at once", dst->id, src->id, n,
            stream)) {
        used_both(w, stream, dst, src);
        if (!async && (dst->synchronous || src->synchronous))
            host_knows(w, &w->streams[stream].after);
    }
    return true;
}

/* From device to device, which needs no access of one to the other. */
bool op_copy_across(struct world *w)
{
    unsigned stream = stream_pick(w);
    struct buffer *dst, *src;
    size_t n;

    if (!w->traits->second_device || stream == MAX_STREAMS)
        return false;
    w->any_device = true;
    dst = buffer_pick(w, stream, true, true, NULL);
    src = dst ? buffer_pick(w, stream, false, true, dst) : NULL;
    w->any_device = false;
    if (!src || host_side(dst) || host_side(src) || dst->kind == BUFFER_ASYNC ||
        src->kind == BUFFER_ASYNC)
        return false;
    n = smaller(dst->extent, src->extent) & ~(size_t)63;
    if (!n)
        return false;
    if (did(w, copy_async(w, stream, dst, src, n), "copy across b%u b%u %zu s%u", dst->id, src->id,
            n, stream))
        used_both(w, stream, dst, src);
    return true;
}

bool op_memset(struct world *w)
{
    bool async = chance(w, 70);
    unsigned stream = async ? stream_pick(w) : default_stream(w), value = draw(w, 256);
    struct buffer *dst;
    CUresult result;

    if (stream == MAX_STREAMS)
        return false;
    dst = buffer_pick(w, stream, true, false, NULL);
    if (!dst || host_side(dst))
        return false;
    if (async && chance(w, 20))
        result = cu.cuMemsetD2D8Async(dst->p, dst->extent / 2, (unsigned char)value,
                                      dst->extent / 2, 2, stream_handle(w, stream));
    else if (async)
        result =
            cu.cuMemsetD32Async(dst->p, value * 77777, dst->extent / 4, stream_handle(w, stream));
    else if (chance(w, 50))
        result = cu.cuMemsetD8_v2(dst->p, (unsigned char)value, dst->extent);
    else
        result = cu.cuMemsetD32_v2(dst->p, value * 77777, dst->extent / 4);
    if (did(w, result, "memset%s b%u s%u", async ? "" : " at once", dst->id, stream)) {
        used_both(w, stream, dst, NULL);
        if (!async && dst->synchronous)
            host_knows(w, &w->streams[stream].after);
    }
    return true;
}

/* From pageable memory, which is the program's again when the call returns. */
bool op_upload(struct world *w)
{
    bool async = chance(w, 60);
    unsigned stream = async ? stream_pick(w) : default_stream(w);
    struct buffer *dst;
    unsigned char *bytes;
    CUresult result;

    if (stream == MAX_STREAMS || capture_forbids_waiting(w))
        return false;
    dst = buffer_pick(w, stream, true, false, NULL);
    if (!dst || host_side(dst))
        return false;
    bytes = malloc(dst->extent);
    if (!bytes)
        abort();
    memset(bytes, (int)draw(w, 256), dst->extent);
    bytes[0] = (unsigned char)w->op;
    result = async ? cu.cuMemcpyHtoDAsync_v2(dst->p, bytes, dst->extent, stream_handle(w, stream))
                   : cu.cuMemcpyHtoD_v2(dst->p, bytes, dst->extent);
    memset(bytes, 0xee, dst->extent);
    free(bytes);
    if (did(w, result, "upload%s b%u s%u", async ? "" : " at once", dst->id, stream))
        used_both(w, stream, dst, NULL);
    return true;
}

/* ---- looking ---- */

bool read_back(struct world *w, struct buffer *buffer, unsigned stream, bool async)
{
    void *bytes = calloc(1, buffer->extent);
    struct clock stamp;
    CUresult result;

    if (!bytes)
        abort();
    result =
        async ? cu.cuMemcpyDtoHAsync_v2(bytes, buffer->p, buffer->extent, stream_handle(w, stream))
              : cu.cuMemcpyDtoH_v2(bytes, buffer->p, buffer->extent);
    if (did(w, result, "read b%u s%u: %016llx", buffer->id, stream,
            (unsigned long long)hash_of(bytes, buffer->extent))) {
        stream_submit(w, stream, &stamp);
        buffer_used(w, buffer, stream, &stamp, false);
        host_knows(w, &stamp);
    }
    free(bytes);
    return true;
}

bool op_read_back(struct world *w)
{
    bool async = chance(w, 70);
    unsigned stream = async ? stream_pick(w) : default_stream(w);
    struct buffer *buffer;

    if (stream == MAX_STREAMS || capture_forbids_waiting(w))
        return false;
    buffer = buffer_pick(w, stream, false, true, NULL);
    if (!buffer || host_side(buffer))
        return false;
    return read_back(w, buffer, stream, async);
}

/* A buffer that the host sees and may touch now. */
static struct buffer *pick_host(struct world *w, bool write)
{
    struct buffer *found[2] = {NULL, NULL};
    unsigned n[2] = {0, 0};

    for (unsigned i = 0; i < MAX_BUFFERS; i++) {
        struct buffer *buffer = &w->buffers[i];
        if (!buffer->live || !buffer->host || !buffer->filled)
            continue;
        if (!(write ? host_may_write(w, buffer) : host_may_read(w, buffer)))
            continue;
        bool fresh = buffer->last_stream != MAX_STREAMS;
        if (draw(w, ++n[fresh]) == 0)
            found[fresh] = buffer;
    }
    return found[1] ? found[1] : found[0];
}

bool op_host_read(struct world *w)
{
    struct buffer *buffer = pick_host(w, false);

    if (!buffer)
        return false;
    say(w, "look b%u: %016llx", buffer->id,
        (unsigned long long)hash_of(buffer->host, buffer->extent));
    return true;
}

bool op_host_write(struct world *w)
{
    struct buffer *buffer = pick_host(w, true);

    if (!buffer)
        return false;
    memset(buffer->host, (int)draw(w, 256), buffer->extent);
    buffer->last_stream = MAX_STREAMS;
    say(w, "write b%u", buffer->id);
    return true;
}

/* ---- host functions ---- */

struct host_work {
    uint64_t *variable;
    const void *bytes;
    size_t n;
    uint64_t value;
};

static void CUDA_CB host_function(void *data)
{
    struct host_work *work = data;

    work->variable[0] =
        work->variable[0] * 31 + work->value + (work->bytes ? hash_of(work->bytes, work->n) : 0);
}

static void CUDA_CB host_callback(CUstream handle, CUresult status, void *data)
{
    (void)handle;
    (void)status;
    host_function(data);
}

/* A variable that a host function on the stream may write. */
static struct buffer *pick_variable(struct world *w, unsigned stream)
{
    struct clock before;

    stream_before(w, stream, &before);
    for (unsigned i = 0; i < MAX_BUFFERS; i++) {
        struct buffer *buffer = &w->buffers[i];
        if (buffer->live && buffer->kind == BUFFER_VARIABLE &&
            clock_covers(&before, &buffer->wrote))
            return buffer;
    }
    return NULL;
}

CUDA_HOST_NODE_PARAMS host_node_of(const struct buffer *variable, uint64_t value)
{
    struct host_work *work = calloc(1, sizeof(*work)); /* for ever, as below */

    if (!work)
        abort();
    *work = (struct host_work){.variable = variable->host, .value = value};
    return (CUDA_HOST_NODE_PARAMS){.fn = host_function, .userData = work};
}

CUresult launch_host_function(struct world *w, unsigned stream, struct buffer *variable,
                              uint64_t value, void **kept)
{
    struct host_work *work = kept ? *kept : NULL;

    if (!work || work->variable != variable->host || work->value != value)
        work = host_node_of(variable, value).userData;
    if (kept)
        *kept = work;
    return cu.cuLaunchHostFunc(stream_handle(w, stream), host_function, work);
}

bool op_host_function(struct world *w)
{
    unsigned stream = stream_pick(w);
    struct buffer *variable, *source;
    struct host_work *work;
    CUresult result;

    if (!may_look(w) || w->traits->by_nodes || stream == MAX_STREAMS)
        return false;
    variable = pick_variable(w, stream);
    if (!variable)
        return false;
    source = buffer_pick(w, stream, false, true, NULL);
    if (source && !host_side(source))
        source = NULL;
    work = calloc(1, sizeof(*work)); /* for ever: the function may run when nobody waits any more */
    if (!work)
        abort();
    *work = (struct host_work){variable->host, source ? source->host : NULL,
                               source ? source->extent : 0, w->op};
    if (chance(w, 70))
        result = cu.cuLaunchHostFunc(stream_handle(w, stream), host_function, work);
    else
        result = cu.cuStreamAddCallback(stream_handle(w, stream), host_callback, work, 0);
    if (did(w, result, "host function b%u s%u", variable->id, stream))
        used_both(w, stream, variable, source);
    return true;
}

bool op_mark(struct world *w)
{
    unsigned stream = stream_pick(w), index = w->thread * MAX_MARKS + w->n_marks;

    if (stream == MAX_STREAMS || w->n_marks == MAX_MARKS)
        return false;
    if (!did(w, launch_mark(w, stream, index), "mark %u s%u", index, stream))
        return true;
    stream_submit(w, stream, &w->marks[w->n_marks].stamp);
    w->marks[w->n_marks++].index = index;
    return true;
}
