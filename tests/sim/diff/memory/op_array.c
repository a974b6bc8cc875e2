/* op_array.c: a random program has arrays, and makes calls that few programs make: copies of boxes
 * in batches, fills of rows, words of 64 bits, batches of stream operations.
 *
 * The uses of an array are ordered as those of a buffer are, but no kernel uses it. */
#include <string.h>

#include "diff.h"

#define WIDTHS 8u /* of rows: so many multiples of 64 bytes */
#define ROWS   4u

static CUresult create(struct world *w, struct array *array, unsigned context)
{
    CUDA_ARRAY_DESCRIPTOR desc = {.Width = array->width,
                                  .Height = array->rows == 1 ? 0 : array->rows,
                                  .Format = CU_AD_FORMAT_UNSIGNED_INT8,
                                  .NumChannels = 1};

    return ROOM(w, context, 0, cu.cuArrayCreate_v2(&array->handle, &desc));
}

/* Arrays of one row can be copied by calls that name an offset alone. */
static struct array *array_new(struct world *w, unsigned context)
{
    for (unsigned i = 0; i < MAX_ARRAYS; i++) {
        struct array *array = &w->arrays[i];

        if (array->as.live)
            continue;
        *array = (struct array){.width = 64 * (size_t)(1 + draw(w, WIDTHS)),
                                .rows = chance(w, 40) ? 1 : 1 + draw(w, ROWS),
                                .as = {.id = w->next_id++, .context = context}};
        array->as.extent = array->width * array->rows;
        array->as.live = did(w, create(w, array, context), "array b%u of %zu by %zu", array->as.id,
                             array->width, array->rows);
        return array->as.live ? array : NULL;
    }
    return NULL;
}

/* One of the context that the stream may use; or NULL. */
static struct array *array_pick(struct world *w, unsigned stream, bool write,
                                const struct array *but)
{
    struct array *found = NULL;
    unsigned n = 0;

    for (unsigned i = 0; i < MAX_ARRAYS; i++) {
        struct array *array = &w->arrays[i];
        struct buffer as = array->as;

        as.filled |= write; /* what was never written may be */
        if (array != but && as.context == w->streams[stream].context &&
            buffer_is_for(w, &as, stream, write) && draw(w, ++n) == 0)
            found = array;
    }
    return found;
}

/* ---- copies ---- */

/* One side, or where the box lies in linear memory: one row after another. */
struct side {
    CUarray array;
    CUdeviceptr p;
};

static CUDA_MEMCPY3D box_between(struct side dst, struct side src, const struct array *size)
{
    return (CUDA_MEMCPY3D){.srcMemoryType = src.array ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_UNIFIED,
                           .srcArray = src.array,
                           .srcDevice = src.p,
                           .srcPitch = src.array ? 0 : size->width,
                           .srcHeight = src.array ? 0 : size->rows,
                           .dstMemoryType = dst.array ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_UNIFIED,
                           .dstArray = dst.array,
                           .dstDevice = dst.p,
                           .dstPitch = dst.array ? 0 : size->width,
                           .dstHeight = dst.array ? 0 : size->rows,
                           .WidthInBytes = size->width,
                           .Height = size->rows,
                           .Depth = 1};
}

static CUmemcpy3DOperand operand_of(struct side side, const struct array *size)
{
    CUmemcpy3DOperand operand = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER};

    if (side.array) {
        operand.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
        operand.op.array.array = side.array;
        return operand;
    }
    operand.op.ptr.ptr = side.p;
    operand.op.ptr.rowLength = size->width;
    operand.op.ptr.layerHeight = size->rows;
    return operand;
}

static CUresult copy_in_batch(struct side dst, struct side src, const struct array *size,
                              CUstream handle)
{
    CUDA_MEMCPY3D_BATCH_OP op = {.src = operand_of(src, size),
                                 .dst = operand_of(dst, size),
                                 .extent = {size->width, size->rows, 1},
                                 .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};

    return cu.cuMemcpy3DBatchAsync_v2(1, &op, 0, handle);
}

