/* op_memory.c: a random program allocates and frees memory of every kind. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "diff.h"

static const char *const kind_names[] = {"native",   "pitch",  "async",      "pool",
                                         "managed",  "pinned", "registered", "variable",
                                         "pageable", "mapped", "global"};

static size_t some_size(struct world *w)
{
    if (w->traits->hungry && chance(w, 60))
        return ((size_t)1 + draw(w, 12)) * 300000;
    switch (draw(w, 10)) {
    case 0:
        return 16 + draw(w, 64);
    case 1:
    case 2:
        return 512u * (1 + draw(w, 4)); /* the same size again and again: blocks are reused */
    case 3:
    case 4:
    case 5:
        return 4096u << draw(w, 3);
    case 6:
    case 7:
        return 16 + draw(w, 60000);
    case 8:
        return ((size_t)1 << 20) + draw(w, 300000);
    default:
        return (size_t)2 << 20;
    }
}

static unsigned some_context(struct world *w)
{
    unsigned n = 0, found = 0;

    for (unsigned i = 0; i < w->n_contexts; i++)
        if (w->contexts[i].alive && draw(w, ++n) == 0)
            found = i;
    return found;
}

static bool taken(struct world *w, struct buffer *buffer, CUresult result)
{
    if (!did(w, result, "alloc %s b%u c%u %zu", kind_names[buffer->kind], buffer->id,
             buffer->context, buffer->bytes))
        return false;
    buffer->live = true;
    w->bytes_live += buffer->bytes;
    return true;
}

/* The last words, which nobody reads: that they are there, and nobody else's, is for the
 * simulation to say. */
static void fill_end(struct world *w, const struct buffer *buffer, unsigned stream)
{
    size_t end = buffer->bytes / 16 * 16;

    if (end > buffer->extent)
        (void)did(w, launch_fill(w, stream, buffer->p + end - 16, 16, 5), "end b%u", buffer->id);
}

/* Most memory is written soon after it was allocated. */
bool fill_new(struct world *w, struct buffer *buffer)
{
    unsigned stream = stream_pick(w);
    struct clock stamp, before;
    bool early;

    if (stream == MAX_STREAMS || !buffer_reachable(w, buffer, w->streams[stream].context))
        return false;
    stream_before(w, stream, &before);
    if (!clock_covers(&before, &buffer->born))
        return false;
    /* A stream-ordered allocation or free before it does not tell when the kernel may start. */
    early = (buffer->kind == BUFFER_NATIVE || buffer->kind == BUFFER_PITCH) && buffer->id % 3 == 1;
    if (!did(w,
             (early ? launch_fill_early : launch_fill)(w, stream, buffer->p, buffer->extent,
                                                       buffer->id * 977),
             "fill b%u s%u", buffer->id, stream))
        return true;
    fill_end(w, buffer, stream);
    stream_submit(w, stream, &stamp);
    buffer_used(w, buffer, stream, &stamp, true);
    return true;
}

bool op_alloc(struct world *w)
{
    bool pitched = chance(w, 12);
    size_t bytes = some_size(w);
    unsigned context = some_context(w);
    struct buffer *buffer;
    CUresult result;

    if (capture_forbids_waiting(w) || w->bytes_live + bytes > MOST_BYTES)
        return false;
    buffer = buffer_new(w, pitched ? BUFFER_PITCH : BUFFER_NATIVE, context, bytes);
    if (!buffer)
        return false;
    use_context(w, context);
    if (pitched) {
        size_t height = 1 + draw(w, 8);
        buffer->width = bytes / height + 1;
        unsigned element = 4u << draw(w, 3);
        result =
            ROOM(w, context, bytes,
                 cu.cuMemAllocPitch_v2(&buffer->p, &buffer->pitch, buffer->width, height, element));
        say(w, "pitch %zu of %zu", result ? 0 : buffer->pitch, buffer->width);
        buffer->bytes = result ? bytes : buffer->pitch * height;
    } else {
        result = ROOM_OR_HOST(w, context, bytes, cu.cuMemAlloc_v2(&buffer->p, bytes));
    }
    if (taken(w, buffer, result) && !w->capture.open && !w->submits_nothing && chance(w, 85))
        (void)fill_new(w, buffer);
    return true;
}

