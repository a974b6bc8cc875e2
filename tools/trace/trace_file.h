/* trace_file.h: reads traces (interpose/core/report/trace/trace_format.h): events in order of time,
 * memory over time, and call sites. Files may be truncated, damaged or malicious: impossible values
 * are refused or skipped. */
#ifndef TOOLS_TRACE_FILE_H
#define TOOLS_TRACE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "interpose/core/report/trace/trace_format.h"

struct trace;

#define TRACE_SIMULATED "ran on the simulated driver, not on a GPU: times mean nothing"

struct trace_info {
    int pid, rank; /* rank -1: none */
    const char *program, *host, *allograft;
    uint64_t opened_real_ns;     /* wall clock at opened_ns */
    uint64_t opened_ns, last_ns; /* first and last time in the trace, since the process began */
    uint64_t n_events, n_dropped;
    uint64_t n_kinds[256]; /* events of each kind */
    const char *ended_by;  /* NULL: not known, as the process is running or was killed */
    bool cut;              /* truncated within a unit or text */
    bool simulated;        /* then every output says TRACE_SIMULATED */
};

/* An event. Times are in nanoseconds since the process began. */
struct trace_event {
    uint64_t began_ns, duration_ns;
    uint64_t address, size, stream, caller;
    uint32_t thread;
    uint8_t kind, placement;
    int16_t device;
    uint16_t module, code;
};

/* Returns NULL, and one line in `why`, if the file cannot be read or is not a trace. */
struct trace *trace_open(const char *path, char *why, size_t why_size);
/* Opens a trace of bytes in memory, which stay the caller's and must not change. */
struct trace *trace_of_bytes(const void *bytes, size_t n, char *why, size_t why_size);
void trace_close(struct trace *trace);
/* Was the file truncated since it was opened? Then some of what was read was not in it. */
bool trace_is_torn(const struct trace *trace);

const struct trace_info *trace_info(const struct trace *trace);
/* Event i < n_events in order of time, which is the end of allocations (failed ones, too) and the
 * beginning of all others. */
struct trace_event trace_event(const struct trace *trace, size_t i);
/* The text of a number, "?" if the file has none; a module's text is its path. Valid until
 * trace_close(). */
const char *trace_text(const struct trace *trace, enum ag_trace_text space, unsigned number);
/* The address at which the module was loaded, 0: not known; its build-id in digits, or "". */
uint64_t trace_module_base(const struct trace *trace, unsigned number);
const char *trace_module_build_id(const struct trace *trace, unsigned number);
/* The name of a placement. */
const char *trace_place(const struct trace *trace, unsigned placement);

#define TRACE_NO_STACK UINT32_MAX

/* The state of memory after an event. */
struct trace_state {
    struct trace_event event;
    uint64_t level[AG_TRACE_N_PLACES]; /* bytes in use, by placement */
    uint64_t total;
    /* The block of a free or a move, if its allocation is in the trace. */
    bool known, temporary; /* temporary: freed before any other allocation */
    uint64_t size, allocated_ns;
    unsigned from; /* its placement before the event */
    uint16_t module;
    uint64_t caller; /* the call site of its allocation */
    uint32_t stack;  /* its stack's number in the process's report, TRACE_NO_STACK: not known */
};

/* Calls `visit` for each event of a device in order; AG_TRACE_NO_DEVICE: of all devices. False when
 * memory runs out. */
bool trace_walk(const struct trace *trace, int device,
                void (*visit)(const struct trace_state *state, void *data), void *data);

/* A block that is never freed in the trace. */
struct trace_block {
    uint64_t address, size, stream, caller, allocated_ns;
    uint32_t stack;
    uint16_t module;
};
/* Writes to *ret_blocks, which the caller frees, the blocks that are left at the end, by address.
 * Their number; -1 when memory runs out. */
long trace_left(const struct trace *trace, int device, struct trace_block **ret_blocks);

/* Memory over time: the least and the most in each of `n` intervals of equal length. */
struct trace_bucket {
    uint64_t from_ns;
    uint64_t least[AG_TRACE_N_PLACES], most[AG_TRACE_N_PLACES];
    uint64_t most_total;
};
bool trace_memory(const struct trace *trace, int device, size_t n,
                  struct trace_bucket *ret_buckets);

/* A call site of allocations. */
struct trace_site {
    uint16_t module;
    uint64_t caller;
    uint64_t n_allocs, n_temporary, bytes;
};
/* Writes up to `most` sites, those with most bytes first. Returns their number; -1 when memory runs
 * out. */
long trace_sites(const struct trace *trace, int device, size_t most, struct trace_site *ret_sites);
/* "library.so+0x1234" for people; returns buffer. */
const char *trace_site_name(const struct trace *trace, unsigned module, uint64_t caller,
                            char *buffer, size_t size);

#endif
