/* Which graph of a segment is launched, and when another one is worth building: see variants.h.
 *
 * Sets of payloads are told apart by those of four operations, the probes. A set has come before
 * when all probes but one are as they were (that one may be a seed that counts up). Another graph
 * is built when sets come again that no graph has, and updating nodes for them has cost enough. The
 * graph that was updated for such a set has the same payloads as the new one; so it becomes the
 * *spare*, the one that is updated next. Where no more graphs may be built, one that was not picked
 * for long becomes the spare.
 *
 * Of a set that is launched first after a wait, all payloads are remembered, and which set is
 * launched first after the next wait. Where no graph has the payloads of that one, the spare is
 * updated for it. */
#include "graph/learn/variants.h"

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "graph/replay/builder.h"
#include "graph/tuning.h"
#include "interpose/core/base/hash.h"
#include "interpose/core/base/pages.h"

struct set {
    uint32_t of[AG_VARIANTS_PROBES]; /* fingerprints of the probes' payloads */
    bool is_kept;                    /* all payloads are in `payloads` */
    uint32_t next;                   /* number of the set that came after the next wait; or NONE */
};

#define NONE AG_VARIANTS_REMEMBERED

struct ag_variants {
    struct ag_graph *graph[AG_VARIANTS_MOST];
    uint32_t picked_at[AG_VARIANTS_MOST]; /* launches before it was picked last */
    uint32_t holds[AG_VARIANTS_MOST];     /* the set whose payloads it has; or NONE */
    uint32_t n, n_ops, n_probes;
    uint32_t launches, picked, spare; /* spare: an index, or MOST */
    uint32_t spent; /* nodes updated for sets that came again, since a graph was built last */
    bool recurs;
    struct set remembered[AG_VARIANTS_REMEMBERED];
    uint32_t n_remembered;
    uint32_t last, expected; /* sets: launched first after the last wait; foreseen; or NONE */
    uint32_t foreseen_right, foreseen_wrong;
    unsigned char *payloads; /* of all sets, room for the same number of bytes each; may be NULL */
    uint32_t payload_bytes;  /* of one set */
};

static _Atomic uint64_t all_kept; /* bytes, by all of them; relaxed: a bound */

struct ag_variants *ag_variants_new(uint32_t n_ops)
{
    struct ag_variants *variants = ag_pages_get(sizeof(*variants));

    if (!variants)
        return NULL;
    variants->n_ops = n_ops;
    variants->n_probes = n_ops < AG_VARIANTS_PROBES ? n_ops : AG_VARIANTS_PROBES;
    variants->spare = AG_VARIANTS_MOST;
    variants->last = variants->expected = NONE;
    return variants;
}

static size_t kept_bytes(const struct ag_variants *variants)
{
    return (size_t)variants->payload_bytes * AG_VARIANTS_REMEMBERED;
}

void ag_variants_free(struct ag_variants *variants)
{
    if (variants && variants->payloads) {
        atomic_fetch_sub_explicit(&all_kept, kept_bytes(variants), memory_order_relaxed);
        ag_pages_free(variants->payloads, kept_bytes(variants));
    }
    ag_pages_free(variants, sizeof(*variants));
}

void ag_variants_add(struct ag_variants *variants, struct ag_graph *graph)
{
    uint32_t n = variants->n;

    if (n)
        variants->spare = variants->picked;
    variants->holds[n] = n ? variants->holds[variants->picked] : NONE;
    variants->graph[n] = graph;
    variants->picked_at[n] = variants->launches;
    variants->picked = n;
    variants->n = n + 1;
    variants->recurs = false;
    variants->spent = 0;
}

uint32_t ag_variants_count(const struct ag_variants *variants)
{
    return variants->n;
}

struct ag_graph *ag_variants_at(const struct ag_variants *variants, uint32_t i)
{
    return variants->graph[i];
}

/* The i-th of the operations that are compared: they are spread evenly from the first to the
 * last. */
static uint32_t probed_op(const struct ag_variants *variants, uint32_t i)
{
    return variants->n_probes > 1 ? i * (variants->n_ops - 1) / (variants->n_probes - 1) : 0;
}

