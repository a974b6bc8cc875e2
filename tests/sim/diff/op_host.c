/* op_host.c: a random program copies from and to memory of the host that the driver does not know.
 *
 * What a copy to the device read is overwritten, unmapped, cut off or given to somebody else as
 * soon as the call is back; what a copy to the host wrote is looked at then, with what lies around
 * it. Natively that is right of every call here: memory that is not pinned is read at the call
 * (R540, R544), and a call that writes it returns when it is written (R422, R431). A synchronous
 * call returns when what came before it on its stream is over (R420), and, to memory with
 * SYNC_MEMOPS, when the bytes are there. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "diff.h"

#define PAGE    4096u
#define MOST    ((size_t)400 << 10) /* of one copy */
#define AROUND  96u                 /* bytes before and behind, which nothing may change */
#define COMMAND ((size_t)64 << 10)  /* an upload of more is one or several pieces */
#define MIB     ((size_t)1 << 20)

enum host_kind { HOST_HEAP, HOST_TOUCHED, HOST_FRESH, HOST_PRIVATE, HOST_SHARED, HOST_PINNED };

static const char *const kind_names[] = {"heap",         "touched",     "fresh",
                                         "private file", "shared file", "pinned"};

struct host_memory {
    enum host_kind kind;
    int file;
    void *base;
    size_t bytes;     /* from the base on */
    unsigned char *p; /* where the copy begins */
};

/* What is copied: n bytes of the device, without a gap, and rows of the host. */
struct shape_of_copy {
    size_t width, height, depth, pitch, rows; /* rows: from one slice to the next */
};

/* The next of n alternatives. */
static unsigned of(uint64_t *dice, unsigned n)
{
    *dice = *dice * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)((*dice >> 33) % n);
}

static void fill(unsigned char *p, size_t n, unsigned value)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)(value + i * 7 + (i >> 8) * 3);
}

/* ---- memory of the host ---- */

static void must(bool good)
{
    if (good)
        return;
    perror("memory of the host");
    abort();
}

static void map(struct host_memory *memory, int protection, int flags)
{
    memory->base = mmap(NULL, memory->bytes, protection,
                        memory->file < 0 ? flags | MAP_ANONYMOUS : flags, memory->file, 0);
    must(memory->base != MAP_FAILED);
}

static void map_file(struct host_memory *memory, bool is_source, unsigned value)
{
    unsigned char *bytes = malloc(memory->bytes);

    memory->file = memfd_create("diff", MFD_CLOEXEC);
    must(bytes && memory->file >= 0);
    fill(bytes, memory->bytes, value);
    must(pwrite(memory->file, bytes, memory->bytes, 0) == (ssize_t)memory->bytes);
    free(bytes);
    map(memory, is_source ? PROT_READ : PROT_READ | PROT_WRITE,
        memory->kind == HOST_SHARED ? MAP_SHARED : MAP_PRIVATE);
}

