/* The trie of segments: see matcher.h.
 *
 * Nodes lie in one array, in the order in which they were made, so that following a known segment
 * walks forwards through memory. Two things must be cheap: following the child that was taken last
 * time (one comparison), and making new nodes without end, on a stream that never repeats. So a
 * quarter of all nodes is evicted at once, and what eviction reads lies apart from the nodes, close
 * together.
 *
 * The time of a node's last use (in ends of segments) is that of its ancestors, too: before nodes
 * are evicted they learn of it. So it never grows on the way down, and nodes older than some moment
 * form whole subtrees. Nodes with graphs, the node in hand, and their ancestors are kept. */
#include "graph/learn/matcher.h"

#include <stddef.h>
#include <string.h>

#include "interpose/core/base/hash.h"
#include "interpose/core/base/pages.h"

#define N_BUCKETS   256u
#define PART_BYTES  4096u /* what each part of the memory begins at a multiple of */
#define FIRST_READY 224u  /* nodes that are made ahead of time: 8 pages, with those beside them */
#define MOST_TIDIED 1024u /* nodes that are cleared, so that another stream may use the memory */

enum mark { EVICTABLE, KEPT, DOOMED };

/* What is kept of a node beside it, in the row of its number. */
struct beside {
    uint64_t used;   /* count of ends when a segment last ended here, or its graph was launched */
    uint32_t parent; /* number of its parent; of a free one, of the next free one, or 0 */
    uint32_t mark;   /* while room is made: enum mark */
};

/* The first part of the mapping that holds all that it points to. */
struct ag_matcher {
    size_t bytes;                /* of the mapping */
    uint32_t max_nodes, n_nodes; /* without the root */
    uint32_t n_fresh;            /* nodes of the array that were ever in use, with the root */
    uint32_t capacity;           /* of the table, a power of two */
    uint64_t ends;
    struct ag_node *nodes; /* nodes[0] is the root */
    struct beside *beside;
    uint32_t first_free;     /* number, 0 for none */
    uint32_t *table;         /* open addressing: numbers of nodes, 0 for an empty place */
    struct ag_node **graphs; /* those that carry one */
    uint32_t n_graphs;
};

static struct ag_freelist freelist; /* of the usual size */

/* --- the table of the children of wide nodes: those that had more than one --- */

static uint32_t child_place(const struct ag_matcher *matcher, const struct ag_node *parent,
                            uint64_t hash)
{
    return (uint32_t)ag_hash_entry(hash ^ parent->number, matcher->capacity);
}

static void enter_child(struct ag_matcher *matcher, const struct ag_node *child)
{
    uint32_t place = child_place(matcher, child->parent, child->hash);

    while (matcher->table[place])
        place = (place + 1) & (matcher->capacity - 1);
    matcher->table[place] = child->number;
}

/* What comes after it moves up where it may. */
static void remove_child(struct ag_matcher *matcher, const struct ag_node *child)
{
    uint32_t last = matcher->capacity - 1, hole = child_place(matcher, child->parent, child->hash);

    while (matcher->table[hole] != child->number)
        hole = (hole + 1) & last;
    for (uint32_t next = (hole + 1) & last; matcher->table[next]; next = (next + 1) & last) {
        const struct ag_node *node = &matcher->nodes[matcher->table[next]];
        uint32_t ideal = child_place(matcher, node->parent, node->hash);

        if (((next - ideal) & last) >= ((next - hole) & last)) {
            matcher->table[hole] = matcher->table[next];
            hole = next;
        }
    }
    matcher->table[hole] = 0;
}

static struct ag_node *find_in_table(const struct ag_matcher *matcher, const struct ag_node *parent,
                                     const struct ag_signature *signature, uint64_t hash)
{
    uint32_t place = child_place(matcher, parent, hash), number;

    for (; (number = matcher->table[place]); place = (place + 1) & (matcher->capacity - 1)) {
        struct ag_node *child = &matcher->nodes[number];

        if (child->parent == parent && ag_signature_equal(&child->signature, signature))
            return child;
    }
    return NULL;
}

