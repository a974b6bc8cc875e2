/* The table of streams' states: finding, entering and retiring them, ownership, the counts that
 * tell without a lock whether anything is withheld, and memory for payloads. See stream.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "graph/learn/marks.h"
#include "graph/stream.h"
#include "interpose/core/base/arena.h"
#include "interpose/core/base/pages.h"
#include "interpose/core/base/threads/lock.h"
#include "interpose/core/base/threads/wait.h"
#include "interpose/core/report/stats.h"
#include "policy/contexts/context.h"
#include "policy/order/capture.h"

#define MASK_WORDS  (AG_MAX_STREAMS / 64)
#define FIRST_PLAIN offsetof(struct ag_stream, id.shared)
#define FIRST_OPS   512u
#define READY_OPS   192u /* of FIRST_OPS, whose pages are touched ahead of time: a segment's */
#define READY_CHUNK (12u << 10) /* bytes of the first chunk, likewise */

_Atomic uint32_t ag_replay_withheld, ag_stream_changes;
_Atomic bool ag_stream_any_late;
_Thread_local struct ag_fast_path ag_fast_path;
_Thread_local struct ag_stream_looked_up ag_stream_last;
_Thread_local uint32_t ag_stream_tag;
_Atomic uint32_t ag_stream_generation, ag_stream_held_legacy, ag_stream_held_blocking;

static struct {
    /* Guards entering and retiring; readers take none. What is relaxed is loaded by who has it, or
     * is written to a state that nobody finds yet. */
    struct ag_lock lock;
    _Atomic(struct ag_stream *) stream[AG_MAX_STREAMS];
    _Atomic uint32_t used; /* places that were ever used: the first so many */
    _Atomic uint64_t open[MASK_WORDS];
    _Atomic bool specials_barred;
    _Atomic uint32_t fruitless; /* streams that were retired in a row, without any gain */
    uint64_t n_streams;         /* created by the program */
    struct ag_stream *free;     /* retired ones, which other threads may still read */
    struct ag_context_state shared[AG_MAX_CONTEXTS];
} table = {.lock = AG_LOCK_INIT(AG_RANK_STREAMS)};

static bool asks_for_profit; /* is replay to be kept only where it gains? */

static struct ag_arena stream_arena = AG_ARENA_INIT(struct ag_stream);

void ag_stream_configure(bool profit)
{
    asks_for_profit = profit;
}

uint32_t ag_stream_new_tag(void)
{
    static _Atomic uint32_t last;

    ag_stream_tag = atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
    return ag_stream_tag;
}

/* --- finding --- */

static struct ag_stream *look_up_stream(const struct ag_context *context, CUstream handle)
{
    uint32_t used = atomic_load_explicit(&table.used, memory_order_acquire);

    for (uint32_t i = 0; i < used; i++) {
        struct ag_stream *stream = atomic_load_explicit(&table.stream[i], memory_order_acquire);

        if (stream && ag_stream_is_of(stream, context, handle))
            return stream;
    }
    return NULL;
}

struct ag_stream *ag_stream_find(CUstream stream)
{
    return ag_stream_is_special(stream) ? NULL : look_up_stream(NULL, stream);
}

/* The row of a context, with NULL an empty one; NULL when there is none. */
static struct ag_context_state *find_context_state(const struct ag_context *context)
{
    for (unsigned i = 0; i < AG_MAX_CONTEXTS; i++) {
        if (atomic_load_explicit(&table.shared[i].context, memory_order_acquire) == context)
            return &table.shared[i];
    }
    return NULL;
}

struct ag_context_state *ag_context_state_of(struct ag_context *context)
{
    struct ag_context_state *shared = find_context_state(context);

    if (shared)
        return shared;
    ag_lock_take(&table.lock);
    shared = find_context_state(context); /* another thread may have been quicker */
    if (!shared) {
        shared = find_context_state(NULL);
        if (shared)
            atomic_store_explicit(&shared->context, context, memory_order_release);
    }
    ag_lock_release(&table.lock);
    return shared;
}

/* An unused state, owned. Threads that still look at a retired one may own it for a moment, until
 * they see that it is dead; so it is not cleared as a whole. */
