/* Bytes of device memory that guards write and read: canaries, and the fill of blocks. All of it
 * is work on a private stream that the host waits for, so it is done when a call here returns; it
 * waits for no work of the program. Nothing is done, and CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
 * returned, while a capture is open. */
#ifndef AG_GUARD_DEVICE_BYTES_H
#define AG_GUARD_DEVICE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "interpose/core/driver/abi.h"

struct ag_context;

#define AG_FILL_CANARY 0xc5u /* each byte of a canary */
#define AG_FILL_FRESH  0xffu /* of a block that was allocated: no number in any format of floats */
#define AG_FILL_FREED  0xdbu /* of a block that was freed */

/* What lies around a block. */
#define AG_GUARD_EDGE      256u /* bytes of a canary, */
#define AG_GUARD_MOST_EDGE 512u /* or at most that many, after a block in pages of its own */
struct ag_guard_edges {
    unsigned before, behind;
};

/* What differs from what was written. */
struct ag_guard_wrong {
    uint64_t first; /* offset of the first wrong byte */
    uint64_t n;     /* how many are wrong */
};

/* Canaries before `address` and after its `bytes`, as many bytes as `edges` says. */
CUresult ag_guard_write_canaries(struct ag_context *context, CUdeviceptr address, size_t bytes,
                                 struct ag_guard_edges edges);
/* Offsets into the canaries. */
CUresult ag_guard_read_canaries(struct ag_context *context, CUdeviceptr address, size_t bytes,
                                struct ag_guard_edges edges, struct ag_guard_wrong *ret_before,
                                struct ag_guard_wrong *ret_behind);

/* The whole block. */
CUresult ag_guard_fill(struct ag_context *context, CUdeviceptr address, size_t bytes,
                       unsigned char value);
/* Compares a block with its fill; of a large one its first and its last bytes only:
 * *ret_all is false then. */
CUresult ag_guard_compare(struct ag_context *context, CUdeviceptr address, size_t bytes,
                          unsigned char value, struct ag_guard_wrong *ret_wrong, bool *ret_all);

#endif
