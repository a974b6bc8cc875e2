/* Marks: which streams are replayed (ALLOGRAFT_GRAPH), and where iterations begin
 * (ALLOGRAFT_GRAPH_ITERATION). Any thread may call; nothing here waits or calls the driver. */
#ifndef AG_GRAPH_MARKS_H
#define AG_GRAPH_MARKS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "interpose/core/driver/abi.h"
#include "interpose/core/settings/options.h"

/* What is known of a stream. */
struct ag_stream_facts {
    CUstream handle; /* CU_STREAM_LEGACY, CU_STREAM_PER_THREAD or a handle */
    bool nonblocking;
    int priority;
    uint64_t number; /* the program's n-th created stream, from 1; 0 for the two above and unknown
                        ones */
};

/* Must be called before anything else; may be called again with the same settings. */
void ag_marks_configure(const struct ag_options *options);
/* Is graph replay asked for at all? */
bool ag_marks_any(void);
/* Is a stream marked? The answer may change when ag_marks_version() does: a program may name a
 * stream that it has used before. */
bool ag_marks_stream(const struct ag_stream_facts *facts);
extern _Atomic uint32_t ag_marks_changes;
static inline uint32_t ag_marks_version(void)
{
    return atomic_load_explicit(&ag_marks_changes, memory_order_acquire);
}

/* NVTX gives a stream a name; NULL takes it away, as where the stream is gone. */
void ag_marks_name(CUstream stream, const char *name);

/* Does a range or a mark of NVTX begin an iteration? Of its two halves, the name's and the domain's
 * ("" is the default domain): a range does when both hold. */
bool ag_marks_is_iteration(const char *name);
bool ag_marks_is_domain(const char *domain);
/* What NVTX is needed for: names of streams, iterations. */
bool ag_marks_by_name(void);
bool ag_marks_by_range(void);

/* The calling thread met an iteration mark: the next operation it submits begins an iteration.
 * take: true once per mark. */
extern _Thread_local bool ag_marks_met;
void ag_marks_iteration(void);
bool ag_marks_take_iteration(void);

/* A forked child: no thread holds a lock. */
void ag_marks_begin_child(void);

#endif