static struct ag_stream *own_unused(void)
{
    struct ag_stream *stream = table.free;
    struct ag_wait wait = {0};
    uint32_t owner;

    if (!stream)
        stream = ag_arena_get(&stream_arena);
    else
        table.free = stream->next_free;
    while (stream && !ag_stream_try_own(stream, ag_stream_thread(), &owner))
        ag_wait_pause(&wait);
    return stream;
}

void ag_context_state_leave(struct ag_context *context)
{
    struct ag_context_state *shared = find_context_state(context);

    if (!shared)
        return;
    ag_ring_free(atomic_exchange(&shared->ring, NULL), true);
    atomic_store_explicit(&shared->ring_tried, false, memory_order_relaxed);
    atomic_store_explicit(&shared->failed, false, memory_order_relaxed);
    atomic_store_explicit(&shared->late, CUDA_SUCCESS, memory_order_relaxed);
    atomic_store_explicit(&shared->context, NULL, memory_order_release);
    atomic_fetch_add_explicit(&ag_stream_generation, 1, memory_order_release);
}

/* Copies each field by itself: threads that still look at a retired state may read them
 * meanwhile. */
static void copy_id(struct ag_stream_id *id, const struct ag_stream_id *fresh, uint32_t place)
{
    id->number = place;
    id->thread = fresh->thread;
    id->marks_version = fresh->marks_version;
    id->tid = fresh->tid;
    id->handle = fresh->handle;
    id->context = fresh->context;
    id->marked = fresh->marked;
    id->is_legacy = fresh->is_legacy;
    id->is_blocking = fresh->is_blocking;
}

/* The first operations of a new stream pass uninspected: most streams get no more. Where one stream
 * after the other gained nothing, more of them do. */
static uint32_t unwatched(void)
{
    uint32_t n =
        atomic_load_explicit(&table.fruitless, memory_order_relaxed) / AG_BACKOFF_FRUITLESS;

    if (!asks_for_profit)
        return 0;
    return AG_BACKOFF_NEW << (n < AG_BACKOFF_DOUBLED_MOST ? n : AG_BACKOFF_DOUBLED_MOST);
}

/* Enters a state with `fresh`'s id. */
static struct ag_stream *enter_stream(const struct ag_stream *fresh)
{
    struct ag_stream *stream = NULL;
    uint32_t place = 0;

    ag_lock_take(&table.lock);
    while (place < AG_MAX_STREAMS &&
           atomic_load_explicit(&table.stream[place], memory_order_relaxed))
        place++;
    if (place < AG_MAX_STREAMS)
        stream = own_unused();
    if (stream) {
        memcpy((char *)stream + FIRST_PLAIN, (const char *)fresh + FIRST_PLAIN,
               sizeof(*stream) - FIRST_PLAIN);
        stream->iteration.may_replay = true;
        copy_id(&stream->id, &fresh->id, place);
        atomic_store_explicit(&stream->dead, false, memory_order_relaxed);
        atomic_store_explicit(&stream->threads, 0, memory_order_relaxed);
        atomic_store_explicit(&stream->backoff_left, unwatched(), memory_order_relaxed);
        atomic_store_explicit(&stream->backed_off, unwatched() > 0, memory_order_relaxed);
        ag_stream_disown(stream);
        atomic_store_explicit(&table.stream[place], stream, memory_order_release);
        if (place >= atomic_load_explicit(&table.used, memory_order_relaxed))
            atomic_store_explicit(&table.used, place + 1, memory_order_release);
        atomic_fetch_add_explicit(&ag_stream_generation, 1, memory_order_release);
    }
    ag_lock_release(&table.lock);
    return stream;
}

static bool is_marked(const struct ag_stream *stream)
{
    struct ag_stream_facts facts = {
        .handle = stream->id.handle,
        .nonblocking = !stream->id.is_blocking && !stream->id.is_legacy,
        .priority = stream->id.priority,
        .number = stream->id.created,
    };

    return ag_marks_stream(&facts);
}

bool ag_stream_remark(struct ag_stream *stream)
{
    bool was_marked = stream->id.marked;

    stream->id.marks_version = ag_marks_version();
    stream->id.marked = is_marked(stream);
    if (stream->id.marked && !was_marked)
        ag_stats_add(AG_STAT_REPLAY_STREAMS, 1);
    return stream->id.marked;
}

