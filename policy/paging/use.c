/* Finding what a launch uses, and choosing what goes for it: see use.h.
 *
 * A pointer stands for its block from there on. A piece on the host is read in place as long as
 * nothing says that it will be used again soon: each byte crosses the bus once, and nothing has to
 * wait. It moves where so many uses are to come that they cost more in place (prices.h): as many as
 * followed each other the last time, or else as there were by now. And it moves where it is used
 * again before as much as the device holds was used in between: then it stays there. With any more,
 * it would be gone again before its next use.
 *
 * Who goes is the one whose next use is farthest, as far as that is known: what was used after so
 * many bytes of other uses will be again after as many. Where all that is used in turns is more
 * than the device holds, that keeps most of it there, where the least recently used would be the
 * one that is needed next. What will be used once counts as farther than what would have to come
 * back. Of what was used once only, the last one is the one that goes. */
#include "policy/paging/use.h"

#include "interpose/core/base/clock.h"
#include "interpose/core/base/threads/undisturbed.h"
#include "interpose/core/report/stats.h"
#include "policy/budget.h"
#include "policy/contexts/context.h"
#include "policy/contexts/enter.h"
#include "policy/order/capture.h"
#include "policy/paging/latch.h"
#include "policy/paging/mover.h"
#include "policy/paging/named.h"
#include "policy/paging/place.h"
#include "policy/paging/prices.h"
#include "policy/paging/rest.h"

#define IDLE_NS      50000000u /* the device may take so long to become idle */
#define FIRST_REST   10000000u /* nothing is tried for so long after it did not */
#define MOST_WANTED  2048u     /* pieces of one launch */
#define MOST_AT_ONCE 64u       /* pieces each way */

/* What is about to be launched: a graph, or what names the memory of a kernel or a copy. */
struct launched {
    CUgraphExec graph; /* NULL: none */
    struct ag_names names;
};

