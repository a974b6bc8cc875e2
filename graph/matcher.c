/* The trie of segments: see matcher.h.
 *
 * Nodes lie in one array, in the order in which they were made, so that following a known segment
 * goes forwards through memory. What must be cheap: a child that was taken last time (one
 * comparison), and new nodes without end, on a stream that never repeats: room is made for a
 * quarter of all nodes at once, by passes over the array.
 *
 * `used` does not grow on the way down: whoever passes a child passed its parent in the same
 * segment. So what is older than some moment is whole subtrees, but for what is kept: nodes with
 * graphs or something of the owner's, the node in hand, and the ancestors of all that stay. */
#include "matcher.h"

#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#define MOST_LISTED 8u /* children; of more, each is in the table as well */
#define N_BUCKETS   256u

struct ag_matcher {
    uint32_t max_nodes, n_nodes; /* without the root */
    uint32_t n_fresh;            /* nodes of the array that were ever in use, with the root */
    uint32_t capacity;           /* of the table, a power of two */
    uint64_t ends;
    struct ag_node *nodes, *free_list; /* nodes[0] is the root; free ones by next_sibling */
    uint32_t *table;                   /* open addressing: numbers of nodes, 0 for an empty place */
    struct ag_node **graphs;           /* those that carry one */
    uint32_t n_graphs;
};

static void *map(size_t bytes)
{
    void *there = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return there == MAP_FAILED ? NULL : there;
}

static void unmap(void *there, size_t bytes)
{
    if (there)
        munmap(there, bytes);
}

struct ag_matcher *ag_matcher_new(uint32_t max_nodes)
{
    struct ag_matcher *matcher = map(sizeof(*matcher));

    if (!matcher)
        return NULL;
    matcher->max_nodes = max_nodes;
    matcher->n_fresh = 1;
    for (matcher->capacity = 16; matcher->capacity / 2 < max_nodes; matcher->capacity *= 2)
        ;
    matcher->nodes = map(((size_t)max_nodes + 1) * sizeof(matcher->nodes[0]));
    matcher->table = map((size_t)matcher->capacity * sizeof(matcher->table[0]));
    matcher->graphs = map(((size_t)max_nodes + 1) * sizeof(matcher->graphs[0]));
    if (matcher->nodes && matcher->table && matcher->graphs)
        return matcher;
    ag_matcher_free(matcher, NULL, NULL);
    return NULL;
}

void ag_matcher_free(struct ag_matcher *matcher, void (*drop)(struct ag_graph *graph, void *data),
                     void *data)
{
    if (!matcher)
        return;
    for (uint32_t i = 0; i < matcher->n_graphs; i++)
        drop(matcher->graphs[i]->graph, data);
    unmap(matcher->nodes, ((size_t)matcher->max_nodes + 1) * sizeof(matcher->nodes[0]));
    unmap(matcher->table, (size_t)matcher->capacity * sizeof(matcher->table[0]));
    unmap(matcher->graphs, ((size_t)matcher->max_nodes + 1) * sizeof(matcher->graphs[0]));
    unmap(matcher, sizeof(*matcher));
}

struct ag_node *ag_matcher_root(struct ag_matcher *matcher)
{
    return &matcher->nodes[0];
}

uint32_t ag_matcher_count(const struct ag_matcher *matcher)
{
    return matcher->n_nodes;
}

/* --- the table of the children of wide nodes --- */

static uint32_t place_of(const struct ag_matcher *matcher, const struct ag_node *parent,
                         uint64_t hash)
{
    uint64_t mixed = (hash ^ (uint64_t)(parent - matcher->nodes)) * 0x9e3779b97f4a7c15u;

    return (uint32_t)(mixed >> 32) & (matcher->capacity - 1);
}

static void enter(struct ag_matcher *matcher, const struct ag_node *child)
{
    uint32_t place = place_of(matcher, child->parent, child->hash);

    while (matcher->table[place])
        place = (place + 1) & (matcher->capacity - 1);
    matcher->table[place] = (uint32_t)(child - matcher->nodes);
}

static void enter_children(struct ag_matcher *matcher, const struct ag_node *node)
{
    for (const struct ag_node *child = node->first_child; child; child = child->next_sibling)
        enter(matcher, child);
}