/* --- memory --- */

/* Where the parts of the mapping begin, and its size. */
struct layout {
    uint32_t max_nodes, capacity; /* capacity: of the table */
    size_t beside, graphs, table, nodes, bytes;
};

static size_t part_end(size_t at, size_t n, size_t each)
{
    return (at + n * each + PART_BYTES - 1) & ~(size_t)(PART_BYTES - 1);
}

static struct layout lay_out(uint32_t max_nodes)
{
    size_t n = (size_t)max_nodes + 1;
    struct layout layout = {.max_nodes = max_nodes, .capacity = 16};

    while (layout.capacity / 2 < max_nodes)
        layout.capacity *= 2;
    layout.beside = sizeof(struct ag_matcher); /* beside the first nodes lie pages that are there */
    layout.graphs = part_end(layout.beside, n, sizeof(struct beside));
    layout.table = part_end(layout.graphs, n, sizeof(struct ag_node *));
    layout.nodes = part_end(layout.table, layout.capacity, sizeof(uint32_t));
    layout.bytes = part_end(layout.nodes, n, sizeof(struct ag_node));
    return layout;
}

static void set_up_parts(struct ag_matcher *matcher, const struct layout *layout)
{
    char *memory = (char *)matcher;

    *matcher = (struct ag_matcher){
        .bytes = layout->bytes,
        .max_nodes = layout->max_nodes,
        .n_fresh = 1,
        .capacity = layout->capacity,
        .beside = (struct beside *)(void *)(memory + layout->beside),
        .graphs = (struct ag_node **)(void *)(memory + layout->graphs),
        .table = (uint32_t *)(void *)(memory + layout->table),
        .nodes = (struct ag_node *)(void *)(memory + layout->nodes),
    };
}

static struct ag_matcher *make_matcher(uint32_t max_nodes)
{
    const struct layout layout = lay_out(max_nodes);
    struct ag_matcher *matcher = ag_pages_get(layout.bytes);

    if (matcher)
        set_up_parts(matcher, &layout);
    return matcher;
}

/* Is little to be cleared, for the next stream? */
static bool is_tidy(const struct ag_matcher *matcher)
{
    return matcher->max_nodes == AG_MATCHER_NODES && matcher->n_fresh <= MOST_TIDIED;
}

static void tidy_up(struct ag_matcher *matcher)
{
    const struct layout layout = lay_out(matcher->max_nodes);

    for (uint32_t i = 1; i < matcher->n_fresh; i++) {
        if (matcher->nodes[i].parent->is_wide)
            remove_child(matcher, &matcher->nodes[i]);
    }
    memset(matcher->nodes, 0, matcher->n_fresh * sizeof(matcher->nodes[0]));
    memset(matcher->beside, 0, matcher->n_fresh * sizeof(matcher->beside[0]));
    set_up_parts(matcher, &layout);
}

void ag_matcher_prepare(void)
{
    struct ag_matcher *matcher =
        ag_freelist_is_full(&freelist) ? NULL : make_matcher(AG_MATCHER_NODES);

    if (!matcher)
        return;
    ag_pages_ready(matcher, sizeof(*matcher) + FIRST_READY * sizeof(matcher->beside[0]));
    ag_pages_ready(matcher->nodes, FIRST_READY * sizeof(matcher->nodes[0]));
    ag_freelist_put_or_free(&freelist, matcher, matcher->bytes);
}

struct ag_matcher *ag_matcher_new(uint32_t max_nodes)
{
    struct ag_matcher *spare = max_nodes == AG_MATCHER_NODES ? ag_freelist_take(&freelist) : NULL;

    return spare ? spare : make_matcher(max_nodes);
}

