/* Where does a segment end when nothing flushes it? Pure: knows no CUDA, no clock of its own.
 *
 * Ends must fall on the same operations every time round, whatever the round began with, or every
 * phase of a loop would need graphs of its own. So:
 * - An *anchor* is an operation at which an iteration is taken to begin: a mark says so, or,
 * without marks, it and those just before it have the smallest hash for some time (history.c).
 * Periods up to AG_HISTORY_WINDOW operations are found, short ones after two or three rounds.
 * - Where flushes come often, and at the same place, they are what iterations lie between, and
 * there are no anchors but marks.
 * - From a flush on, segments have growing lengths: first, 4 times that, then 3 times the one
 * before, up to the cap; while nodes have to be updated twice the one before, and two of each
 * length: then an operation costs the host nearly as much as the device (0.6 and 0.8 us). Where the
 * host takes long for each, be it that it is slow or that the program does something between them,
 * the first has twice the length and the others twice that of the one before. Where
 * flushes come at the same distance, none ends so shortly before one that a handful would be left.
 * - A loop that is shorter than the cap is unrolled: segments end at the last anchor that fits. Of
 * a longer one, segments have the length of the cap, but for the last. An anchor that comes at
 * another distance than the one before, or does not come, ends a segment in any case: so what
 * follows an irregularity does not depend on where it fell.
 * - The cap follows the pace: when operations come slowly, segments are shorter, in powers of two
 * with hysteresis, so that nothing is held back for long; then also shorter than the shortest, but
 * not than 8. The first after a flush is shorter in the same measure, and where flushes come at the
 * same distance, the last one before it has 2 operations: what is withheld then, the host waits
 * for. */
#ifndef AG_GRAPH_HISTORY_H
#define AG_GRAPH_HISTORY_H

#include <stdbool.h>
#include <stdint.h>

#define AG_HISTORY_WINDOW 65536u

struct ag_history_limits {
    uint32_t shortest; /* operations; segments are at least so long, but where they are flushed, or
                          something irregular came */
    uint32_t first;    /* length of the first segment after a flush */
    uint32_t cap; /* longest; if fewer than `shortest` are left of an iteration, they go with it.
                     UINT32_MAX for one segment an iteration (then `first` counts not) */
    uint64_t hold_ns; /* a segment should come together within that; 0: the pace is not looked at */
    bool marked;      /* anchors only where a mark says so */
    bool flush_only;  /* no anchors at all: iterations are what lies between flushes */
};

struct ag_history;

struct ag_history *ag_history_new(const struct ag_history_limits *limits); /* NULL without memory */
void ag_history_free(struct ag_history *history);
/* Makes the memory of the next one; of a few at most. */
void ag_history_prepare(void);

/* The next operation comes. True: a segment ends before it, and the caller calls
 * ag_history_ended(false), after which the segment has this one operation.
 * now_ns may be 0 when not known (then the pace is unchanged). */
bool ag_history_advance(struct ag_history *history, uint64_t hash, bool mark, uint64_t now_ns);
/* A segment ended: flushed (the next one is empty), or as ends_before said. */
void ag_history_ended(struct ag_history *history, bool flushed);
/* Did nodes of the segment that was launched last have to be updated? */
void ag_history_updating(struct ag_history *history, bool updating);
/* Operations since the last end. */
uint32_t ag_history_length(const struct ag_history *history);
/* As many as the segment is to have; it may end sooner, and anchors and flushes may make it longer.
 */
uint32_t ag_history_target(const struct ag_history *history);
/* For the report: iterations seen (anchors), and the last one's length. */
void ag_history_iterations(const struct ag_history *history, uint64_t *ret_count,
                           uint32_t *ret_period);

#endif
