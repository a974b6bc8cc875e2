/* Copies and fills: what kind of memory they name, and whether they can be recorded.
 *
 * Recorded is only what the driver would certainly accept, and what means the same when it is
 * submitted later: device memory of the current context within one live allocation; pinned host
 * memory, which the device reads and writes when the copy runs; and pageable memory as a source,
 * whose bytes are read during the call (staging.h). Everything else goes to the driver at once. */
#ifndef AG_GRAPH_COPIES_H
#define AG_GRAPH_COPIES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "interpose/driver/abi.h"

struct ag_stream;

enum ag_memory {
    AG_MEMORY_UNKNOWN, /* managed, of another device, mixed, not allocated */
    AG_MEMORY_DEVICE,  /* of the current context, inside one allocation */
    AG_MEMORY_PINNED,
    AG_MEMORY_PAGEABLE,
};

/* What is remembered of memory is valid until this changes, and so are the nodes that name it. */
extern _Atomic uint64_t ag_copies_epoch;

/* Memory is about to go, or to be other memory; what was withheld and names it was submitted. */
static inline void ag_copies_forget(void)
{
    atomic_fetch_add_explicit(&ag_copies_epoch, 1, memory_order_release);
}

/* The program asked for memory whose operations are all synchronous (SYNC_MEMOPS): from now on
 * copies and fills without a stream are not recorded. */
void ag_copies_note_synchronous(void);

/* What [address, address + bytes) is; bytes > 0. May ask the driver. */
enum ag_memory ag_copies_memory(uint64_t address, uint64_t bytes);

/* What a call says of the two sides of a copy. */
enum ag_copy_way {
    AG_COPY_TO_DEVICE,
    AG_COPY_TO_HOST,
    AG_COPY_WITHIN,   /* the device */
    AG_COPY_ANY,      /* the addresses tell */
    AG_COPY_BLOCKING, /* like WITHIN, by a call without a stream */
};

/* Each records one operation on `stream`, or flushes what must come before it, and disowns the
 * stream. True: withheld, the hook makes no call. */
bool ag_copies_line(struct ag_stream *stream, enum ag_copy_way way, uint64_t to, uint64_t from,
                    uint64_t bytes);
bool ag_copies_rectangle(struct ag_stream *stream, const CUDA_MEMCPY2D *copy);
bool ag_copies_box(struct ag_stream *stream, const CUDA_MEMCPY3D *copy);

/* A memset; rows of `columns` elements of `width` bytes. */
struct ag_fill {
    uint64_t to, pitch, columns, rows;
    unsigned width;
    uint32_t value;
    bool is_line, is_blocking; /* is_blocking: by a call without a stream */
};
bool ag_copies_fill(struct ag_stream *stream, const struct ag_fill *fill);

#endif