static struct ag_stream *make_stream(struct ag_context *context, CUstream handle, bool blocking,
                                     int priority, uint64_t number)
{
    struct ag_stream fresh = {
        .id.handle = handle,
        .id.context = context,
        .id.shared = ag_context_state_of(context),
        .id.is_legacy = handle == CU_STREAM_LEGACY,
        .id.is_blocking = blocking && handle != CU_STREAM_LEGACY,
        .id.thread = handle == CU_STREAM_PER_THREAD ? ag_stream_thread() : 0,
        .id.tid = gettid(),
        .id.priority = priority,
        .id.created = number,
        .id.marks_version = ag_marks_version(),
    };
    struct ag_stream *stream = NULL;

    fresh.id.marked = is_marked(&fresh);
    if (fresh.id.shared)
        stream = enter_stream(&fresh);
    if (stream && fresh.id.marked)
        ag_stats_add(AG_STAT_REPLAY_STREAMS, 1);
    return stream;
}

bool ag_stream_has_ended(struct ag_stream *stream, const struct ag_context *context)
{
    uint32_t thread = atomic_load_explicit(&stream->id.thread, memory_order_relaxed);

    if (!thread || atomic_load_explicit(&stream->id.context, memory_order_relaxed) != context ||
        syscall(SYS_tgkill, getpid(), stream->id.tid, 0) == 0 || errno != ESRCH ||
        !ag_stream_own_within(stream, 0))
        return false;
    if (stream->id.thread == thread)
        return true;
    ag_stream_disown(stream); /* it was retired and reused meanwhile */
    return false;
}

/* The count of streams whose withheld work an operation on this one must come after. The two
 * special handles name other streams when the context changes: for them it is the count of all. */
static const _Atomic uint32_t *count_of_held(const struct ag_stream *stream, CUstream handle)
{
    static const _Atomic uint32_t none;

    if (ag_stream_is_special(handle))
        return &ag_replay_withheld;
    return atomic_load_explicit(&stream->id.is_blocking, memory_order_relaxed)
               ? &ag_stream_held_legacy
               : &none;
}

struct ag_stream *ag_stream_update_fast_path(CUstream handle)
{
    const memory_order relaxed = memory_order_relaxed;
    struct ag_stream *stream = ag_stream_last.stream;
    struct ag_fast_path fast;

    if (!stream || ag_stream_last.handle != handle || ag_stream_is_sampled(stream))
        return NULL;
    /* First the version, then what is true while it stays the same. */
    fast = (struct ag_fast_path){.stream = handle, .version = ag_replay_version()};
    if (ag_stream_last.generation !=
            atomic_load_explicit(&ag_stream_generation, memory_order_acquire) ||
        atomic_load_explicit(&stream->id.marks_version, relaxed) != ag_marks_version() ||
        ag_stream_is_sampled(stream))
        return NULL;
    fast.held = count_of_held(stream, handle);
    if (atomic_load_explicit(fast.held, memory_order_seq_cst))
        return NULL;
    fast.backed_off = atomic_load_explicit(&stream->id.marked, relaxed);
    ag_fast_path = fast;
    return stream;
}

bool ag_stream_pass_backed_off(struct ag_stream *stream)
{
    const memory_order relaxed = memory_order_relaxed;
    uint32_t left = atomic_load_explicit(&stream->backoff_left, relaxed);

    if (!left || ag_marks_met)
        return false;
    atomic_store_explicit(&stream->backoff_left, left - 1, relaxed);
    ag_stats_add(AG_STAT_REPLAY_SEEN, 1);
    ag_stats_add(AG_STAT_REPLAY_SLEPT, 1);
    return true;
}

bool ag_stream_is_known(const struct ag_context *context, CUstream handle)
{
    return look_up_stream(context, handle) != NULL;
}

struct ag_stream *ag_stream_look_up(struct ag_context *context, CUstream handle)
{
    uint32_t generation = atomic_load_explicit(&ag_stream_generation, memory_order_acquire);
    struct ag_stream *stream = look_up_stream(context, handle);