void ag_matcher_free(struct ag_matcher *matcher,
                     void (*drop)(struct ag_variants *graphs, void *data), void *data)
{
    if (!matcher)
        return;
    for (uint32_t i = 0; i < matcher->n_graphs; i++)
        drop(matcher->graphs[i]->graphs, data);
    if (!is_tidy(matcher) || ag_freelist_is_full(&freelist)) {
        ag_pages_free(matcher, matcher->bytes);
        return;
    }
    tidy_up(matcher);
    ag_freelist_put_or_free(&freelist, matcher, matcher->bytes);
}

struct ag_node *ag_matcher_root(struct ag_matcher *matcher)
{
    return &matcher->nodes[0];
}

uint32_t ag_matcher_count(const struct ag_matcher *matcher)
{
    return matcher->n_nodes;
}

/* --- following --- */

struct ag_node *ag_matcher_follow(struct ag_matcher *matcher, struct ag_node *node,
                                  const struct ag_signature *signature, uint64_t hash)
{
    struct ag_node *child = ag_matcher_expect(node, signature);

    if (!child && node->is_wide)
        child = find_in_table(matcher, node, signature, hash);
    if (child)
        node->likely = child;
    return child;
}

/* --- evicting --- */

static void keep_path(struct ag_matcher *matcher, uint32_t number)
{
    for (; matcher->beside[number].mark != KEPT; number = matcher->beside[number].parent)
        matcher->beside[number].mark = KEPT;
}

/* A moment such that at least `wanted` evictable nodes, if there are so many, were used before it,
 * and few more: by histograms, each of the bucket where the one before it passed the number. */
static uint64_t choose_moment(const struct ag_matcher *matcher, uint32_t wanted)
{
    uint64_t low = 0;
    unsigned shift = 0; /* of the width of a bucket */

    while (matcher->ends >> shift >= N_BUCKETS)
        shift++;
    for (;;) {
        uint32_t counts[N_BUCKETS] = {0}, below = 0, bucket;

        for (uint32_t i = 1; i <= matcher->max_nodes; i++) {
            uint64_t which = (matcher->beside[i].used - low) >> shift;

            if (which < N_BUCKETS)
                counts[which] += matcher->beside[i].mark == EVICTABLE;
        }
        for (bucket = 0; bucket < N_BUCKETS - 1 && below + counts[bucket] < wanted; bucket++)
            below += counts[bucket];
        if (!shift || below + counts[bucket] <= wanted + wanted / 2)
            return low + ((bucket + 1ull) << shift);
        wanted -= below;
        low += (uint64_t)bucket << shift;
        shift = shift > 8 ? shift - 8 : 0;
    }
}

/* The last use of each node becomes that of its ancestors. Children mostly have larger numbers, so
 * most nodes find their parents at least as young. */
static void raise_uses(struct ag_matcher *matcher)
{
    struct beside *beside = matcher->beside;

    for (uint32_t i = matcher->max_nodes; i > 0; i--) {
        uint64_t used = beside[i].used;

        for (uint32_t at = beside[i].parent; beside[at].used < used; at = beside[at].parent)
            beside[at].used = used;
    }
}

static void unlink_node(struct ag_matcher *matcher, struct ag_node *node)
{
    if (node->parent->is_wide)
        remove_child(matcher, node);
    if (node->parent->likely == node)
        node->parent->likely = NULL;
}

static void doom(struct ag_matcher *matcher, const struct ag_node *in_hand)
{
    uint64_t moment;

    raise_uses(matcher);
    for (uint32_t i = 0; i <= matcher->max_nodes; i++)
        matcher->beside[i].mark = EVICTABLE;
    matcher->beside[0].mark = KEPT;
    keep_path(matcher, in_hand->number);
    for (uint32_t i = 0; i < matcher->n_graphs; i++)
        keep_path(matcher, matcher->graphs[i]->number);
    moment = choose_moment(matcher, matcher->max_nodes / 4 + 1);
    for (uint32_t i = 1; i <= matcher->max_nodes; i++) {
        struct beside *beside = &matcher->beside[i];

        if (beside->mark == EVICTABLE && beside->used < moment)
            beside->mark = DOOMED;
    }
}

