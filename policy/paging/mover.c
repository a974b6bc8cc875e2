/* One batch of moves: see mover.h. */
#include "policy/paging/mover.h"

#include "interpose/core/base/clock.h"
#include "interpose/core/base/log.h"
#include "interpose/core/driver/driver.h"
#include "interpose/core/report/stats.h"
#include "interpose/core/report/trace/trace.h"
#include "policy/contexts/context.h"
#include "policy/order/capture.h"
#include "policy/order/fence.h"
#include "policy/order/watch.h"
#include "policy/paging/latch.h"
#include "policy/paging/plan/prices.h"
#include "policy/paging/plan/toll.h"
#include "policy/paging/progress.h"
#include "policy/paging/sites.h"
#include "policy/paging/vmm.h"

/* Streams are watched as long as all work comes by our hooks, and there is one context only. */
static bool sees_all_work(void)
{
    return ag_watch_is_on() && ag_context_count() == 1;
}

/* Waits for the device as long as it goes on. Nobody submits work meanwhile, so that this ends. */
static bool wait_for_idle(struct ag_context *context, uint64_t timeout_ns)
{
    do {
        if (ag_fence_wait_idle(context, timeout_ns)) {
            ag_toll_at_idle();
            return true;
        }
    } while (ag_progress_made());
    return false;
}

bool ag_move_begin(struct ag_context *context, uint64_t timeout_ns)
{
    uint64_t began = ag_clock_ns();

    if (!sees_all_work() || ag_capture_is_open() || !ag_latch_close(began + timeout_ns))
        return false;
    ag_ranges_hold(true);
    if (sees_all_work() && wait_for_idle(context, timeout_ns) &&
        ag_context_sticky_error(context) == CUDA_SUCCESS && ag_capture_guard_enter()) {
        ag_stats_add(AG_STAT_PAGE_WAIT_NS, ag_clock_ns() - began);
        return true;
    }
    ag_ranges_hold(false);
    ag_latch_open();
    return false;
}

void ag_move_end(void)
{
    ag_capture_guard_leave();
    ag_ranges_hold(false);
    ag_latch_open();
}

/* --- copies --- */

/* Copies of each direction have a stream of their own. */
static CUstream stream_for(const struct ag_context *context, const struct ag_move *move)
{
    return move->to->on_device ? context->alloc_stream : context->free_stream;
}

static CUresult map_aliases(const struct ag_move *moves, unsigned n)
{
    CUresult result = CUDA_SUCCESS;

    for (unsigned i = 0; i < n && result == CUDA_SUCCESS; i++) {
        result = ag_handle_map_alias(moves[i].to);
        if (result == CUDA_SUCCESS)
            result = ag_handle_map_alias(moves[i].piece->handle);
    }
    return result;
}

static CUresult copy_one(const struct ag_context *context, const struct ag_move *move)
{
    return ag_cu.cuMemcpyDtoDAsync_v2(move->to->alias, move->piece->handle->alias,
                                      move->piece->size, stream_for(context, move));
}

/* Where the driver refuses that, copies may be under way, to memory that the caller has back: all
 * of the context is waited for then. */
static CUresult wait_for_copies(CUstream stream)
{
    CUresult result = ag_cu.cuStreamSynchronize(stream);

    if (result != CUDA_SUCCESS)
        (void)ag_cu.cuCtxSynchronize();
    return result;
}

static CUresult copy_pieces(const struct ag_context *context, const struct ag_move *moves,
                            unsigned n)
{
    CUresult result = CUDA_SUCCESS, in, out;

    for (unsigned i = 0; i < n && result == CUDA_SUCCESS; i++)
        result = copy_one(context, &moves[i]);
    in = wait_for_copies(context->alloc_stream);
    out = wait_for_copies(context->free_stream);
    if (result == CUDA_SUCCESS)
        result = in;
    return result == CUDA_SUCCESS ? out : result;
}

/* --- mappings --- */

static CUresult map_to(const struct ag_movable *range, const struct ag_piece *piece,
                       const struct ag_handle *handle)
{
    CUdeviceptr address = range->address + piece->offset;
    CUresult result = ag_cu.cuMemMap(address, piece->size, 0, handle->memory, 0);

    if (result != CUDA_SUCCESS)
        return result;
    result = ag_vmm_open(range->context->device, address, piece->size);
    if (result == CUDA_SUCCESS)
        result = ag_vmm_open_to_peers(range->context->device, address, piece->size);
    if (result != CUDA_SUCCESS)
        (void)ag_cu.cuMemUnmap(address, piece->size);
    return result;
}

