/* Rounds of several kinds on one stream (training, validation, a look at the loss), each with a
 * comparison of its own: what is faster with graphs for one is slower for another. Pure: the caller
 * has the clock.
 *
 * Which kind a round is of is known when it has ended; how it is to be run must be known before. So
 * the next round is taken to be of the kind that mostly comes behind this one. */
#ifndef AG_GRAPH_KINDS_H
#define AG_GRAPH_KINDS_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/learn/profit.h"

#define AG_KINDS 6u

struct ag_kind {
    uint64_t path;     /* a hash of its operations; 0: the place is free */
    uint32_t credit;   /* rounds, less those of kinds that found no place */
    uint32_t next;     /* place of the kind that mostly comes behind it; AG_KINDS: not known */
    uint32_t sure;     /* times that it came, less those that another did */
    uint32_t building; /* rounds in which graphs were built, which did not count */
    uint64_t ns;       /* that its rounds took in all */
    struct ag_profit profit;
};

/* Zeroed, it knows nothing, and replays. */
struct ag_kinds {
    struct ag_kind kind[AG_KINDS];
    uint32_t last, expected; /* place + 1; 0: none */
};

struct ag_iteration_sample {
    uint64_t path;
    uint64_t ns;        /* 0: not known */
    bool replayed;      /* some of it went out as graphs */
    bool was_to_replay; /* it would have been, had anything been known */
    bool built;         /* graphs were built in it */
};

/* May the next round be replayed? */
bool ag_kinds_replay(const struct ag_kinds *kinds);
/* A round ended. Returns the comparison that was finished by it, if it is of the kind of rounds
 * that took the most time so far; else NULL. */
const struct ag_profit *ag_kinds_note(struct ag_kinds *kinds,
                                      const struct ag_iteration_sample *round);
/* Have the ways been compared for this kind? */
bool ag_kinds_compared(const struct ag_kinds *kinds, uint64_t path);

#endif
