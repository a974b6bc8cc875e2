/* Guarded blocks, and freed ones that are kept: see guard.h. */
#include "policy/guard/guard.h"

#include <stdatomic.h>

#include "interpose/core/base/arena.h"
#include "interpose/core/base/log.h"
#include "interpose/core/base/threads/helper.h"
#include "interpose/core/base/threads/wait.h"
#include "interpose/core/driver/driver.h"
#include "policy/backends/private_pool.h"
#include "policy/budget.h"
#include "policy/contexts/context.h"
#include "policy/guard/device_bytes.h"
#include "policy/guard/finding.h"
#include "policy/guard/paged.h"
#include "policy/ledger.h"
#include "policy/order/capture.h"
#include "policy/order/fence.h"

#define MOST_KEPT 1024u /* freed blocks, */
#define KEPT_PART 8u    /* and of the bytes of their device one in so many */

enum ag_guard ag_guard_mode = AG_GUARD_OFF;
static _Atomic bool
    shared; /* the program asked for a handle of memory; relaxed: of what comes after */

/* A guarded block. */
struct ag_guarded {
    struct ag_guarded *next, *before; /* in its list */
    struct ag_block *block;
    struct ag_guard_checked what;
    bool kept;       /* freed, and in the list of those */
    bool busy;       /* somebody is checking it: it stays meanwhile */
    uint64_t sweeps; /* of ag_guard_check_all() that have seen it */
};

struct list {
    struct ag_guarded *first, *last;
};

static struct {
    struct ag_lock lock; /* guards the lists, and all of a record that is in one */
    struct list live, kept;
    uint64_t kept_bytes;
    unsigned n_kept;
    uint64_t sweeps;
} self = {.lock = AG_LOCK_INIT(AG_RANK_GUARD)};

static struct ag_arena arena = AG_ARENA_INIT(struct ag_guarded);

void ag_guard_configure(enum ag_guard mode)
{
    ag_guard_mode = mode;
}

static void (*give_to)(struct ag_block *block);

void ag_guard_give_to(void (*taker)(struct ag_block *block))
{
    give_to = taker;
}

void ag_guard_begin_child(void)
{
    ag_lock_init(&self.lock, AG_RANK_GUARD);
    ag_arena_begin_child(&arena);
    self.live = self.kept = (struct list){0};
    self.kept_bytes = self.n_kept = 0;
    for (unsigned i = 0; ag_device_met(i); i++)
        atomic_store(&ag_device_met(i)->guard_kept, 0);
    atomic_store(&shared, false);
}

/* --- the lists --- */

static void append_guarded(struct list *list, struct ag_guarded *guarded)
{
    guarded->next = NULL;
    guarded->before = list->last;
    if (list->last)
        list->last->next = guarded;
    else
        list->first = guarded;
    list->last = guarded;
}

static void unlink_from(struct list *list, struct ag_guarded *guarded)
{
    if (guarded->before)
        guarded->before->next = guarded->next;
    else
        list->first = guarded->next;
    if (guarded->next)
        guarded->next->before = guarded->before;
    else
        list->last = guarded->before;
}

/* Counts a freed block that is kept; called with the lock held. */
static void count_kept(const struct ag_guarded *guarded)
{
    const struct ag_block *block = guarded->block;

    self.kept_bytes += guarded->what.bytes;
    self.n_kept++;
    atomic_fetch_add_explicit(&block->context->device->guard_kept, block->size,
                              memory_order_relaxed);
}

static void count_kept_no_more(const struct ag_guarded *guarded)
{
    const struct ag_block *block = guarded->block;

    self.kept_bytes -= guarded->what.bytes;
    self.n_kept--;
    atomic_fetch_sub_explicit(&block->context->device->guard_kept, block->size,
                              memory_order_relaxed);
}

/* Takes it out of its list, once nobody is at it. */
static void unlink_when_idle(struct ag_guarded *guarded)
{
    struct ag_wait wait = {0};

    ag_lock_take(&self.lock);
    while (guarded->busy) {
        ag_lock_release(&self.lock);
        ag_wait_pause(&wait);
        ag_lock_take(&self.lock);
    }
    unlink_from(guarded->kept ? &self.kept : &self.live, guarded);
    if (guarded->kept)
        count_kept_no_more(guarded);
    ag_lock_release(&self.lock);
}

static void put_in_list(struct ag_guarded *guarded, bool kept)
{
    ag_lock_take(&self.lock);
    guarded->kept = kept;
    append_guarded(kept ? &self.kept : &self.live, guarded);
    if (kept)
        count_kept(guarded);
    ag_lock_release(&self.lock);
}

