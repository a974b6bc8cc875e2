/* Runs in loops in the way its first argument names, as replay expects it of programs or does not:
 * what each kernel did, how often and in which order, can be read off what this prints. */
#define CUDA_ENABLE_DEPRECATED
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "tests/common/device.h"
#include "tests/common/kernel_words.h"
#include "tests/common/parts.h"
#include "tests/common/say.h"
#include "tests/preload/replay/replay.h"

CUfunction kernel_step, kernel_other, kernel_signal;
CUmodule module_of_steps;
CUdeviceptr state;
volatile uint32_t *sign; /* pinned, written by kernels */

/* p, id, value: counts itself, and folds the value into what came before. */
static void take_step(const struct sim_kernel_call *call, uint32_t salt)
{
    uint32_t *words = sim_kernel_access(*(CUdeviceptr *)call->args[0], STATE_BYTES, true);

    if (!words)
        return;
    words[0]++;
    words[1] = mix(words[1] ^ word_arg(call, 2) ^ salt ^ call->grid[0] << 20);
    words[8 + word_arg(call, 1) % 32]++;
}

static void run_step(const struct sim_kernel_call *call)
{
    take_step(call, 0);
}

static void run_other(const struct sim_kernel_call *call)
{
    take_step(call, 0x5bd1e995u);
}

/* As much stack as the value says. */
static void run_deep(const struct sim_kernel_call *call)
{
    sim_kernel_needs_stack(word_arg(call, 2));
    take_step(call, 0);
}

/* p, value */
static void run_signal(const struct sim_kernel_call *call)
{
    uint32_t *word = sim_kernel_access(*(CUdeviceptr *)call->args[0], sizeof(*word), true);

    if (word)
        __atomic_store_n(word, word_arg(call, 1), __ATOMIC_RELEASE);
}

void load_steps(bool swapped)
{
    static const char image[64] = "any bytes";
    CUfunction *first = swapped ? &kernel_other : &kernel_step;
    CUfunction *second = swapped ? &kernel_step : &kernel_other;

    OK(cuModuleLoadData(&module_of_steps, image));
    OK(cuModuleGetFunction(first, module_of_steps, swapped ? "other" : "step"));
    OK(cuModuleGetFunction(second, module_of_steps, swapped ? "step" : "other"));
    OK(cuModuleGetFunction(&kernel_signal, module_of_steps, "signal"));
}

static CUdeviceptr new_state(void)
{
    CUdeviceptr p;

    OK(cuMemAlloc(&p, STATE_BYTES));
    OK(cuMemsetD8(p, 0, STATE_BYTES));
    OK(cuCtxSynchronize());
    return p;
}

static void begin(void)
{
    static const size_t step[] = {8, 4, 4}, signal[] = {8, 4};
    void *pinned;

    sim_register_kernel("step", run_step, 3, step);
    sim_register_kernel("other", run_other, 3, step);
    sim_register_kernel("deep", run_deep, 3, step);
    sim_register_kernel("signal", run_signal, 2, signal);
    sim_register_kernel("await", run_await, 1, signal);
    device_open();
    load_steps(false);
    state = new_state();
    OK(cuMemAllocHost(&pinned, 4096));
    memset(pinned, 0, 4096);
    sign = pinned;
}

CUresult step_to(CUdeviceptr p, CUfunction function, CUstream stream, uint32_t id, uint32_t value)
{
    void *args[] = {&p, &id, &value};
    CUresult result = cuLaunchKernel(function, 1 + id % 3, 1, 1, 32, 1, 1, 0, stream, args, NULL);

    p = 0;
    id = value = 0xeeeeeeee;
    return result;
}

void step(CUstream stream, uint32_t id, uint32_t value)
{
    OK(step_to(state, kernel_step, stream, id, value));
}

void send_signal(CUstream stream, uint32_t value)
{
    CUdeviceptr p = (CUdeviceptr)(uintptr_t)sign;
    void *args[] = {&p, &value};

    OK(cuLaunchKernel(kernel_signal, 1, 1, 1, 32, 1, 1, 0, stream, args, NULL));
}

bool signal_comes(uint32_t value, unsigned ms)
{
    struct timespec pause = {0, 100000}, now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    const int64_t until = now.tv_sec * 1000 + now.tv_nsec / 1000000 + ms;
    while (now.tv_sec * 1000 + now.tv_nsec / 1000000 <= until) {
        if (__atomic_load_n(sign, __ATOMIC_ACQUIRE) == value)
            return true;
        (void)nanosleep(&pause, NULL);
        (void)clock_gettime(CLOCK_MONOTONIC, &now);
    }
    return __atomic_load_n(sign, __ATOMIC_ACQUIRE) == value;
}

void tell_of(const char *what, CUdeviceptr p)
{
    uint32_t words[STATE_BYTES / 4], each = 0;

    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH(words, p, STATE_BYTES));
    for (unsigned i = 8; i < 40; i++)
        each = mix(each ^ words[i]);
    say("%s: %u steps, %08x, each %08x", what, words[0], words[1], each);
}

static void tell(const char *what)
{
    tell_of(what, state);
}

/* The steps of one iteration before `last`: every other one has another parameter each time. */
void part_of_iteration(CUstream stream, uint32_t iteration, unsigned from, unsigned last)
{
    for (unsigned i = from; i < last; i++) {
        if (i == SIGNAL_AT)
            send_signal(stream, iteration + 1);
        step(stream, i, i % 2 ? i : iteration * 31 + i);
    }
}

void iterations(CUstream stream, unsigned n)
{
    for (uint32_t iteration = 0; iteration < n; iteration++) {
        part_of_iteration(stream, iteration, 0, STEPS);
        OK(cuStreamSynchronize(stream));
    }
}

CUstream new_stream(unsigned flags)
{
    CUstream stream;

    OK(cuStreamCreate(&stream, flags));
    return stream;
}

/* ---- exactly once, in order ---- */

static void exactly(void)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);

    for (unsigned n = 1; n < 6; n++) {
        iterations(stream, n);
        tell("iterations");
    }
    for (uint32_t i = 0; i < 700; i++)
        step(stream, 3, 17);
    tell("one and the same");
    for (uint32_t i = 0; i < 700; i++)
        step(stream, 3, i);
    tell("another parameter each time");
    for (uint32_t i = 0; i < 900; i++)
        OK(step_to(state, i % 7 == 3 ? kernel_other : kernel_step, stream, i % 7, i / 300));
    tell("seven in turns, nothing waited for");
    for (uint32_t i = 0; i < 300; i++)
        OK(step_to(state, kernel_step, NULL, i % 5, i % 2));
    tell("on the legacy stream");
}

static void diverging(void)
{
    CUstream stream = new_stream(CU_STREAM_DEFAULT);

    for (uint32_t iteration = 0; iteration < 40; iteration++) {
        unsigned cut = iteration % 5 == 4 ? iteration % STEPS : STEPS;

        part_of_iteration(stream, iteration, 0, cut / 2);
        if (iteration % 3 == 2)
            OK(step_to(state, kernel_other, stream, 1, iteration));
        if (iteration % 4 == 3)
            OK(cuMemsetD32Async(state + STATE_BYTES - 4, iteration, 1, stream));
        if (iteration % 7 == 5)
            tell("in the middle");
        part_of_iteration(stream, iteration, cut / 2, cut);
        if (iteration % 6 != 1)
            OK(cuStreamSynchronize(stream));
        if (iteration % 8 == 0)
            tell("iteration");
    }
    tell("diverged");
}

/* ---- host memory ---- */

static void uploads(void)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    size_t sizes[] = {16, 4096, 60000, 300000};
    unsigned char *source = malloc(300000), *back = malloc(300000);
    CUdeviceptr p[4];

    for (unsigned i = 0; i < 4; i++)
        OK(cuMemAlloc(&p[i], sizes[i]));
    for (uint32_t iteration = 0; iteration < 12; iteration++) {
        uint32_t sum = 0;

        for (unsigned i = 0; i < 4; i++) {
            memset(source, (int)(iteration * 7 + i), sizes[i]);
            OK(cuMemcpyHtoDAsync(p[i], source, sizes[i], stream));
            memset(source, 0xee, sizes[i]);
            step(stream, i, iteration);
        }
        if (iteration % 3)
            OK(cuStreamSynchronize(stream));
        for (unsigned i = 0; i < 4 && iteration % 2; i++) {
            OK(cuMemcpyDtoHAsync(back, p[i], sizes[i], stream));
            for (size_t j = 0; j < sizes[i]; j++)
                sum = sum * 31 + back[j];
        }
        say("iteration %u: %08x", iteration, sum);
    }
    tell("uploads");
}

