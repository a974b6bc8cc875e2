/* A program that waits for a device which is busy for a known time: see test_waits.py. Its
 * functions that wait are named after what they call.
 *
 *     waits kinds          every kind of call that waits, each once; "NAME NS" of its own clock
 *     waits threads N      four threads wait N times each, and ask an idle stream as often
 *     waits capture        in a capture, where a wait is refused
 *     waits look           whose function a look-up finds
 *     waits stays          as kinds, then waits for its standard input
 *     waits forks          a child of a process that waited */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "tests/common/device.h"
#include "tests/common/say.h"

#define BUSY_NS   20000000 /* the device is busy */
#define N_THREADS 4

static void take_time(void *ns)
{
    const struct timespec time = {0, (long)(uintptr_t)ns};

    (void)nanosleep(&time, NULL);
}

/* Nothing runs before somebody waits for it: SIM_SCHED=lazy. */
static void be_busy(CUstream stream)
{
    OK(cuLaunchHostFunc(stream, take_time, (void *)BUSY_NS));
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* --- kinds --- */

static CUstream stream;
static CUevent event;
static CUdeviceptr memory, other;
static void *pinned;
static char pageable[1 << 16], registered[1 << 13];
static CUarray array;

/* A function of its own for each, so that stacks differ. `call` must be a call of the driver. */
#define WAITS(name, call)                                   \
    static __attribute__((noinline)) void wait_##name(void) \
    {                                                       \
        OK(call);                                           \
        __asm__ volatile("");                               \
    }

WAITS(stream, cuStreamSynchronize(stream))
WAITS(event, cuEventSynchronize(event))
WAITS(context, cuCtxSynchronize())
WAITS(copy_back, cuMemcpyDtoH(pageable, memory, sizeof(pageable)))
WAITS(copy_there, cuMemcpyHtoD(memory, pageable, sizeof(pageable)))
WAITS(copy_async, cuMemcpyDtoHAsync(pageable, memory, sizeof(pageable), stream))
WAITS(fill, cuMemsetD8((CUdeviceptr)pinned, 1, 64))
WAITS(free, cuMemFree(other))
WAITS(free_pinned, cuMemFreeHost(pinned))
WAITS(unregister, cuMemHostUnregister(registered))
WAITS(free_array, cuArrayDestroy(array))

static void measure(const char *name, CUstream busy, void (*wait)(void))
{
    uint64_t began;

    be_busy(busy);
    if (wait == wait_event)
        OK(cuEventRecord(event, busy));
    began = now_ns();
    wait();
    say("%s %llu", name, (unsigned long long)(now_ns() - began));
}

#define MEASURE(busy, name) measure(#name, busy, wait_##name)

static void wait_in_every_way(void)
{
    const CUDA_ARRAY_DESCRIPTOR shape = {64, 64, CU_AD_FORMAT_FLOAT, 1};

    OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    OK(cuMemAlloc(&memory, sizeof(pageable)));
    OK(cuMemAlloc(&other, 1 << 20));
    OK(cuMemHostAlloc(&pinned, 4096, 0));
    OK(cuMemHostRegister(registered, sizeof(registered), 0));
    OK(cuArrayCreate(&array, &shape));
    MEASURE(stream, stream);
    MEASURE(stream, event);
    MEASURE(stream, context);
    MEASURE(NULL, copy_back);
    MEASURE(NULL, copy_there);
    MEASURE(stream, copy_async);
    MEASURE(NULL, fill);
    MEASURE(stream, free);
    MEASURE(stream, free_pinned);
    MEASURE(stream, unregister);
    MEASURE(stream, free_array);
    OK(cuMemFree(memory));
}

/* --- threads --- */

static CUcontext context;

static void *work(void *n)
{
    CUstream own;

    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
    for (uintptr_t i = 0; i < (uintptr_t)n; i++) {
        OK(cuLaunchHostFunc(own, take_time, (void *)1000000));
        OK(cuStreamSynchronize(own));
        OK(cuStreamSynchronize(own)); /* idle */
    }
    OK(cuStreamDestroy(own));
    return NULL;
}

static void wait_in_threads(const char *n)
{
    pthread_t threads[N_THREADS];

    for (int i = 0; i < N_THREADS; i++)
        CHECK(!pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)atoi(n)));
    for (int i = 0; i < N_THREADS; i++)
        CHECK(!pthread_join(threads[i], NULL));
    say("done");
}

/* --- where a wait is not one --- */

static void wait_in_capture(void)
{
    CUgraph graph;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&memory, sizeof(pageable)));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    SAY_CODE("wait", cuStreamSynchronize(stream));
    SAY_CODE("end", cuStreamEndCapture(stream, &graph));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    SAY_CODE("copy", cuMemcpyDtoHAsync(pageable, memory, sizeof(pageable), stream));
    SAY_CODE("end", cuStreamEndCapture(stream, &graph));
    OK(cuMemFree(memory));
}

static void look(void)
{
    static const char *const names[] = {"cuStreamSynchronize", "cuEventSynchronize",
                                        "cuCtxSynchronize", "cuMemcpyDtoH_v2"};
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);

    CHECK(driver);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        void *found = dlsym(driver, names[i]);
        Dl_info info;

        CHECK(found && dladdr(found, &info));
        say("%s: %s", names[i], strrchr(info.dli_fname, '/') + 1);
    }
}

static void forks(void)
{
    pid_t child;

    OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    be_busy(stream);
    wait_stream();
    child = fork();
    CHECK(child >= 0);
    if (!child) {
        CHECK(cuCtxSynchronize() != CUDA_SUCCESS); /* a child has no context */
        _exit(0);
    }
    say_child(child);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";

    context = device_open();
    if (!strcmp(what, "kinds"))
        wait_in_every_way();
    else if (!strcmp(what, "stays")) {
        wait_in_every_way();
        say("ready");
        (void)getchar();
    } else if (!strcmp(what, "threads"))
        wait_in_threads(argv[2]);
    else if (!strcmp(what, "capture"))
        wait_in_capture();
    else if (!strcmp(what, "look"))
        look();
    else if (!strcmp(what, "forks"))
        forks();
    return 0;
}
