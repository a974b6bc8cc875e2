/* What natively goes on in other threads while one is in cudaFree, and for how long that one waits.
 *     others asks            another thread asks and waits, and only then lets the kernel end that
 *                            the free waits for
 *     others again           the same, over and over
 *     others leaves          the first thread leaves the work to another, which frees and allocates
 *     others allocates       threads that submit nothing allocate and free, which makes none wait
 *     others long            the kernel takes 12 s by a clock of the program's, and what it uses is
 *                            allocated again by the only thread, which natively waits for it */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tests/common/device.h"
#include "tests/common/say.h"

#define MIB   ((size_t)1 << 20)
#define TIMES 40

static CUcontext context;
static CUstream ours, theirs;
static CUdeviceptr mine, used, block;
static CUevent event;
static _Atomic uint32_t may_end;
static _Atomic unsigned launched, answered; /* kernels that wait; those that were let go */
static _Atomic bool is_bound;

static CUfunction load(const char *name, sim_kernel_fn kernel)
{
    static const size_t size = sizeof(CUdeviceptr);
    static const char image[64] = "x";
    CUmodule module;
    CUfunction function;

    sim_register_kernel(name, kernel, 1, &size);
    OK(cuModuleLoadData(&module, image));
    OK(cuModuleGetFunction(&function, module, name));
    return function;
}

static void launch(CUfunction function, CUstream stream, CUdeviceptr p)
{
    void *args[] = {&p};

    OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
}

static void begin(void)
{
    context = device_open();
    OK(cuStreamCreate(&ours, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&theirs, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuMemAlloc(&mine, 4096));
    OK(cuMemAlloc(&used, 4096));
    for (unsigned i = 0; i < 3; i++) { /* from here on, frees do not wait */
        OK(cuMemAlloc(&block, MIB));
        OK(cuMemFree(block));
    }
    OK(cuMemAlloc(&block, MIB));
    OK(cuCtxSynchronize());
}

static void sleep_until(const _Atomic unsigned *count, unsigned n)
{
    while (atomic_load(count) < n)
        (void)usleep(100);
}

static void bind(void)
{
    OK(cuCtxSetCurrent(context));
    launch_fill(theirs, used, 16, 1);
    OK(cuStreamSynchronize(theirs));
    atomic_store(&is_bound, true);
}

static void ask_this_and_that(void)
{
    size_t free_bytes, total_bytes;

    SAY_CODE("event", cuEventQuery(event));
    SAY_CODE("own stream", cuStreamQuery(theirs));
    SAY_CODE("the other's", cuStreamQuery(ours));
    SAY_CODE("waited", cuStreamSynchronize(theirs));
    SAY_CODE("free memory", cuMemGetInfo(&free_bytes, &total_bytes));
}

static void *let_go(void *times)
{
    bind();
    for (unsigned i = 1; i <= *(unsigned *)times; i++) {
        sleep_until(&launched, i);
        (void)usleep(2000); /* the free is under way, or has returned */
        ask_this_and_that();
        atomic_store(&may_end, 1);
        atomic_store(&answered, i);
    }
    return NULL;
}

static void behind_a_kernel_that_waits(unsigned times)
{
    pthread_t other;

    OK(pthread_create(&other, NULL, let_go, &times));
    while (!atomic_load(&is_bound))
        (void)usleep(100);
    for (unsigned i = 1; i <= times; i++) {
        atomic_store(&may_end, 0);
        launch_spin(ours, &may_end);
        OK(cuEventRecord(event, ours));
        atomic_store(&launched, i);
        OK(cuMemFree(block));
        OK(cuMemAlloc(&block, MIB));
        sleep_until(&answered, i);
        OK(cuStreamSynchronize(ours));
    }
    OK(pthread_join(other, NULL));
    say("done");
}

/* --- the first thread leaves the work to another --- */

static void *work_alone(void *unused)
{
    uint32_t wrong = 0;

    OK(cuCtxSetCurrent(context));
    for (uint32_t i = 0; i < 200; i++) {
        launch_fill(theirs, used, 16, i);
        OK(cuMemFree(block));
        wrong += count_wrong(used, 16, i); /* by the NULL stream: only the free is before it */
        launch_fill(ours, mine, 16, i);
        OK(cuMemAlloc(&block, MIB));
    }
    OK(cuCtxSynchronize());
    say("wrong words: %u", wrong);
    return unused;
}

static void leave_the_work(void)
{
    pthread_t other;

    launch_fill(ours, mine, 16, 1);
    for (int i = 0; i < 2; i++) { /* the first one comes back once */
        OK(pthread_create(&other, NULL, work_alone, NULL));
        OK(pthread_join(other, NULL));
        launch_fill(ours, mine, 16, 1);
    }
    OK(cuCtxSynchronize());
}

static void *only_allocate(void *unused)
{
    CUdeviceptr p;

    OK(cuCtxSetCurrent(context));
    for (unsigned i = 0; i < 1000; i++) {
        OK(cuMemAlloc(&p, MIB));
        OK(cuMemFree(p));
    }
    return unused;
}

static void allocate_beside_work(void)
{
    pthread_t others[4];

    launch_fill(ours, mine, 16, 1);
    OK(cuCtxSynchronize());
    for (int i = 0; i < 4; i++)
        OK(pthread_create(&others[i], NULL, only_allocate, NULL));
    for (int i = 0; i < 4; i++)
        OK(pthread_join(others[i], NULL));
    say("wrong words: %u", count_wrong(mine, 16, 1));
}

/* --- a kernel that takes longer than any wait of a thread that did not free --- */

#define FASTER 20 /* than the machine's */

static _Atomic bool hurries;
static struct timespec hurries_from;

/* For all of the process. */
int clock_gettime(clockid_t id, struct timespec *time)
{
    long result = syscall(SYS_clock_gettime, id, time);
    int64_t ns;

    if (result || id != CLOCK_MONOTONIC || !atomic_load(&hurries))
        return (int)result;
    ns = (time->tv_sec - hurries_from.tv_sec) * 1000000000 + time->tv_nsec - hurries_from.tv_nsec;
    ns = hurries_from.tv_nsec + ns * FASTER;
    time->tv_sec = hurries_from.tv_sec + ns / 1000000000;
    time->tv_nsec = ns % 1000000000;
    return 0;
}

static struct timespec kernel_began;

static void twelve_seconds(const struct sim_kernel_call *call)
{
    struct timespec now;

    (void)call;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_sec - kernel_began.tv_sec < 13)
        sim_kernel_again();
}

static void allocate_behind_a_long_kernel(void)
{
    CUfunction function = load("twelve_seconds", twelve_seconds);
    CUdeviceptr most, some, more;

    OK(cuMemAlloc(&most, 600 * MIB));
    OK(cuMemAlloc(&some, 300 * MIB));
    OK(cuCtxSynchronize());
    (void)clock_gettime(CLOCK_MONOTONIC, &hurries_from);
    kernel_began = hurries_from;
    atomic_store(&hurries, true);
    launch(function, ours, some);
    OK(cuMemFree(some));
    SAY_CODE("allocated", cuMemAlloc(&more, 340 * MIB));
    OK(cuMemFree(most));
}

int main(int argc, char **argv)
{
    const char *part = argc > 1 ? argv[1] : "";

    begin();
    if (!strcmp(part, "leaves"))
        leave_the_work();
    else if (!strcmp(part, "allocates"))
        allocate_beside_work();
    else if (!strcmp(part, "long"))
        allocate_behind_a_long_kernel();
    else
        behind_a_kernel_that_waits(!strcmp(part, "again") ? TIMES : 1);
    return 0;
}
