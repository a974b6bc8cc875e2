/* steps.c: what the iterations of a random program are made of: operations drawn once and done
 * again and again, with other parameters where the step says so. */
#include <stdlib.h>
#include <string.h>

#include "diff.h"

static enum vary some_vary(struct world *w)
{
    static const enum vary kinds[] = {VARY_NEVER, VARY_NEVER, VARY_NEVER, VARY_ALWAYS,
                                      VARY_PAIRS, VARY_PAIRS, VARY_RARELY};

    return kinds[draw(w, sizeof(kinds) / sizeof(kinds[0]))];
}

void step_draw(struct world *w, const struct loop *loop, struct step *ret_step)
{
    static const enum step_kind kinds[] = {
        STEP_FILL,   STEP_KERNEL, STEP_KERNEL, STEP_KERNEL,    STEP_KERNEL, STEP_SHAPE,
        STEP_SHAPE,  STEP_MIXED,  STEP_UPLOAD, STEP_UPLOAD,    STEP_COPY,   STEP_COPY,
        STEP_MEMSET, STEP_MEMSET, STEP_HOST,   STEP_COPY_ROWS, STEP_SHAPE,  STEP_KERNEL,
    };
    static const unsigned widths[] = {1, 2, 4, 4, 0};

    *ret_step = (struct step){
        .kind = kinds[draw(w, sizeof(kinds) / sizeof(kinds[0]))],
        .kernel = (enum kernel)(KERNEL_COPY + draw(w, 3)),
        .stream = draw(w, loop->n_streams),
        .dst = draw(w, loop->n_buffers),
        .src = draw(w, loop->n_buffers),
        .other = draw(w, loop->n_buffers),
        .width = widths[draw(w, 5)],
        .varies = some_vary(w),
        .grid_varies = chance(w, 20) ? some_vary(w) : VARY_NEVER,
        .size_varies = chance(w, 20) ? some_vary(w) : VARY_NEVER,
        .value = draw(w, 1u << 30),
        .how = chance(w, 60) ? LAUNCH_PLAIN : (enum launch_how)draw(w, N_LAUNCH_HOWS),
    };
    if (chance(w, 12))
        ret_step->kind = (enum step_kind)(STEP_RECORD + draw(w, N_STEP_KINDS - STEP_RECORD));
    if (chance(w, 70))
        ret_step->other = ret_step->src;
    if (w->traits->boxes && chance(w, 25))
        ret_step->kind = chance(w, 60) ? STEP_BOX : STEP_REFUSED;
    if (w->traits->pageable && chance(w, 25))
        ret_step->kind = STEP_PAGEABLE;
    if (w->traits->arrays && chance(w, 15))
        ret_step->kind = STEP_ARRAY;
    if (w->traits->large && ret_step->kind == STEP_KERNEL && chance(w, 40)) {
        ret_step->kernel = KERNEL_ADD;
        ret_step->is_hidden = true;
    }
}

static uint32_t varied(uint32_t value, enum vary how, unsigned iteration)
{
    switch (how) {
    case VARY_ALWAYS:
        return value + iteration * 977;
    case VARY_PAIRS:
        return value + iteration % 2 * 13;
    case VARY_RARELY:
        return value + iteration / 4 * 5;
    default:
        return value;
    }
}

/* The buffer, if it is still what the loop began with. */
static struct buffer *buffer_of(const struct loop *loop, unsigned i)
{
    struct buffer *buffer = loop->buffers[i].buffer;

    return buffer->live && buffer->filled && buffer->id == loop->buffers[i].id ? buffer : NULL;
}

static size_t bytes_of(const struct step *step, const struct buffer *dst, const struct buffer *src,
                       unsigned iteration)
{
    size_t n = src && src->extent < dst->extent ? src->extent : dst->extent;

    n >>= varied(0, step->size_varies, iteration) % 3;
    return n & ~(size_t)15;
}

static struct shape shape_of(const struct step *step, unsigned iteration)
{
    unsigned more = varied(step->value % 5, step->grid_varies, iteration) % 64;

    return (struct shape){.grid = {1 + more, 1 + step->value % 3, 1},
                          .block = 32 << step->value % 3,
                          .shared_bytes = step->value % 2 * 1024,
                          .how = step->how};
}

/* ---- the kinds ---- */