    if (!stream && context && ag_stream_is_special(handle) &&
        !atomic_load_explicit(&table.specials_barred, memory_order_relaxed))
        stream = make_stream(context, handle, true, 0, 0);
    if (stream && stream->id.context != context)
        stream = NULL; /* of another context: nothing is recorded */
    ag_stream_last = (struct ag_stream_looked_up){context, handle, stream, generation};
    return stream;
}

void ag_stream_forbid(CUstream stream)
{
    /* Other handles get a state only when they are announced, and are new streams then. */
    if (ag_stream_is_special(stream))
        atomic_store_explicit(&table.specials_barred, true, memory_order_relaxed);
}

void ag_stream_announce(struct ag_context *context, CUstream stream, bool blocking, int priority)
{
    uint64_t number;

    ag_lock_take(&table.lock);
    number = ++table.n_streams;
    ag_lock_release(&table.lock);
    (void)make_stream(context, stream, blocking, priority, number);
}

void ag_stream_each_open(void (*visit)(struct ag_stream *stream, void *data), void *data)
{
    for (unsigned i = 0; i < MASK_WORDS; i++) {
        /* The watchdog says that it sleeps and then looks here, as others set a bit and then look
         * whether it sleeps: one of the two has to see the other. */
        uint64_t word = atomic_load_explicit(&table.open[i], memory_order_seq_cst);

        for (; word; word &= word - 1) {
            struct ag_stream *stream = atomic_load_explicit(
                &table.stream[i * 64 + (unsigned)__builtin_ctzll(word)], memory_order_acquire);

            if (stream)
                visit(stream, data);
        }
    }
}

void ag_stream_each(void (*visit)(struct ag_stream *stream, void *data), void *data)
{
    uint32_t used = atomic_load_explicit(&table.used, memory_order_acquire);

    for (uint32_t i = 0; i < used; i++) {
        struct ag_stream *stream = atomic_load_explicit(&table.stream[i], memory_order_acquire);

        if (stream)
            visit(stream, data);
    }
}

/* --- ownership and what others read --- */

bool ag_stream_wait_for_owner(struct ag_stream *stream, uint64_t timeout_ns)
{
    uint32_t tag = ag_stream_thread(), owner;
    struct ag_wait wait = {0};

    while (!ag_stream_try_own(stream, tag, &owner)) {
        if (atomic_load_explicit(&stream->dead, memory_order_relaxed) || owner == tag)
            return false;
        if (!ag_wait_pause_within(&wait, &timeout_ns))
            return false;
    }
    return true;
}

void ag_stream_set_open(struct ag_stream *stream, bool open)
{
    _Atomic uint64_t *word = &table.open[stream->id.number / 64];
    uint64_t bit = (uint64_t)1 << stream->id.number % 64;

    if (atomic_load_explicit(&stream->open, memory_order_relaxed) == open)
        return;
    atomic_store_explicit(&stream->open, open, memory_order_relaxed);
    if (open) {
        atomic_fetch_or_explicit(word, bit, memory_order_seq_cst);
        atomic_fetch_add_explicit(&ag_replay_withheld, 1, memory_order_seq_cst);
    } else {
        atomic_fetch_and_explicit(word, ~bit, memory_order_seq_cst);
        atomic_fetch_sub_explicit(&ag_replay_withheld, 1, memory_order_seq_cst);
    }
}

void ag_stream_set_holding(struct ag_stream *stream, bool holding)
{
    _Atomic uint32_t *count =
        stream->id.is_legacy ? &ag_stream_held_legacy : &ag_stream_held_blocking;

    if (atomic_load_explicit(&stream->holding, memory_order_relaxed) == holding)
        return;
    atomic_store_explicit(&stream->holding, holding, memory_order_seq_cst);
    if (!stream->id.is_legacy && !stream->id.is_blocking)
        return;
    if (holding)
        atomic_fetch_add_explicit(count, 1, memory_order_seq_cst);
    else
        atomic_fetch_sub_explicit(count, 1, memory_order_seq_cst);
}

/* --- memory that is kept for other streams; not cleared --- */

static struct ag_freelist spare_chunks, spare_ops;

/* --- ends --- */