/* So many short iterations, with a copy from pageable memory in each. */
static void brief(unsigned n, bool copies)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    unsigned char source[256];
    CUdeviceptr p;

    OK(cuMemAlloc(&p, sizeof(source)));
    for (uint32_t iteration = 0; iteration < n; iteration++) {
        memset(source, (int)iteration, sizeof(source));
        if (copies)
            OK(cuMemcpyHtoDAsync(p, source, sizeof(source), stream));
        for (unsigned i = 0; i < 4; i++)
            step(stream, i, iteration);
        OK(cuStreamSynchronize(stream));
    }
    tell("brief");
}

static void pinned_copies(void)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    uint32_t *in, *out;
    CUdeviceptr p;

    OK(cuMemAlloc(&p, 4096));
    OK(cuMemAllocHost((void **)&in, 4096));
    OK(cuMemHostAlloc((void **)&out, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    for (uint32_t iteration = 0; iteration < 20; iteration++) {
        in[5] = iteration * 3;
        OK(cuMemcpyHtoDAsync(p, in, 4096, stream));
        OK(cuMemsetD32Async(p + 64, iteration, 3, stream));
        OK(cuMemcpyDtoHAsync(out, p, 4096, stream));
        step(stream, 0, iteration);
        OK(cuStreamSynchronize(stream));
        say("%u %u %u %u", out[5], out[16], out[18], out[19]);
    }
}

/* ---- several streams ---- */

static void on_legacy(void)
{
    CUstream blocking[2] = {new_stream(CU_STREAM_DEFAULT), new_stream(CU_STREAM_DEFAULT)};

    for (uint32_t iteration = 0; iteration < 30; iteration++) {
        part_of_iteration(blocking[0], iteration, 0, 6);
        step(CU_STREAM_LEGACY, 20, iteration);
        step(CU_STREAM_LEGACY, 21, iteration % 5 == 4 ? 1 : 0);
        part_of_iteration(blocking[1], iteration, 6, STEPS);
        step(CU_STREAM_LEGACY, 22, iteration);
        if (iteration % 3 == 0)
            OK(cuStreamSynchronize(iteration % 2 ? CU_STREAM_LEGACY : blocking[0]));
        if (iteration % 10 == 9)
            tell("between legacy and blocking streams");
    }
}

/* Work of which nothing comes on the legacy stream, until nobody looks at it any more; what comes
 * then is as ordered as before, and rounds are replayed again. */
static void sleeping(void)
{
    CUstream beside = new_stream(CU_STREAM_DEFAULT);
    uint32_t random = 1, id = 1;
    void *args[] = {&state, &id, &random};

    for (uint32_t i = 0; i < 7000; i++) {
        random = random * 1664525 + 1013904223;
        OK(cuLaunchKernel(random >> 31 ? kernel_step : kernel_other, 1 + (random >> 8) % 200, 1, 1,
                          32 + (random >> 16) % 32, 1, 1, 0, NULL, args, NULL));
    }
    tell("never the same");
    for (uint32_t iteration = 0; iteration < 30; iteration++) {
        part_of_iteration(beside, iteration, 0, STEPS);
        step(NULL, 20, iteration);
        part_of_iteration(beside, iteration, 4, 9);
        step(CU_STREAM_LEGACY, 21, iteration);
        if (iteration % 3 == 0)
            OK(cuStreamSynchronize(NULL));
    }
    tell("beside what is withheld");
    for (uint32_t i = 0; i < 1500; i++) {
        step(NULL, 5, 3);
        OK(cuStreamSynchronize(NULL));
    }
    tell("waited for, each");
    for (uint32_t iteration = 0; iteration < 800; iteration++)
        part_of_iteration(NULL, iteration, 0, STEPS);
    tell("iterations again");
}

/* Operations that are alike, in iterations that are waited for. */
static void waited_iterations(void)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);

    for (uint32_t iteration = 0; iteration < 40; iteration++) {
        for (uint32_t i = 0; i < 600; i++)
            step(stream, 3, iteration);
        OK(cuStreamSynchronize(stream));
    }
    tell("waited for");
}

/* As many, which nobody waits for. */
static void running_on(void)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);

    for (uint32_t i = 0; i < 24000; i++)
        step(stream, 3, i / 600);
    tell("at the end only");
}

static void with_events(void)
{
    CUstream streams[3];
    CUevent fork, join[3], timed[2];
    CUdeviceptr p[3];
    float ms = -1;

    for (unsigned i = 0; i < 3; i++) {
        streams[i] = new_stream(i ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT);
        p[i] = new_state();
        OK(cuEventCreate(&join[i], CU_EVENT_DISABLE_TIMING));
        OK(cuEventCreate(&timed[i % 2], CU_EVENT_DEFAULT));
    }
    OK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    for (uint32_t iteration = 0; iteration < 25; iteration++) {
        OK(cuEventRecord(timed[0], streams[0]));
        part_of_iteration(streams[0], iteration, 0, 5);
        OK(cuEventRecord(fork, streams[0]));
        for (unsigned i = 1; i < 3; i++) {
            OK(cuStreamWaitEvent(streams[i], fork, 0));
            for (unsigned j = 0; j < 6; j++)
                OK(step_to(p[i], kernel_step, streams[i], j, iteration % 2));
            OK(cuMemcpyDtoDAsync(state + STATE_BYTES - 16 * i, p[i], 16, streams[i]));
            OK(cuEventRecord(join[i], streams[i]));
            OK(cuStreamWaitEvent(streams[0], join[i], 0));
        }
        part_of_iteration(streams[0], iteration, 5, STEPS);
        OK(cuEventRecord(timed[1], streams[0]));
        OK(cuEventSynchronize(timed[1]));
        int query = (int)cuEventQuery(timed[1]);
        int elapsed = (int)cuEventElapsedTime(&ms, timed[0], timed[1]);
        say("query %d, elapsed %d %d", query, elapsed, ms >= 0);
    }
    tell("forked and joined");
    for (unsigned i = 1; i < 3; i++)
        tell_of("a branch", p[i]);
}

static CUstream shared_stream;
static pthread_mutex_t shared_mutex = PTHREAD_MUTEX_INITIALIZER;
static CUcontext shared_context;
static bool in_turns;

struct worker {
    pthread_t thread;
    CUdeviceptr p;
    CUstream stream;
    unsigned number;
};

static void *worker_main(void *data)
{
    struct worker *worker = data;

    OK(cuCtxSetCurrent(shared_context));
    for (uint32_t iteration = 0; iteration < 60; iteration++) {
        if (in_turns)
            (void)pthread_mutex_lock(&shared_mutex);
        for (unsigned i = 0; i < 6; i++) {
            if (!in_turns && worker->stream == shared_stream)
                (void)pthread_mutex_lock(&shared_mutex);
            OK(step_to(worker->p, kernel_step, worker->stream, worker->number * 8 + i,
                       i % 2 ? iteration : i));
            if (!in_turns && worker->stream == shared_stream)
                (void)pthread_mutex_unlock(&shared_mutex);
        }
        if (iteration % 3 == 0)
            OK(cuStreamSynchronize(worker->stream));
        if (in_turns)
            (void)pthread_mutex_unlock(&shared_mutex);
    }
    return NULL;
}

/* Each has steps and memory of its own; the streams are theirs, or one for both. */
static void by_threads(bool shared, bool turns)
{
    struct worker workers[3];

    OK(cuCtxGetCurrent(&shared_context));
    shared_stream = new_stream(CU_STREAM_NON_BLOCKING);
    in_turns = turns;
    for (unsigned i = 0; i < 3; i++) {
        workers[i].number = i;
        workers[i].stream = shared ? shared_stream : new_stream(CU_STREAM_NON_BLOCKING);
        workers[i].p = new_state();
    }
    for (unsigned i = 0; i < 3; i++)
        OK(pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]));
    for (unsigned i = 0; i < 3; i++)
        OK(pthread_join(workers[i].thread, NULL));
    for (unsigned i = 0; i < 3; i++)
        tell_of("a thread", workers[i].p);
}

/* A stream of its own for each thread, which ends with work outstanding or waits to be told. */
static atomic_uint n_submitted, n_released;