bool op_alloc_async(struct world *w)
{
    unsigned stream = stream_pick(w);
    bool own = w->traits->pools && chance(w, 50);
    size_t bytes = some_size(w);
    struct buffer *buffer;
    CUresult result;

    if (w->traits->deep && w->traits->seed % 2)
        return false;
    if (stream == MAX_STREAMS || capture_forbids_waiting(w) || w->bytes_live + bytes > MOST_BYTES)
        return false;
    /* The driver hangs when a thread ends after that while its per-thread stream is busy. */
    if (w->traits->n_threads > 1 && w->streams[stream].kind == STREAM_LEGACY)
        return false;
    buffer = buffer_new(w, own ? BUFFER_POOL : BUFFER_ASYNC, w->streams[stream].context, bytes);
    if (!buffer)
        return false;
    CUstream handle = stream_handle(w, stream);
    CUmemoryPool pool = w->pools[w->contexts[buffer->context].device];
    w->uses_pools = true;
    result = ROOM(w, buffer->context, bytes,
                  own ? cu.cuMemAllocFromPoolAsync(&buffer->p, bytes, pool, handle)
                      : cu.cuMemAllocAsync(&buffer->p, bytes, handle));
    say(w, "on s%u", stream);
    if (!taken(w, buffer, result))
        return true;
    stream_submit(w, stream, &buffer->born);
    (void)fill_new(w, buffer);
    return true;
}

static void host_fill(struct world *w, struct buffer *buffer)
{
    unsigned char value = (unsigned char)draw(w, 256);

    for (size_t i = 0; i < buffer->extent; i++)
        ((unsigned char *)buffer->host)[i] = (unsigned char)(value + i * 7);
    buffer->filled = true;
}

static CUresult take_pinned(struct world *w, struct buffer *buffer)
{
    CUresult result = chance(w, 50)
                          ? cu.cuMemAllocHost_v2(&buffer->host, buffer->bytes)
                          : cu.cuMemHostAlloc(&buffer->host, buffer->bytes,
                                              CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);

    return result ? result : cu.cuMemHostGetDevicePointer_v2(&buffer->p, buffer->host, 0);
}

static CUresult take_registered(struct buffer *buffer)
{
    CUresult result;

    buffer->host =
        mmap(NULL, buffer->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffer->host == MAP_FAILED)
        abort();
    result = cu.cuMemHostRegister_v2(buffer->host, buffer->bytes, CU_MEMHOSTREGISTER_PORTABLE);
    return result ? result : cu.cuMemHostGetDevicePointer_v2(&buffer->p, buffer->host, 0);
}

bool op_alloc_visible(struct world *w)
{
    static const enum buffer_kind kinds[] = {BUFFER_PINNED, BUFFER_PINNED, BUFFER_REGISTERED,
                                             BUFFER_MANAGED, BUFFER_VARIABLE};
    /* Each program holds to one or two kinds: each alone must be noticed. */
    enum buffer_kind kind = kinds[(w->traits->seed / 7 + draw(w, 2)) % 5];
    struct buffer *buffer;
    CUresult result;

    if (!may_look(w) || capture_forbids_waiting(w))
        return false;
    if (w->traits->batches && (w->traits->seed % 2 || chance(w, 50)))
        kind = BUFFER_PAGEABLE;
    if (w->traits->by_nodes)
        kind = BUFFER_VARIABLE;
    else if (w->traits->places && chance(w, 50))
        kind = BUFFER_MANAGED;
    buffer =
        buffer_new(w, kind, some_context(w), kind == BUFFER_VARIABLE ? 16 : 512u << draw(w, 6));
    if (!buffer)
        return false;
    use_context(w, buffer->context);
    if (kind == BUFFER_VARIABLE) {
        buffer->host = calloc(1, 16);
        result = CUDA_SUCCESS;
    } else if (kind == BUFFER_PAGEABLE) {
        buffer->host = calloc(1, buffer->bytes);
        buffer->p = (CUdeviceptr)(uintptr_t)buffer->host;
        result = CUDA_SUCCESS;
    } else if (kind == BUFFER_PINNED) {
        result = take_pinned(w, buffer);
    } else if (kind == BUFFER_REGISTERED) {
        result = take_registered(buffer);
    } else {
        result = cu.cuMemAllocManaged(&buffer->p, buffer->bytes, CU_MEM_ATTACH_GLOBAL);
        buffer->host = (void *)(uintptr_t)buffer->p;
    }
    if (taken(w, buffer, result))
        host_fill(w, buffer);
    return true;
}