static struct ag_node *find_in_table(const struct ag_matcher *matcher, const struct ag_node *parent,
                                     const struct ag_signature *signature, uint64_t hash)
{
    uint32_t place = place_of(matcher, parent, hash), number;

    for (; (number = matcher->table[place]); place = (place + 1) & (matcher->capacity - 1)) {
        struct ag_node *child = &matcher->nodes[number];

        if (child->parent == parent && ag_signature_equal(&child->signature, signature))
            return child;
    }
    return NULL;
}

/* --- following --- */

static struct ag_node *find(const struct ag_matcher *matcher, const struct ag_node *parent,
                            const struct ag_signature *signature, uint64_t hash)
{
    struct ag_node *child;

    if (parent->is_wide)
        return find_in_table(matcher, parent, signature, hash);
    for (child = parent->first_child; child; child = child->next_sibling) {
        if (ag_signature_equal(&child->signature, signature))
            return child;
    }
    return NULL;
}

struct ag_node *ag_matcher_follow(struct ag_matcher *matcher, struct ag_node *node,
                                  const struct ag_signature *signature, uint64_t hash)
{
    struct ag_node *child = node->likely;

    if (!child || !ag_signature_equal(&child->signature, signature)) {
        child = find(matcher, node, signature, hash);
        if (!child)
            return NULL;
        node->likely = child;
    }
    child->used = matcher->ends;
    return child;
}

/* --- evicting --- */

static void keep_path(struct ag_node *node)
{
    for (; node && !node->is_kept; node = node->parent)
        node->is_kept = 1;
}

/* Free nodes are told by having no parent. */
static bool is_candidate(const struct ag_node *node)
{
    return node->parent && !node->is_kept;
}

/* A moment such that at least `wanted` candidates, if there are so many, were used before it, and
 * few more: by histograms, each of the bucket where the one before it passed the number. */
static uint64_t choose_moment(const struct ag_matcher *matcher, uint32_t wanted)
{
    uint64_t low = 0, width = matcher->ends / N_BUCKETS + 1;

    for (;;) {
        uint32_t counts[N_BUCKETS] = {0}, below = 0, bucket;

        for (uint32_t i = 1; i < matcher->n_fresh; i++) {
            const struct ag_node *node = &matcher->nodes[i];
            uint64_t which = (node->used - low) / width;

            if (is_candidate(node) && node->used >= low && which < N_BUCKETS)
                counts[which]++;
        }
        for (bucket = 0; bucket < N_BUCKETS - 1 && below + counts[bucket] < wanted; bucket++)
            below += counts[bucket];
        if (width == 1 || below + counts[bucket] <= wanted + wanted / 2)
            return low + (bucket + 1) * width;
        wanted = wanted - below;
        low += bucket * width;
        width = width / N_BUCKETS + 1;
    }
}

/* Takes the children that go out of the list of one that stays. */
static void prune_children(struct ag_node *node)
{
    struct ag_node **link = &node->first_child;

    if (node->likely && !node->likely->is_kept)
        node->likely = NULL;
    while (*link) {
        if (!(*link)->is_kept)
            *link = (*link)->next_sibling;
        else
            link = &(*link)->next_sibling;
    }
}

static void keep_what_must_stay(struct ag_matcher *matcher, struct ag_node *in_hand)
{
    uint64_t moment;

    keep_path(&matcher->nodes[0]);
    keep_path(in_hand);
    for (uint32_t i = 1; i < matcher->n_fresh; i++) {
        if (matcher->nodes[i].graph || matcher->nodes[i].extra)
            keep_path(&matcher->nodes[i]);
    }
    moment = choose_moment(matcher, matcher->max_nodes / 4 + 1);
    for (uint32_t i = 1; i < matcher->n_fresh; i++) {
        if (matcher->nodes[i].parent && matcher->nodes[i].used >= moment)
            keep_path(&matcher->nodes[i]);
    }
}

