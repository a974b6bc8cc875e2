/* What a copy of a box is about: kinds of memory, and addresses without offsets in other members.
 */
#ifndef AG_GRAPH_BOX_H
#define AG_GRAPH_BOX_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/record/memory.h"
#include "interpose/core/driver/abi.h"

/* What [address, address + bytes) is: one of the questions of memory.h. */
typedef enum ag_memory ag_memory_asked(uint64_t address, uint64_t bytes);

/* Asks `kind` what both sides are, and writes into `copy` the type of each (HOST or DEVICE, no
 * longer UNIFIED) and the address that it has; the offsets stay. False: arrays, unknown memory, or
 * a geometry that the driver would refuse, or may; `copy` is then partly changed. */
bool ag_box_resolve(CUDA_MEMCPY3D *copy, ag_memory_asked *kind, enum ag_memory *ret_to,
                    enum ag_memory *ret_from);
/* The same copy in three dimensions. */
CUDA_MEMCPY3D ag_box_of_rectangle(const CUDA_MEMCPY2D *copy);

#endif
