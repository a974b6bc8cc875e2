/* ALLOGRAFT_GRAPH_VERIFY, a debugging aid: runs a segment both as its graph and one by one, and
 * compares the bytes.
 *
 * Compared is the device memory that parameters and copies name. Whatever else the segment changes
 * (variables of modules, memory that pointers in memory lead to) is changed twice, and what work
 * of other threads writes into the same blocks meanwhile may be lost. */
#ifndef AG_GRAPH_VERIFY_H
#define AG_GRAPH_VERIFY_H

#include <stdint.h>

#include "graph/record/op.h"
#include "graph/replay/builder.h"
#include "interpose/core/driver/abi.h"

struct ag_context;

enum ag_verify {
    AG_VERIFY_SKIPPED,    /* not possible: nothing was submitted */
    AG_VERIFY_UNCOMPARED, /* submitted, but the two could not be compared */
    AG_VERIFY_SAME,       /* submitted; so for DIFFERENT, which is said in a line of the log */
    AG_VERIFY_DIFFERENT,
};

/* Launches the graph with `ops` as ag_graph_launch does, puts the memory back, submits the n
 * operations one by one, and compares. Waits a bounded time, for the context before and for the
 * stream after. What was submitted has in effect been done once. The stream's context is current;
 * no lock held; outside captures. */
enum ag_verify ag_verify_segment(struct ag_context *context, struct ag_graph *graph,
                                 const struct ag_op *ops, uint32_t n, CUstream stream,
                                 uint32_t *ret_updated);

#endif
