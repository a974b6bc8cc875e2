/* Copies and fills, and the memory that they name: see copies.h.
 *
 * For each thread's slot a few ranges of device and pinned memory are remembered, with the epoch in
 * force before the driver was asked. Whatever frees such memory changes the epoch first. Pageable
 * memory is not remembered: the driver knows no bounds of it, and nobody tells when it is freed.
 *
 * Not in thread-local storage, of which the loader has little for libraries that are loaded late.
 */
#include "graph/record/copies.h"

#include <stddef.h>

#include "graph/record/op.h"
#include "graph/record/staging.h"
#include "graph/replay/segment.h"
#include "graph/replayer.h"
#include "graph/stream.h"
#include "interpose/base/slot.h"
#include "interpose/driver/driver.h"
#include "policy/answers.h"
#include "policy/contexts/context.h"
#include "policy/ledger.h"

#define N_RANGES 16u

struct range {
    uint64_t epoch, first, last; /* epoch 0: nothing */
    const struct ag_context *context;
    enum ag_memory memory; /* DEVICE or PINNED */
};

_Atomic uint64_t ag_copies_epoch = 1;

static struct {
    _Alignas(64) atomic_flag busy; /* late threads share slots */
    unsigned next;
    struct range range[N_RANGES];
} known[AG_SLOTS];

static _Atomic bool some_are_synchronous;

void ag_copies_note_synchronous(void)
{
    atomic_store_explicit(&some_are_synchronous, true, memory_order_release);
}

/* --- what memory is --- */

/* The driver's answer about an address; zeros where it knows nothing. */
struct said {
    unsigned type, managed, access;
    int device;
    CUcontext context;
    CUmemoryPool pool;
    CUdeviceptr first, mapped;
    size_t bytes, mapped_bytes;
    void *host;
};

static bool ask(uint64_t address, struct said *said)
{
    static const CUpointer_attribute wanted[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,       CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_ACCESS_FLAGS,      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CU_POINTER_ATTRIBUTE_CONTEXT,           CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,  CU_POINTER_ATTRIBUTE_RANGE_SIZE,
        CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, CU_POINTER_ATTRIBUTE_MAPPING_SIZE,
        CU_POINTER_ATTRIBUTE_HOST_POINTER,
    };
    enum { N_WANTED = sizeof(wanted) / sizeof(wanted[0]) };
    CUpointer_attribute attributes[N_WANTED];
    void *data[N_WANTED] = {&said->type,    &said->managed,      &said->access, &said->device,
                            &said->context, &said->pool,         &said->first,  &said->bytes,
                            &said->mapped,  &said->mapped_bytes, &said->host};

    *said = (struct said){0};
    for (unsigned i = 0; i < N_WANTED; i++)
        attributes[i] = wanted[i];
    return ag_cu.cuPointerGetAttributes &&
           ag_cu.cuPointerGetAttributes(N_WANTED, attributes, data, address) == CUDA_SUCCESS;
}

static void narrow(struct range *range, uint64_t first, uint64_t bytes)
{
    if (first > range->first)
        range->first = first;
    if (first + bytes - 1 < range->last)
        range->last = first + bytes - 1;
}

/* Managed memory that we gave to the program in place of device memory. */
static bool is_redirected(const struct ag_context *context, uint64_t address, struct range *range)
{
    struct ag_block_seen block;

    if (!ag_answer_redirected(address, &block) || block.context->device != context->device)
        return false;
    narrow(range, block.address, block.requested);
    return true;
}

/* Memory of pools, and memory mapped by the program, belong to no context: access decides. Of the
 * latter the driver's range is all that was reserved, mapped or not. */
static bool is_device(const struct ag_context *context, const struct said *said,
                      struct range *range)
{
    if (said->type != CU_MEMORYTYPE_DEVICE || said->device != context->device->ordinal)
        return false;
    if (said->context)
        return said->context == context->handle;
    if (said->access != CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE)
        return false;
    if (!said->pool)
        narrow(range, said->mapped, said->mapped_bytes);
    return said->pool || said->mapped_bytes;
}