/* The piece is what it was; where the driver does not even do that, it has its new memory, which
 * has the same bytes. */
static bool map_back(const struct ag_move *move)
{
    if (map_to(move->range, move->piece, move->piece->handle) == CUDA_SUCCESS)
        return false;
    if (map_to(move->range, move->piece, move->to) == CUDA_SUCCESS)
        return true;
    if (map_to(move->range, move->piece, move->piece->handle) != CUDA_SUCCESS)
        ag_log_error("the driver refuses to map memory: %zu bytes of the program are lost",
                     move->piece->size);
    return false;
}

static bool remap(struct ag_move *move)
{
    CUdeviceptr address = move->range->address + move->piece->offset;
    struct ag_handle *from = move->piece->handle;

    if (ag_cu.cuMemUnmap(address, move->piece->size) != CUDA_SUCCESS)
        return false;
    if (map_to(move->range, move->piece, move->to) != CUDA_SUCCESS && !map_back(move))
        return false;
    (void)ag_ranges_lock(); /* launches of other threads look at it */
    move->piece->handle = move->to;
    ag_site_count(move->range, move->to->on_device ? AG_HELD_CAME : AG_HELD_WENT, move->to->size);
    ag_ranges_unlock();
    move->to = NULL;
    ag_handle_put(from);
    return true;
}

/* Bytes of the way that has more of them. */
static uint64_t bytes_of_a_way(const struct ag_move *moves, unsigned n)
{
    uint64_t in = 0, out = 0;

    for (unsigned i = 0; i < n; i++)
        if (moves[i].to->on_device)
            in += moves[i].piece->size;
        else
            out += moves[i].piece->size;
    return in > out ? in : out;
}

static void note_times(uint64_t bytes, uint64_t copy_ns, uint64_t map_ns)
{
    ag_stats_add(AG_STAT_PAGE_COPY_NS, copy_ns);
    ag_stats_add(AG_STAT_PAGE_MAP_NS, map_ns);
    ag_prices_note(bytes, copy_ns, map_ns);
    /* Relaxed: read for the report. */
    atomic_store_explicit(&ag_stats.bus_gib_ns, ag_prices_gib_ns(), memory_order_relaxed);
}

/* Tells of those that came, or went, since `began`. */
static void trace_one_way(uint64_t began, const struct ag_move *moves, unsigned n, bool came)
{
    struct ag_trace_event event = {.kind = AG_TRACE_PIECES, .device = AG_TRACE_NO_DEVICE};

    for (unsigned i = 0; i < n; i++) {
        const struct ag_handle *is = moves[i].piece->handle;

        if (moves[i].to || is->on_device != came)
            continue;
        if (came)
            event.device = (int16_t)is->device->ordinal;
        event.size += is->size;
        event.code++;
    }
    if (event.code)
        ag_trace_add_call(began, event);
}

static void trace_moves(uint64_t began, const struct ag_move *moves, unsigned n)
{
    if (!ag_trace_on())
        return;
    trace_one_way(began, moves, n, true);
    trace_one_way(began, moves, n, false);
}

unsigned ag_move_pieces(struct ag_context *context, struct ag_move *moves, unsigned n)
{
    uint64_t began, copied, bytes = bytes_of_a_way(moves, n);
    uint64_t trace_began = ag_trace_began();
    unsigned moved = 0;

    /* Memory has an alias for good: what that takes is no part of the price. */
    if (map_aliases(moves, n) != CUDA_SUCCESS)
        return 0;
    began = ag_clock_ns();
    if (copy_pieces(context, moves, n) != CUDA_SUCCESS)
        return 0;
    copied = ag_clock_ns();
    /* The copy engines rest, which makes this 2 to 30 times cheaper. */
    for (unsigned i = 0; i < n; i++)
        moved += remap(&moves[i]);
    note_times(bytes, copied - began, ag_clock_ns() - copied);
    trace_moves(trace_began, moves, n);
    return moved;
}
