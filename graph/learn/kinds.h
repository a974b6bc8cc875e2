/* Iterations of several kinds on one stream (a training step, a validation step, one that prints
 * the loss): each kind has its own comparison of replay with eager, since what is faster for one is
 * slower for another. Pure: the caller has the clock.
 *
 * The kind of an iteration is the hash of its operations, known when it has ended; but how to run
 * it must be known before. So the next iteration is predicted: it is taken to be of the kind that
 * mostly follows the last one. */
#ifndef AG_GRAPH_KINDS_H
#define AG_GRAPH_KINDS_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/learn/profit.h"

struct ag_kind {
    uint64_t path;     /* a hash of its operations; 0: the place is free */
    uint32_t credit;   /* iterations, less those of kinds that found no place */
    uint32_t next;     /* place of the kind that mostly comes behind it; AG_KINDS: not known */
    uint32_t sure;     /* times that it came, less those that another did */
    uint32_t building; /* iterations in which graphs were built, which did not count */
    uint64_t ns;       /* that its iterations took in all */
    struct ag_profit profit;
};

/* Zeroed, it knows nothing, and replays. */
struct ag_kinds {
    struct ag_kind kind[AG_KINDS];
    uint32_t last, expected; /* place + 1; 0: none */
};

/* An iteration that ended. */
struct ag_iteration_sample {
    uint64_t path;
    uint64_t ns;          /* 0: not known */
    uint64_t least_eager; /* ns that it takes at least without graphs; 0: not known */
    bool replayed;        /* some of it went out as graphs */
    bool was_to_replay;   /* it would have been, had anything been known */
    bool built;           /* graphs were built in it */
};

/* Should the next iteration be replayed? */
bool ag_kinds_replay(const struct ag_kinds *kinds);
/* An iteration ended. Returns the comparison that was finished by it, if it is of the kind that
 * took the most time so far; else NULL. */
const struct ag_profit *ag_kinds_note(struct ag_kinds *kinds,
                                      const struct ag_iteration_sample *sample);
/* Was replay compared with eager for this kind? */
bool ag_kinds_compared(const struct ag_kinds *kinds, uint64_t path);

#endif
