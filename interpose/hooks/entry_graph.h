/* Looks into graphs that were captured. */
#ifndef AG_ENTRY_GRAPH_H
#define AG_ENTRY_GRAPH_H

#include "interpose/driver/abi.h"

/* A capture has ended with this graph: notes what its copies let the host see. Looks at every node,
 * unless frees wait anyway. */
void ag_entry_note_captured(CUgraph graph);

#endif
