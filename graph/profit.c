/* Compares rounds of the two ways by their medians: see profit.h.
 *
 * The ways take turns, so that what changes meanwhile (clocks, other programs) changes for both.
 * The first round of a turn is not counted: what the rounds before left behind on the device is
 * waited for in it. A comparison that does not come together, because rounds are not of the way
 * that was wanted, is given up with the answer as it was. */
#include "profit.h"

#include <stddef.h>
#include <string.h>

#define FIRST_ROUNDS   8u /* replayed, before the first comparison */
#define TURN           4u /* rounds of one way, the first of which does not count */
#define FIRST_INTERVAL 256u
#define LAST_INTERVAL  65536u
#define MOST_ROUNDS    (16u * AG_PROFIT_SAMPLES) /* of one comparison */

bool ag_profit_replays(const struct ag_profit *profit)
{
    return profit->comparing ? profit->wants_replayed : !profit->prefers_eager;
}

static uint64_t median(const uint64_t *samples)
{
    uint64_t sorted[AG_PROFIT_SAMPLES] = {0};

    for (uint32_t i = 0; i < AG_PROFIT_SAMPLES; i++) {
        uint32_t at = i;

        for (; at && sorted[at - 1] > samples[i]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = samples[i];
    }
    return sorted[AG_PROFIT_SAMPLES / 2];
}

static void begin(struct ag_profit *profit)
{
    profit->comparing = true;
    profit->n_eager = profit->n_replayed = 0;
    profit->wants_replayed = profit->prefers_eager; /* the other way first */
    profit->in_turn = 0;
    profit->next_check = profit->rounds + MOST_ROUNDS;
}

static void finish(struct ag_profit *profit, bool prefers_eager)
{
    bool is_first = !profit->interval, same = prefers_eager == profit->prefers_eager;

    profit->comparing = false;
    if (is_first || !same)
        profit->interval = FIRST_INTERVAL;
    else if (profit->interval < LAST_INTERVAL)
        profit->interval *= 2;
    profit->changes += !same;
    profit->prefers_eager = prefers_eager;
    profit->next_check = profit->rounds + profit->interval;
}

static void take(struct ag_profit *profit, bool replayed, uint64_t ns)
{
    uint64_t *samples = replayed ? profit->replayed : profit->eager;
    uint32_t *n = replayed ? &profit->n_replayed : &profit->n_eager;

    if (profit->in_turn++ && *n < AG_PROFIT_SAMPLES)
        samples[(*n)++] = ns;
    if (profit->in_turn == TURN) {
        profit->wants_replayed = !profit->wants_replayed;
        profit->in_turn = 0;
    }
}

bool ag_profit_note(struct ag_profit *profit, bool replayed, uint64_t ns)
{
    bool is_first = !profit->interval;

    if (!profit->comparing) {
        profit->rounds += !is_first || (replayed && ns);
        if (profit->rounds >= (is_first ? FIRST_ROUNDS : profit->next_check))
            begin(profit);
        return false;
    }
    profit->rounds++;
    if (ns && replayed == profit->wants_replayed)
        take(profit, replayed, ns);
    if (profit->n_eager == AG_PROFIT_SAMPLES && profit->n_replayed == AG_PROFIT_SAMPLES) {
        profit->median_eager = median(profit->eager);
        profit->median_replayed = median(profit->replayed);
        finish(profit, profit->median_replayed > profit->median_eager + profit->median_eager / 100);
        return true;
    }
    if (profit->rounds >= profit->next_check)
        finish(profit, profit->prefers_eager);
    return false;
}
