/* The thread that writes the trace, and the file. */
#ifndef AG_TRACE_WRITER_H
#define AG_TRACE_WRITER_H

#include <stdint.h>

/* Begins the trace of this process in the file `path`, whose memory for events not yet written is
 * `ring_bytes` for each slot of threads. When that cannot be done, one line says so, and there is
 * none. */
void ag_trace_begin(const char *path, uint64_t ring_bytes);
/* Writes what there is, and that the process ends; within a bounded time, which the file system may
 * part. `ended_by` as in ag_report_write(). After "exec" the trace goes on, should that fail. */
void ag_trace_finish(const char *ended_by);
/* A forked child: the parent's file and thread are not its own. */
void ag_trace_begin_child(void);

#endif
