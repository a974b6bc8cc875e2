/* The nodes of a graph of the program's, which the driver copies out. */
#ifndef AG_DRIVER_GRAPH_NODES_H
#define AG_DRIVER_GRAPH_NODES_H

#include <stdbool.h>
#include <stddef.h>

#include "interpose/core/driver/abi.h"

#define AG_GRAPH_NODES_FEW 64u /* those for which no page is asked of the kernel */

struct ag_graph_nodes {
    CUgraphNode *at;
    size_t n, most;
    CUgraphNode few[AG_GRAPH_NODES_FEW];
};

/* False, and nothing is to be freed, where the driver does not tell or there is no memory. Of a
 * graph that another thread changes meanwhile, which no program may do, those that were there.
 * Needs cuGraphGetNodes. */
bool ag_graph_nodes_get(CUgraph graph, struct ag_graph_nodes *ret);
void ag_graph_nodes_free(struct ag_graph_nodes *nodes);

#endif
