/* Copies and fills: which of them can be recorded, and recording them.
 *
 * Recorded is only what the driver would certainly accept, and what means the same when it is
 * submitted later: device memory of the current context within one live allocation; pinned host
 * memory, which the device reads and writes when the copy runs; and pageable memory as a source,
 * whose bytes are read during the call (staging.h). Everything else goes to the driver at once. */
#ifndef AG_GRAPH_COPIES_H
#define AG_GRAPH_COPIES_H

#include <stdbool.h>
#include <stdint.h>

#include "interpose/core/driver/abi.h"

struct ag_stream;

/* The program asked for memory whose operations are all synchronous (SYNC_MEMOPS): from now on
 * copies and fills without a stream are not recorded. */
void ag_copies_note_synchronous(void);

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
