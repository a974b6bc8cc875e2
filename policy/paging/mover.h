/* Moving pieces between the device and the host, while no work is on the device and none comes.
 *
 * What a piece is mapped to is copied to other memory by addresses that the program does not know,
 * and the piece is mapped to that memory meanwhile, since nothing uses it. What it was mapped to
 * keeps its bytes until the copy has ended, so whatever the driver refuses, nothing is lost. */
#ifndef AG_PAGING_MOVER_H
#define AG_PAGING_MOVER_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/paging/ranges.h"

struct ag_context;

/* No piece moves, and no range goes, but for what the caller does, until ag_move_end(). False where
 * that is not to be had: the latch cannot be closed in that time, the device is not idle and does
 * not go on for `timeout_ns` (progress.h), or a capture is open. Inside the capture guard. */
bool ag_move_begin(struct ag_context *context, uint64_t timeout_ns);
void ag_move_end(void);

/* A piece, and the memory that it is to be mapped to. */
struct ag_move {
    struct ag_movable *range;
    struct ag_piece *piece;
    struct ag_handle *to;      /* its own no more afterwards: kept, or the piece's */
    bool is_copied, is_mapped; /* of mover.c; false before */
};

/* Moves them, both ways at once: how many of them did, whose `to` is NULL then. The memory of the
 * others is still the caller's. Between begin and end, with the context current. */
unsigned ag_move_pieces(struct ag_context *context, struct ag_move *moves, unsigned n);

#endif