/* --- which blocks --- */

bool ag_guard_shifts(void)
{
    return ag_guard_mode == AG_GUARD_CANARY || ag_guard_mode == AG_GUARD_PAGE;
}

void ag_guard_note_shared(void)
{
    if (ag_guard_shifts() && !atomic_exchange(&shared, true))
        ag_log_warn("guard: the program shares memory with other processes, which guarded blocks "
                    "cannot be; blocks from now on are not guarded. ALLOGRAFT_GUARD=poison guards "
                    "all of them");
}

bool ag_guard_wants(bool exported)
{
    enum ag_stat why = AG_N_STATS;

    if (!ag_guard_is_on())
        return false;
    if (ag_capture_is_open() || ag_private_of_thread)
        why = AG_STAT_UNGUARDED_CAPTURE;
    else if (exported)
        why = AG_STAT_UNGUARDED_EXPORTER;
    else if (atomic_load_explicit(&shared, memory_order_relaxed))
        why = AG_STAT_UNGUARDED_SHARED;
    if (why != AG_N_STATS)
        ag_stats_add(why, 1);
    return why == AG_N_STATS;
}

void ag_guard_note_other(void)
{
    if (ag_guard_is_on())
        ag_stats_add(AG_STAT_UNGUARDED_OTHER, 1);
}

size_t ag_guard_room(size_t bytes)
{
    size_t room;

    if (ag_guard_mode != AG_GUARD_CANARY ||
        __builtin_add_overflow(bytes, AG_GUARD_SHIFT + AG_GUARD_EDGE, &room))
        return bytes;
    return room;
}

/* With canaries, what begins AG_GUARD_SHIFT bytes after `base` may also be a neighbour of other
 * memory that is no larger: a block that is not guarded, or is no more. */
bool ag_guard_look(CUdeviceptr base, struct ag_block_seen *ret_seen)
{
    if (ag_guard_mode == AG_GUARD_CANARY)
        return ag_ledger_look(base + AG_GUARD_SHIFT, ret_seen) && ret_seen->guarded;
    return ag_guard_mode == AG_GUARD_PAGE && ag_ledger_look(ag_paged_address(base), ret_seen);
}

/* --- from its allocation to its free --- */

static bool shift(struct ag_block *block)
{
    if (ag_guard_mode != AG_GUARD_CANARY)
        return true;
    if (!ag_ledger_rename(block, block->address + AG_GUARD_SHIFT, false))
        return false;
    block->size -= AG_GUARD_SHIFT;
    return true;
}

static void shift_back(struct ag_block *block)
{
    if (ag_guard_mode != AG_GUARD_CANARY)
        return;
    (void)ag_ledger_rename(block, block->address - AG_GUARD_SHIFT, true);
    block->size += AG_GUARD_SHIFT;
}

static struct ag_guard_edges edges_of(CUdeviceptr address, size_t bytes)
{
    if (ag_guard_mode == AG_GUARD_PAGE)
        return ag_paged_edges(address, bytes);
    return (struct ag_guard_edges){AG_GUARD_EDGE, AG_GUARD_EDGE};
}

/* The bytes of a block that the program will have at `address`, and of what lies around it. */
static CUresult write_guards(struct ag_context *context, CUdeviceptr address, size_t bytes)
{
    if (ag_guard_mode == AG_GUARD_POISON)
        return ag_guard_fill(context, address, bytes, AG_FILL_FRESH);
    return ag_guard_write_canaries(context, address, bytes, edges_of(address, bytes));
}

/* There may have been no room for pages. */
static bool is_paged_right(const struct ag_block *block)
{
    return ag_guard_mode != AG_GUARD_PAGE || block->desc.source == AG_SOURCE_PAGED;
}

/* The guard lies around the block, which lies as the program knows it from now on. */
static bool enter_guarded(struct ag_guarded *guarded, struct ag_block *block, size_t bytes,
                          const void *caller)
{
    struct ag_block_rare *rare = ag_ledger_rare(block);

    if (!rare || !shift(block))
        return false;
    guarded->block = block;
    guarded->what = (struct ag_guard_checked){
        .address = block->address,
        .bytes = bytes,
        .device = block->context->device->ordinal,
        .allocated_by = caller,
    };
    atomic_store_explicit(&rare->guarded, guarded, memory_order_relaxed);
    put_in_list(guarded, false);
    return true;
}