static CUresult do_kernel(struct world *w, const struct step *step, unsigned stream,
                          CUdeviceptr dst, CUdeviceptr src, size_t bytes, unsigned iteration)
{
    uint32_t n = (uint32_t)bytes, value = varied(step->value, step->varies, iteration), many[9];
    struct shape shape = shape_of(step, iteration);
    uint8_t byte = (uint8_t)value;
    uint16_t half = (uint16_t)(value >> 3);
    void *one[] = {&dst, &n, &value}, *two[] = {&dst, &src, &n};
    void *mixed[] = {&byte, &dst, &half, many, &n};
    CUresult result;

    for (unsigned i = 0; i < 9; i++)
        many[i] = i == value % 9 ? value : i;
    if (step->kind == STEP_KERNEL)
        result = launch_as(w, stream, step->kernel, two, &shape);
    else if (step->kind == STEP_MIXED)
        result = launch_as(w, stream, KERNEL_MIXED, mixed, &shape);
    else
        result =
            launch_as(w, stream, step->kind == STEP_FILL ? KERNEL_FILL : KERNEL_SHAPE, one, &shape);
    /* The parameters are the program's own again. */
    memset(many, 0xee, sizeof(many));
    dst = src = 0;
    n = value = 0;
    return result;
}

static CUresult do_upload(struct world *w, const struct step *step, unsigned stream,
                          CUdeviceptr dst, size_t bytes, unsigned iteration)
{
    static __thread unsigned char source[65536];
    CUresult result;

    bytes = bytes < sizeof(source) ? bytes : sizeof(source);
    memset(source, (int)varied(step->value, step->varies, iteration), bytes);
    source[0] = (unsigned char)step->value;
    result = cu.cuMemcpyHtoDAsync_v2(dst, source, bytes, stream_handle(w, stream));
    memset(source, 0xee, bytes);
    return result;
}

static CUresult do_memset(struct world *w, const struct step *step, unsigned stream,
                          CUdeviceptr dst, size_t bytes, unsigned iteration)
{
    uint32_t value = varied(step->value, step->varies, iteration);
    CUstream handle = stream_handle(w, stream);

    switch (step->width) {
    case 1:
        return cu.cuMemsetD8Async(dst, (unsigned char)value, bytes, handle);
    case 2:
        return cu.cuMemsetD16Async(dst, (unsigned short)value, bytes / 2, handle);
    case 4:
        return cu.cuMemsetD32Async(dst, value, bytes / 4, handle);
    default:
        return cu.cuMemsetD2D8Async(dst, bytes / 2, (unsigned char)value, bytes / 2 - 1, 2, handle);
    }
}

static CUresult do_copy(struct world *w, const struct step *step, unsigned stream,
                        struct buffer *dst, struct buffer *src, size_t n)
{
    CUstream handle = stream_handle(w, stream);
    CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = src->p,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = dst->p,
                          .srcPitch = n / 2,
                          .dstPitch = n / 2,
                          .WidthInBytes = n / 2,
                          .Height = 2};

    if (host_side(dst) && !host_side(src) && dst->kind != BUFFER_MANAGED && step->value % 2)
        return cu.cuMemcpyDtoHAsync_v2(dst->host, src->p, n, handle);
    if (host_side(src) && !host_side(dst) && src->kind != BUFFER_MANAGED && step->value % 2)
        return cu.cuMemcpyHtoDAsync_v2(dst->p, src->host, n, handle);
    if (host_side(dst) || host_side(src))
        return cu.cuMemcpyAsync(dst->p, src->p, n, handle);
    if (step->kind == STEP_COPY_ROWS)
        return cu.cuMemcpy2DAsync_v2(&rows, handle);
    return cu.cuMemcpyDtoDAsync_v2(dst->p, src->p, n, handle);
}

