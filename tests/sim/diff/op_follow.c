/* op_follow.c: kernels of a random program that find the memory they use in memory: no parameter
 * names it. */
#include "diff.h"

#define SLOT_BYTES 16u /* of two pointers: to what is written, and to what is read */

/* A slot for each stream lies at a place of its own, so that only the stream's work uses it. */
static size_t table_bytes(const struct world *w)
{
    return w->traits->seed % 2 ? (size_t)3 << 20 : MAX_STREAMS * 64;
}

/* Of the context; 0: there is no room for it, or none may be made now. */
static CUdeviceptr table_of(struct world *w, unsigned context)
{
    struct context *at = &w->contexts[context];
    const size_t bytes = table_bytes(w);

    if (at->table || capture_forbids_waiting(w))
        return at->table;
    use_context(w, context);
    if (!did(w, ROOM_OR_HOST(w, context, bytes, cu.cuMemAlloc_v2(&at->table, bytes)),
             "table of c%u", context))
        at->table = 0;
    return at->table;
}

void follow_end(struct world *w)
{
    for (unsigned i = 0; i < w->n_contexts; i++) {
        struct context *at = &w->contexts[i];

        if (!at->alive || !at->table)
            continue;
        use_context(w, i);
        (void)did(w, cu.cuMemFree_v2(at->table), "cuMemFree of the table of c%u", i);
        at->table = 0;
    }
}

/* What the slot holds is kept as long as it is right. */
static bool point(struct world *w, unsigned stream, CUdeviceptr slot, const struct buffer *dst,
                  const struct buffer *src)
{
    CUdeviceptr pointers[2] = {dst->p, src->p};
    struct stream *at = &w->streams[stream];

    if (at->to == dst->id && at->from == src->id)
        return true;
    if (!did(w, cu.cuMemcpyHtoDAsync_v2(slot, pointers, sizeof(pointers), stream_handle(w, stream)),
             "point s%u to b%u b%u", stream, dst->id, src->id))
        return false;
    at->to = dst->id;
    at->from = src->id;
    return true;
}

bool follow(struct world *w, unsigned stream, const struct buffer *dst, const struct buffer *src,
            size_t bytes, const struct shape *shape)
{
    const CUdeviceptr table = table_of(w, w->streams[stream].context);
    const size_t step = table_bytes(w) / MAX_STREAMS & ~(size_t)(SLOT_BYTES - 1);
    CUdeviceptr slot = table + stream * step;
    uint32_t n = (uint32_t)bytes;
    void *args[] = {&slot, &n};

    return table && point(w, stream, slot, dst, src) &&
           did(w, launch_as(w, stream, KERNEL_FOLLOW, args, shape), "follow b%u b%u %zu s%u",
               dst->id, src->id, bytes, stream);
}

/* The buffer of that number, if the stream may use it now. */
static struct buffer *still_there(struct world *w, unsigned id, unsigned stream, bool write)
{
    for (unsigned i = 0; i < MAX_BUFFERS; i++)
        if (w->buffers[i].id == id && buffer_is_for(w, &w->buffers[i], stream, write))
            return &w->buffers[i];
    return NULL;
}

/* Those that the stream's pointers lead to since long ago, or others. */
static bool choose(struct world *w, unsigned stream, struct buffer **ret_dst,
                   struct buffer **ret_src)
{
    const struct stream *at = &w->streams[stream];

    *ret_dst = *ret_src = NULL;
    if (at->to != at->from && chance(w, 60)) {
        *ret_dst = still_there(w, at->to, stream, true);
        *ret_src = still_there(w, at->from, stream, false);
    }
    if (*ret_dst && *ret_src)
        return true;
    *ret_dst = buffer_pick(w, stream, true, true, NULL);
    *ret_src = *ret_dst ? buffer_pick(w, stream, false, true, *ret_dst) : NULL;
    return *ret_src != NULL;
}

bool op_follow(struct world *w)
{
    const struct shape shape = {
        .grid = {1, 1, 1}, .block = 32, .how = (enum launch_how)draw(w, N_LAUNCH_HOWS)};
    unsigned stream = stream_pick(w);
    struct buffer *dst, *src;

    if (stream == MAX_STREAMS || w->capture.open || !choose(w, stream, &dst, &src))
        return false;
    if (follow(w, stream, dst, src, dst->extent < src->extent ? dst->extent : src->extent, &shape))
        used_both(w, stream, dst, src);
    return true;
}
