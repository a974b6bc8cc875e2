/* Finding what a launch uses, and choosing what goes for it: see use.h.
 *
 * A pointer stands for its block from there on. What lies on the host is read in place as long as
 * that costs less than to move it: for its use now, and those that are expected to follow soon
 * (foretell.h), at what they have been seen to cost (toll.h, prices.h). Where the device has room
 * it comes in any case. Who goes is the one that is expected to be used last: the best there is, as
 * long as iterations are alike. */
#include "policy/paging/use.h"

#include "interpose/core/base/clock.h"
#include "interpose/core/base/hash.h"
#include "interpose/core/base/threads/undisturbed.h"
#include "interpose/core/report/stats.h"
#include "policy/budget.h"
#include "policy/contexts/context.h"
#include "policy/contexts/enter.h"
#include "policy/order/capture.h"
#include "policy/paging/foretell.h"
#include "policy/paging/mover.h"
#include "policy/paging/named.h"
#include "policy/paging/place.h"
#include "policy/paging/prices.h"
#include "policy/paging/rest.h"
#include "policy/paging/toll.h"

#define IDLE_NS      50000000u /* the device may take so long to become idle */
#define FIRST_REST   10000000u /* nothing is tried for so long after it did not */
#define MOST_WANTED  2048u     /* pieces of one launch */
#define MOST_AT_ONCE 64u       /* pieces each way */

/* What is about to be launched: a graph, or what names the memory of a kernel or a copy. */
struct launched {
    CUgraphExec graph;   /* NULL: none */
    CUfunction function; /* of a kernel, or NULL */
    CUstream stream;     /* a kernel's, as the driver is to get it */
    uint64_t number;     /* of launches that use memory that can move */
    bool has_room;       /* the device has some for another piece */
    struct ag_names names;
};

/* What became of the pieces that it uses. */
struct used {
    bool any_comes;
    size_t in_place; /* bytes */
};

static struct {
    uint64_t n_launches; /* under the lock of the ranges */
    struct ag_rest rest;
} self;

/* What is being moved: of who has begun to move (mover.h). */
static struct {
    struct ag_context *context;
    uint64_t launch;
    struct ag_move wanted[MOST_WANTED], batch[2 * MOST_AT_ONCE];
    unsigned n_wanted, next, n_batch;
} mover;

/* --- uses; with the lock of the ranges held --- */

/* Between two uses that follow each other, at most this part of what the device holds is used. */
#define NEAR_PART 2u

/* A piece that the launch uses so often. True: it is to come to the device. */
static bool use_piece(const struct launched *launched, const struct ag_movable *range,
                      struct ag_piece *piece, unsigned uses)
{
    bool on_host = !piece->handle->on_device;
    unsigned price;

    if (piece->used_by != launched->number) {
        price = ag_foretell_use(piece, uses, ag_budget_size(range->context->device) / NEAR_PART);
        piece->used_by = launched->number;
        piece->comes = on_host && !range->pinned &&
                       ag_place_comes(piece, launched->has_room || ag_prices_worth_moving(price));
        if (on_host && !piece->comes)
            ag_stats_add(AG_STAT_PAGE_IN_PLACE, uses * piece->size);
    }
    return piece->comes && on_host;
}

static void want(struct ag_movable *range, struct ag_piece *piece)
{
    if (mover.n_wanted < MOST_WANTED)
        mover.wanted[mover.n_wanted++] = (struct ag_move){range, piece, NULL};
}

/* Does what is named have the piece in it, or half of that at least? */
static bool is_of(const struct ag_name *name, const struct ag_movable *range,
                  const struct ag_piece *piece)
{
    CUdeviceptr from = range->address + piece->offset, to = from + piece->size;

    if (!name->end)
        return true; /* who is given an address may use all that follows it */
    from = from > name->address ? from : name->address;
    to = to < name->end ? to : name->end;
    return to > from && 2 * (to - from) >= piece->size;
}

/* The pieces of a block from an address on. `collects`: those that are to come are wanted. */
static void use_block(const struct launched *launched, const struct ag_name *name, bool collects,
                      struct used *used)
{
    struct ag_movable *range = ag_range_at(name->address);

