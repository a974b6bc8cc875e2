/* policy/order/watch.c: which calls of the driver come before which work, on a driver that only
 * takes note. Each scenario is a process of its own.
 *
 * The log has a word for each: w1 is work on stream 1, R1 an event recorded on it, C and W the
 * event and the wait of a barrier, W alone the wait for an event recorded before, S a wait of the
 * host, Q1 a question whether stream 1 is done. */
#include "policy/order/watch.h"

#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "interpose/core/driver/driver.h"
#include "interpose/core/report/stats.h"
#include "policy/contexts/context.h"
#include "policy/order/capture.h"
#include "tests/common/check.h"

#define HANDLE(n) ((CUstream)((uintptr_t)(n) << 12))

struct ag_driver ag_cu;
_Atomic unsigned ag_captures_open;
struct ag_capture_guard ag_capture_guard[AG_SLOTS];
_Atomic uint64_t ag_early_fences;

static struct ag_context context;
static char calls[4096];
static size_t n_calls;
static bool refuses, quiet, frees_inside, is_busy;
static void (*meets_inside)(void); /* what another thread does meanwhile */
static pthread_t met;
static _Atomic bool has_met; /* that has returned */
static _Atomic int inside;

/* --- where threads are stopped --- */

/* What another thread does before the next lock is taken. */
static void (*_Atomic before_lock)(void);
/* Seconds that pass each time somebody looks at the clock. */
static _Atomic time_t clock_steps;
static _Atomic time_t clock_is;

static void *run_before_lock(void *what)
{
    (*(void (**)(void))what)();
    return NULL;
}

int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
    void (*what)(void) = atomic_exchange(&before_lock, NULL);
    pthread_t other;

    if (what) { /* another thread, of which the checks of locks know that it holds none */
        OK(pthread_create(&other, NULL, run_before_lock, &what));
        OK(pthread_join(other, NULL));
    }
    return __real_pthread_mutex_lock(mutex);
}

int __real_clock_gettime(clockid_t id, struct timespec *ret_now);
int __wrap_clock_gettime(clockid_t id, struct timespec *ret_now);
int __wrap_clock_gettime(clockid_t id, struct timespec *ret_now)
{
    int result = __real_clock_gettime(id, ret_now);

    ret_now->tv_sec += atomic_fetch_add(&clock_is, clock_steps);
    return result;
}

/* --- what watch.c calls --- */

CUresult ag_context_make_resources(struct ag_context *of)
{
    CHECK(of == &context);
    return CUDA_SUCCESS;
}

CUresult ag_context_make_current(struct ag_context *of, bool *ret_pushed)
{
    CHECK(of == &context);
    *ret_pushed = false;
    return CUDA_SUCCESS;
}

void ag_context_restore(bool pushed)
{
    CHECK(!pushed);
}

static void add_call(const char *word, unsigned stream)
{
    if (quiet)
        return;
    n_calls += (size_t)snprintf(calls + n_calls, sizeof(calls) - n_calls, stream ? "%s%u " : "%s ",
                                word, stream);
    CHECK(n_calls < sizeof(calls));
}

static void *meet(void *unused)
{
    meets_inside();
    atomic_store(&has_met, true);
    return unused;
}

