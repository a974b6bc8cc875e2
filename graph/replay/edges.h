/* The edges of a graph whose operations are of several branches (graph/forks.h): which nodes the
 * next node of a branch comes behind, and what its events cover. Used while one graph is built; not
 * locked. */
#ifndef AG_GRAPH_EDGES_H
#define AG_GRAPH_EDGES_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/record/op.h"
#include "interpose/driver/abi.h"

struct ag_edges;

struct ag_edges *ag_edges_new(void); /* NULL without memory */
void ag_edges_free(struct ag_edges *edges);

/* The nodes that the next one of the branch depends on: *ret_n of them, until the next call. */
const CUgraphNode *ag_edges_before(const struct ag_edges *edges, uint32_t branch, uint32_t *ret_n);
/* The branch has that node now, behind all it had before. */
void ag_edges_add(struct ag_edges *edges, uint32_t branch, CUgraphNode node);
/* Takes in a record of an event, or a wait. False: there are too many events, or too many nodes to
 * wait for. */
bool ag_edges_mark(struct ag_edges *edges, const struct ag_op *op);
/* Adds a node for the last record of each event. Makes driver calls. */
CUresult ag_edges_finish(const struct ag_edges *edges, CUgraph graph);
/* Does every branch but the first end with an event that is not recorded again? */
bool ag_edges_are_closed(const struct ag_edges *edges);
/* The event that ends the branch; NULL: there is no such branch. */
CUevent ag_edges_last_event(const struct ag_edges *edges, uint32_t branch);

#endif