static void *per_thread_main(void *data)
{
    struct worker *worker = data;

    OK(cuCtxSetCurrent(shared_context));
    for (uint32_t iteration = 0; iteration < 8; iteration++) {
        for (unsigned i = 0; i < 6; i++)
            OK(step_to(worker->p, kernel_step, CU_STREAM_PER_THREAD, i, i % 2 ? iteration : i));
        if (iteration < 7)
            OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
        else
            OK(step_to(worker->p, kernel_step, CU_STREAM_PER_THREAD, 0, 0));
    }
    atomic_fetch_add(&n_submitted, 1);
    while (worker->number % 2 && !atomic_load(&n_released))
        (void)usleep(100);
    for (unsigned i = 0; i < 4 && worker->number % 2; i++)
        OK(step_to(worker->p, kernel_step, CU_STREAM_PER_THREAD, i, i));
    return NULL;
}

static void per_thread_streams(void)
{
    struct worker workers[4];

    OK(cuCtxGetCurrent(&shared_context));
    for (unsigned turn = 0; turn < 4; turn++) {
        atomic_store(&n_submitted, 0);
        atomic_store(&n_released, 0);
        for (unsigned i = 0; i < 4; i++) {
            workers[i].number = i;
            workers[i].p = new_state();
        }
        for (unsigned i = 0; i < 4; i++)
            OK(pthread_create(&workers[i].thread, NULL, per_thread_main, &workers[i]));
        while (atomic_load(&n_submitted) < 4)
            (void)usleep(100);
        for (unsigned i = 0; i < 4; i++) /* some threads live, some do not */
            tell_of("before the end of some", workers[i].p);
        atomic_store(&n_released, 1);
        for (unsigned i = 0; i < 4; i++)
            OK(pthread_join(workers[i].thread, NULL));
        for (unsigned i = 0; i < 4; i++)
            tell_of("after it", workers[i].p);
    }
}

/* One thread launches all the time, which no capture of another forbids. */
static void *launch_beside(void *data)
{
    struct worker *worker = data;

    OK(cuCtxSetCurrent(shared_context));
    for (uint32_t i = 0; i < 6000; i++)
        OK(step_to(worker->p, kernel_step, worker->stream, i % 9, i % 2));
    return NULL;
}

static void capturing_beside(void)
{
    struct worker worker = {.stream = new_stream(CU_STREAM_NON_BLOCKING), .p = new_state()};
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);

    OK(cuCtxGetCurrent(&shared_context));
    OK(pthread_create(&worker.thread, NULL, launch_beside, &worker));
    for (unsigned turn = 0; turn < 40; turn++) {
        CUgraphExec exec;
        CUgraph graph;
        size_t n = 0;

        OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        part_of_iteration(stream, turn, 0, STEPS);
        OK(cuStreamEndCapture(stream, &graph));
        OK(cuGraphGetNodes(graph, NULL, &n));
        if (n != STEPS + 1)
            say("captured %zu", n);
        OK(cuGraphInstantiate(&exec, graph, 0));
        for (unsigned i = 0; i < 3; i++)
            OK(cuGraphLaunch(exec, stream));
        part_of_iteration(stream, turn, 0, STEPS);
        OK(cuGraphExecDestroy(exec));
        OK(cuGraphDestroy(graph));
    }
    OK(pthread_join(worker.thread, NULL));
    tell("captured");
    tell_of("launched beside", worker.p);
}

/* More streams than replay has room for. */
static void many_streams(void)
{
    static CUstream streams[700];
    static CUdeviceptr p[700];
    CUdeviceptr all;

    OK(cuMemAlloc(&all, STATE_BYTES * 700));
    OK(cuMemsetD8(all, 0, STATE_BYTES * 700));
    OK(cuCtxSynchronize());
    for (unsigned i = 0; i < 700; i++) {
        p[i] = all + i * STATE_BYTES;
        streams[i] = new_stream(i % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT);
    }
    for (uint32_t iteration = 0; iteration < 4; iteration++) {
        for (unsigned i = 0; i < 700; i++)
            for (unsigned j = 0; j < 5; j++)
                OK(step_to(p[i], kernel_step, streams[i], j, i % 2 ? j : iteration));
        for (unsigned i = 0; i < 700; i += 1 + iteration)
            OK(cuStreamSynchronize(streams[i]));
    }
    for (unsigned i = 0; i < 700; i += 23)
        tell_of("of many", p[i]);
}

/* ---- the host watches ---- */

/* Whoever starts a thread, the library too, goes on late: the thread may be asleep by then. */
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                   void *data)
{
    int (*start)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    const struct timespec pause = {0, 50000000};
    void *symbol = dlsym(RTLD_NEXT, "pthread_create");
    int error;

    memcpy(&start, &symbol, sizeof(start));
    error = start(thread, attributes, run, data);
    if (getenv("REPLAY_LATE_STARTER"))
        (void)nanosleep(&pause, NULL);
    return error;
}

/* As much stack as a driver may use that was made for threads with eight MiB of it. */
static void go_deep(void)
{
    volatile char deep[512 << 10];

    for (size_t i = 0; i < sizeof(deep); i += 1024)
        deep[i] = 1;
}

static void polling(void)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    unsigned ms = 20000, seen = 0;

    if (getenv("REPLAY_DEEP_DRIVER"))
        sim_inside(getenv("REPLAY_DEEP_DRIVER"), false, go_deep);
    iterations(stream, 6);
    for (uint32_t iteration = 10; iteration < 20; iteration++) {
        part_of_iteration(stream, iteration, 0, SIGNAL_AT + 2);
        seen += signal_comes(iteration + 1, ms);
        part_of_iteration(stream, iteration, SIGNAL_AT + 2, STEPS);
        OK(cuStreamSynchronize(stream));
    }
    say("signals seen: %u", seen);
    tell("polled");
}

/* What the watchdog let go of a per-thread stream, the legacy one came after, and the host saw that
 * done. */
static void known_to_be_done(void)
{
    iterations(CU_STREAM_PER_THREAD, 4);
    for (uint32_t iteration = 4; iteration < 20; iteration++) {
        part_of_iteration(CU_STREAM_PER_THREAD, iteration, 0, 6); /* a part of what is known */
        (void)signal_comes(iteration + 1, 5000);
        send_signal(CU_STREAM_LEGACY, 1000 + iteration);
        bool came = signal_comes(1000 + iteration, 20000);
        int query = (int)cuStreamQuery(CU_STREAM_PER_THREAD);
        say("signal %d, query %d", came, query);
    }
    tell("known to be done");
}

/* A kernel that waits until the host has written sign[16]. */
static CUfunction await_kernel(void)
{
    CUfunction await;

    OK(cuModuleGetFunction(&await, module_of_steps, "await"));
    return await;
}

static void launch_await(CUfunction await, CUstream stream)
{
    CUdeviceptr p = (CUdeviceptr)(uintptr_t)(sign + 16);
    void *args[] = {&p};

    OK(cuLaunchKernel(await, 1, 1, 1, 32, 1, 1, 0, stream, args, NULL));
}

static void spinning(void)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING),
             other = new_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr beside = new_state();
    CUfunction await = await_kernel(); /* a call that sends out what is withheld: not in the loop */

    for (uint32_t iteration = 0; iteration < 12; iteration++) {
        __atomic_store_n(sign + 16, 0, __ATOMIC_RELEASE);
        part_of_iteration(stream, iteration, 0, 4);
        launch_await(await, stream);
        part_of_iteration(stream, iteration, 4, STEPS);
        for (uint32_t i = 0; i < 6; i++)
            OK(step_to(beside, kernel_step, other, i, iteration));
        OK(cuStreamSynchronize(other));
        __atomic_store_n(sign + 16, 1, __ATOMIC_RELEASE);
        OK(cuStreamSynchronize(stream));
    }
    tell("spun");
    tell_of("beside", beside);
}

/* ---- errors ---- */

/* An event tells of the fault, while more work is withheld. */
static void ask_event(CUstream stream)
{
    CUevent event;

    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    (void)cuEventRecord(event, stream); /* this, and what follows, may tell of it already */
    for (unsigned i = 0; i < 3; i++)
        (void)step_to(state, kernel_step, stream, i, i % 2 ? i : 8 * 31 + i);
    while (cuEventQuery(event) == CUDA_ERROR_NOT_READY)
        ;
    SAY_CODE("launch", step_to(state, kernel_step, stream, 3, 3));
}

