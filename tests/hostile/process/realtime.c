/* Threads of the class SCHED_FIFO, which nothing of the usual class gets the processor from, in
 * front of ordinary ones on one core. Argument: a part and how long. Says what did not go on. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#include "sim.h"
#include "tests/common/context.h"
#include "tests/common/say.h"

/* Of the time of the processor, which other programs take nothing of: a turn is some ten
 * microseconds. */
#define LONG_TURN_NS 150000000u
#define LONGEST_POLL_NS \
    6000000000u /* of the clock on the wall: it comes at once, or not at all \
                 */

static CUcontext context;
static CUstream stream;
static CUfunction kernel_write;
static CUdeviceptr words;
static _Atomic bool over;

static void write_word(const struct sim_kernel_call *call)
{
    uint32_t *word = sim_kernel_access(*(CUdeviceptr *)call->args[0], sizeof(*word), true);

    if (word)
        __atomic_store_n(word, *(const uint32_t *)call->args[1], __ATOMIC_RELEASE);
}

static void open_device(void)
{
    static const size_t sizes[] = {sizeof(CUdeviceptr), sizeof(uint32_t)};
    static const char image[64] = "any bytes";
    CUmodule module;

    sim_register_kernel("write", write_word, 2, sizes);
    context = context_open();
    OK(cuModuleLoadData(&module, image));
    OK(cuModuleGetFunction(&kernel_write, module, "write"));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&words, 64));
}

static void launch_write(CUdeviceptr p, uint32_t value)
{
    void *args[] = {&p, &value};

    OK(cuLaunchKernel(kernel_write, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
}

static uint64_t clock_of(clockid_t which)
{
    struct timespec now;

    (void)clock_gettime(which, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The calling thread stays on the first core that it may use. */
static void pin(void)
{
    cpu_set_t allowed, one;
    int cpu = 0;

    OK(sched_getaffinity(0, sizeof(allowed), &allowed));
    while (!CPU_ISSET(cpu, &allowed))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    OK(sched_setaffinity(0, sizeof(one), &one));
}

static void become_realtime(void)
{
    const struct sched_param param = {.sched_priority = 50};

    if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &param))
        _exit(77); /* not allowed here */
}

/* ---- an ordinary thread is interrupted in the middle of what the other waits for ---- */

static void allocate(void)
{
    CUdeviceptr p;

    OK(cuMemAlloc(&p, 65536));
    OK(cuMemFree(p));
}

static void launch(void)
{
    for (uint32_t i = 0; i < 8; i++)
        launch_write(words, i);
    OK(cuStreamSynchronize(stream));
}

static void (*turn)(void);

static void *ordinary(void *unused)
{
    (void)unused;
    pin();
    OK(cuCtxSetCurrent(context));
    while (!over)
        turn();
    return NULL;
}

static void *urgent(void *data)
{
    uint64_t until = clock_of(CLOCK_MONOTONIC) + 1000000u * *(const unsigned *)data;
    unsigned n_long = 0, n_turns = 0;

    pin();
    become_realtime();
    OK(cuCtxSetCurrent(context));
    while (clock_of(CLOCK_MONOTONIC) < until) {
        const struct timespec pause = {0,
                                       100000 + n_turns * 7919 % 200000}; /* anywhere in a turn */
        uint64_t began;

        (void)nanosleep(&pause, NULL);
        began = clock_of(CLOCK_THREAD_CPUTIME_ID);
        turn();
        n_turns++;
        n_long += clock_of(CLOCK_THREAD_CPUTIME_ID) - began > LONG_TURN_NS;
    }
    say("turns in which the processor was kept from who could end them: %u", n_long);
    over = true;
    return NULL;
}

static void two_on_one_core(unsigned ms)
{
    pthread_t first, second;

    OK(pthread_create(&first, NULL, ordinary, NULL));
    OK(pthread_create(&second, NULL, urgent, &ms));
    OK(pthread_join(second, NULL));
    OK(pthread_join(first, NULL));
}

/* ---- a thread that polls what its kernels write, and never waits ---- */

static void poll_words(unsigned n_iterations)
{
    uint32_t *word;
    CUdeviceptr p;

    OK(cuMemHostAlloc((void **)&word, 64, CU_MEMHOSTALLOC_DEVICEMAP));
    OK(cuMemHostGetDevicePointer(&p, word, 0));
    *word = 0;
    for (uint32_t iteration = 1; iteration <= n_iterations; iteration++) {
        uint64_t until = clock_of(CLOCK_MONOTONIC) + LONGEST_POLL_NS;

        for (uint32_t i = 1; i <= 8; i++)
            launch_write(p, 8 * iteration + i);
        while (__atomic_load_n(word, __ATOMIC_ACQUIRE) != 8 * iteration + 8) {
            if (clock_of(CLOCK_MONOTONIC) > until) {
                say("iteration %u: what the kernels write has not come", iteration);
                _exit(1);
            }
        }
    }
    say("%u iterations polled", n_iterations);
}

int main(int argc, char **argv)
{
    unsigned n = argc == 3 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;

    if (!n)
        return 97;
    if (strcmp(argv[1], "poll") == 0) {
        pin();
        become_realtime();
    }
    open_device();
    turn = strcmp(argv[1], "launches") == 0 ? launch : allocate;
    if (strcmp(argv[1], "poll") == 0)
        poll_words(n);
    else
        two_on_one_core(n);
    return 0;
}
