/* Credit of a stream that is sampled, and the search for a period that gives it more: see
 * backoff.h.
 *
 * history.c finds repetition, too, and the two share the rolling hash, but no more, because they
 * answer different questions from different input:
 * - Here the question is the *distance* of a repetition, in a stream of which only samples are
 *   seen: 512 operations, then thousands unseen. A table of hashes finds a period as soon as a few
 *   hashes of it come again, even if the first time was before a back-off.
 * - history.c needs the *place* where an iteration begins, the same one every time, of a stream
 *   that it sees whole. A table of hashes cannot tell it: in a loop, every place repeats at the
 *   same distance. The smallest hash is such a place, at a few instructions an operation and no
 *   table; but it must first be seen for a whole iteration without a gap.
 *
 * Tried: with history's anchor as the detector here, tests/unit/graph/backoff.c finds iterations of
 * 200 operations and more up to six times later, and those of 5000 and more not within 40
 * iterations, instead of 16. */
#include "graph/learn/backoff.h"

#include <stddef.h>
#include <string.h>

#include "graph/learn/history.h"
#include "interpose/core/base/hash.h"
#include "interpose/core/base/pages.h"

struct seen {
    uint32_t tag, at;
};

/* Rolling hashes that were met again at one distance, in a row. */
struct run {
    uint32_t distance, n;
};

struct ag_backoff {
    uint64_t rolling;
    uint32_t at;    /* operations in all, those of back-offs, too */
    uint32_t since; /* operations since it last gained */
    int64_t credit;
    uint32_t length;         /* of the last back-off */
    uint32_t resumed_at;     /* the operation at which sampling began again */
    uint32_t granted, tried; /* periods that got credit: in this sampling, in any since it gained */
    uint32_t probe;          /* credit of the next probe; 0: all were tried */
    struct run near_run, far_run;
    struct seen near[AG_BACKOFF_NEAR], far[AG_BACKOFF_FAR];
};

static struct ag_freelist freelist;

void ag_backoff_prepare(void)
{
    ag_freelist_prepare(&freelist, sizeof(struct ag_backoff),
                        offsetof(struct ag_backoff, far) +
                            AG_BACKOFF_FAR_FIRST * sizeof(struct seen));
}

struct ag_backoff *ag_backoff_new(void)
{
    struct ag_backoff *backoff = ag_freelist_take_or_get(&freelist, sizeof(*backoff));

    if (backoff)
        ag_backoff_refresh(backoff);
    return backoff;
}

void ag_backoff_free(struct ag_backoff *backoff)
{
    if (!backoff || ag_freelist_is_full(&freelist)) {
        ag_pages_free(backoff, sizeof(*backoff));
        return;
    }
    memset(backoff, 0, sizeof(*backoff));
    ag_freelist_put_or_free(&freelist, backoff, sizeof(*backoff));
}

/* Operations since the same hash was met, or 0. */
static uint32_t distance_to_last(struct seen *seen, uint32_t tag, uint32_t now)
{
    uint32_t distance = seen->tag == tag ? now - seen->at : 0;

    *seen = (struct seen){tag, now};
    return distance;
}

/* Notes one distance. True: enough in a row agree. One may be chance; hashes that were not met
 * again say nothing, since others may have taken their places. */
static bool note_distance(struct run *run, uint32_t distance, uint32_t enough)
{
    if (!distance)
        return false;
    run->n = run->distance == distance ? run->n + 1 : 1;
    run->distance = distance;
    return run->n >= enough;
}

/* Notes the rolling hash. Returns the period at which the stream repeats itself, or 0. */
static uint32_t find_period(struct ag_backoff *backoff)
{
    uint64_t mixed = ag_hash_spread(backoff->rolling);
    uint32_t tag = (uint32_t)(mixed >> 8) | 1, found = 0;
    uint32_t n_far = backoff->at < AG_BACKOFF_FIRST_CREDIT ? AG_BACKOFF_FAR_FIRST : AG_BACKOFF_FAR;

    if (note_distance(
            &backoff->near_run,
            distance_to_last(&backoff->near[(mixed >> 40) % AG_BACKOFF_NEAR], tag, backoff->at),
            AG_BACKOFF_NEAR_MEETS))
        found = backoff->near_run.distance;
    if (mixed >> 60 == 0 &&
        note_distance(&backoff->far_run,
                      distance_to_last(&backoff->far[(mixed >> 40) % n_far], tag, backoff->at),
                      AG_BACKOFF_FAR_MEETS))
        found = backoff->far_run.distance;
    return found;
}