/* By a call that names the array's offset; a stream is not named. */
static CUresult copy_line(struct side dst, struct side src, size_t bytes)
{
    if (dst.array && src.array)
        return cu.cuMemcpyAtoA_v2(dst.array, 0, src.array, 0, bytes);
    return dst.array ? cu.cuMemcpyDtoA_v2(dst.array, 0, src.p, bytes)
                     : cu.cuMemcpyAtoD_v2(dst.p, src.array, 0, bytes);
}

static CUresult copy_by(unsigned way, struct side dst, struct side src, const struct array *size,
                        CUstream handle)
{
    CUDA_MEMCPY3D box = box_between(dst, src, size);
    CUDA_MEMCPY2D rows = rectangle_of(&box);

    switch (way) {
    case 0:
        return cu.cuMemcpy2DAsync_v2(&rows, handle);
    case 1:
        return cu.cuMemcpy3DAsync_v2(&box, handle);
    case 2:
        return copy_in_batch(dst, src, size, handle);
    default:
        return copy_line(dst, src, size->width);
    }
}

static struct side side_of(const struct buffer *buffer, const struct array *array)
{
    return array ? (struct side){.array = array->handle} : (struct side){.p = buffer->p};
}

/* Between an array and a buffer, either way, or another array that is as large. */
static bool copy_array(struct world *w)
{
    unsigned way = draw(w, 4), stream = way == 3 ? default_stream(w) : stream_pick(w);
    bool up = chance(w, 55);
    struct array *array, *other = NULL;
    struct buffer *buffer = NULL;

    if (stream == MAX_STREAMS || (way == 2 && w->streams[stream].kind < STREAM_BLOCKING))
        return false;
    array = array_pick(w, stream, up, NULL);
    if (!array || (way == 3 && array->rows > 1))
        return false;
    if (chance(w, 25))
        other = array_pick(w, stream, !up, array);
    if (!other)
        buffer = buffer_pick(w, stream, !up, true, NULL);
    if (other ? other->width != array->width || other->rows != array->rows
              : !buffer || host_alone(buffer) || buffer->extent < array->as.extent)
        return false;
    use_context(w, w->streams[stream].context);
    struct buffer *linear = other ? &other->as : buffer, *dst = up ? &array->as : linear,
                  *src = up ? linear : &array->as;
    struct side of_array = side_of(NULL, array), of_other = side_of(buffer, other);
    if (did(w,
            copy_by(way, up ? of_array : of_other, up ? of_other : of_array, array,
                    stream_handle(w, stream)),
            "array copy %u b%u b%u s%u", way, dst->id, src->id, stream))
        used_both(w, stream, dst, src);
    return true;
}

/* From memory of the host, which is written again at once. */
static CUresult copy_up(struct world *w, const struct array *array, unsigned stream, bool async,
                        unsigned value)
{
    unsigned char bytes[64 * WIDTHS];
    CUresult result;

    memset(bytes, (int)value, sizeof(bytes));
    result = async ? cu.cuMemcpyHtoAAsync_v2(array->handle, 0, bytes, array->width,
                                             stream_handle(w, stream))
                   : cu.cuMemcpyHtoA_v2(array->handle, 0, bytes, array->width);
    memset(bytes, (int)~value, sizeof(bytes));
    return result;
}

