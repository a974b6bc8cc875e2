/* Who submitted where, and placing the fences that are due: see watch.h.
 *
 * All state is under one lock, which only the slow path takes, and under which loads are relaxed.
 * Driver calls are made without it, by one thread at a time (`placing`), for which the others wait
 * before they submit. No thread has a permit then, so the fence covers exactly what was submitted
 * before the frees, and perhaps calls that are under way, which stay noted. */
#include "policy/order/watch.h"

#include <pthread.h>

#include "interpose/core/base/arena.h"
#include "interpose/core/base/log.h"
#include "interpose/core/base/threads/lock.h"
#include "interpose/core/base/threads/wait.h"
#include "interpose/core/driver/driver.h"
#include "interpose/core/report/stats.h"
#include "policy/contexts/context.h"
#include "policy/order/capture.h"
#include "policy/order/early.h"
#include "policy/order/fence.h"
#include "policy/order/users.h"

#define NONE      AG_WATCH_NONE
#define ALL       AG_WATCH_ALL
#define DESTROYED (AG_WATCH_ALL - 1) /* a stream that is gone: nothing more is submitted there */
#define NO_WORK   (AG_WATCH_ALL - 2) /* where a fence is placed for another reason */

struct ag_watch_thread ag_watch_stranger;
_Thread_local struct ag_watch_thread *ag_watch_own = &ag_watch_stranger;

struct ag_watch_state ag_watch_state;

static struct {
    struct ag_lock lock;          /* guards the changes of the above, and all below */
    struct ag_watch_thread *open; /* threads with a permit */
    unsigned n_noted;             /* threads that have noted something */
    uint64_t n_left, n_left_done; /* threads that ended with a note; of them, those fenced since */
    uint64_t n_asked;             /* how often a thread asked before its work */
    uint64_t life;                /* notes of another one are of a context that is gone */
    uintptr_t after;              /* the only stream after the last event; NONE: all are */
    bool placing;
    bool ending; /* no fence becomes due any more */
} watch = {.lock = AG_LOCK_INIT(AG_RANK_WATCH)};

static struct ag_arena threads = AG_ARENA_INIT(struct ag_watch_thread);
static pthread_key_t key; /* its destructor sees threads end */
static bool has_key;

static uintptr_t both(uintptr_t a, uintptr_t b)
{
    if (a == NONE || b == NONE)
        return a | b;
    return a == b ? a : ALL;
}

/* --- threads; with the lock held --- */

static uintptr_t get_active(void)
{
    return atomic_load_explicit(&ag_watch_state.active, memory_order_relaxed);
}

/* Who sees the new `active` has to see the new number. */
static void set_active(uintptr_t streams)
{
    uint64_t n = atomic_load_explicit(&ag_watch_state.n_clear, memory_order_relaxed);

    if (streams == NONE && get_active() != NONE)
        atomic_store_explicit(&ag_watch_state.n_clear, n + 1, memory_order_relaxed);
    atomic_store_explicit(&ag_watch_state.active, streams, memory_order_release);
}

static void close_all(void)
{
    for (struct ag_watch_thread *thread = watch.open; thread; thread = thread->next) {
        atomic_store_explicit(&thread->permit, NONE, memory_order_relaxed);
        thread->is_open = false;
    }
    watch.open = NULL;
}

static uintptr_t noted_streams(const struct ag_watch_thread *own)
{
    return own->life == watch.life ? own->noted : NONE;
}

static void note_stream(struct ag_watch_thread *own, uintptr_t stream)
{
    uintptr_t before = noted_streams(own);

    if (before == NONE)
        watch.n_noted++;
    own->noted = both(before, stream);
    own->life = watch.life;
    own->asked = ++watch.n_asked;
    set_active(both(get_active(), stream));
}

/* Gives the thread its permit: after an event that holds for one stream only, for no other. */
static void open_for(struct ag_watch_thread *own, uintptr_t stream)
{
    atomic_store_explicit(&own->permit, watch.after == NONE ? own->noted : stream,
                          memory_order_relaxed);
    if (own->is_open)
        return;
    own->is_open = true;
    own->next = watch.open;
    watch.open = own;
}

