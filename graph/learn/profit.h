/* Is an iteration faster replayed or eager? Pure: the caller has the clock.
 *
 * - After the first iterations were replayed, some run eager and some replayed, in turns, and the
 *   faster way is kept. The comparison is repeated after 64 iterations, and after twice as many
 *   each time the answer is the same, up to 65536.
 * - What disturbs iterations makes them longer. So the ways are compared by their faster
 *   iterations, the fourth of nine. Replay is slower when that is more than 1.01 times the eager
 *   one, and more than the eager median.
 * - Eager iterations cost what replay would have gained. So a comparison ends early when each of
 *   some replayed iterations was a quarter faster than each eager one. The first comparison is
 *   spared where the iterations before anything was replayed were that much slower already.
 * - Replay is given up only after a whole comparison, in turns that lie apart, and after a second
 *   one unless each replayed iteration was a quarter slower than each eager one: iterations of a
 *   Python program differ by more than what replay gains (one comparison took 1.13 for 0.91, which
 *   then held for 64 iterations). */
#ifndef AG_GRAPH_PROFIT_H
#define AG_GRAPH_PROFIT_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/tuning.h"

/* Zeroed, it knows nothing, and replays. */
struct ag_profit {
    /* ns, of the running comparison */
    uint64_t eager[AG_PROFIT_SAMPLES], replayed[AG_PROFIT_SAMPLES];
    uint32_t n_eager, n_replayed;
    uint64_t before; /* ns: the fastest iteration before anything was replayed */
    uint32_t n_before;
    uint64_t iterations, next_check; /* next_check: when `iterations` is this */
    uint32_t interval;               /* iterations until the next check */
    uint32_t changes;                /* times the answer changed */
    bool comparing, prefers_eager;
    bool is_doubted; /* a comparison said that replay is slower, and another one is on */
    uint64_t median_eager, median_replayed; /* of the last finished comparison; 0 before. Where the
                                               first was spared: the fastest eager iteration */
    bool wants_replayed;                    /* while comparing: how the next iteration should run */
    uint32_t in_phase;                      /* iterations of that way so far in this phase */
};

/* An iteration of `ns` ended that could have been replayed, but nothing was known yet. */
void ag_profit_before(struct ag_profit *profit, uint64_t ns);
/* Should the next iteration be replayed? */
bool ag_profit_replays(const struct ag_profit *profit);
/* An iteration of `ns` ended, replayed or eager (0: it cannot be compared). True: a comparison was
 * finished by it. */
bool ag_profit_note(struct ag_profit *profit, bool replayed, uint64_t ns);

#endif