/* ---- freeing ---- */

#define BIT(kind) (1u << (kind))

/* What the driver says about memory that is gone. */
static void probe_freed(struct world *w, const struct buffer *buffer)
{
    CUdeviceptr base = 0;
    unsigned type = 0;

    if (w->traits->n_threads > 1) /* another thread may own the address by now */
        return;
    (void)did(w, cu.cuMemFree_v2(buffer->p), "free again b%u", buffer->id);
    (void)did(w, cu.cuMemGetAddressRange_v2(&base, NULL, buffer->p), "range of freed b%u",
              buffer->id);
    (void)did(w, cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, buffer->p),
              "type of freed b%u", buffer->id);
}

bool free_buffer(struct world *w, struct buffer *buffer)
{
    bool waits = buffer->kind != BUFFER_ASYNC && buffer->kind != BUFFER_POOL;

    /* Whatever context is current: the owner's work is waited for. */
    use_context(w, chance(w, 70) ? buffer->context : some_context(w));
    if (!did(w, cu.cuMemFree_v2(buffer->p), "cuMemFree b%u", buffer->id))
        return true;
    if (buffer->shared) {
        say(w, "b%u is open elsewhere", buffer->id);
        w->gone_open = *buffer;
        w->has_gone_open = w->freed_open = true;
    }
    buffer_gone(w, buffer);
    if (!waits)
        return true;
    host_knows_context(w, buffer->context);
    w->lean = 6;
    if (buffer->kind == BUFFER_NATIVE && chance(w, 12))
        probe_freed(w, buffer);
    else if (chance(w, 12)) /* a stream that comes later relies on the free as well */
        (void)op_stream_create(w);
    return true;
}

/* A stream, known or new, that relies on the free; or a capture. */
static void go_elsewhere(struct world *w)
{
    switch (draw(w, 4)) {
    case 0:
        (void)op_capture_begin(w);
        break;
    case 1:
        (void)op_kernel(w);
        (void)op_stream_replace(w);
        break;
    default:
        w->n_next = 0;
        w->next_stream = stream_pick(w);
        w->n_next = w->next_stream == MAX_STREAMS ? 0 : 3;
        (void)(chance(w, 60) && op_graph_launch(w));
        break;
    }
}

bool op_free(struct world *w)
{
    unsigned kinds = BIT(BUFFER_NATIVE) | BIT(BUFFER_PITCH);
    struct buffer *buffer;

    if (capture_forbids_waiting(w))
        return false;
    buffer = ipc_kept(w);
    if (buffer && chance(w, 25) && host_may_write(w, buffer) && !buffer_in_graph(w, buffer))
        return free_buffer(w, buffer);
    if (chance(w, 15))
        kinds = BIT(BUFFER_MANAGED) | BIT(BUFFER_ASYNC) | BIT(BUFFER_POOL);
    buffer = buffer_pick_idle(w, kinds, true);
    if (!buffer || !free_buffer(w, buffer))
        return false;
    if (w->traits->narrow && w->lean && !w->submits_nothing && !w->capture.open)
        go_elsewhere(w);
    return true;
}

bool op_free_async(struct world *w)
{
    unsigned stream = stream_pick(w);
    struct buffer *buffer;
    struct clock stamp;

    if (stream == MAX_STREAMS || capture_forbids_waiting(w))
        return false;
    buffer = buffer_pick(w, stream, true, false, NULL);
    if (!buffer || (buffer->kind != BUFFER_ASYNC && buffer->kind != BUFFER_POOL) ||
        w->contexts[buffer->context].device != w->contexts[w->streams[stream].context].device ||
        buffer_in_graph(w, buffer))
        return false;
    if (!did(w, cu.cuMemFreeAsync(buffer->p, stream_handle(w, stream)), "cuMemFreeAsync b%u s%u",
             buffer->id, stream))
        return true;
    stream_submit(w, stream, &stamp);
    buffer_gone(w, buffer);
    return true;
}

