/* op_box.c: a random program copies rectangles and boxes, and submits what the driver has to refuse.
 *
 * Of two buffers that are filled each is taken for two slices of four rows. What is refused changes
 * nothing, so it needs no order; its code is told. */
#include <stdlib.h>

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

static CUDA_MEMCPY2D rectangle_of(const CUDA_MEMCPY3D *box)
{
    return (CUDA_MEMCPY2D){.srcXInBytes = box->srcXInBytes,
                           .srcY = box->srcY,
                           .srcMemoryType = box->srcMemoryType,
                           .srcDevice = box->srcDevice,
                           .srcPitch = box->srcPitch,
                           .dstXInBytes = box->dstXInBytes,
                           .dstY = box->dstY,
                           .dstMemoryType = box->dstMemoryType,
                           .dstDevice = box->dstDevice,
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
