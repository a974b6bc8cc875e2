/* driver.c: the life of the simulated driver, its lock, and the way into every call. */
#include "tests/sim/sim_internal.h"

#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool initialised, gone, forked, refused_runtime;
    int n_threads;
} self = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

const char allograft_simulated_driver[] = "the simulated driver";

static __thread int thread_number;
static __thread enum sim_callback callback;
static __thread bool twin_counted;

static struct {
    const char *symbol;
    void (*what)(void);
    bool locked;
} inside; /* set by a thread that is alone */

void sim_lock(void)
{
    (void)pthread_mutex_lock(&self.lock);
}

void sim_unlock(void)
{
    (void)pthread_mutex_unlock(&self.lock);
}

/* No call of the driver is a cancellation point. */
static void wait_for(pthread_cond_t *signal, const struct timespec *until)
{
    int state;

    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    if (until)
        (void)pthread_cond_timedwait(signal, &self.lock, until);
    else
        (void)pthread_cond_wait(signal, &self.lock);
    (void)pthread_setcancelstate(state, NULL);
}

void sim_sleep_for_change(unsigned ms)
{
    struct timespec until;

    if (!ms) {
        wait_for(&self.changed, NULL);
        return;
    }
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    until.tv_sec += ms / 1000 + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    wait_for(&self.changed, &until);
}

void sim_sleep_for(pthread_cond_t *signal)
{
    wait_for(signal, NULL);
}

void sim_let_others_in(void)
{
    sim_unlock();
    (void)sched_yield();
    sim_lock();
}

void sim_wake_all(void)
{
    (void)pthread_cond_broadcast(&self.changed);
}

bool sim_gone(void)
{
    return self.gone;
}

void sim_in_callback(enum sim_callback what)
{
    callback = what;
}

bool sim_in_host_function(void)
{
    return callback == SIM_IN_HOST_FUNCTION;
}

/* A host function may ask, but neither wait nor change anything; a kernel may not even ask. */
static bool permitted(const char *symbol)
{
    return callback == SIM_IN_NOTHING ||
           (callback == SIM_IN_HOST_FUNCTION &&
            (!strcmp(symbol, "cuStreamQuery") || !strcmp(symbol, "cuEventQuery")));
}

int sim_thread_number(void)
{
    if (!thread_number)
        thread_number = __atomic_add_fetch(&self.n_threads, 1, __ATOMIC_RELAXED);
    return thread_number;
}

void sim_log(const char *format, ...)
{
    va_list args;

    if (!sim_settings()->log)
        return;
    fprintf(stderr, "sim: [%d] ", sim_thread_number());
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
}

