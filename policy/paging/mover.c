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

/* False also where the driver does not tell: work that is under way would lose its memory. */
static bool is_idle_within(struct ag_context *context, uint64_t timeout_ns)
{
    return ag_fence_place_for_host(context) == AG_FENCE_PLACED &&
           ag_fence_poll(context->host_fence.event, timeout_ns) == CUDA_SUCCESS;
}

/* Waits for the device as long as it goes on. Nobody submits work meanwhile, so that this ends. */
static bool wait_for_idle(struct ag_context *context, uint64_t timeout_ns)
{
    do {
        if (is_idle_within(context, timeout_ns)) {
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

/* Copies of each direction have a stream of their own; both are waited for. */
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

static bool copy_one(const struct ag_context *context, struct ag_move *move)
{
    move->is_copied =
        ag_cu.cuMemcpyDtoDAsync_v2(move->to->alias, move->piece->handle->alias, move->piece->size,
                                   stream_for(context, move)) == CUDA_SUCCESS;
    return move->is_copied;
}

/* Where the driver refuses to wait for the streams, all of the context is waited for. Where it
 * refuses that, too, the context has ended, and its memory with it. */
static void wait_for_copies(const struct ag_context *context)
{
    CUresult in = ag_cu.cuStreamSynchronize(context->alloc_stream);
    CUresult out = ag_cu.cuStreamSynchronize(context->free_stream);

    if (in != CUDA_SUCCESS || out != CUDA_SUCCESS)
        (void)ag_cu.cuCtxSynchronize();
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
    CUresult result;

    if (map_to(move->range, move->piece, move->piece->handle) == CUDA_SUCCESS)
        return false;
    if (map_to(move->range, move->piece, move->to) == CUDA_SUCCESS)
        return true;
    result = map_to(move->range, move->piece, move->piece->handle);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_DEINITIALIZED) /* it went with the driver */
        ag_log_error("the driver refuses to map memory: %zu bytes of the program are lost",
                     move->piece->size);
    return false;
}

/* Has a piece that was copied, or is being copied, mapped to the memory it is copied to. */
static void remap(struct ag_move *move)
{
    CUdeviceptr address = move->range->address + move->piece->offset;

    move->is_mapped =
        move->is_copied && ag_cu.cuMemUnmap(address, move->piece->size) == CUDA_SUCCESS &&
        (map_to(move->range, move->piece, move->to) == CUDA_SUCCESS || map_back(move));
}

/* --- a batch --- */

/* A way, and what of it is under way. */
struct way {
    unsigned next;
    uint64_t bytes;
};

/* The next one to move: of the way of which less is under way, so that both are busy. */
static struct ag_move *next_move(struct ag_move *moves, unsigned n, struct way ways[2])
{
    struct way *way;
    struct ag_move *move;

    for (unsigned i = 0; i < 2; i++)
        while (ways[i].next < n && moves[ways[i].next].to->on_device != (bool)i)
            ways[i].next++;
    way = &ways[ways[1].next < n && (ways[0].next >= n || ways[1].bytes < ways[0].bytes)];
    if (way->next >= n)
        return NULL;
    move = &moves[way->next++];
    way->bytes += move->piece->size;
    return move;
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

/* How long a batch took: while pieces were mapped to other memory, and of copies alone. */
struct took {
    uint64_t map_ns, copy_ns;
};

/* Copies all, and has them mapped then, so that the time is that of the bus. */
static struct took copy_then_map(const struct ag_context *context, struct ag_move *moves,
                                 unsigned n)
{
    struct way ways[2] = {{0}};
    uint64_t began = ag_clock_ns(), copied;
    struct ag_move *move;

    while ((move = next_move(moves, n, ways)) && copy_one(context, move))
        ;
    wait_for_copies(context);
    copied = ag_clock_ns();
    for (unsigned i = 0; i < n; i++)
        remap(&moves[i]);
    return (struct took){.map_ns = ag_clock_ns() - copied, .copy_ns = copied - began};
}

/* Copies a piece each way, and has these two mapped meanwhile; then the next two. The driver
 * changes mappings when the copy engines rest for a moment: with all copies submitted before, that
 * would hardly ever be. */
static struct took copy_and_map(const struct ag_context *context, struct ag_move *moves, unsigned n)
{
    struct way ways[2] = {{0}};
    uint64_t began = ag_clock_ns(), mapped;
    struct ag_move *pair[2];

    do {
        for (unsigned i = 0; i < 2; i++) {
            pair[i] = next_move(moves, n, ways);
            if (pair[i] && !copy_one(context, pair[i]))
                n = 0; /* no more */
        }
        for (unsigned i = 0; i < 2; i++)
            if (pair[i])
                remap(pair[i]);
    } while (pair[1]);
    mapped = ag_clock_ns();
    wait_for_copies(context);
    return (struct took){.map_ns = mapped - began, .copy_ns = ag_clock_ns() - mapped};
}

static void note_times(uint64_t bytes, struct took took, bool times_bus)
{
    ag_stats_add(AG_STAT_PAGE_COPY_NS, took.copy_ns);
    ag_stats_add(AG_STAT_PAGE_MAP_NS, took.map_ns);
    if (times_bus)
        ag_prices_note_copies(bytes, took.copy_ns);
    else
        ag_prices_note_moves(bytes, took.copy_ns + took.map_ns);
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

/* Those that are mapped to their new memory have it now; what they had is kept, or goes. */
static unsigned have_new_memory(struct ag_move *moves, unsigned n)
{
    unsigned moved = 0;

    (void)ag_ranges_lock(); /* launches of other threads look at it */
    for (unsigned i = 0; i < n; i++) {
        struct ag_handle *had = moves[i].piece->handle;

        if (!moves[i].is_mapped)
            continue;
        moves[i].piece->handle = moves[i].to;
        ag_site_count(moves[i].range, moves[i].to->on_device ? AG_HELD_CAME : AG_HELD_WENT,
                      moves[i].to->size);
        moves[i].to = had;
    }
    ag_ranges_unlock();
    for (unsigned i = 0; i < n; i++) {
        if (!moves[i].is_mapped)
            continue;
        ag_handle_put(moves[i].to);
        moves[i].to = NULL;
        moved++;
    }
    return moved;
}

unsigned ag_move_pieces(struct ag_context *context, struct ag_move *moves, unsigned n)
{
    bool times_bus = ag_prices_want_copies();
    uint64_t trace_began = ag_trace_began(), bytes = bytes_of_a_way(moves, n);
    struct took took;
    unsigned moved;

    /* Memory has an alias for good: what that takes is no part of the price. */
    if (map_aliases(moves, n) != CUDA_SUCCESS)
        return 0;
    took = times_bus ? copy_then_map(context, moves, n) : copy_and_map(context, moves, n);
    moved = have_new_memory(moves, n);
    if (moved == n)
        note_times(bytes, took, times_bus);
    trace_moves(trace_began, moves, n);
    return moved;
}
