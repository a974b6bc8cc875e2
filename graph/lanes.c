/* The table of lanes, their ownership, and the memory of their payloads: see lane.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "graph/lane.h"
#include "graph/learn/marks.h"
#include "interpose/base/arena.h"
#include "interpose/base/clock.h"
#include "interpose/base/lock.h"
#include "interpose/base/pages.h"
#include "interpose/base/wait.h"
#include "interpose/report/stats.h"
#include "policy/contexts/context.h"
#include "policy/order.h"

#define MASK_WORDS  (AG_MAX_LANES / 64)
#define CHUNK_BYTES (256u << 10)
#define FIRST_PLAIN offsetof(struct ag_lane, home)
#define FIRST_OPS   512u
#define READY_OPS   192u        /* of these, those that are made ahead of time: a segment's */
#define READY_CHUNK (12u << 10) /* and of the first chunk, as many bytes */

_Atomic uint32_t ag_replay_withheld, ag_lane_changes;
_Atomic bool ag_lane_any_late;
_Thread_local struct ag_quiet ag_quiet;

static struct {
    struct ag_lock lock; /* guards entering and leaving; readers take none */
    _Atomic(struct ag_lane *) lane[AG_MAX_LANES];
    _Atomic uint32_t used; /* places ever used: the first so many */
    _Atomic uint64_t open[MASK_WORDS];
    _Atomic uint32_t generation; /* goes up when one comes or goes: what threads remember ends */
    _Atomic bool specials_barred;
    uint64_t n_streams;   /* created by the program */
    struct ag_lane *free; /* retired ones: somebody may still look at them */
    struct ag_home home[AG_MAX_CONTEXTS];
} table = {.lock = AG_LOCK_INIT(AG_RANK_LANES)};

/* Lanes that hold something, by what they are ordered against. */
static _Atomic uint32_t held_legacy, held_blocking;

static struct ag_arena lane_arena = AG_ARENA_INIT(struct ag_lane);

uint32_t ag_lane_thread(void)
{
    static _Atomic uint32_t last;
    static _Thread_local uint32_t tag;

    if (!tag)
        tag = atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
    return tag;
}

/* --- finding --- */

