/* scheduler.c: the queue of operations and the hostile choice of what runs when.
 *
 * An operation may run once all operations it was ordered behind are done. Under the adversarial
 * scheduler it does run when somebody waits for it or for something behind it, or when the mood of
 * the moment says so at some driver call: moods range from "nothing runs that need not" to "all
 * that can run does", prefer old or new operations, and starve one stream. Of the other schedulers,
 * eager runs all it can at once, thread has a worker thread, and lazy, for questions of the kind
 * "does this call wait?", runs nothing but what somebody waits for; reluctant likewise, and what is
 * asked about again and again. */
#include "tests/sim/sim_internal.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum taste { TASTE_ANY, TASTE_OLDEST, TASTE_NEWEST, N_TASTES };

static struct {
    struct sim_op **ready;
    size_t n_ready, capacity;
    uint64_t next_id, clock_ns;
    double bus_gib_ns; /* 0: nothing was copied */
    unsigned mark;
    unsigned calls_left, odds, burst; /* the mood */
    enum taste taste;
    uint32_t victim;
    uint64_t n_calls;
    bool background;
} self;

__thread struct sim_op *sim_running;

/* ---- lists ---- */

void sim_ops_add(struct sim_ops *ops, struct sim_op *op)
{
    if (!op || op->state == SIM_OP_DONE)
        return;
    if (ops->n == ops->cap) {
        ops->cap = ops->cap ? ops->cap * 2 : 8;
        ops->at = realloc(ops->at, ops->cap * sizeof(*ops->at));
        if (!ops->at)
            abort();
    }
    ops->at[ops->n++] = sim_op_ref(op);
}

void sim_ops_finish(struct sim_ops *ops)
{
    for (unsigned i = 0; i < ops->n; i++)
        sim_op_unref(ops->at[i]);
    free(ops->at);
    *ops = (struct sim_ops){0};
}

void sim_ops_prune(struct sim_ops *ops)
{
    struct sim_ops still = {0};

    for (unsigned i = 0; i < ops->n; i++)
        sim_ops_add(&still, ops->at[i]);
    sim_ops_finish(ops);
    *ops = still;
}

static void push(struct sim_op ***list, unsigned *n, unsigned *cap, struct sim_op *op)
{
    if (*n == *cap) {
        *cap = *cap ? *cap * 2 : 4;
        *list = realloc(*list, *cap * sizeof(**list));
        if (!*list)
            abort();
    }
    (*list)[(*n)++] = op;
}

/* ---- operations ---- */

struct sim_op *sim_op_ref(struct sim_op *op)
{
    if (op)
        op->refs++;
    return op;
}

void sim_op_unref(struct sim_op *op)
{
    if (!op || --op->refs)
        return;
    sim_order_finish(&op->order);
    sim_work_finish(&op->work);
    free(op->before);
    free(op->after);
    free(op);
}

static struct sim_op *op_new(CUstream stream, struct sim_work *work)
{
    struct sim_op *op = calloc(1, sizeof(*op));

    if (!op)
        abort();
    op->id = ++self.next_id;
    op->refs = 1; /* the queue's */
    op->ctx = stream->ctx;
    op->ctx_id = stream->ctx->id;
    op->device = stream->ctx->device;
    op->stream = stream;
    op->stream_id = stream->id;
    op->work = *work;
    op->shared_event = work->shared_page;
    op->shared_number = work->shared_number;
    memset(work, 0, sizeof(*work));
    sim_order_join(&op->order, &sim_host_order);
    return op;
}

static void op_after(struct sim_op *op, struct sim_op *before)
{
    if (!before)
        return;
    sim_order_join(&op->order, &before->order);
    if (before->state == SIM_OP_DONE || before == op)
        return;
    for (unsigned i = 0; i < op->n_before; i++)
        if (op->before[i] == before)
            return;
    push(&op->before, &op->n_before, &op->cap_before, sim_op_ref(before));
    push(&before->after, &before->n_after, &before->cap_after, sim_op_ref(op));
    op->n_waiting_for++;
}

static void op_after_all(struct sim_op *op, const struct sim_ops *ops)
{
    for (unsigned i = 0; ops && i < ops->n; i++)
        op_after(op, ops->at[i]);
}

