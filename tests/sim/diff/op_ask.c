/* op_ask.c: a random program asks about memory, and makes mistakes that the driver must refuse. */
#include <stdlib.h>
#include <string.h>

#include "diff.h"

static struct buffer *some_buffer(struct world *w)
{
    struct buffer *found = NULL;
    unsigned n = 0;

    for (unsigned i = 0; i < MAX_BUFFERS; i++)
        if (w->buffers[i].live && !host_alone(&w->buffers[i]) &&
            w->contexts[w->buffers[i].context].alive && draw(w, ++n) == 0)
            found = &w->buffers[i];
    return found;
}

/* What managed placement may not hide is told in a line that begins with "attr": that it is
 * managed. Not asked: what pool memory truthfully cannot do (legacy IPC, RDMA). */
static void ask_softly(struct world *w, const struct buffer *buffer)
{
    static const CUpointer_attribute which[] = {
        CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,          CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
        CU_POINTER_ATTRIBUTE_ACCESS_FLAGS,         CU_POINTER_ATTRIBUTE_MAPPED,
    };
    unsigned i = draw(w, sizeof(which) / sizeof(which[0]));
    uint64_t value = 0;
    CUresult result = cu.cuPointerGetAttribute(&value, which[i], buffer->p);

    if (which[i] == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE)
        value = value != 0;
    bool may_differ =
        (which[i] == CU_POINTER_ATTRIBUTE_IS_MANAGED &&
         (buffer->kind == BUFFER_NATIVE || buffer->kind == BUFFER_PITCH ||
          buffer->kind == BUFFER_ASYNC)) ||
        (which[i] == CU_POINTER_ATTRIBUTE_ACCESS_FLAGS && buffer->kind == BUFFER_ASYNC);
    (void)did(w, result, "%s %d of b%u: %llu", may_differ ? "attr" : "attribute", (int)which[i],
              buffer->id, (unsigned long long)value);
}

static void ask_several(struct world *w, const struct buffer *buffer, size_t offset)
{
    CUpointer_attribute which[] = {
        CU_POINTER_ATTRIBUTE_CONTEXT,        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        CU_POINTER_ATTRIBUTE_RANGE_SIZE,     CU_POINTER_ATTRIBUTE_IS_MANAGED};
    CUcontext context = NULL;
    unsigned type = 0, managed = 7, alone = 8;
    int ordinal = -1;
    CUdeviceptr start = 0;
    size_t size = 0;
    void *data[] = {&context, &type, &ordinal, &start, &size, &managed};
    CUresult result = cu.cuPointerGetAttributes(6, which, data, buffer->p + offset);

    (void)cu.cuPointerGetAttribute(&alone, which[5], buffer->p + offset);
    if (managed != alone)
        say(w, "asked alone b%u is%s managed", buffer->id, alone ? "" : " not");
    (void)did(w, result, "attributes of b%u: %s type %u device %d start %lld size %zu", buffer->id,
              !context                                         ? "no context"
              : context == w->contexts[buffer->context].handle ? "its context"
                                                               : "another context",
              type, ordinal, (long long)(start - buffer->p), size);
}

bool op_ask_pointer(struct world *w)
{
    struct buffer *buffer = some_buffer(w);
    CUdeviceptr base = 0;
    size_t offset, size = 0;
    CUresult result;

    if (!buffer)
        return false;
    offset = draw(w, 2) ? 0 : buffer->extent - 1;
    if (w->current >= MAX_CONTEXTS || !w->contexts[w->current].alive)
        use_context(w, buffer->context);
    switch (draw(w, 3)) {
    case 0:
        ask_softly(w, buffer);
        return true;
    case 1:
        ask_several(w, buffer, offset);
        return true;
    default:
        result = cu.cuMemGetAddressRange_v2(&base, &size, buffer->p + offset);
        (void)did(w, result, "range of b%u: %lld %zu", buffer->id, (long long)(base - buffer->p),
                  size);
        return true;
    }
}

bool op_ask_memory(struct world *w)
{
    const char *limit = getenv("DIFF_TOTAL"); /* what the program is to believe */
    size_t free_bytes = 0, total_bytes = 0;
    size_t expected = limit ? strtoull(limit, NULL, 10) : (size_t)512 << 20;
    CUresult result = cu.cuMemGetInfo_v2(&free_bytes, &total_bytes);

    (void)did(w, result, "cuMemGetInfo: total %s, free %s",
              total_bytes == expected ? "right" : "wrong",
              free_bytes <= total_bytes ? "plausible" : "is not");
    return true;
}

/* The driver takes memory of cuMemAlloc too, and frees it at once: valid when all is over. */
static bool free_async_of_native(struct world *w)
{
    struct buffer *buffer = buffer_pick_idle(w, 1u << BUFFER_NATIVE | 1u << BUFFER_PITCH, false);
    unsigned stream = stream_pick(w);
    struct clock before;

    if (!buffer || stream == MAX_STREAMS ||
        (w->traits->n_threads > 1 && w->streams[stream].kind == STREAM_LEGACY) ||
        w->streams[stream].shared ||
        w->contexts[buffer->context].device != w->contexts[w->streams[stream].context].device)
        return false;
    stream_before(w, stream, &before);
    if (!clock_covers(&w->host, &before))
        return false;
    if (!did(w, cu.cuMemFreeAsync(buffer->p, stream_handle(w, stream)),
             "cuMemFreeAsync of native b%u", buffer->id))
        return true;
    buffer_gone(w, buffer);
    stream_submit(w, stream, &before); /* whether the stream has something to do then is not told */
    return true;
}

bool op_mistake(struct world *w)
{
    struct buffer *buffer = some_buffer(w);
    CUdeviceptr p = 0;
    size_t pitch = 0;

    if (w->capture.open || !w->contexts[w->current].alive)
        return false;
    switch (draw(w, 7)) {
    case 0:
        (void)did(w, cu.cuMemAlloc_v2(&p, 0), "cuMemAlloc of nothing");
        break;
    case 1:
        (void)did(w, cu.cuMemAlloc_v2(&p, (size_t)1 << 50), "cuMemAlloc of 1 PiB");
        break;
    case 2:
        (void)did(w, cu.cuMemAlloc_v2(NULL, 512), "cuMemAlloc to nowhere");
        break;
    case 3:
        (void)did(w, cu.cuMemFree_v2(0), "cuMemFree of 0");
        host_knows(w, &w->host);
        break;
    case 4:
        if (!buffer || buffer->extent < 32 || buffer->host)
            return false;
        (void)did(w, cu.cuMemFree_v2(buffer->p + 16), "cuMemFree inside b%u", buffer->id);
        break;
    case 5:
        return free_async_of_native(w);
    default:
        (void)did(w, cu.cuMemAllocPitch_v2(&p, &pitch, draw(w, 2) ? 0 : 100, 2, 3), "bad pitch");
        break;
    }
    return true;
}
