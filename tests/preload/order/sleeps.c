/* A program that waits for the device in every way, where waits may sleep (ALLOGRAFT_WAIT): what
 * each call returns, what is done by then, and what need not be.
 *
 *     sleeps kinds          every kind of wait, for work that takes its time
 *     sleeps many           the same often, and for nothing, so that places are learnt
 *     sleeps long           one wait that no thread spends on its way to a processor
 *     sleeps later          work that is submitted during a wait, and waits for its end
 *     sleeps apart          a kernel for which the legacy stream does not wait
 *     sleeps captures       waits during captures, and a capture that begins during a wait
 *     sleeps refused        waits that fail
 *     sleeps broken         waits in a context in which every call fails
 *     sleeps flags N        kinds, in a context that was made with these flags
 *     sleeps contexts       streams and events of another context, and of one that is destroyed
 *     sleeps coming         contexts that come and go beside one that waits
 *     sleeps cancelled      a thread that is cancelled in a wait
 *     sleeps jumps CALL     the handler of a signal jumps out of a wait, when the driver is in CALL
 *     sleeps threads        threads that wait for each other's work
 *     sleeps forks          a child of a process that waited */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "tests/common/device.h"
#include "tests/common/parts.h"
#include "tests/common/say.h"

#define BUSY_NS   3000000 /* the device is busy */
#define LONG_NS   200000000
#define TIMES     12
#define N_THREADS 4
#define BYTES     ((size_t)1 << 16)

static CUcontext context;
static CUstream blocking, apart;
static CUevent event;
static CUdeviceptr memory;
static char pageable[BYTES];
static _Atomic uint32_t done, may_end;
static uintptr_t busy_ns = BUSY_NS;

static void take_time(void *ns)
{
    const struct timespec time = {0, (long)(uintptr_t)ns};

    (void)nanosleep(&time, NULL);
    atomic_fetch_add(&done, 1);
}

/* Waits that the driver has been asked for. */
static unsigned long n_waits(void)
{
    static const char *const calls[] = {"cuStreamSynchronize", "cuEventSynchronize",
                                        "cuCtxSynchronize", "cuMemcpyDtoH_v2", "cuMemcpyHtoD_v2"};
    unsigned long n = 0;

    for (size_t i = 0; i < N_OF(calls); i++)
        n += sim_calls(calls[i]);
    return n;
}

/* Those, and what a wait that sleeps begins with: an event after all that it is for. */
static unsigned long n_begun(void)
{
    return n_waits() + sim_calls("cuEventRecord") + sim_calls("cuCtxRecordEvent");
}

/* Waits, and looks. */
static unsigned long n_asked(void)
{
    return n_waits() + sim_calls("cuStreamQuery") + sim_calls("cuEventQuery");
}

/* A device that works by itself takes its time only once the program waits, however late: after
 * ten seconds nobody is going to. */
static void take_time_once_asked(void *asked_before)
{
    const struct timespec soon = {0, BUSY_NS / 30};
    const char *schedule = getenv("SIM_SCHED");

    for (int i = 0; i < 100000 && schedule && !strcmp(schedule, "thread") &&
                    n_asked() == (unsigned long)(uintptr_t)asked_before;
         i++)
        (void)nanosleep(&soon, NULL);
    take_time((void *)busy_ns);
}

static void be_busy(CUstream stream)
{
    OK(cuLaunchHostFunc(stream, take_time_once_asked, (void *)(uintptr_t)n_asked()));
}

/* "what: code, done N" of a wait, since `before` were done. */
static void say_done(const char *what, CUresult result, uint32_t before)
{
    say("%s: %d, done %u", what, (int)result, atomic_load(&done) - before);
}

static void begin(void)
{
    context = device_open();
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuMemAlloc(&memory, BYTES));
}

static void make_apart(void)
{
    OK(cuStreamCreate(&apart, CU_STREAM_NON_BLOCKING));
}

/* --- every kind --- */