/* The calling thread's notes, and those of the first `n_left` threads that ended, are done with. */
static void forget_notes(uint64_t n_left)
{
    struct ag_watch_thread *own = ag_watch_own;

    if (noted_streams(own) != NONE) {
        watch.n_noted--;
        own->noted = NONE;
    }
    if (n_left > watch.n_left_done)
        watch.n_left_done = n_left;
    if (!watch.n_noted && watch.n_left == watch.n_left_done)
        set_active(NONE);
}

static void leave_list(struct ag_watch_thread *own)
{
    struct ag_watch_thread **link = &watch.open;

    while (own->is_open && *link != own)
        link = &(*link)->next;
    if (own->is_open)
        *link = own->next;
    own->is_open = false;
}

/* --- threads that come and go --- */

static void thread_ends(void *data)
{
    struct ag_watch_thread *own = data;

    ag_watch_own = &ag_watch_stranger;
    ag_lock_take(&watch.lock);
    leave_list(own);
    if (noted_streams(own) != NONE) {
        watch.n_noted--;
        watch.n_left++;
    }
    ag_lock_release(&watch.lock);
    ag_arena_put(&threads, own);
}

/* The calling thread's record, or NULL when it can have none. */
static struct ag_watch_thread *own_record(void)
{
    struct ag_watch_thread *fresh;

    if (ag_watch_own != &ag_watch_stranger)
        return ag_watch_own;
    fresh = has_key ? ag_arena_get(&threads) : NULL;
    if (!fresh)
        return NULL;
    if (pthread_setspecific(key, fresh)) {
        ag_arena_put(&threads, fresh);
        return NULL;
    }
    ag_watch_own = fresh;
    return fresh;
}

/* --- beginning and end --- */

void ag_watch_begin(void)
{
    has_key = has_key || !pthread_key_create(&key, thread_ends);
    if (!has_key) {
        ag_watch_never();
        return;
    }
    atomic_store_explicit(&ag_watch_stranger.permit, NONE, memory_order_relaxed);
    atomic_store_explicit(&ag_watch_state.on, true, memory_order_release);
}

void ag_watch_never(void)
{
    atomic_store_explicit(&ag_watch_stranger.permit, ALL, memory_order_relaxed);
}

/* --- placing --- */

/* What has to be done before work may go on. */
struct task {
    struct ag_context *context;
    uintptr_t stream; /* an event is recorded there; NONE: a barrier is placed */
    bool wait_only;   /* all streams are to wait for the event that was recorded before */
    uint64_t n_left;
};

static CUresult record_on(const struct task *task)
{
    bool pushed;
    CUresult result = ag_context_make_current(task->context, &pushed);

    if (result == CUDA_SUCCESS)
        result = ag_cu.cuEventRecord(task->context->barrier.event, (CUstream)task->stream);
    ag_context_restore(pushed);
    ag_stats_add(AG_STAT_WATCH_EVENTS, 1);
    return result;
}

static CUresult place_barrier(const struct task *task)
{
    struct ag_context *context = task->context;
    CUresult result = ag_cu.cuCtxRecordEvent(context->handle, context->barrier.event);

    if (result == CUDA_SUCCESS)
        result = ag_cu.cuCtxWaitEvent(context->handle, context->barrier.event);
    ag_stats_add(AG_STAT_WATCH_BARRIERS, 1);
    return result;
}

static CUresult make_task_wait(const struct task *task)
{
    ag_stats_add(AG_STAT_WATCH_WAITS, 1);
    return ag_cu.cuCtxWaitEvent(task->context->handle, task->context->barrier.event);
}

static CUresult call_driver(const struct task *task)
{
    CUresult result = ag_context_init_resources(task->context);

    if (result != CUDA_SUCCESS)
        return result;
    if (task->wait_only)
        return make_task_wait(task);
    return task->stream == NONE ? place_barrier(task) : record_on(task);
}

