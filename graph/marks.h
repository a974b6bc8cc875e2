/* Which streams are replayed (ALLOGRAFT_GRAPH), and where iterations begin
 * (ALLOGRAFT_GRAPH_ITERATION). */
#ifndef AG_GRAPH_MARKS_H
#define AG_GRAPH_MARKS_H

#include <stdbool.h>
#include <stdint.h>

#include "abi.h"
#include "options.h"

/* What is known of a stream. */
struct ag_stream_facts {
    CUstream handle; /* CU_STREAM_LEGACY, CU_STREAM_PER_THREAD or a handle */
    bool nonblocking;
    int priority;
    uint64_t number;  /* the program's n-th created stream, from 1; 0 for the two above and unknown
                         ones */
    const char *name; /* by NVTX, or NULL */
};

void ag_marks_configure(const struct ag_options *options);
/* Is graph replay asked for at all? */
bool ag_marks_any(void);
/* Is a stream marked? */
bool ag_marks_stream(const struct ag_stream_facts *facts);

/* Names given by NVTX: set (a copy is kept; NULL takes it away), and asked for; `out` gets it. */
void ag_marks_name(CUstream stream, const char *name);
bool ag_marks_name_of(CUstream stream, char *out, uint32_t size);

/* The calling thread met an iteration mark (an NVTX range of the name begun, a mark): the next
 * operation it submits begins an iteration. True once per mark. */
void ag_marks_iteration(void);
bool ag_marks_take_iteration(void);

#endif
