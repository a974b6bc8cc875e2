/* Credit of a stream that looks on, and the repetition that gives it more: see backoff.h. */
#include "graph/learn/backoff.h"

#include <stddef.h>
#include <string.h>

#include "graph/learn/history.h"
#include "interpose/base/pages.h"

#define FIRST_LOOK 2048
#define LATER_LOOK 512u
#define SHORT_COST 4 /* of an operation in a segment that is too short */
/* for an operation of a graph: it saves several times what looking on costs */
#define GAIN          8
#define LEAST_BACKOFF 4096u
#define MOST_BACKOFF  65536u
#define LOOK_SHARE    64u /* of the sleep before it, a longer look */
#define BACKOFF_SHARE 4u  /* of the operations since it last gained */
#define ROUNDS        4u  /* of what repeats itself are waited for */
#define RETRY         16u /* part of the sleep that waiting for the same once more may take */

#define FIRST_PROBE 2048u /* more, to see how long the rounds are that were met before it slept */
#define MOST_PROBE  (AG_HISTORY_WINDOW + 8192u)

#define CONTEXT    16u   /* operations; see history.c */
#define NEAR       256u  /* contexts kept: of all, for short rounds */
#define FAR        4096u /* and of one in 16, for rounds up to AG_HISTORY_WINDOW */
#define FAR_FIRST  512u  /* during the first look, so that few pages are touched */
#define NEAR_MEETS 8u    /* as many must be met again at one distance */
#define FAR_MEETS  3u

struct seen {
    uint32_t tag, at;
};

/* Contexts met again at one distance after another. */
struct run {
    uint32_t distance, n;
};

struct ag_backoff {
    uint64_t context;
    uint32_t at;    /* operations in all, also those slept through */
    uint32_t since; /* it last gained */
    int64_t credit;
    uint32_t length;         /* of the last sleep */
    uint32_t woke;           /* at that operation */
    uint32_t granted, tried; /* distances for which a look went on: this one, any since it gained */
    uint32_t probe;          /* operations of the next one; 0: all lengths were tried */
    struct run near_run, far_run;
    struct seen near[NEAR], far[FAR];
};

static struct ag_freelist freelist;

void ag_backoff_prepare(void)
{
    struct ag_backoff *backoff =
        ag_freelist_is_full(&freelist) ? NULL : ag_pages_get(sizeof(*backoff));

    if (!backoff)
        return;
    ag_pages_ready(backoff, offsetof(struct ag_backoff, far) + FAR_FIRST * sizeof(backoff->far[0]));
    ag_freelist_put_or_free(&freelist, backoff, sizeof(*backoff));
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

/* Operations since the context was here before, or 0. */
static uint32_t meet(struct seen *seen, uint32_t tag, uint32_t now)
{
    uint32_t distance = seen->tag == tag ? now - seen->at : 0;

    *seen = (struct seen){tag, now};
    return distance;
}

/* One may be chance; what lies in between says nothing, as its place may have been taken. */
static bool agrees(struct run *run, uint32_t distance, uint32_t enough)
{
    if (!distance)
        return false;
    run->n = run->distance == distance ? run->n + 1 : 1;
    run->distance = distance;
    return run->n >= enough;
}

/* The length of the rounds in which the stream is seen to repeat itself, or 0. */
static uint32_t repeats(struct ag_backoff *backoff)
{
    uint64_t mixed = backoff->context * 0x9e3779b97f4a7c15u;
    uint32_t tag = (uint32_t)(mixed >> 8) | 1, found = 0;
    uint32_t n_far = backoff->at < FIRST_LOOK ? FAR_FIRST : FAR;

    if (agrees(&backoff->near_run, meet(&backoff->near[(mixed >> 40) % NEAR], tag, backoff->at),
               NEAR_MEETS))
        found = backoff->near_run.distance;
    if (mixed >> 60 == 0 &&
        agrees(&backoff->far_run, meet(&backoff->far[(mixed >> 40) % n_far], tag, backoff->at),
               FAR_MEETS))
        found = backoff->far_run.distance;
    return found;
}

static void give(struct ag_backoff *backoff, uint32_t credit)
{
    if (backoff->credit < (int64_t)credit)
        backoff->credit = credit;
}

/* What was met before it slept came at any number of rounds since. */
static void probe(struct ag_backoff *backoff)
{
    if (backoff->granted)
        return;
    give(backoff, backoff->probe ? backoff->probe : backoff->length / RETRY);
    backoff->granted = 1;
    backoff->probe = backoff->probe == MOST_PROBE      ? 0
                     : backoff->probe < MOST_PROBE / 4 ? backoff->probe * 4
                                                       : MOST_PROBE;
}

static void consider(struct ag_backoff *backoff, uint32_t distance)
{
    uint32_t cost = ROUNDS * distance + LATER_LOOK;

    if (distance > backoff->at - backoff->woke) {
        probe(backoff);
        return;
    }
    if (!distance || distance > AG_HISTORY_WINDOW || distance < backoff->granted ||
        (distance <= backoff->tried && cost > backoff->length / RETRY))
        return;
    backoff->granted = 2 * distance;
    if (backoff->tried < backoff->granted)
        backoff->tried = backoff->granted;
    give(backoff, cost);
}

bool ag_backoff_sample(struct ag_backoff *backoff, uint64_t hash, uint32_t place)
{
    bool is_short = place < AG_BACKOFF_LEAST;
    uint32_t distance;

    backoff->at++;
    backoff->since += backoff->since < UINT32_MAX;
    backoff->context = (backoff->context << 64 / CONTEXT) + hash;
    distance = repeats(backoff);
    if (!is_short)
        consider(backoff, distance);
    backoff->credit -= is_short ? SHORT_COST : 1;
    return backoff->credit <= 0;
}

void ag_backoff_gained(struct ag_backoff *backoff, uint32_t n_ops)
{
    backoff->credit += (int64_t)GAIN * n_ops;
    if (backoff->credit >= FIRST_LOOK)
        ag_backoff_refresh(backoff);
}

void ag_backoff_refresh(struct ag_backoff *backoff)
{
    backoff->credit = FIRST_LOOK;
    backoff->since = 0;
    backoff->granted = backoff->tried = 0;
    backoff->probe = FIRST_PROBE;
}

uint32_t ag_backoff_begin(struct ag_backoff *backoff)
{
    uint32_t length = backoff->since / BACKOFF_SHARE;

    backoff->length = length < LEAST_BACKOFF  ? LEAST_BACKOFF
                      : length > MOST_BACKOFF ? MOST_BACKOFF
                                              : length;
    return backoff->length;
}

void ag_backoff_end(struct ag_backoff *backoff, uint32_t passed)
{
    backoff->at += passed;
    backoff->since = passed < UINT32_MAX - backoff->since ? backoff->since + passed : UINT32_MAX;
    backoff->context = 0;
    backoff->credit =
        backoff->length / LOOK_SHARE < LATER_LOOK ? LATER_LOOK : backoff->length / LOOK_SHARE;
    backoff->granted = 0;
    backoff->woke = backoff->at;
    backoff->near_run = backoff->far_run = (struct run){0};
}
