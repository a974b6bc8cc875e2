/* Compares replayed and eager iterations: see profit.h.
 *
 * The ways take turns, so that what changes meanwhile (clocks, other programs) changes for both.
 * The first iteration of a turn is not counted: in it, work is waited for that the turn before left
 * on the device. A comparison that does not complete, because iterations did not go the way that
 * was asked for, is given up, and the answer stays. */
#include "graph/learn/profit.h"

#include <stddef.h>

bool ag_profit_replays(const struct ag_profit *profit)
{
    return profit->comparing ? profit->wants_replayed : !profit->prefers_eager;
}

void ag_profit_before(struct ag_profit *profit, uint64_t ns)
{
    if (profit->comparing || profit->interval || profit->iterations || !ns)
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

static bool is_clearly_less(uint64_t ns, uint64_t than)
{
    return ns + ns / AG_PROFIT_CLEAR_SHARE < than;
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

    return n >= AG_PROFIT_CLEAR && m >= AG_PROFIT_CLEAR &&
           are_clearly_less(profit->replayed, m, profit->eager, n);
}

/* By more than what iterations of one way differ from each other. */
static bool is_slower(const struct ag_profit *profit)
{
    uint64_t eager = ranked(profit->eager, profit->n_eager, profit->n_eager / 3),
             replayed = ranked(profit->replayed, profit->n_replayed, profit->n_replayed / 3);

    return replayed > eager + eager / AG_PROFIT_SLOWER_SHARE && replayed > profit->median_eager;
}

static void begin(struct ag_profit *profit)
{
    profit->comparing = true;
    profit->n_eager = profit->n_replayed = 0;
    profit->wants_replayed = profit->prefers_eager; /* the other way first */
    profit->in_phase = 0;
    profit->next_check = profit->iterations + AG_PROFIT_GIVE_UP;
}

static void finish(struct ag_profit *profit, bool prefers_eager)
{
    bool is_first = !profit->interval, same = prefers_eager == profit->prefers_eager;

    profit->comparing = profit->is_doubted = false;
    if (is_first || !same)
        profit->interval = AG_PROFIT_FIRST_INTERVAL;
    else if (profit->interval < AG_PROFIT_LAST_INTERVAL)
        profit->interval *= 2;
    profit->changes += !same;
    profit->prefers_eager = prefers_eager;
    profit->next_check = profit->iterations + profit->interval;
}

static void take(struct ag_profit *profit, bool replayed, uint64_t ns)
{
    uint64_t *samples = replayed ? profit->replayed : profit->eager;
    uint32_t *n = replayed ? &profit->n_replayed : &profit->n_eager;

    if (profit->in_phase++ && *n < AG_PROFIT_SAMPLES)
        samples[(*n)++] = ns;
    if (profit->in_phase == AG_PROFIT_PHASE) {
        profit->wants_replayed = !profit->wants_replayed;
        profit->in_phase = 0;
    }
}

/* A comparison says that replay is slower: must another one confirm it? */
static bool is_doubtful(const struct ag_profit *profit)
{
    return !profit->prefers_eager && !profit->is_doubted &&
           !are_clearly_less(profit->eager, profit->n_eager, profit->replayed, profit->n_replayed);
}

static bool is_complete(const struct ag_profit *profit)
{
    return profit->n_eager == AG_PROFIT_SAMPLES && profit->n_replayed == AG_PROFIT_SAMPLES;
}

/* One of the replayed iterations before the first comparison. True: that comparison is not needed.
 */
static bool spare_first(struct ag_profit *profit, uint64_t ns)
{
    uint32_t left = AG_PROFIT_FIRST - (uint32_t)profit->iterations;

    if (left >= AG_PROFIT_CLEAR || !ns)
        return false;
    profit->replayed[profit->n_replayed++] = ns;
    if (left || profit->n_before < AG_PROFIT_BEFORE ||
        !is_clearly_less(ranked(profit->replayed, AG_PROFIT_CLEAR, AG_PROFIT_CLEAR - 1),
                         profit->before))
        return false;
    profit->median_eager = profit->before;
    profit->median_replayed = ranked(profit->replayed, profit->n_replayed, profit->n_replayed / 2);
    finish(profit, false);
    return true;
}

bool ag_profit_note(struct ag_profit *profit, bool replayed, uint64_t ns)
{
    bool is_first = !profit->interval, slower;

    if (!profit->comparing) {
        profit->iterations += !is_first || (replayed && ns);
        if (is_first && replayed && spare_first(profit, ns))
            return true;
        if (profit->iterations >= (is_first ? AG_PROFIT_FIRST : profit->next_check))
            begin(profit);
        return false;
    }
    profit->iterations++;
    if (ns && replayed == profit->wants_replayed)
        take(profit, replayed, ns);
    if (is_complete(profit) || is_clear(profit)) {
        profit->median_eager = ranked(profit->eager, profit->n_eager, profit->n_eager / 2);
        profit->median_replayed =
            ranked(profit->replayed, profit->n_replayed, profit->n_replayed / 2);
        slower = is_slower(profit);
        if (slower && is_doubtful(profit)) {
            profit->is_doubted = true;
            begin(profit);
            return false;
        }
        finish(profit, slower);
        return true;
    }
    if (profit->iterations >= profit->next_check)
        finish(profit, profit->prefers_eager);
    return false;
}
