/* Where does a segment end when nothing flushes it? Pure: knows no CUDA, no clock of its own.
 *
 * Ends must fall on the same operations every time round, whatever the round began with, or every
 * phase of a loop would need graphs of its own. So:
 * - An *anchor* is an operation at which an iteration is taken to begin: a mark says so, or,
 * without marks, the operation's hash (with those just before it) is no greater than any seen
 * within the window, which doubles while anchors do not repeat (a loop shorter than the window has
 * its smallest hash once a round; periods up to AG_HISTORY_WINDOW operations are found).
 * - From an anchor or a flush on, segments have growing lengths: first, then 4 x, up to the cap.
 * - Anchors closer than the shortest segment to the last end are passed over: so loops of one to a
 * few operations are unrolled.
 * - The cap follows the pace: when operations come slowly, segments are shorter, in powers of two
 * with hysteresis, so that nothing is held back for long. */
#ifndef AG_GRAPH_HISTORY_H
#define AG_GRAPH_HISTORY_H

#include <stdbool.h>
#include <stdint.h>

#define AG_HISTORY_WINDOW 65536u

struct ag_history_limits {
    uint32_t shortest; /* operations; segments are at least so long unless flushed */
    uint32_t first;    /* length of the first segment after an anchor or a flush */
    uint32_t cap; /* longest; UINT32_MAX for one segment an iteration (then `first` counts not) */
    uint64_t hold_ns; /* a segment should come together within that */
    bool marked;      /* anchors only where a mark says so */
    bool flush_only;  /* no anchors at all: iterations are what lies between flushes */
};

struct ag_history;

struct ag_history *ag_history_new(const struct ag_history_limits *limits); /* NULL without memory */
void ag_history_free(struct ag_history *history);

/* The next operation comes. True: a segment ends before it (and the caller calls ag_history_ended).
 * now_ns may be 0 when not known (then the pace is unchanged). */
bool ag_history_ends_before(struct ag_history *history, uint64_t hash, bool mark, uint64_t now_ns);
/* A segment of `length` operations ended: flushed, or as ends_before said. */
void ag_history_ended(struct ag_history *history, bool flushed);
/* Operations since the last end. */
uint32_t ag_history_length(const struct ag_history *history);
/* For the report: iterations seen (anchors), and the last one's length. */
void ag_history_iterations(const struct ag_history *history, uint64_t *ret_count,
                           uint32_t *ret_period);

#endif