/* Places the task's fence: while `placing`, inside the capture guard or in the thread that closed
 * it. */
static void place_task(const struct task *task)
{
    CUresult result = call_driver(task);

    if (result == CUDA_SUCCESS && !task->wait_only) {
        atomic_fetch_add_explicit(&task->context->barrier.requested, 1, memory_order_seq_cst);
        atomic_fetch_add_explicit(&task->context->barrier.placed, 1, memory_order_seq_cst);
    }
    /* Without an event the host waits, as the frees would have natively. After an error of the
     * device nothing is left to be ordered. */
    if (result != CUDA_SUCCESS)
        (void)ag_fence_wait_context(task->context);
}

/* Begins to place, once no other thread does. Nobody submits from then on. Called with the lock
 * held, which is released while another thread places. */
static void begin_placing(void)
{
    struct ag_wait wait = {0};

    while (watch.placing) {
        ag_lock_release(&watch.lock);
        ag_wait_pause(&wait);
        ag_lock_take(&watch.lock);
    }
    watch.placing = true;
}

static bool needs_fence(uintptr_t stream)
{
    return atomic_load_explicit(&ag_watch_state.due, memory_order_relaxed) ||
           (watch.after != NONE && watch.after != stream);
}

/* What has to be done for work on `stream`, which needs something; frees from now on make the next
 * fence due. */
static struct task next_task(uintptr_t stream)
{
    struct task task = {
        .context = atomic_load_explicit(&ag_watch_state.owner, memory_order_relaxed),
        .n_left = watch.n_left,
    };
    uintptr_t streams = get_active();
    bool is_due = atomic_load_explicit(&ag_watch_state.due, memory_order_relaxed);
    bool alone = (streams == stream || stream == NO_WORK) && streams != ALL && streams != NONE;

    task.wait_only = !is_due;
    if (is_due && alone)
        task.stream = streams;
    atomic_store_explicit(&ag_watch_state.being_placed, is_due, memory_order_seq_cst);
    atomic_store_explicit(&ag_watch_state.due, false, memory_order_seq_cst);
    return task;
}

static void note_placed(const struct task *task)
{
    watch.after = task->stream;
    if (!task->wait_only)
        forget_notes(task->n_left);
    atomic_store_explicit(&ag_watch_state.being_placed, false, memory_order_seq_cst);
}

/* Does the task. Called with the lock held, which is released meanwhile. */
static void do_task(struct task task)
{
    ag_lock_release(&watch.lock);
    place_task(&task);
    ag_lock_take(&watch.lock);
    note_placed(&task);
}

/* Places what work on `stream` needs, with the lock held before and after. False: in a capture. */
static bool place_for(uintptr_t stream, bool in_capture)
{
    bool can = true, needs;

    begin_placing();
    needs = needs_fence(stream == NO_WORK ? watch.after : stream);
    if (needs && !in_capture)
        can = ag_capture_guard_enter(); /* first: what is due stays so where it cannot be placed */
    if (needs && can)
        do_task(next_task(stream));
    if (needs && can && !in_capture)
        ag_capture_guard_leave();
    watch.placing = false;
    return can;
}

/* Does what place_for() does. Where the guard is closed, a capture is about to begin: nothing
 * becomes due while one is open. Its thread places what is due and waits for nobody on the way but
 * those inside the guard, so this one waits for it, however long it is not scheduled. */
static void place_soon(uintptr_t stream)
{
    struct ag_wait wait = {0};

    while (!place_for(stream, false)) {
        ag_lock_release(&watch.lock);
        ag_wait_pause(&wait);
        ag_lock_take(&watch.lock);
    }
}

/* The thread's work goes on, and is noted. Called with the lock held. */
static void let_go_on(struct ag_watch_thread *own, uintptr_t stream)
{
    while (watch.placing || needs_fence(stream))
        place_soon(stream);
    if (!ag_watch_is_on()) {
        atomic_store_explicit(&own->permit, ALL, memory_order_relaxed);
        return;
    }
    note_stream(own, stream);
    open_for(own, stream);
}