void ag_guard_begin(struct ag_block *block, size_t bytes, const void *caller)
{
    struct ag_guarded *guarded = is_paged_right(block) ? ag_arena_get(&arena) : NULL;
    unsigned before = ag_guard_mode == AG_GUARD_CANARY ? AG_GUARD_SHIFT : 0;

    if (!guarded || write_guards(block->context, block->address + before, bytes) != CUDA_SUCCESS ||
        !enter_guarded(guarded, block, bytes, caller)) {
        if (guarded)
            ag_arena_put(&arena, guarded);
        ag_stats_add(AG_STAT_UNGUARDED_FAILED, 1);
        return;
    }
    (void)ag_helper_start(); /* checks at the end */
    ag_stats_add(AG_STAT_GUARDED, 1);
}

void ag_guard_resume(struct ag_block *block, size_t bytes, const void *caller)
{
    struct ag_guarded *guarded = ag_arena_get(&arena);

    if (guarded && !enter_guarded(guarded, block, bytes, caller))
        ag_arena_put(&arena, guarded);
}

/* --- checks --- */

static CUresult check_canaries(struct ag_context *context, const struct ag_guard_checked *what)
{
    struct ag_guard_wrong before, behind;
    CUresult result =
        ag_guard_read_canaries(context, what->address, what->bytes,
                               edges_of(what->address, what->bytes), &before, &behind);

    if (result == CUDA_SUCCESS) {
        ag_guard_tell(what, AG_GUARD_BEFORE, before);
        ag_guard_tell(what, AG_GUARD_BEHIND, behind);
    }
    return result;
}

static CUresult check_fill(struct ag_context *context, const struct ag_guard_checked *what)
{
    struct ag_guard_wrong wrong;
    bool all;
    CUresult result =
        ag_guard_compare(context, what->address, what->bytes, AG_FILL_FREED, &wrong, &all);

    if (result == CUDA_SUCCESS)
        ag_guard_tell(what, AG_GUARD_INSIDE, wrong);
    if (result == CUDA_SUCCESS && !all)
        ag_stats_add(AG_STAT_GUARD_PARTS, 1);
    return result;
}

/* What can be checked of a record that is in no list, or busy. */
static void check(struct ag_guarded *guarded, enum ag_guard_occasion when)
{
    struct ag_context *context = guarded->block->context;
    CUresult result = CUDA_SUCCESS;

    guarded->what.when = when;
    if (guarded->kept)
        result = check_fill(context, &guarded->what);
    else if (ag_guard_shifts())
        result = check_canaries(context, &guarded->what);
    else
        return;
    ag_stats_add(result == CUDA_SUCCESS                            ? AG_STAT_GUARD_CHECKED
                 : result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED ? AG_STAT_UNCHECKED_CAPTURE
                                                                   : AG_STAT_UNCHECKED_FAILED,
                 1);
}

/* --- freed --- */

static void forget_guarded(struct ag_guarded *guarded)
{
    atomic_store_explicit(&ag_block_rare(guarded->block)->guarded, NULL, memory_order_relaxed);
    ag_arena_put(&arena, guarded);
}

/* A block that begins where the driver knows it is never seen as guarded: see ag_guard_look(). */
static void end_guarded(struct ag_guarded *guarded)
{
    struct ag_block *block = guarded->block;

    forget_guarded(guarded);
    shift_back(block);
}

/* Are fewer freed blocks kept than there may be? Under the lock. */
static bool may_keep_more(const struct ag_device *device)
{
    return self.n_kept <= MOST_KEPT && self.kept_bytes <= ag_budget_size(device) / KEPT_PART;
}

/* The freed block that is kept longest, of those of the device, out of the list, and its context
 * visited; NULL for none, or while there is room, unless all are wanted. */
static struct ag_guarded *take_oldest(const struct ag_device *device, bool all)
{
    struct ag_guarded *oldest;

    ag_lock_take(&self.lock);
    oldest = all || !may_keep_more(device) ? self.kept.first : NULL;
    while (oldest && (oldest->busy || oldest->block->context->device != device ||
                      !ag_context_begin_visit(oldest->block->context)))
        oldest = oldest->next;
    if (oldest) {
        unlink_from(&self.kept, oldest);
        count_kept_no_more(oldest);
    }
    ag_lock_release(&self.lock);
    return oldest;
}

/* Gives back freed blocks of the device: what is too many, or all. The driver's free waits for all
 * work of their context, as the call does that frees memory of `freeing`. The work of others may
 * wait for the caller: so that is waited for before, no longer than the timeout, after which they
 * stay. True: there were any. */