static void make_ready(struct sim_op *op)
{
    if (self.n_ready == self.capacity) {
        self.capacity = self.capacity ? self.capacity * 2 : 64;
        self.ready = realloc(self.ready, self.capacity * sizeof(*self.ready));
        if (!self.ready)
            abort();
    }
    op->state = SIM_OP_READY;
    op->ready_index = self.n_ready;
    self.ready[self.n_ready++] = op;
}

static void take_from_ready(struct sim_op *op)
{
    struct sim_op *moved = self.ready[--self.n_ready];

    self.ready[op->ready_index] = moved;
    moved->ready_index = op->ready_index;
    op->state = SIM_OP_RUNNING;
}

void sim_op_done(struct sim_op *op)
{
    op->state = SIM_OP_DONE;
    op->done_ns = self.clock_ns;
    if (op->shared_event && op->work.kind == SIM_WORK_EVENT_RECORD)
        sim_event_share_done(op);
    for (unsigned i = 0; i < op->n_before; i++)
        sim_op_unref(op->before[i]);
    op->n_before = 0;
    for (unsigned i = 0; i < op->n_after; i++) {
        struct sim_op *next = op->after[i];
        if (--next->n_waiting_for == 0 && next->state == SIM_OP_WAITING)
            make_ready(next);
        sim_op_unref(next);
    }
    op->n_after = 0;
    sim_op_unref(op);
    sim_wake_all();
}

/* ---- running ---- */

/* Returns false when the operation has to be executed again later. */
static bool execute(struct sim_op *op)
{
    struct sim_op *outer = sim_running;
    bool done = true;

    sim_running = op;
    sim_advance_clock(1000);
    sim_log("run op %llu %s, stream %llu", (unsigned long long)op->id, sim_work_name(&op->work),
            (unsigned long long)op->stream_id);
    switch (op->work.kind) {
    case SIM_WORK_KERNEL:
        done = sim_run_kernel(op);
        break;
    case SIM_WORK_COPY:
        sim_run_copy(op);
        break;
    case SIM_WORK_SET:
        sim_run_set(op);
        break;
    case SIM_WORK_ALLOC:
        op->work.u.block->born = true;
        op->work.u.block->pins--;
        break;
    case SIM_WORK_FREE:
        sim_block_freed_in_order(op->work.u.block);
        break;
    case SIM_WORK_PREFETCH:
        sim_run_prefetch(op);
        break;
    default:
        break;
    }
    sim_running = outer;
    return done;
}

/* Operations that look at memory: false when what they wait for is not there yet. */
static bool run_wait(struct sim_op *op)
{
    switch (op->work.kind) {
    case SIM_WORK_WAIT_VALUE:
    case SIM_WORK_WRITE_VALUE:
        return sim_run_value(op);
    case SIM_WORK_EVENT_WAIT:
        if (!op->shared_event || !sim_event_share_reached(op->shared_event, op->shared_number))
            return !op->shared_event;
        (void)munmap(op->shared_event, 4096);
        op->shared_event = NULL;
        return true;
    default:
        return true;
    }
}

/* Returns false when the operation has to wait for a value in memory, or says so itself. */
static bool run(struct sim_op *op)
{
    bool faulted = op->ctx->fault != CUDA_SUCCESS;
    bool memory = op->work.kind == SIM_WORK_ALLOC || op->work.kind == SIM_WORK_FREE;

    take_from_ready(op);
    if (op->work.kind == SIM_WORK_HOST) {
        sim_op_ref(op);
        sim_hostfn_start(op);
        /* Given time to return so that one seed means one schedule; but it may want a mutex that
         * our caller holds, so not without limit. */
        for (int ms = 0; ms < 100 && op->state != SIM_OP_DONE; ms++)
            sim_sleep_for_change(1);
        sim_op_unref(op);
        return true;
    }
    if ((!faulted && !run_wait(op)) || ((!faulted || memory) && !execute(op))) {
        make_ready(op);
        self.taste = TASTE_ANY; /* else this one might be picked for ever */
        return false;
    }
    sim_op_done(op);
    return true;
}