void ag_stream_retire(struct ag_stream *stream)
{
    ag_stream_set_holding(stream, false);
    ag_stream_set_open(stream, false);
    if (stream->learned.has_gained)
        atomic_store_explicit(&table.fruitless, 0, memory_order_relaxed);
    else
        atomic_fetch_add_explicit(&table.fruitless, 1, memory_order_relaxed);
    if (stream->learned.history)
        ag_history_free(stream->learned.history);
    stream->learned.history = NULL;
    ag_backoff_free(stream->learned.backoff);
    stream->learned.backoff = NULL;
    atomic_store_explicit(&stream->backed_off, false, memory_order_relaxed);
    ag_store_free(&stream->segment.store);
    if (stream->segment.max_ops == FIRST_OPS)
        ag_freelist_put_or_free(&spare_ops, stream->segment.ops,
                                FIRST_OPS * sizeof(*stream->segment.ops));
    else
        ag_pages_free(stream->segment.ops, stream->segment.max_ops * sizeof(*stream->segment.ops));
    stream->segment.ops = NULL;
    stream->segment.n_ops = stream->segment.max_ops = 0;
    atomic_store_explicit(&stream->dead, true, memory_order_release);
    ag_lock_take(&table.lock);
    atomic_store_explicit(&table.stream[stream->id.number], NULL, memory_order_release);
    stream->next_free = table.free;
    table.free = stream;
    atomic_fetch_add_explicit(&ag_stream_generation, 1, memory_order_release);
    atomic_fetch_add_explicit(&ag_stream_changes, 1, memory_order_release);
    ag_stream_disown(stream);
    ag_lock_release(&table.lock);
}

void ag_stream_begin_child(void)
{
    ag_lock_init(&table.lock, AG_RANK_STREAMS);
    for (unsigned i = 0; i < AG_MAX_STREAMS; i++)
        atomic_store(&table.stream[i], NULL);
    for (unsigned i = 0; i < MASK_WORDS; i++)
        atomic_store(&table.open[i], 0);
    memset(table.shared, 0, sizeof(table.shared));
    table.free = NULL;
    atomic_store(&table.used, 0);
    atomic_store(&table.specials_barred, false);
    atomic_store(&table.fruitless, 0);
    atomic_fetch_add(&ag_stream_generation, 1);
    atomic_fetch_add(&ag_stream_changes, 1);
    atomic_store(&ag_stream_held_legacy, 0);
    atomic_store(&ag_stream_held_blocking, 0);
    atomic_store(&ag_replay_withheld, 0);
    ag_arena_begin_child(&stream_arena);
}

/* --- memory --- */

void ag_stream_prepare(void)
{
    ag_matcher_prepare();
    ag_history_prepare();
    ag_backoff_prepare();
    ag_freelist_prepare(&spare_chunks, sizeof(struct ag_chunk), READY_CHUNK);
    ag_freelist_prepare(&spare_ops, FIRST_OPS * sizeof(struct ag_op),
                        READY_OPS * sizeof(struct ag_op));
}

unsigned char *ag_store_next_chunk(struct ag_store *store)
{
    struct ag_chunk **next = store->chunk ? &store->chunk->next : &store->first;

    if (!*next)
        *next = store->first ? ag_pages_get(sizeof(struct ag_chunk))
                             : ag_freelist_take_or_get(&spare_chunks, sizeof(struct ag_chunk));
    if (!*next)
        return NULL;
    store->chunk = *next;
    store->at = 0;
    return store->chunk->bytes;
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
        ag_freelist_put_or_free(&spare_chunks, store->first, sizeof(*store->first));
        store->first = next;
    }
    *store = (struct ag_store){0};
}

bool ag_stream_more_ops(struct ag_stream *stream)
{
    uint32_t max = stream->segment.max_ops ? stream->segment.max_ops * 2 : FIRST_OPS;
    struct ag_op *ops;

    ops = stream->segment.ops ? ag_pages_get(max * sizeof(*ops))
                              : ag_freelist_take_or_get(&spare_ops, max * sizeof(*ops));
    if (!ops)
        return false;
    if (stream->segment.ops) {
        memcpy(ops, stream->segment.ops, stream->segment.n_ops * sizeof(*ops));
        ag_pages_free(stream->segment.ops, stream->segment.max_ops * sizeof(*ops));
    }
    stream->segment.ops = ops;
    stream->segment.max_ops = max;
    return true;
}