/* From memory of the host, or to it. */
static bool copy_with_host(struct world *w)
{
    bool up = chance(w, 50), async = chance(w, 60);
    unsigned stream = async ? stream_pick(w) : default_stream(w), value = draw(w, 256);
    unsigned char bytes[64 * WIDTHS] = {0};
    struct array *array;
    CUresult result;

    if (stream == MAX_STREAMS || capture_forbids_waiting(w))
        return false;
    array = array_pick(w, stream, up, NULL);
    if (!array || array->rows > 1)
        return false;
    use_context(w, w->streams[stream].context);
    if (up) {
        if (did(w, copy_up(w, array, stream, async, value), "array up %d b%u s%u", async,
                array->as.id, stream))
            used_both(w, stream, &array->as, NULL);
        return true;
    }
    result = async ? cu.cuMemcpyAtoHAsync_v2(bytes, array->handle, 0, array->width,
                                             stream_handle(w, stream))
                   : cu.cuMemcpyAtoH_v2(bytes, array->handle, 0, array->width);
    if (did(w, result, "array down %d b%u s%u: %016llx", async, array->as.id, stream,
            (unsigned long long)hash_of(bytes, array->width))) {
        struct clock stamp;

        stream_submit(w, stream, &stamp);
        buffer_used(w, &array->as, stream, &stamp, false);
        host_knows(w, &stamp);
    }
    return true;
}

/* ---- what is not copied ---- */

static bool make_array(struct world *w)
{
    unsigned stream = stream_pick(w);

    if (stream == MAX_STREAMS)
        return false;
    use_context(w, w->streams[stream].context);
    return array_new(w, w->streams[stream].context) != NULL;
}

static void destroy(struct world *w, struct array *array)
{
    use_context(w, array->as.context);
    (void)did(w, cu.cuArrayDestroy(array->handle), "cuArrayDestroy b%u", array->as.id);
    array->as.live = false;
}

/* The call waits as cuMemFree() does, but only for what its own context has submitted: an array
 * goes when the host knows that all of its uses are over. */
static bool destroy_array(struct world *w)
{
    struct array *array = &w->arrays[draw(w, MAX_ARRAYS)];

    if (!array->as.live || !host_may_write(w, &array->as))
        return false;
    destroy(w, array);
    return true;
}

void array_end(struct world *w)
{
    for (unsigned i = 0; i < MAX_ARRAYS; i++)
        if (w->arrays[i].as.live && w->contexts[w->arrays[i].as.context].alive)
            destroy(w, &w->arrays[i]);
}

/* Words are written, and the first one is waited for, which is there by then. */
static void write_words(struct world *w, unsigned stream, struct buffer *buffer, uint32_t value)
{
    CUstreamBatchMemOpParams ops[4] = {0};
    unsigned n = 1 + value % 3;

    for (unsigned i = 0; i < n; i++) {
        ops[i].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
        ops[i].writeValue.address = buffer->p + 4 * (CUdeviceptr)i;
        ops[i].writeValue.value = value + i;
    }
    if (value / 4 % 2) {
        ops[n].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
        ops[n].waitValue.address = buffer->p;
        ops[n].waitValue.value = value;
        ops[n++].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
    }
    if (did(w, cu.cuStreamBatchMemOp_v2(stream_handle(w, stream), n, ops, 0), "words %u b%u s%u", n,
            buffer->id, stream))
        used_both(w, stream, buffer, NULL);
}

/* Memory of the device, of 32 bytes at least, that the stream may write now; its context is
 * current. NULL: there is none, or no stream. */
static struct buffer *pick_target(struct world *w, unsigned stream)
{
    struct buffer *buffer = stream == MAX_STREAMS ? NULL : buffer_pick(w, stream, true, true, NULL);

    if (!buffer || host_side(buffer) || buffer->extent < 32)
        return NULL;
    use_context(w, w->streams[stream].context);
    return buffer;
}

static bool batch_of_words(struct world *w)
{
    unsigned stream = stream_pick(w);
    struct buffer *buffer = pick_target(w, stream);

    if (!buffer)
        return false;
    write_words(w, stream, buffer, draw(w, 1u << 30));
    return true;
}

/* The upper half of the buffer, in rows of 16 bytes of which 12 are filled; by a stream's call, or
 * by one that names none. */
