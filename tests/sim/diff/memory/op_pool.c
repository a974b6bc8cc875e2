/* op_pool.c: a random program says what its pools are to keep, and where its managed memory is to
 * lie, and asks what it said. */
#include "diff.h"

/* The program's own pool, or the default one of the device. */
static CUmemoryPool pick_pool(struct world *w, int device)
{
    CUmemoryPool pool = NULL;

    if (w->pools[device] && chance(w, 60))
        return w->pools[device];
    (void)cu.cuDeviceGetDefaultMemPool(&pool, device);
    return pool;
}

static bool use_pool(struct world *w)
{
    static const CUmemPool_attribute flags[] = {
        CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
        CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
        CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
    };
    int device = w->traits->second_device && chance(w, 40), flag = chance(w, 50);
    CUmemPool_attribute named = flags[draw(w, 3)];
    CUmemoryPool pool = pick_pool(w, device);
    cuuint64_t bytes = chance(w, 30) ? UINT64_MAX : (cuuint64_t)draw(w, 6) << 20, said = 0;

    /* The last two are left out where another thread may say something else meanwhile. */
    switch (draw(w, w->traits->n_threads > 1 ? 3 : 5)) {
    case 0:
        (void)did(w, cu.cuMemPoolTrimTo(pool, (size_t)bytes), "trim %d", device);
        break;
    case 1:
        (void)did(w, cu.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes),
                  "keep %d: %llu", device, (unsigned long long)bytes);
        break;
    case 2:
        (void)did(w, cu.cuMemPoolSetAttribute(pool, named, &flag), "pool %d, attribute %d: %d",
                  device, (int)named, flag);
        break;
    case 3:
        flag = 7;
        (void)did(w, cu.cuMemPoolGetAttribute(pool, named, &flag), "pool %d, attribute %d", device,
                  (int)named);
        say(w, "is %d", flag);
        break;
    default:
        (void)did(w, cu.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &said),
                  "kept by %d", device);
        say(w, "are %llu bytes", (unsigned long long)said);
        break;
    }
    return true;
}

/* Managed memory that the stream may read now, or NULL. */
static struct buffer *pick_managed(struct world *w, unsigned stream)
{
    struct buffer *found = NULL;
    unsigned n = 0;

    for (unsigned i = 0; i < MAX_BUFFERS; i++) {
        struct buffer *buffer = &w->buffers[i];

        if (buffer->live && buffer->kind == BUFFER_MANAGED &&
            buffer_is_for(w, buffer, stream, false) && draw(w, ++n) == 0)
            found = buffer;
    }
    return found;
}

static CUmemLocation some_location(struct world *w, unsigned stream)
{
    if (chance(w, 40))
        return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST};
    return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE,
                           .id = w->contexts[w->streams[stream].context].device};
}

static bool place_managed(struct world *w)
{
    static const CUmem_advise advices[] = {
        CU_MEM_ADVISE_SET_READ_MOSTLY,        CU_MEM_ADVISE_UNSET_READ_MOSTLY,
        CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION,
        CU_MEM_ADVISE_SET_ACCESSED_BY,        CU_MEM_ADVISE_UNSET_ACCESSED_BY,
    };
    static const CUmem_range_attribute asked[] = {
        CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY,
        CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION,
        CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION,
    };
    unsigned stream = stream_pick(w), which = draw(w, 6);
    struct buffer *buffer;
    CUmemLocation to;
    int said = 77;

    if (stream == MAX_STREAMS)
        return false;
    buffer = pick_managed(w, stream);
    if (!buffer)
        return false;
    use_context(w, w->streams[stream].context);
    to = some_location(w, stream);
    switch (draw(w, 4)) {
    case 0:
        if (did(w,
                cu.cuMemPrefetchAsync_v2(buffer->p, buffer->bytes, to, 0, stream_handle(w, stream)),
                "prefetch b%u s%u to %d", buffer->id, stream, (int)to.type))
            used_both(w, stream, NULL, buffer);
        break;
    case 1:
        (void)did(w, cu.cuMemAdvise_v2(buffer->p, buffer->bytes, advices[which], to),
                  "advise b%u %d %d", buffer->id, (int)advices[which], (int)to.type);
        break;
    case 2: /* any stream may use it, as before */
        if (did(w,
                cu.cuStreamAttachMemAsync(stream_handle(w, stream), buffer->p, 0,
                                          CU_MEM_ATTACH_GLOBAL),
                "attach b%u s%u", buffer->id, stream))
            used_both(w, stream, NULL, buffer);
        break;
    default:
        (void)did(w,
                  cu.cuMemRangeGetAttribute(&said, sizeof(said), asked[which / 2], buffer->p,
                                            buffer->bytes),
                  "asked of b%u: %d", buffer->id, (int)asked[which / 2]);
        say(w, "it is %d", said);
        break;
    }
    return true;
}

bool op_pool(struct world *w)
{
    return chance(w, 50) ? use_pool(w) : place_managed(w);
}
