/* ALLOGRAFT_GRAPH_DUMP: writes a graph as a DOT file, by the driver. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "graph/replay/builder.h"
#include "interpose/core/driver/driver.h"

int ag_graph_dump(const struct ag_graph *graph, const char *folder, unsigned number)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof(path), "%s/allograft-%ld-%u.dot", folder, (long)getpid(), number);

    if (n < 0 || (size_t)n >= sizeof(path))
        return -ENAMETOOLONG;
    if (!ag_cu.cuGraphDebugDotPrint)
        return -ENOSYS;
    return ag_cu.cuGraphDebugDotPrint(ag_graph_handle(graph), path,
                                      CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE) == CUDA_SUCCESS
               ? 0
               : -EIO;
}
