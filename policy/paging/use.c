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
#include "policy/paging/mover.h"
#include "policy/paging/named.h"
#include "policy/paging/place.h"
#include "policy/paging/plan/extents.h"
#include "policy/paging/plan/foretell.h"
#include "policy/paging/plan/prices.h"
#include "policy/paging/plan/toll.h"
#include "policy/paging/progress.h"
#include "policy/paging/rest.h"
#include "policy/paging/sites.h"

#define IDLE_NS      50000000u   /* the device goes on within that time, or nobody waits for it */
#define MOST_IDLE_NS 1000000000u /* likewise, however long its kernels are known to take */
#define MOST_IN_VAIN 16u         /* are counted */
#define FIRST_REST   10000000u   /* nothing is tried for so long after it did not */
#define SLOW_BYTES   ((size_t)4 << 20) /* a kernel may take long that uses so many of the host */
#define MOST_WANTED  2048u             /* pieces of one launch */
#define MOST_AT_ONCE 64u               /* pieces each way */
#define AHEAD_PART   32u               /* of the device; what comes at once for launches to come */
#define SPARE_PART   64u               /* of it, left free: both ways are busy from the first */

/* What is about to be launched: a graph, or what names the memory of a kernel or a copy. */
struct launched {
    CUgraphExec graph; /* NULL: none */
    uint64_t kernel;   /* alike for launches of a function with the same grid and so on; 0: none */
    CUstream stream;   /* a kernel's, as the driver is to get it */
    uint64_t number;   /* of launches that use memory that can move */
    bool has_room;     /* the device has some for another piece */
    struct ag_names names;
};

/* What became of the pieces that it uses. */
struct used {
    size_t comes, in_place; /* bytes */
    uint64_t operand;       /* has the most of them; 0: there are none, or nobody knows */
    size_t of_operand;
};

static struct {
    uint64_t n_launches;  /* under the lock of the ranges */
    uint64_t in_place_ns; /* of the slowest kernel since all was idle, by the bus; likewise */
    unsigned n_in_vain;   /* waits for the device, since one was not; likewise */
    struct ag_rest rest;
} self;

/* What is being moved: of who has begun to move (mover.h). */
static struct {
    struct ag_context *context;
    uint64_t launch;
    struct ag_move wanted[MOST_WANTED], batch[2 * MOST_AT_ONCE];
    uint64_t due[MOST_WANTED]; /* in so many launches what is wanted is used */
    unsigned n_wanted, next, n_batch;
} mover;

/* --- uses; with the lock of the ranges held --- */

/* A piece that comes stays until its next use, if no more than these bytes are used before that:
 * one move then serves both uses. */
static uint64_t near_bytes(const struct ag_context *context)
{
    return ag_budget_size(context->device);
}

static uint64_t operand_of(const struct launched *launched, const struct ag_name *name)
{
    return launched->kernel ? ag_hash_word(launched->kernel, name->offset) | 1 : 0;
}

/* A piece that the launch uses by that name. True: it is to come to the device, and not wanted yet.
 */
static bool use_piece(const struct launched *launched, const struct ag_movable *range,
                      struct ag_piece *piece, const struct ag_name *name)
{
    bool on_host = !piece->handle->on_device;
    unsigned price;

    if (piece->used_by != launched->number) {
        price = ag_foretell_use(piece, operand_of(launched, name), name->uses, on_host,
                                near_bytes(range->context));
        piece->used_by = launched->number;
        piece->comes = on_host && !range->pinned &&
                       ag_place_comes(piece, launched->has_room || ag_prices_worth_moving(price));
        if (on_host && !piece->comes)
            ag_site_count(range, AG_HELD_IN_PLACE, name->uses * piece->size);
    }
    return piece->comes && on_host;
}

static void want(struct ag_movable *range, struct ag_piece *piece, uint64_t due)
{
    if (mover.n_wanted == MOST_WANTED)
        return;
    mover.due[mover.n_wanted] = due;
    mover.wanted[mover.n_wanted++] = (struct ag_move){range, piece, NULL};
}

/* Does what is named have the piece in it, or half of that at least? */
static bool is_of(const struct ag_name *name, const struct ag_movable *range,
                  const struct ag_piece *piece)
{
    CUdeviceptr from = range->address + piece->offset, to = from + piece->size;

    if (!name->end)
        return true; /* who is given an address may use all that it reaches */
    from = from > name->address ? from : name->address;
    to = to < name->end ? to : name->end;
    return to > from && 2 * (to - from) >= piece->size;
}

