/* Who goes, and who comes for it: see exchange.h.
 *
 * Those go that this launch does not use and whose next use is expected last: the best there is, as
 * long as iterations are alike. Where the launch uses all that is on the device, as a graph of a
 * whole iteration may, what costs most on the host comes for what costs least there, if that is
 * cheaper by more than the move. */
#include "policy/paging/plan/exchange.h"

#include "interpose/core/report/stats.h"
#include "policy/paging/mover.h"
#include "policy/paging/plan/foretell.h"
#include "policy/paging/plan/prices.h"

#define MOST_WANTED  2048u      /* pieces of one launch */
#define MOST_AT_ONCE 64u        /* pieces each way */
#define AHEAD_PART   32u        /* of the device; what comes at once for launches to come */
#define SPARE_PART   64u        /* of it, left free: both ways are busy from the first */
#define PLACED_PRICE UINT32_MAX /* of what the program wants there: above that of any use */

struct ranked {
    struct ag_move move;
    uint64_t price; /* hundredths of a crossing of the bus, on the host */
};

/* What is about to move: it belongs to whoever has begun to (mover.h). */
static struct {
    struct ag_context *context;
    uint64_t launch;
    struct ag_move wanted[MOST_WANTED], batch[2 * MOST_AT_ONCE];
    uint64_t due[MOST_WANTED]; /* in so many launches what is wanted is used */
    unsigned n_wanted, next, n_batch;
    bool is_refused; /* something did not move, and nothing does any more */
    /* What the launch uses on the device, cheapest first; and on the host, dearest first. */
    struct ranked cheap[MOST_AT_ONCE], dear[MOST_AT_ONCE];
    unsigned n_cheap, n_dear, next_cheap;
    bool swaps; /* those of `cheap` go */
} self;

/* --- what it is worth --- */

static uint64_t price_of_piece(const struct ag_piece *piece, const struct ag_context *context)
{
    return piece->place == AG_PLACED_ON_DEVICE
               ? PLACED_PRICE
               : ag_foretell_price(piece, ag_exchange_near(context));
}

/* Is it cheaper by more than the move to have the one on the device instead of the other? */
static bool is_worth_it(uint64_t dear, uint64_t cheap)
{
    uint64_t won = dear > cheap ? dear - cheap : 0;

    return ag_prices_worth_moving(won < PLACED_PRICE ? (unsigned)won : PLACED_PRICE);
}

static bool may_go(const struct ag_piece *piece)
{
    return piece->handle->on_device && piece->place != AG_PLACED_ON_DEVICE;
}

static bool is_to_come(const struct ag_piece *piece, uint64_t launch)
{
    return !piece->handle->on_device && piece->used_by == launch && piece->comes;
}

bool ag_exchange_is_possible(const struct ag_movable *first, const struct ag_context *context,
                             uint64_t launch)
{
    uint64_t cheapest = UINT64_MAX, dearest = 0, price;

    for (const struct ag_movable *range = first; range; range = range->next) {
        if (range->pinned || range->context != context)
            continue;
        for (unsigned i = 0; i < range->n_pieces; i++) {
            const struct ag_piece *piece = &range->pieces[i];
            bool goes = may_go(piece);

            if (goes && piece->used_by != launch)
                return true;
            if (!goes && !is_to_come(piece, launch))
                continue;
            price = price_of_piece(piece, context);
            if (goes && price < cheapest)
                cheapest = price;
            else if (!goes && price > dearest)
                dearest = price;
        }
    }
    return is_worth_it(dearest, cheapest);
}

/* --- who goes --- */

/* The piece on the device whose next use is expected last, in more than so many launches, and that
 * this launch does not use. */
static struct ag_move farthest_used(uint64_t most)
{
    struct ag_move victim = {0};
    struct ag_movable *range = ag_ranges_lock();