static void faulting(const char *way)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr p;
    size_t bytes;

    iterations(stream, 6);
    tell("before");
    part_of_iteration(stream, 7, 0, 5);
    OK(step_to(0x1234000, kernel_step, stream, 5, 5));
    if (!strcmp(way, "released")) /* which may tell of the fault already */
        (void)step_to(state, kernel_other, stream, 5, 5);
    if (!strcmp(way, "asked"))
        ask_event(stream);
    SAY_CODE("synchronise", cuStreamSynchronize(stream));
    SAY_CODE("launch", step_to(state, kernel_step, stream, 0, 0));
    SAY_CODE("launch", step_to(state, kernel_step, stream, 1, 1));
    SAY_CODE("query", cuStreamQuery(stream));
    SAY_CODE("alloc", cuMemAlloc(&p, 100));
    SAY_CODE("info", cuMemGetInfo(&bytes, &bytes));
    SAY_CODE("copy", cuMemcpyHtoDAsync(state, &p, 8, stream));
    SAY_CODE("synchronise", cuCtxSynchronize());
    SAY_CODE("destroy", cuStreamDestroy(stream));
}

/* ---- code, streams and contexts that go ---- */

static void unloading(void)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);

    for (unsigned turn = 0; turn < 6; turn++) {
        iterations(stream, 5);
        part_of_iteration(stream, 7, 0, 7);
        OK(cuModuleUnload(module_of_steps));
        load_steps(turn % 2);
        tell("unloaded");
    }
    part_of_iteration(stream, 7, 0, 7);
    OK(cuFuncSetAttribute(kernel_step, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 4096));
    part_of_iteration(stream, 7, 7, STEPS);
    tell("changed");
}

/* A call that is refused changes nothing that graphs keep. */
static void refused_attributes(void)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);

    for (uint32_t iteration = 0; iteration < 20; iteration++) {
        if (cuFuncSetAttribute(kernel_step, CU_FUNC_ATTRIBUTE_NUM_REGS, 1) == CUDA_SUCCESS)
            say("it was set");
        part_of_iteration(stream, iteration, 0, STEPS);
    }
    tell("refused");
}

/* A function of a later context may have the address of an earlier one, but not what was set for
 * that. */
static void attributes_of_later_contexts(void)
{
    CUcontext context;

    for (unsigned turn = 0; turn < 20; turn++) {
        OK(cuCtxCreate(&context, NULL, 0, 0));
        load_steps(false);
        state = new_state();
        CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
        iterations(stream, 6);
        OK(cuFuncSetAttribute(kernel_step, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 4096));
        iterations(stream, 6);
        tell("in a context");
        OK(cuCtxDestroy(context));
    }
}

static void *unload_steps(void *unused)
{
    (void)unused;
    OK(cuCtxSetCurrent(shared_context));
    OK(cuModuleUnload(module_of_steps));
    return NULL;
}

/* By another thread, while this one has work outstanding on its own stream. */
static void unloading_by_another(void)
{
    pthread_t thread;

    OK(cuCtxGetCurrent(&shared_context));
    for (unsigned turn = 0; turn < 6; turn++) {
        iterations(CU_STREAM_PER_THREAD, 5);
        part_of_iteration(CU_STREAM_PER_THREAD, 7, 0, 7);
        OK(pthread_create(&thread, NULL, unload_steps, NULL));
        OK(pthread_join(thread, NULL));
        load_steps(turn % 2);
        OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
        tell("unloaded");
    }
}

static void *end_replay(void *unused)
{
    CUtexref reference;

    (void)unused;
    OK(cuCtxSetCurrent(shared_context));
    OK(cuModuleGetTexRef(&reference, module_of_steps, "texture"));
    return NULL;
}

/* Another thread ends replay, while this one has work outstanding on its own stream: what comes
 * next, work or a query, comes behind it. */
static void ended_by_another(bool asks)
{
    pthread_t thread;

    OK(cuCtxGetCurrent(&shared_context));
    iterations(CU_STREAM_PER_THREAD, 6);
    part_of_iteration(CU_STREAM_PER_THREAD, 7, 0, SIGNAL_AT + 2);
    OK(pthread_create(&thread, NULL, end_replay, NULL));
    OK(pthread_join(thread, NULL));
    while (asks && cuStreamQuery(CU_STREAM_PER_THREAD) == CUDA_ERROR_NOT_READY)
        ;
    if (asks)
        say("signal: %u", *sign);
    part_of_iteration(CU_STREAM_PER_THREAD, 7, SIGNAL_AT + 2, STEPS);
    tell("ended");
}

/* A graph does not know of a stack that is larger since. */
static void going_deeper(void)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUfunction deep;

    OK(cuModuleGetFunction(&deep, module_of_steps, "deep"));
    for (uint32_t bytes = 512; bytes <= 8192; bytes *= 4) {
        OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, bytes));
        for (unsigned i = 0; i < 8 * STEPS; i++) {
            OK(step_to(state, deep, stream, i % STEPS, bytes));
            if (i % STEPS == STEPS - 1)
                OK(cuStreamSynchronize(stream));
        }
        tell("deep");
    }
}

static void streams_again(void)
{
    CUdeviceptr states[10];

    for (unsigned turn = 0; turn < 10; turn++) {
        CUstream stream = new_stream(turn % 3 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT);

        state = states[turn] = new_state();
        iterations(stream, 4);
        part_of_iteration(stream, turn, 0, turn % STEPS);
        OK(cuStreamDestroy(stream));
        if (turn % 2)
            tell("stream gone");
    }
    for (unsigned turn = 0; turn < 10; turn++)
        tell_of("streams gone", states[turn]);
}

static void contexts_again(void)
{
    CUstream first = new_stream(CU_STREAM_NON_BLOCKING);
    CUcontext home, context;
    CUfunction kept[3] = {kernel_step, kernel_other, kernel_signal};
    CUmodule kept_module = module_of_steps;
    CUdeviceptr kept_state = state;

    OK(cuCtxGetCurrent(&home));
    for (unsigned turn = 0; turn < 5; turn++) {
        iterations(first, 4);
        part_of_iteration(first, 9, 0, 6);
        OK(cuCtxCreate(&context, NULL, 0, 0));
        load_steps(false);
        state = new_state();
        CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
        iterations(stream, 4);
        tell("in another context");
        part_of_iteration(stream, 9, 0, 6);
        if (turn % 2)
            OK(cuCtxSetCurrent(home));
        OK(cuCtxDestroy(context));
        OK(cuCtxSetCurrent(home));
        kernel_step = kept[0];
        kernel_other = kept[1];
        kernel_signal = kept[2];
        module_of_steps = kept_module;
        state = kept_state;
        part_of_iteration(first, 9, 6, STEPS);
        tell("at home");
    }
}

/* Copies, fills and events are taken of streams whose context is not the current one. */
static void with_another_context_current(void)
{
    CUstream own = new_stream(CU_STREAM_NON_BLOCKING), blocking = new_stream(CU_STREAM_DEFAULT);
    CUstream reader = new_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr copy = new_state();
    CUcontext home, other;
    CUevent event;

    OK(cuCtxGetCurrent(&home));
    OK(cuCtxCreate(&other, NULL, 0, 0));
    OK(cuCtxSetCurrent(home));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    iterations(own, 6);
    iterations(NULL, 6);
    for (unsigned turn = 0; turn < 6; turn++) {
        part_of_iteration(own, turn, 0, 7);
        OK(cuCtxSetCurrent(other));
        OK(cuMemcpyDtoDAsync(copy, state, STATE_BYTES, own));
        OK(cuMemsetD32Async(state, turn, 1, own));
        OK(cuCtxSetCurrent(home));
        tell("behind what is withheld");
        tell_of("a copy of it", copy);
        part_of_iteration(NULL, turn, 0, 7);
        OK(cuCtxSetCurrent(other));
        OK(cuEventRecord(event, blocking));
        OK(cuCtxSetCurrent(home));
        OK(cuStreamWaitEvent(reader, event, 0));
        OK(cuMemcpyDtoDAsync(copy, state, STATE_BYTES, reader));
        OK(cuStreamSynchronize(reader));
        tell_of("a copy behind the legacy stream", copy);
    }
}