/* Memory that comes and goes: in stream order, or by the calls that wait. */
static CUresult do_temporary(struct world *w, struct loop *loop, const struct step *step,
                             unsigned stream, struct buffer *dst)
{
    bool native = step->kind == STEP_NATIVE;
    CUdeviceptr p = 0;
    CUstream handle = stream_handle(w, stream);
    CUresult result =
        native ? ROOM_OR_HOST(w, loop->context, dst->extent, cu.cuMemAlloc_v2(&p, dst->extent))
               : ROOM(w, loop->context, dst->extent, cu.cuMemAllocAsync(&p, dst->extent, handle));

    if (result != CUDA_SUCCESS)
        return result; /* no work that later work of other streams would wait for */
    result = launch_fill(w, stream, p, dst->extent, step->value);
    if (result == CUDA_SUCCESS)
        result = launch_two(w, stream, KERNEL_ADD, dst->p, p, dst->extent);
    used_both(w, stream, dst, NULL);
    if (!native)
        return cu.cuMemFreeAsync(p, stream_handle(w, stream)) ? CUDA_ERROR_UNKNOWN : result;
    if (cu.cuMemFree_v2(p) != CUDA_SUCCESS)
        return CUDA_ERROR_UNKNOWN;
    host_knows_context(w, loop->context);
    return result;
}

/* ---- order ---- */

static bool step_event(struct world *w, struct loop *loop, unsigned from, unsigned to)
{
    unsigned i = loop->n_records++ % 4;
    struct clock at, stamp;

    if (!w->streams[from].alive || !w->streams[to].alive)
        return false; /* the handle may be another stream's by now */
    if (!did(w, cu.cuEventRecord(loop->events[i], stream_handle(w, from)), "record %u s%u", i,
             from))
        return false;
    stream_submit(w, from, &at);
    if (!did(w, cu.cuStreamWaitEvent(stream_handle(w, to), loop->events[i], 0), "wait %u s%u", i,
             to))
        return false;
    clock_join(&w->streams[to].after, &at);
    stream_submit(w, to, &stamp);
    return true;
}

bool bring_behind(struct world *w, struct loop *loop, unsigned stream, const struct buffer *buffer,
                  bool write)
{
    struct clock before;

    stream_before(w, stream, &before);
    for (unsigned i = 0; i < MAX_STREAMS; i++) {
        const struct stream *from = &w->streams[i];
        uint32_t need =
            buffer->born.at[i] > buffer->wrote.at[i] ? buffer->born.at[i] : buffer->wrote.at[i];

        if (write && buffer->read.at[i] > need)
            need = buffer->read.at[i];
        if (before.at[i] >= need)
            continue;
        if (i >= w->first_stream && i < w->first_stream + w->n_streams && from->alive &&
            !from->capturing && from->context == loop->context) {
            if (!step_event(w, loop, i, stream))
                return false;
        } else if (w->traits->n_threads == 1) {
            use_context(w, i < w->first_stream + w->n_streams ? from->context : loop->context);
            if (!w->contexts[w->current].alive ||
                !did(w, cu.cuCtxSynchronize(), "cuCtxSynchronize c%u", w->current))
                return false;
            host_knows_context(w, w->current);
        } else {
            return false;
        }
        stream_before(w, stream, &before); /* which now covers more */
    }
    return true;
}

/* ---- one of them ---- */

static void do_pageable(struct world *w, const struct step *step, unsigned stream,
                        struct buffer *dst, unsigned iteration)
{
    uint32_t value = varied(step->value, step->varies, iteration);
    bool async = stream != default_stream(w) || step->width % 2;

    (void)host_copy(w, stream, dst, (enum host_way)(step->value % 3), async, false, value);
}

static bool needs_source(const struct step *step)
{
    return step->kind == STEP_KERNEL || step->kind == STEP_COPY || step->kind == STEP_COPY_ROWS ||
           step->kind == STEP_BOX || step->kind == STEP_REFUSED || step->kind == STEP_ARRAY;
}

static void do_host(struct world *w, struct loop *loop, struct step *step, unsigned stream,
                    unsigned iteration)
{
    uint64_t value = varied(step->value, step->varies, iteration);

    for (unsigned i = 0; i < MAX_BUFFERS; i++) {
        struct buffer *variable = &w->buffers[i];

        if (!variable->live || variable->kind != BUFFER_VARIABLE)
            continue;
        if (bring_behind(w, loop, stream, variable, true) &&
            did(w, launch_host_function(w, stream, variable, value, &step->kept),
                "host function b%u s%u", variable->id, stream))
            used_both(w, stream, variable, NULL);
        return;
    }
}

static void do_mark(struct world *w, unsigned stream)
{
    unsigned index = w->thread * MAX_MARKS + w->n_marks;

    if (w->n_marks == MAX_MARKS ||
        !did(w, launch_mark(w, stream, index), "mark %u s%u", index, stream))
        return;
    stream_submit(w, stream, &w->marks[w->n_marks].stamp);
    w->marks[w->n_marks++].index = index;
}