static CUresult wait_stream(void)
{
    return cuStreamSynchronize(blocking);
}

static CUresult wait_apart(void)
{
    return cuStreamSynchronize(apart);
}

static CUresult wait_legacy(void)
{
    return cuStreamSynchronize(NULL);
}

static CUresult wait_legacy_by_name(void)
{
    return cuStreamSynchronize(CU_STREAM_LEGACY);
}

static CUresult wait_per_thread(void)
{
    return cuStreamSynchronize(CU_STREAM_PER_THREAD);
}

static CUresult wait_event(void)
{
    return cuEventSynchronize(event);
}

static CUresult wait_context(void)
{
    return cuCtxSynchronize();
}

static CUresult copy_back(void)
{
    return cuMemcpyDtoH(pageable, memory, BYTES);
}

static CUresult copy_there(void)
{
    return cuMemcpyHtoD(memory, pageable, BYTES);
}

static const struct way {
    const char *name;
    CUresult (*wait)(void);
    CUstream *stream; /* that it waits for; NULL: the legacy stream */
    CUstream named;
} ways[] = {
    {"a blocking stream", wait_stream, &blocking, NULL},
    {"the legacy stream", wait_legacy, NULL, NULL},
    {"the legacy stream by its name", wait_legacy_by_name, NULL, NULL},
    {"the legacy stream, for a blocking one", wait_legacy, &blocking, NULL},
    {"the thread's own stream", wait_per_thread, NULL, CU_STREAM_PER_THREAD},
    {"an event", wait_event, &blocking, NULL},
    {"the context", wait_context, &blocking, NULL},
    {"a copy back", copy_back, NULL, NULL},
    {"a copy there", copy_there, NULL, NULL},
    {"a copy back, for a blocking stream", copy_back, &blocking, NULL},
    {"a non-blocking stream", wait_apart, &apart, NULL}, /* from here on there is one */
    {"the legacy stream beside it", wait_legacy, NULL, NULL},
    {"the context with it", wait_context, &apart, NULL},
};

static void wait_in(const struct way *way, bool is_busy)
{
    CUstream stream = way->stream ? *way->stream : way->named;
    uint32_t before = atomic_load(&done);
    CUresult result;

    if (is_busy)
        be_busy(stream);
    OK(cuEventRecord(event, stream));
    errno = 77;
    result = way->wait();
    say_done(way->name, result, before);
    CHECK(errno == 77 || !getenv("LD_PRELOAD"));
    OK(cuStreamSynchronize(stream));
}

static void wait_in_every_way(unsigned times)
{
    for (size_t i = 0; i < N_OF(ways); i++) {
        if (ways[i].stream == &apart && !apart)
            make_apart();
        for (unsigned n = 0; n < times; n++)
            wait_in(&ways[i], n % 3 != 2 || n < times / 2);
    }
}

/* Neither is the driver asked whether there is anything to wait for, nor does the work take its
 * time, before a wait that sleeps has begun. */
static void wait_long(void)
{
    busy_ns = LONG_NS;
    be_busy(NULL);
    say_done("the legacy stream", wait_legacy(), 0);
}

/* --- what a wait is not for --- */

/* What another thread waits by, once it has used the context and the work is there. */
static struct {
    CUresult (*wait)(void);
    _Atomic bool is_ready, is_there;
} waiter;

static void *wait_then_let_go(void *unused)
{
    OK(cuCtxSetCurrent(context));
    OK(cuMemcpyHtoD(memory, "", 1));
    atomic_store(&waiter.is_ready, true);
    while (!atomic_load(&waiter.is_there))
        ;
    say("waited: %d", (int)waiter.wait());
    atomic_store(&may_end, 1);
    return unused;
}

