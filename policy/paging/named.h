/* Which movable memory launches name: in the parameters of a kernel, and in those of the kernels of
 * a graph, which are looked at when it is instantiated or brought up to date. */
#ifndef AG_PAGING_NAMED_H
#define AG_PAGING_NAMED_H

#include "policy/managed/launch.h"

#define AG_MOST_NAMED 64u /* addresses of one launch */

struct ag_name {
    CUdeviceptr address, range; /* in the range, or the part of it, that begins there */
    CUdeviceptr end;            /* of what is used of it; 0: that of the range */
    unsigned uses;              /* kernels that name it */
    unsigned crossings;         /* of the bus, as which these uses cost (toll.h) */
    uint32_t offset;            /* where in the parameters of a kernel */
    size_t reach;               /* bytes that a kernel uses of it at most; 0: nobody knows */
};

/* The names of a launch, the highest address first: what lies after two of them is most likely used
 * by the one that is nearer. */
struct ag_names {
    struct ag_name at[AG_MOST_NAMED];
    unsigned n;
    uint64_t others; /* a hash of the parameters' other words, which say how much it uses */
};

/* The kernel, with its grid and so on, and one of its parameters: the operand of toll.h. */
uint64_t ag_name_kernel(const struct ag_launch *launch);
uint64_t ag_name_operand(uint64_t kernel, const struct ag_name *name);

/* What the launch of a kernel names. Outside captures. */
void ag_name_launch(struct ag_names *names, const struct ag_launch *launch);

/* The graph that can be launched was made of this graph, or has been brought up to date by it. What
 * its single nodes are set to afterwards is not known. */
void ag_name_graph(CUgraphExec exec, CUgraph graph);
void ag_name_graph_gone(CUgraphExec exec);
/* Called with the lock of the ranges held: *ret_n of them. NULL: nothing is known of it. */
const struct ag_name *ag_names_of_graph(CUgraphExec exec, unsigned *ret_n);

/* A forked child has no graphs. */
void ag_names_begin_child(void);

#endif
