/* Nodes that copy or fill name memory by more than its address: the driver looks up what is there
 * when they are set, and a launch of the graph crashes once that is gone. So movable memory that
 * such a node names stays where it is. Kernel nodes name addresses, which stay right. */
#ifndef AG_HOOKS_GRAPH_MEMORY_H
#define AG_HOOKS_GRAPH_MEMORY_H

#include "interpose/core/driver/abi.h"

/* Called before the driver has the node: the memory comes to the device, if it can, and stays.
 * NULL: nothing, as in calls that the driver refuses. */
void ag_graph_memory_of_copy(const CUDA_MEMCPY3D *copy);
void ag_graph_memory_of_fill(const CUDA_MEMSET_NODE_PARAMS *fill);
/* A capture has ended with this graph. While it was open, nothing moved. What its nodes name comes
 * now, and they are set once more. An error: the driver has refused that when it was too late. */
CUresult ag_graph_memory_of_captured(CUgraph graph);

#endif
