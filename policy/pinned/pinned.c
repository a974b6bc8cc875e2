/* The steps of an allocation and a free of pinned memory, and what is given back: see pinned.h. */
#include "policy/pinned/pinned.h"

#include "interpose/core/base/clock.h"
#include "interpose/core/driver/driver.h"
#include "interpose/core/report/stats.h"
#include "policy/answers/lookup.h"
#include "policy/contexts/context.h"
#include "policy/contexts/enter.h"
#include "policy/order/capture.h"
#include "policy/order/drain.h"
#include "policy/order/fence.h"
#include "policy/order/watch.h"
#include "policy/pinned/host_room.h"
#include "policy/pinned/made.h"
#include "policy/pinned/ready.h"

#define KEEPS_FLAGS     (CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | AG_PINNED_PLAIN)
#define LOOK_EVERY_NS   1000000000u
#define IDLE_NS         10000000000u
#define RELIEF_NS       10000000000u
#define DEFAULT_PERCENT 10u

bool ag_pinned_on;

static enum ag_host_mode usual_mode; /* of what no rule decides */
static const struct ag_rules *rules;
static uint64_t most_bytes; /* that are kept */

/* Relaxed: a thread that sees them late looks once too often, or keeps one block more. */
static _Atomic uint64_t next_look_ns;
static _Atomic bool is_short; /* of memory, the host, when it was looked at last */

/* Keeps a tenth of the host's memory at most, unless the setting was set. */
void ag_pinned_configure(enum ag_host_mode mode, struct ag_size cache, bool is_default,
                         const struct ag_rules *new_rules)
{
    struct ag_host_room room;

    usual_mode = mode;
    rules = new_rules;
    ag_pinned_on = mode != AG_HOST_NATIVE;
    for (unsigned i = 0; i < rules->n; i++)
        ag_pinned_on |= (rules->rule[i].says & 1u << AG_SAYS_HOST) != 0;
    if (!ag_pinned_on)
        return;
    ag_host_room_read("", &room);
    most_bytes = ag_size_bytes(cache, room.total_bytes);
    if (is_default && room.total_bytes && most_bytes > room.total_bytes / 100 * DEFAULT_PERCENT)
        most_bytes = room.total_bytes / 100 * DEFAULT_PERCENT;
}

/* --- an allocation --- */

/* The current context, where memory of it may be handed out now. */
static struct ag_context *serving_context(void)
{
    struct ag_context *context = ag_context_current();

    if (!context || ag_context_is_inside() || ag_capture_is_open() ||
        ag_pinned_ready_has_error(context))
        return NULL;
    return context;
}

static bool is_kept_kind(unsigned how)
{
    return !(how & ~(unsigned)KEEPS_FLAGS);
}

static struct ag_pinned_request request_for(size_t bytes, unsigned how, int rule)
{
    struct ag_request_params params = {.host = usual_mode};

    if (rule >= 0)
        ag_rule_apply(&rules->rule[rule], &params);
    return (struct ag_pinned_request){.bytes = bytes, .how = how, .mode = params.host};
}

/* An allocation was made. */
static void count_rule(int rule, size_t bytes)
{
    if (rule >= 0)
        ag_stats_rule_hit(rule, bytes);
}

/* The address of a block that was kept; 0: there is none. */
static uint64_t serve_kept(struct ag_context *context, const struct ag_pinned_request *request)
{
    struct ag_pinned_block *block;
    uint64_t address;

    block = ag_pinned_blocks_take(context, request, &address);
    if (!block)
        return address;
    if (!ag_pinned_ready_is(block, context)) {
        ag_pinned_blocks_put_back(block);
        return 0;
    }
    address = block->address;
    return ag_pinned_blocks_hand_over(block, request) ? address : 0;
}

/* The address of a new block of ours; 0: it is the driver's to make. */
static uint64_t make_new(struct ag_context *context, const struct ag_pinned_request *request)
{
    void *memory = ag_pinned_made_get(context, request->bytes);

    if (!memory)
        return 0;
    if (!ag_pinned_blocks_note((uintptr_t)memory, request, context, true)) {
        (void)ag_pinned_made_free(memory, request->bytes);
        return 0;
    }
    return (uintptr_t)memory;
}

