/* A trie of the segments a stream has been seen to submit, keyed by signatures. Pure: knows no
 * CUDA, no clock. One per stream; its owner is the only one that calls.
 *
 * A segment is the run of operations from one end (a flush, a boundary) to the next. It is a path
 * from the root; the node where it ended has `ends` counted, and may carry graphs. */
#ifndef AG_GRAPH_MATCHER_H
#define AG_GRAPH_MATCHER_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/record/op.h"

struct ag_variants; /* graph/learn/variants.h: the matcher only carries them */

struct ag_node {
    struct ag_signature signature; /* of the operation that leads here from the parent */
    uint64_t hash;
    struct ag_node *parent, *first_child, *next_sibling, *prev_sibling;
    struct ag_node *likely; /* the child taken last */
    uint32_t number;        /* the matcher's */
    uint32_t depth;         /* operations from the root; 0 for the root */
    uint32_t ends;          /* segments that ended here */
    uint32_t below;   /* nodes with graphs in the subtree beneath this one, itself not counted */
    uint32_t refused; /* times that building or launching a graph failed here */
    bool is_wide;     /* its children are in the matcher's table */
    struct ag_variants *graphs;
};

struct ag_matcher;

/* At most max_nodes nodes beside the root. NULL without memory. */
struct ag_matcher *ag_matcher_new(uint32_t max_nodes);
/* Makes what the next ag_matcher_new(AG_MATCHER_NODES) hands out; a few at most. */
#define AG_MATCHER_NODES (1u << 16)
void ag_matcher_prepare(void);
/* `drop` gets all graphs that are still carried. */
void ag_matcher_free(struct ag_matcher *matcher,
                     void (*drop)(struct ag_variants *graphs, void *data), void *data);

struct ag_node *ag_matcher_root(struct ag_matcher *matcher);
/* The child of `node` that this operation leads to, or NULL. */
struct ag_node *ag_matcher_follow(struct ag_matcher *matcher, struct ag_node *node,
                                  const struct ag_signature *signature, uint64_t hash);
/* As follow, makes it where it is missing; evicts paths without graphs, least recently used first,
 * when the nodes are used up. NULL when that does not help, and on streams that hardly repeat
 * anything, where a path only branches at an operation that comes there for the second time. Never
 * evicts an ancestor of `node`. */
struct ag_node *ag_matcher_grow(struct ag_matcher *matcher, struct ag_node *node,
                                const struct ag_signature *signature, uint64_t hash);
/* A segment ended at `node` (not the root). */
void ag_matcher_ended(struct ag_matcher *matcher, struct ag_node *node);
/* Sets or takes away (NULL) a node's graphs and keeps `below` of its ancestors right. Returns those
 * that were there. */
struct ag_variants *ag_matcher_set_graphs(struct ag_matcher *matcher, struct ag_node *node,
                                          struct ag_variants *graphs);
/* The node with graphs that was passed the longest time ago, for the bound on graphs; or NULL. */
struct ag_node *ag_matcher_oldest_graph(struct ag_matcher *matcher);
/* Calls `visit` for every node that carries graphs. `visit` may set_graphs(NULL). */
void ag_matcher_each_graph(struct ag_matcher *matcher,
                           void (*visit)(struct ag_node *node, void *data), void *data);
uint32_t ag_matcher_count(const struct ag_matcher *matcher);

#endif
