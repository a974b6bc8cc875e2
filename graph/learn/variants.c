/* Which graph of a segment is launched, and when another one is worth building: see variants.h.
 *
 * Sets of payloads are told apart by those of four operations, the probes. A set has come before
 * when all probes but one are as they were (that one may be a seed that counts up). Another graph
 * is built when sets come again that no graph has, and updating nodes for them has cost enough. The
 * graph that was updated for such a set has the same payloads as the new one; so it becomes the
 * *spare*, the one that is updated next. Where no more graphs may be built, one that was not picked
 * for long becomes the spare. */
#include "graph/learn/variants.h"

#include <stddef.h>
#include <string.h>

#include "graph/replay/builder.h"
#include "graph/tuning.h"
#include "interpose/base/hash.h"
#include "interpose/base/pages.h"

struct fingerprint {
    uint32_t of[AG_VARIANTS_PROBES];
};

struct ag_variants {
    struct ag_graph *graph[AG_VARIANTS_MOST];
    uint32_t picked_at[AG_VARIANTS_MOST]; /* launches before it was picked last */
    uint32_t n, n_ops, n_probes;
    uint32_t launches, picked, spare; /* spare: an index, or MOST */
    uint32_t right, wrong; /* graphs picked because they seemed right: little was updated, much */
    uint32_t spent; /* nodes updated for sets that came again, since a graph was built last */
    bool seemed_right, recurs;
    struct fingerprint remembered[AG_VARIANTS_REMEMBERED];
    uint32_t n_remembered;
};

struct ag_variants *ag_variants_new(uint32_t n_ops)
{
    struct ag_variants *variants = ag_pages_get(sizeof(*variants));

    if (!variants)
        return NULL;
    variants->n_ops = n_ops;
    variants->n_probes = n_ops < AG_VARIANTS_PROBES ? n_ops : AG_VARIANTS_PROBES;
    variants->spare = AG_VARIANTS_MOST;
    return variants;
}

void ag_variants_free(struct ag_variants *variants)
{
    ag_pages_free(variants, sizeof(*variants));
}

void ag_variants_add(struct ag_variants *variants, struct ag_graph *graph)
{
    uint32_t n = variants->n;

    if (n)
        variants->spare = variants->picked;
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

/* From the first operation to the last. */
static uint32_t probe(const struct ag_variants *variants, uint32_t i)
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
        uint32_t at = probe(variants, i);

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

struct ag_graph *ag_variants_take(struct ag_variants *variants)
{
    uint32_t oldest = longest_unpicked(variants), end = --variants->n;
    struct ag_graph *graph = variants->graph[oldest];

    /* The last one takes its place. */
    variants->graph[oldest] = variants->graph[end];
    variants->picked_at[oldest] = variants->picked_at[end];
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
    variants->seemed_right = best_likeness > 0;
    if (variants->n > 1 && !best_likeness)
        best = variants->spare < AG_VARIANTS_MOST ? variants->spare : longest_unpicked(variants);
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

static bool is_remembered(const struct ag_variants *variants, const struct fingerprint *now)
{
    uint32_t needed = variants->n_probes > 2 ? variants->n_probes - 1 : variants->n_probes;

    for (uint32_t i = 0; i < AG_VARIANTS_REMEMBERED && i < variants->n_remembered; i++) {
        uint32_t same = 0;

        for (uint32_t k = 0; k < variants->n_probes; k++)
            same += variants->remembered[i].of[k] == now->of[k];
        if (same >= needed)
            return true;
    }
    return false;
}

static bool note_set(struct ag_variants *variants, const struct ag_op *ops)
{
    struct fingerprint now = {{0}};

    for (uint32_t i = 0; i < variants->n_probes; i++)
        now.of[i] = fingerprint(&ops[probe(variants, i)]);
    if (is_remembered(variants, &now))
        return true;
    variants->remembered[variants->n_remembered++ % AG_VARIANTS_REMEMBERED] = now;
    return false;
}

void ag_variants_launched(struct ag_variants *variants, const struct ag_op *ops, uint32_t updated)
{
    bool much = updated * AG_VARIANTS_WORTH_SHARE >= variants->n_ops;
    uint32_t oldest;

    if (variants->seemed_right) {
        variants->wrong += much;
        variants->right += !much;
    }
    variants->recurs = much && note_set(variants, ops);
    variants->spent += variants->recurs ? updated : 0;
    if (!variants->recurs || variants->n < AG_VARIANTS_MOST)
        return;
    oldest = longest_unpicked(variants);
    if (variants->launches - variants->picked_at[oldest] > AG_VARIANTS_STALE)
        variants->spare = oldest;
}

bool ag_variants_wants(const struct ag_variants *variants)
{
    return variants->recurs && variants->n < AG_VARIANTS_MOST &&
           variants->spent >= AG_VARIANTS_RENT * variants->n_ops &&
           variants->wrong <= variants->right + AG_VARIANTS_TOLERANCE;
}
