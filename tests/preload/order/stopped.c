/* A thread that allocates and frees is stopped on its way into the driver, at one call after the
 * other, and meanwhile another one begins a capture: that lives, and no order is lost. With "end"
 * the other one ends a context, which takes until the stopped one has done with it.
 *
 * Where the capture does not begin until the call has gone on, the stop ends by itself. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "tests/common/device.h"
#include "tests/common/say.h"

#define WORDS   16
#define TURNS   8
#define N_CALLS 3 /* of each kind, one after the other */
#define STOP_MS 150
#define END_MS  1500

static CUcontext context;
static CUstream first, second;
static CUdeviceptr shared, result, temporary;
static unsigned n_turns;

static struct {
    pthread_t thread;
    _Atomic int n_left; /* calls until it is stopped */
    atomic_bool is_stopped, is_half, has_begun, is_done;
} way;

static void stop_there(void)
{
    if (!pthread_equal(pthread_self(), way.thread) || atomic_fetch_sub(&way.n_left, 1) != 1)
        return;
    atomic_store(&way.is_stopped, true);
    for (int i = 0; i < STOP_MS && !atomic_load(&way.has_begun); i++)
        (void)usleep(1000);
}

/* What one stream wrote before a free, the other one reads behind it. */
static void turn(void)
{
    size_t bytes = (n_turns * 7 % 61 + 1) << 17;

    launch_fill(first, shared, WORDS, n_turns);
    OK(cuMemFree(temporary));
    OK(cuMemAlloc(&temporary, bytes));
    launch_check(second, shared, WORDS, n_turns, result);
    OK(cuMemFree(temporary));
    OK(cuMemAlloc(&temporary, bytes + (1 << 16)));
    n_turns++;
}

static void *capture(void *stream)
{
    CUgraph graph = NULL;
    CUdeviceptr p;

    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc(&p, 4096));
    while (!atomic_load(&way.is_stopped) && !atomic_load(&way.is_half))
        (void)usleep(100);
    SAY_CODE("begin", cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    atomic_store(&way.has_begun, true);
    while (!atomic_load(&way.is_done))
        (void)usleep(100);
    SAY_CODE("captured", cuMemsetD32Async(p, 1, 4, stream));
    SAY_CODE("end", cuStreamEndCapture(stream, &graph));
    if (graph)
        OK(cuGraphDestroy(graph));
    OK(cuMemFree(p));
    return NULL;
}

static void stopped_at(const char *symbol, int call, CUstream captured)
{
    pthread_t thread;

    say("%s, call %d", symbol, call);
    atomic_store(&way.is_stopped, false);
    atomic_store(&way.is_half, false);
    atomic_store(&way.has_begun, false);
    atomic_store(&way.is_done, false);
    atomic_store(&way.n_left, call);
    sim_inside(symbol, false, stop_there);
    OK(pthread_create(&thread, NULL, capture, captured));
    for (int i = 0; i < TURNS; i++) {
        turn();
        if (i == TURNS / 2)
            atomic_store(&way.is_half, true);
    }
    atomic_store(&way.is_done, true);
    OK(pthread_join(thread, NULL));
    sim_inside(NULL, false, NULL);
}

/* --- a context ends --- */

static atomic_bool has_ended;

static void stop_for_long(void)
{
    if (!pthread_equal(pthread_self(), way.thread) || atomic_fetch_sub(&way.n_left, 1) != 1)
        return;
    atomic_store(&way.is_stopped, true);
    while (!atomic_load(&way.has_begun))
        (void)usleep(100);
    (void)usleep(END_MS * 1000);
    say("stopped in the driver; ended meanwhile: %d", atomic_load(&has_ended));
}

static void *end_context(void *other)
{
    while (!atomic_load(&way.is_stopped) && !atomic_load(&way.is_done))
        (void)usleep(100);
    atomic_store(&way.has_begun, true);
    OK(cuCtxDestroy(other));
    atomic_store(&has_ended, true);
    return NULL;
}

/* A context that keeps a block of 64 MiB. */
static CUcontext make_other(void)
{
    CUcontext other, popped;
    CUdevice device;

    OK(cuDeviceGet(&device, 0));
    OK(cuCtxCreate(&other, NULL, 0, device));
    for (int i = 0; i < 3; i++) {
        OK(cuMemAlloc(&temporary, 64 << 20));
        OK(cuMemFree(temporary));
    }
    OK(cuCtxPopCurrent(&popped));
    return other;
}

/* Another thread ends `other` while the n-th call of the symbol is on its way. */
static void ends_at(const char *symbol, int call, CUresult (*what)(void), CUcontext other)
{
    pthread_t thread;

    atomic_store(&way.is_stopped, false);
    atomic_store(&way.has_begun, false);
    atomic_store(&way.is_done, false);
    atomic_store(&has_ended, false);
    atomic_store(&way.n_left, call);
    sim_inside(symbol, false, stop_for_long);
    OK(pthread_create(&thread, NULL, end_context, other));
    SAY_CODE(symbol, what());
    atomic_store(&way.is_done, true);
    OK(pthread_join(thread, NULL));
    sim_inside(NULL, false, NULL);
}

static CUresult free_it(void)
{
    return cuMemFree(temporary);
}

static CUresult allocate_most(void)
{
    size_t free_bytes, total_bytes;

    OK(cuMemGetInfo(&free_bytes, &total_bytes));
    return cuMemAlloc(&temporary, free_bytes - (16 << 20));
}

/* The barrier of a free is placed in one context after the other, its own first. */
static void end_at_a_barrier(void)
{
    CUcontext other = make_other();

    OK(cuMemAlloc(&temporary, 1 << 20));
    launch_fill(first, shared, WORDS, 1);
    ends_at("cuCtxWaitEvent", 2, free_it, other);
}

/* What the other context keeps goes back first. */
static void end_as_memory_goes_back(void)
{
    ends_at("cuMemFree_v2", 1, allocate_most, make_other());
}

int main(int argc, char **argv)
{
    static const char *const symbols[] = {
        "cuCtxRecordEvent",      "cuCtxWaitEvent",
        "cuEventRecord",         "cuMemAllocFromPoolAsync",
        "cuMemFreeAsync",        "cuStreamWaitEvent",
        "cuEventQuery",          "cuStreamSynchronize",
        "cuMemAlloc_v2",         "cuEventSynchronize",
        "cuMemPrefetchAsync_v2",
    };
    CUstream captured;
    unsigned wrong = 0;

    context = device_open();
    way.thread = pthread_self();
    OK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&captured, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&shared, 4096));
    OK(cuMemAlloc(&result, 4096));
    OK(cuMemsetD8(result, 0, 4096));
    if (argc > 1 && !strcmp(argv[1], "end"))
        end_at_a_barrier();
    if (argc > 1 && !strcmp(argv[1], "end-full"))
        end_as_memory_goes_back();
    if (argc > 1)
        return 0;
    OK(cuMemAlloc(&temporary, 1 << 20));
    for (unsigned i = 0; i < sizeof(symbols) / sizeof(*symbols); i++)
        for (int call = 1; call <= N_CALLS; call++)
            stopped_at(symbols[i], call, captured);
    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH(&wrong, result, sizeof(wrong)));
    say("wrong words: %u, violations: %u", wrong, sim_violations());
    return 0;
}
