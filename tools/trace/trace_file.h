/* Reads traces (interpose/report/trace_format.h): events in order of time, what memory there was,
 * who asked for it. Files may be cut, damaged or made to harm: what cannot be is refused or passed
 * over. */
#ifndef TOOLS_TRACE_FILE_H
#define TOOLS_TRACE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "interpose/report/trace_format.h"

struct trace;

#define TRACE_SIMULATED "ran on the simulated driver, not on a GPU: times mean nothing"

struct trace_info {
    int pid, rank; /* rank -1: none */
    const char *program, *host, *allograft;
    uint64_t opened_real_ns;     /* wall clock at opened_ns */
    uint64_t opened_ns, last_ns; /* since the process began: the trace's begin and its last event */
    uint64_t n_events, n_dropped;
    uint64_t n_kinds[256]; /* events of each kind */
    const char *ended_by;  /* NULL: not known, as of a process that runs or was killed */
    bool cut;              /* ends in the middle of a unit or text */
    bool simulated;        /* TRACE_SIMULATED is to be said */
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

/* NULL, and why in one line, when the file cannot be read or is no trace. */
struct trace *trace_open(const char *path, char *why, size_t why_size);
/* The same of bytes in memory, which stay the caller's and must stay as they are. */
struct trace *trace_of_bytes(const void *bytes, size_t n, char *why, size_t why_size);
void trace_close(struct trace *trace);
/* Did the file become shorter since it was opened? What was read of it then is not what it said. */
bool trace_is_torn(const struct trace *trace);

const struct trace_info *trace_info(const struct trace *trace);
/* Event i < n_events, in order of time: allocations, also failed ones, by their end, all others by
 * their begin. */
struct trace_event trace_event(const struct trace *trace, size_t i);
/* The text of a number; "?" when the file has none. Of a module its path. Valid until
 * trace_close(). */
const char *trace_text(const struct trace *trace, enum ag_trace_text space, unsigned number);
/* Where the module lay in memory, 0 when not known; its build-id in digits, or "". */
uint64_t trace_module_base(const struct trace *trace, unsigned number);
const char *trace_module_build_id(const struct trace *trace, unsigned number);
/* The name of a placement of an event. */
const char *trace_place(const struct trace *trace, unsigned placement);

/* What there is behind an event. */
struct trace_state {
    struct trace_event event;
    uint64_t level[AG_TRACE_N_PLACES]; /* bytes that the program has, by placement */
    uint64_t total;
    /* Of a free or a move: the block, if its allocation is in the trace. */
    bool known, temporary; /* temporary: freed before any other allocation */
    uint64_t size, allocated_ns;
    unsigned from; /* its placement until now */
    uint16_t module;
    uint64_t caller; /* of its allocation */
};

/* Calls `visit` for each event in order. device: of that one only, or AG_TRACE_NO_DEVICE for all.
 * False when memory runs out. */
bool trace_walk(const struct trace *trace, int device,
                void (*visit)(const struct trace_state *state, void *data), void *data);

/* Memory over time in `n` parts of equal length: the least and the most in each. */
struct trace_bucket {
    uint64_t from_ns;
    uint64_t least[AG_TRACE_N_PLACES], most[AG_TRACE_N_PLACES];
    uint64_t most_total;
};
bool trace_memory(const struct trace *trace, int device, size_t n,
                  struct trace_bucket *ret_buckets);

/* Where memory is asked for. */
struct trace_site {
    uint16_t module;
    uint64_t caller;
    uint64_t n_allocs, n_temporary, bytes;
};
/* Up to `most` sites, those with most bytes first; how many, or -1 when memory runs out. */
long trace_sites(const struct trace *trace, int device, size_t most, struct trace_site *ret_sites);
/* "library.so+0x1234" for people; returns buffer. */
const char *trace_site_name(const struct trace *trace, unsigned module, uint64_t caller,
                            char *buffer, size_t size);

#endif
