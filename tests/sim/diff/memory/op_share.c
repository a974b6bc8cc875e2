/* op_share.c: a random program lets others at its memory, so that copies of it wait for the host.
 *
 * What it has freed before, and gets after, is nobody's business: copies within memory that is
 * allocated later do not wait. (Of small blocks that were there before Allograft lets them wait:
 * docs/guarantees.md.) */
#include "diff.h"

static struct buffer *small_buffer(struct world *w, unsigned context, size_t bytes)
{
    struct buffer *buffer;

    if (w->bytes_live + bytes > MOST_BYTES)
        return NULL;
    use_context(w, context);
    buffer = buffer_new(w, BUFFER_NATIVE, context, bytes);
    if (!buffer || !did(w, ROOM_OR_HOST(w, context, bytes, cu.cuMemAlloc_v2(&buffer->p, bytes)),
                        "alloc b%u c%u %zu", buffer->id, context, bytes))
        return NULL;
    buffer->live = true;
    w->bytes_live += bytes;
    return buffer;
}

static bool filled_on(struct world *w, struct buffer *buffer, unsigned stream)
{
    if (!did(w, launch_fill(w, stream, buffer->p, buffer->extent, buffer->id), "fill b%u s%u",
             buffer->id, stream))
        return false;
    used_both(w, stream, buffer, NULL);
    return true;
}

/* Some that are used and freed: they wait for the next allocation of their kind. */
static void neighbours(struct world *w, unsigned stream, size_t bytes)
{
    unsigned context = w->streams[stream].context;
    struct buffer *some[4];
    unsigned n = 0, most = 1 + draw(w, 4);

    while (n < most && (some[n] = small_buffer(w, context, bytes)))
        n++;
    for (unsigned i = 0; i < n; i++)
        if (filled_on(w, some[i], stream) || chance(w, 50))
            (void)free_buffer(w, some[i]);
}

static void share(struct world *w, struct buffer *buffer)
{
    int on = chance(w, 75), handle;

    if (chance(w, 30)) { /* of managed memory there is none */
        (void)did(w,
                  cu.cuMemGetHandleForAddressRange(&handle, buffer->p, buffer->extent,
                                                   CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
                  "attr handle of the range of b%u", buffer->id);
        return;
    }
    if (did(w, cu.cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, buffer->p),
            "let copies of b%u wait: %d", buffer->id, on))
        buffer->synchronous = on;
}

static void ask(struct world *w, const struct buffer *buffer)
{
    unsigned on = 7;
    CUresult result = cu.cuPointerGetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, buffer->p);

    (void)did(w, result, "do copies of b%u wait: %u", buffer->id, on & 1);
}

/* Copies of managed memory wait, which the program can see that it has. */
static bool is_managed(const struct buffer *buffer)
{
    unsigned managed = 1;

    return cu.cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, buffer->p) ||
           managed;
}

/* Neither waits for what is before it on the stream, which is held up until later work of another
 * one lets it go. */
static void copy_while_held(struct world *w, unsigned stream, const struct buffer *dst,
                            const struct buffer *src)
{
    CUresult result =
        is_managed(dst) || is_managed(src)
            ? cu.cuMemcpyDtoDAsync_v2(dst->p, src->p, src->extent, stream_handle(w, stream))
            : cu.cuMemcpyDtoD_v2(dst->p, src->p, src->extent);

    (void)did(w, result, "copy at once b%u b%u, held", dst->id, src->id);
    (void)did(w, cu.cuMemsetD8_v2(dst->p, (unsigned char)w->op, 16), "memset at once b%u, held",
              dst->id);
}

static void hold_and_copy(struct world *w, unsigned stream, struct buffer *dst, struct buffer *src)
{
    unsigned context = w->streams[stream].context;
    unsigned other = pick_nonblocking(w, context, MAX_STREAMS);
    struct buffer *flag;
    struct clock stamp;

    if (other == MAX_STREAMS || !(flag = small_buffer(w, context, 16)))
        return;
    (void)did(w, cu.cuMemsetD32Async(flag->p, 0, 4, stream_handle(w, other)), "clear flag");
    (void)did(w, cu.cuStreamSynchronize(stream_handle(w, other)), "cuStreamSynchronize s%u", other);
    stream_submit(w, other, &stamp);
    host_knows(w, &stamp);
    if (!did(w,
             cu.cuStreamWaitValue32_v2(stream_handle(w, stream), flag->p, 1,
                                       CU_STREAM_WAIT_VALUE_GEQ),
             "hold s%u", stream))
        return;
    copy_while_held(w, stream, dst, src);
    used_both(w, stream, dst, src);
    (void)did(w, cu.cuStreamWriteValue32_v2(stream_handle(w, other), flag->p, 1, 0),
              "let go by s%u", other);
    buffer_used(w, flag, stream, &w->streams[stream].after, true);
    stream_submit(w, other, &stamp);
    flag->wrote.at[other] = stamp.at[other];
}

/* One that nobody else has used, and that may go at once. */
static struct buffer *fresh(struct world *w, unsigned stream, size_t bytes)
{
    struct buffer *buffer = small_buffer(w, w->streams[stream].context, bytes);

    return buffer && filled_on(w, buffer, stream) ? buffer : NULL;
}

static struct buffer *pick_small(struct world *w, unsigned context)
{
    struct buffer *found = NULL;
    unsigned n = 0;

    for (unsigned i = 0; i < MAX_BUFFERS; i++) {
        struct buffer *buffer = &w->buffers[i];

        if (buffer->live && buffer->kind == BUFFER_NATIVE && !buffer->shared &&
            buffer->context == context && (buffer->bytes <= 65536 || chance(w, 20)) &&
            draw(w, ++n) == 0)
            found = buffer;
    }
    return found;
}

bool op_share(struct world *w)
{
    size_t bytes = chance(w, 75) ? (size_t)512 << draw(w, 7) : 70000 * (1 + draw(w, 3));
    bool goes = chance(w, 40);
    unsigned context = w->current, stream;
    struct buffer *shared, *a, *b;

    if (w->capture.open || context >= MAX_CONTEXTS || !w->contexts[context].alive)
        return false;
    stream = w->traits->per_thread ? w->contexts[context].per_thread : w->contexts[context].legacy;
    if (!w->streams[stream].alive)
        return false;
    neighbours(w, stream, bytes);
    shared = goes ? fresh(w, stream, bytes) : pick_small(w, context);
    if (!shared)
        return true;
    use_context(w, context);
    share(w, shared);
    ask(w, shared);
    if (goes)
        (void)free_buffer(w, shared);
    a = small_buffer(w, context, bytes);
    b = a ? small_buffer(w, context, bytes) : NULL;
    if (!b)
        return true;
    ask(w, a);
    if (filled_on(w, a, stream) && filled_on(w, b, stream) && w->traits->n_threads == 1)
        hold_and_copy(w, stream, a, b);
    return true;
}
