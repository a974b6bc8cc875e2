/* The trace of allocations and frees, and allocations that fail: see notes.h. */
#include "policy/alloc/notes.h"

#include "interpose/core/base/clock.h"

/* Calls are timed while the trace is on, but not one that began before that. */
static uint64_t began_of(uint64_t began)
{
    return began ? began : ag_clock_ticks();
}

void ag_note_trace_allocated(const struct ag_block *block, size_t bytes, const void *caller,
                             uint64_t began, uint64_t ticks)
{
    ag_trace_add(&(struct ag_trace_event){
        .kind = AG_TRACE_ALLOC,
        .ticks = began_of(began),
        .duration = ticks,
        .device = (int16_t)block->context->device->ordinal,
        .placement = (uint8_t)block->placement,
        .address = block->address,
        .size = bytes,
        .caller = (uintptr_t)caller,
    });
}

void ag_note_failed(int device, enum ag_placement place, size_t bytes, const void *caller,
                    CUresult result)
{
    struct ag_timed timed = ag_timing_end();

    ag_stats_failed(device, place);
    if (ag_trace_on())
        ag_trace_add(&(struct ag_trace_event){
            .kind = AG_TRACE_FAILED,
            .ticks = began_of(timed.began),
            .duration = timed.ticks,
            .device = (int16_t)device,
            .placement = (uint8_t)place,
            .size = bytes,
            .caller = (uintptr_t)caller,
            .code = (uint16_t)result,
        });
}

void ag_note_trace_freed(const struct ag_freed *freed)
{
    ag_trace_add(&(struct ag_trace_event){
        .kind = AG_TRACE_FREE,
        .ticks = began_of(freed->timed.began),
        .duration = freed->timed.ticks,
        .device = (int16_t)freed->device,
        .placement = (uint8_t)freed->place,
        .address = freed->address,
        .size = freed->bytes,
        .stream = (uintptr_t)freed->stream,
        .caller = (uintptr_t)freed->caller,
        .code = freed->code,
    });
}