void sim_say(const char *format, ...)
{
    va_list args;

    fputs("allograft: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
}

/* ---- calls that come late, or come back late, as those of threads that the machine lets wait ----
 *
 * Not for a time, but until other threads have made some calls or one has ended: so they meet what
 * comes late at every place, whatever the machine is. */

#define LATEST_POLLS 12u /* of 20 us: nobody else may be there */
#define CHOSEN_POLLS 60u /* where a test has asked for it */
#define MOST_CALLS   24u

static struct {
    _Atomic unsigned n_calls, n_records, n_ended; /* records: of events */
    pthread_key_t key; /* its destructor sees threads end, after those of who began before us */
    pthread_once_t once;
} late = {.once = PTHREAD_ONCE_INIT};

static __thread uint64_t late_random;
static __thread bool is_late;

static void thread_ended(void *unused)
{
    (void)unused;
    (void)atomic_fetch_add(&late.n_ended, 1);
}

static void make_late_key(void)
{
    if (pthread_key_create(&late.key, thread_ended))
        abort();
}

static uint32_t draw_late(uint32_t below)
{
    if (!late_random) {
        late_random = sim_settings()->seed * 0x9e3779b97f4a7c15u + (uint64_t)sim_thread_number();
        (void)pthread_once(&late.once, make_late_key);
        (void)pthread_setspecific(late.key, &late);
    }
    late_random = late_random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(late_random >> 33) % below;
}

/* Every other time the next event that is recorded ends it. */
static void be_late(unsigned polls)
{
    unsigned n_ended = atomic_load(&late.n_ended), n_records = atomic_load(&late.n_records);
    unsigned until = atomic_load(&late.n_calls) + 1 + draw_late(MOST_CALLS);
    bool by_record = draw_late(2);

    for (unsigned i = 0; i < polls && atomic_load(&late.n_ended) == n_ended &&
                         (by_record ? atomic_load(&late.n_records) == n_records
                                    : (int)(atomic_load(&late.n_calls) - until) < 0);
         i++)
        (void)usleep(20);
}

/* One in so many; 0: none. */
static bool is_drawn(unsigned of)
{
    return of && callback == SIM_IN_NOTHING && !draw_late(of);
}

static void come_late(void)
{
    if (is_late || is_drawn(sim_settings()->stall))
        be_late(is_late ? CHOSEN_POLLS : LATEST_POLLS);
    is_late = false;
}

/* Most of all where an event has been recorded that others may take to cover what they do. */
static void come_back_late(bool recorded)
{
    unsigned of = sim_settings()->stall;

    if (recorded)
        (void)atomic_fetch_add(&late.n_records, 1);
    if (is_drawn(of && recorded ? 2 : of))
        be_late(LATEST_POLLS);
}

void sim_be_late(void)
{
    is_late = true;
}

static CUresult admit(const char *symbol, enum sim_needs needs, CUcontext *ret_ctx)
{
    bool counted = twin_counted;
    CUresult fault = CUDA_SUCCESS;

    twin_counted = false;
    if (!counted)
        fault = sim_fault(symbol);
    if (needs != SIM_NEEDS_NOTHING) {
        if (self.gone)
            return CUDA_ERROR_DEINITIALIZED;
        if (!self.initialised || self.forked)
            return CUDA_ERROR_NOT_INITIALIZED;
    }
    if (fault != CUDA_SUCCESS)
        return fault;
    if (needs < SIM_USES_CONTEXT)
        return CUDA_SUCCESS;
    CUcontext ctx = sim_current();
    if (!ctx)
        return needs == SIM_USES_CONTEXT ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
    if (!sim_handle_is(ctx, SIM_CONTEXT) || !ctx->alive)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *ret_ctx = ctx;
    return needs == SIM_NEEDS_CONTEXT_EVEN_FAULTED ? CUDA_SUCCESS : ctx->fault;
}

void sim_inside(const char *symbol, bool locked, void (*what)(void))
{
    inside.symbol = symbol;
    inside.what = what;
    inside.locked = locked;
}

static void run_inside(const char *symbol, bool locked)
{
    if (inside.what && inside.locked == locked && !strcmp(inside.symbol, symbol))
        inside.what();
}

/* Asked of an H200 (580.159). Queries, waits and questions about memory go on. */
static bool waits_behind_frees(const char *symbol)
{
    static const char *const beginnings[] = {
        "cuLaunch",       "cuMemcpy",      "cuMemset",       "cuMemAlloc",
        "cuMemHostAlloc", "cuEventRecord", "cuStreamCreate",
    };

    for (unsigned i = 0; i < SIM_COUNT(beginnings); i++) {
        if (!strncmp(symbol, beginnings[i], strlen(beginnings[i])))
            return true;
    }
    return false;
}

/* A context whose call has waited may have ended meanwhile. */
static void wait_behind_frees(struct sim_call *call, const char *symbol, enum sim_needs needs)
{
    if (call->refused != CUDA_SUCCESS || !sim_context_is_held(call->ctx) ||
        !waits_behind_frees(symbol))
        return;
    while (sim_context_is_held(call->ctx))
        sim_sleep_for_change(1);
    call->refused = admit(symbol, needs, &call->ctx);
}

void sim_enter(struct sim_call *call, const char *symbol, enum sim_needs needs)
{
    call->ctx = NULL;
    call->locked = false;
    if (!permitted(symbol)) {
        call->refused = CUDA_ERROR_NOT_PERMITTED;
        return;
    }
    run_inside(symbol, false);
    come_late();
    sim_lock();
    call->locked = true;
    call->records = !strcmp(symbol, "cuEventRecord") || !strcmp(symbol, "cuCtxRecordEvent");
    (void)atomic_fetch_add(&late.n_calls, 1);
    sim_log("%s", symbol);
    run_inside(symbol, true);
    if (self.initialised && !self.gone && !self.forked && needs != SIM_NEEDS_NOTHING &&
        callback == SIM_IN_NOTHING) {
        sim_advance_clock(100);
        sim_tick();
    }
    call->refused = admit(symbol, needs, &call->ctx);
    wait_behind_frees(call, symbol, needs);
}

void sim_leave(struct sim_call *call)
{
    if (!call->locked)
        return;
    sim_unlock();
    come_back_late(call->records);
}

CUresult sim_enter_twin(const char *symbol)
{
    sim_lock();
    CUresult fault = self.gone || !self.initialised ? CUDA_SUCCESS : sim_fault(symbol);
    sim_unlock();
    twin_counted = fault == CUDA_SUCCESS;
    return fault;
}

/* The driver's own end. What is still enqueued never runs; later calls are refused. */
static void end(void)
{
    sim_lock();
    self.gone = true;
    sim_unlock();
}

/* A forked child has no use of the parent's driver. */
static void in_child(void)
{
    self.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    self.changed = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    if (self.initialised)
        self.forked = true;
}

/* Whoever has the lock, it may be in a question before cuInit. */
__attribute__((constructor)) static void tell_fork(void)
{
    (void)pthread_atfork(NULL, NULL, in_child);
}

CUresult cuInit(unsigned int flags)
{
    SIM_ENTER(SIM_NEEDS_NOTHING);
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (self.gone)
        return CUDA_ERROR_DEINITIALIZED;
    if (self.forked)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (sim_settings()->n_devices == 0)
        return CUDA_ERROR_NO_DEVICE;
    if (self.initialised)
        return CUDA_SUCCESS;
    self.initialised = true;
    (void)atexit(end);
    sim_scheduler_start();
    return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version)
{
    SIM_ENTER(SIM_NEEDS_NOTHING);
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = sim_settings()->driver_version;
    return CUDA_SUCCESS;
}

CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
    SIM_ENTER(SIM_NEEDS_NOTHING);
    /* NVIDIA's private tables are NVIDIA's: never imitated. It is their runtime that asks, wherever
     * in the process it is. */
    if (!table || !id)
        return CUDA_ERROR_INVALID_VALUE;
    if (!self.refused_runtime)
        sim_say("the simulated driver cannot serve NVIDIA's CUDA runtime, which checks that the "
                "driver is NVIDIA's: its calls fail here; programs that call the driver API "
                "themselves can run, and those that are compiled for it (docs/usage.md, Without a "
                "GPU)");
    self.refused_runtime = true;
    return CUDA_ERROR_NOT_FOUND;
}
