/* op_box.c: a random program copies rectangles, boxes and batches of lines, and submits what the
 * driver has to refuse.
 *
 * Of two buffers that are filled each is taken for two slices of four rows. What is refused changes
 * nothing, so it needs no order; its code is told.
 *
 * Batches have every order of access, and go from and to pageable memory, too, which the driver may
 * read and write after the call. */
#include <stdlib.h>
#include <string.h>

#include "diff.h"

#define ROWS   4u /* of a slice */
#define LEAST  256u
#define MARGIN 16u /* of a row: not copied */

static unsigned char nowhere[64]; /* pageable: no memory of the device */

/* The next `n` alternatives of what a value stands for. */
static unsigned of(uint32_t *value, unsigned n)
{
    unsigned one = *value % n;

    *value /= n;
    return one;
}

/* With at least two rows, and x and y of at least 4 and 1, if it is `large`. */
static CUDA_MEMCPY3D box_of(const struct buffer *dst, const struct buffer *src, uint32_t value,
                            bool large)
{
    size_t extent = dst->extent < src->extent ? dst->extent : src->extent;
    size_t pitch = extent / 2 / ROWS & ~(size_t)15;
    CUDA_MEMCPY3D box = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                         .srcDevice = src->p,
                         .srcPitch = pitch,
                         .srcHeight = ROWS,
                         .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                         .dstDevice = dst->p,
                         .dstPitch = pitch,
                         .dstHeight = ROWS,
                         .WidthInBytes = pitch - MARGIN};

    box.srcXInBytes = large ? MARGIN : of(&value, 5) * 4;
    box.dstXInBytes = large ? MARGIN : of(&value, 5) * 4;
    box.srcY = large ? 1 : of(&value, 2);
    box.dstY = large ? 1 : of(&value, 2);
    box.Height = large ? 3 : 1 + of(&value, 3);
    box.Depth = large ? 2 : 1 + of(&value, 2);
    box.srcZ = box.Depth == 1 ? of(&value, 2) : 0;
    box.dstZ = box.Depth == 1 ? of(&value, 2) : 0;
    if (of(&value, 4) == 0)
        box.srcMemoryType = box.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    return box;
}

CUDA_MEMCPY2D rectangle_of(const CUDA_MEMCPY3D *box)
{
    return (CUDA_MEMCPY2D){.srcXInBytes = box->srcXInBytes,
                           .srcY = box->srcY,
                           .srcMemoryType = box->srcMemoryType,
                           .srcDevice = box->srcDevice,
                           .srcArray = box->srcArray,
                           .srcPitch = box->srcPitch,
                           .dstXInBytes = box->dstXInBytes,
                           .dstY = box->dstY,
                           .dstMemoryType = box->dstMemoryType,
                           .dstDevice = box->dstDevice,
                           .dstArray = box->dstArray,
                           .dstPitch = box->dstPitch,
                           .WidthInBytes = box->WidthInBytes,
                           .Height = box->Height};
}

static CUresult submit_box(const CUDA_MEMCPY3D *box, bool flat, CUstream handle)
{
    CUDA_MEMCPY2D rectangle = rectangle_of(box);

    return flat ? cu.cuMemcpy2DAsync_v2(&rectangle, handle) : cu.cuMemcpy3DAsync_v2(box, handle);
}

bool box_fits(const struct buffer *dst, const struct buffer *src)
{
    return dst->extent >= LEAST && src->extent >= LEAST && !host_side(dst) && !host_side(src);
}

CUresult copy_box(struct world *w, unsigned stream, const struct buffer *dst,
                  const struct buffer *src, uint32_t value)
{
    bool flat = of(&value, 2);
    CUDA_MEMCPY3D box = box_of(dst, src, value, false);

    return submit_box(&box, flat, stream_handle(w, stream));
}

/* ---- refused ---- */

enum wrong {
    WRONG_SOURCE_PITCH, /* less than x and the width, but no less than the width */
    WRONG_PITCH,        /* likewise, of the destination */
    WRONG_WIDTH,
    WRONG_SOURCE_HEIGHT, /* less than y and the rows, but no less than the rows */
    WRONG_HEIGHT,
    WRONG_SOURCE,
    WRONG_TYPE,
    WRONG_DISTANCE,
    NO_ROWS, /* which is no mistake: nothing is copied */
    NO_SLICES,
    WRONG_LENGTH, /* the first of those that are no box */
    WRONG_LINE,
    WRONG_FILL_PITCH,
    WRONG_FILL_ADDRESS,
    WRONG_FILL_LENGTH,
    WRONG_LAUNCH,
    N_WRONG
};