/* --- which one --- */

/* The number of probes whose payloads it has; 0 as soon as the first two differ. */
static uint32_t likeness(const struct ag_variants *variants, const struct ag_graph *graph,
                         const struct ag_op *ops)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < variants->n_probes; i++) {
        uint32_t at = probed_op(variants, i);

        n += ag_graph_has(graph, at, &ops[at]);
        if (i == 1 && !n)
            break;
    }
    return n;
}

static uint32_t longest_unpicked(const struct ag_variants *variants)
{
    uint32_t oldest = 0;

    for (uint32_t i = 1; i < variants->n; i++) {
        if (variants->launches - variants->picked_at[i] >
            variants->launches - variants->picked_at[oldest])
            oldest = i;
    }
    return oldest;
}

/* The one to be updated where no graph has a set's payloads. */
static uint32_t spare(const struct ag_variants *variants)
{
    return variants->spare < AG_VARIANTS_MOST ? variants->spare : longest_unpicked(variants);
}

struct ag_graph *ag_variants_take(struct ag_variants *variants)
{
    uint32_t oldest = longest_unpicked(variants), end = --variants->n;
    struct ag_graph *graph = variants->graph[oldest];

    /* The last one takes its place. */
    variants->graph[oldest] = variants->graph[end];
    variants->picked_at[oldest] = variants->picked_at[end];
    variants->holds[oldest] = variants->holds[end];
    if (variants->spare == oldest)
        variants->spare = AG_VARIANTS_MOST;
    else if (variants->spare == end)
        variants->spare = oldest;
    if (variants->picked == end)
        variants->picked = oldest;
    variants->recurs = false;
    return graph;
}

struct ag_graph *ag_variants_pick(struct ag_variants *variants, const struct ag_op *ops)
{
    uint32_t best = 0, best_likeness = 0;

    /* Sets mostly come in the order in which their graphs were built. */
    for (uint32_t k = 1; variants->n > 1 && k <= variants->n; k++) {
        uint32_t i = (variants->picked + k) % variants->n;
        uint32_t now = likeness(variants, variants->graph[i], ops);

        if (now > best_likeness) {
            best = i;
            best_likeness = now;
        }
        if (now == variants->n_probes)
            break;
    }
    if (variants->n > 1 && !best_likeness)
        best = spare(variants);
    variants->picked = best;
    variants->picked_at[best] = ++variants->launches;
    return variants->graph[best];
}

/* --- is another one worth it? --- */

static uint32_t fingerprint(const struct ag_op *op)
{
    uint64_t hash = op->payload_bytes;

    for (uint32_t at = 0; at < op->payload_bytes; at += sizeof(uint64_t)) {
        uint64_t word;

        memcpy(&word, op->payload + at, sizeof(word));
        hash = ag_hash_word(hash, word);
        hash ^= hash >> 32;
    }
    return (uint32_t)hash;
}

/* The number of the set, or NONE. */
static uint32_t find_set(const struct ag_variants *variants, const struct set *now)
{
    uint32_t needed = variants->n_probes > 2 ? variants->n_probes - 1 : variants->n_probes;

    for (uint32_t i = 0; i < AG_VARIANTS_REMEMBERED && i < variants->n_remembered; i++) {
        uint32_t same = 0;

        for (uint32_t k = 0; k < variants->n_probes; k++)
            same += variants->remembered[i].of[k] == now->of[k];
        if (same >= needed)
            return i;
    }
    return NONE;
}

/* The number of the set that was launched; it is remembered from now on. */
static uint32_t note_set(struct ag_variants *variants, const struct ag_op *ops, bool *ret_recurs)
{
    struct set now = {.next = NONE};
    uint32_t number;

    for (uint32_t i = 0; i < variants->n_probes; i++)
        now.of[i] = fingerprint(&ops[probed_op(variants, i)]);
    number = find_set(variants, &now);
    *ret_recurs = number != NONE;
    if (number == NONE) {
        number = variants->n_remembered++ % AG_VARIANTS_REMEMBERED;
        variants->remembered[number] = now;
    }
    return number;
}