/* The number of the first piece after all that is of it. */
static size_t end_of(const struct ag_name *name, const struct ag_movable *range)
{
    size_t end = name->end ? range->n_pieces : ag_extents_end(range, name->address), last;

    if (!name->reach)
        return end;
    last = ag_range_piece_at(range, name->address + name->reach - 1);
    return last < end ? last + 1 : end;
}

/* The pieces of a block from an address on. `collects`: those that are to come are wanted. */
static void use_block(const struct launched *launched, const struct ag_name *name, bool collects,
                      struct used *used)
{
    struct ag_movable *range = ag_range_at(name->address);
    size_t end;

    if (!range)
        return;
    end = end_of(name, range);
    for (size_t i = ag_range_piece_at(range, name->address); i < end; i++) {
        struct ag_piece *piece = &range->pieces[i];

        if (!is_of(name, range, piece))
            continue;
        if (use_piece(launched, range, piece, name)) {
            used->comes += piece->size;
            if (collects)
                want(range, piece, 0);
            piece->comes &= !collects; /* whoever else names it */
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

static bool is_any_on_host(const struct ag_name *name)
{
    const struct ag_movable *range = ag_range_at(name->address);
    size_t end = range ? end_of(name, range) : 0;

    for (size_t i = range ? ag_range_piece_at(range, name->address) : 0; i < end; i++)
        if (!range->pieces[i].handle->on_device)
            return true;
    return false;
}

static bool names_any_on_host(const struct launched *launched)
{
    unsigned n;
    const struct ag_name *at = what_names(launched, &n);

    for (unsigned i = 0; i < n; i++)
        if (is_any_on_host(&at[i]))
            return true;
    return false;
}

/* What kernels are given tells how far it reaches. */
static void note_given(CUdeviceptr address)
{
    struct ag_movable *range = ag_range_at(address);

    if (range && ag_extents_are_learnt(range))
        ag_extents_note(range, address);
}

static void find_reach(struct launched *launched, struct ag_name *name)
{
    const struct ag_movable *range = ag_range_at(name->address);
    uint64_t operand = ag_hash_word(operand_of(launched, name), launched->names.others);

    if (range && launched->kernel)
        name->reach = ag_extents_reach(operand, range->address + range->size - name->address);
}

static void note_names(struct launched *launched)
{
    unsigned n;
    const struct ag_name *at = what_names(launched, &n);

    for (unsigned i = 0; i < n; i++)
        if (!at[i].end)
            note_given(at[i].address);
    for (unsigned i = 0; i < launched->names.n; i++)
        find_reach(launched, &launched->names.at[i]);
}

/* Adds what one name has. */
static void add_used(struct used *all, const struct used *one, uint64_t operand)
{
    size_t bytes = one->comes + one->in_place;

    all->comes += one->comes;
    all->in_place += one->in_place;
    if (bytes <= all->of_operand)
        return;
    all->operand = operand;
    all->of_operand = bytes;
}

static struct used use_all(const struct launched *launched, bool collects)
{
    struct used used = {0};
    unsigned n;
    const struct ag_name *at = what_names(launched, &n);

    for (unsigned i = 0; i < n; i++) {
        struct used one = {0};

        use_block(launched, &at[i], collects, &one);
        add_used(&used, &one, operand_of(launched, &at[i]));
    }
    return used;
}

/* The same kernel, or graph, with the same memory. */
static uint64_t key_of(const struct launched *launched)
{
    uint64_t key = ag_hash_word((uintptr_t)launched->graph, launched->kernel);
    unsigned n;
    const struct ag_name *at = what_names(launched, &n);

    for (unsigned i = 0; i < n; i++)
        key = ag_hash_word(key, at[i].address);
    return key;
}

/* --- who goes; between ag_move_begin() and ag_move_end() --- */

/* The piece on the device whose next use is expected last, in more than so many launches, and that
 * this launch does not use. */
static struct ag_move farthest_used(uint64_t most)
{
    struct ag_move victim = {0};
    struct ag_movable *range = ag_ranges_lock();

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

/* Has pieces of `bytes` go in this batch; fewer where no more of them are used later than what is
 * to come for them, or where the host has no memory. */
static void let_go(uint64_t bytes)
{
    uint64_t gone = 0, due = mover.next < mover.n_wanted ? mover.due[mover.next] : 0;

    for (unsigned n = 0; gone < bytes && n < MOST_AT_ONCE; n++) {
        struct ag_move move = farthest_used(due);

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

/* Pieces that are wanted, as far as there is memory for them. */
static void let_come(void)
{
    while (mover.next < mover.n_wanted && mover.n_batch < MOST_AT_ONCE) {
        struct ag_move *move = &mover.wanted[mover.next];

        move->to = ag_handle_get(mover.context->device, move->piece->size, true);
        if (!move->to)
            break;
        mover.batch[mover.n_batch++] = *move;
        mover.next++;
    }
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

/* Bytes that go with those that came: room for what is still to come, or for later launches. */
static uint64_t bytes_to_go(uint64_t rest)
{
    uint64_t spare = ag_budget_size(mover.context->device) / SPARE_PART;
    uint64_t kept = ag_handles_kept(mover.context->device);

    if (spare < ag_ranges_piece_bytes())
        spare = ag_ranges_piece_bytes();
    if (kept >= spare || (!rest && ag_handles_may_get(mover.context->device, spare, false)))
        return 0;
    return spare - kept;
}

/* Has as much go as comes, once there is room to begin with: both ways are busy then. False:
 * nothing moves any more. */
static bool move_batch(void)
{
    unsigned moved;

    mover.n_batch = 0;
    let_come();
    let_go(bytes_to_go(still_to_come()));
    moved = ag_move_pieces(mover.context, mover.batch, mover.n_batch);
    ag_stats_add(AG_STAT_PAGE_BATCHES, 1);
    put_back_unmoved();
    return moved && moved == mover.n_batch;
}

/* Puts the piece among those that are wanted ahead, from `first` on in the order of their uses; of
 * more than `most` the one that is used last is not wanted. */
static void want_ahead(struct ag_move move, uint64_t due, unsigned first, unsigned most)
{
    unsigned at;

    if (mover.n_wanted == first + most && due >= mover.due[mover.n_wanted - 1])
        return;
    mover.n_wanted -= mover.n_wanted == first + most;
    for (at = mover.n_wanted++; at > first && mover.due[at - 1] > due; at--) {
        mover.wanted[at] = mover.wanted[at - 1];
        mover.due[at] = mover.due[at - 1];
    }
    mover.wanted[at] = move;
    mover.due[at] = due;
}

/* On the host, and foretold to be used where that costs more than to move it. */
static bool is_wanted_ahead(const struct ag_piece *piece, uint64_t *ret_due)
{
    uint64_t near = near_bytes(mover.context);

    return !piece->handle->on_device && piece->place == AG_PLACED_AUTO &&
           piece->used_by != mover.launch && ag_foretell_is_due(piece, near, ret_due) &&
           ag_prices_worth_moving(ag_foretell_price_when_due(piece, near));
}

/* What later launches are to find on the device, nearest first, up to a part of it. */
static void collect_ahead(struct ag_movable *range)
{
    uint64_t bytes = ag_budget_size(mover.context->device) / AHEAD_PART, due;
    unsigned first = mover.n_wanted, most = (unsigned)(bytes / ag_ranges_piece_bytes());

    if (most < 1)
        most = 1;
    if (most > MOST_AT_ONCE)
        most = MOST_AT_ONCE;
    if (first + most > MOST_WANTED)
        return;
    for (; range; range = range->next)
        for (unsigned i = 0; i < range->n_pieces; i++)
            if (!range->pinned && range->context == mover.context &&
                is_wanted_ahead(&range->pieces[i], &due))
                want_ahead((struct ag_move){range, &range->pieces[i], NULL}, due, first, most);
}

static void collect_wanted(struct ag_context *context, const struct launched *launched)
{
    struct ag_movable *range;

    mover.context = context;
    mover.launch = launched->number;
    mover.n_wanted = mover.next = 0;
    range = ag_ranges_lock();
    self.in_place_ns = 0;
    (void)use_all(launched, true);
    collect_ahead(range);
    ag_ranges_unlock();
}

/* --- when --- */

static void note_in_place(uint64_t operand, uint64_t bytes)
{
    uint64_t ns;

    (void)ag_ranges_lock();
    ns = ag_prices_crossing_ns(bytes) * ag_toll_at_most(operand) / 100;
    if (ns > self.in_place_ns)
        self.in_place_ns = ns;
    ag_ranges_unlock();
}

/* How long the device may take over one kernel: half as long each time that it was in vain. */
static uint64_t timeout_now(void)
{
    uint64_t ns;

    (void)ag_ranges_lock();
    ns = IDLE_NS + self.in_place_ns;
    if (ns > MOST_IDLE_NS >> self.n_in_vain)
        ns = MOST_IDLE_NS >> self.n_in_vain;
    ag_ranges_unlock();
    return ns > IDLE_NS ? ns : IDLE_NS;
}

static void note_idle(bool is_idle)
{
    (void)ag_ranges_lock();
    if (is_idle)
        self.n_in_vain = 0;
    else if (self.n_in_vain < MOST_IN_VAIN)
        self.n_in_vain++;
    ag_ranges_unlock();
}

/* False: the device does not become idle. */
static bool bring_wanted(struct ag_context *context, const struct launched *launched)
{
    uint64_t began;
    bool pushed;

    if (!ag_move_begin(context, timeout_now())) {
        note_idle(false);
        ag_rest_longer(&self.rest, FIRST_REST);
        ag_stats_add(AG_STAT_PAGE_IN_VAIN, 1);
        return false;
    }
    began = ag_clock_ns();
    ag_rest_begin_anew(&self.rest);
    note_idle(true);
    collect_wanted(context, launched);
    if (ag_context_make_current(context, &pushed) == CUDA_SUCCESS) {
        while (mover.next < mover.n_wanted && move_batch())
            ;
        ag_stats_add(AG_STAT_PAGE_MOVES, 1);
    }
    ag_context_restore(pushed);
    ag_move_end();
    ag_stats_add(AG_STAT_PAGE_NS, ag_clock_ns() - began);
    return true;
}

/* Signals and cancellations of the thread wait: a handler that jumped out of here, or the end of
 * the thread, would leave all others waiting. */
static bool bring(struct ag_context *context, const struct launched *launched)
{
    struct ag_undisturbed before;
    bool is_idle;

    if (ag_rest_is_on(&self.rest))
        return false;
    ag_undisturbed_begin(&before);
    is_idle = bring_wanted(context, launched);
    ag_undisturbed_end(&before);
    return is_idle;
}

static bool uses_memory_of_host(struct launched *launched)
{
    bool uses;

    (void)ag_ranges_lock();
    note_names(launched);
    uses = names_any_on_host(launched);
    ag_ranges_unlock();
    return uses;
}

static struct used log_uses(struct launched *launched)
{
    struct used used;

    (void)ag_ranges_lock();
    launched->number = ++self.n_launches;
    ag_foretell_launch(key_of(launched));
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
    ag_progress_mark(context, false);
    launched->has_room = uses_memory_of_host(launched) &&
                         ag_handles_has_room(context->device, ag_ranges_piece_bytes());
    used = log_uses(launched);
    if (used.comes && bring(context, launched))
        return;
    used.in_place += used.comes;
    if (!launched->kernel || !used.in_place)
        return;
    note_in_place(used.operand, used.in_place);
    ag_progress_mark(context, used.in_place >= SLOW_BYTES);
    ag_toll_before(launched->stream, used.operand, used.in_place);
}

static CUstream stream_of(const struct ag_launch *launch)
{
    if (launch->stream)
        return launch->stream;
    return launch->per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

static uint64_t kernel_of(const struct ag_launch *launch)
{
    return ag_hash_word((uintptr_t)launch->function, launch->config) | 1;
}

void ag_use_before_launch(const struct ag_launch *launch)
{
    struct launched launched; /* not zeroed: it is large */

    if (ag_capture_is_open())
        return;
    ag_place_bring();
    launched.graph = NULL;
    launched.kernel = kernel_of(launch);
    launched.stream = stream_of(launch);
    ag_toll_go_on(launched.stream);
    if (!ag_handles_any_on_host())
        return;
    ag_name_launch(&launched.names, launch);
    if (launched.names.n)
        use_launched(&launched);
}

void ag_use_launch_refused(void)
{
    ag_toll_refused();
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
    launched.kernel = 0;
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
    launched.kernel = 0;
    launched.names.n = 0;
    use_launched(&launched);
}

void ag_use_begin_child(void)
{
    self.rest = (struct ag_rest){0};
    self.n_in_vain = 0;
    ag_place_begin_child();
    ag_foretell_begin_child();
    ag_extents_begin_child();
    ag_toll_begin_child();
    ag_progress_begin_child();
}
