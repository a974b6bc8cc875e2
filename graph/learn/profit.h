/* Is an iteration faster replayed or eager? Pure: the caller has the clock.
 *
 * - What was seen before anything was replayed is the first evidence: an eager iteration takes the
 *   host at least what its operations took it when they passed. Where each of three replayed
 *   iterations in a row is 1.3 times as fast as that, replay is plainly faster, and no iteration
 *   runs eager to find out.
 * - Otherwise some run eager and some replayed, in turns, and the faster way is kept. The ways are
 *   compared by their faster iterations, the fourth of nine, since what disturbs iterations makes
 *   them longer. Replay is slower when that is more than 1.01 times the eager one, and more than
 *   the eager median. It ends early when each of three replayed ones was 1.3 times as fast as each
 *   eager one.
 * - Replay is given up only after a whole comparison, and after a second one unless each replayed
 *   iteration was 1.3 times as slow as each eager one: iterations of a Python program differ by
 *   more than what replay gains (one comparison took 1.13 for 0.91, which then held for 64
 *   iterations).
 * - An answer is checked again after 64 iterations, and after twice as many each time it stays; and
 *   as soon as eight replayed iterations in a row are slower than a plain answer said.
 * - Running the slower way on purpose never takes more than a hundredth of all the time: what is
 *   not affordable waits. Where it turns out to be the faster way, it costs nothing. */
#ifndef AG_GRAPH_PROFIT_H
#define AG_GRAPH_PROFIT_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/tuning.h"

/* Zeroed, it knows nothing, and replays. */
struct ag_profit {
    /* ns, of the running comparison; `replayed` without one: the last ones, a ring */
    uint64_t eager[AG_PROFIT_SAMPLES], replayed[AG_PROFIT_SAMPLES];
    uint32_t n_eager, n_replayed;
    uint64_t total, spent; /* ns: of all iterations; of it, for going the way that is not kept */
    uint64_t usual;        /* ns: an iteration of the way that is kept, before a comparison */
    uint64_t iterations, next_check; /* next_check: when `iterations` is this */
    uint32_t interval;               /* iterations until the next check; 0: there is no answer */
    uint32_t changes;                /* times the answer changed */
    bool comparing, prefers_eager;
    bool is_plain;   /* the answer: replay is at least 1.3 times as fast */
    bool is_doubted; /* a comparison said that replay is slower, and another one is on */
    uint64_t median_eager,
        median_replayed; /* of the last answer; 0 before. Where no eager iteration
                                               was needed: the least that one would take */
    bool wants_replayed; /* while comparing: how the next iteration should run */
    uint32_t in_phase;   /* iterations of that way so far in this phase */
    uint32_t n_missed;   /* iterations of a comparison that could not be compared */
};

/* Should the next iteration be replayed? */
bool ag_profit_replays(const struct ag_profit *profit);
/* An iteration of `ns` ended, replayed or eager (0: it cannot be compared). least_eager: ns that it
 * would have taken at least, eager; 0 when that is not known. True: there is an answer by it, the
 * first or another one. */
bool ag_profit_note(struct ag_profit *profit, bool replayed, uint64_t ns, uint64_t least_eager);

#endif
