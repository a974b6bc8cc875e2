/* What `allograft trace` makes of a trace. */
#ifndef TOOLS_TRACE_OUT_H
#define TOOLS_TRACE_OUT_H

#include <stdint.h>
#include <stdio.h>

#include "tools/trace/trace_file.h"

/* A string of JSON with its quotes; bytes that are not UTF-8 come out as U+FFFD. */
void trace_json_string(FILE *out, const char *text);

/* Each false when memory runs out. Errors of writing stay in `out`. device: as for trace_walk(). */

/* The JSON that Perfetto and chrome://tracing read: memory as counters, slices for replays and for
 * allocations and frees that took `slow_ns` or more, instants for reasons, steps, failures and
 * marks. */
bool trace_write_perfetto(const struct trace *trace, int device, uint64_t slow_ns, FILE *out);
/* The columns of RMM's logging resource adaptor, which its replay benchmark reads. */
bool trace_write_rmm(const struct trace *trace, int device, FILE *out);
/* Text for people. */
bool trace_write_summary(const struct trace *trace, int device, FILE *out);

#endif