static void raise_credit(struct ag_backoff *backoff, uint32_t credit)
{
    if (backoff->credit < (int64_t)credit)
        backoff->credit = credit;
}

/* A hash from before the back-off came again: any number of iterations may lie between, so the
 * period is not known, only that there is one. */
static void grant_probe(struct ag_backoff *backoff)
{
    if (backoff->granted)
        return;
    raise_credit(backoff,
                 backoff->probe ? backoff->probe : backoff->length / AG_BACKOFF_RETRY_SHARE);
    backoff->granted = 1;
    backoff->probe = backoff->probe == AG_BACKOFF_MOST_PROBE      ? 0
                     : backoff->probe < AG_BACKOFF_MOST_PROBE / 4 ? backoff->probe * 4
                                                                  : AG_BACKOFF_MOST_PROBE;
}

static void consider_period(struct ag_backoff *backoff, uint32_t distance)
{
    uint32_t cost = AG_BACKOFF_ITERATIONS * distance + AG_BACKOFF_LATER_CREDIT;

    if (distance > backoff->at - backoff->resumed_at) {
        grant_probe(backoff);
        return;
    }
    if (!distance || distance > AG_HISTORY_WINDOW || distance < backoff->granted ||
        (distance <= backoff->tried && cost > backoff->length / AG_BACKOFF_RETRY_SHARE))
        return;
    backoff->granted = 2 * distance;
    if (backoff->tried < backoff->granted)
        backoff->tried = backoff->granted;
    raise_credit(backoff, cost);
}

bool ag_backoff_sample(struct ag_backoff *backoff, uint64_t hash, uint32_t place)
{
    bool is_short = place < AG_LENGTH_WORTH_GRAPH;
    uint32_t distance;

    backoff->at++;
    backoff->since += backoff->since < UINT32_MAX;
    backoff->rolling = ag_rolling_hash(backoff->rolling, hash);
    distance = find_period(backoff);
    if (!is_short)
        consider_period(backoff, distance);
    backoff->credit -= is_short ? AG_BACKOFF_SHORT_COST : 1;
    return backoff->credit <= 0;
}

void ag_backoff_gained(struct ag_backoff *backoff, uint32_t n_ops)
{
    backoff->credit += (int64_t)AG_BACKOFF_GAIN * n_ops;
    if (backoff->credit >= AG_BACKOFF_FIRST_CREDIT)
        ag_backoff_refresh(backoff);
}

void ag_backoff_refresh(struct ag_backoff *backoff)
{
    backoff->credit = AG_BACKOFF_FIRST_CREDIT;
    backoff->since = 0;
    backoff->granted = backoff->tried = 0;
    backoff->probe = AG_BACKOFF_FIRST_PROBE;
}

uint32_t ag_backoff_begin(struct ag_backoff *backoff)
{
    uint32_t length = backoff->since / AG_BACKOFF_SHARE;

    backoff->length = length < AG_BACKOFF_LEAST  ? AG_BACKOFF_LEAST
                      : length > AG_BACKOFF_MOST ? AG_BACKOFF_MOST
                                                 : length;
    return backoff->length;
}

void ag_backoff_end(struct ag_backoff *backoff, uint32_t passed)
{
    backoff->at += passed;
    backoff->since = passed < UINT32_MAX - backoff->since ? backoff->since + passed : UINT32_MAX;
    backoff->rolling = 0;
    backoff->credit = backoff->length / AG_BACKOFF_SAMPLED_SHARE < AG_BACKOFF_LATER_CREDIT
                          ? AG_BACKOFF_LATER_CREDIT
                          : backoff->length / AG_BACKOFF_SAMPLED_SHARE;
    backoff->granted = 0;
    backoff->resumed_at = backoff->at;
    backoff->near_run = backoff->far_run = (struct run){0};
}
