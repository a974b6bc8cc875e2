/* Who goes, and who comes for it: see exchange.h.
 *
 * Those go that are worth least on the device (foretell.h). What the launch uses comes for them if
 * it is worth more, by more than a move. What later launches are expected to bring comes with it,
 * if it is worth more: it would have to move later in any case. Of those that are worth nothing, as
 * all are as long as nothing is foretold, the one goes whose next use is expected last. */
#include "policy/paging/plan/exchange.h"

#include "interpose/core/report/stats.h"
#include "policy/budget.h"
#include "policy/paging/mover.h"
#include "policy/paging/plan/foretell.h"
#include "policy/paging/plan/prices.h"

#define MOST_WANTED  2048u      /* pieces of one launch */
#define MOST_AT_ONCE 64u        /* pieces each way */
#define AHEAD_PART   32u        /* of the device; what comes at once for launches to come */
#define SPARE_PART   64u        /* of it, left free: both ways are busy from the first */
#define PLACED_WORTH UINT32_MAX /* of what the program wants there: above that of any use */

/* A piece on the device, what it is worth there, and in how many launches it is used. */
struct victim {
    struct ag_move move;
    uint64_t worth, next;
};

/* What is about to move: it belongs to whoever has begun to (mover.h). */
static struct {
    struct ag_context *context;
    uint64_t launch;
    struct ag_move wanted[MOST_WANTED], batch[2 * MOST_AT_ONCE];
    uint64_t due[MOST_WANTED];           /* in so many launches what is wanted is used */
    struct victim victims[MOST_AT_ONCE]; /* of which those before `n_gone` go, or went */
    unsigned n_wanted, next, n_batch, n_victims, n_gone;
    bool has_room;   /* and nothing has to go */
    bool is_refused; /* something did not move, and nothing does any more */
} self;

/* --- what it is worth --- */

static uint64_t worth_of(const struct ag_piece *piece, const struct ag_context *context)
{
    return piece->place == AG_PLACED_ON_DEVICE
               ? PLACED_WORTH
               : ag_foretell_worth(piece, ag_budget_size(context->device));
}

/* Is it cheaper by more than the move to have the one on the device instead of the other? */
static bool is_worth_more(uint64_t one, uint64_t other)
{
    uint64_t won = one > other ? one - other : 0;

    return ag_prices_worth_moving(won < PLACED_WORTH ? (unsigned)won : PLACED_WORTH);
}

static bool may_go(const struct ag_piece *piece)
{
    return piece->handle->on_device && piece->place != AG_PLACED_ON_DEVICE;
}

static bool is_to_come(const struct ag_piece *piece, uint64_t launch)
{
    return !piece->handle->on_device && piece->used_by == launch && piece->comes;
}

bool ag_exchange_comes(const struct ag_piece *piece, const struct ag_context *context)
{
    return is_worth_more(worth_of(piece, context), 0);
}

/* What the one is worth that the launch wants most. */
static uint64_t most_wanted(const struct ag_movable *first, const struct ag_context *context,
                            uint64_t launch)
{
    uint64_t most = 0, worth;

    for (const struct ag_movable *range = first; range; range = range->next) {
        if (range->pinned || range->context != context)
            continue;
        for (unsigned i = 0; i < range->n_pieces; i++) {
            if (!is_to_come(&range->pieces[i], launch))
                continue;
            worth = worth_of(&range->pieces[i], context);
            most = worth > most ? worth : most;
        }
    }
    return most;
}

bool ag_exchange_is_possible(const struct ag_movable *first, const struct ag_context *context,
                             uint64_t launch)
{
    uint64_t most = most_wanted(first, context, launch);

    for (const struct ag_movable *range = first; range; range = range->next) {
        if (range->pinned || range->context != context)
            continue;
        for (unsigned i = 0; i < range->n_pieces; i++)
            if (may_go(&range->pieces[i]) &&
                is_worth_more(most, worth_of(&range->pieces[i], context)))
                return true;
    }
    return false;
}

/* --- who goes --- */

/* Is the one worth less on the device, or as much, and used later? */
static bool goes_before(const struct victim *one, const struct victim *other)
{
    return one->worth < other->worth || (one->worth == other->worth && one->next > other->next);
}

/* Puts it among those that are worth least, in the order in which they go. */
static void list_victim(struct victim victim)
{
    unsigned at;

    if (self.n_victims == MOST_AT_ONCE) {
        if (!goes_before(&victim, &self.victims[MOST_AT_ONCE - 1]))
            return;
        self.n_victims--;
    }
    for (at = self.n_victims++; at > 0 && goes_before(&victim, &self.victims[at - 1]); at--)
        self.victims[at] = self.victims[at - 1];
    self.victims[at] = victim;
}