/* The thread that it returns is in a wait for what the stream does for a while. */
static pthread_t begin_wait(CUresult (*wait)(void), CUstream stream)
{
    const struct timespec while_it_begins = {0, BUSY_NS / 4};
    unsigned long before;
    pthread_t thread;

    atomic_store(&may_end, 0);
    waiter.wait = wait;
    atomic_store(&waiter.is_ready, false);
    atomic_store(&waiter.is_there, false);
    CHECK(!pthread_create(&thread, NULL, wait_then_let_go, NULL));
    while (!atomic_load(&waiter.is_ready))
        ;
    OK(cuLaunchHostFunc(stream, take_time, (void *)(uintptr_t)(10 * BUSY_NS)));
    OK(cuEventRecord(event, stream));
    before = n_begun();
    atomic_store(&waiter.is_there, true);
    while (n_begun() == before)
        (void)nanosleep(&while_it_begins, NULL);
    return thread;
}

/* The kernel comes once the thread waits, and ends only after that: a wait for it never ends. */
static void submit_during(CUresult (*wait)(void), CUstream stream)
{
    pthread_t thread = begin_wait(wait, stream);

    launch_spin(stream, &may_end);
    CHECK(!pthread_join(thread, NULL));
    OK(cuStreamSynchronize(stream));
}

static void submit_later(void)
{
    submit_during(wait_stream, blocking);
    submit_during(wait_event, blocking);
    submit_during(wait_context, blocking);
    submit_during(wait_legacy, blocking);
    submit_during(copy_back, NULL);
    submit_during(copy_there, NULL);
    make_apart();
    submit_during(wait_apart, apart);
    submit_during(wait_context, apart);
}

static void leave_apart(void)
{
    make_apart();
    launch_spin(apart, &may_end);
    be_busy(NULL);
    say_done("legacy stream", cuStreamSynchronize(NULL), 0);
    say("copy back: %d", (int)copy_back());
    be_busy(blocking);
    say_done("blocking stream", wait_stream(), 0);
    say("non-blocking stream: %d", (int)cuStreamQuery(apart));
    atomic_store(&may_end, 1);
    say("context: %d", (int)cuCtxSynchronize());
}

/* --- captures --- */

static void wait_in_capture(CUstreamCaptureMode mode, CUresult (*wait)(void), CUstream captured)
{
    CUgraph graph = NULL;

    be_busy(blocking);
    OK(cuEventRecord(event, blocking));
    OK(cuStreamBeginCapture(captured, mode));
    say("in a capture of mode %d: %d", (int)mode, (int)wait());
    say("its end: %d", (int)cuStreamEndCapture(captured, &graph));
    if (graph)
        OK(cuGraphDestroy(graph));
    OK(cuCtxSynchronize());
}

