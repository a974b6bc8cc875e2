/* Looks for pageable memory in what copies: in graphs that were captured, and in operands. */
#ifndef AG_ENTRY_GRAPH_H
#define AG_ENTRY_GRAPH_H

#include <stdbool.h>

#include "interpose/core/driver/abi.h"

/* Memory that the driver does not know. When in doubt, it is. */
bool ag_entry_is_pageable(CUdeviceptr address);

/* A capture has ended with this graph: notes what its copies let the host see. Looks at every node,
 * unless frees wait anyway. An error: the capture is to have failed with it, and *graph is NULL. */
CUresult ag_entry_note_captured(CUgraph *graph);

#endif