bool ag_pinned_take(void **ret_p, size_t bytes, unsigned how, int rule)
{
    const struct ag_pinned_request request = request_for(bytes, how, rule);
    struct ag_context *context;
    uint64_t address = 0;

    ag_stats_add(AG_STAT_PINNED_ASKED, 1);
    if (request.mode == AG_HOST_NATIVE || !is_kept_kind(how) ||
        !(ag_pinned_blocks_n_kept() || ag_pinned_made_may(bytes)) || !(context = serving_context()))
        return false;
    if (ag_pinned_blocks_n_kept())
        address = serve_kept(context, &request);
    if (address)
        ag_stats_add(AG_STAT_PINNED_HIT, 1);
    else if ((address = make_new(context, &request)))
        ag_stats_add(AG_STAT_PINNED_MADE, 1);
    if (!address)
        return false;
    count_rule(rule, bytes);
    *ret_p = (void *)(uintptr_t)address;
    return true;
}

/* What is never kept is noted, too: what was known of its address is out of date. */
void ag_pinned_note(void *p, size_t bytes, unsigned how, int rule)
{
    const struct ag_pinned_request request = request_for(bytes, how, rule);
    struct ag_context *context = ag_context_current();

    count_rule(rule, bytes);
    if (context && !ag_context_is_inside() && is_kept_kind(how))
        (void)ag_pinned_blocks_note((uintptr_t)p, &request, context, false);
}

/* --- what goes back --- */

static CUresult give_to_driver(struct ag_pinned_block *block, enum ag_pinned_state otherwise)
{
    void *memory = (void *)(uintptr_t)block->address;
    CUresult result =
        block->is_made ? ag_pinned_made_free(memory, block->size) : ag_cu.cuMemFreeHost(memory);

    if (result != CUDA_SUCCESS) {
        ag_pinned_blocks_return(block, otherwise);
        return result;
    }
    ag_pinned_ready_finish(block);
    ag_pinned_blocks_forget(block);
    return result;
}

/* Blocks that were evicted. The program did not make these calls: they end no capture of its. True:
 * the driver has some of them. */
static bool give_back(struct ag_pinned_block *blocks, enum ag_stat why)
{
    CUstreamCaptureMode previous;
    uint64_t n = 0;

    if (!blocks)
        return false;
    previous = ag_capture_relax();
    while (blocks) {
        struct ag_pinned_block *block = blocks;

        blocks = block->next;
        n += give_to_driver(block, AG_PINNED_KEPT) == CUDA_SUCCESS;
    }
    ag_capture_restore(previous);
    ag_stats_add(why, n);
    return n != 0;
}

/* Natively its memory is gone with it. */
void ag_pinned_context_dying(const struct ag_context *context)
{
    struct ag_pinned_block *made = ag_pinned_blocks_context_dying(context);

    ag_pinned_made_context_dying(context);
    while (made) {
        struct ag_pinned_block *block = made;

        made = block->next;
        (void)ag_pinned_made_free((void *)(uintptr_t)block->address, block->size);
        ag_pinned_blocks_forget(block);
    }
}

static void wait_idle(struct ag_context *context, void *idle)
{
    if (*(bool *)idle && !ag_fence_wait_idle(context, RELIEF_NS))
        *(bool *)idle = false;
}

/* The driver waits for all work before it unpins, which an allocation natively does not: the device
 * may be waiting for this thread. So it is asked once that is done. */
bool ag_pinned_relieve(void)
{
    bool idle = true;

    if (!ag_pinned_blocks_n_kept() || ag_capture_is_open())
        return false;
    ag_context_each(wait_idle, &idle);
    return idle && give_back(ag_pinned_blocks_evict(NULL, 0, 0), AG_STAT_PINNED_RELIEVED);
}

/* The driver waits for the work of a block's context before it takes it, and a native free for that
 * of its own memory's only, `owner` (NULL: nobody knows): what belongs to others stays. */
static void give_back_beside(const struct ag_context *owner, uint64_t most, uint64_t before_ns,
                             enum ag_stat why)
{
    const bool are_several = ag_context_count() > 1;

