/* Launches that may start early. With programmatic serialization
 * (CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) a kernel may start while the one before
 * it on its stream still runs, once that one allows it. Events recorded or waited for in between
 * keep nothing back (asked of an H100). So no fence orders such a launch after a free that did not
 * wait, and it may write to memory that it was given while the kernel before it still writes there.
 * Natively cudaFree has waited for that one.
 *
 * So the first such launch of a stream after a free is made without the attribute, which only
 * permits: it starts when all before it is done, and what comes after it finds that so. */
#ifndef AG_POLICY_ORDER_EARLY_H
#define AG_POLICY_ORDER_EARLY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "interpose/core/driver/abi.h"

/* How often a fence stood in for a wait of the host. Only for the functions here and in early.c. */
extern _Atomic uint64_t ag_early_fences;

/* Memory was freed after work that may still run, or allocated after what the device has yet to
 * do: once the fence is placed or due, and before anybody can be given the memory. */
static inline void ag_early_fenced(void)
{
    atomic_fetch_add_explicit(&ag_early_fences, 1, memory_order_seq_cst);
}

/* False: never yet. Relaxed: who was given memory of such a free came after it was counted. */
static inline bool ag_early_any_fenced(void)
{
    return atomic_load_explicit(&ag_early_fences, memory_order_relaxed) != 0;
}

/* A launch that comes after everything before it on its stream. */
struct ag_early_launch {
    uintptr_t stream, context; /* see early.c */
    uint64_t fences;           /* as many were before it */
};

/* Must the calling thread's launch come after all that is before it on the stream? Not if one has
 * since the last fence, nor if the stream is captured: then a graph runs later, and not early. */
bool ag_early_must_wait(CUstream stream, bool per_thread, struct ag_early_launch *ret_launch);
/* The driver has that launch now, without the attribute. */
void ag_early_waited(const struct ag_early_launch *launch);

#endif