static void capture_during(CUresult (*wait)(void), CUstream captured)
{
    pthread_t thread = begin_wait(wait, blocking);
    CUgraph graph = NULL;

    OK(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(!pthread_join(thread, NULL));
    say("the capture: %d", (int)cuStreamEndCapture(captured, &graph));
    OK(cuGraphDestroy(graph));
}

static void capture(void)
{
    static CUresult (*const waits[])(void) = {wait_stream, wait_apart,   wait_legacy,
                                              wait_event,  wait_context, copy_back};
    CUstream captured[2];

    OK(cuStreamCreate(&captured[0], CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&captured[1], CU_STREAM_DEFAULT));
    make_apart();
    for (size_t i = 0; i < N_OF(waits); i++) {
        for (int mode = 0; mode < 3; mode++) {
            wait_in_capture((CUstreamCaptureMode)mode, waits[i], captured[0]);
            wait_in_capture((CUstreamCaptureMode)mode, waits[i], captured[1]);
            wait_in_capture((CUstreamCaptureMode)mode, waits[i], blocking);
        }
    }
}

static void capture_beside(void)
{
    CUstream captured;

    OK(cuStreamCreate(&captured, CU_STREAM_DEFAULT));
    capture_during(wait_stream, captured);
    capture_during(wait_event, captured);
    capture_during(wait_context, captured);
    capture_during(wait_legacy, captured);
    capture_during(copy_back, captured);
}

/* --- failures --- */

static void be_refused(void)
{
    CUcontext popped;

    SAY_CODE("no event", cuEventSynchronize(NULL));
    SAY_CODE("never recorded", cuEventSynchronize(event));
    OK(cuCtxPopCurrent(&popped));
    SAY_CODE("stream without a context", cuStreamSynchronize(NULL));
    SAY_CODE("own stream without a context", cuStreamSynchronize(CU_STREAM_PER_THREAD));
    SAY_CODE("a stream without a context", cuStreamSynchronize(blocking));
    SAY_CODE("an event without a context", cuEventSynchronize(event));
    SAY_CODE("no context", cuCtxSynchronize());
    SAY_CODE("a new event without a context", cuEventCreate(&event, CU_EVENT_DEFAULT));
    OK(cuCtxPushCurrent(popped));
    SAY_CODE("flags that are none", cuEventCreate(&event, 1u << 20));
    SAY_CODE("flags that do not go together", cuEventCreate(&event, CU_EVENT_INTERPROCESS));
    SAY_CODE("an event to nowhere", cuEventCreate(NULL, CU_EVENT_DEFAULT));
}

static void break_all(void)
{
    for (size_t i = 0; i < N_OF(ways); i++) {
        if (ways[i].stream != &apart)
            SAY_CODE(ways[i].name, ways[i].wait());
    }
}

/* A kernel writes where nothing is. */
static void break_context(void)
{
    launch_fill(blocking, 64, 16, 1);
    (void)cuEventRecord(event, blocking);
    break_all();
    break_all();
    SAY_CODE("a new event", cuEventCreate(&event, CU_EVENT_DEFAULT));
}

/* --- contexts --- */

static void cross_contexts(void)
{
    CUcontext other;
    CUstream theirs;
    CUevent mark;

    for (int i = 0; i < 3; i++) {
        uint32_t before = atomic_load(&done);

        OK(cuCtxCreate(&other, NULL, 0, 0));
        OK(cuStreamCreate(&theirs, CU_STREAM_NON_BLOCKING));
        OK(cuEventCreate(&mark, CU_EVENT_DISABLE_TIMING));
        be_busy(theirs);
        OK(cuStreamSynchronize(theirs));
        be_busy(theirs);
        OK(cuEventRecord(mark, theirs));
        OK(cuCtxSetCurrent(context));
        say_done("event of another", cuEventSynchronize(mark), before);
        OK(cuCtxSetCurrent(other));
        be_busy(theirs);
        OK(cuCtxSetCurrent(context));
        say_done("stream of another", cuStreamSynchronize(theirs), before);
        be_busy(blocking);
        say_done("stream", cuStreamSynchronize(blocking), before);
        OK(cuCtxSetCurrent(other));
        be_busy(theirs);
        say_done("the other", cuCtxSynchronize(), before);
        OK(cuCtxDestroy(other));
        OK(cuCtxSetCurrent(context));
    }
}

/* Contexts come and go beside one that stays, and waits. */
static void come_and_go(void)
{
    unsigned long before = sim_calls("cuEventCreate");
    CUcontext other;

    for (int i = 0; i < TIMES; i++) {
        uint32_t n = atomic_load(&done);

        OK(cuCtxCreate(&other, NULL, 0, 0));
        OK(cuCtxDestroy(other));
        OK(cuCtxSetCurrent(context));
        be_busy(blocking);
        say_done("stream", cuStreamSynchronize(blocking), n);
    }
    say("an event for each: %d", sim_calls("cuEventCreate") - before >= TIMES);
}

static void in_flags(unsigned flags)
{
    CUcontext other;

    OK(cuCtxCreate(&other, NULL, flags, 0));
    context = other;
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuMemAlloc(&memory, BYTES));
    wait_in_every_way(1);
}

/* --- ways out of a wait --- */

static _Atomic bool came_back;

static void *wait_to_be_cancelled(void *wait)
{
    OK(cuCtxSetCurrent(context));
    OK((*(CUresult(**)(void))wait)());
    atomic_store(&came_back, true);
    for (;;)
        pthread_testcancel();
    return NULL;
}