/* Room for n bytes, and more on both sides. False: it is not to be had. */
static bool take(struct world *w, struct host_memory *memory, size_t n, bool is_source,
                 uint64_t *dice)
{
    size_t before = AROUND + (of(dice, 3) ? of(dice, PAGE) : 0);
    unsigned value = of(dice, 256);

    memory->file = -1;
    memory->bytes = before + n + AROUND;
    if (memory->kind != HOST_HEAP)
        memory->bytes = (memory->bytes + PAGE - 1) & ~(size_t)(PAGE - 1);
    if (memory->kind == HOST_PINNED) {
        if (!did(w, cu.cuMemHostAlloc(&memory->base, memory->bytes, 0), "pinned for a copy"))
            return false;
    } else if (memory->kind == HOST_HEAP) {
        must((memory->base = malloc(memory->bytes)) != NULL);
    } else if (memory->kind == HOST_PRIVATE || memory->kind == HOST_SHARED) {
        map_file(memory, is_source, value);
    } else {
        map(memory, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    }
    if (memory->file < 0 && memory->kind != HOST_FRESH)
        fill(memory->base, memory->bytes, value);
    memory->p = (unsigned char *)memory->base + before;
    return true;
}

static void give_back(struct world *w, struct host_memory *memory)
{
    if (memory->kind == HOST_PINNED)
        (void)did(w, cu.cuMemFreeHost(memory->base), "cuMemFreeHost after a copy");
    else if (memory->kind == HOST_HEAP)
        free(memory->base);
    else
        must(munmap(memory->base, memory->bytes) == 0);
    if (memory->file >= 0)
        (void)close(memory->file);
}

static void overwrite(const struct host_memory *memory)
{
    char *bytes;

    if (memory->file < 0) {
        memset(memory->base, 0xee, memory->bytes);
        return;
    }
    must((bytes = malloc(memory->bytes)) != NULL);
    memset(bytes, 0xee, memory->bytes);
    must(pwrite(memory->file, bytes, memory->bytes, 0) == (ssize_t)memory->bytes);
    free(bytes);
}

/* Somebody else has the addresses, most likely. */
static void replace(struct world *w, struct host_memory *memory)
{
    struct host_memory other = {.kind = HOST_HEAP, .file = -1, .bytes = memory->bytes};

    give_back(w, memory);
    if (memory->kind == HOST_HEAP || memory->kind == HOST_PINNED) {
        must((other.base = malloc(other.bytes)) != NULL);
    } else {
        other.kind = HOST_TOUCHED;
        other.base = mmap(memory->base, other.bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        must(other.base != MAP_FAILED);
    }
    memset(other.base, 0xdd, other.bytes);
    give_back(w, &other);
}

/* The source is the program's again. */
static void spoil(struct world *w, struct host_memory *memory, uint64_t *dice)
{
    unsigned how = of(dice, 4);

    if (how == 0) {
        replace(w, memory);
        return;
    }
    if (how == 1)
        overwrite(memory);
    else if (how == 2 && memory->file >= 0)
        must(ftruncate(memory->file, 0) == 0); /* whoever reads it now gets a SIGBUS */
    else if (how == 2 && memory->kind != HOST_HEAP && memory->kind != HOST_PINNED)
        must(mprotect(memory->base, memory->bytes, PROT_NONE) == 0);
    give_back(w, memory);
}

static void look(struct world *w, const struct host_memory *memory, unsigned id)
{
    void *bytes;

    say(w, "got b%u: %016llx", id, (unsigned long long)hash_of(memory->base, memory->bytes));
    if (memory->file < 0)
        return;
    must((bytes = malloc(memory->bytes)) != NULL);
    must(pread(memory->file, bytes, memory->bytes, 0) == (ssize_t)memory->bytes);
    say(w, "its file: %016llx", (unsigned long long)hash_of(bytes, memory->bytes));
    free(bytes);
}

/* ---- the calls ---- */

enum host_call { CALL_LINE, CALL_UNIFIED, CALL_BATCH, CALL_ROWS, CALL_UNALIGNED, CALL_BOX };

static struct shape_of_copy shape(enum host_call call, size_t *n, uint64_t *dice)
{
    struct shape_of_copy shape = {.width = *n, .height = 1, .depth = 1, .pitch = *n, .rows = 1};

    if (call < CALL_ROWS || *n < 64)
        return shape;
    shape.height = 2 + of(dice, 4);
    shape.depth = call == CALL_BOX ? 1 + of(dice, 3) : 1;
    shape.width = *n / (shape.height * shape.depth);
    shape.pitch = shape.width + (of(dice, 3) ? of(dice, 700) : 0);
    shape.rows = shape.height + (of(dice, 2) ? of(dice, 3) : 0);
    *n = shape.width * shape.height * shape.depth;
    return shape;
}

static size_t host_bytes(const struct shape_of_copy *shape)
{
    return ((shape->depth - 1) * shape->rows + shape->height - 1) * shape->pitch + shape->width;
}

static CUDA_MEMCPY3D box_of(const struct shape_of_copy *shape, CUdeviceptr device, void *host,
                            bool up)
{
    CUDA_MEMCPY3D box = {
        .WidthInBytes = shape->width, .Height = shape->height, .Depth = shape->depth};

    if (up) {
        box.srcMemoryType = CU_MEMORYTYPE_HOST;
        box.srcHost = host;
        box.srcPitch = shape->pitch;
        box.srcHeight = shape->rows;
        box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        box.dstDevice = device;
        box.dstPitch = shape->width;
        box.dstHeight = shape->height;
    } else {
        box.srcMemoryType = CU_MEMORYTYPE_DEVICE;
        box.srcDevice = device;
        box.srcPitch = shape->width;
        box.srcHeight = shape->height;
        box.dstMemoryType = CU_MEMORYTYPE_HOST;
        box.dstHost = host;
        box.dstPitch = shape->pitch;
        box.dstHeight = shape->rows;
    }
    return box;
}

static CUDA_MEMCPY2D rows_of(const CUDA_MEMCPY3D *box)
{
    return (CUDA_MEMCPY2D){.srcMemoryType = box->srcMemoryType,
                           .srcHost = box->srcHost,
                           .srcDevice = box->srcDevice,
                           .srcPitch = box->srcPitch,
                           .dstMemoryType = box->dstMemoryType,
                           .dstHost = box->dstHost,
                           .dstDevice = box->dstDevice,
                           .dstPitch = box->dstPitch,
                           .WidthInBytes = box->WidthInBytes,
                           .Height = box->Height};
}

static CUresult copy_at_once(enum host_call call, const CUDA_MEMCPY3D *box, bool up)
{
    CUDA_MEMCPY2D rows = rows_of(box);
    CUdeviceptr from = up ? (CUdeviceptr)(uintptr_t)box->srcHost : box->srcDevice;
    CUdeviceptr to = up ? box->dstDevice : (CUdeviceptr)(uintptr_t)box->dstHost;

    switch (call) {
    case CALL_UNIFIED:
        return cu.cuMemcpy(to, from, box->WidthInBytes);
    case CALL_ROWS:
        return cu.cuMemcpy2D_v2(&rows);
    case CALL_UNALIGNED:
        return cu.cuMemcpy2DUnaligned_v2(&rows);
    case CALL_BOX:
        return cu.cuMemcpy3D_v2(box);
    default:
        return up ? cu.cuMemcpyHtoD_v2(box->dstDevice, box->srcHost, box->WidthInBytes)
                  : cu.cuMemcpyDtoH_v2(box->dstHost, box->srcDevice, box->WidthInBytes);
    }
}

static CUresult copy_batch(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream handle)
{
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    size_t first = 0;

    return cu.cuMemcpyBatchAsync_v2(&to, &from, &n, 1, &attributes, &first, 1, handle);
}

static CUresult copy_on(enum host_call call, const CUDA_MEMCPY3D *box, bool up, CUstream handle)
{
    CUDA_MEMCPY2D rows = rows_of(box);
    CUdeviceptr from = up ? (CUdeviceptr)(uintptr_t)box->srcHost : box->srcDevice;
    CUdeviceptr to = up ? box->dstDevice : (CUdeviceptr)(uintptr_t)box->dstHost;

    switch (call) {
    case CALL_UNIFIED:
        return cu.cuMemcpyAsync(to, from, box->WidthInBytes, handle);
    case CALL_BATCH:
        return copy_batch(to, from, box->WidthInBytes, handle);
    case CALL_ROWS:
    case CALL_UNALIGNED:
        return cu.cuMemcpy2DAsync_v2(&rows, handle);
    case CALL_BOX:
        return cu.cuMemcpy3DAsync_v2(box, handle);
    default:
        return up ? cu.cuMemcpyHtoDAsync_v2(box->dstDevice, box->srcHost, box->WidthInBytes, handle)
                  : cu.cuMemcpyDtoHAsync_v2(box->dstHost, box->srcDevice, box->WidthInBytes,
                                            handle);
    }
}

/* ---- one copy ---- */

struct host_copy {
    unsigned stream;
    struct buffer *buffer;
    size_t at, n; /* of the buffer */
    bool up, async, may_pin;
    uint64_t *dice;
};

static enum host_call some_call(struct world *w, const struct host_copy *copy)
{
    enum host_call call = (enum host_call)of(copy->dice, CALL_BOX + 1);

    /* Batches are for no legacy stream, and what one writes to the host is not waited for. */
    if (call == CALL_BATCH &&
        (!copy->up || !copy->async || w->streams[copy->stream].kind == STREAM_LEGACY))
        return CALL_LINE;
    /* Rows need not be as many bytes as were asked for. */
    return call >= CALL_ROWS && !copy->buffer->filled ? CALL_LINE : call;
}

/* All of the memory around it is hashed, so the call's name and shape need no place in the log. */
static bool copy_one(struct world *w, struct host_copy *copy)
{
    enum host_call call = some_call(w, copy);
    struct shape_of_copy form = shape(call, &copy->n, copy->dice);
    struct host_memory memory = {
        .kind = (enum host_kind)of(copy->dice, copy->may_pin ? HOST_PINNED + 1 : HOST_PINNED)};
    struct buffer *buffer = copy->buffer;
    CUstream handle = stream_handle(w, copy->stream);
    struct clock before = w->streams[copy->stream].after, stamp;
    CUresult result;

    if (!take(w, &memory, host_bytes(&form), copy->up, copy->dice))
        return false;
    CUDA_MEMCPY3D box = box_of(&form, buffer->p + copy->at, memory.p, copy->up);
    result =
        copy->async ? copy_on(call, &box, copy->up, handle) : copy_at_once(call, &box, copy->up);
    if (memory.kind == HOST_PINNED && copy->async)
        wait_for_stream(w, copy->stream);
    if (copy->up)
        spoil(w, &memory, copy->dice);
    if (did(w, result, "host %s %s%s b%u %zu %zu s%u", kind_names[memory.kind],
            copy->up ? "up" : "down", copy->async ? "" : " at once", buffer->id, copy->at, copy->n,
            copy->stream)) {
        stream_submit(w, copy->stream, &stamp);
        buffer_used(w, buffer, copy->stream, &stamp, copy->up);
        if (!copy->up || (!copy->async && buffer->synchronous))
            host_knows(w, &stamp);
        else if (!copy->async)
            host_knows(w, &before); /* R420 */
    }
    if (copy->up)
        return result == CUDA_SUCCESS;
    look(w, &memory, buffer->id);
    give_back(w, &memory);
    return result == CUDA_SUCCESS;
}

/* As many bytes as there may be, from the place on that the copy names, or fewer. */
static size_t some_bytes(size_t most, uint64_t *dice)
{
    size_t n;

    switch (of(dice, 5)) {
    case 0:
        n = 1 + of(dice, 200);
        break;
    case 1:
        n = PAGE * (1 + of(dice, 8)) + of(dice, 3) - 1; /* about whole pages */
        break;
    case 2:
        n = most;
        break;
    default:
        n = 1 + of(dice, (unsigned)most);
        break;
    }
    return n < most ? n : most;
}

bool host_copy(struct world *w, unsigned stream, struct buffer *buffer, enum host_way way,
               bool async, bool may_pin, uint64_t value)
{
    uint64_t dice = hash_of(&value, sizeof(value));
    bool fresh = !buffer->filled, both = way == HOST_THERE_AND_BACK;
    /* What lies beyond the extent is nobody's but what has just been written there. */
    size_t most = both || fresh ? buffer->bytes : buffer->extent;
    struct host_copy copy = {.stream = stream,
                             .buffer = buffer,
                             .up = way != HOST_DOWN,
                             .async = async,
                             .may_pin = may_pin,
                             .dice = &dice};

    most = most < MOST ? most : MOST;
    copy.at = fresh || of(&dice, 2)
                  ? 0
                  : of(&dice, (unsigned)((buffer->extent < most ? buffer->extent : most) / 2));
    copy.n = some_bytes(most - copy.at, &dice);
    if (fresh && copy.n < buffer->extent)
        copy.n = buffer->extent;
    if (!copy_one(w, &copy) || !both)
        return true;
    copy.up = false;
    (void)copy_one(w, &copy);
    return true;
}

/* A kernel writes what the host looks at right behind a synchronous copy, which has waited (R420).
 */
static void copy_behind_kernel(struct world *w, unsigned stream, struct buffer *buffer)
{
    struct buffer *seen = buffer_pick(w, stream, true, false, buffer);

    if (seen && (seen->kind == BUFFER_PINNED || seen->kind == BUFFER_REGISTERED) &&
        did(w, launch_fill(w, stream, seen->p, seen->extent, w->op), "fill b%u s%u", seen->id,
            stream))
        used_both(w, stream, seen, NULL);
    else
        seen = NULL;
    (void)host_copy(w, stream, buffer, HOST_UP, false, false, draw(w, 1u << 30));
    if (seen && host_may_read(w, seen))
        say(w, "look b%u: %016llx", seen->id,
            (unsigned long long)hash_of(seen->host, seen->extent));
}

/* Of memory with SYNC_MEMOPS: a stream that nothing orders behind the copy sees its bytes. */
static void copy_synchronously(struct world *w, unsigned stream, struct buffer *buffer)
{
    unsigned on = 1, other;

    if (!buffer->synchronous &&
        did(w, cu.cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, buffer->p),
            "let copies of b%u wait", buffer->id))
        buffer->synchronous = true;
    (void)host_copy(w, stream, buffer, HOST_UP, false, false, draw(w, 1u << 30));
    other = stream_pick(w);
    if (other != MAX_STREAMS && buffer_reachable(w, buffer, w->streams[other].context))
        (void)read_back(w, buffer, other, true);
}

/* A kernel of the legacy stream, or of that stream, writes what the host looks at when the kernel
 * is over. */
static struct buffer *begin_to_write(struct world *w, unsigned stream, const struct buffer *but)
{
    unsigned legacy = w->contexts[w->streams[stream].context].legacy;
    unsigned on = w->streams[stream].kind != STREAM_NONBLOCKING && w->streams[legacy].alive &&
                          !capture_forbids_legacy(w) && chance(w, 60)
                      ? legacy
                      : stream;
    struct buffer *seen = may_look(w) ? buffer_pick(w, on, true, false, but) : NULL;

    if (!seen || (seen->kind != BUFFER_PINNED && seen->kind != BUFFER_REGISTERED) ||
        !did(w, launch_fill(w, on, seen->p, seen->extent, w->op), "fill b%u s%u", seen->id, on))
        return NULL;
    used_both(w, on, seen, NULL);
    return seen;
}

/* Uploads one after the other: what came before the first is over when the third is back, since two
 * pieces may be under way on a stream (R1052, R1038); also for the legacy stream's work. */
static bool copy_in_a_row(struct world *w, unsigned stream)
{
    struct buffer *target = buffer_pick(w, stream, true, false, NULL), *seen;
    struct host_memory memory;
    struct clock before, stamp;
    uint64_t dice = draw(w, 1u << 30);
    CUresult result;
    size_t n;

    if (!target || host_side(target) || target->bytes <= COMMAND)
        return false;
    n = COMMAND + 1 + draw(w, chance(w, 80) ? COMMAND : 2 * MIB - COMMAND);
    n = n < target->extent && !target->filled ? target->extent : n;
    n = n < target->bytes ? n : target->bytes;
    seen = begin_to_write(w, stream, target);
    stream_before(w, stream, &before);
    for (unsigned i = 0; i < 3; i++) {
        memory.kind = (enum host_kind)of(&dice, HOST_PINNED);
        (void)take(w, &memory, n, true, &dice);
        result = cu.cuMemcpyHtoDAsync_v2(target->p, memory.p, n, stream_handle(w, stream));
        spoil(w, &memory, &dice);
        if (!did(w, result, "in a row b%u %zu s%u", target->id, n, stream))
            return true;
        stream_submit(w, stream, &stamp);
        buffer_used(w, target, stream, &stamp, true);
    }
    host_knows(w, &before);
    if (seen && host_may_read(w, seen))
        say(w, "look b%u: %016llx", seen->id,
            (unsigned long long)hash_of(seen->host, seen->extent));
    return true;
}

/* Whoever asks right behind a copy is answered as natively, and so is a wait for the event. */
static void ask_behind(struct world *w, unsigned stream)
{
    w->next_stream = stream;
    w->n_next = 3;
    (void)op_event_record(w);
    (void)op_stream_ask(w);
    (void)op_event_ask(w);
    w->n_next = 0;
}

static bool copy_somehow(struct world *w, unsigned stream, bool async)
{
    enum host_way way = (enum host_way)draw(w, HOST_THERE_AND_BACK + 1);
    struct buffer *buffer = buffer_pick(w, stream, way != HOST_DOWN, way == HOST_DOWN, NULL);

    if (!buffer || (!buffer->extent))
        return false;
    if (!async && way == HOST_UP && buffer->kind == BUFFER_NATIVE && chance(w, 60)) {
        (chance(w, 50) ? copy_behind_kernel : copy_synchronously)(w, stream, buffer);
        return true;
    }
    return host_copy(w, stream, buffer, way, async, may_look(w) && chance(w, 20),
                     draw(w, 1u << 30));
}

bool op_host_copy(struct world *w)
{
    bool async = chance(w, 65);
    unsigned stream = async ? stream_pick(w) : default_stream(w);

    if (stream == MAX_STREAMS || w->capture.open)
        return false;
    if ((async && chance(w, 15) && copy_in_a_row(w, stream)) || copy_somehow(w, stream, async)) {
        if (chance(w, 20))
            ask_behind(w, stream);
        return true;
    }
    return false;
}

bool host_copy_beside(struct world *w, unsigned stream, bool up, const struct buffer *but)
{
    struct buffer *buffer = buffer_pick(w, stream, up, !up, but);

    if (!buffer || host_side(buffer))
        return false;
    return host_copy(w, stream, buffer, up ? HOST_UP : HOST_DOWN, true, false, draw(w, 1u << 30));
}
