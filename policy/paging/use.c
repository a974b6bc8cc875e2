/* Finding what a launch uses, and when it comes to the device: see use.h.
 *
 * A pointer stands for its block from there on. What lies on the host is read in place as long as
 * that costs less than to move it: for its use now, and those that are expected to follow soon
 * (foretell.h), at what they have been seen to cost (toll.h, prices.h). Where the device has room
 * it comes in any case. What goes for it, exchange.c says. */
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
#include "policy/paging/plan/exchange.h"
#include "policy/paging/plan/extents.h"
#include "policy/paging/plan/foretell.h"
#include "policy/paging/plan/log.h"
#include "policy/paging/plan/prices.h"
#include "policy/paging/plan/toll.h"
#include "policy/paging/plan/worth.h"
#include "policy/paging/progress.h"
#include "policy/paging/rest.h"
#include "policy/paging/sites.h"

#define IDLE_NS      50000000u   /* the device goes on within that time, or nobody waits for it */
#define MOST_IDLE_NS 1000000000u /* likewise, however long its kernels are known to take */
#define MOST_IN_VAIN 16u         /* are counted */
#define FIRST_REST   10000000u   /* nothing is tried for so long after it did not */
#define FOR_GOOD     10u         /* crossings; more than a move takes, whatever is foretold */
#define SLOW_BYTES   ((size_t)4 << 20) /* a kernel may take long that uses so many of the host */

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

/* --- uses; with the lock of the ranges held --- */

static uint64_t operand_of(const struct launched *launched, const struct ag_name *name)
{
    return launched->kernel ? ag_name_operand(launched->kernel, name) : 0;
}

/* A piece that the launch uses by that name. True: it is to come to the device. */
static bool use_piece(const struct launched *launched, const struct ag_movable *range,
                      struct ag_piece *piece, const struct ag_name *name)
{
    bool on_host = !piece->handle->on_device;
    uint64_t operand = operand_of(launched, name);

    if (ag_toll_is_little(launched->kernel))
        return false;
    if (piece->used_by != launched->number) {
        ag_foretell_use(piece, operand, name->crossings, on_host);
        piece->used_by = launched->number;
        piece->comes =
            on_host && !range->pinned &&
            ag_place_comes(piece, launched->has_room || ag_exchange_comes(piece, range->context));
        if (on_host && !piece->comes)
            ag_site_count(range, AG_HELD_IN_PLACE, name->uses * piece->size);
    }
    return piece->comes && on_host;
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

/* Why the pieces that a launch uses are looked at. */
enum purpose {
    TO_LOG,
    TO_BRING, /* those that are to come are wanted */
    TO_LEAVE, /* those that were to come and are on the host still are used there */
};

/* The piece lies on the host, and was to come. Its block may be to stay where it is since then. */
static void meet(enum purpose purpose, const struct ag_name *name, struct ag_movable *range,
                 struct ag_piece *piece)
{
    if (purpose == TO_BRING && !range->pinned)
        ag_exchange_want(range, piece);
    if (purpose != TO_LEAVE)
        return;
    piece->comes = false;
    ag_site_count(range, AG_HELD_IN_PLACE, name->uses * piece->size);
}

/* The pieces of a block from an address on. */
static void use_block(const struct launched *launched, const struct ag_name *name,
                      enum purpose purpose, struct used *used)
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
        if (use_piece(launched, range, piece, name))
            meet(purpose, name, range, piece);
        if (!piece->handle->on_device)
            *(piece->comes ? &used->comes : &used->in_place) += piece->size;
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

static struct used use_all(const struct launched *launched, enum purpose purpose)
{
    struct used used = {0};
    unsigned n;
    const struct ag_name *at = what_names(launched, &n);

