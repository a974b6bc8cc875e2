/* op_batch.c: a random program copies several lines at once, in every order of access, also from and
 * to pageable memory, which the driver may read and write after the call. */
#include <string.h>

#include "diff.h"

#define MOST_LINES 3

/* Nothing orders the lines of a batch. */
struct lines {
    unsigned n;
    struct buffer *dst[MOST_LINES], *src[MOST_LINES];
    CUdeviceptr to[MOST_LINES], from[MOST_LINES];
    size_t sizes[MOST_LINES], first[MOST_LINES];
    CUmemcpyAttributes attributes[MOST_LINES];
};

static struct buffer *pick_pageable(struct world *w, unsigned stream, bool write)
{
    struct buffer *found = NULL;
    struct clock before;
    unsigned n = 0;

    stream_before(w, stream, &before);
    for (unsigned i = 0; i < MAX_BUFFERS; i++) {
        struct buffer *buffer = &w->buffers[i];
        if (buffer->live && buffer->kind == BUFFER_PAGEABLE &&
            clock_covers(&before, &buffer->wrote) &&
            (!write || clock_covers(&before, &buffer->read)) && draw(w, ++n) == 0)
            found = buffer;
    }
    return found;
}

static struct buffer *pick_side(struct world *w, unsigned stream, bool write)
{
    struct buffer *found = chance(w, 75) ? pick_pageable(w, stream, write) : NULL;

    return found ? found : buffer_pick(w, stream, write, !write, NULL);
}

static bool is_in(const struct lines *lines, const struct buffer *buffer, bool written)
{
    for (unsigned i = 0; i < lines->n; i++)
        if (lines->dst[i] == buffer || (!written && lines->src[i] == buffer))
            return true;
    return false;
}

/* What nobody writes any more may be read in any order. */
static CUmemcpySrcAccessOrder some_order(struct world *w, const struct buffer *src)
{
    static const CUmemcpySrcAccessOrder orders[] = {
        CU_MEMCPY_SRC_ACCESS_ORDER_STREAM, CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL,
        CU_MEMCPY_SRC_ACCESS_ORDER_ANY, CU_MEMCPY_SRC_ACCESS_ORDER_ANY};

    return orders[host_may_read(w, src) ? draw(w, 4) : 0];
}

static void add_line(struct world *w, unsigned stream, struct lines *lines)
{
    struct buffer *dst = pick_side(w, stream, true), *src = pick_side(w, stream, false);
    unsigned i = lines->n;
    size_t n;

    if (!dst || !src || dst == src || is_in(lines, dst, false) || is_in(lines, src, true) ||
        w->contexts[dst->context].device != w->contexts[src->context].device)
        return;
    n = (dst->extent < src->extent ? dst->extent : src->extent) & ~(size_t)15;
    if (!n || (!dst->filled && n < dst->extent))
        return;
    lines->dst[i] = dst;
    lines->src[i] = src;
    lines->to[i] = dst->p;
    lines->from[i] = src->p;
    lines->sizes[i] = n;
    lines->first[i] = i;
    lines->attributes[i] = (CUmemcpyAttributes){.srcAccessOrder = some_order(w, src)};
    lines->n++;
}

/* A source that was to be read during the call is the program's again. */
static void used(struct world *w, unsigned stream, struct lines *lines)
{
    for (unsigned i = 0; i < lines->n; i++) {
        bool is_over =
            lines->attributes[i].srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL &&
            lines->src[i]->kind == BUFFER_PAGEABLE;

        used_both(w, stream, lines->dst[i], is_over ? NULL : lines->src[i]);
    }
}

static bool batch(struct world *w, struct lines *lines)
{
    unsigned stream = stream_pick(w);

    *lines = (struct lines){0};
    if (stream == MAX_STREAMS || w->streams[stream].kind == STREAM_LEGACY ||
        capture_forbids_waiting(w))
        return false;
    for (unsigned i = 1 + draw(w, MOST_LINES); i; i--)
        add_line(w, stream, lines);
    if (!lines->n)
        return false;
    if (did(w,
            cu.cuMemcpyBatchAsync_v2(lines->to, lines->from, lines->sizes, lines->n,
                                     lines->attributes, lines->first, lines->n,
                                     stream_handle(w, stream)),
            "batch of %u, b%u b%u %zu order %d, s%u", lines->n, lines->dst[0]->id,
            lines->src[0]->id, lines->sizes[0], (int)lines->attributes[0].srcAccessOrder, stream))
        used(w, stream, lines);
    return true;
}

bool op_batch(struct world *w)
{
    struct lines lines;

    return batch(w, &lines);
}

static bool has_pageable(const struct world *w)
{
    for (unsigned i = 0; i < MAX_BUFFERS; i++)
        if (w->buffers[i].live && w->buffers[i].kind == BUFFER_PAGEABLE)
            return true;
    return false;
}

/* What the batch read is written, and what it wrote is read, by the host, where a free has waited. */
bool op_batch_and_free(struct world *w)
{
    struct lines lines;

    if (may_look(w) && !has_pageable(w))
        (void)op_alloc_visible(w);
    if (!batch(w, &lines) || !op_free(w))
        return lines.n > 0;
    for (unsigned i = 0; i < lines.n; i++) {
        struct buffer *dst = lines.dst[i], *src = lines.src[i];

        if (src->live && src->kind == BUFFER_PAGEABLE && host_may_write(w, src)) {
            memset(src->host, (int)draw(w, 256), src->extent);
            say(w, "write b%u", src->id);
        }
        if (dst->live && dst->kind == BUFFER_PAGEABLE && host_may_read(w, dst))
            say(w, "look b%u: %016llx", dst->id,
                (unsigned long long)hash_of(dst->host, dst->extent));
    }
    return true;
}

/* Refused, and the capture goes on. */
bool op_batch_in_capture(struct world *w, unsigned stream, CUdeviceptr p)
{
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    CUdeviceptr from = p + 16;
    size_t bytes = 16, first = 0;

    (void)did(w,
              cu.cuMemcpyBatchAsync_v2(&p, &from, &bytes, 1, &attributes, &first, 1,
                                       stream_handle(w, stream)),
              "batch in the capture of s%u", stream);
    return true;
}
