/* Copies and fills: see copies.h. */
#include "graph/copies.h"

#include <stddef.h>

#include "graph/record/box.h"
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

/* Could the native call of such an upload, or of a later one, wait for other work of the stream? It
 * does while two pieces of 1 MiB are under way there (R1052), and a program may read what that work
 * wrote once the call is back. The driver does not count what is withheld. So nothing but such
 * uploads may be before it on the stream. */
static bool upload_may_wait(struct ag_stream *stream, uint64_t bytes)
{
    struct ag_segment *segment = &stream->segment;

    if (bytes <= AG_MEMORY_COMMAND_BYTES)
        return false;
    if (segment->n_ops ? segment->n_uploads != segment->n_ops : !ag_segment_is_idle(stream))
        return true;
    segment->n_uploads++;
    return false;
}

bool ag_copies_line(struct ag_stream *stream, enum ag_copy_way way, uint64_t to, uint64_t from,
                    uint64_t bytes)
{
    struct ag_op *op = ag_replay_op(stream);
    enum ag_memory to_memory = bytes ? ag_memory_kind(to, bytes) : AG_MEMORY_UNKNOWN;
    enum ag_memory from_memory = to_memory ? ag_memory_kind(from, bytes) : AG_MEMORY_UNKNOWN;

    if (!op || !can_record(way, to_memory, from_memory) ||
        !ag_op_copy(op, to, ag_memory_type(to_memory), from, ag_memory_type(from_memory), bytes))
        return ag_replay_pass(stream, AG_FLUSH_COPY);
    if (from_memory == AG_MEMORY_PAGEABLE)
        op->signature.word[0] |= AG_OP_IS_STAGED;
    if (from_memory == AG_MEMORY_PAGEABLE && ag_replay_would_withhold(stream)) {
        struct ag_ring *ring = ag_segment_ring(stream);
        const void *from_host = (const void *)(uintptr_t)from, *slot;

        if (upload_may_wait(stream, bytes))
            return ag_replay_pass(stream, AG_FLUSH_COPY);
        slot = ring ? ag_ring_put(ring, &stream->segment.staged, from_host, bytes) : NULL;
        if (!slot)
            return ag_replay_pass(stream, AG_FLUSH_COPY);
        ((struct ag_copy_payload *)(void *)op->payload)->from = (uintptr_t)slot;
    }
    return ag_replay_take(stream);
}

/* Can such a copy be recorded? Addresses of a 3-D copy are signature: another slot of the ring
 * would be another operation. */
static bool resolve_copy(CUDA_MEMCPY3D *copy)
{
    enum ag_memory to, from;

    return ag_box_resolve(copy, ag_memory_kind, &to, &from) && from != AG_MEMORY_PAGEABLE &&
           can_record(AG_COPY_ANY, to, from);
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
    box = ag_box_of_rectangle(copy);
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