static struct {
    uint64_t n_launches, volume; /* bytes that launches have used; under the lock of the ranges */
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

/* Uses that are apart by less than this part of what the device holds follow each other. */
#define APART_PART 8u

/* Does a use now follow the last one? */
static bool follows(const struct ag_piece *piece, uint64_t capacity)
{
    return piece->used_by && self.volume - piece->used_at <= capacity / APART_PART;
}

/* Uses that follow each other begin: how far are they apart from those before? */
static void begin_uses(struct ag_piece *piece)
{
    piece->period = piece->used_by ? self.volume - piece->began_at : 0;
    piece->began_at = self.volume;
    piece->last_uses = piece->uses;
    piece->uses = 0;
    self.volume += piece->size;
}

/* How many uses follow each other from here on, those of a launch with so many among them? */
static unsigned uses_to_come(const struct ag_piece *piece, unsigned uses)
{
    unsigned known =
        piece->uses < piece->last_uses ? piece->last_uses - piece->uses : piece->uses + 1;

    return known > uses ? known : uses;
}

/* How many bytes of uses come before the next one of the piece? One that is overdue may never come,
 * and one that had no other yet is as far ahead as its last one is ago. */
static uint64_t next_use(const struct ag_piece *piece)
{
    uint64_t next = piece->began_at + piece->period;

    if (!piece->period)
        return self.volume - piece->used_at;
    return next >= self.volume ? next - self.volume : 2 * (self.volume - next);
}

/* How much speaks for its going: the bytes until its next use, for each hundredth of a crossing of
 * the bus that it costs then to have it on the host. */
static uint64_t reason_to_go(const struct ag_piece *piece, uint64_t capacity)
{
    unsigned uses = piece->uses > piece->last_uses ? piece->uses : piece->last_uses;
    unsigned price = ag_prices_of_move();

    if (piece->uses < piece->last_uses && follows(piece, capacity))
        return 0; /* more are to come at once */
    if (!uses)
        uses = 1;
    return next_use(piece) / (uses * 100 < price ? uses * 100 : price);
}

/* A piece that the launch uses so often. True: it is to come to the device. */
static bool use_piece(const struct ag_movable *range, struct ag_piece *piece, uint64_t launch,
                      unsigned uses)
{
    uint64_t since = self.volume - piece->used_at;
    uint64_t capacity = ag_budget_size(range->context->device);
    bool on_host = !piece->handle->on_device;

    if (piece->used_by != launch) {
        bool stays = piece->used_by && since <= capacity;

        if (!follows(piece, capacity))
            begin_uses(piece);
        else
            stays = false; /* it was used on the host just now: only the price tells */
        stays = stays || ag_prices_worth_moving(uses_to_come(piece, uses));
        piece->comes = on_host && !range->pinned && ag_place_comes(piece, stays);
        if (on_host && !piece->comes)
            ag_stats_add(AG_STAT_PAGE_IN_PLACE, uses * piece->size);
        piece->uses += uses;
        piece->used_by = launch;
        piece->used_at = self.volume;
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

/* The pieces of a block from an address on: is some of them to come? `collects`: they are wanted.
 */
static bool use_block(const struct ag_name *name, uint64_t launch, bool collects)
{
    struct ag_movable *range = ag_range_at(name->address);
    bool any = false;

    if (!range)
        return false;
    for (size_t i = (name->address - range->address) / range->pieces[0].size; i < range->n_pieces;
         i++) {
        if (!is_of(name, range, &range->pieces[i]) ||
            !use_piece(range, &range->pieces[i], launch, name->uses))
            continue;
        any = true;
        if (collects)
            want(range, &range->pieces[i]);
    }
    return any;
}

static bool use_all(const struct launched *launched, uint64_t launch, bool collects)
{
    const struct ag_name *at = launched->names.at;
    unsigned n = launched->names.n;
    bool any = false;

    if (launched->graph)
        at = ag_names_of_graph(launched->graph, &n);
    for (unsigned i = 0; i < n; i++)
        any |= use_block(&at[i], launch, collects);
    return any;
}

/* --- who goes; between ag_move_begin() and ag_move_end() --- */

/* The piece on the device that has most reason to go, and that this launch does not use. */
static struct ag_move farthest_used(void)
{
    uint64_t capacity = ag_budget_size(mover.context->device), most = 0;
    struct ag_move victim = {0};
    struct ag_movable *range = ag_ranges_lock();

    for (; range; range = range->next) {
        if (range->pinned || range->context != mover.context)
            continue;
        for (unsigned i = 0; i < range->n_pieces; i++) {
            struct ag_piece *piece = &range->pieces[i];
            uint64_t reason;

            if (!piece->handle->on_device || piece->used_by == mover.launch || piece->goes ||
                piece->place == AG_PLACED_ON_DEVICE)
                continue;
            reason = reason_to_go(piece, capacity);
            if (victim.piece && reason <= most)
                continue;
            victim = (struct ag_move){range, piece, NULL};
            most = reason;
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

static void collect_wanted(struct ag_context *context, const struct launched *launched,
                           uint64_t launch)
{
    mover.context = context;
    mover.launch = launch;
    mover.n_wanted = mover.next = 0;
    (void)ag_ranges_lock();
    (void)use_all(launched, launch, true);
    ag_ranges_unlock();
}

/* --- when --- */

static void bring_wanted(struct ag_context *context, const struct launched *launched,
                         uint64_t launch)
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
    collect_wanted(context, launched, launch);
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
static void bring(struct ag_context *context, const struct launched *launched, uint64_t launch)
{
    struct ag_undisturbed before;

    if (ag_rest_is_on(&self.rest))
        return;
    ag_undisturbed_begin(&before);
    bring_wanted(context, launched, launch);
    ag_undisturbed_end(&before);
}

static void use_launched(const struct launched *launched)
{
    struct ag_context *context = ag_context_current();
    uint64_t number;
    bool comes;

    if (!context)
        return;
    (void)ag_ranges_lock();
    number = ++self.n_launches;
    comes = use_all(launched, number, false);
    ag_ranges_unlock();
    if (comes)
        bring(context, launched, number);
}

void ag_use_before_launch(const struct ag_launch *launch)
{
    struct launched launched; /* not zeroed: it is large */

    if (ag_capture_is_open())
        return;
    ag_place_bring();
    launched.graph = NULL;
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
    launched.names.n = 0;
    name_line(&launched.names, to, bytes);
    if (from != to)
        name_line(&launched.names, from, bytes);
    if (launched.names.n && !ag_capture_is_open())
        use_launched(&launched);
}

void ag_use_before_graph(CUgraphExec exec)
{
    const struct launched launched = {.graph = exec};

    if (!exec || ag_capture_is_open())
        return;
    ag_place_bring();
    use_launched(&launched);
}

void ag_use_begin_child(void)
{
    self.rest = (struct ag_rest){0};
    ag_place_begin_child();
}
