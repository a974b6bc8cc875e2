/* Finding pointers among a kernel's parameters, and prefetching: see prefetch.h.
 *
 * A prefetch only moves data that stays coherent: a wrong estimate, or memory that another thread
 * frees meanwhile, costs time but never bytes. Two things must hold. A prefetch would end a capture
 * in any mode, hence the capture guard and the question to the stream itself. And it must not
 * reach beyond the block, hence ag_residency_claim(). */
#include "policy/managed/prefetch.h"

#include <stdint.h>
#include <string.h>

#include "interpose/core/base/clock.h"
#include "interpose/core/driver/driver.h"
#include "interpose/core/report/stats.h"
#include "interpose/core/report/trace/trace.h"
#include "policy/budget.h"
#include "policy/contexts/context.h"
#include "policy/contexts/enter.h"
#include "policy/managed/kernel_params.h"
#include "policy/managed/residency.h"
#include "policy/order/capture.h"

struct look {
    int device;
    CUstream stream;
    uint64_t now;
    bool missing;               /* a word points to what is not on the device */
    bool inside_guard, refused; /* refused: not on this stream, or not now */
};

/* True to go on. */
typedef bool word_function(struct look *look, uint64_t word);

static bool walk_bytes(struct look *look, word_function *visit, const unsigned char *bytes,
                       size_t offset, size_t size)
{
    uint64_t word;

    for (size_t at = -offset % sizeof(word); at + sizeof(word) <= size; at += sizeof(word)) {
        memcpy(&word, bytes + at, sizeof(word));
        if (!visit(look, word))
            return false;
    }
    return true;
}

/* Visits every aligned 8-byte word of the parameters. False when `visit` stopped it, or there is
 * none. */
static bool walk(struct look *look, word_function *visit, const struct ag_launch *launch,
                 const struct ag_layout *layout)
{
    if (!layout) {
        size_t size = 0;
        const unsigned char *buffer = ag_params_buffer(launch->extra, &size);

        return buffer && walk_bytes(look, visit, buffer, 0, size);
    }
    for (uint32_t i = 0; i < layout->n; i++) {
        const struct ag_param *param = &layout->params[i];

        if (launch->params[i] &&
            !walk_bytes(look, visit, launch->params[i], param->offset, param->size))
            return false;
    }
    return true;
}

/* --- what is looked for --- */

/* Notes the use of blocks that are there, and goes on to the end for that. */
static bool note_missing(struct look *look, uint64_t word)
{
    look->missing |= ag_residency_missing(look->device, word, look->now);
    return true;
}

static bool is_capturing(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

    /* A capture that began before us, or by a call that we do not see. */
    return ag_cu.cuStreamIsCapturing &&
           (ag_cu.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS ||
            status != CU_STREAM_CAPTURE_STATUS_NONE);
}

static CUresult prefetch_range(const struct look *look, CUdeviceptr address, size_t bytes)
{
    CUmemLocation there = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = look->device};

    if (ag_cu.cuMemPrefetchAsync_v2)
        return ag_cu.cuMemPrefetchAsync_v2(address, bytes, there, 0, look->stream);
    if (ag_cu.cuMemPrefetchAsync)
        return ag_cu.cuMemPrefetchAsync(address, bytes, there.id, look->stream);
    return CUDA_ERROR_NOT_SUPPORTED;
}

static bool bring_pointed(struct look *look, uint64_t word)
{
    uint64_t address, began;
    size_t bytes;

    if (!ag_residency_missing(look->device, word, look->now))
        return true;
    if (!look->inside_guard && !look->refused) {
        look->inside_guard = ag_capture_guard_enter();
        look->refused = !look->inside_guard || is_capturing(look->stream);
    }
    if (look->refused)
        return false;
    if (!ag_residency_claim(look->device, word, look->now, &address, &bytes))
        return true;
    began = ag_trace_began();
    if (prefetch_range(look, address, bytes) == CUDA_SUCCESS) {
        ag_trace_prefetch(began, address, bytes, look->device, look->stream);
        ag_stats_add(AG_STAT_LAUNCH_PREFETCHED, 1);
        ag_stats_add(AG_STAT_LAUNCH_PREFETCHED_BYTES, bytes);
    } else {
        ag_stats_add(AG_STAT_LAUNCH_PREFETCH_FAILED, 1);
        ag_residency_failed(look->device, address);
    }
    return true;
}

/* The one device of the process, or AG_RESIDENT_HOST when there are several. */
static int only_device(void)
{
    const struct ag_device *device = ag_device_met(0);

    return device && !ag_device_met(1) ? device->ordinal : AG_RESIDENT_HOST;
}

static uint64_t device_capacity(const struct ag_device *device)
{
    uint64_t budget = ag_budget_of(device->total_bytes);

    return budget < device->total_bytes ? budget : device->total_bytes;
}

static bool begin_look(struct look *look, const struct ag_launch *launch)
{
    const struct ag_context *context;
    int only = only_device();

    *look = (struct look){.stream = launch->stream};
    if ((only != AG_RESIDENT_HOST && ag_residency_is_complete(only)) || ag_capture_is_open())
        return false;
    context = ag_context_current();
    if (!context ||
        (only == AG_RESIDENT_HOST && ag_residency_is_complete(context->device->ordinal)))
        return false;
    look->device = context->device->ordinal;
    if (!ag_residency_capacity(look->device))
        ag_residency_set_capacity(look->device, device_capacity(context->device));
    if (launch->per_thread && !launch->stream)
        look->stream = CU_STREAM_PER_THREAD;
    look->now = ag_clock_ticks();
    return true;
}

void ag_prefetch_before(const struct ag_launch *launch)
{
    const struct ag_layout *layout = NULL;
    struct look look;

    if (!launch->params == !launch->extra || !begin_look(&look, launch))
        return; /* neither: nothing to look at; both: the driver refuses that */
    if (launch->params)
        layout = ag_params_of(launch->function);
    if (launch->params && !layout)
        return;
    ag_stats_add(AG_STAT_LAUNCH_LOOKED, 1);
    (void)walk(&look, note_missing, launch, layout);
    if (look.missing)
        (void)walk(&look, bring_pointed, launch, layout);
    if (look.inside_guard)
        ag_capture_guard_leave();
}