/* The same, where a part of the primary context is current. */
static void with_green_context_current(void)
{
    CUstream own = new_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr copy = new_state();
    CUdevResourceDesc description;
    CUdevResource all, part;
    CUcontext home, inside;
    unsigned n_groups = 1;
    CUgreenCtx green;

    OK(cuCtxGetCurrent(&home));
    OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    OK(cuDevSmResourceSplitByCount(&part, &n_groups, &all, NULL, 0, 8));
    OK(cuDevResourceGenerateDesc(&description, &part, 1));
    OK(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    OK(cuCtxFromGreenCtx(&inside, green));
    iterations(own, 6);
    for (unsigned turn = 0; turn < 6; turn++) {
        part_of_iteration(own, turn, 0, 7);
        OK(cuCtxSetCurrent(inside));
        OK(cuMemcpyDtoDAsync(copy, state, STATE_BYTES, own));
        OK(cuMemsetD32Async(state, turn, 1, own));
        OK(cuCtxSetCurrent(home));
        tell("behind what is withheld");
        tell_of("a copy of it", copy);
    }
    OK(cuGreenCtxDestroy(green));
}

/* Between two devices: behind what the other one got, though this one is current. */
static void between_devices(bool own_stream)
{
    CUdeviceptr copy = new_state(), there;
    CUcontext home, other;
    CUstream stream = NULL;
    uint32_t word = 0;

    OK(cuCtxGetCurrent(&home));
    OK(cuDevicePrimaryCtxRetain(&other, 1));
    OK(cuCtxSetCurrent(other));
    there = new_state();
    if (own_stream)
        OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    for (uint32_t turn = 1; turn < 40; turn++) {
        OK(cuCtxSetCurrent(other));
        for (unsigned i = 0; i < (turn % 3 ? 8u : 12u); i++)
            OK(cuMemsetD32Async(there, turn * 16 + i, STATE_BYTES / 4, stream));
        OK(cuCtxSetCurrent(home));
        if (turn % 2)
            OK(cuMemcpyDtoD(copy, there, 64));
        else
            OK(cuMemcpy(copy, there, 64));
        OK(cuCtxSynchronize());
        OK(cuMemcpyDtoH(&word, copy, 4));
        say("%u", word);
        OK(cuCtxSetCurrent(other));
        OK(cuCtxSynchronize());
        OK(cuCtxSetCurrent(home));
    }
}

static void between_devices_legacy(void)
{
    between_devices(false);
}

static void between_devices_blocking(void)
{
    between_devices(true);
}

static void resetting(void)
{
    for (unsigned turn = 0; turn < 4; turn++) {
        CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);

        iterations(stream, 5);
        tell("before a reset");
        part_of_iteration(stream, 9, 0, 6);
        OK(cuDevicePrimaryCtxReset(0));
        device_open();
        load_steps(turn % 2);
        state = new_state();
        OK(cuMemAllocHost((void **)(uintptr_t)&sign, 4096));
        memset((void *)(uintptr_t)sign, 0, 4096);
    }
}

static void allocating(void)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);

    for (uint32_t iteration = 0; iteration < 20; iteration++) {
        CUdeviceptr p, q;

        OK(cuMemAlloc(&p, STATE_BYTES));
        OK(cuMemAllocAsync(&q, STATE_BYTES, stream));
        OK(cuMemsetD8Async(p, 1, STATE_BYTES, stream));
        OK(cuMemsetD8Async(q, 2, STATE_BYTES, stream));
        part_of_iteration(stream, iteration, 0, 5);
        OK(step_to(p, kernel_step, stream, 1, iteration));
        OK(step_to(q, kernel_step, stream, 1, iteration));
        OK(cuMemcpyDtoDAsync(state + STATE_BYTES - 8, p + 4, 4, stream));
        OK(cuMemcpyDtoDAsync(state + STATE_BYTES - 4, q + 4, 4, stream));
        OK(cuMemFreeAsync(q, stream));
        if (iteration % 2)
            part_of_iteration(stream, iteration, 5, STEPS);
        OK(cuMemFree(p));
    }
    tell("allocated and freed");
}

/* What uses the memory is submitted for its free, or before. */
static void freeing(void)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);

    for (uint32_t iteration = 0; iteration < 24; iteration++) {
        CUdeviceptr p;

        OK(cuMemAllocAsync(&p, STATE_BYTES, stream));
        OK(cuMemsetD8Async(p, 2, STATE_BYTES, stream));
        part_of_iteration(stream, iteration, 0, 5);
        OK(step_to(p, kernel_step, stream, 1, iteration));
        OK(cuMemcpyDtoDAsync(state + STATE_BYTES - 4, p + 4, 4, stream));
        if (iteration % 2)
            OK(cuStreamSynchronize(stream));
        OK(cuMemFreeAsync(p, stream));
        OK(cuStreamSynchronize(stream));
    }
    tell("freed");
}

static void capturing(void)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING),
             other = new_stream(CU_STREAM_NON_BLOCKING);
    CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_RELAXED,
                                   CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                   CU_STREAM_CAPTURE_MODE_GLOBAL};
    CUdeviceptr p = new_state();

    for (unsigned turn = 0; turn < 6; turn++) {
        CUgraph graph;
        CUgraphExec exec;
        size_t n = 0;

        iterations(stream, 4);
        part_of_iteration(stream, turn, 0, 6);
        OK(step_to(p, kernel_step, other, 1, turn));
        OK(cuStreamBeginCapture(stream, modes[turn % 3]));
        part_of_iteration(stream, turn, 0, STEPS);
        OK(step_to(p, kernel_step, other, 2, turn));
        OK(cuStreamEndCapture(stream, &graph));
        OK(cuGraphGetNodes(graph, NULL, &n));
        say("captured %zu", n);
        OK(cuGraphInstantiate(&exec, graph, 0));
        for (unsigned i = 0; i < 8; i++) {
            OK(cuGraphLaunch(exec, stream));
            part_of_iteration(stream, i, 0, i);
        }
        OK(cuGraphExecDestroy(exec));
        OK(cuGraphDestroy(graph));
        tell("own graphs");
    }
    tell_of("beside them", p);
}

static void CUDA_CB count_calls(void *data)
{
    uint32_t *counts = data;

    counts[0]++;
    counts[1] = mix(counts[1] ^ counts[0]);
}

static void CUDA_CB count_callbacks(CUstream stream, CUresult status, void *data)
{
    (void)stream;
    (void)status;
    count_calls(data);
}

static void host_functions(void)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    static uint32_t counts[4];

    for (uint32_t iteration = 0; iteration < 30; iteration++) {
        part_of_iteration(stream, iteration, 0, 3);
        OK(cuLaunchHostFunc(stream, count_calls, counts));
        part_of_iteration(stream, iteration, 3, 6);
        OK(cuLaunchHostFunc(stream, count_calls, counts + iteration % 2 * 2));
        if (iteration % 4 == 0) {
            OK(cuStreamSynchronize(stream));
            say("%u %08x %u %08x", counts[0], counts[1], counts[2], counts[3]);
        }
    }
    tell("with host functions");
    say("in graphs: %lu", sim_calls("cuGraphAddHostNode"));
    say("%u %08x %u %08x", counts[0], counts[1], counts[2], counts[3]);
}

/* Natively there is room for it: graphs have none of the card then. */
static void full_of_graphs(void)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr p, large;

    OK(cuMemAlloc(&p, 4096));
    for (uint32_t iteration = 0; iteration < 300; iteration++) {
        for (uint32_t i = 0; i < 30 + iteration / 5; i++)
            launch_fill(stream, p, 4, iteration + i);
        OK(cuStreamSynchronize(stream));
    }
    SAY_CODE("large", cuMemAlloc(&large, (size_t)59 << 20));
    for (uint32_t i = 0; i < 30; i++)
        launch_fill(stream, p, 4, i);
    OK(cuStreamSynchronize(stream));
    say("%u wrong", count_wrong(p, 4, 29));
    tell("full");
}

/* ---- handed over ---- */

static _Thread_local bool is_of_program;
static atomic_bool is_held_up;
static CUgraphExec graph_of_step;

/* The watchdog in the driver, as by a queue that is full: longer than a call waits for others. */
static void hold_up(void)
{
    if (is_of_program)
        return;
    atomic_store(&is_held_up, true);
    (void)usleep(300000);
}

/* Natively there is no watchdog to wait for; on a busy machine it may take its time. */
static void await_hold_up(void)
{
    unsigned most = getenv("ALLOGRAFT_GRAPH") ? 10000 : 0;

    for (unsigned i = 0; i < most && !atomic_load(&is_held_up); i++)
        (void)usleep(1000);
}

static void *begin_iteration(void *iteration)
{
    is_of_program = true;
    OK(cuCtxSetCurrent(shared_context));
    atomic_store(&is_held_up, false);
    part_of_iteration(shared_stream, (uint32_t)(uintptr_t)iteration, 0, 7);
    await_hold_up();
    return NULL;
}