/* --- what comes after the next wait --- */

static unsigned char *payloads_of(const struct ag_variants *variants, uint32_t number)
{
    return variants->payloads + (size_t)number * variants->payload_bytes;
}

/* Takes memory for sets of so many bytes, while there is enough for all. */
static void reserve_payloads(struct ag_variants *variants, uint32_t bytes)
{
    uint64_t kept;

    variants->payload_bytes = bytes;
    kept = atomic_fetch_add_explicit(&all_kept, kept_bytes(variants), memory_order_relaxed);
    if (kept + kept_bytes(variants) <= AG_FORESEEN_BYTES)
        variants->payloads = ag_pages_get(kept_bytes(variants));
    if (!variants->payloads)
        atomic_fetch_sub_explicit(&all_kept, kept_bytes(variants), memory_order_relaxed);
}

static void keep_payloads(struct ag_variants *variants, uint32_t number)
{
    uint32_t bytes;
    const unsigned char *payloads = ag_graph_payloads(variants->graph[variants->picked], &bytes);

    if (!variants->payloads)
        reserve_payloads(variants, bytes);
    if (!variants->payloads || bytes != variants->payload_bytes)
        return;
    memcpy(payloads_of(variants, number), payloads, bytes);
    variants->remembered[number].is_kept = true;
}

static void follow(struct ag_variants *variants, uint32_t number, uint32_t updated)
{
    bool was_wrong = updated * AG_VARIANTS_WORTH_SHARE >= variants->n_ops;

    if (variants->expected != NONE) {
        variants->foreseen_wrong += was_wrong;
        variants->foreseen_right += !was_wrong;
    }
    if (updated || !variants->remembered[number].is_kept)
        keep_payloads(variants, number);
    if (variants->last != NONE)
        variants->remembered[variants->last].next = number;
    variants->last = number;
    variants->expected = NONE;
}

struct ag_graph *ag_variants_foresee(struct ag_variants *variants,
                                     const unsigned char **ret_payloads)
{
    uint32_t next = variants->last != NONE ? variants->remembered[variants->last].next : NONE, i;

    if (next == NONE || !variants->remembered[next].is_kept ||
        variants->foreseen_wrong > variants->foreseen_right + AG_VARIANTS_TOLERANCE)
        return NULL;
    variants->expected = next;
    for (i = 0; i < variants->n; i++) {
        if (variants->holds[i] == next)
            return NULL;
    }
    i = variants->spare = spare(variants);
    variants->holds[i] = next;
    *ret_payloads = payloads_of(variants, next);
    return variants->graph[i];
}

void ag_variants_waited(struct ag_variants *variants, uint32_t updated)
{
    variants->spent += updated;
}

void ag_variants_launched(struct ag_variants *variants, const struct ag_op *ops, uint32_t updated,
                          bool is_first)
{
    bool much = updated * AG_VARIANTS_WORTH_SHARE >= variants->n_ops;
    uint32_t oldest, number = NONE;
    bool recurs = false;

    if (!updated && !variants->n_remembered)
        return;
    if (!updated && variants->holds[variants->picked] != NONE) {
        number = variants->holds[variants->picked];
        recurs = true;
    } else if (much || is_first) {
        number = note_set(variants, ops, &recurs);
    }
    if (is_first && number != NONE)
        follow(variants, number, updated);
    if (updated)
        variants->holds[variants->picked] = number;
    /* A graph that is not updated is another set's already. */
    variants->recurs = recurs && (much || variants->n == 1 || variants->picked == variants->spare);
    variants->spent += much && recurs ? updated : 0;
    if (!much || !recurs || variants->n < AG_VARIANTS_MOST)
        return;
    oldest = longest_unpicked(variants);
    if (variants->launches - variants->picked_at[oldest] > AG_VARIANTS_STALE)
        variants->spare = oldest;
}

bool ag_variants_wants(const struct ag_variants *variants)
{
    return variants->recurs && variants->n < AG_VARIANTS_MOST &&
           variants->spent >= AG_VARIANTS_RENT * variants->n_ops;
}