static CUresult fill_rows(unsigned way, const struct buffer *buffer, uint32_t value,
                          CUstream handle)
{
    size_t rows = buffer->extent / 32;
    CUdeviceptr p = buffer->p + buffer->extent - 16 * rows;

    switch (way) {
    case 0:
        return cu.cuMemsetD2D8_v2(p, 16, (unsigned char)value, 12, rows);
    case 1:
        return cu.cuMemsetD2D16_v2(p, 16, (unsigned short)value, 6, rows);
    case 2:
        return cu.cuMemsetD2D32_v2(p, 16, value, 3, rows);
    case 3:
        return cu.cuMemsetD16_v2(p, (unsigned short)value, 8 * rows);
    case 4:
        return cu.cuMemsetD2D16Async(p, 16, (unsigned short)value, 6, rows, handle);
    default:
        return cu.cuMemsetD2D32Async(p, 16, value, 3, rows, handle);
    }
}

static bool fill_part(struct world *w)
{
    unsigned way = draw(w, 6), stream = way < 4 ? default_stream(w) : stream_pick(w);
    struct buffer *buffer = pick_target(w, stream);
    uint32_t value = draw(w, 1u << 30);

    if (!buffer)
        return false;
    if (did(w, fill_rows(way, buffer, value, stream_handle(w, stream)), "fill rows %u b%u s%u", way,
            buffer->id, stream))
        used_both(w, stream, buffer, NULL);
    return true;
}

/* A word of 64 bits is written, and waited for. */
static bool write_wide(struct world *w)
{
    unsigned stream = stream_pick(w);
    struct buffer *buffer = pick_target(w, stream);
    uint64_t value = draw(w, 1u << 30) * 0x100000001ull;

    if (!buffer)
        return false;
    if (did(w, cu.cuStreamWriteValue64_v2(stream_handle(w, stream), buffer->p, value, 0),
            "wide word b%u s%u", buffer->id, stream) &&
        did(w,
            cu.cuStreamWaitValue64_v2(stream_handle(w, stream), buffer->p, value,
                                      CU_STREAM_WAIT_VALUE_EQ),
            "wait for it"))
        used_both(w, stream, buffer, NULL);
    return true;
}

/* ---- as a step of iterations ---- */

/* From memory of the host to an array of one row; else from src. */
static CUresult step_up(struct world *w, const struct array *array, unsigned stream,
                        const struct buffer *src, uint32_t value)
{
    if (array->rows == 1 && value / 8 % 2 == 0)
        return copy_up(w, array, stream, true, value / 32);
    return copy_by(value / 16 % 2, side_of(NULL, array), side_of(src, NULL), array,
                   stream_handle(w, stream));
}

void array_step(struct world *w, struct loop *loop, unsigned stream, struct buffer *dst,
                struct buffer *src, uint32_t value)
{
    struct array *array = &w->arrays[value % MAX_ARRAYS];

    use_context(w, loop->context);
    if (value / 4 % 3 == 0) {
        if (!host_side(dst) && dst->extent >= 16)
            write_words(w, stream, dst, value);
        return;
    }
    if (!array->as.live)
        array = array_new(w, loop->context);
    if (!array || array->as.context != loop->context || host_alone(dst) || host_alone(src) ||
        array->as.extent > dst->extent || array->as.extent > src->extent ||
        !bring_behind(w, loop, stream, &array->as, true))
        return;
    use_context(w, loop->context);
    if (!did(w, step_up(w, array, stream, src, value), "array step b%u b%u s%u", array->as.id,
             src->id, stream))
        return;
    used_both(w, stream, &array->as, src);
    if (did(w,
            copy_by(value / 32 % 2, side_of(dst, NULL), side_of(NULL, array), array,
                    stream_handle(w, stream)),
            "array step b%u b%u s%u", dst->id, array->as.id, stream))
        used_both(w, stream, dst, &array->as);
}

bool op_array(struct world *w)
{
    switch (draw(w, 13)) {
    case 0:
    case 1:
        return make_array(w);
    case 2:
        return destroy_array(w);
    case 3:
    case 4:
        return copy_with_host(w);
    case 5:
        return batch_of_words(w);
    case 6:
    case 7:
        return fill_part(w);
    case 8:
        return write_wide(w);
    default:
        return copy_array(w);
    }
}