static void *launch_graph(void *unused)
{
    (void)unused;
    is_of_program = true;
    OK(cuCtxSetCurrent(shared_context));
    OK(cuGraphLaunch(graph_of_step, shared_stream));
    return NULL;
}

static CUdeviceptr copy_of_state;

static void *copy_in_batch(void *unused)
{
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    size_t bytes = STATE_BYTES, first = 0;

    (void)unused;
    is_of_program = true;
    OK(cuCtxSetCurrent(shared_context));
    OK(cuMemcpyBatchAsync(&copy_of_state, &state, &bytes, 1, &attributes, &first, 1,
                          shared_stream));
    return NULL;
}

static void *capture_nothing(void *unused)
{
    CUgraph graph;
    size_t n = 0;

    (void)unused;
    is_of_program = true;
    OK(cuCtxSetCurrent(shared_context));
    OK(cuStreamBeginCapture(shared_stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    (void)usleep(400000); /* what is held up until then would be captured */
    OK(cuStreamEndCapture(shared_stream, &graph));
    OK(cuGraphGetNodes(graph, NULL, &n));
    say("captured %zu", n);
    return NULL;
}

/* A thread submits what cannot be recorded behind what another one has left withheld there, and
 * which the watchdog is about to let go: on a stream that it has used itself; a graph, a batch and
 * a capture on any. */
static void handed_over(void)
{
    static void *(*const ways[])(void *) = {launch_graph, copy_in_batch, capture_nothing};
    pthread_t thread;
    CUgraph graph;

    is_of_program = true;
    copy_of_state = new_state();
    shared_stream = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuCtxGetCurrent(&shared_context));
    OK(cuStreamBeginCapture(shared_stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    step(shared_stream, 8, 8);
    OK(cuStreamEndCapture(shared_stream, &graph));
    OK(cuGraphInstantiate(&graph_of_step, graph, 0));
    iterations(shared_stream, 8);
    sim_inside("cuGraphLaunch", false, hold_up);
    for (uintptr_t iteration = 0; iteration < 6; iteration++) {
        OK(pthread_create(&thread, NULL, begin_iteration, (void *)iteration));
        OK(pthread_join(thread, NULL));
        if (iteration % 2) {
            OK(pthread_create(&thread, NULL, ways[iteration / 2], NULL));
            OK(pthread_join(thread, NULL));
        } else {
            OK(cuMemcpyPeerAsync(copy_of_state, shared_context, state, shared_context, STATE_BYTES,
                                 shared_stream));
        }
        OK(cuStreamSynchronize(shared_stream));
        tell("handed over");
        tell_of("a copy of it", copy_of_state);
    }
}

/* By a thread that never submitted to the legacy stream. */
static void *copy_beside_legacy(void *blocking)
{
    is_of_program = true;
    OK(cuCtxSetCurrent(shared_context));
    OK(cuMemcpyPeerAsync(copy_of_state, shared_context, state, shared_context, STATE_BYTES,
                         blocking));
    OK(cuStreamSynchronize(blocking));
    return NULL;
}

/* The same on a blocking stream, which comes behind the legacy one. */
static void handed_over_by_legacy(void)
{
    CUstream blocking = new_stream(CU_STREAM_DEFAULT);
    pthread_t thread;

    is_of_program = true;
    copy_of_state = new_state();
    shared_stream = CU_STREAM_LEGACY;
    OK(cuCtxGetCurrent(&shared_context));
    iterations(shared_stream, 8);
    sim_inside("cuGraphLaunch", false, hold_up);
    for (uintptr_t iteration = 0; iteration < 2; iteration++) {
        OK(pthread_create(&thread, NULL, begin_iteration, (void *)iteration));
        OK(pthread_join(thread, NULL));
        OK(pthread_create(&thread, NULL, copy_beside_legacy, blocking));
        OK(pthread_join(thread, NULL));
        tell_of("a copy behind the legacy stream", copy_of_state);
    }
}

static atomic_bool is_let_go, was_late;

/* The watchdog in the driver, until another thread's call lets the device go on. */
static void hold_up_until(void)
{
    if (is_of_program)
        return;
    atomic_store(&is_held_up, true);
    for (unsigned i = 0; i < 10000 && !atomic_load(&is_let_go); i++)
        (void)usleep(1000);
    if (!atomic_load(&is_let_go))
        atomic_store(&was_late, true);
}

static void *iterations_on_shared(void *unused)
{
    (void)unused;
    is_of_program = true;
    OK(cuCtxSetCurrent(shared_context));
    iterations(shared_stream, 8);
    return NULL;
}

/* `n` calls that natively wait for none of a stream's work, which another thread has submitted:
 * `make` makes one of them, with memory of another context. */
static void beside_held_up(unsigned flags, const char *name, unsigned n,
                           void (*make)(unsigned call, CUcontext other, const CUdeviceptr *there))
{
    CUdeviceptr there[2];
    CUcontext other;
    pthread_t thread;

    is_of_program = true;
    shared_stream = new_stream(flags);
    OK(cuCtxGetCurrent(&shared_context));
    OK(pthread_create(&thread, NULL, iterations_on_shared, NULL));
    OK(pthread_join(thread, NULL));
    OK(cuCtxCreate(&other, NULL, 0, 0));
    there[0] = new_state();
    there[1] = new_state();
    sim_inside("cuGraphLaunch", false, hold_up_until);
    for (unsigned call = 0; call < n; call++) {
        atomic_store(&is_let_go, false);
        OK(pthread_create(&thread, NULL, begin_iteration, (void *)(uintptr_t)call));
        OK(pthread_join(thread, NULL));
        make(call, other, there);
        atomic_store(&is_let_go, true);
        OK(cuCtxSetCurrent(shared_context));
        OK(cuStreamSynchronize(shared_stream));
        say("%s %u: %s", name, call, atomic_load(&was_late) ? "late" : "in time");
        tell("beside it");
    }
}

static void call_beside(unsigned call, CUcontext other, const CUdeviceptr *there)
{
    uint32_t word;

    OK(cuCtxSetCurrent(call >= 2 ? shared_context : other));
    if (call == 0)
        OK(cuMemFree(there[0]));
    else if (call == 3)
        OK(cuCtxSynchronize_v2(other));
    else if (call == 1)
        OK(cuMemcpyHtoD(there[1], &call, sizeof(call)));
    else
        OK(cuMemcpyDtoH(&word, there[1], sizeof(word)));
}

static void beside_a_full_queue(void)
{
    beside_held_up(CU_STREAM_NON_BLOCKING, "call", 4, call_beside);
}

/* Within another context, which orders nothing there. */
static void copy_within_other(unsigned call, CUcontext other, const CUdeviceptr *there)
{
    uint32_t word = 7;

    OK(cuCtxSetCurrent(other));
    if (call == 0)
        OK(cuMemcpyDtoD(there[0], there[1], 64));
    else if (call == 1)
        OK(cuMemcpy(there[0], there[1], 64));
    else
        OK(cuMemcpy(there[1], (CUdeviceptr)(uintptr_t)&word, sizeof(word)));
}

static void copies_beside_a_full_queue(void)
{
    beside_held_up(CU_STREAM_DEFAULT, "copy", 3, copy_within_other);
}

/* On another stream of the same context, or on none. */
static void call_of_nobodys_work(unsigned call, CUcontext other, const CUdeviceptr *there)
{
    static uint32_t counts[2];
    CUstream stream;
    CUgraphExec exec;
    CUgraph graph;

    (void)other;
    (void)there;
    OK(cuCtxSetCurrent(shared_context));
    stream = new_stream(CU_STREAM_NON_BLOCKING);
    if (call == 0) {
        OK(cuGraphCreate(&graph, 0));
        OK(cuGraphInstantiate(&exec, graph, 0));
    } else if (call == 1) {
        OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        OK(cuStreamEndCapture(stream, &graph));
    } else {
        OK(cuStreamAddCallback(stream, count_callbacks, counts, 0));
    }
}

/* None of them waits (R1303, R1307, R1309). */
static void map_and_unmap(void)
{
    const CUmemLocation device = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
    const CUmemAccessDesc access = {device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const CUmemAllocationProp what = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = device};
    CUmemGenericAllocationHandle handle;
    const size_t bytes = 2 << 20;
    CUdeviceptr mapped;

    OK(cuMemCreate(&handle, bytes, &what, 0));
    OK(cuMemAddressReserve(&mapped, bytes, 0, 0, 0));
    OK(cuMemMap(mapped, bytes, 0, handle, 0));
    OK(cuMemSetAccess(mapped, bytes, &access, 1));
    OK(cuMemRelease(handle));
    OK(cuMemUnmap(mapped, bytes));
    OK(cuMemAddressFree(mapped, bytes));
}

static void make_and_destroy_objects(void)
{
    const CUDA_ARRAY_DESCRIPTOR shape = {16, 16, CU_AD_FORMAT_UNSIGNED_INT32, 1};
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY};
    const CUDA_TEXTURE_DESC how = {.filterMode = CU_TR_FILTER_MODE_POINT};
    CUsurfObject surface;
    CUtexObject texture;

    OK(cuArrayCreate(&resource.res.array.hArray, &shape));
    OK(cuTexObjectCreate(&texture, &resource, &how, NULL));
    OK(cuTexObjectDestroy(texture));
    OK(cuSurfObjectCreate(&surface, &resource));
    OK(cuSurfObjectDestroy(surface));
}

/* None of them waits (R409, R411). */
static void remap_beside(unsigned call, CUcontext other, const CUdeviceptr *there)
{
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    static char memory[8192] __attribute__((aligned(4096)));
    CUmemoryPool pool;

    (void)other;
    (void)there;
    OK(cuCtxSetCurrent(shared_context));
    if (call == 0) {
        OK(cuMemHostRegister(memory, sizeof(memory), 0));
        OK(cuDeviceGetDefaultMemPool(&pool, 0));
        OK(cuMemPoolTrimTo(pool, 0));
    } else if (call == 1) {
        map_and_unmap();
    } else if (call == 2) {
        make_and_destroy_objects();
    } else {
        OK(cuMemPoolCreate(&pool, &props));
        OK(cuMemPoolDestroy(pool));
        OK(cuDeviceGraphMemTrim(0));
    }
}

static void remapping_beside_a_full_queue(void)
{
    beside_held_up(CU_STREAM_NON_BLOCKING, "call", 4, remap_beside);
}

/* Nor do they come after the work of streams that block. */
static void remapping_beside_a_blocking_stream(void)
{
    beside_held_up(CU_STREAM_DEFAULT, "call", 4, remap_beside);
}

/* Contexts that end wait for their own work, and for none where they live on. */
static void end_beside(unsigned call, CUcontext other, const CUdeviceptr *there)
{
    CUcontext context;

    (void)other;
    (void)there;
    if (call == 0) {
        OK(cuCtxCreate(&context, NULL, 0, 0));
        OK(cuCtxDestroy(context));
    } else if (call == 1) {
        OK(cuDevicePrimaryCtxRetain(&context, 0));
        OK(cuDevicePrimaryCtxRetain(&context, 0));
        OK(cuDevicePrimaryCtxRelease(0));
        OK(cuDevicePrimaryCtxRelease(0));
    } else {
        OK(cuCtxSetCurrent(shared_context));
        OK(cuMemFree(0)); /* waits for nothing (R413) */
    }
}

static void ending_beside_a_full_queue(void)
{
    beside_held_up(CU_STREAM_NON_BLOCKING, "call", 3, end_beside);
}

static void calls_beside_a_full_queue(void)
{
    beside_held_up(CU_STREAM_NON_BLOCKING, "call", 3, call_of_nobodys_work);
}

static void calls_beside_a_blocking_stream(void)
{
    beside_held_up(CU_STREAM_DEFAULT, "call", 3, call_of_nobodys_work);
}

static CUfunction kernel_deep;
static uint32_t deep_bytes;

static void deep_steps(unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        OK(step_to(state, kernel_deep, shared_stream, i, deep_bytes));
}

static void *deep_iterations(void *unused)
{
    (void)unused;
    is_of_program = true;
    OK(cuCtxSetCurrent(shared_context));
    for (unsigned i = 0; i < 8; i++) {
        deep_steps(STEPS);
        OK(cuStreamSynchronize(shared_stream));
    }
    return NULL;
}

static void *begin_deep_iteration(void *unused)
{
    (void)unused;
    is_of_program = true;
    OK(cuCtxSetCurrent(shared_context));
    atomic_store(&is_held_up, false);
    deep_steps(7);
    await_hold_up();
    return NULL;
}

static void by_another_thread(void *(*run)(void *))
{
    pthread_t thread;

    OK(pthread_create(&thread, NULL, run, NULL));
    OK(pthread_join(thread, NULL));
}

/* Limits and attributes are set, for which nothing waits either (R463), and what comes next on the
 * stream has them. */
static void tuning_beside_a_full_queue(void)
{
    const CUfunction_attribute shared = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;

    is_of_program = true;
    shared_stream = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuCtxGetCurrent(&shared_context));
    OK(cuModuleGetFunction(&kernel_deep, module_of_steps, "deep"));
    sim_inside("cuGraphLaunch", false, hold_up_until);
    deep_bytes = 512;
    OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, deep_bytes));
    by_another_thread(deep_iterations);
    by_another_thread(begin_deep_iteration);
    deep_bytes = 8192;
    OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, deep_bytes));
    OK(cuFuncSetAttribute(kernel_other, shared, 512));
    atomic_store(&is_let_go, true);
    by_another_thread(deep_iterations);
    say("%s", atomic_load(&was_late) ? "late" : "in time");
    tell("deeper");
}

