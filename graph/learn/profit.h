/* Is a replayed iteration faster than an eager one? Pure: the caller has the clock.
 *
 * A round is what lies between two ends of iterations on a stream. After the first rounds of a kind
 * have been replayed, a few run eagerly and a few replayed in turns, the faster way is kept (replay
 * may take 1.01 times as long as eager), and the question comes again after 64 rounds, twice as
 * many each time it is answered the same way, up to 65536. What disturbs rounds makes them longer:
 * so the ways are compared by their quicker rounds, the fourth of nine, and replay is slower when
 * that is more than eager rounds' median, too.
 *
 * Eager rounds cost what replay would have gained. So a comparison ends as soon as each of some
 * replayed rounds was a quarter faster than each eager one, and the first one is spared where the
 * rounds that went before anything was replayed were that much slower already. Nothing is decided
 * against replay but by a whole comparison, whose turns lie apart, and by a second one unless each
 * replayed round was a quarter slower than each eager one: rounds of a Python program differ by
 * more than what replay gains (one comparison took 1.13 for 0.91, which then held for 64 rounds).
 */
#ifndef AG_GRAPH_PROFIT_H
#define AG_GRAPH_PROFIT_H

#include <stdbool.h>
#include <stdint.h>

#define AG_PROFIT_SAMPLES 9u

/* Zeroed, it knows nothing, and replays. */
struct ag_profit {
    uint64_t eager[AG_PROFIT_SAMPLES],
        replayed[AG_PROFIT_SAMPLES]; /* ns, of the running comparison */
    uint32_t n_eager, n_replayed;
    uint64_t before; /* ns: the quickest round before anything was replayed */
    uint32_t n_before;
    uint64_t rounds, next_check; /* counted in rounds */
    uint32_t interval;           /* rounds until the next check */
    uint32_t changes;            /* times the answer changed */
    bool comparing, prefers_eager;
    bool is_doubted; /* a comparison said that replay is slower, and another one is on */
    uint64_t median_eager, median_replayed; /* of the last finished comparison; 0 before. Where the
                                               first was spared: the quickest eager round */
    bool wants_replayed;                    /* while comparing: what the next round is to be */
    uint32_t in_turn;                       /* rounds of that way so far in this turn */
};

/* A round of `ns` ended that could have been replayed, but nothing was known yet. */
void ag_profit_before(struct ag_profit *profit, uint64_t ns);
/* May the next round be replayed? */
bool ag_profit_replays(const struct ag_profit *profit);
/* A round of `ns` ended, that was replayed or not (partly: as not comparable, ns = 0). Returns true
 * when a comparison was finished by it. */
bool ag_profit_note(struct ag_profit *profit, bool replayed, uint64_t ns);

#endif