    for (; range; range = range->next) {
        if (range->pinned || range->context != self.context)
            continue;
        for (unsigned i = 0; i < range->n_pieces; i++) {
            struct ag_piece *piece = &range->pieces[i];
            uint64_t next;

            if (!may_go(piece) || piece->used_by == self.launch || piece->goes)
                continue;
            next = ag_foretell_next_use(piece);
            if (next <= most && (victim.piece || most))
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

/* The next of those that go though the launch uses them. */
static struct ag_move next_cheap(void)
{
    return self.next_cheap < self.n_cheap ? self.cheap[self.next_cheap++].move
                                          : (struct ag_move){0};
}

/* Has pieces of `bytes` go in this batch; fewer where no more of them are used later than what is
 * to come for them, or where the host has no memory. */
static void let_go(uint64_t bytes)
{
    uint64_t gone = 0, due = self.next < self.n_wanted ? self.due[self.next] : 0;

    for (unsigned n = 0; gone < bytes && n < MOST_AT_ONCE; n++) {
        struct ag_move move = self.swaps ? next_cheap() : farthest_used(due);

        if (!move.piece)
            return;
        move.to = ag_handle_get(self.context->device, move.piece->size, false);
        if (!move.to) {
            move.piece->goes = false;
            return;
        }
        gone += move.piece->size;
        self.batch[self.n_batch++] = move;
    }
}

/* --- who comes --- */

/* Pieces that are wanted, as far as there is memory for them. */
static void let_come(void)
{
    while (self.next < self.n_wanted && self.n_batch < MOST_AT_ONCE) {
        struct ag_move *move = &self.wanted[self.next];

        move->to = ag_handle_get(self.context->device, move->piece->size, true);
        if (!move->to)
            break;
        self.batch[self.n_batch++] = *move;
        self.next++;
    }
}

static uint64_t still_to_come(void)
{
    uint64_t bytes = 0;

    for (unsigned i = self.next; i < self.n_wanted; i++)
        bytes += self.wanted[i].piece->size;
    return bytes;
}

/* Memory of pieces that did not move is nobody's again. */
static void put_back_unmoved(void)
{
    for (unsigned i = 0; i < self.n_batch; i++) {
        self.batch[i].piece->goes = false;
        if (self.batch[i].to)
            ag_handle_put(self.batch[i].to);
    }
}

static uint64_t spare_bytes(const struct ag_device *device)
{
    uint64_t spare = ag_budget_size(device) / SPARE_PART;

    return spare > ag_ranges_piece_bytes() ? spare : ag_ranges_piece_bytes();
}

bool ag_exchange_has_room(struct ag_device *device)
{
    uint64_t spare = spare_bytes(device), kept = ag_handles_kept(device);

    return ag_handles_has_room(device, ag_ranges_piece_bytes() + (spare > kept ? spare - kept : 0));
}

/* Bytes that go with those that came: room for what is still to come, or for later launches. */
static uint64_t bytes_to_go(uint64_t rest)
{
    uint64_t spare = spare_bytes(self.context->device);
    uint64_t kept = ag_handles_kept(self.context->device);

    if (kept >= spare || (!rest && ag_handles_may_get(self.context->device, spare, false)))
        return 0;
    return spare - kept;
}

/* Has as much go as comes, once there is room to begin with: both ways are busy then. False:
 * nothing moves any more. */
static bool move_batch(unsigned *n_moved)
{
    unsigned moved;

    self.n_batch = 0;
    let_come();
    let_go(bytes_to_go(still_to_come()));
    if (!self.n_batch)
        return false;
    moved = ag_move_pieces(self.context, self.batch, self.n_batch);
    *n_moved += moved;
    ag_stats_add(AG_STAT_PAGE_BATCHES, 1);
    put_back_unmoved();
    self.is_refused = moved < self.n_batch;
    return !self.is_refused;
}

/* Puts the piece among those that are wanted ahead, from `first` on in the order of their uses; of
 * more than `most` the one that is used last is not wanted. */
static void want_ahead(struct ag_move move, uint64_t due, unsigned first, unsigned most)
{
    unsigned at;

    if (self.n_wanted == first + most && due >= self.due[self.n_wanted - 1])
        return;
    self.n_wanted -= self.n_wanted == first + most;
    for (at = self.n_wanted++; at > first && self.due[at - 1] > due; at--) {
        self.wanted[at] = self.wanted[at - 1];
        self.due[at] = self.due[at - 1];
    }
    self.wanted[at] = move;
    self.due[at] = due;
}

/* On the host, and foretold to be used where that costs more than to move it. */
static bool is_wanted_ahead(const struct ag_piece *piece, uint64_t *ret_due)
{
    return !piece->handle->on_device && piece->place == AG_PLACED_AUTO &&
           piece->used_by != self.launch &&
           ag_prices_worth_moving(ag_foretell_due(piece, ag_exchange_near(self.context), ret_due));
}

void ag_exchange_want_ahead(struct ag_movable *range)
{
    uint64_t bytes = ag_budget_size(self.context->device) / AHEAD_PART, due;
    unsigned first = self.n_wanted, most = (unsigned)(bytes / ag_ranges_piece_bytes());

    if (most < 1)
        most = 1;
    if (most > MOST_AT_ONCE)
        most = MOST_AT_ONCE;
    if (first + most > MOST_WANTED)
        return;
    for (; range; range = range->next)
        for (unsigned i = 0; i < range->n_pieces; i++)
            if (!range->pinned && range->context == self.context &&
                is_wanted_ahead(&range->pieces[i], &due))
                want_ahead((struct ag_move){range, &range->pieces[i], NULL}, due, first, most);
}

/* --- all of it --- */

void ag_exchange_begin(struct ag_context *context, uint64_t launch)
{
    self.context = context;
    self.launch = launch;
    self.n_wanted = self.next = 0;
    self.swaps = self.is_refused = false;
}

void ag_exchange_want(struct ag_movable *range, struct ag_piece *piece)
{
    if (self.n_wanted == MOST_WANTED || piece->wanted_by == self.launch)
        return;
    piece->wanted_by = self.launch;
    self.due[self.n_wanted] = 0;
    self.wanted[self.n_wanted++] = (struct ag_move){range, piece, NULL};
}

/* Puts it among the first MOST_AT_ONCE by their prices. */
static void rank(struct ranked *list, unsigned *n, struct ranked one, bool dearest_first)
{
    unsigned at = *n < MOST_AT_ONCE ? (*n)++ : MOST_AT_ONCE;

    for (; at && (dearest_first ? one.price > list[at - 1].price : one.price < list[at - 1].price);
         at--)
        if (at < MOST_AT_ONCE)
            list[at] = list[at - 1];
    if (at < MOST_AT_ONCE)
        list[at] = one;
}

/* Called with the lock held. */
static void rank_pieces_of(struct ag_movable *range)
{
    for (unsigned i = 0; i < range->n_pieces; i++) {
        struct ag_piece *piece = &range->pieces[i];
        bool goes = may_go(piece) && piece->used_by == self.launch;

        if (!goes && !is_to_come(piece, self.launch))
            continue;
        rank(goes ? self.cheap : self.dear, goes ? &self.n_cheap : &self.n_dear,
             (struct ranked){{range, piece, NULL}, price_of_piece(piece, self.context)}, !goes);
    }
}

/* What is wanted are the dearest that the cheapest are to go for. */
static void plan_swaps(void)
{
    unsigned n = 0;

    self.n_cheap = self.n_dear = self.next_cheap = 0;
    for (struct ag_movable *range = ag_ranges_lock(); range; range = range->next)
        if (!range->pinned && range->context == self.context)
            rank_pieces_of(range);
    ag_ranges_unlock();
    for (; n < self.n_cheap && n < self.n_dear; n++) {
        if (!is_worth_it(self.dear[n].price, self.cheap[n].price))
            break;
        self.wanted[n] = self.dear[n].move;
        self.due[n] = 0;
    }
    self.n_wanted = self.n_cheap = n;
    self.next = 0;
    self.swaps = true;
}

unsigned ag_exchange_run(void)
{
    unsigned n_moved = 0;

    while (self.next < self.n_wanted && move_batch(&n_moved))
        ;
    if (self.next == self.n_wanted || self.due[self.next] || self.is_refused)
        return n_moved;
    plan_swaps();
    while (self.next < self.n_wanted && move_batch(&n_moved))
        ;
    return n_moved;
}