    for (unsigned i = 0; i < n; i++) {
        struct used one = {0};

        use_block(launched, &at[i], purpose, &one);
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

static void collect_wanted(struct ag_context *context, const struct launched *launched)
{
    struct ag_movable *range;

    ag_exchange_begin(context, launched->number, launched->has_room);
    range = ag_ranges_lock();
    self.in_place_ns = 0;
    (void)use_all(launched, TO_BRING);
    ag_exchange_want_ahead(range);
    ag_ranges_unlock();
}

static void bring_wanted(struct ag_context *context, const struct launched *launched)
{
    uint64_t began;
    bool pushed;

    if (!ag_move_begin(context, timeout_now())) {
        note_idle(false);
        ag_rest_longer(&self.rest, FIRST_REST);
        ag_stats_add(AG_STAT_PAGE_IN_VAIN, 1);
        return;
    }
    began = ag_clock_ns();
    ag_rest_begin_anew(&self.rest);
    note_idle(true);
    collect_wanted(context, launched);
    if (ag_context_make_current(context, &pushed) == CUDA_SUCCESS && ag_exchange_run())
        ag_stats_add(AG_STAT_PAGE_MOVES, 1);
    ag_context_restore(pushed);
    ag_move_end();
    ag_stats_add(AG_STAT_PAGE_NS, ag_clock_ns() - began);
}

/* May anything come for the launch? Else the device need not become idle for it. */
static bool can_bring(const struct ag_context *context, const struct launched *launched)
{
    bool can;

    if (ag_rest_is_on(&self.rest))
        return false;
    if (launched->has_room)
        return true;
    can = ag_exchange_is_possible(ag_ranges_lock(), context, launched->number);
    ag_ranges_unlock();
    return can;
}

/* Signals and cancellations of the thread wait: a handler that jumped out of here, or the end of
 * the thread, would leave all others waiting. */
static void bring(struct ag_context *context, const struct launched *launched)
{
    struct ag_undisturbed before;

    if (!can_bring(context, launched))
        return;
    ag_undisturbed_begin(&before);
    bring_wanted(context, launched);
    ag_undisturbed_end(&before);
}

/* What was to come and did not is used where it is. */
static struct used leave_in_place(const struct launched *launched)
{
    struct used used;

    (void)ag_ranges_lock();
    used = use_all(launched, TO_LEAVE);
    ag_ranges_unlock();
    return used;
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

static struct used log_uses(const struct ag_context *context, struct launched *launched)
{
    struct used used;

    (void)ag_ranges_lock();
    launched->number = ++self.n_launches;
    ag_worth_look(ag_budget_size(context->device));
    ag_log_add_launch(key_of(launched), launched->kernel, ag_worth_usual_rent());
    used = use_all(launched, TO_LOG);
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
    launched->has_room = uses_memory_of_host(launched) && ag_exchange_has_room(context->device);
    used = log_uses(context, launched);
    if (used.comes) {
        bring(context, launched);
        used = leave_in_place(launched);
    }
    if (!launched->kernel || !used.in_place)
        return;
    note_in_place(used.operand, used.in_place);
    ag_progress_mark(context, used.in_place >= SLOW_BYTES);
    ag_toll_before(launched->stream, launched->kernel, used.operand, used.in_place,
                   launched->names.n);
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
    launched.kernel = ag_name_kernel(launch);
    launched.stream = stream_of(launch);
    ag_toll_go_on(launched.stream, launched.kernel);
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

void ag_use_stream_ends(CUstream stream)
{
    ag_toll_stream_ends(stream);
}

static void name_line(struct ag_names *names, CUdeviceptr address, size_t bytes)
{
    if (ag_range_may_hold(address))
        names->at[names->n++] =
            (struct ag_name){.address = address, .end = address + bytes, .uses = 1, .crossings = 1};
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

void ag_use_before_pin(CUdeviceptr address)
{
    const struct ag_context *context = ag_context_current();
    struct launched launched; /* likewise */

    if (!context || ag_capture_is_open() || !ag_range_holds(context, address, 1))
        return;
    launched.graph = NULL;
    launched.kernel = 0;
    launched.names.n = 1;
    launched.names.at[0] = (struct ag_name){
        .address = ag_range_base(address), .end = UINT64_MAX, .crossings = FOR_GOOD};
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