static void spoil(CUDA_MEMCPY3D *box, enum wrong wrong)
{
    switch (wrong) {
    case WRONG_SOURCE_PITCH:
        box->srcPitch = box->WidthInBytes + MARGIN - 4;
        break;
    case WRONG_PITCH:
        box->dstPitch = box->WidthInBytes + MARGIN - 4;
        break;
    case WRONG_WIDTH:
        box->WidthInBytes = box->srcPitch + 16;
        break;
    case WRONG_SOURCE_HEIGHT:
        box->srcHeight = ROWS - 1;
        break;
    case WRONG_HEIGHT:
        box->dstHeight = ROWS - 1;
        break;
    case WRONG_SOURCE:
        box->srcMemoryType = CU_MEMORYTYPE_DEVICE;
        box->srcDevice = 0;
        break;
    case WRONG_TYPE:
        box->dstMemoryType = (CUmemorytype)9;
        break;
    case WRONG_DISTANCE:
        box->srcPitch = (size_t)1 << 40;
        box->srcY = box->srcZ = 0; /* or it would begin where the process has nothing */
        break;
    case NO_ROWS:
        box->Height = 0;
        break;
    default:
        box->Depth = 0;
        break;
    }
}

static CUresult maybe_box(struct world *w, unsigned stream, const struct buffer *dst,
                          const struct buffer *src, uint32_t value, enum wrong wrong, bool refused)
{
    bool flat = of(&value, 2) && wrong != WRONG_SOURCE_HEIGHT && wrong != WRONG_HEIGHT &&
                wrong != NO_SLICES;
    CUDA_MEMCPY3D box = box_of(dst, src, value, true);

    if (refused)
        spoil(&box, wrong);
    return submit_box(&box, flat, stream_handle(w, stream));
}

#define TOO_MUCH ((size_t)1 << 30) /* of any block */

/* A line, a fill or a launch. */
static CUresult maybe_line(struct world *w, unsigned stream, const struct buffer *dst,
                           const struct buffer *src, uint32_t value, enum wrong wrong, bool refused)
{
    CUstream handle = stream_handle(w, stream);
    CUdeviceptr to = dst->p, from = src->p;
    uint32_t n = (uint32_t)src->extent < 128 ? (uint32_t)src->extent : 128;
    struct shape shape = {.grid = {1, 1, 1}, .block = refused ? 4096 : 32};
    void *args[] = {&to, &from, &n};

    switch (wrong) {
    case WRONG_LENGTH:
        return cu.cuMemcpyDtoDAsync_v2(to, from, refused ? TOO_MUCH : n, handle);
    case WRONG_LINE:
        return cu.cuMemcpyDtoDAsync_v2(to,
                                       !refused    ? from
                                       : value % 2 ? (CUdeviceptr)(uintptr_t)nowhere
                                                   : 0,
                                       16, handle);
    case WRONG_FILL_PITCH:
        return cu.cuMemsetD2D8Async(to, refused ? 16 : 48, (unsigned char)value, 32, 3, handle);
    case WRONG_FILL_ADDRESS:
        return cu.cuMemsetD32Async(refused ? to + 2 : to, value, 4, handle);
    case WRONG_FILL_LENGTH:
        return cu.cuMemsetD8Async(to, (unsigned char)value, refused ? TOO_MUCH : n, handle);
    default:
        return launch_as(w, stream, KERNEL_COPY, args, &shape);
    }
}

void do_refused(struct world *w, unsigned stream, struct buffer *dst, struct buffer *src,
                uint32_t kind, uint32_t value, bool refused)
{
    enum wrong wrong = (enum wrong)(kind % N_WRONG);
    CUresult result =
        (wrong < WRONG_LENGTH ? maybe_box : maybe_line)(w, stream, dst, src, value, wrong, refused);

    if (did(w, result, "%s %d b%u b%u s%u", refused ? "wrong" : "right", (int)wrong, dst->id,
            src->id, stream) &&
        !refused)
        used_both(w, stream, dst, src);
}

bool op_box(struct world *w)
{
    unsigned stream = stream_pick(w);
    uint32_t value = draw(w, 1u << 30);
    struct buffer *dst, *src;

    if (stream == MAX_STREAMS)
        return false;
    dst = buffer_pick(w, stream, true, true, NULL);
    src = dst ? buffer_pick(w, stream, false, true, dst) : NULL;
    if (!src || !box_fits(dst, src) ||
        w->contexts[dst->context].device != w->contexts[src->context].device)
        return false;
    if (chance(w, 50))
        do_refused(w, stream, dst, src, value, value >> 8, true);
    else if (did(w, copy_box(w, stream, dst, src, value), "box b%u b%u s%u", dst->id, src->id,
                 stream))
        used_both(w, stream, dst, src);
    return true;
}

/* ---- batches ---- */

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
        bool is_free =
            write ? clock_covers(&before, &buffer->wrote) && clock_covers(&before, &buffer->read)
                  : host_may_read(w, buffer); /* it may be read at the call (R544) */
        if (buffer->live && buffer->kind == BUFFER_PAGEABLE && is_free && draw(w, ++n) == 0)
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

/* A source that was to be read during the call is read when the copy runs, too (R546). */
static void used(struct world *w, unsigned stream, const struct lines *lines)
{
    for (unsigned i = 0; i < lines->n; i++)
        used_both(w, stream, lines->dst[i], lines->src[i]);
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

/* What the batch read is written, and what it wrote is read, by the host, where a free has waited.
 */
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