static void do_box(struct world *w, const struct step *step, unsigned stream, struct buffer *dst,
                   struct buffer *src, unsigned iteration)
{
    uint32_t value = varied(step->value, step->varies, iteration);

    if (!box_fits(dst, src))
        return;
    if (step->kind == STEP_REFUSED)
        do_refused(w, stream, dst, src, step->value, value, iteration / 3 % 3 == 2);
    else if (did(w, copy_box(w, stream, dst, src, value), "box b%u b%u s%u", dst->id, src->id,
                 stream))
        used_both(w, stream, dst, src);
}

static void do_hidden(struct world *w, const struct step *step, unsigned stream, struct buffer *dst,
                      struct buffer *src, unsigned iteration)
{
    const struct shape shape = shape_of(step, iteration);
    size_t n = bytes_of(step, dst, src, iteration);

    if (n >= 16 && follow(w, stream, dst, src, n, &shape))
        used_both(w, stream, dst, src);
}

static CUresult do_plain(struct world *w, const struct step *step, unsigned stream,
                         struct buffer *dst, struct buffer *src, size_t n, unsigned iteration)
{
    switch (step->kind) {
    case STEP_UPLOAD:
        return do_upload(w, step, stream, dst->p, n, iteration);
    case STEP_MEMSET:
        return do_memset(w, step, stream, dst->p, n, iteration);
    case STEP_COPY:
    case STEP_COPY_ROWS:
        return do_copy(w, step, stream, dst, src, n);
    default:
        return do_kernel(w, step, stream, dst->p, src ? src->p : 0, n, iteration);
    }
}

void step_do(struct world *w, struct loop *loop, struct step *step, unsigned iteration)
{
    unsigned stream = loop->streams[step->stream];
    struct buffer *dst = buffer_of(loop, step->dst), *src = NULL;
    size_t n;

    if (!w->contexts[loop->context].alive || !w->streams[stream].alive ||
        w->streams[stream].capturing)
        return;
    if (step->kind == STEP_HOST) {
        do_host(w, loop, step, stream, iteration);
        return;
    }
    if (step->kind == STEP_MARK) {
        do_mark(w, stream);
        return;
    }
    if (step->kind == STEP_RECORD) {
        (void)step_event(w, loop, stream, loop->streams[step->value % loop->n_streams]);
        return;
    }
    if (needs_source(step))
        src = buffer_of(loop, iteration % 2 ? step->other : step->src);
    if (!dst || (needs_source(step) && (!src || src == dst)) ||
        ((step->kind == STEP_UPLOAD || step->kind == STEP_MEMSET) && host_side(dst)) ||
        !bring_behind(w, loop, stream, dst, true) ||
        (src && !bring_behind(w, loop, stream, src, false)))
        return;
    if (step->kind == STEP_TEMPORARY || step->kind == STEP_NATIVE) {
        /* The driver hangs when a thread ends after that while its per-thread stream is busy. */
        if (w->traits->n_threads > 1 && w->streams[stream].kind == STREAM_LEGACY)
            return;
        (void)did(w, do_temporary(w, loop, step, stream, dst), "temporary %d b%u s%u",
                  step->kind == STEP_NATIVE, dst->id, stream);
        return;
    }
    if (step->kind == STEP_BOX || step->kind == STEP_REFUSED) {
        do_box(w, step, stream, dst, src, iteration);
        return;
    }
    if (step->kind == STEP_ARRAY) {
        array_step(w, loop, stream, dst, src, step->value);
        return;
    }
    if (step->kind == STEP_PAGEABLE) {
        do_pageable(w, step, stream, dst, iteration);
        return;
    }
    if (step->is_hidden) {
        do_hidden(w, step, stream, dst, src, iteration);
        return;
    }
    n = step->kind == STEP_KERNEL && step->kernel == KERNEL_HASH
            ? src->extent
            : bytes_of(step, dst, src, iteration);
    if (n >= 16 &&
        did(w, do_plain(w, step, stream, dst, src, n, iteration), "step %d b%u b%d %zu s%u",
            (int)step->kind, dst->id, src ? (int)src->id : -1, n, stream))
        used_both(w, stream, dst, src);
}