/* Marks op and all it waits for; returns the mark. */
static unsigned mark_closure(struct sim_op *op)
{
    struct sim_op **stack = NULL;
    unsigned n = 0, cap = 0, mark = ++self.mark;

    op->mark = mark;
    push(&stack, &n, &cap, op);
    while (n) {
        struct sim_op *top = stack[--n];
        for (unsigned i = 0; i < top->n_before; i++) {
            struct sim_op *before = top->before[i];
            if (before->state == SIM_OP_DONE || before->mark == mark)
                continue;
            before->mark = mark;
            push(&stack, &n, &cap, before);
        }
    }
    free(stack);
    return mark;
}

static bool wanted(const struct sim_op *op, unsigned mark, uint32_t victim)
{
    return (!mark || op->mark == mark) && op->stamp.slot != victim;
}

/* One ready operation: with the mark, unless it is 0; not of the victim's stream. */
static struct sim_op *pick(unsigned mark, uint32_t victim)
{
    struct sim_op *best = NULL;
    uint32_t n = 0;

    for (size_t i = 0; i < self.n_ready; i++) {
        struct sim_op *op = self.ready[i];
        if (!wanted(op, mark, victim))
            continue;
        n++;
        bool take = !best || (self.taste == TASTE_OLDEST && op->id < best->id) ||
                    (self.taste == TASTE_NEWEST && op->id > best->id) ||
                    (self.taste == TASTE_ANY && sim_random(n) == 0);
        if (take)
            best = op;
    }
    return best;
}

#define NO_VICTIM UINT32_MAX

/* What has to be called again and again before the others get some time: who sleeps at once does so
 * for each kernel that waits for another one of the same thread, which nobody else can bring on. */
#define TRIES_IN_VAIN 64

void sim_finish_op(struct sim_op *op)
{
    unsigned mark = 0, in_vain = 0;

    sim_op_ref(op);
    while (op->state != SIM_OP_DONE) {
        if (sim_settings()->sched == SIM_SCHED_THREAD) {
            sim_sleep_for_change(0);
            continue;
        }
        /* Others may have marked over ours while we slept. */
        if (!mark || mark != self.mark)
            mark = mark_closure(op);
        /* Also when something in our way waits for a word that others have to write. */
        bool detour = in_vain || (sim_settings()->sched == SIM_SCHED_ADVERSARIAL && sim_chance(64));
        struct sim_op *next = pick(detour ? 0 : mark, NO_VICTIM);
        in_vain = next && !run(next) ? in_vain + 1 : 0;
        if (in_vain && in_vain < TRIES_IN_VAIN)
            sim_let_others_in();
        else if (in_vain || (!next && !detour))
            sim_sleep_for_change(1);
    }
    sim_op_unref(op);
}

void sim_wait(struct sim_op *op)
{
    if (!op)
        return;
    sim_op_ref(op);
    sim_finish_op(op);
    sim_order_join(&sim_host_order, &op->order);
    sim_op_unref(op);
}

void sim_nudge(struct sim_op *op)
{
    bool nudged = sim_settings()->sched == SIM_SCHED_ADVERSARIAL ||
                  sim_settings()->sched == SIM_SCHED_RELUCTANT;

    if (op->state == SIM_OP_DONE || !nudged || sim_in_host_function() || !sim_chance(128))
        return;
    struct sim_op *next = pick(mark_closure(op), NO_VICTIM);
    if (next)
        (void)run(next);
}

static void change_mood(void)
{
    static const unsigned odds[] = {0, 0, 16, 64, 160, 256};

    self.calls_left = 4 + sim_random(40);
    self.odds = odds[sim_random(SIM_COUNT(odds))];
    self.burst = 1 + sim_random(1u << sim_random(6));
    self.taste = (enum taste)sim_random(N_TASTES);
    self.victim = self.n_ready && sim_chance(128)
                      ? self.ready[sim_random((uint32_t)self.n_ready)]->stamp.slot
                      : NO_VICTIM;
}

void sim_tick(void)
{
    self.n_calls++;
    if (sim_settings()->sched != SIM_SCHED_ADVERSARIAL)
        return;
    if (!self.calls_left--)
        change_mood();
    if (!sim_chance(self.odds))
        return;
    for (unsigned i = 0; i < self.burst; i++) {
        struct sim_op *op = pick(0, self.victim);
        if (!op || !run(op))
            return;
    }
}