    if (!range)
        return;
    for (size_t i = (name->address - range->address) / range->pieces[0].size; i < range->n_pieces;
         i++) {
        struct ag_piece *piece = &range->pieces[i];

        if (!is_of(name, range, piece))
            continue;
        if (use_piece(launched, range, piece, name->uses)) {
            used->any_comes = true;
            if (collects)
                want(range, piece);
        } else if (!piece->handle->on_device) {
            used->in_place += piece->size;
        }
    }
}

static const struct ag_name *what_names(const struct launched *launched, unsigned *ret_n)
{
    *ret_n = launched->names.n;
    return launched->graph ? ag_names_of_graph(launched->graph, ret_n) : launched->names.at;
}

static struct used use_all(const struct launched *launched, bool collects)
{
    struct used used = {0};
    unsigned n;
    const struct ag_name *at = what_names(launched, &n);

    for (unsigned i = 0; i < n; i++)
        use_block(launched, &at[i], collects, &used);
    return used;
}

/* The same function, or graph, with the same memory. */
static uint64_t key_of(const struct launched *launched)
{
    uint64_t key = ag_hash_word((uintptr_t)launched->graph, (uintptr_t)launched->function);
    unsigned n;
    const struct ag_name *at = what_names(launched, &n);

    for (unsigned i = 0; i < n; i++)
        key = ag_hash_word(key, at[i].address);
    return key;
}

/* --- who goes; between ag_move_begin() and ag_move_end() --- */

/* The piece on the device whose next use is expected last, and that this launch does not use. */
static struct ag_move farthest_used(void)
{
    struct ag_move victim = {0};
    struct ag_movable *range = ag_ranges_lock();
    uint64_t most = 0;

    for (; range; range = range->next) {
        if (range->pinned || range->context != mover.context)
            continue;
        for (unsigned i = 0; i < range->n_pieces; i++) {
            struct ag_piece *piece = &range->pieces[i];
            uint64_t next;

            if (!piece->handle->on_device || piece->used_by == mover.launch || piece->goes ||
                piece->place == AG_PLACED_ON_DEVICE)
                continue;
            next = ag_foretell_next_use(piece);
            if (victim.piece && next <= most)
                continue;
            victim = (struct ag_move){range, piece, NULL};
            most = next;
        }
    }
    if (victim.piece)
        victim.piece->goes = true;
    ag_ranges_unlock();
    return victim;
}

/* Has pieces of `bytes` go in this batch; fewer where there are no more, or no memory of the host.
 */
static void let_go(uint64_t bytes)
{
    uint64_t gone = 0;

    for (unsigned n = 0; gone < bytes && n < MOST_AT_ONCE; n++) {
        struct ag_move move = farthest_used();

        if (!move.piece)
            return;
        move.to = ag_handle_get(mover.context->device, move.piece->size, false);
        if (!move.to) {
            move.piece->goes = false;
            return;
        }
        gone += move.piece->size;
        mover.batch[mover.n_batch++] = move;
    }
}

/* --- who comes --- */

/* Pieces that are wanted, as far as there is memory for them; their bytes. */
static uint64_t let_come(void)
{
    uint64_t bytes = 0;

    while (mover.next < mover.n_wanted && mover.n_batch < MOST_AT_ONCE) {
        struct ag_move *move = &mover.wanted[mover.next];

        move->to = ag_handle_get(mover.context->device, move->piece->size, true);
        if (!move->to)
            break;
        bytes += move->piece->size;
        mover.batch[mover.n_batch++] = *move;
        mover.next++;
    }
    return bytes;
}

static uint64_t still_to_come(void)
{
    uint64_t bytes = 0;

    for (unsigned i = mover.next; i < mover.n_wanted; i++)
        bytes += mover.wanted[i].piece->size;
    return bytes;
}

/* Memory of pieces that did not move is nobody's again. */
static void put_back_unmoved(void)
{
    for (unsigned i = 0; i < mover.n_batch; i++) {
        mover.batch[i].piece->goes = false;
        if (mover.batch[i].to)
            ag_handle_put(mover.batch[i].to);
    }
}

/* Moves as many bytes away as come, so that the next ones find room at once. False: nothing moves
 * any more. */
static bool move_batch(void)
{
    uint64_t came, rest;
    unsigned moved;

    mover.n_batch = 0;
    came = let_come();
    rest = still_to_come();
    if (came < rest || !ag_handles_may_get(mover.context->device, came, false))
        let_go(came ? came : rest);
    moved = ag_move_pieces(mover.context, mover.batch, mover.n_batch);
    ag_stats_add(AG_STAT_PAGE_BATCHES, 1);
    put_back_unmoved();
    return moved && moved == mover.n_batch;
}