/* Lists the pieces on the device that are worth least there. What they are worth is the same for as
 * long as no launch comes. */
static void list_victims(void)
{
    struct ag_movable *range = ag_ranges_lock();

    self.n_victims = self.n_gone = 0;
    for (; range; range = range->next) {
        if (range->pinned || range->context != self.context)
            continue;
        for (unsigned i = 0; i < range->n_pieces; i++) {
            struct ag_piece *piece = &range->pieces[i];

            if (may_go(piece) && !piece->goes)
                list_victim((struct victim){{.range = range, .piece = piece},
                                            worth_of(piece, self.context),
                                            ag_foretell_next_use(piece)});
        }
    }
    ag_ranges_unlock();
}

/* The one that is to go next; NULL: none may. */
static const struct victim *next_victim(void)
{
    if (self.n_gone == self.n_victims)
        list_victims();
    return self.n_gone < self.n_victims ? &self.victims[self.n_gone++] : NULL;
}

/* Has pieces of `bytes` go in this batch; fewer where the host has no memory. */
static void let_go(uint64_t bytes)
{
    uint64_t gone = 0;

    for (unsigned n = 0; gone < bytes && n < MOST_AT_ONCE; n++) {
        const struct victim *victim = next_victim();
        struct ag_move move;

        if (!victim)
            return;
        move = victim->move;
        move.to = ag_handle_get(self.context->device, move.piece->size, false);
        if (!move.to)
            return;
        move.piece->goes = true;
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

    return spare > ag_ranges_largest_piece() ? spare : ag_ranges_largest_piece();
}

bool ag_exchange_has_room(struct ag_device *device)
{
    uint64_t spare = spare_bytes(device), kept = ag_handles_kept(device);

    return ag_handles_has_room(device,
                               ag_ranges_largest_piece() + (spare > kept ? spare - kept : 0));
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
    *ret_due = ag_foretell_next_use(piece);
    return !piece->handle->on_device && piece->place == AG_PLACED_AUTO &&
           piece->used_by != self.launch && ag_foretell_comes(piece);
}

void ag_exchange_want_ahead(struct ag_movable *range)
{
    uint64_t bytes = ag_budget_size(self.context->device) / AHEAD_PART, due;
    unsigned first = self.n_wanted, most = (unsigned)(bytes / ag_ranges_largest_piece());

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
                want_ahead((struct ag_move){.range = range, .piece = &range->pieces[i]}, due, first,
                           most);
}

/* --- all of it --- */

void ag_exchange_begin(struct ag_context *context, uint64_t launch, bool has_room)
{
    self.context = context;
    self.launch = launch;
    self.has_room = has_room;
    self.n_wanted = self.next = self.n_victims = self.n_gone = 0;
    self.is_refused = false;
}

void ag_exchange_want(struct ag_movable *range, struct ag_piece *piece)
{
    if (self.n_wanted == MOST_WANTED || piece->wanted_by == self.launch)
        return;
    piece->wanted_by = self.launch;
    self.due[self.n_wanted] = 0;
    self.wanted[self.n_wanted++] = (struct ag_move){.range = range, .piece = piece};
}

/* Drops of what is wanted what is worth less than that which would have to go for it. Launches of
 * other threads are logged meanwhile. */
static void drop_what_is_worth_less(void)
{
    uint64_t worth = 0, room = 0, its;
    unsigned n_victims = 0, n = 0;

    list_victims();
    (void)ag_ranges_lock();
    for (unsigned i = 0; i < self.n_wanted; i++) {
        struct ag_piece *piece = self.wanted[i].piece;

        for (; room < piece->size && n_victims < self.n_victims; n_victims++) {
            worth = self.victims[n_victims].worth;
            room += self.victims[n_victims].move.piece->size;
        }
        if (room < piece->size && self.n_victims < MOST_AT_ONCE)
            worth = UINT64_MAX; /* nothing more may go */
        its = worth_of(piece, self.context);
        if (self.due[i] ? its <= worth : !is_worth_more(its, worth))
            continue;
        room -= room < piece->size ? room : piece->size;
        self.wanted[n] = self.wanted[i];
        self.due[n++] = self.due[i];
    }
    ag_ranges_unlock();
    self.n_wanted = n;
}

unsigned ag_exchange_run(void)
{
    unsigned n_moved = 0;

    if (!self.has_room)
        drop_what_is_worth_less();
    while (self.next < self.n_wanted && move_batch(&n_moved))
        ;
    return n_moved;
}
