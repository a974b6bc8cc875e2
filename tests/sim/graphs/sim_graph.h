/* sim_graph.h: graphs and captures, for the files that build and run them. */
#ifndef SIM_GRAPH_H
#define SIM_GRAPH_H

#include "tests/sim/sim_internal.h"

/* The addresses of one allocation node, shared with its clones. */
struct sim_graph_memory {
    unsigned refs;
    int device;
    CUdeviceptr base;
    size_t size, taken;
    CUmemPoolProps props;
    unsigned n_blocks; /* of launches whose free has not run */
    bool counts_as_used;
    bool reserved; /* there is memory behind it: not from a trim to the next launch */
    struct sim_graph_memory *next;
};

#define SIM_NAMED 2 /* blocks that a copy or fill names at most */

struct CUgraphNode_st {
    CUgraph graph;
    CUgraphNodeType type;
    struct sim_work work;
    unsigned long long named[SIM_NAMED]; /* blocks it was made of, by id; 0: none */
    CUcontext ctx;                       /* where it runs; NULL: where the graph is launched */
    CUgraphNode *before;
    CUgraphEdgeData *edges; /* of each of `before` */
    unsigned n_before;
    CUgraphNode original; /* what this was cloned from; a name, not to be followed */
    unsigned long long id;
    bool disabled;
    void **param_pointers; /* what the getters hand out */
    struct sim_graph_memory *memory;
    CUdeviceptr freed; /* of a free node */
    CUlaunchAttributeValue *attributes;
    unsigned mark;
    struct sim_op *op; /* during a launch */
};

struct CUgraph_st {
    CUgraphNode *nodes; /* in order of creation */
    unsigned n_nodes, capacity;
    CUgraphNode parent; /* child graphs belong to their node */
    bool instantiated;
    CUuserObject *objects;
    unsigned n_objects;
};

struct CUgraphExec_st {
    CUgraph graph; /* a clone of its own */
    cuuint64_t flags;
    CUcontext ctx;
    int card; /* that holds it */
    size_t card_bytes;
    bool uploaded;
    struct sim_op *last; /* end of the last launch: launches of one graph do not overlap */
};

struct sim_capture {
    bool open, valid, into_graph;
    unsigned long long id;
    CUgraph graph;
    CUstreamCaptureMode mode;
    int thread;
    CUcontext ctx;
    CUstream origin;
    CUgraphNode *left; /* the last nodes of streams that were destroyed meanwhile */
    size_t n_left;
    struct sim_capture *next;
};

/* graph.c */
CUgraph sim_graph_new(void);
void sim_graph_delete(CUgraph graph);
CUgraph sim_graph_clone(CUgraph graph);
/* Takes the work over, also on failure. */
CUresult sim_graph_add(CUgraph graph, CUgraphNodeType type, struct sim_work *work, CUcontext ctx,
                       const CUgraphNode *before, size_t n_before, CUgraphNode *ret_node);
void sim_graph_set_tail(CUgraphNode **tail, size_t *n_tail, const CUgraphNode *nodes, size_t n);
/* Fills order[n_nodes] so that each node follows those it depends on; false: there is a cycle. */
bool sim_graph_sort(CUgraph graph, CUgraphNode *order);
/* The node has the work from now on, and what that names it names as it is now. */
void sim_graph_set_work(CUgraphNode node, const struct sim_work *work);
/* Is there other memory, or none, where one of its nodes names some? Reported. */
void sim_graph_check_named(CUgraph graph);
bool sim_graph_node_before(CUgraphNode node, CUgraphNode other);
bool sim_graph_edge_ok(CUgraphNode from, CUgraphNodeType to, const CUgraphEdgeData *edge);
CUgraphNode sim_graph_find_clone(CUgraph graph, CUgraphNode original);

/* graph_memory.c */
CUresult sim_graph_memory_new(size_t bytes, const CUmemPoolProps *props,
                              struct sim_graph_memory **ret_memory);
void sim_graph_memory_unref(struct sim_graph_memory *memory);
/* A launch has it until sim_graph_block_gone. */
void sim_graph_block_begins(struct sim_graph_memory *memory);
/* A launch is going to use it: takes what a trim has given back. */
CUresult sim_graph_memory_reserve(struct sim_graph_memory *memory);
CUresult sim_graph_add_alloc(CUgraph graph, CUcontext ctx, const CUgraphNode *before,
                             size_t n_before, size_t bytes, const CUmemPoolProps *props,
                             CUdeviceptr *ret_p, CUgraphNode *ret_node);
CUresult sim_graph_add_free(CUgraph graph, CUcontext ctx, const CUgraphNode *before,
                            size_t n_before, CUdeviceptr p, CUgraphNode *ret_node);

/* graph_nodes.c */
CUresult sim_graph_work_of(const CUgraphNodeParams *params, struct sim_work *work,
                           CUcontext *ret_ctx);
CUgraphNodeType sim_graph_type_of(enum sim_work_kind kind);
bool sim_graph_node_ok(CUgraphNode node, CUgraphNodeType type);

/* graph_exec.c */
bool sim_exec_ok(CUgraphExec exec);

#endif
