/* Where does a segment end when nothing flushes it? Pure: knows no CUDA, has no clock of its own.
 *
 * Ends should fall on the same operations in every iteration, wherever an iteration is entered;
 * else each iteration would be cut differently, and each cut would need graphs of its own.
 * - An *anchor* is an operation at which an iteration is taken to begin: a mark says so, or,
 *   without marks, the rolling hash there is the smallest in the last iterations (history.c).
 *   Periods of up to AG_HISTORY_WINDOW operations are found, short ones within three iterations.
 * - Where flushes come often and at the same place, iterations lie between flushes, and only marks
 *   are anchors.
 * - A loop that is shorter than the cap is unrolled: a segment ends at the last anchor that fits.
 *   In a longer loop segments have the length of the cap, but for the last of an iteration. An
 *   anchor at an unusual distance, or a missing one, ends the segment in any case: then what
 *   follows an irregularity does not depend on where it fell.
 * - After a flush lengths grow: 4 operations, 16, 48 and so on up to the cap, so that the device
 *   starts early and always has work while the next segment is recorded. Where nodes must be
 *   updated again and again (an operation then costs the host nearly as much as the device: 0.6 and
 *   0.8 us) lengths double, and each comes twice. No segment ends so shortly before a flush, which
 *   is expected at the distance of the last two, that only a handful of operations would be left.
 * - The cap follows the pace: when operations come slowly, segments are shorter, by powers of two
 *   with hysteresis, down to 8, so that nothing is withheld for long. The first segment after a
 *   flush shrinks likewise. */
#ifndef AG_GRAPH_HISTORY_H
#define AG_GRAPH_HISTORY_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/tuning.h"

/* Lengths are operations. */
struct ag_history_limits {
    uint32_t shortest; /* of a segment, unless a flush or an irregularity ends it */
    uint32_t first;    /* of the first segment after a flush */
    uint32_t cap;      /* longest; fewer than `shortest` left of an iteration are added to it */
    uint64_t hold_ns;  /* a segment should come together within that; 0: the pace is not measured */
    bool marked;       /* anchors only where a mark says so */
    bool flush_only;   /* no anchors at all: iterations lie between flushes */
};

struct ag_history;

struct ag_history *ag_history_new(const struct ag_history_limits *limits); /* NULL without memory */
void ag_history_free(struct ag_history *history);
/* Allocates the next one ahead of time; a few at most. */
void ag_history_prepare(void);

/* The hash of the last AG_ROLLING_OPS operations: of the one before and the new operation's hash.
 * Older operations are shifted out. */
static inline uint64_t ag_rolling_hash(uint64_t before, uint64_t hash)
{
    return (before << 64 / AG_ROLLING_OPS) + hash;
}

/* Takes in the next operation. True: a segment ends before it; the caller then calls
 * ag_history_ended(false), after which the new segment has this one operation. now_ns: 0 when it is
 * not known (the pace stays). */
bool ag_history_advance(struct ag_history *history, uint64_t hash, bool mark, uint64_t now_ns);
/* A segment ended: flushed (the next one is empty), or as ag_history_advance() said. */
void ag_history_ended(struct ag_history *history, bool flushed);
/* Operations were not seen: a back-off ended. */
void ag_history_resumed(struct ag_history *history);
/* Did nodes of the segment that was launched last have to be updated? */
void ag_history_updating(struct ag_history *history, bool updating);
/* Operations since the last end. */
uint32_t ag_history_length(const struct ag_history *history);
/* The length that the segment should have; anchors and flushes may end it earlier or later. */
uint32_t ag_history_target(const struct ag_history *history);
/* Anchors seen. */
uint64_t ag_history_anchors(const struct ag_history *history);

#endif
