/* Compares rounds of the two ways: see profit.h.
 *
 * The ways take turns, so that what changes meanwhile (clocks, other programs) changes for both.
 * The first round of a turn is not counted: what the rounds before left behind on the device is
 * waited for in it. A comparison that does not come together, because rounds are not of the way
 * that was wanted, is given up with the answer as it was. */
#include "graph/learn/profit.h"

#include <stddef.h>
#include <string.h>

#define FIRST_ROUNDS   8u /* replayed, before the first comparison */
#define TURN           4u /* rounds of one way, the first of which does not count */
#define CLEAR_ROUNDS   3u /* of each way, when an answer is clear */
#define BEFORE_ROUNDS  2u
#define FIRST_INTERVAL 64u
#define LAST_INTERVAL  65536u
#define MOST_ROUNDS    (16u * AG_PROFIT_SAMPLES) /* of one comparison */

bool ag_profit_replays(const struct ag_profit *profit)
{
    return profit->comparing ? profit->wants_replayed : !profit->prefers_eager;
}

void ag_profit_before(struct ag_profit *profit, uint64_t ns)
{
    if (profit->comparing || profit->interval || profit->rounds || !ns)
        return;
    if (!profit->n_before || ns < profit->before)
        profit->before = ns;
    profit->n_before++;
}

/* The one that `rank` of the `n` are smaller than. */
static uint64_t ranked(const uint64_t *samples, uint32_t n, uint32_t rank)
{
    uint64_t sorted[AG_PROFIT_SAMPLES] = {0};

    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = i;

        for (; at && sorted[at - 1] > samples[i]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = samples[i];
    }
    return sorted[rank];
}

static uint64_t median(const uint64_t *samples, uint32_t n)
{
    return ranked(samples, n, n / 2);
}

static bool is_clearly_less(uint64_t ns, uint64_t than)
{
    return ns + ns / 4 < than;
}

/* Each of them, than each of the others. */
static bool are_clearly_less(const uint64_t *samples, uint32_t n, const uint64_t *than, uint32_t m)
{
    return is_clearly_less(ranked(samples, n, n - 1), ranked(than, m, 0));
}

/* Is there no doubt any more that replay is faster? */
static bool is_clear(const struct ag_profit *profit)
{
    uint32_t n = profit->n_eager, m = profit->n_replayed;

    return n >= CLEAR_ROUNDS && m >= CLEAR_ROUNDS &&
           are_clearly_less(profit->replayed, m, profit->eager, n);
}

/* By more than what rounds of one way differ from each other. */
static bool is_slower(const struct ag_profit *profit)
{
    uint64_t eager = ranked(profit->eager, profit->n_eager, profit->n_eager / 3),
             replayed = ranked(profit->replayed, profit->n_replayed, profit->n_replayed / 3);

    return replayed > eager + eager / 100 && replayed > profit->median_eager;
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

    profit->comparing = profit->is_doubted = false;
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

/* A comparison says that replay is slower: is that to be seen once more? */
static bool is_doubtful(const struct ag_profit *profit)
{
    return !profit->prefers_eager && !profit->is_doubted &&
           !are_clearly_less(profit->eager, profit->n_eager, profit->replayed, profit->n_replayed);
}

static bool is_complete(const struct ag_profit *profit)
{
    return profit->n_eager == AG_PROFIT_SAMPLES && profit->n_replayed == AG_PROFIT_SAMPLES;
}

/* The last of the rounds before the first comparison, all replayed. True: it is not needed. */
static bool first_round(struct ag_profit *profit, uint64_t ns)
{
    uint32_t left = FIRST_ROUNDS - (uint32_t)profit->rounds;

    if (left >= CLEAR_ROUNDS || !ns)
        return false;
    profit->replayed[profit->n_replayed++] = ns;
    if (left || profit->n_before < BEFORE_ROUNDS ||
        !is_clearly_less(ranked(profit->replayed, CLEAR_ROUNDS, CLEAR_ROUNDS - 1), profit->before))
        return false;
    profit->median_eager = profit->before;
    profit->median_replayed = median(profit->replayed, profit->n_replayed);
    finish(profit, false);
    return true;
}

bool ag_profit_note(struct ag_profit *profit, bool replayed, uint64_t ns)
{
    bool is_first = !profit->interval, slower;

    if (!profit->comparing) {
        profit->rounds += !is_first || (replayed && ns);
        if (is_first && replayed && first_round(profit, ns))
            return true;
        if (profit->rounds >= (is_first ? FIRST_ROUNDS : profit->next_check))
            begin(profit);
        return false;
    }
    profit->rounds++;
    if (ns && replayed == profit->wants_replayed)
        take(profit, replayed, ns);
    if (is_complete(profit) || is_clear(profit)) {
        profit->median_eager = median(profit->eager, profit->n_eager);
        profit->median_replayed = median(profit->replayed, profit->n_replayed);
        slower = is_slower(profit);
        if (slower && is_doubtful(profit)) {
            profit->is_doubted = true;
            begin(profit);
            return false;
        }
        finish(profit, slower);
        return true;
    }
    if (profit->rounds >= profit->next_check)
        finish(profit, profit->prefers_eager);
    return false;
}
