/* Copies and fills: see copies.h. */
#include "graph/copies.h"

#include <stddef.h>

#include "graph/record/memory.h"
#include "graph/record/op.h"
#include "graph/record/staging.h"
#include "graph/replay/segment.h"
#include "graph/replayer.h"
#include "graph/stream.h"

static _Atomic bool some_are_synchronous;

void ag_copies_note_synchronous(void)
{
    atomic_store_explicit(&some_are_synchronous, true, memory_order_release);
}

static CUmemorytype type_of(enum ag_memory memory)
{
    return memory == AG_MEMORY_DEVICE ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
}

/* Can such a copy be recorded? Not where the call would wait: the driver waits for copies to
 * pageable memory, and for those within the host. */
static bool can_record(enum ag_copy_way way, enum ag_memory to, enum ag_memory from)
{
    bool from_host = from == AG_MEMORY_PINNED || from == AG_MEMORY_PAGEABLE;
    bool in = to == AG_MEMORY_DEVICE && from_host;
    bool out = to == AG_MEMORY_PINNED && from == AG_MEMORY_DEVICE;
    bool within = to == AG_MEMORY_DEVICE && from == AG_MEMORY_DEVICE;

    switch (way) {
    case AG_COPY_TO_DEVICE:
        return in;
    case AG_COPY_TO_HOST:
        return out;
    case AG_COPY_WITHIN:
        return within;
    case AG_COPY_BLOCKING:
        return within && !atomic_load_explicit(&some_are_synchronous, memory_order_acquire);
    default:
        return in || out || within;
    }
}

bool ag_copies_line(struct ag_stream *stream, enum ag_copy_way way, uint64_t to, uint64_t from,
                    uint64_t bytes)
{
    struct ag_op *op = ag_replay_op(stream);
    enum ag_memory to_memory = bytes ? ag_memory_kind(to, bytes) : AG_MEMORY_UNKNOWN;
    enum ag_memory from_memory = to_memory ? ag_memory_kind(from, bytes) : AG_MEMORY_UNKNOWN;

    if (!op || !can_record(way, to_memory, from_memory) ||
        !ag_op_copy(op, to, type_of(to_memory), from, type_of(from_memory), bytes))
        return ag_replay_pass(stream, AG_FLUSH_COPY);
    if (from_memory == AG_MEMORY_PAGEABLE)
        op->signature.word[0] |= AG_OP_IS_STAGED;
    if (from_memory == AG_MEMORY_PAGEABLE && ag_replay_would_withhold(stream)) {
        struct ag_ring *ring = ag_segment_ring(stream);
        const void *from_host = (const void *)(uintptr_t)from, *slot;

        slot = ring ? ag_ring_put(ring, &stream->segment.staged, from_host, bytes) : NULL;
        if (!slot)
            return ag_replay_pass(stream, AG_FLUSH_COPY);
        ((struct ag_copy_payload *)(void *)op->payload)->from = (uintptr_t)slot;
    }
    return ag_replay_take(stream);
}

/* The source or the destination of a 3-D copy. */
struct side {
    CUmemorytype *type;
    const void *host;
    CUdeviceptr device;
    size_t x, y, z, lod, pitch, height;
    void *reserved;
};

/* The distance from the first byte that the copy touches to the end of the last; 0 where the driver
 * would refuse the geometry, or may. */
static uint64_t extent(const CUDA_MEMCPY3D *copy, const struct side *side, uint64_t *ret_offset)
{
    const uint64_t most = INT32_MAX; /* the largest pitch of any device; and so nothing overflows */
    uint64_t pitch = side->pitch, height = side->height;

    if (!height && !side->z && copy->Depth == 1) /* which then does not matter */
        height = side->y + copy->Height;
    if (copy->WidthInBytes > most || copy->Height > most || copy->Depth > most || side->x > most ||
        side->y > most || side->z > most || pitch > most || height > most || side->lod ||
        side->reserved || pitch < side->x + copy->WidthInBytes || height < side->y + copy->Height ||
        (side->z + copy->Depth) > (UINT64_MAX >> 2) / pitch / height)
        return 0;
    *ret_offset = (side->z * height + side->y) * pitch + side->x;
    return ((copy->Depth - 1) * height + copy->Height - 1) * pitch + copy->WidthInBytes;
}

/* Resolves the address and the type of a side: DEVICE or HOST, no longer UNIFIED. */
static enum ag_memory resolve_side(const CUDA_MEMCPY3D *copy, struct side *side,
                                   uint64_t *ret_address)
{
    uint64_t offset, bytes = extent(copy, side, &offset);
    enum ag_memory memory;

    if (!bytes || (*side->type != CU_MEMORYTYPE_HOST && *side->type != CU_MEMORYTYPE_DEVICE &&
                   *side->type != CU_MEMORYTYPE_UNIFIED))
        return AG_MEMORY_UNKNOWN;
    *ret_address = *side->type == CU_MEMORYTYPE_HOST ? (uintptr_t)side->host : side->device;
    if (*ret_address > UINT64_MAX - offset)
        return AG_MEMORY_UNKNOWN;
    memory = ag_memory_kind(*ret_address + offset, bytes);
    if (*side->type != CU_MEMORYTYPE_UNIFIED && *side->type != type_of(memory))
        return AG_MEMORY_UNKNOWN;
    *side->type = type_of(memory);
    return memory;
}

