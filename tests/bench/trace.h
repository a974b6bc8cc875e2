/* trace.h: what a program allocated and freed, as RMM's replay benchmark reads it: CSV with the
 * columns Thread, Time, Action, Pointer, Size, Stream. `allograft trace FILE --csv rmm` prints one.
 */
#ifndef BENCH_TRACE_H
#define BENCH_TRACE_H

#include <cstddef>
#include <string>
#include <vector>

struct step {
    size_t bytes;
    unsigned block;  /* 0 .. n_blocks-1: each allocation of the program is a block of its own */
    unsigned stream; /* 0 .. n_streams-1 */
    bool is_free;
};

struct trace {
    std::vector<step> steps;
    unsigned n_blocks, n_streams;
    size_t peak_bytes; /* most that the program had at a time */
};

/* Ends the program with a line on standard error where the file is not such a trace. What was freed
 * and never allocated is left out; what was never freed stays so. */
trace read_trace(const std::string &path);

#endif
