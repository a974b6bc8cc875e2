/* thin.h: memory over time in few points, with every peak as it was. */
#ifndef TOOLS_THIN_H
#define TOOLS_THIN_H

#include "tools/trace/trace_file.h"

struct thin_point {
    uint64_t ns, order; /* since the process began; among all events */
    uint64_t level[AG_TRACE_N_PLACES], total;
    bool is_kept;
};

/* Writes to *ret_points, which the caller frees, states that the memory of all devices was in, in
 * order of time: of each of `n_parts` equal parts of the trace the first and the last, those with
 * least and most memory, and that with most of each placement. Their number; -1 when memory runs
 * out. */
long thin_memory(const struct trace *trace, size_t n_parts, struct thin_point **ret_points);

#endif