/* Resolves both sides. False: such a copy is not recorded. */
static bool resolve_copy(CUDA_MEMCPY3D *copy)
{
    struct side to = {&copy->dstMemoryType, copy->dstHost,  copy->dstDevice, copy->dstXInBytes,
                      copy->dstY,           copy->dstZ,     copy->dstLOD,    copy->dstPitch,
                      copy->dstHeight,      copy->reserved1};
    struct side from = {&copy->srcMemoryType, copy->srcHost,  copy->srcDevice, copy->srcXInBytes,
                        copy->srcY,           copy->srcZ,     copy->srcLOD,    copy->srcPitch,
                        copy->srcHeight,      copy->reserved0};
    uint64_t to_address = 0, from_address = 0;
    enum ag_memory to_memory, from_memory;

    if (!copy->WidthInBytes || !copy->Height || !copy->Depth)
        return false;
    to_memory = resolve_side(copy, &to, &to_address);
    from_memory = to_memory ? resolve_side(copy, &from, &from_address) : AG_MEMORY_UNKNOWN;
    /* Addresses of a 3-D copy are signature: another slot of the ring would be another operation.
     */
    if (from_memory == AG_MEMORY_PAGEABLE || !can_record(AG_COPY_ANY, to_memory, from_memory))
        return false;
    if (*to.type == CU_MEMORYTYPE_HOST)
        copy->dstHost = (void *)(uintptr_t)to_address;
    else
        copy->dstDevice = to_address;
    if (*from.type == CU_MEMORYTYPE_HOST)
        copy->srcHost = (const void *)(uintptr_t)from_address;
    else
        copy->srcDevice = from_address;
    return true;
}

bool ag_copies_box(struct ag_stream *stream, const CUDA_MEMCPY3D *copy)
{
    struct ag_op *op = ag_replay_op(stream);
    CUDA_MEMCPY3D resolved;

    if (!op || !copy)
        return ag_replay_pass(stream, AG_FLUSH_COPY);
    resolved = *copy;
    if (!resolve_copy(&resolved) || !ag_op_copy_3d(op, &resolved))
        return ag_replay_pass(stream, AG_FLUSH_COPY);
    return ag_replay_take(stream);
}

bool ag_copies_rectangle(struct ag_stream *stream, const CUDA_MEMCPY2D *copy)
{
    CUDA_MEMCPY3D box;

    if (!copy)
        return ag_replay_pass(stream, AG_FLUSH_COPY);
    box = (CUDA_MEMCPY3D){
        .srcXInBytes = copy->srcXInBytes,
        .srcY = copy->srcY,
        .srcMemoryType = copy->srcMemoryType,
        .srcHost = copy->srcHost,
        .srcDevice = copy->srcDevice,
        .srcArray = copy->srcArray,
        .srcPitch = copy->srcPitch,
        .dstXInBytes = copy->dstXInBytes,
        .dstY = copy->dstY,
        .dstMemoryType = copy->dstMemoryType,
        .dstHost = copy->dstHost,
        .dstDevice = copy->dstDevice,
        .dstArray = copy->dstArray,
        .dstPitch = copy->dstPitch,
        .WidthInBytes = copy->WidthInBytes,
        .Height = copy->Height,
        .Depth = 1,
    };
    return ag_copies_box(stream, &box);
}

/* --- fills --- */

/* The distance from the first byte to the end of the last; 0 for what the driver may refuse. */
static uint64_t filled(const struct ag_fill *fill)
{
    const uint64_t most = INT32_MAX;

    if (!fill->columns || fill->to % fill->width)
        return 0;
    if (fill->is_line)
        return fill->columns <= UINT64_MAX / fill->width ? fill->columns * fill->width : 0;
    if (!fill->rows || fill->pitch > most || fill->columns > most || fill->rows > most ||
        fill->pitch % fill->width || fill->pitch < fill->columns * fill->width)
        return 0;
    return (fill->rows - 1) * fill->pitch + fill->columns * fill->width;
}

bool ag_copies_fill(struct ag_stream *stream, const struct ag_fill *fill)
{
    struct ag_op *op = ag_replay_op(stream);
    uint64_t bytes = filled(fill);
    bool waits =
        fill->is_blocking && atomic_load_explicit(&some_are_synchronous, memory_order_acquire);

    if (!op || waits || !bytes || ag_memory_kind(fill->to, bytes) != AG_MEMORY_DEVICE)
        return ag_replay_pass(stream, AG_FLUSH_COPY);
    if (fill->is_line ? !ag_op_fill(op, fill->to, fill->width, fill->value, fill->columns)
                      : !ag_op_fill_2d(op, fill->to, fill->pitch, fill->width, fill->value,
                                       fill->columns, fill->rows))
        return ag_replay_pass(stream, AG_FLUSH_UNRECORDED);
    return ag_replay_take(stream);
}