static void *end_within_iteration(void *unused)
{
    (void)unused;
    shared_stream = CU_STREAM_PER_THREAD;
    is_of_program = true;
    OK(cuCtxSetCurrent(shared_context));
    iterations(shared_stream, 8);
    return begin_iteration(NULL);
}

static void *begin_own_stream(void *unused)
{
    (void)unused;
    is_of_program = true;
    OK(cuCtxSetCurrent(shared_context));
    step(CU_STREAM_PER_THREAD, 1, 1);
    return NULL;
}

/* A thread has ended, and its stream's work is held up; another one begins with its own. */
static void begin_beside_a_full_queue(void)
{
    is_of_program = true;
    OK(cuCtxGetCurrent(&shared_context));
    sim_inside("cuGraphLaunch", false, hold_up_until);
    by_another_thread(end_within_iteration);
    by_another_thread(begin_own_stream);
    atomic_store(&is_let_go, true);
    OK(cuCtxSynchronize());
    say("%s", atomic_load(&was_late) ? "late" : "in time");
}

/* Memory is freed while a context is current that it is not of, and somebody else has it next. */
static void freed_from_elsewhere(void)
{
    CUcontext other;
    pthread_t thread;

    is_of_program = true;
    shared_stream = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuCtxGetCurrent(&shared_context));
    OK(pthread_create(&thread, NULL, iterations_on_shared, NULL));
    OK(pthread_join(thread, NULL));
    OK(cuCtxCreate(&other, NULL, 0, 0));
    sim_inside("cuGraphLaunch", false, hold_up);
    OK(pthread_create(&thread, NULL, begin_iteration, NULL));
    OK(pthread_join(thread, NULL));
    OK(cuMemFree(state));
    OK(cuCtxSetCurrent(shared_context));
    state = new_state();
    tell("of its next owner");
}

/* ---- the end ---- */

/* A process that ends waits for the device for 100 ms (AG_EXIT_TIMEOUT_NS). On a busy machine
 * neither the device nor who asks it may be let run for as long; so its clock goes slower. */
#define SLOWER 20

static atomic_bool is_slow;
static struct timespec slow_from;

/* For all of the process. */
int clock_gettime(clockid_t id, struct timespec *time)
{
    long result = syscall(SYS_clock_gettime, id, time);
    int64_t ns;

    if (result || id != CLOCK_MONOTONIC || !atomic_load(&is_slow))
        return (int)result;
    ns = (time->tv_sec - slow_from.tv_sec) * 1000000000 + time->tv_nsec - slow_from.tv_nsec;
    ns = slow_from.tv_nsec + ns / SLOWER;
    time->tv_sec = slow_from.tv_sec + ns / 1000000000;
    time->tv_nsec = ns % 1000000000;
    return 0;
}

static void slow_down(void)
{
    (void)clock_gettime(CLOCK_MONOTONIC, &slow_from);
    atomic_store(&is_slow, true);
}

static void *leave(void *how)
{
    if (!strcmp(how, "exit"))
        exit(4);
    if (!strcmp(how, "quick_exit"))
        quick_exit(4);
    _exit(4);
}

