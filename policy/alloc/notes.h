/* What is counted and traced of allocations and frees. */
#ifndef AG_POLICY_ALLOC_NOTES_H
#define AG_POLICY_ALLOC_NOTES_H

#include <stdatomic.h>
#include <stddef.h>

#include "interpose/core/driver/abi.h"
#include "interpose/core/report/live/allocations.h"
#include "interpose/core/report/timing.h"
#include "interpose/core/report/trace/trace.h"
#include "policy/backends/backend.h"
#include "policy/budget.h"
#include "policy/contexts/context.h"
#include "policy/ledger.h"

/* The trace's events, apart from the callers, which have less to put aside while it is off. */
void ag_note_trace_allocated(const struct ag_block *block, size_t bytes, const void *caller,
                             uint64_t began, uint64_t ticks);

/* The program is about to get the block, for a request of `bytes`. */
static inline void ag_note_allocated(const struct ag_block *block, size_t bytes, const void *caller)
{
    struct ag_timed timed = ag_timing_end();

    ag_stats_allocated(block->context->device->ordinal, block->placement, bytes, timed.sum);
    if (ag_trace_on())
        ag_note_trace_allocated(block, bytes, caller, timed.began, timed.ticks);
}

/* A free that has succeeded; its block may be another's by then. */
struct ag_freed {
    CUdeviceptr address;
    size_t bytes;
    CUstream stream;
    const void *caller;
    int device;
    enum ag_placement place;
    uint16_t code;         /* of the trace */
    struct ag_timed timed; /* nothing: nobody waited */
};

void ag_note_trace_freed(const struct ag_freed *freed);

static inline void ag_note_freed(struct ag_freed freed)
{
    ag_stats_freed(freed.device, freed.place, freed.bytes, freed.timed.sum);
    if (ag_trace_on()) {
        /* Field by field: else all of it had to be in memory at every free. */
        struct ag_freed traced = {
            .address = freed.address,
            .bytes = freed.bytes,
            .stream = freed.stream,
            .caller = freed.caller,
            .device = freed.device,
            .place = freed.place,
            .code = freed.code,
            .timed.began = freed.timed.began,
            .timed.ticks = freed.timed.ticks,
        };

        ag_note_trace_freed(&traced);
    }
}

/* The block may be one that is too large for its request, of which there is hardly ever one.
 * Relaxed: whoever allocated it has counted it before the caller had its address. */
static inline void ag_note_larger_freed(const struct ag_block *block)
{
    if (__builtin_expect(
            atomic_load_explicit(&block->context->too_large, memory_order_relaxed) != 0, 0))
        ag_budget_note_freed(block);
}

/* The driver still counts the pages of a managed block that is gone as in use. */
static inline void ag_note_managed_gone(const struct ag_block *block)
{
    if (block->desc.source == AG_SOURCE_PLAIN && ag_mem_desc_is_on_device(block->desc))
        ag_managed_freed(block->context->device, block->size);
}

/* An allocation of `bytes` on that device failed. */
void ag_note_failed(int device, enum ag_placement place, size_t bytes, const void *caller,
                    CUresult result);

#endif