static bool is_special(CUstream stream)
{
    return stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

bool ag_lane_is_of(const struct ag_lane *lane, const struct ag_context *context, CUstream stream)
{
    const memory_order relaxed = memory_order_relaxed;

    if (atomic_load_explicit(&lane->stream, relaxed) != stream ||
        (is_special(stream) && atomic_load_explicit(&lane->context, relaxed) != context))
        return false;
    return stream != CU_STREAM_PER_THREAD ||
           atomic_load_explicit(&lane->thread, relaxed) == ag_lane_thread();
}

static struct ag_lane *look_up(const struct ag_context *context, CUstream stream)
{
    uint32_t used = atomic_load_explicit(&table.used, memory_order_acquire);

    for (uint32_t i = 0; i < used; i++) {
        struct ag_lane *lane = atomic_load_explicit(&table.lane[i], memory_order_acquire);

        if (lane && ag_lane_is_of(lane, context, stream))
            return lane;
    }
    return NULL;
}

struct ag_lane *ag_lane_find(CUstream stream)
{
    return is_special(stream) ? NULL : look_up(NULL, stream);
}

/* The home of a context, or with NULL an empty one; NULL when there is none. */
static struct ag_home *find_home(const struct ag_context *context)
{
    for (unsigned i = 0; i < AG_MAX_CONTEXTS; i++) {
        if (atomic_load_explicit(&table.home[i].context, memory_order_acquire) == context)
            return &table.home[i];
    }
    return NULL;
}

struct ag_home *ag_home_of(struct ag_context *context)
{
    struct ag_home *home = find_home(context);

    if (home)
        return home;
    ag_lock_take(&table.lock);
    home = find_home(context); /* another thread may have been quicker */
    if (!home) {
        home = find_home(NULL);
        if (home)
            atomic_store_explicit(&home->context, context, memory_order_release);
    }
    ag_lock_release(&table.lock);
    return home;
}

/* Else *ret_owner is who owns it. */
static bool try_own(struct ag_lane *lane, uint32_t tag, uint32_t *ret_owner)
{
    *ret_owner = 0;
    return atomic_compare_exchange_strong_explicit(&lane->owner, ret_owner, tag,
                                                   memory_order_acquire, memory_order_relaxed);
}

/* Those who still look at it may own it for a moment, until they see that it is dead. */
static void own_retired(struct ag_lane *lane)
{
    struct ag_wait wait = {0};
    uint32_t owner;

    while (!try_own(lane, ag_lane_thread(), &owner))
        ag_wait_turn(&wait);
}

/* An unused lane, owned: a retired one may still be looked at, so what is atomic is not
 * overwritten. */
static struct ag_lane *take_unused(void)
{
    struct ag_lane *lane = table.free;

    if (!lane)
        lane = ag_arena_get(&lane_arena);
    else
        table.free = lane->next_free;
    if (lane)
        own_retired(lane);
    return lane;
}

void ag_home_leave(struct ag_context *context)
{
    struct ag_home *home = find_home(context);

    if (!home)
        return;
    ag_ring_free(atomic_exchange(&home->ring, NULL), true);
    atomic_store_explicit(&home->ring_tried, false, memory_order_relaxed);
    atomic_store_explicit(&home->failed, false, memory_order_relaxed);
    atomic_store_explicit(&home->late, CUDA_SUCCESS, memory_order_relaxed);
    atomic_store_explicit(&home->context, NULL, memory_order_release);
    atomic_fetch_add_explicit(&table.generation, 1, memory_order_release);
}

static void copy_shared(struct ag_lane *lane, const struct ag_lane *fresh, uint32_t place)
{
    const memory_order relaxed = memory_order_relaxed;

    atomic_store_explicit(&lane->number, place, relaxed);
    atomic_store_explicit(&lane->stream, fresh->stream, relaxed);
    atomic_store_explicit(&lane->context, fresh->context, relaxed);
    atomic_store_explicit(&lane->thread, fresh->thread, relaxed);
    atomic_store_explicit(&lane->tid, fresh->tid, relaxed);
    atomic_store_explicit(&lane->marked, fresh->marked, relaxed);
    atomic_store_explicit(&lane->is_legacy, fresh->is_legacy, relaxed);
    atomic_store_explicit(&lane->is_blocking, fresh->is_blocking, relaxed);
    atomic_store_explicit(&lane->marks_version, fresh->marks_version, relaxed);
}

/* Enters a lane with the facts of `fresh`. */
static struct ag_lane *enter(const struct ag_lane *fresh)
{
    struct ag_lane *lane = NULL;
    uint32_t place = 0;

    ag_lock_take(&table.lock);
    while (place < AG_MAX_LANES && atomic_load_explicit(&table.lane[place], memory_order_relaxed))
        place++;
    if (place < AG_MAX_LANES)
        lane = take_unused();
    if (lane) {
        memcpy((char *)lane + FIRST_PLAIN, (const char *)fresh + FIRST_PLAIN,
               sizeof(*lane) - FIRST_PLAIN);
        lane->may_replay = true;
        copy_shared(lane, fresh, place);
        atomic_store_explicit(&lane->dead, false, memory_order_relaxed);
        atomic_store_explicit(&lane->asleep, false, memory_order_relaxed);
        ag_lane_disown(lane);
        atomic_store_explicit(&table.lane[place], lane, memory_order_release);
        if (place >= atomic_load_explicit(&table.used, memory_order_relaxed))
            atomic_store_explicit(&table.used, place + 1, memory_order_release);
        atomic_fetch_add_explicit(&table.generation, 1, memory_order_release);
    }
    ag_lock_release(&table.lock);
    return lane;
}

static bool is_marked(const struct ag_lane *lane)
{
    struct ag_stream_facts facts = {
        .handle = lane->stream,
        .nonblocking = !lane->is_blocking && !lane->is_legacy,
        .priority = lane->priority,
        .number = lane->stream_number,
    };

    return ag_marks_stream(&facts);
}

/* Apart, as every operation comes by and hardly one goes in. */
__attribute__((noinline)) static void remark(struct ag_lane *lane)
{
    bool was_marked;

    if (!ag_lane_own(lane))
        return;
    was_marked = lane->marked;
    lane->marks_version = ag_marks_version();
    lane->marked = is_marked(lane);
    if (lane->marked && !was_marked)
        ag_stats_add(AG_STAT_REPLAY_STREAMS, 1);
    if (!lane->marked) { /* what comes now goes past it */
        ag_segment_settle(lane);
        ag_segment_end(lane, true, AG_FLUSH_CALL);
    }
    ag_lane_disown(lane);
}

void ag_lane_remark(struct ag_lane *lane)
{
    if (atomic_load_explicit(&lane->marks_version, memory_order_relaxed) != ag_marks_version())
        remark(lane);
}

static struct ag_lane *make(struct ag_context *context, CUstream stream, bool blocking,
                            int priority, uint64_t number)
{
    struct ag_lane fresh = {
        .stream = stream,
        .context = context,
        .home = ag_home_of(context),
        .is_legacy = stream == CU_STREAM_LEGACY,
        .is_blocking = blocking && stream != CU_STREAM_LEGACY,
        .thread = stream == CU_STREAM_PER_THREAD ? ag_lane_thread() : 0,
        .tid = gettid(),
        .priority = priority,
        .stream_number = number,
        .marks_version = ag_marks_version(),
    };
    struct ag_lane *lane = NULL;

    fresh.marked = is_marked(&fresh);
    if (fresh.home)
        lane = enter(&fresh);
    if (lane && fresh.marked)
        ag_stats_add(AG_STAT_REPLAY_STREAMS, 1);
    return lane;
}

/* Threads come and go, and their streams with them: without a call that would tell. */
static void reap(struct ag_lane *lane, void *data)
{
    uint32_t thread = atomic_load_explicit(&lane->thread, memory_order_relaxed);

    if (!thread || atomic_load_explicit(&lane->context, memory_order_relaxed) != data ||
        syscall(SYS_tgkill, getpid(), lane->tid, 0) == 0 || errno != ESRCH || !ag_lane_own(lane))
        return;
    if (lane->thread != thread) { /* it was retired, and is another's now */
        ag_lane_disown(lane);
        return;
    }
    ag_segment_submit(lane);
    ag_lane_retire(lane, false);
}

/* The lane that the calling thread asked for last, or that there was none to be had. */
static _Thread_local struct {
    struct ag_context *context;
    CUstream stream;
    struct ag_lane *lane;
    uint32_t generation;
} last;

/* Of the counts of lanes that hold something, the one that concerns such an operation. The two
 * special streams mean others in another context: there, nothing may be withheld at all. */
static const _Atomic uint32_t *count_of_held(const struct ag_lane *lane, CUstream stream)
{
    static const _Atomic uint32_t none;

    if (is_special(stream))
        return &ag_replay_withheld;
    return atomic_load_explicit(&lane->is_blocking, memory_order_relaxed) ? &held_legacy : &none;
}

static bool is_awake(const struct ag_lane *lane)
{
    return atomic_load_explicit(&lane->marked, memory_order_relaxed) &&
           !atomic_load_explicit(&lane->asleep, memory_order_acquire);
}

struct ag_lane *ag_lane_resting(CUstream stream)
{
    const memory_order relaxed = memory_order_relaxed;
    struct ag_lane *lane = last.lane;
    struct ag_quiet quiet;

    if (!lane || last.stream != stream || is_awake(lane))
        return NULL;
    /* First the version, then what holds as long as it does. */
    quiet = (struct ag_quiet){.stream = stream, .version = ag_replay_version()};
    if (last.generation != atomic_load_explicit(&table.generation, memory_order_acquire) ||
        atomic_load_explicit(&lane->marks_version, relaxed) != ag_marks_version() || is_awake(lane))
        return NULL;
    quiet.held = count_of_held(lane, stream);
    if (atomic_load_explicit(quiet.held, memory_order_seq_cst))
        return NULL;
    quiet.asleep = atomic_load_explicit(&lane->marked, relaxed);
    ag_quiet = quiet;
    return lane;
}

bool ag_lane_sleeps(struct ag_lane *lane)
{
    const memory_order relaxed = memory_order_relaxed;
    uint32_t left = atomic_load_explicit(&lane->nap_left, relaxed);

    if (!atomic_load_explicit(&lane->asleep, memory_order_acquire) || !left || ag_marks_met)
        return false;
    atomic_store_explicit(&lane->nap_left, left - 1, relaxed);
    ag_stats_add(AG_STAT_REPLAY_SEEN, 1);
    ag_stats_add(AG_STAT_REPLAY_SLEPT, 1);
    return true;
}

struct ag_lane *ag_lane_of(struct ag_context *context, CUstream stream)
{
    uint32_t generation = atomic_load_explicit(&table.generation, memory_order_acquire);
    struct ag_lane *lane;

    if (last.stream == stream && last.context == context && last.generation == generation)
        return last.lane;
    lane = look_up(context, stream);
    if (!lane && stream == CU_STREAM_PER_THREAD && !ag_order_capture_open())
        ag_lane_each(reap, context);
    if (!lane && context && is_special(stream) &&
        !atomic_load_explicit(&table.specials_barred, memory_order_relaxed))
        lane = make(context, stream, true, 0, 0);
    if (lane && lane->context != context)
        lane = NULL; /* the driver refuses a stream of another context */
    last.lane = lane;
    last.stream = stream;
    last.context = context;
    last.generation = generation;
    return lane;
}

void ag_lane_bar(CUstream stream)
{
    /* Others get one when they are announced, and are new then. */
    if (is_special(stream))
        atomic_store_explicit(&table.specials_barred, true, memory_order_relaxed);
}

void ag_lane_announce(struct ag_context *context, CUstream stream, bool blocking, int priority)
{
    uint64_t number;

    ag_lock_take(&table.lock);
    number = ++table.n_streams;
    ag_lock_release(&table.lock);
    (void)make(context, stream, blocking, priority, number);
}

void ag_lane_each_open(void (*visit)(struct ag_lane *lane, void *data), void *data)
{
    for (unsigned i = 0; i < MASK_WORDS; i++) {
        uint64_t word = atomic_load_explicit(&table.open[i], memory_order_acquire);

        for (; word; word &= word - 1) {
            struct ag_lane *lane = atomic_load_explicit(
                &table.lane[i * 64 + (unsigned)__builtin_ctzll(word)], memory_order_acquire);

            if (lane)
                visit(lane, data);
        }
    }
}

void ag_lane_each(void (*visit)(struct ag_lane *lane, void *data), void *data)
{
    uint32_t used = atomic_load_explicit(&table.used, memory_order_acquire);

    for (uint32_t i = 0; i < used; i++) {
        struct ag_lane *lane = atomic_load_explicit(&table.lane[i], memory_order_acquire);

        if (lane)
            visit(lane, data);
    }
}

/* --- ownership and what others read --- */

/* It is another's: until it is not, or is retired. */
__attribute__((noinline)) static bool wait_for_owner(struct ag_lane *lane, uint64_t patience_ns)
{
    uint64_t until = patience_ns == UINT64_MAX ? UINT64_MAX : 0;
    uint32_t tag = ag_lane_thread(), owner;
    struct ag_wait wait = {0};

    while (!try_own(lane, tag, &owner)) {
        if (atomic_load_explicit(&lane->dead, memory_order_relaxed) || owner == tag)
            return false;
        if (until != UINT64_MAX) {
            uint64_t now = ag_clock_ns();

            if (!until)
                until = now + patience_ns;
            if (now > until)
                return false;
        }
        ag_wait_turn(&wait);
    }
    return true;
}

bool ag_lane_own_within(struct ag_lane *lane, uint64_t patience_ns)
{
    uint32_t owner;

    if (!try_own(lane, ag_lane_thread(), &owner) && !wait_for_owner(lane, patience_ns))
        return false;
    if (!atomic_load_explicit(&lane->dead, memory_order_relaxed))
        return true;
    ag_lane_disown(lane);
    return false;
}

void ag_lane_disown(struct ag_lane *lane)
{
    atomic_store_explicit(&lane->owner, 0, memory_order_release);
}

void ag_lane_set_open(struct ag_lane *lane, bool open)
{
    _Atomic uint64_t *word = &table.open[lane->number / 64];
    uint64_t bit = (uint64_t)1 << lane->number % 64;

    if (atomic_load_explicit(&lane->open, memory_order_relaxed) == open)
        return;
    atomic_store_explicit(&lane->open, open, memory_order_relaxed);
    if (open) {
        atomic_fetch_or_explicit(word, bit, memory_order_seq_cst);
        atomic_fetch_add_explicit(&ag_replay_withheld, 1, memory_order_seq_cst);
    } else {
        atomic_fetch_and_explicit(word, ~bit, memory_order_seq_cst);
        atomic_fetch_sub_explicit(&ag_replay_withheld, 1, memory_order_seq_cst);
    }
}

void ag_lane_set_holding(struct ag_lane *lane, bool holding)
{
    _Atomic uint32_t *count = lane->is_legacy ? &held_legacy : &held_blocking;

    if (atomic_load_explicit(&lane->holding, memory_order_relaxed) == holding)
        return;
    atomic_store_explicit(&lane->holding, holding, memory_order_seq_cst);
    if (!lane->is_legacy && !lane->is_blocking)
        return;
    if (holding)
        atomic_fetch_add_explicit(count, 1, memory_order_seq_cst);
    else
        atomic_fetch_sub_explicit(count, 1, memory_order_seq_cst);
}

bool ag_lane_conflicts(bool is_legacy, bool is_blocking)
{
    if (is_legacy)
        return atomic_load_explicit(&held_blocking, memory_order_seq_cst) != 0;
    return is_blocking && atomic_load_explicit(&held_legacy, memory_order_seq_cst) != 0;
}

bool ag_lane_own(struct ag_lane *lane)
{
    return ag_lane_own_within(lane, UINT64_MAX);
}

/* --- memory that is kept for other lanes; it is not cleared --- */

static struct ag_spares spare_chunks, spare_ops;

/* --- ends --- */

void ag_lane_retire(struct ag_lane *lane, bool context_gone)
{
    ag_lane_set_holding(lane, false);
    ag_lane_set_open(lane, false);
    ag_segment_leave(lane, context_gone);
    if (lane->history)
        ag_history_free(lane->history);
    lane->history = NULL;
    ag_nap_free(lane->nap);
    lane->nap = NULL;
    atomic_store_explicit(&lane->asleep, false, memory_order_relaxed);
    ag_store_free(&lane->store);
    if (lane->max_ops == FIRST_OPS)
        ag_spares_put_or_free(&spare_ops, lane->ops, FIRST_OPS * sizeof(*lane->ops));
    else
        ag_pages_free(lane->ops, lane->max_ops * sizeof(*lane->ops));
    lane->ops = NULL;
    lane->n_ops = lane->max_ops = 0;
    atomic_store_explicit(&lane->dead, true, memory_order_release);
    ag_lock_take(&table.lock);
    atomic_store_explicit(&table.lane[lane->number], NULL, memory_order_release);
    lane->next_free = table.free;
    table.free = lane;
    atomic_fetch_add_explicit(&table.generation, 1, memory_order_release);
    atomic_fetch_add_explicit(&ag_lane_changes, 1, memory_order_release);
    ag_lane_disown(lane);
    ag_lock_release(&table.lock);
}

void ag_lane_forget_all(void)
{
    ag_lock_init(&table.lock, AG_RANK_LANES);
    for (unsigned i = 0; i < AG_MAX_LANES; i++)
        atomic_store(&table.lane[i], NULL);
    for (unsigned i = 0; i < MASK_WORDS; i++)
        atomic_store(&table.open[i], 0);
    memset(table.home, 0, sizeof(table.home));
    table.free = NULL;
    atomic_store(&table.used, 0);
    atomic_store(&table.specials_barred, false);
    atomic_fetch_add(&table.generation, 1);
    atomic_fetch_add(&ag_lane_changes, 1);
    atomic_store(&held_legacy, 0);
    atomic_store(&held_blocking, 0);
    atomic_store(&ag_replay_withheld, 0);
    ag_lock_init(&lane_arena.lock, AG_RANK_ARENA);
}

/* --- memory --- */

struct ag_chunk {
    struct ag_chunk *next;
    _Alignas(8) unsigned char bytes[CHUNK_BYTES - 16];
};

/* The pages that the usual segment needs are there. */
static void put_by_fresh(struct ag_spares *spares, size_t bytes, size_t ready)
{
    void *pages = ag_spares_are_enough(spares) ? NULL : ag_pages_get(bytes);

    if (!pages)
        return;
    ag_pages_ready(pages, ready);
    ag_spares_put_or_free(spares, pages, bytes);
}

void ag_lane_prepare(void)
{
    ag_matcher_prepare();
    ag_history_prepare();
    ag_nap_prepare();
    put_by_fresh(&spare_chunks, sizeof(struct ag_chunk), READY_CHUNK);
    put_by_fresh(&spare_ops, FIRST_OPS * sizeof(struct ag_op), READY_OPS * sizeof(struct ag_op));
}

unsigned char *ag_store_room(struct ag_store *store)
{
    struct ag_chunk **next = store->chunk ? &store->chunk->next : &store->first;

    if (store->chunk && store->at + AG_MAX_PAYLOAD <= sizeof(store->chunk->bytes))
        return store->chunk->bytes + store->at;
    if (!*next)
        *next = store->first ? ag_pages_get(sizeof(struct ag_chunk))
                             : ag_spares_take_or_get(&spare_chunks, sizeof(struct ag_chunk));
    if (!*next)
        return NULL;
    store->chunk = *next;
    store->at = 0;
    return store->chunk->bytes;
}

void ag_store_take(struct ag_store *store, uint32_t bytes)
{
    store->at += (bytes + 7) & ~7u;
}

void ag_store_reset(struct ag_store *store)
{
    store->chunk = store->first;
    store->at = 0;
}

void ag_store_free(struct ag_store *store)
{
    while (store->first) {
        struct ag_chunk *next = store->first->next;

        store->first->next = NULL;
        ag_spares_put_or_free(&spare_chunks, store->first, sizeof(*store->first));
        store->first = next;
    }
    *store = (struct ag_store){0};
}

bool ag_lane_reserve(struct ag_lane *lane)
{
    uint32_t max = lane->max_ops ? lane->max_ops * 2 : FIRST_OPS;
    struct ag_op *ops;

    if (lane->n_ops < lane->max_ops)
        return true;
    ops = lane->ops ? ag_pages_get(max * sizeof(*ops))
                    : ag_spares_take_or_get(&spare_ops, max * sizeof(*ops));
    if (!ops)
        return false;
    if (lane->ops) {
        memcpy(ops, lane->ops, lane->n_ops * sizeof(*ops));
        ag_pages_free(lane->ops, lane->max_ops * sizeof(*ops));
    }
    lane->ops = ops;
    lane->max_ops = max;
    return true;
}