void sim_advance_clock(uint64_t ns)
{
    self.clock_ns += ns;
}

#define LEAST_TIMED  ((size_t)1 << 20)
#define USUAL_GIB_NS 19.5e6 /* an H100's, by PCIe 5 */

uint64_t sim_least_copy_ns(size_t bytes)
{
    return bytes < LEAST_TIMED ? 0 : (uint64_t)((double)bytes * 0x1p-30 * USUAL_GIB_NS);
}

void sim_note_copied(size_t bytes, uint64_t ns)
{
    double gib_ns = (double)ns / (double)bytes * 0x1p30;

    if (bytes >= LEAST_TIMED && !(self.bus_gib_ns > 0 && self.bus_gib_ns < gib_ns))
        self.bus_gib_ns = gib_ns;
}

void sim_cross_bus(size_t bytes)
{
    double gib_ns = self.bus_gib_ns > 0 ? self.bus_gib_ns : USUAL_GIB_NS;

    sim_advance_clock((uint64_t)((double)bytes * 0x1p-30 * gib_ns));
}

uint64_t sim_clock_ns(void)
{
    return self.clock_ns;
}

/* ---- the background thread: a worker of its own, or progress while the host only watches ---- */

static void *background(void *unused)
{
    uint64_t seen = 0;

    sim_lock();
    while (!sim_gone()) {
        bool worker = sim_settings()->sched == SIM_SCHED_THREAD;

        if (!worker && seen != self.n_calls) {
            seen = self.n_calls;
            sim_unlock();
            (void)usleep(sim_settings()->idle_ms * 1000);
            sim_lock();
            continue;
        }
        self.taste = worker ? TASTE_ANY : self.taste;
        struct sim_op *op = pick(0, NO_VICTIM);
        bool ran = op && run(op);
        unsigned pause_us = worker ? sim_random(60) : 1000;
        if (worker && !op) {
            sim_sleep_for_change(50);
            continue;
        }
        sim_unlock();
        (void)usleep(ran ? pause_us : 1000);
        sim_lock();
    }
    sim_unlock();
    return unused;
}

/* A device shares no processor with the program: neither a core that the calling thread is bound to
 * nor its real-time priority concerns it. */
static bool start_apart(void)
{
    const struct sched_param param = {0};
    pthread_attr_t attr;
    pthread_t thread;
    cpu_set_t every;
    int error;

    memset(&every, 0xff, sizeof(every));
    (void)pthread_attr_init(&attr);
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    (void)pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED);
    (void)pthread_attr_setschedpolicy(&attr, SCHED_OTHER);
    (void)pthread_attr_setschedparam(&attr, &param);
    (void)pthread_attr_setaffinity_np(&attr, sizeof(every), &every);
    error = pthread_create(&thread, &attr, background, NULL);
    (void)pthread_attr_destroy(&attr);
    return !error;
}

