/* Moves pieces to where the program wants them, when they can: see place.h.
 *
 * It is tried at once, and before later launches, as long as there are pieces to move and memory
 * for them. Where the device lacks that, nothing goes for them here: with a launch that uses them
 * they come like others (use.c). */
#include "policy/paging/place.h"

#include <errno.h>
#include <stdatomic.h>

#include "interpose/core/base/clock.h"
#include "interpose/core/base/threads/undisturbed.h"
#include "interpose/core/report/stats.h"
#include "policy/contexts/context.h"
#include "policy/contexts/enter.h"
#include "policy/order/capture.h"
#include "policy/paging/mover.h"
#include "policy/paging/rest.h"

#define IDLE_NS      50000000u  /* the device may take so long to become idle */
#define FIRST_REST   100000000u /* nothing is tried for so long after a try that moved nothing */
#define MOST_AT_ONCE 64u

/* Relaxed: hints. Who frees a block comes after whoever has placed it, as the program has it; and a
 * launch that sees late that pieces are to move leaves them to the next one. */
_Atomic bool ag_place_any, ag_place_pending;

static struct ag_rest rest;

/* What is being moved: of who has begun to move (mover.h). */
static struct ag_move batch[MOST_AT_ONCE];
static bool any_moved;

/* --- with the lock of the ranges held --- */

static bool is_in_place(const struct ag_piece *piece)
{
    return piece->place == AG_PLACED_AUTO ||
           piece->handle->on_device == (piece->place == AG_PLACED_ON_DEVICE);
}

static void set_place(struct ag_movable *range, size_t from, size_t bytes, enum ag_placed place)
{
    for (unsigned i = 0; i < range->n_pieces; i++) {
        struct ag_piece *piece = &range->pieces[i];

        if (piece->offset < from + bytes && from < piece->offset + piece->size)
            piece->place = (uint8_t)place;
    }
}

/* Pieces of the context that are not in their place, at most so many; `n_all`: of any. */
static unsigned find_misplaced(const struct ag_context *context, struct ag_move *ret_moves,
                               unsigned *ret_n_all)
{
    struct ag_movable *range = ag_ranges_lock();
    unsigned n = 0;

    for (*ret_n_all = 0; range; range = range->next) {
        for (unsigned i = 0; i < range->n_pieces && !range->pinned; i++) {
            if (is_in_place(&range->pieces[i]))
                continue;
            ++*ret_n_all;
            if (range->context == context && n < MOST_AT_ONCE)
                ret_moves[n++] = (struct ag_move){.range = range, .piece = &range->pieces[i]};
        }
    }
    ag_ranges_unlock();
    return n;
}

/* --- moving; between ag_move_begin() and ag_move_end() --- */

/* Moves one batch, to where it is not: what the program wants may be something else by now. True:
 * all of it, and there may be more. */
static bool move_misplaced(struct ag_context *context)
{
    unsigned n_all, n = find_misplaced(context, batch, &n_all), n_got = 0, moved;

    for (unsigned i = 0; i < n; i++) {
        batch[n_got] = batch[i];
        batch[n_got].to = ag_handle_get(context->device, batch[i].piece->size,
                                        !batch[i].piece->handle->on_device);
        n_got += batch[n_got].to != NULL;
    }
    moved = n_got ? ag_move_pieces(context, batch, n_got) : 0;
    for (unsigned i = 0; i < n_got; i++)
        if (batch[i].to)
            ag_handle_put(batch[i].to);
    atomic_store_explicit(&ag_place_pending, n_all > moved, memory_order_relaxed);
    any_moved |= moved != 0;
    return moved && moved == n;
}

/* False: nothing could move. */
static bool move_all(struct ag_context *context)
{
    uint64_t began;
    bool pushed, moved;

    if (!ag_move_begin(context, IDLE_NS))
        return false;
    began = ag_clock_ns();
    any_moved = false;
    if (ag_context_make_current(context, &pushed) == CUDA_SUCCESS) {
        while (move_misplaced(context))
            ;
        ag_stats_add(AG_STAT_PAGE_MOVES, 1);
    }
    ag_context_restore(pushed);
    moved = any_moved;
    ag_move_end();
    ag_stats_add(AG_STAT_PAGE_NS, ag_clock_ns() - began);
    return moved;
}

/* Signals and cancellations of the thread wait, as in use.c. */
static void move_undisturbed(struct ag_context *context)
{
    struct ag_undisturbed before;

    ag_undisturbed_begin(&before);
    if (move_all(context))
        ag_rest_begin_anew(&rest);
    else
        ag_rest_longer(&rest, FIRST_REST);
    ag_undisturbed_end(&before);
}

void ag_place_bring_now(void)
{
    struct ag_context *context = ag_context_current();

    if (context && !ag_capture_is_open() && !ag_rest_is_on(&rest))
        move_undisturbed(context);
}

/* --- places --- */

int ag_place_set(CUdeviceptr address, size_t bytes, enum ag_placed place)
{
    struct ag_context *context = NULL;
    struct ag_movable *range;
    int result = 0;

    (void)ag_ranges_lock();
    range = ag_range_at(address);
    if (!range)
        result = -ENOENT;
    else if (range->pinned)
        result = -EPERM;
    else if (bytes > range->size - (address - range->address))
        result = -ERANGE;
    if (!result) {
        set_place(range, address - range->address, bytes, place);
        context = range->context;
        atomic_store_explicit(&ag_place_any, true, memory_order_relaxed);
        atomic_store_explicit(&ag_place_pending, true, memory_order_relaxed);
    }
    ag_ranges_unlock();
    if (!result && !ag_capture_is_open())
        move_undisturbed(context);
    return result;
}

void ag_place_end_now(CUdeviceptr address)
{
    struct ag_movable *range;

    (void)ag_ranges_lock();
    range = ag_range_at(address);
    if (range)
        set_place(range, 0, range->size, AG_PLACED_AUTO);
    ag_ranges_unlock();
}

void ag_place_begin_child(void)
{
    atomic_store(&ag_place_any, false);
    atomic_store(&ag_place_pending, false);
}
