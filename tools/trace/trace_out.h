/* trace_out.h: the forms in which `allograft trace` writes a trace. */
#ifndef TOOLS_TRACE_OUT_H
#define TOOLS_TRACE_OUT_H

#include <stdint.h>
#include <stdio.h>

#include "tools/trace/trace_file.h"

/* Writes a JSON string with its quotes; bytes that are not UTF-8 become U+FFFD. */
void trace_json_string(FILE *out, const char *text);

/* These return false when memory runs out. ferror(out) tells of write errors. device: as for
 * trace_walk(). */

/* Writes JSON for Perfetto and chrome://tracing: counters for memory; slices for graph launches,
 * and for allocations and frees that took `slow_ns` or more; instants for flushes, pressure,
 * failures and marks. */
bool trace_write_perfetto(const struct trace *trace, int device, uint64_t slow_ns, FILE *out);
/* Writes the columns of RMM's logging resource adaptor, which its replay benchmark reads. */
bool trace_write_rmm(const struct trace *trace, int device, FILE *out);
/* Writes a snapshot as PyTorch's memory_viz reads it (torch_snapshot.h). */
bool trace_write_torch(const struct trace *trace, int device, FILE *out);
/* Writes a summary for people. */
bool trace_write_summary(const struct trace *trace, int device, FILE *out);

#endif
