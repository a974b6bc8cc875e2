/* Compares replayed and eager iterations: see profit.h.
 *
 * The ways take turns, so that what changes meanwhile (clocks, other programs) changes for both.
 * The first iteration of a turn is not counted: in it, work is waited for that the turn before left
 * on the device. A comparison that does not complete, because iterations did not go the way that
 * was asked for, is given up, and the answer stays. */
#include "graph/learn/profit.h"

#include <stddef.h>
#include <string.h>

bool ag_profit_replays(const struct ag_profit *profit)
{
    return profit->comparing ? profit->wants_replayed : !profit->prefers_eager;
}

/* The one that `rank` of the `n` are smaller than. */
static uint64_t sample_of_rank(const uint64_t *samples, uint32_t n, uint32_t rank)
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

static bool is_plainly_less(uint64_t ns, uint64_t than)
{
    return ns / 10 * AG_PROFIT_PLAIN_TENTHS < than;
}

/* Is each of `samples` plainly less than each of `than`? */
static bool are_plainly_less(const uint64_t *samples, uint32_t n, const uint64_t *than, uint32_t m)
{
    return is_plainly_less(sample_of_rank(samples, n, n - 1), sample_of_rank(than, m, 0));
}

/* Is there no doubt any more that replay is faster? */
static bool is_clear(const struct ag_profit *profit)
{
    uint32_t n = profit->n_eager, m = profit->n_replayed;

    return n >= AG_PROFIT_CLEAR && m >= AG_PROFIT_CLEAR &&
           are_plainly_less(profit->replayed, m, profit->eager, n);
}

/* Is replay slower, by more than iterations of one way differ from each other? */
static bool is_slower(const struct ag_profit *profit)
{
    uint64_t eager = sample_of_rank(profit->eager, profit->n_eager, profit->n_eager / 3),
             replayed =
                 sample_of_rank(profit->replayed, profit->n_replayed, profit->n_replayed / 3);

    return replayed > eager + eager / AG_PROFIT_SLOWER_SHARE && replayed > profit->median_eager;
}

/* --- what comparing may cost --- */

/* How many ns an iteration of the way that is not kept takes longer than one of the way that is. */
static uint64_t expected_loss(const struct ag_profit *profit, uint64_t least_eager)
{
    uint64_t eager = profit->median_eager > least_eager ? profit->median_eager : least_eager;
    uint64_t other = profit->prefers_eager ? profit->median_replayed : eager;

    if (profit->comparing && profit->n_eager && !profit->prefers_eager)
        other = sample_of_rank(profit->eager, profit->n_eager, 0);
    return other > profit->usual ? other - profit->usual : 0;
}

static bool is_affordable(const struct ag_profit *profit, uint64_t least_eager)
{
    return profit->spent + AG_PROFIT_PHASE * expected_loss(profit, least_eager) <=
           profit->total / AG_PROFIT_COST_SHARE;
}

/* An iteration went the way that is not kept. One that takes very long did so by chance. */
static void spend(struct ag_profit *profit, uint64_t ns)
{
    uint64_t usual = profit->usual, most = 2 * expected_loss(profit, 0) + usual / 2;

    if (ns > usual)
        profit->spent += ns - usual < most ? ns - usual : most;
    else
        profit->spent -= usual - ns < profit->spent ? usual - ns : profit->spent;
}

/* --- a comparison --- */

static void begin_comparison(struct ag_profit *profit)
{
    profit->comparing = true;
    profit->n_eager = profit->n_replayed = profit->n_missed = 0;
    profit->wants_replayed = profit->prefers_eager; /* the other way first */
    profit->in_phase = 0;
}

static void finish_comparison(struct ag_profit *profit, bool prefers_eager)
{
    bool is_first = !profit->interval, same = prefers_eager == profit->prefers_eager;

    profit->comparing = profit->is_doubted = false;
    profit->n_replayed = profit->n_eager = 0;
    if (is_first || !same)
        profit->interval = AG_PROFIT_FIRST_INTERVAL;
    else if (profit->interval < AG_PROFIT_LAST_INTERVAL)
        profit->interval *= 2;
    profit->changes += !same;
    profit->prefers_eager = prefers_eager;
    profit->next_check = profit->iterations + profit->interval;
}