/* Fills range->memory and the bounds within which that holds. */
static void learn(struct range *range, uint64_t address, uint64_t bytes)
{
    const struct ag_context *context = range->context;
    struct said said, last;

    range->memory = AG_MEMORY_UNKNOWN;
    range->first = 0;
    range->last = UINT64_MAX;
    if (!ask(address, &said))
        return;
    if (!said.type && !said.bytes) {
        if (ask(address + bytes - 1, &last) && !last.type && !last.bytes)
            range->memory = AG_MEMORY_PAGEABLE;
        return;
    }
    if (!said.bytes)
        return;
    narrow(range, said.first, said.bytes);
    if (said.managed)
        range->memory =
            is_redirected(context, address, range) ? AG_MEMORY_DEVICE : AG_MEMORY_UNKNOWN;
    else if (said.type == CU_MEMORYTYPE_HOST)
        range->memory = said.host == (void *)(uintptr_t)address &&
                                said.access == CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE
                            ? AG_MEMORY_PINNED
                            : AG_MEMORY_UNKNOWN;
    else if (is_device(context, &said, range))
        range->memory = AG_MEMORY_DEVICE;
}

static bool holds(const struct range *range, uint64_t first, uint64_t last)
{
    return range->first <= first && last <= range->last;
}

/* UNKNOWN when it is in none of the ranges, or another thread is using the slot. */
static enum ag_memory recall(const struct range *wanted)
{
    unsigned slot = ag_slot();
    enum ag_memory memory = AG_MEMORY_UNKNOWN;

    if (atomic_flag_test_and_set_explicit(&known[slot].busy, memory_order_acquire))
        return memory;
    for (unsigned i = 0; i < N_RANGES && !memory; i++) {
        const struct range *range = &known[slot].range[i];

        if (range->epoch == wanted->epoch && range->context == wanted->context &&
            holds(range, wanted->first, wanted->last))
            memory = range->memory;
    }
    atomic_flag_clear_explicit(&known[slot].busy, memory_order_release);
    return memory;
}

static void remember(const struct range *range)
{
    unsigned slot = ag_slot();

    if (atomic_flag_test_and_set_explicit(&known[slot].busy, memory_order_acquire))
        return;
    known[slot].range[known[slot].next++ % N_RANGES] = *range;
    atomic_flag_clear_explicit(&known[slot].busy, memory_order_release);
}

enum ag_memory ag_copies_memory(uint64_t address, uint64_t bytes)
{
    uint64_t epoch = atomic_load_explicit(&ag_copies_epoch, memory_order_acquire);
    struct range range = {.epoch = epoch,
                          .first = address,
                          .last = address + bytes - 1,
                          .context = ag_context_current()};
    uint64_t last = range.last;
    enum ag_memory memory;

    if (!range.context || !address || last < address)
        return AG_MEMORY_UNKNOWN;
    memory = recall(&range);
    if (memory)
        return memory;
    learn(&range, address, bytes);
    if (!holds(&range, address, last))
        return AG_MEMORY_UNKNOWN;
    if (range.memory == AG_MEMORY_DEVICE || range.memory == AG_MEMORY_PINNED)
        remember(&range);
    return range.memory;
}

/* --- copies --- */

static CUmemorytype type_of(enum ag_memory memory)
{
    return memory == AG_MEMORY_DEVICE ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
}

/* Can such a copy be recorded? Not where the call would wait: the driver waits for copies to
 * pageable memory, and for those within the host. */
static bool fits(enum ag_copy_way way, enum ag_memory to, enum ag_memory from)
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
    enum ag_memory to_memory = bytes ? ag_copies_memory(to, bytes) : AG_MEMORY_UNKNOWN;
    enum ag_memory from_memory = to_memory ? ag_copies_memory(from, bytes) : AG_MEMORY_UNKNOWN;

    if (!op || !fits(way, to_memory, from_memory) ||
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

/* The distance from the first byte that the copy touches to behind the last; 0 where the driver
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
    memory = ag_copies_memory(*ret_address + offset, bytes);
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
    if (from_memory == AG_MEMORY_PAGEABLE || !fits(AG_COPY_ANY, to_memory, from_memory))
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

/* The distance from the first byte to behind the last; 0 for what the driver may refuse. */
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

    if (!op || waits || !bytes || ag_copies_memory(fill->to, bytes) != AG_MEMORY_DEVICE)
        return ag_replay_pass(stream, AG_FLUSH_COPY);
    if (fill->is_line ? !ag_op_fill(op, fill->to, fill->width, fill->value, fill->columns)
                      : !ag_op_fill_2d(op, fill->to, fill->pitch, fill->width, fill->value,
                                       fill->columns, fill->rows))
        return ag_replay_pass(stream, AG_FLUSH_UNRECORDED);
    return ag_replay_take(stream);
}