static void start_background(void)
{
    sigset_t all, old;
    pthread_t thread;

    self.background = true;
    if (sim_settings()->sched != SIM_SCHED_THREAD && !sim_settings()->idle_ms)
        return;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    if (!start_apart() && pthread_create(&thread, NULL, background, NULL) == 0)
        (void)pthread_detach(thread);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/* ---- enqueueing ---- */

/* All that can run. */
static void run_all(void)
{
    bool progress = true;

    while (progress) {
        progress = false;
        for (size_t i = 0; i < self.n_ready && !progress; i++)
            progress = run(self.ready[i]);
    }
}

static void start(struct sim_op *op)
{
    if (!self.background)
        start_background();
    if (!op->n_waiting_for)
        make_ready(op);
    sim_wake_all();
    if (sim_settings()->sched == SIM_SCHED_EAGER)
        run_all();
}

uint64_t sim_last_op_id(void)
{
    return self.next_id;
}

/* To one side of the coming operation: its order, and (op not NULL) what it waits for. */
static void after_stream(struct sim_op *op, struct sim_order *order, CUstream stream)
{
    sim_order_join(order, &stream->order);
    if (op)
        op_after(op, stream->last);
}

/* What the kind of the stream asks for: the legacy stream and the blocking ones wait for each
 * other; the hidden stream behind cuCtxRecordEvent waits for all. */
static void after_kind(struct sim_op *op, struct sim_order *order, CUstream stream)
{
    CUcontext ctx = stream->ctx;
    bool all = stream->kind == SIM_STREAM_ALL;

    after_stream(op, order, stream);
    if (all || stream->kind == SIM_STREAM_LEGACY) {
        for (CUstream other = ctx->first; other; other = other->next)
            if (all || sim_stream_blocking(other))
                after_stream(op, order, other);
        for (int blocking = all ? 0 : 1; blocking < 2; blocking++) {
            if (op)
                op_after_all(op, &ctx->orphans[blocking]);
            sim_order_join(order, &ctx->orphan_order[blocking]);
        }
    } else if (sim_stream_blocking(stream)) {
        after_stream(op, order, ctx->legacy);
    }
    if (op)
        op_after_all(op, &ctx->barrier);
    sim_order_join(order, &ctx->barrier_order);
}

void sim_order_of_next(CUstream stream, struct sim_order *order)
{
    sim_order_join(order, &sim_host_order);
    after_kind(NULL, order, stream);
}

/* Gives the operation its number and makes it the stream's last. */
static void append(CUstream stream, struct sim_op *op)
{
    op->stamp = (struct sim_stamp){stream->slot, sim_slot_next(stream->slot)};
    sim_order_add(&op->order, op->stamp);
    sim_order_join(&stream->order, &op->order);
    sim_op_unref(stream->last);
    stream->last = sim_op_ref(op);
}

/* A kernel that starts early does not wait for the kernel before it, nor for events recorded since.
 * What comes behind it has to find done all that it would have waited for. */
static void append_early(CUstream stream, struct sim_op *op)
{
    struct sim_work nothing = {.kind = SIM_WORK_EMPTY};
    struct sim_op *both = op_new(stream, &nothing);

    after_kind(both, &both->order, stream);
    op_after_all(op, &stream->before_kernel);
    sim_order_join(&op->order, &stream->order_before_kernel);
    append(stream, op);
    op_after(both, op); /* which starts it */
    append(stream, both);
}

/* What a kernel waits for, should one that starts early come behind it: that one waits for the
 * same. The kernel's own number is not among it yet. */
static void note_kernel(CUstream stream, const struct sim_op *op)
{
    stream->is_behind_kernel = op->work.kind == SIM_WORK_KERNEL ||
                               (stream->is_behind_kernel && op->work.kind == SIM_WORK_EVENT_RECORD);
    if (op->work.kind != SIM_WORK_KERNEL)
        return;
    sim_ops_finish(&stream->before_kernel);
    for (unsigned i = 0; i < op->n_before; i++)
        sim_ops_add(&stream->before_kernel, op->before[i]);
    sim_order_finish(&stream->order_before_kernel);
    sim_order_join(&stream->order_before_kernel, &op->order);
}

void sim_enqueue(CUstream stream, struct sim_work *work, const struct sim_ops *extra,
                 struct sim_op **ret_op)
{
    struct sim_op *op = op_new(stream, work);
    bool early =
        op->work.kind == SIM_WORK_KERNEL && op->work.u.kernel.is_early && stream->is_behind_kernel;

    if (early) {
        append_early(stream, op);
    } else {
        after_kind(op, &op->order, stream);
        op_after_all(op, extra);
        note_kernel(stream, op);
        append(stream, op);
    }
    if (ret_op)
        *ret_op = sim_op_ref(op);
    start(op);
}

struct sim_op *sim_enqueue_inner(CUstream stream, CUcontext ctx, struct sim_work *work,
                                 struct sim_stamp stamp, const struct sim_order *order,
                                 const struct sim_ops *before)
{
    struct sim_op *op = op_new(stream, work);

    if (ctx && ctx->alive) {
        op->ctx = ctx;
        op->device = ctx->device;
    }
    op->stamp = stamp;
    sim_order_join(&op->order, order);
    op_after_all(op, before);
    sim_order_add(&op->order, stamp);
    sim_op_ref(op);
    start(op);
    return op;
}

void sim_scheduler_start(void)
{
    change_mood();
}