static void cancel_in(CUresult (*wait)(void), const char *name)
{
    const struct timespec while_it_begins = {0, BUSY_NS};
    pthread_t thread;
    void *returned;

    atomic_store(&came_back, false);
    OK(cuLaunchHostFunc(blocking, take_time, (void *)(uintptr_t)(10 * BUSY_NS)));
    OK(cuEventRecord(event, blocking));
    CHECK(!pthread_create(&thread, NULL, wait_to_be_cancelled, &wait));
    (void)nanosleep(&while_it_begins, NULL);
    CHECK(!pthread_cancel(thread));
    CHECK(!pthread_join(thread, &returned));
    say("%s: came back %d, cancelled %d", name, atomic_load(&came_back),
        returned == PTHREAD_CANCELED);
    OK(cuCtxSynchronize());
}

static sigjmp_buf back;

static void on_signal(int signal_number)
{
    (void)signal_number;
    siglongjmp(back, 1);
}

static void interrupt(void)
{
    (void)raise(SIGALRM);
}

static void jump_out_of(const char *call)
{
    (void)signal(SIGALRM, on_signal);
    for (volatile unsigned i = 0; i < 3; i++) {
        be_busy(blocking);
        if (!sigsetjmp(back, 1)) {
            sim_inside(call, false, interrupt);
            OK(cuStreamSynchronize(blocking));
            say("nothing interrupted the wait");
        }
        sim_inside(NULL, false, NULL);
        say("after the jump: %d", (int)cuStreamSynchronize(blocking));
        be_busy(blocking);
        say("once more: %d", (int)cuCtxSynchronize());
    }
}

/* --- threads, and children --- */

static void *work(void *unused)
{
    CUdeviceptr words;
    CUstream own;

    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&words, 400));
    for (uint32_t i = 0; i < 50; i++) {
        launch_fill(own, words, 100, i);
        if (i % 8 == 0)
            be_busy(own);
        launch_fill(own, words, 100, i + 1);
        OK(i % 5 == 0 ? cuCtxSynchronize() : cuStreamSynchronize(own));
        CHECK(count_wrong(words, 100, i + 1) == 0);
    }
    OK(cuMemFree(words));
    OK(cuStreamDestroy(own));
    return unused;
}

static void wait_in_threads(void)
{
    pthread_t threads[N_THREADS];

    for (int i = 0; i < N_THREADS; i++)
        CHECK(!pthread_create(&threads[i], NULL, work, NULL));
    for (int i = 0; i < N_THREADS; i++)
        CHECK(!pthread_join(threads[i], NULL));
    say("done %u", atomic_load(&done));
}

static void fork_child(void)
{
    pid_t child;

    be_busy(blocking);
    OK(cuStreamSynchronize(blocking));
    child = fork();
    CHECK(child >= 0);
    if (!child)
        _exit(cuStreamSynchronize(blocking) == CUDA_SUCCESS ? 1 : 0);
    say_child(child);
}

static const struct part parts[] = {
    {"long", wait_long},       {"later", submit_later},      {"apart", leave_apart},
    {"captures", capture},     {"beside", capture_beside},   {"refused", be_refused},
    {"broken", break_context}, {"contexts", cross_contexts}, {"threads", wait_in_threads},
    {"forks", fork_child},     {"coming", come_and_go},
};

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";

    begin();
    if (RUN_PART(parts, what))
        return 0;
    if (!strcmp(what, "kinds"))
        wait_in_every_way(1);
    else if (!strcmp(what, "many"))
        wait_in_every_way(TIMES);
    else if (!strcmp(what, "flags"))
        in_flags((unsigned)atoi(argv[2]));
    else if (!strcmp(what, "cancelled")) {
        cancel_in(wait_stream, "stream");
        cancel_in(wait_event, "event");
        cancel_in(wait_context, "context");
    } else if (!strcmp(what, "jumps"))
        jump_out_of(argv[2]);
    return 0;
}