/* Evicts paths; called only when all nodes are in use. */
static void evict_node(struct ag_matcher *matcher, const struct ag_node *in_hand)
{
    doom(matcher, in_hand);
    for (uint32_t i = 1; i <= matcher->max_nodes; i++) {
        if (matcher->beside[i].mark == DOOMED)
            unlink_node(matcher, &matcher->nodes[i]);
    }
    for (uint32_t i = matcher->max_nodes; i > 0; i--) { /* so that the list begins with the first */
        if (matcher->beside[i].mark != DOOMED)
            continue;
        matcher->nodes[i].parent = NULL;
        matcher->beside[i].parent = matcher->first_free;
        matcher->first_free = i;
        matcher->n_nodes--;
    }
}

/* --- growing --- */

/* The number of a node to be filled, or 0 when there is none. */
static uint32_t obtain_number(struct ag_matcher *matcher, const struct ag_node *in_hand)
{
    uint32_t number;

    if (matcher->n_nodes == matcher->max_nodes)
        evict_node(matcher, in_hand);
    number = matcher->first_free;
    if (matcher->n_fresh <= matcher->max_nodes)
        number = matcher->n_fresh++;
    else
        matcher->first_free = matcher->beside[number].parent;
    matcher->n_nodes += number != 0;
    return number;
}

struct ag_node *ag_matcher_grow(struct ag_matcher *matcher, struct ag_node *node,
                                const struct ag_signature *signature, uint64_t hash)
{
    struct ag_node *child = ag_matcher_follow(matcher, node, signature, hash);
    uint32_t number;

    if (child)
        return child;
    number = obtain_number(matcher, node);
    if (!number)
        return NULL;
    child = &matcher->nodes[number];
    *child = (struct ag_node){
        .signature = *signature,
        .hash = hash,
        .parent = node,
        .number = number,
        .depth = node->depth + 1,
    };
    if (node->likely && !node->is_wide) {
        node->is_wide = true;
        enter_child(matcher, node->likely);
    }
    if (node->is_wide)
        enter_child(matcher, child);
    node->likely = child;
    matcher->beside[child->number] = (struct beside){.used = matcher->ends, .parent = node->number};
    return child;
}

void ag_matcher_ended(struct ag_matcher *matcher, struct ag_node *node)
{
    if (node->ends < UINT32_MAX)
        node->ends++;
    matcher->ends++;
    ag_matcher_note_use(matcher, node);
}

void ag_matcher_note_use(struct ag_matcher *matcher, const struct ag_node *node)
{
    matcher->beside[node->number].used = matcher->ends;
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

struct ag_variants *ag_matcher_set_graphs(struct ag_matcher *matcher, struct ag_node *node,
                                          struct ag_variants *graphs)
{
    struct ag_variants *before = node->graphs;

    node->graphs = graphs;
    if (!before == !graphs)
        return before;
    list_graph(matcher, node, graphs);
    for (struct ag_node *above = node->parent; above; above = above->parent) {
        if (graphs)
            above->below++;
        else
            above->below--;
    }
    return before;
}

static uint64_t used_of(const struct ag_matcher *matcher, const struct ag_node *node)
{
    return matcher->beside[node->number].used;
}

struct ag_node *ag_matcher_oldest_graph(struct ag_matcher *matcher)
{
    struct ag_node *oldest = NULL;

    for (uint32_t i = 0; i < matcher->n_graphs; i++) {
        struct ag_node *node = matcher->graphs[i];

        if (!oldest || used_of(matcher, node) < used_of(matcher, oldest))
            oldest = node;
    }
    return oldest;
}