static void add_sample(struct ag_profit *profit, bool replayed, uint64_t ns)
{
    uint64_t *samples = replayed ? profit->replayed : profit->eager;
    uint32_t *n = replayed ? &profit->n_replayed : &profit->n_eager;

    if (profit->in_phase++ && *n < AG_PROFIT_SAMPLES)
        samples[(*n)++] = ns;
    if (replayed == profit->prefers_eager)
        spend(profit, ns);
    if (profit->in_phase < AG_PROFIT_PHASE ||
        (replayed != profit->prefers_eager && !is_affordable(profit, 0)))
        return;
    profit->wants_replayed = !profit->wants_replayed;
    profit->in_phase = 0;
}

/* A comparison says that replay is slower: must another one confirm it? */
static bool is_doubtful(const struct ag_profit *profit)
{
    return !profit->prefers_eager && !profit->is_doubted &&
           !are_plainly_less(profit->eager, profit->n_eager, profit->replayed, profit->n_replayed);
}

static bool is_complete(const struct ag_profit *profit)
{
    return profit->n_eager == AG_PROFIT_SAMPLES && profit->n_replayed == AG_PROFIT_SAMPLES;
}

static bool compare_iteration(struct ag_profit *profit, bool replayed, uint64_t ns)
{
    bool slower;

    if (ns && replayed == profit->wants_replayed)
        add_sample(profit, replayed, ns);
    else if (++profit->n_missed >= AG_PROFIT_GIVE_UP)
        finish_comparison(profit, profit->prefers_eager);
    if (!profit->comparing || (!is_complete(profit) && !is_clear(profit)))
        return false;
    profit->median_eager = sample_of_rank(profit->eager, profit->n_eager, profit->n_eager / 2);
    profit->median_replayed =
        sample_of_rank(profit->replayed, profit->n_replayed, profit->n_replayed / 2);
    slower = is_slower(profit);
    if (slower && is_doubtful(profit)) {
        profit->is_doubted = true;
        begin_comparison(profit);
        return false;
    }
    profit->is_plain = is_clear(profit);
    finish_comparison(profit, slower);
    return true;
}

/* --- between comparisons --- */

/* Notes an iteration of the way that is kept. The last ones are kept, and the oldest goes. */
static void watch_iteration(struct ag_profit *profit, uint64_t ns)
{
    if (profit->n_replayed == AG_PROFIT_WATCHED)
        memmove(profit->replayed, profit->replayed + 1,
                --profit->n_replayed * sizeof(profit->replayed[0]));
    profit->replayed[profit->n_replayed++] = ns;
}

/* Sets the usual time to the median of the iterations that are watched. It is asked for rarely, so
 * it is not kept up with each. */
static void update_usual(struct ag_profit *profit)
{
    if (profit->n_replayed)
        profit->usual =
            sample_of_rank(profit->replayed, profit->n_replayed, profit->n_replayed / 2);
}

/* Does what was seen of eager operations answer, without an eager iteration? */
static bool is_plain_already(const struct ag_profit *profit, uint64_t least_eager)
{
    uint32_t n = profit->n_replayed;

    return n >= AG_PROFIT_CLEAR &&
           is_plainly_less(sample_of_rank(profit->replayed + n - AG_PROFIT_CLEAR, AG_PROFIT_CLEAR,
                                          AG_PROFIT_CLEAR - 1),
                           least_eager);
}

/* Are all of the last ones slower than a plain answer said? */
static bool is_plain_no_more(const struct ag_profit *profit)
{
    if (!profit->is_plain || profit->prefers_eager || profit->n_replayed < AG_PROFIT_WATCHED)
        return false;
    for (uint32_t i = 0; i < profit->n_replayed; i++) {
        if (is_plainly_less(profit->replayed[i], profit->median_eager))
            return false;
    }
    return true;
}

static bool is_due(const struct ag_profit *profit)
{
    if (!profit->interval)
        return profit->n_replayed == AG_PROFIT_WATCHED;
    return profit->iterations >= profit->next_check || is_plain_no_more(profit);
}

bool ag_profit_note(struct ag_profit *profit, bool replayed, uint64_t ns, uint64_t least_eager)
{
    profit->iterations++;
    profit->total += ns;
    if (profit->comparing)
        return compare_iteration(profit, replayed, ns);
    if (ns && replayed != profit->prefers_eager)
        watch_iteration(profit, ns);
    if (!profit->interval && is_plain_already(profit, least_eager)) {
        update_usual(profit);
        profit->median_eager = least_eager;
        profit->median_replayed = profit->usual;
        profit->is_plain = true;
        finish_comparison(profit, false);
        return true;
    }
    if (is_due(profit)) {
        update_usual(profit);
        if (is_affordable(profit, least_eager))
            begin_comparison(profit);
    }
    return false;
}