static void collect_wanted(struct ag_context *context, const struct launched *launched)
{
    mover.context = context;
    mover.launch = launched->number;
    mover.n_wanted = mover.next = 0;
    (void)ag_ranges_lock();
    (void)use_all(launched, true);
    ag_ranges_unlock();
}

/* --- when --- */

static void bring_wanted(struct ag_context *context, const struct launched *launched)
{
    uint64_t began;
    bool pushed;

    if (!ag_move_begin(context, IDLE_NS)) {
        ag_rest_longer(&self.rest, FIRST_REST);
        ag_stats_add(AG_STAT_PAGE_IN_VAIN, 1);
        return;
    }
    began = ag_clock_ns();
    ag_rest_begin_anew(&self.rest);
    collect_wanted(context, launched);
    if (ag_context_make_current(context, &pushed) == CUDA_SUCCESS) {
        while (mover.next < mover.n_wanted && move_batch())
            ;
        ag_stats_add(AG_STAT_PAGE_MOVES, 1);
    }
    ag_context_restore(pushed);
    ag_move_end();
    ag_stats_add(AG_STAT_PAGE_NS, ag_clock_ns() - began);
}

/* Signals and cancellations of the thread wait: a handler that jumped out of here, or the end of
 * the thread, would leave all others waiting. */
static void bring(struct ag_context *context, const struct launched *launched)
{
    struct ag_undisturbed before;

    if (ag_rest_is_on(&self.rest))
        return;
    ag_undisturbed_begin(&before);
    bring_wanted(context, launched);
    ag_undisturbed_end(&before);
}

static struct used log_uses(struct launched *launched)
{
    struct used used;

    (void)ag_ranges_lock();
    launched->number = ++self.n_launches;
    ag_foretell_launch(key_of(launched), (uintptr_t)launched->function);
    used = use_all(launched, false);
    ag_ranges_unlock();
    return used;
}

/* Does nothing, and logs nothing, as long as nothing lies on the host. */
static void use_launched(struct launched *launched)
{
    struct ag_context *context = ag_context_current();
    struct used used;

    if (!context || !ag_handles_any_on_host())
        return;
    launched->has_room = ag_handles_has_room(context->device, ag_ranges_piece_bytes());
    used = log_uses(launched);
    if (used.any_comes)
        bring(context, launched);
    else if (launched->function)
        ag_toll_before(launched->stream, (uintptr_t)launched->function, used.in_place);
}

static CUstream stream_of(const struct ag_launch *launch)
{
    if (launch->stream)
        return launch->stream;
    return launch->per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

void ag_use_before_launch(const struct ag_launch *launch)
{
    struct launched launched; /* not zeroed: it is large */

    if (ag_capture_is_open())
        return;
    ag_place_bring();
    launched.graph = NULL;
    launched.function = launch->function;
    launched.stream = stream_of(launch);
    ag_toll_go_on(launched.stream);
    ag_name_launch(&launched.names, launch);
    if (launched.names.n)
        use_launched(&launched);
}

static void name_line(struct ag_names *names, CUdeviceptr address, size_t bytes)
{
    if (ag_range_may_hold(address))
        names->at[names->n++] =
            (struct ag_name){.address = address, .end = address + bytes, .uses = 1};
}

void ag_use_before_copy(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    struct launched launched; /* not zeroed, as above */

    launched.graph = NULL;
    launched.function = NULL;
    launched.names.n = 0;
    name_line(&launched.names, to, bytes);
    if (from != to)
        name_line(&launched.names, from, bytes);
    if (launched.names.n && !ag_capture_is_open())
        use_launched(&launched);
}

void ag_use_before_graph(CUgraphExec exec)
{
    struct launched launched; /* likewise */

    if (!exec || ag_capture_is_open())
        return;
    ag_place_bring();
    launched.graph = exec;
    launched.function = NULL;
    launched.names.n = 0;
    use_launched(&launched);
}

void ag_use_begin_child(void)
{
    self.rest = (struct ag_rest){0};
    ag_place_begin_child();
    ag_foretell_begin_child();
    ag_toll_begin_child();
}
