/* The driver says how many nodes there are, and then which. */
#include "interpose/core/driver/graph_nodes.h"

#include "interpose/core/base/pages.h"
#include "interpose/core/driver/driver.h"

bool ag_graph_nodes_get(CUgraph graph, struct ag_graph_nodes *ret)
{
    ret->n = 0;
    if (ag_cu.cuGraphGetNodes(graph, NULL, &ret->n) != CUDA_SUCCESS)
        return false;
    ret->most = ret->n;
    ret->at = ret->n <= AG_GRAPH_NODES_FEW ? ret->few : ag_pages_get(ret->n * sizeof(CUgraphNode));
    if (!ret->n || (ret->at && ag_cu.cuGraphGetNodes(graph, ret->at, &ret->n) == CUDA_SUCCESS)) {
        ret->n = ret->n < ret->most ? ret->n : ret->most;
        return true;
    }
    ag_graph_nodes_free(ret);
    return false;
}

void ag_graph_nodes_free(struct ag_graph_nodes *nodes)
{
    if (nodes->at && nodes->at != nodes->few)
        ag_pages_free(nodes->at, nodes->most * sizeof(CUgraphNode));
}
