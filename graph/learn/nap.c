/* Credit of a lane that looks on, and the repetition that gives it more: see nap.h. */
#include "graph/learn/nap.h"

#include <stddef.h>
#include <string.h>

#include "graph/learn/history.h"
#include "interpose/base/pages.h"

#define FIRST_LOOK 2048
#define LATER_LOOK 512u
#define SHORT_COST 4 /* of an operation in a segment that is too short */
#define GAIN       8 /* for an operation of a graph: it saves several times what looking on costs */
#define LEAST_NAP  4096u
#define MOST_NAP   65536u
#define LOOK_SHARE 64u /* of the sleep before it, a longer look */
#define NAP_SHARE  4u  /* of the operations since it last gained */
#define ROUNDS     4u  /* of what repeats itself are waited for */
#define RETRY      16u /* part of the sleep that waiting for the same once more may take */

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

struct ag_nap {
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

static struct ag_spares spares;

void ag_nap_prepare(void)
{
    struct ag_nap *nap = ag_spares_are_enough(&spares) ? NULL : ag_pages_get(sizeof(*nap));

    if (!nap)
        return;
    ag_pages_ready(nap, offsetof(struct ag_nap, far) + FAR_FIRST * sizeof(nap->far[0]));
    ag_spares_put_or_free(&spares, nap, sizeof(*nap));
}

struct ag_nap *ag_nap_new(void)
{
    struct ag_nap *nap = ag_spares_take_or_get(&spares, sizeof(*nap));

    if (nap)
        ag_nap_refresh(nap);
    return nap;
}

void ag_nap_free(struct ag_nap *nap)
{
    if (!nap || ag_spares_are_enough(&spares)) {
        ag_pages_free(nap, sizeof(*nap));
        return;
    }
    memset(nap, 0, sizeof(*nap));
    ag_spares_put_or_free(&spares, nap, sizeof(*nap));
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
static uint32_t repeats(struct ag_nap *nap)
{
    uint64_t mixed = nap->context * 0x9e3779b97f4a7c15u;
    uint32_t tag = (uint32_t)(mixed >> 8) | 1, found = 0;
    uint32_t n_far = nap->at < FIRST_LOOK ? FAR_FIRST : FAR;

    if (agrees(&nap->near_run, meet(&nap->near[(mixed >> 40) % NEAR], tag, nap->at), NEAR_MEETS))
        found = nap->near_run.distance;
    if (mixed >> 60 == 0 &&
        agrees(&nap->far_run, meet(&nap->far[(mixed >> 40) % n_far], tag, nap->at), FAR_MEETS))
        found = nap->far_run.distance;
    return found;
}

static void give(struct ag_nap *nap, uint32_t credit)
{
    if (nap->credit < (int64_t)credit)
        nap->credit = credit;
}

/* What was met before it slept came at any number of rounds since. */
static void probe(struct ag_nap *nap)
{
    if (nap->granted)
        return;
    give(nap, nap->probe ? nap->probe : nap->length / RETRY);
    nap->granted = 1;
    nap->probe = nap->probe == MOST_PROBE      ? 0
                 : nap->probe < MOST_PROBE / 4 ? nap->probe * 4
                                               : MOST_PROBE;
}

static void consider(struct ag_nap *nap, uint32_t distance)
{
    uint32_t cost = ROUNDS * distance + LATER_LOOK;

    if (distance > nap->at - nap->woke) {
        probe(nap);
        return;
    }
    if (!distance || distance > AG_HISTORY_WINDOW || distance < nap->granted ||
        (distance <= nap->tried && cost > nap->length / RETRY))
        return;
    nap->granted = 2 * distance;
    if (nap->tried < nap->granted)
        nap->tried = nap->granted;
    give(nap, cost);
}

bool ag_nap_tires(struct ag_nap *nap, uint64_t hash, uint32_t place)
{
    bool is_short = place < AG_NAP_LEAST;
    uint32_t distance;

    nap->at++;
    nap->since += nap->since < UINT32_MAX;
    nap->context = (nap->context << 64 / CONTEXT) + hash;
    distance = repeats(nap);
    if (!is_short)
        consider(nap, distance);
    nap->credit -= is_short ? SHORT_COST : 1;
    return nap->credit <= 0;
}

void ag_nap_gained(struct ag_nap *nap, uint32_t n_ops)
{
    nap->credit += (int64_t)GAIN * n_ops;
    if (nap->credit >= FIRST_LOOK)
        ag_nap_refresh(nap);
}

void ag_nap_refresh(struct ag_nap *nap)
{
    nap->credit = FIRST_LOOK;
    nap->since = 0;
    nap->granted = nap->tried = 0;
    nap->probe = FIRST_PROBE;
}

uint32_t ag_nap_begin(struct ag_nap *nap)
{
    uint32_t length = nap->since / NAP_SHARE;

    nap->length = length < LEAST_NAP ? LEAST_NAP : length > MOST_NAP ? MOST_NAP : length;
    return nap->length;
}

void ag_nap_end(struct ag_nap *nap, uint32_t passed)
{
    nap->at += passed;
    nap->since = passed < UINT32_MAX - nap->since ? nap->since + passed : UINT32_MAX;
    nap->context = 0;
    nap->credit = nap->length / LOOK_SHARE < LATER_LOOK ? LATER_LOOK : nap->length / LOOK_SHARE;
    nap->granted = 0;
    nap->woke = nap->at;
    nap->near_run = nap->far_run = (struct run){0};
}
