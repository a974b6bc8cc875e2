/* The executable graphs that the program instantiates itself, and what they cost in memory. They
 * are always counted. What the driver takes of a device for them is measured only where a report
 * with all counts was asked for: it costs two questions to the driver for each graph that is
 * instantiated or launched for the first time. */
#ifndef AG_POLICY_APP_GRAPHS_H
#define AG_POLICY_APP_GRAPHS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "interpose/core/driver/abi.h"
#include "policy/pressure.h"

/* Called before the first graph. `measures`: free memory is asked for before and after. */
void ag_app_graphs_configure(bool measures);

/* One such call; the caller's, for as long as it takes. */
struct ag_app_graphs_span {
    int device;              /* -1: nothing is measured */
    struct ag_relief relief; /* where it finds no memory */
};

/* Called before an instantiation, after we have returned memory to the driver for it, and after
 * it. */
void ag_app_graphs_begin(struct ag_app_graphs_span *span);
void ag_app_graphs_relieved(const struct ag_app_graphs_span *span);
void ag_app_graphs_instantiated(const struct ag_app_graphs_span *span, const CUgraphExec *exec,
                                CUresult result);

/* Called before the driver destroys a graph, since its handle may be another's afterwards, and
 * after it. */
void ag_app_graphs_destroying(CUgraphExec exec);
void ag_app_graphs_destroyed(CUresult result);

/* Executable graphs whose first launch is still to be measured. Relaxed: who launches one got it
 * after it was counted. */
extern _Atomic unsigned ag_app_graphs_unlaunched;

/* May a launch or upload go straight to the driver? */
static inline bool ag_app_graphs_pass(void)
{
    return !atomic_load_explicit(&ag_app_graphs_unlaunched, memory_order_relaxed);
}

/* Called before and after a launch or an upload of a graph. */
void ag_app_graphs_launching(struct ag_app_graphs_span *span, CUgraphExec exec);
void ag_app_graphs_launched(const struct ag_app_graphs_span *span);

/* The process ends and the driver is still there: asks what its pools for memory nodes hold, in the
 * helper's thread (base/threads/helper.h). */
void ag_app_graphs_exit(void);
/* Is there anything to ask? */
bool ag_app_graphs_met(void);
/* A forked child has no graphs. */
void ag_app_graphs_begin_child(void);

#endif
