/* One copy between pageable memory and a device, through pinned slots. */
#ifndef AG_COPIES_TRANSFER_H
#define AG_COPIES_TRANSFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "interpose/copies/slots.h"
#include "interpose/core/driver/abi.h"

/* What is copied: `depth` slices of `height` rows of `width` bytes. */
struct ag_copied {
    uint64_t device, host; /* addresses of the first byte */
    size_t width, height, depth;
    size_t device_pitch, device_slice, host_pitch, host_slice; /* from one to the next */
    bool to_host;
};

/* What the host's side spans, from the first byte to the last. */
static inline size_t ag_copied_host_bytes(const struct ag_copied *what)
{
    return (what->depth - 1) * what->host_slice + (what->height - 1) * what->host_pitch +
           what->width;
}

struct ag_transfer {
    struct ag_copied what;
    CUstream stream; /* as the driver is to get it */
    bool waits;      /* the call returns when the bytes have arrived */
    uint32_t threads, pieces;
    size_t piece_bytes;
    bool is_present;   /* the pages of the host's memory seem to be there */
    bool reuses_slots; /* there are more pieces than slots */
};

/* Chooses the size of pieces, of which there are to be at most `wanted` if none is smaller than
 * `least_piece` or too large, and counts them. False: they are too many to be counted. Changes
 * errno. */
bool ag_transfer_plan(struct ag_transfer *transfer, uint32_t wanted, size_t least_piece);
/* Copies. The caller has claimed the crew, no capture is open, the context of `slots` is current,
 * and its earlier uses are done. What the driver refused, or CUDA_SUCCESS; in any case no thread of
 * ours reads or writes the program's memory any more. */
CUresult ag_transfer_run(const struct ag_transfer *transfer, struct ag_slots *slots);

#endif