static void evict(struct ag_matcher *matcher, struct ag_node *in_hand)
{
    keep_what_must_stay(matcher, in_hand);
    memset(matcher->table, 0, (size_t)matcher->capacity * sizeof(matcher->table[0]));
    for (uint32_t i = 0; i < matcher->n_fresh; i++) {
        if (!matcher->nodes[i].is_kept)
            continue;
        prune_children(&matcher->nodes[i]);
        if (matcher->nodes[i].is_wide)
            enter_children(matcher, &matcher->nodes[i]);
    }
    for (uint32_t i = matcher->n_fresh - 1; i > 0; i--) { /* the list begins with the first */
        struct ag_node *node = &matcher->nodes[i];

        if (is_candidate(node)) {
            *node = (struct ag_node){.next_sibling = matcher->free_list};
            matcher->free_list = node;
            matcher->n_nodes--;
        }
        node->is_kept = 0;
    }
    matcher->nodes[0].is_kept = 0;
}

/* --- growing --- */

/* All zero; NULL when there is none. */
static struct ag_node *take_node(struct ag_matcher *matcher, struct ag_node *in_hand)
{
    struct ag_node *node;

    if (matcher->n_nodes == matcher->max_nodes)
        evict(matcher, in_hand);
    if (matcher->n_fresh <= matcher->max_nodes) {
        matcher->n_nodes++;
        return &matcher->nodes[matcher->n_fresh++];
    }
    node = matcher->free_list;
    if (!node)
        return NULL;
    matcher->free_list = node->next_sibling;
    node->next_sibling = NULL;
    matcher->n_nodes++;
    return node;
}

static bool has_many_children(const struct ag_node *node)
{
    uint32_t n = 0;

    for (const struct ag_node *child = node->first_child; child; child = child->next_sibling)
        n++;
    return n > MOST_LISTED;
}

struct ag_node *ag_matcher_grow(struct ag_matcher *matcher, struct ag_node *node,
                                const struct ag_signature *signature, uint64_t hash)
{
    struct ag_node *child = ag_matcher_follow(matcher, node, signature, hash);

    if (child)
        return child;
    child = take_node(matcher, node);
    if (!child)
        return NULL;
    child->signature = *signature;
    child->hash = hash;
    child->parent = node;
    child->depth = node->depth + 1;
    child->used = matcher->ends;
    child->next_sibling = node->first_child;
    node->first_child = child;
    node->likely = child;
    if (node->is_wide) {
        enter(matcher, child);
    } else if (has_many_children(node)) {
        node->is_wide = 1;
        enter_children(matcher, node);
    }
    return child;
}

void ag_matcher_ended(struct ag_matcher *matcher, struct ag_node *node)
{
    if (node->ends < UINT32_MAX)
        node->ends++;
    matcher->ends++;
}

/* --- graphs --- */

static void list_graph(struct ag_matcher *matcher, struct ag_node *node, bool carries)
{
    uint32_t place = 0;

    if (carries) {
        matcher->graphs[matcher->n_graphs++] = node;
        return;
    }
    while (matcher->graphs[place] != node)
        place++;
    matcher->graphs[place] = matcher->graphs[--matcher->n_graphs];
}

struct ag_graph *ag_matcher_set_graph(struct ag_matcher *matcher, struct ag_node *node,
                                      struct ag_graph *graph)
{
    struct ag_graph *before = node->graph;

    node->graph = graph;
    if (!before == !graph)
        return before;
    list_graph(matcher, node, graph);
    for (struct ag_node *above = node->parent; above; above = above->parent) {
        if (graph)
            above->below++;
        else
            above->below--;
    }
    return before;
}

struct ag_node *ag_matcher_oldest_graph(struct ag_matcher *matcher)
{
    struct ag_node *oldest = NULL;

    for (uint32_t i = 0; i < matcher->n_graphs; i++) {
        if (!oldest || matcher->graphs[i]->used < oldest->used)
            oldest = matcher->graphs[i];
    }
    return oldest;
}

void ag_matcher_each_graph(struct ag_matcher *matcher,
                           void (*visit)(struct ag_node *node, void *data), void *data)
{
    for (uint32_t i = matcher->n_graphs; i > 0; i--) { /* backwards: it may be taken out */
        if (i <= matcher->n_graphs)
            visit(matcher->graphs[i - 1], data);
    }
}