void ag_watch_submits(CUstream handle, bool per_thread)
{
    uintptr_t stream = ag_watch_number(handle, per_thread);
    struct ag_watch_thread *own = own_record();

    ag_users_note();
    if (!own) {
        ag_watch_end("there was no memory for the record of a thread");
        return;
    }
    ag_lock_take(&watch.lock);
    let_go_on(own, stream);
    ag_lock_release(&watch.lock);
}

void ag_watch_place(struct ag_context *context)
{
    if (!ag_watch_is_due(context))
        return;
    ag_lock_take(&watch.lock);
    place_soon(NO_WORK);
    ag_lock_release(&watch.lock);
}

/* Every stream is after the fence afterwards. Watching may have ended meanwhile, and wait for it.
 */
void ag_watch_capture_opening(void)
{
    ag_lock_take(&watch.lock);
    (void)place_for(ALL, true);
    ag_lock_release(&watch.lock);
}

/* Places what is due; with the lock held. It is over last: who finds it so submits without us, or
 * places a fence by the same event. */
static void finish_watching(void)
{
    while (watch.placing || needs_fence(ALL))
        place_soon(ALL);
    atomic_store_explicit(&ag_watch_state.on, false, memory_order_seq_cst);
    ag_watch_never();
}

/* Nobody has a permit while it ends, so all work waits until what is due is placed. So does another
 * thread that ends it. */
void ag_watch_end(const char *why)
{
    if (!ag_watch_is_on())
        return;
    ag_lock_take(&watch.lock);
    if (!watch.ending) {
        watch.ending = true;
        close_all();
        ag_stats_add(AG_STAT_WATCH_ENDED, 1);
        ag_log_debug("streams are not watched any more: %s", why);
    }
    finish_watching();
    ag_lock_release(&watch.lock);
}

/* --- frees --- */

/* Makes a fence due. Called with the lock held. Whoever begins a capture is counted as open first,
 * and takes the lock afterwards to place what is due: so either it is seen here, or it sees what is
 * due. */
static enum ag_watch_free make_due(struct ag_context *context)
{
    if (watch.ending)
        return AG_WATCH_OFF;
    if (ag_capture_is_open())
        return AG_WATCH_IN_CAPTURE;
    atomic_store_explicit(&ag_watch_state.owner, context, memory_order_relaxed);
    close_all();
    ag_early_fenced();
    /* Last: whoever frees next and finds it due does nothing more, and gives the memory away. */
    atomic_store_explicit(&ag_watch_state.due, true, memory_order_seq_cst);
    return AG_WATCH_DUE;
}

enum ag_watch_free ag_watch_freed(struct ag_context *context)
{
    enum ag_watch_free free;

    if (!ag_watch_is_on())
        return AG_WATCH_OFF;
    if (ag_watch_is_clear())
        return AG_WATCH_NOTHING;
    if (atomic_load_explicit(&ag_watch_state.due, memory_order_seq_cst))
        return AG_WATCH_DUE;
    ag_lock_take(&watch.lock);
    free = make_due(context);
    ag_lock_release(&watch.lock);
    if (free == AG_WATCH_OFF)
        ag_watch_end("it ends already");
    return free;
}

uint64_t ag_watch_draining(void)
{
    uint64_t n_left;

    if (!ag_watch_is_on())
        return 0;
    ag_lock_take(&watch.lock);
    n_left = watch.n_left;
    ag_lock_release(&watch.lock);
    return n_left;
}

/* The calling thread has submitted nothing since the drain began, and asks before it does. */
void ag_watch_drained(uint64_t n_left)
{
    if (!ag_watch_is_on())
        return;
    ag_lock_take(&watch.lock);
    forget_notes(n_left);
    if (ag_watch_own->is_open)
        atomic_store_explicit(&ag_watch_own->permit, NONE, memory_order_relaxed);
    ag_lock_release(&watch.lock);
}

