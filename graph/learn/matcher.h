/* A trie of the segments that a stream was seen to submit, keyed by signatures. Pure: knows no
 * CUDA, no clock. One for each stream; only its owner calls.
 *
 * A segment is a path from the root, one node for each operation. The node where it ended counts
 * its ends, and may carry graphs. */
#ifndef AG_GRAPH_MATCHER_H
#define AG_GRAPH_MATCHER_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/record/op.h"
#include "graph/tuning.h"

struct ag_variants; /* graph/learn/variants.h: the matcher only carries them */

struct ag_node {
    struct ag_signature signature; /* of the operation that leads here from the parent */
    uint64_t hash;
    struct ag_node *parent;
    struct ag_node *likely; /* the child taken last; of a node that is not wide, the only one */
    uint32_t number;        /* the matcher's */
    uint32_t depth;         /* operations from the root; 0 for the root */
    uint32_t ends;          /* segments that ended here */
    uint32_t below;   /* nodes with graphs in the subtree beneath this one, itself not counted */
    uint32_t refused; /* times that building or launching a graph failed here */
    bool is_wide;     /* its children are in the matcher's table */
    struct ag_variants *graphs;
};

struct ag_matcher;

/* A trie of at most max_nodes nodes beside the root. NULL without memory. */
struct ag_matcher *ag_matcher_new(uint32_t max_nodes);
/* Allocates ahead of time what ag_matcher_new(AG_MATCHER_NODES) hands out; a few at most. */
void ag_matcher_prepare(void);
/* `drop` gets all graphs that are still carried. */
void ag_matcher_free(struct ag_matcher *matcher,
                     void (*drop)(struct ag_variants *graphs, void *data), void *data);

struct ag_node *ag_matcher_root(struct ag_matcher *matcher);
/* The child of `node` that was taken last, if this operation leads there; else NULL. What comes as
 * expected needs no hash. */
static inline struct ag_node *ag_matcher_expect(const struct ag_node *node,
                                                const struct ag_signature *signature)
{
    struct ag_node *child = node->likely;

    return child && ag_signature_equal(&child->signature, signature) ? child : NULL;
}
/* The child of `node` that this operation leads to, or NULL. */
struct ag_node *ag_matcher_follow(struct ag_matcher *matcher, struct ag_node *node,
                                  const struct ag_signature *signature, uint64_t hash);
/* Does what ag_matcher_follow() does, but makes a missing child. When all nodes are in use, it
 * evicts paths without graphs, least recently used first, and never an ancestor of `node`. NULL
 * when that does not help. */
struct ag_node *ag_matcher_grow(struct ag_matcher *matcher, struct ag_node *node,
                                const struct ag_signature *signature, uint64_t hash);
/* A segment ended at `node` (not the root); a graph of it was launched. */
void ag_matcher_ended(struct ag_matcher *matcher, struct ag_node *node);
void ag_matcher_note_use(struct ag_matcher *matcher, const struct ag_node *node);
/* Sets a node's graphs, or takes them away (NULL), and updates `below` of its ancestors. Returns
 * those that it had. */
struct ag_variants *ag_matcher_set_graphs(struct ag_matcher *matcher, struct ag_node *node,
                                          struct ag_variants *graphs);
/* The node with graphs that was least recently used, for the bound on graphs; or NULL. */
struct ag_node *ag_matcher_oldest_graph(struct ag_matcher *matcher);
uint32_t ag_matcher_count(const struct ag_matcher *matcher);

#endif