/* With work outstanding, of which each piece says that it was done. */
static void ending(const char *how)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    pthread_t thread;

    for (uint32_t iteration = 0; iteration < 6; iteration++) {
        for (uint32_t i = 0; i < 8; i++)
            launch_speak(stream, iteration * 10 + i);
        if (iteration < 5)
            OK(cuStreamSynchronize(stream));
    }
    for (uint32_t i = 0; i < 5; i++)
        launch_speak(stream, 100 + i);
    if (strcmp(how, "endless") != 0)
        slow_down();
    if (!strcmp(how, "thread")) {
        OK(pthread_create(&thread, NULL, leave, "exit"));
        (void)pthread_join(thread, NULL);
    }
    if (!strcmp(how, "endless"))
        launch_await(await_kernel(), new_stream(CU_STREAM_NON_BLOCKING));
    if (!strcmp(how, "destroy"))
        OK(cuStreamDestroy(stream));
    if (!strcmp(how, "exec"))
        execl("/bin/echo", "echo", "another program", (char *)NULL);
    if (strcmp(how, "return") != 0)
        (void)leave((void *)(uintptr_t)how);
}

static void forking(void)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);

    iterations(stream, 5);
    for (unsigned turn = 0; turn < 6; turn++) {
        int status;

        part_of_iteration(stream, turn, 0, 6);
        pid_t child = fork();
        if (!child) {
            if (turn % 3 == 0)
                _exit(3);
            SAY_CODE("child synchronises", cuCtxSynchronize());
            SAY_CODE("child launches", step_to(state, kernel_step, stream, 6, 6));
            exit(turn % 3);
        }
        OK(waitpid(child, &status, 0) != child);
        say("child: %d", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
        part_of_iteration(stream, turn, 6, STEPS);
        OK(cuStreamSynchronize(stream));
    }
    tell("forked");
}

/* The parent has asked for a function, and no more: the driver works in the child. */
static void fork_before_all(void)
{
    CUdriverProcAddressQueryResult found;
    int status;
    void *function;

    OK(cuGetProcAddress("cuMemAlloc", &function, 12000, 0, &found));
    pid_t child = fork();
    if (!child)
        return;
    OK(waitpid(child, &status, 0) != child);
    exit(WIFEXITED(status) ? WEXITSTATUS(status) : 98);
}

/* Memory taken and given back in stream order: on the legacy stream, which is a barrier even for
 * that; and on a per-thread stream, while another thread lets go of what is withheld there. */
static void stream_ordered(void)
{
    CUstream streams[2] = {new_stream(CU_STREAM_DEFAULT), new_stream(CU_STREAM_DEFAULT)};
    CUdeviceptr copy = new_state(), temporary;

    for (uint32_t iteration = 0; iteration < 30; iteration++) {
        for (unsigned i = 0; i < 4; i++)
            step(streams[0], i, iteration);
        OK(cuMemAllocAsync(&temporary, 64, CU_STREAM_LEGACY));
        OK(cuMemcpyDtoDAsync(copy, state, STATE_BYTES, streams[1]));
        OK(cuMemFreeAsync(temporary, CU_STREAM_LEGACY));
        OK(cuStreamSynchronize(streams[1]));
        tell_of("behind the legacy stream", copy);
    }
    for (uint32_t iteration = 0; iteration < 30; iteration++) {
        for (unsigned i = 0; i < 4; i++)
            step(CU_STREAM_PER_THREAD, i, iteration);
        OK(cuMemAllocAsync(&temporary, STATE_BYTES, CU_STREAM_PER_THREAD));
        OK(cuMemsetD8Async(temporary, 0, STATE_BYTES, CU_STREAM_PER_THREAD));
        OK(step_to(temporary, kernel_step, CU_STREAM_PER_THREAD, 1, iteration));
        if (iteration % 3 == 2)
            (void)usleep(5000); /* the watchdog's turn */
        OK(cuMemcpyDtoDAsync(copy, temporary, 64, CU_STREAM_PER_THREAD));
        OK(cuMemFreeAsync(temporary, CU_STREAM_PER_THREAD));
    }
    OK(cuCtxSynchronize());
    tell_of("temporaries", copy);
    tell("in stream order");
}

/* Kernels with clusters of their own: the driver refuses grids that are not whole clusters, at
 * once. */
static void clustered(void)
{
    const CUfunction_attribute width = CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH;
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);

    for (uint32_t iteration = 0; iteration < 60; iteration++) {
        if (iteration % 20 == 5)
            OK(cuFuncSetAttribute(kernel_step, width, 2));
        if (iteration % 20 == 15)
            OK(cuFuncSetAttribute(kernel_step, width, 0));
        for (unsigned i = 0; i < STEPS; i++) {
            uint32_t grid = i == 7 && iteration % 6 == 5 ? 3 : 2 + 2 * (iteration % 3 == 2),
                     value = iteration;
            void *args[] = {&state, &i, &value};
            CUresult result =
                cuLaunchKernel(kernel_step, grid, 1, 1, 32, 1, 1, 0, stream, args, NULL);

            if (result)
                say("iteration %u, step %u: %d", iteration, i, (int)result);
        }
        OK(cuStreamSynchronize(stream));
    }
    tell("with clusters");
}

/* ---- which ---- */

/* A priority that no stream can have becomes the nearest one (R886). */
static void with_priorities(void)
{
    static const int asked_for[] = {-100, -5, 0, 100};
    CUstream stream;
    int priority;

    for (size_t i = 0; i < sizeof(asked_for) / sizeof(asked_for[0]); i++) {
        OK(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, asked_for[i]));
        OK(cuStreamGetPriority(stream, &priority));
        say("%d became %d", asked_for[i], priority);
        iterations(stream, 8);
        OK(cuStreamSynchronize(stream));
        OK(cuStreamDestroy(stream));
    }
    tell_of("priorities", state);
}

static const struct part parts[] = {
    {"exactly", exactly},
    {"diverging", diverging},
    {"uploads", uploads},
    {"pinned", pinned_copies},
    {"legacy", on_legacy},
    {"events", with_events},
    {"polling", polling},
    {"spinning", spinning},
    {"unloading", unloading},
    {"unloading-by-another", unloading_by_another},
    {"streams", streams_again},
    {"contexts", contexts_again},
    {"allocating", allocating},
    {"freeing", freeing},
    {"capturing", capturing},
    {"per-thread", per_thread_streams},
    {"beside", capturing_beside},
    {"many", many_streams},
    {"resetting", resetting},
    {"host", host_functions},
    {"full", full_of_graphs},
    {"forking", forking},
    {"clustered", clustered},
    {"ordered", stream_ordered},
    {"sleeping", sleeping},
    {"known", known_to_be_done},
    {"waited", waited_iterations},
    {"running", running_on},
    {"deeper", going_deeper},
    {"elsewhere", with_another_context_current},
    {"handed-over", handed_over},
    {"handed-over-by-legacy", handed_over_by_legacy},
    {"full-queue", beside_a_full_queue},
    {"full-queue-copies", copies_beside_a_full_queue},
    {"full-queue-calls", calls_beside_a_full_queue},
    {"refused-attributes", refused_attributes},
    {"attributes-of-later-contexts", attributes_of_later_contexts},
    {"full-queue-calls-blocking", calls_beside_a_blocking_stream},
    {"full-queue-remapping", remapping_beside_a_full_queue},
    {"full-queue-ending", ending_beside_a_full_queue},
    {"full-queue-blocking", remapping_beside_a_blocking_stream},
    {"full-queue-begin", begin_beside_a_full_queue},
    {"full-queue-tuning", tuning_beside_a_full_queue},
    {"freed-elsewhere", freed_from_elsewhere},
    {"inside", with_green_context_current},
    {"between", between_devices_legacy},
    {"between-blocking", between_devices_blocking},
    {"priorities", with_priorities},
};

int main(int argc, char **argv)
{
    const char *part = argc > 1 ? argv[1] : "", *more = argc > 2 ? argv[2] : "";

    if (!strcmp(more, "in-child"))
        fork_before_all();
    begin();
    if (RUN_PART(parts, part)) {
        say("violations: %u", sim_violations());
        return 3;
    }
    if (!strcmp(part, "threads"))
        by_threads(!strcmp(more, "shared") || !strcmp(more, "turns"), !strcmp(more, "turns"));
    else if (!strcmp(part, "brief") || !strcmp(part, "brief-copies"))
        brief((unsigned)atoi(more), part[5]);
    else if (!strcmp(part, "faulting"))
        faulting(more);
    else if (!strcmp(part, "ended-by-another"))
        ended_by_another(!strcmp(more, "asks"));
    else if (!strcmp(part, "flushing"))
        return flushing(more);
    else if (!strcmp(part, "ending"))
        ending(more);
    else
        return 97;
    return 3;
}
