/* op_map.c: a random program maps memory of its own, again and again at the same addresses, uses
 * variables of its code, changes how much stack its kernels have, and launches some that need
 * memory of the card. */
#include "diff.h"

#define UNIT       ((size_t)2 << 20) /* what the driver maps in */
#define MAP_EXTENT 4096u

/* Where nothing is mapped any more; else another one. */
static CUdeviceptr place_for(struct world *w)
{
    CUdeviceptr p = 0;

    if (w->n_places && chance(w, 80))
        return w->places[--w->n_places];
    if (!did(w, cu.cuMemAddressReserve(&p, UNIT, 0, 0, 0), "cuMemAddressReserve"))
        return 0;
    return p;
}

static void leave_place(struct world *w, CUdeviceptr p)
{
    if (w->n_places < MAX_PLACES)
        w->places[w->n_places++] = p;
    else
        (void)did(w, cu.cuMemAddressFree(p, UNIT), "cuMemAddressFree");
}

static CUresult map(struct buffer *buffer, int device)
{
    const CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    const CUmemAccessDesc access = {.location = here, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult result = cu.cuMemMap(buffer->p, UNIT, 0, buffer->physical, 0);

    return result ? result : cu.cuMemSetAccess(buffer->p, UNIT, &access, 1);
}

/* Memory that a cuMemFree knows nothing of. NULL: there is no room for it. */
struct buffer *map_buffer(struct world *w, unsigned context)
{
    const int device = w->contexts[context].device;
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    struct buffer *buffer = buffer_new(w, BUFFER_MAPPED, context, UNIT);

    if (!buffer ||
        !did(w, ROOM(w, context, UNIT, cu.cuMemCreate(&buffer->physical, UNIT, &prop, 0)),
             "cuMemCreate b%u", buffer->id))
        return NULL;
    buffer->extent = MAP_EXTENT;
    buffer->p = place_for(w);
    if (!buffer->p || !did(w, map(buffer, device), "map b%u", buffer->id)) {
        (void)did(w, cu.cuMemRelease(buffer->physical), "cuMemRelease b%u", buffer->id);
        return NULL;
    }
    buffer->live = true;
    w->bytes_live += UNIT;
    return buffer;
}

/* Nobody uses it any more. Half of them give the memory back before the mapping goes. */
void unmap_buffer(struct world *w, struct buffer *buffer)
{
    const bool early = buffer->id % 2;

    if (early)
        (void)did(w, cu.cuMemRelease(buffer->physical), "cuMemRelease b%u", buffer->id);
    (void)did(w, cu.cuMemUnmap(buffer->p, UNIT), "cuMemUnmap b%u", buffer->id);
    if (!early)
        (void)did(w, cu.cuMemRelease(buffer->physical), "cuMemRelease b%u", buffer->id);
    leave_place(w, buffer->p);
    buffer_gone(w, buffer);
}

bool op_map(struct world *w)
{
    struct buffer *buffer;
    unsigned context = draw(w, w->n_contexts);

    if (capture_forbids_waiting(w) || !w->contexts[context].alive ||
        w->bytes_live + UNIT > MOST_BYTES)
        return false;
    use_context(w, context);
    buffer = map_buffer(w, context);
    if (buffer && !w->capture.open && chance(w, 85))
        (void)fill_new(w, buffer);
    return true;
}

bool op_unmap(struct world *w)
{
    struct buffer *buffer;

    if (capture_forbids_waiting(w))
        return false;
    buffer = buffer_pick_idle(w, 1u << BUFFER_MAPPED, false);
    if (buffer)
        unmap_buffer(w, buffer);
    return buffer != NULL;
}

struct buffer *global_buffer(struct world *w, unsigned context)
{
    CUmodule module = w->contexts[context].module;
    struct buffer *buffer;
    CUresult result;

    for (unsigned i = 0; i < MAX_BUFFERS; i++)
        if (w->buffers[i].live && w->buffers[i].kind == BUFFER_GLOBAL)
            return NULL;
    if (w->traits->n_threads > 1)
        return NULL;
    buffer = buffer_new(w, BUFFER_GLOBAL, context, TABLE_BYTES);
    if (!buffer)
        return NULL;
    result =
        ROOM(w, context, TABLE_BYTES, cu.cuModuleGetGlobal_v2(&buffer->p, NULL, module, "table"));
    if (!did(w, result, "table b%u", buffer->id))
        return NULL;
    buffer->live = buffer->filled = true;
    w->bytes_live += TABLE_BYTES;
    return buffer;
}

static bool op_global(struct world *w)
{
    unsigned context = draw(w, w->n_contexts);

    if (capture_forbids_waiting(w) || !w->contexts[context].alive)
        return false;
    use_context(w, context);
    return global_buffer(w, context) != NULL;
}

/* Kernels need so much from then on; of the program's graphs, only later ones have it. Other
 * contexts and threads would have to be asked too. */
bool op_limit(struct world *w)
{
    const size_t bytes = (size_t)512 << draw(w, 6);

    if (w->capture.open || w->n_contexts > 1 || w->traits->second_context ||
        w->traits->n_threads > 1)
        return false;
    for (unsigned i = 0; i < MAX_GRAPHS; i++)
        if (w->graphs[i].alive)
            return false;
    use_context(w, 0);
    if (!did(w, cu.cuCtxSynchronize(), "cuCtxSynchronize c0"))
        return true;
    host_knows_context(w, 0);
    if (did(w, cu.cuCtxSetLimit(CU_LIMIT_STACK_SIZE, bytes), "cuCtxSetLimit %zu", bytes))
        kernels_need_stack(bytes);
    return true;
}

/* One of them, now and then. */
bool op_map_any(struct world *w)
{
    switch (draw(w, 6)) {
    case 0:
    case 1:
        return op_map(w);
    case 2:
    case 3:
        return op_unmap(w);
    case 4:
        return op_global(w);
    default:
        return op_limit(w);
    }
}

/* ---- launches that need memory of the card, for the local memory of their threads ---- */

#define MIB       ((size_t)1 << 20)
#define MOST_DEEP (8 * MIB) /* of a context */
#define MOST_HAD  20

/* All of the small cards of diff_policies.py but what is drawn; a little more than there is, too.
 */
static void have_and_free(struct world *w, unsigned context)
{
    const size_t most = (13 + draw(w, 7)) * MIB, bytes = (1 + draw(w, 3)) * MIB;
    const size_t local = w->contexts[context].local_bytes;
    struct buffer *had[MOST_HAD];
    unsigned n = 0;

    for (; n < MOST_HAD && w->bytes_live + local + bytes <= most; n++) {
        had[n] = buffer_new(w, BUFFER_NATIVE, context, bytes);
        if (!had[n] || !did(w, ROOM_OR_HOST(w, context, bytes, cu.cuMemAlloc_v2(&had[n]->p, bytes)),
                            "one of %zu", bytes))
            break;
        had[n]->live = true;
        w->bytes_live += bytes;
    }
    while (n--) {
        if (did(w, cu.cuMemFree_v2(had[n]->p), "free it"))
            host_knows_context(w, context);
        buffer_gone(w, had[n]);
    }
}

static CUresult launch_captured(struct world *w, unsigned stream, void **args,
                                const struct shape *shape)
{
    CUstream handle = stream_handle(w, stream);
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    CUresult result = cu.cuStreamBeginCapture_v2(handle, CU_STREAM_CAPTURE_MODE_RELAXED);

    if (!result)
        result = launch_as(w, stream, KERNEL_DEEP, args, shape);
    if (!result)
        result = cu.cuStreamEndCapture(handle, &graph);
    if (!result)
        result = cu.cuGraphInstantiateWithFlags(&exec, graph, 0);
    if (!result)
        result = cu.cuGraphLaunch(exec, handle);
    if (exec)
        (void)cu.cuGraphExecDestroy(exec);
    if (graph)
        (void)cu.cuGraphDestroy(graph);
    return result;
}

static CUresult launch_deep(struct world *w, unsigned stream, const struct buffer *dst,
                            uint32_t kind)
{
    CUdeviceptr p = dst->p;
    uint32_t n = (uint32_t)dst->extent, value = w->op;
    void *args[] = {&p, &n, &value};
    const struct shape shape = {.grid = {1, 1, 1},
                                .block = 32 << kind / 4 % 2,
                                .how = (enum launch_how)(kind % N_LAUNCH_HOWS)};

    if (kind >= 12 && w->streams[stream].kind != STREAM_LEGACY)
        return launch_captured(w, stream, args, &shape);
    return launch_as(w, stream, KERNEL_DEEP, args, &shape);
}

/* More than the context has had so far, where it may have more. */
static size_t some_local(struct world *w, size_t had)
{
    size_t bytes = had + (1 + draw(w, 3)) * MIB;

    return bytes <= MOST_DEEP ? bytes : (1 + draw(w, MOST_DEEP / MIB)) * MIB;
}

bool op_deep(struct world *w)
{
    unsigned stream = stream_pick(w), context;
    struct buffer *dst = stream == MAX_STREAMS ? NULL : buffer_pick(w, stream, true, false, NULL);
    size_t had, bytes;
    uint32_t kind = draw(w, 16);
    CUresult result;

    if (!dst)
        return false;
    context = w->streams[stream].context;
    use_context(w, context);
    if (chance(w, 70))
        have_and_free(w, context);
    had = w->contexts[context].local_bytes;
    bytes = some_local(w, had);
    kernels_need_local(bytes);
    result = ROOM_TO_LAUNCH(w, context, bytes > had ? bytes - had : 0,
                            launch_deep(w, stream, dst, kind));
    if (!did(w, result, "deep %zu b%u s%u", bytes, dst->id, stream))
        return true;
    if (bytes > had)
        w->contexts[context].local_bytes = bytes;
    used_both(w, stream, dst, NULL);
    return true;
}