static bool release_kept(const struct ag_device *device, const struct ag_context *freeing, bool all,
                         uint64_t timeout_ns)
{
    struct ag_guarded *guarded;
    bool any = false;

    while ((guarded = take_oldest(device, all))) {
        struct ag_block *block = guarded->block;
        struct ag_context *context = block->context;
        bool idle = context == freeing || ag_fence_wait_idle(context, timeout_ns);

        if (idle) {
            check(guarded, AG_GUARD_WHEN_REUSED);
            forget_guarded(guarded);
            give_to(block);
        } else {
            put_in_list(guarded, true);
        }
        ag_context_end_visit(context);
        if (!idle)
            return any;
        any = true;
    }
    return any;
}

bool ag_guard_relieve(const struct ag_device *device, uint64_t timeout_ns)
{
    return ag_guard_is_on() && release_kept(device, NULL, true, timeout_ns);
}

/* Fills a freed block, and keeps it. Memory that another process may have open is left as it is. */
static bool keep_freed(struct ag_guarded *guarded)
{
    struct ag_block *block = guarded->block;
    struct ag_context *context = block->context; /* once it is kept, others may give it back */

    if (ag_block_export_number(block)) {
        ag_stats_add(AG_STAT_UNGUARDED_SHARED, 1);
        return false;
    }
    if (ag_guard_fill(context, guarded->what.address, guarded->what.bytes, AG_FILL_FREED) !=
        CUDA_SUCCESS) {
        ag_stats_add(AG_STAT_UNCHECKED_FAILED, 1);
        return false;
    }
    put_in_list(guarded, true);
    ag_cache_note_kept();
    (void)release_kept(context->device, context, false, 0);
    return true;
}

bool ag_guard_end(struct ag_block *block, const void *caller, enum ag_guard_end how)
{
    struct ag_guarded *guarded = ag_block_guarded(block);

    unlink_when_idle(guarded);
    guarded->what.freed_by = caller;
    if (how != AG_GUARD_CHECK)
        ag_stats_add(how == AG_GUARD_ASYNC ? AG_STAT_UNCHECKED_ASYNC : AG_STAT_UNCHECKED_CAPTURE,
                     1);
    else if (ag_guard_mode == AG_GUARD_POISON && keep_freed(guarded))
        return true;
    else
        check(guarded, AG_GUARD_WHEN_FREED);
    end_guarded(guarded);
    return false;
}

/* --- the end of a context, and of the process --- */

void ag_guard_drop(struct ag_block *block)
{
    struct ag_guarded *guarded = ag_block_guarded(block);

    if (!guarded)
        return;
    unlink_when_idle(guarded);
    end_guarded(guarded);
}

/* The next record that this sweep has not seen, busy now; of a context, or of any (NULL). */
static struct ag_guarded *visit_next(const struct ag_context *context, uint64_t sweep)
{
    struct ag_guarded *found = NULL;

    ag_lock_take(&self.lock);
    for (unsigned i = 0; i < 2 && !found; i++) {
        for (found = i ? self.kept.first : self.live.first; found; found = found->next) {
            if (found->sweeps < sweep && !found->busy &&
                (!context || found->block->context == context))
                break;
        }
    }
    if (found) {
        found->sweeps = sweep;
        found->busy = true;
    }
    ag_lock_release(&self.lock);
    return found;
}

static void visited(struct ag_guarded *guarded)
{
    ag_lock_take(&self.lock);
    guarded->busy = false;
    ag_lock_release(&self.lock);
}

static void check_each(const struct ag_context *context, enum ag_guard_occasion when)
{
    struct ag_guarded *guarded;
    uint64_t sweep;

    ag_lock_take(&self.lock);
    sweep = ++self.sweeps;
    ag_lock_release(&self.lock);
    while ((when != AG_GUARD_WHEN_EXIT || ag_helper_beat()) &&
           (guarded = visit_next(context, sweep))) {
        check(guarded, when);
        visited(guarded);
    }
}

void ag_guard_context_dying(const struct ag_context *context)
{
    if (ag_guard_is_on())
        check_each(context, AG_GUARD_WHEN_CONTEXT);
}

bool ag_guard_met(void)
{
    return ag_guard_is_on() && ag_stats_counter(AG_STAT_GUARDED) != 0;
}

static void wait_for_context(struct ag_context *context, void *unused)
{
    (void)unused;
    if (!ag_capture_is_open())
        (void)ag_fence_wait_context(context);
}

void ag_guard_check_all(void)
{
    if (!ag_guard_met())
        return;
    ag_context_each(wait_for_context, NULL);
    check_each(NULL, AG_GUARD_WHEN_EXIT);
}