    if (owner || !are_several)
        (void)give_back(ag_pinned_blocks_evict(are_several ? owner : NULL, most, before_ns), why);
}

/* Now and then, in a free of memory of `owner`: what nobody has wanted for long goes back, and all
 * where the host runs short of memory. */
static void look_around(const struct ag_context *owner, uint64_t now)
{
    uint64_t next = atomic_load_explicit(&next_look_ns, memory_order_relaxed);
    struct ag_host_room room;

    if (now < next ||
        !atomic_compare_exchange_strong_explicit(&next_look_ns, &next, now + LOOK_EVERY_NS,
                                                 memory_order_relaxed, memory_order_relaxed))
        return;
    ag_host_room_read("", &room);
    atomic_store_explicit(&is_short, ag_host_room_is_short(&room), memory_order_relaxed);
    if (ag_host_room_is_short(&room))
        give_back_beside(owner, 0, 0, AG_STAT_PINNED_SHORT);
    else
        give_back_beside(owner, UINT64_MAX, now > IDLE_NS ? now - IDLE_NS : 0, AG_STAT_PINNED_IDLE);
}

/* --- a free --- */

static bool keeps_any(void)
{
    return !atomic_load_explicit(&is_short, memory_order_relaxed) &&
           !ag_drain_has_noted(AG_VISIBLE_UNSEEN);
}

/* The driver waits for all work of the memory's context. */
static void before_native_free(void)
{
    ag_stats_add(AG_STAT_PINNED_NATIVE, 1);
    ag_watch_work(CU_STREAM_PER_THREAD, true); /* of whatever stream */
}

/* Called after a free. */
static void keep_within_bounds(const struct ag_context *owner, uint64_t now)
{
    if (ag_pinned_blocks_kept_bytes() > most_bytes)
        give_back_beside(owner, most_bytes, 0, AG_STAT_PINNED_FULL);
    look_around(owner, now);
}

/* The short way of a free that has nothing to wait for. False: nothing was done. */
static bool keep_at_once(uint64_t address, struct ag_context *context, uint64_t now)
{
    if (!context || ag_capture_is_open() || !ag_pinned_ready_finds_nothing(context) ||
        !ag_pinned_blocks_keep_at_once(address, most_bytes, now))
        return false;
    ag_stats_add(AG_STAT_PINNED_NOTHING, 1);
    ag_stats_add(AG_STAT_PINNED_KEPT, 1);
    keep_within_bounds(NULL, now); /* there is one context */
    return true;
}

/* It is looked around here, too: where nothing is kept, that the host has memory again is seen by
 * nobody else. */
static CUresult free_natively(void *p, struct ag_pinned_block *block,
                              const struct ag_context *owner, uint64_t now)
{
    CUresult result;

    before_native_free();
    if (block)
        ag_pinned_blocks_leave(block);
    result = block ? give_to_driver(block, AG_PINNED_LIVE) : ag_cu.cuMemFreeHost(p);
    look_around(owner, now);
    return result;
}

CUresult ag_pinned_free(void *p)
{
    struct ag_context *context = keeps_any() ? ag_context_current() : NULL;
    uint64_t now = ag_clock_tick_ns();
    struct ag_pinned_block *block;
    struct ag_pinned_claim claim;

    if (keep_at_once((uintptr_t)p, context, now))
        return CUDA_SUCCESS;
    block = ag_pinned_blocks_claim((uintptr_t)p, most_bytes, &claim);
    if (!block && claim.is_known)
        return ag_cu.cuMemFreeHost(
            (void *)AG_LOOKUP_UNKNOWN); /* it says why not, as of any address */
    if (!block || !claim.may_keep ||
        !ag_pinned_ready_order(block, claim.owner, context, block->mode == AG_HOST_CACHE))
        return free_natively(p, block, claim.owner, now);
    if (ag_pinned_blocks_keep(block, now))
        ag_stats_add(AG_STAT_PINNED_KEPT, 1);
    keep_within_bounds(claim.owner, now);
    return CUDA_SUCCESS;
}
