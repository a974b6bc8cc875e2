/* The graph of one segment: built node by node (the program's streams are never captured), updated
 * where a payload changed, launched. Not locked: a graph belongs to one stream, whose owner calls.
 * Every function makes driver calls: the stream's context is current, no capture is open, and no
 * lock is held. */
#ifndef AG_GRAPH_BUILDER_H
#define AG_GRAPH_BUILDER_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/record/op.h"
#include "interpose/core/driver/abi.h"

struct ag_graph;

struct ag_graph_params {
    CUcontext context;
    int priority;     /* of the stream: nodes do not inherit it */
    uint32_t n_ops;   /* that will be added */
    uint32_t n_bytes; /* of their payloads, each rounded up to 8 */
};

/* The first driver function that replay needs and this driver lacks; NULL: replay is possible. */
const char *ag_graph_missing(void);

/* Submits one operation as the program would have: exactly once. `stream` is a handle,
 * CU_STREAM_LEGACY or CU_STREAM_PER_THREAD. Returns the driver's answer. */
CUresult ag_op_submit(const struct ag_op *op, CUstream stream);

/* Building in pieces: begin, add every operation in order (a straight chain), finish
 * (instantiates). After an error the graph is only to be destroyed. */
struct ag_graph *ag_graph_begin(const struct ag_graph_params *params, CUresult *ret_why);
CUresult ag_graph_add(struct ag_graph *graph, const struct ag_op *op);
CUresult ag_graph_finish(struct ag_graph *graph);

/* Has node `i` the payload of `op`, which has the same signature? Then it needs no update. */
bool ag_graph_has(const struct ag_graph *graph, uint32_t i, const struct ag_op *op);
/* Updates every node whose payload differs from `ops`, and launches. ops: the n_ops operations,
 * with the signatures that the graph was built of. On failure nothing was submitted, and the graph
 * must not be launched again. *ret_updated: nodes updated. The first launch uploads and takes
 * longer: about 1 us a node. */
CUresult ag_graph_launch(struct ag_graph *graph, const struct ag_op *ops, CUstream stream,
                         uint32_t *ret_updated);
/* The payloads that it was launched with last, of *ret_bytes. */
const unsigned char *ag_graph_payloads(const struct ag_graph *graph, uint32_t *ret_bytes);
/* It will probably be launched with these payloads next, which ag_graph_payloads() once gave:
 * updates what differs, for ag_graph_launch() to find nothing to do. At most `most` nodes, from
 * *at on, which is moved after the last one. Only kernels: of copies the driver checks addresses,
 * whose memory may be freed by now. Launches in flight are not changed. False: it is done, or
 * failed, and then must not be launched again. *ret_updated: nodes. */
bool ag_graph_prepare(struct ag_graph *graph, const unsigned char *payloads, uint32_t *at,
                      uint32_t most, uint32_t *ret_updated);
/* Launches in flight complete. NULL is allowed. */
void ag_graph_destroy(struct ag_graph *graph);
/* The context is gone, its graphs with it: frees what is ours. */
void ag_graph_forget(struct ag_graph *graph);

/* Estimate of the device's memory, in bytes. */
uint64_t ag_graph_bytes(const struct ag_graph *graph);
/* The driver's graph, as it was built. */
CUgraph ag_graph_handle(const struct ag_graph *graph);
/* Writes a DOT file into the folder; 0 or -errno. */
int ag_graph_dump(const struct ag_graph *graph, const char *folder, unsigned number);

#endif