bool op_free_visible(struct world *w)
{
    struct buffer *buffer;

    if (capture_forbids_waiting(w))
        return false;
    buffer = buffer_pick_idle(w,
                              BIT(BUFFER_PINNED) | BIT(BUFFER_REGISTERED) | BIT(BUFFER_VARIABLE) |
                                  BIT(BUFFER_PAGEABLE),
                              false);
    if (!buffer)
        return false;
    use_context(w, buffer->context);
    if (buffer->kind == BUFFER_PINNED)
        (void)did(w, cu.cuMemFreeHost(buffer->host), "cuMemFreeHost b%u", buffer->id);
    else if (buffer->kind == BUFFER_REGISTERED)
        (void)did(w, cu.cuMemHostUnregister(buffer->host), "cuMemHostUnregister b%u", buffer->id);
    if (buffer->kind == BUFFER_REGISTERED)
        (void)munmap(buffer->host, buffer->bytes);
    else if (host_alone(buffer))
        free(buffer->host);
    buffer_gone(w, buffer);
    return true;
}

/* ---- pinned memory that comes and goes ---- */

/* What the driver says about pinned memory that is gone. */
static void probe_freed_pinned(struct world *w, const struct buffer *buffer)
{
    char *inside = (char *)buffer->host + draw(w, (unsigned)buffer->bytes);
    unsigned type = 0, flags = 0;
    CUdeviceptr p = 0;

    switch (draw(w, 5)) {
    case 0:
        (void)did(w, cu.cuMemFreeHost(buffer->host), "cuMemFreeHost again b%u", buffer->id);
        break;
    case 1:
        (void)did(w, cu.cuMemHostGetDevicePointer_v2(&p, inside, 0), "device pointer of freed b%u",
                  buffer->id);
        break;
    case 2:
        (void)did(w, cu.cuMemHostGetFlags(&flags, inside), "flags of freed b%u", buffer->id);
        break;
    case 3:
        (void)did(w, cu.cuMemGetAddressRange_v2(&p, NULL, (CUdeviceptr)(uintptr_t)inside),
                  "range of freed b%u", buffer->id);
        break;
    default:
        (void)did(w,
                  cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                           (CUdeviceptr)(uintptr_t)inside),
                  "type of freed b%u", buffer->id);
        break;
    }
}

static bool pin(struct world *w, unsigned context, size_t bytes)
{
    struct buffer *buffer = buffer_new(w, BUFFER_PINNED, context, bytes);
    unsigned flags = 0;
    CUresult result;

    if (!buffer)
        return false;
    use_context(w, context);
    if (!taken(w, buffer, take_pinned(w, buffer)))
        return true;
    result = cu.cuMemHostGetFlags(&flags, buffer->host);
    (void)did(w, result, "flags of b%u: %u", buffer->id, flags);
    host_fill(w, buffer);
    return true;
}

/* One that is in use, if any is: the free waits for all work of the context that it was made in, so
 * no other may use it. */
static struct buffer *some_pinned(struct world *w)
{
    struct buffer *found[2] = {NULL, NULL};
    unsigned n[2] = {0, 0};

    for (unsigned i = 0; i < MAX_BUFFERS; i++) {
        struct buffer *buffer = &w->buffers[i];
        bool idle = host_may_write(w, buffer);

        if (buffer->live && buffer->kind == BUFFER_PINNED && !buffer->shared &&
            !buffer_in_graph(w, buffer) && buffer_ends_with_owner(w, buffer) &&
            draw(w, ++n[idle]) == 0)
            found[idle] = buffer;
    }
    return found[0] ? found[0] : found[1];
}

/* Pins memory; or frees some that may be in use, and pins as much again, or a little less, which is
 * written at once. */
bool op_pin(struct world *w)
{
    struct buffer *buffer, gone;

    if (capture_forbids_waiting(w))
        return false;
    buffer = some_pinned(w);
    if (!buffer || chance(w, 25))
        return pin(w, some_context(w), 512u << draw(w, 6));
    gone = *buffer;
    use_context(w, chance(w, 70) ? gone.context : some_context(w));
    if (!did(w, cu.cuMemFreeHost(gone.host), "cuMemFreeHost b%u, in use", gone.id))
        return true;
    buffer_gone(w, buffer);
    if (w->traits->seed % 2)
        host_knows_context(w, gone.context);
    w->lean = w->traits->seed % 2 ? 6 : w->lean;
    if (chance(w, 40))
        probe_freed_pinned(w, &gone);
    if (chance(w, 70))
        (void)pin(w, gone.context, gone.bytes - 16 * draw(w, (unsigned)(gone.bytes / 160)));
    return true;
}