/* It asks before its next work, which is how that is known. */
void ag_watch_mark(struct ag_watch_mark *ret_mark)
{
    struct ag_watch_thread *own = ag_watch_own;

    *ret_mark = (struct ag_watch_mark){0};
    if (!ag_watch_is_on() || own == &ag_watch_stranger)
        return;
    ag_lock_take(&watch.lock);
    atomic_store_explicit(&own->permit, NONE, memory_order_relaxed);
    *ret_mark = (struct ag_watch_mark){own, own->asked, watch.n_left};
    ag_lock_release(&watch.lock);
}

void ag_watch_passed(const struct ag_watch_mark *mark)
{
    if (!ag_watch_is_on() || !mark->thread || mark->thread != ag_watch_own)
        return;
    ag_lock_take(&watch.lock);
    if (ag_watch_own->asked == mark->asked)
        forget_notes(mark->n_left);
    ag_lock_release(&watch.lock);
}

/* The only stream that got work since the last fence, if the calling thread alone gave it any; else
 * NONE. Called with the lock held. */
static uintptr_t own_stream(void)
{
    uintptr_t stream = get_active();

    if (watch.n_noted != 1 || watch.n_left != watch.n_left_done ||
        noted_streams(ag_watch_own) != stream || stream == ALL)
        return NONE;
    return stream;
}

/* The stream is not destroyed meanwhile: who does that waits as if for a fence being placed. */
static bool is_done(uintptr_t stream)
{
    bool done;

    if (!ag_capture_guard_enter())
        return false;
    ag_lock_release(&watch.lock);
    done = ag_cu.cuStreamQuery((CUstream)stream) == CUDA_SUCCESS;
    ag_capture_guard_leave();
    ag_lock_take(&watch.lock);
    return done;
}

uint64_t ag_watch_finds_done(void)
{
    uintptr_t stream;
    uint64_t clear = 0;
    bool done = false;

    if (!ag_watch_is_on())
        return 0;
    ag_lock_take(&watch.lock);
    if (own_stream() != NONE) {
        begin_placing();
        stream = own_stream();
        done = stream != NONE && is_done(stream);
        watch.placing = false;
    }
    if (done) {
        forget_notes(watch.n_left);
        atomic_store_explicit(&ag_watch_own->permit, NONE, memory_order_relaxed);
        clear = ag_watch_clear_since();
    }
    ag_lock_release(&watch.lock);
    return clear;
}

void ag_watch_revoke_permits(void)
{
    ag_lock_take(&watch.lock);
    close_all();
    ag_lock_release(&watch.lock);
}

/* --- streams and contexts that go --- */

void ag_watch_stream_dying(CUstream stream)
{
    uintptr_t number = ag_watch_number(stream, false);

    if (!ag_watch_is_on())
        return;
    ag_lock_take(&watch.lock);
    begin_placing();
    watch.placing = false;
    if (get_active() == number)
        set_active(ALL);
    if (watch.after == number)
        watch.after = DESTROYED;
    close_all();
    ag_lock_release(&watch.lock);
}

/* Forgets every thread's notes. Called with the lock held. */
static void forget_all(void)
{
    close_all();
    watch.life++;
    watch.n_noted = 0;
    watch.n_left_done = watch.n_left;
    watch.after = NONE;
    atomic_store_explicit(&ag_watch_state.owner, NULL, memory_order_relaxed);
    atomic_store_explicit(&ag_watch_state.due, false, memory_order_relaxed);
    set_active(NONE);
}

void ag_watch_context_gone(void)
{
    ag_lock_take(&watch.lock);
    forget_all();
    ag_lock_release(&watch.lock);
}

void ag_watch_begin_child(void)
{
    ag_lock_init(&watch.lock, AG_RANK_WATCH); /* the thread that held it is the parent's */
    ag_arena_begin_child(&threads);
    watch.open = NULL; /* likewise those with a permit */
    watch.placing = false;
    atomic_store_explicit(&ag_watch_state.being_placed, false, memory_order_relaxed);
    ag_watch_own->is_open = false;
    atomic_store_explicit(&ag_watch_own->permit, NONE, memory_order_relaxed);
    forget_all();
    if (watch.ending || !ag_watch_is_on())
        finish_watching();
}