/* One thread at a time places, without a lock, so that frees go on meanwhile. */
static CUresult called(const char *word, unsigned stream)
{
    CHECK(atomic_fetch_add(&inside, 1) == 0);
    add_call(word, stream);
    if (frees_inside) {
        frees_inside = false;
        CHECK(ag_watch_freed(&context) == AG_WATCH_DUE);
    }
    if (meets_inside && *word == 'C') {
        OK(pthread_create(&met, NULL, meet, NULL));
        OK(usleep(20000));
        CHECK(!has_met);
    }
    atomic_fetch_sub(&inside, 1);
    return refuses && *word != 'S' ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

static CUresult record(CUevent event, CUstream stream)
{
    CHECK(event == context.barrier.event);
    return called("R", (unsigned)((uintptr_t)stream >> 12));
}

static CUresult record_all(CUcontext handle, CUevent event)
{
    CHECK(handle == context.handle && event == context.barrier.event);
    return called("C", 0);
}

static CUresult wait_all(CUcontext handle, CUevent event)
{
    CHECK(handle == context.handle && event == context.barrier.event);
    return called("W", 0);
}

static CUresult ask(CUstream stream)
{
    CUresult result = called("Q", (unsigned)((uintptr_t)stream >> 12));

    return is_busy ? CUDA_ERROR_NOT_READY : result;
}

CUresult ag_fence_wait_context(struct ag_context *of)
{
    CHECK(of == &context);
    return called("S", 0);
}

/* --- what programs do --- */

static void work(unsigned stream)
{
    ag_watch_work(HANDLE(stream), false);
    CHECK(ag_captures_open || ag_watch_permits(HANDLE(stream), false));
    add_call("w", stream);
}

static void work_per_thread(void)
{
    ag_watch_work(NULL, true);
    add_call("wp", 0);
}

static void free_memory(enum ag_watch_free expected)
{
    EXPECT(expected, ag_watch_freed(&context));
    CHECK(ag_watch_is_due(&context) == (expected == AG_WATCH_DUE));
}

static void *run(void *what)
{
    (*(void (**)(void))what)();
    return NULL;
}

/* In a thread that ends. */
static void elsewhere(void (*what)(void))
{
    pthread_t thread;

    OK(pthread_create(&thread, NULL, run, &what));
    OK(pthread_join(thread, NULL));
}

static void expect_calls(const char *expected, int line)
{
    CHECK_SAID(!strcmp(calls, expected), "line %d: \"%s\", not \"%s\"", line, calls, expected);
    n_calls = 0;
    calls[0] = '\0';
}
#define CALLS(expected) expect_calls(expected, __LINE__)

static void work_on_1(void)
{
    work(1);
}

static void work_on_2(void)
{
    work(2);
}

static void free_once(void)
{
    free_memory(AG_WATCH_DUE);
}

/* --- one thread --- */

static void one_stream_needs_events_only(void)
{
    work(1);
    work(1);
    for (int i = 0; i < 3; i++) {
        free_memory(AG_WATCH_DUE);
        free_memory(AG_WATCH_DUE);
        work(1);
        work(1);
    }
    CALLS("w1 w1 R1 w1 w1 R1 w1 w1 R1 w1 w1 ");
    CHECK(context.barrier.placed == 3 && context.barrier.requested == 3);
    CHECK(ag_stats_counter(AG_STAT_WATCH_EVENTS) == 3);
    CHECK(!ag_stats_counter(AG_STAT_WATCH_BARRIERS) && !ag_stats_counter(AG_STAT_WATCH_WAITS));
}

static void several_streams_need_one_barrier(void)
{
    work(1);
    work(2);
    work(3);
    for (int i = 0; i < 10; i++)
        free_memory(AG_WATCH_DUE);
    work(1);
    work(2);
    CALLS("w1 w2 w3 C W w1 w2 ");
    CHECK(ag_stats_counter(AG_STAT_WATCH_BARRIERS) == 1);
    CHECK(ag_early_fences == 1); /* frees of many threads would wait for each other to count */
}

static void another_stream_waits_for_the_event(void)
{
    work(1);
    free_memory(AG_WATCH_DUE);
    work(1);
    CHECK(!ag_watch_permits(HANDLE(2), false));
    work(2);
    work(1);
    work(2);
    work(3);
    CALLS("w1 R1 w1 W w2 w1 w2 w3 ");
    CHECK(context.barrier.placed == 1 && ag_stats_counter(AG_STAT_WATCH_WAITS) == 1);
}

static void another_stream_alone_takes_a_barrier(void)
{
    work(1);
    free_memory(AG_WATCH_DUE);
    work(2);
    free_memory(AG_WATCH_DUE);
    work(2);
    CALLS("w1 C W w2 R2 w2 ");
}

static void nothing_submitted_needs_nothing(void)
{
    free_memory(AG_WATCH_NOTHING);
    ag_watch_place(&context);
    work(1);
    CHECK(!ag_watch_is_clear());
    free_memory(AG_WATCH_DUE);
    ag_watch_place(&context);
    CHECK(ag_watch_is_clear());
    free_memory(AG_WATCH_NOTHING);
    ag_watch_place(&context);
    CALLS("w1 R1 ");
    work(2);
    CALLS("W w2 ");
}

static void a_drain_leaves_nothing(void)
{
    work(1);
    work(2);
    ag_watch_drained(ag_watch_draining());
    CHECK(ag_watch_is_clear());
    free_memory(AG_WATCH_NOTHING);
    work(2);
    CHECK(!ag_watch_is_clear());
    free_memory(AG_WATCH_DUE);
    work(2);
    CALLS("w1 w2 w2 R2 w2 ");
}

static void a_fence_that_is_passed_leaves_nothing(void)
{
    uint64_t clear = ag_watch_clear_since();
    struct ag_watch_mark mark;

    CHECK(clear != 0);
    ag_watch_mark(&mark);
    ag_watch_passed(&mark); /* of a thread that has submitted nothing */
    work(1);
    work(2);
    CHECK(ag_watch_clear_since() == 0);
    ag_watch_mark(&mark);
    ag_watch_passed(&mark);
    CHECK(ag_watch_is_clear() && ag_watch_clear_since() != clear);
    free_memory(AG_WATCH_NOTHING);
    work(1);
    ag_watch_mark(&mark);
    work(1); /* not before the fence */
    ag_watch_passed(&mark);
    CHECK(!ag_watch_is_clear());
    CALLS("w1 w2 w1 w1 ");
}

static void what_is_done_leaves_nothing(void)
{
    CHECK(!ag_watch_finds_done());
    work(1);
    is_busy = true;
    CHECK(!ag_watch_finds_done() && !ag_watch_is_clear());
    is_busy = false;
    CHECK(ag_watch_finds_done() && ag_watch_is_clear());
    CHECK(!ag_watch_permits(HANDLE(1), false));
    CALLS("w1 Q1 Q1 ");
    work(1);
    work(2); /* of two streams nobody asks, nor of one that is gone, nor in a capture */
    CHECK(!ag_watch_finds_done());
    ag_watch_drained(ag_watch_draining());
    work(1);
    ag_captures_open++;
    CHECK(!ag_watch_finds_done());
    ag_captures_open--;
    ag_watch_stream_dying(HANDLE(1));
    CHECK(!ag_watch_finds_done() && !ag_watch_is_clear());
    CALLS("w1 w2 w1 ");
}

static void handles_name_streams(void)
{
    CHECK(ag_watch_number(NULL, false) == ag_watch_number(CU_STREAM_LEGACY, true));
    CHECK(ag_watch_number(NULL, true) == AG_WATCH_ALL);
    CHECK(ag_watch_number(CU_STREAM_PER_THREAD, false) == AG_WATCH_ALL);
    work_per_thread();
    free_memory(AG_WATCH_DUE);
    work_per_thread();
    free_memory(AG_WATCH_DUE);
    work(1);
    CALLS("wp C W wp C W w1 ");
}

static void a_destroyed_stream_is_no_other(void)
{
    work(1);
    free_memory(AG_WATCH_DUE);
    work(1);
    ag_watch_stream_dying(HANDLE(1));
    work(1); /* another one at the same address */
    CALLS("w1 R1 w1 W w1 ");
    ag_watch_stream_dying(HANDLE(1));
    free_memory(AG_WATCH_DUE);
    work(1);
    CALLS("C W w1 ");
    ag_watch_stream_dying(HANDLE(2));
    work(1);
    free_memory(AG_WATCH_DUE);
    work(1);
    CALLS("w1 R1 w1 ");
}

static void frees_while_one_is_placed(void)
{
    work(1);
    free_memory(AG_WATCH_DUE);
    frees_inside = true;
    work(1);
    CALLS("w1 R1 C W w1 ");
    CHECK(!ag_watch_is_due(&context));
}

static void the_host_waits_where_no_event_can_be_had(void)
{
    work(1);
    free_memory(AG_WATCH_DUE);
    refuses = true;
    work(1);
    CALLS("w1 R1 S w1 ");
    CHECK(context.barrier.placed == 0);
    refuses = false;
    free_memory(AG_WATCH_DUE);
    work(1);
    CALLS("R1 w1 ");
}

/* --- captures, contexts, the end, children --- */

static void open_capture(void)
{
    ag_captures_open++;
    ag_watch_capture_opening();
}

static void captures_begin_behind_the_fence(void)
{
    work(1);
    free_memory(AG_WATCH_DUE);
    open_capture();
    CALLS("w1 C W ");
    free_memory(AG_WATCH_NOTHING); /* nobody asks in a capture, but nothing came since */
    work(1);
    EXPECT(AG_WATCH_IN_CAPTURE, ag_watch_freed(&context));
    work(2);
    open_capture();
    CALLS("w1 w2 ");
    ag_captures_open = 0;
    free_memory(AG_WATCH_DUE);
    work(2);
    CALLS("C W w2 ");
}

/* The thread that frees has looked whether a capture is open, and is stopped for as long as it
 * takes another one to begin it. */
static void captures_begin_before_a_free_is_noted(void)
{
    work(1);
    before_lock = open_capture;
    EXPECT(AG_WATCH_IN_CAPTURE, ag_watch_freed(&context));
    CHECK(ag_captures_open == 1 && !ag_watch_is_due(&context));
    work(1);
    CALLS("w1 w1 ");
}

static void captures_begin_behind_the_event(void)
{
    open_capture();
    ag_captures_open = 0;
    work(1);
    free_memory(AG_WATCH_DUE);
    work(1);
    open_capture();
    work(2);
    CALLS("w1 R1 w1 W w2 ");
}

/* `what` of another thread, once a capture has closed the guard, waits until the capture's thread
 * has placed what is due, however late that is. */
static void while_a_capture_begins(void (*what)(void))
{
    pthread_t thread;

    clock_steps = 1000;
    ag_captures_open++;
    OK(pthread_create(&thread, NULL, run, &what));
    OK(usleep(20000));
    ag_watch_capture_opening();
    OK(pthread_join(thread, NULL));
    ag_captures_open--;
}

static void place_elsewhere(void)
{
    ag_watch_place(&context);
    add_call("p", 0);
}

static void end_elsewhere(void)
{
    ag_watch_end("the test says so");
    add_call("e", 0);
}

static void nothing_overtakes_a_capture_that_begins(void)
{
    work(1);
    free_memory(AG_WATCH_DUE);
    while_a_capture_begins(work_on_2);
    CALLS("w1 C W w2 ");
    free_memory(AG_WATCH_DUE);
    while_a_capture_begins(place_elsewhere);
    CALLS("C W p ");
    work(1);
    free_memory(AG_WATCH_DUE);
    while_a_capture_begins(end_elsewhere);
    CALLS("w1 C W e ");
}

static void nor_the_wait_for_the_event(void)
{
    work(1);
    free_memory(AG_WATCH_DUE);
    work(1);
    while_a_capture_begins(work_on_2);
    CALLS("w1 R1 w1 W w2 ");
}

static void watching_ends_for_good(void)
{
    work(1);
    free_memory(AG_WATCH_DUE);
    ag_watch_end("the test says so");
    CALLS("w1 C W ");
    CHECK(!ag_watch_is_on());
    work(1);
    work(2);
    elsewhere(work_on_2);
    free_memory(AG_WATCH_OFF);
    ag_watch_end("again");
    ag_watch_capture_opening();
    CHECK(!ag_watch_is_clear());
    CALLS("w1 w2 w2 ");
    CHECK(ag_stats_counter(AG_STAT_WATCH_ENDED) == 1);
}

static void watching_ends_behind_the_event(void)
{
    work(1);
    free_memory(AG_WATCH_DUE);
    work(1);
    ag_watch_end("the test says so");
    work(2);
    CALLS("w1 R1 w1 W w2 ");
}

static void end_again(void)
{
    ag_watch_end("the other thread says so");
    CHECK(!ag_watch_is_due(&context));
}

static void free_at_the_end(void)
{
    EXPECT(AG_WATCH_OFF, ag_watch_freed(&context));
    CHECK(!ag_watch_is_due(&context));
}

static void end_beside(void (*what)(void))
{
    work(1);
    free_memory(AG_WATCH_DUE);
    meets_inside = what;
    ag_watch_end("the test says so");
    OK(pthread_join(met, NULL));
    CALLS("w1 C W ");
    CHECK(ag_stats_counter(AG_STAT_WATCH_ENDED) == 1);
}

static void who_ends_it_too_waits(void)
{
    end_beside(end_again);
}

/* Its fence would be by the same event, and the counts of the two would mix. */
static void who_frees_as_it_ends_waits(void)
{
    end_beside(free_at_the_end);
}

static void a_context_takes_all_with_it(void)
{
    work(1);
    free_memory(AG_WATCH_DUE);
    work(1);
    free_memory(AG_WATCH_DUE);
    ag_watch_context_gone();
    CHECK(ag_watch_is_clear() && !ag_watch_is_due(&context));
    free_memory(AG_WATCH_NOTHING);
    work(2);
    free_memory(AG_WATCH_DUE);
    work(2);
    CALLS("w1 R1 w1 w2 R2 w2 ");
}

static void in_child(void)
{
    ag_watch_begin_child();
    CHECK(ag_watch_is_clear() && !ag_watch_is_due(&context));
    free_memory(AG_WATCH_NOTHING);
    work(2);
    free_memory(AG_WATCH_DUE);
    work(2);
    CALLS("w1 w2 R2 w2 ");
}

/* --- threads --- */

static void others_keep_what_they_noted(void)
{
    elsewhere(free_once);
}

static struct {
    pthread_barrier_t step;
    void (*what[4])(void);
} other;

static void *other_thread(void *unused)
{
    for (size_t i = 0; i < N_OF(other.what); i++) {
        (void)pthread_barrier_wait(&other.step);
        if (other.what[i])
            other.what[i]();
        (void)pthread_barrier_wait(&other.step);
    }
    return unused;
}

/* The other thread, which lives on, does the next thing. */
static void let_other(void)
{
    (void)pthread_barrier_wait(&other.step);
    (void)pthread_barrier_wait(&other.step);
}

static pthread_t start_other(void)
{
    pthread_t thread;

    OK(pthread_barrier_init(&other.step, NULL, 2));
    OK(pthread_create(&thread, NULL, other_thread, NULL));
    return thread;
}

static void fences_of_one_forget_nothing_of_another(void)
{
    pthread_t thread = start_other();

    other.what[0] = other.what[1] = other.what[3] = work_on_1;
    other.what[2] = work_on_2;
    let_other();
    CHECK(!ag_watch_is_clear());
    free_memory(AG_WATCH_DUE);
    work(1); /* the event covers both threads' work, but calls of the other may be under way */
    free_memory(AG_WATCH_DUE);
    let_other(); /* it has no permit, and forgets */
    CALLS("w1 R1 w1 R1 w1 ");
    ag_watch_drained(ag_watch_draining());
    free_memory(AG_WATCH_DUE);
    let_other();
    CALLS("C W w2 ");
    ag_watch_drained(ag_watch_draining());
    CHECK(!ag_watch_is_clear());
    let_other();
    CALLS("w1 ");
    OK(pthread_join(thread, NULL));
}

static struct ag_watch_mark another_mark;

static void work_and_mark(void)
{
    work(1);
    ag_watch_mark(&another_mark);
}

static void what_others_did_is_not_passed(void)
{
    pthread_t thread = start_other();

    for (int i = 0; i < 4; i++)
        let_other();
    OK(pthread_join(thread, NULL));
    ag_watch_drained(ag_watch_draining());
    elsewhere(work_and_mark); /* which ends with a note */
    ag_watch_passed(&another_mark);
    CHECK(!ag_watch_is_clear());
    work(1);
    CHECK(!ag_watch_finds_done());
    ag_watch_drained(ag_watch_draining());
    CHECK(ag_watch_is_clear());
}

static void a_thread_may_free_for_others(void)
{
    work(1);
    others_keep_what_they_noted();
    CHECK(!ag_watch_permits(HANDLE(1), false));
    work(1);
    CALLS("w1 R1 w1 ");
}

static void threads_end_with_notes(void)
{
    uint64_t n_left;

    elsewhere(work_on_1);
    CHECK(!ag_watch_is_clear());
    free_memory(AG_WATCH_DUE);
    ag_watch_place(&context);
    CHECK(ag_watch_is_clear());
    CALLS("w1 R1 ");
    n_left = ag_watch_draining();
    elsewhere(work_on_1); /* not covered */
    ag_watch_drained(n_left);
    CHECK(!ag_watch_is_clear());
    ag_watch_drained(ag_watch_draining());
    CHECK(ag_watch_is_clear());
}

static void children_start_afresh(void)
{
    pthread_t thread = start_other();
    int status;
    pid_t pid;

    other.what[0] = work_on_1;
    let_other();
    free_memory(AG_WATCH_DUE);
    pid = fork();
    if (!pid) {
        in_child();
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    work(2);
    CALLS("w1 C W w2 ");
    for (int i = 1; i < 4; i++)
        let_other();
    OK(pthread_join(thread, NULL));
}

/* --- many threads: nothing hangs, and who submits has no fence to wait for --- */

#define N_THREADS 4
#define N_TURNS   3000

static void *submit_and_free(void *data)
{
    unsigned self = (unsigned)(uintptr_t)data;

    for (unsigned i = 0; i < N_TURNS; i++) {
        if (self % 2)
            (void)ag_watch_freed(&context);
        if (!(self % 2) || i % 7 == 0)
            ag_watch_work(HANDLE(1 + (self + i / 64) % 3), false);
        if (i % 101 == 100)
            ag_watch_stream_dying(HANDLE(3));
        if (i % 97 == 96)
            ag_watch_place(&context);
    }
    return NULL;
}

static void threads_meet(void)
{
    pthread_t threads[N_THREADS];

    quiet = true;
    for (uintptr_t i = 0; i < N_THREADS; i++)
        OK(pthread_create(&threads[i], NULL, submit_and_free, (void *)i));
    for (int i = 0; i < N_THREADS; i++)
        OK(pthread_join(threads[i], NULL));
    quiet = false;
    CHECK(context.barrier.placed > 0 && context.barrier.placed == context.barrier.requested);
    free_memory(AG_WATCH_DUE); /* of threads that ended, some had notes */
    ag_watch_place(&context);
    CHECK(ag_watch_is_clear());
}

/* Who finds a fence due gives memory away at once: by then nobody may pass. Many threads have
 * permits, so that revoking them takes a while. */
#define N_CROWD      100
#define N_ITERATIONS 50

static struct {
    pthread_barrier_t step;
    struct ag_watch_thread *first; /* whose permit is revoked last */
    _Atomic unsigned n_passed;     /* though a fence was due */
} crowd;

static void *pass_with_others(void *is_watcher)
{
    for (int i = 0; i < N_ITERATIONS; i++) {
        (void)pthread_barrier_wait(&crowd.step);
        if (!is_watcher)
            ag_watch_work(HANDLE(1), false);
        (void)pthread_barrier_wait(&crowd.step);
        while (is_watcher && !atomic_load(&ag_watch_state.due))
            ;
        if (is_watcher && atomic_load(&crowd.first->permit) != AG_WATCH_NONE)
            atomic_fetch_add(&crowd.n_passed, 1);
        (void)pthread_barrier_wait(&crowd.step);
    }
    return NULL;
}

static void nobody_passes_what_is_due(void)
{
    pthread_t threads[N_CROWD];

    quiet = true;
    OK(pthread_barrier_init(&crowd.step, NULL, N_CROWD + 1));
    for (unsigned i = 0; i < N_CROWD; i++)
        OK(pthread_create(&threads[i], NULL, pass_with_others, i ? NULL : &crowd));
    for (int i = 0; i < N_ITERATIONS; i++) {
        ag_watch_work(HANDLE(1), false);
        crowd.first = ag_watch_own;
        (void)pthread_barrier_wait(&crowd.step);
        (void)pthread_barrier_wait(&crowd.step);
        free_memory(AG_WATCH_DUE);
        (void)pthread_barrier_wait(&crowd.step);
    }
    for (int i = 0; i < N_CROWD; i++)
        OK(pthread_join(threads[i], NULL));
    CHECK_SAID(!crowd.n_passed, "%u of %d times a thread passed", crowd.n_passed, N_ITERATIONS);
}

/* A capture is about to begin, so nobody else can place what is due: it stays due for whoever asks
 * until that one has. */
static _Atomic unsigned n_trying;

static void *try_to_place(void *unused)
{
    ag_watch_place(&context);
    atomic_fetch_sub(&n_trying, 1);
    return unused;
}

static void what_cannot_be_placed_stays_due(void)
{
    pthread_t threads[N_THREADS];
    unsigned n_missed = 0;

    work(1);
    free_memory(AG_WATCH_DUE);
    clock_steps = 1000;
    ag_captures_open++;
    n_trying = N_THREADS;
    for (int i = 0; i < N_THREADS; i++)
        OK(pthread_create(&threads[i], NULL, try_to_place, NULL));
    for (int i = 0; i < 200; i++) {
        for (int k = 0; k < 1000; k++)
            n_missed += !ag_watch_is_due(&context);
        OK(usleep(100));
    }
    EXPECT(N_THREADS, (int)n_trying);
    ag_watch_capture_opening();
    for (int i = 0; i < N_THREADS; i++)
        OK(pthread_join(threads[i], NULL));
    ag_captures_open--;
    CHECK_SAID(!n_missed, "not due %u times", n_missed);
}

/* --- all of them --- */

static void in_a_process(void (*scenario)(void))
{
    int status;
    pid_t pid = fork();

    if (!pid) {
        ag_watch_begin();
        CHECK(ag_watch_is_on() && ag_watch_is_clear());
        scenario();
        CHECK(inside == 0);
        for (unsigned i = 0; i < AG_SLOTS; i++)
            CHECK(ag_capture_guard[i].inside == 0);
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

int main(void)
{
    static void (*const scenarios[])(void) = {
        one_stream_needs_events_only,
        several_streams_need_one_barrier,
        another_stream_waits_for_the_event,
        another_stream_alone_takes_a_barrier,
        nothing_submitted_needs_nothing,
        a_drain_leaves_nothing,
        a_fence_that_is_passed_leaves_nothing,
        what_is_done_leaves_nothing,
        what_others_did_is_not_passed,
        handles_name_streams,
        a_destroyed_stream_is_no_other,
        frees_while_one_is_placed,
        the_host_waits_where_no_event_can_be_had,
        captures_begin_behind_the_fence,
        captures_begin_before_a_free_is_noted,
        captures_begin_behind_the_event,
        nothing_overtakes_a_capture_that_begins,
        nor_the_wait_for_the_event,
        watching_ends_for_good,
        watching_ends_behind_the_event,
        a_context_takes_all_with_it,
        fences_of_one_forget_nothing_of_another,
        a_thread_may_free_for_others,
        threads_end_with_notes,
        children_start_afresh,
        threads_meet,
        nobody_passes_what_is_due,
        what_cannot_be_placed_stays_due,
        who_ends_it_too_waits,
        who_frees_as_it_ends_waits,
    };

    context.handle = (CUcontext)0x10;
    context.barrier.event = (CUevent)0x20;
    ag_cu.cuEventRecord = record;
    ag_cu.cuCtxRecordEvent = record_all;
    ag_cu.cuCtxWaitEvent = wait_all;
    ag_cu.cuStreamQuery = ask;
    for (size_t i = 0; i < N_OF(scenarios); i++)
        in_a_process(scenarios[i]);
    return 0;
}
