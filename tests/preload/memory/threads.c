/* Threads allocate, fill, check and free at random: no wrong word, and all memory comes back. Many
 * that free at once sleep until the one that is in the driver is done. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/common/device.h"
#include "tests/common/say.h"

#define THREADS 8
#define TURNS   150
#define BLOCKS  6

#define CROWD    32
#define STALL_US 100000 /* a thread that looks every 160 us wakes up 600 times meanwhile */
#define WAKEUPS  100    /* of a thread that sleeps, far fewer */

static CUcontext context;
static CUdeviceptr handed_over[THREADS];

/* One thread's blocks, its stream and the word its checks add to. */
struct worker {
    unsigned seed;
    CUstream stream;
    CUdeviceptr result;
    CUdeviceptr blocks[BLOCKS];
    uint32_t words[BLOCKS];
    uint32_t values[BLOCKS];
};

static void turn(struct worker *w)
{
    int i = rand_r(&w->seed) % BLOCKS;

    if (w->blocks[i] != 0) {
        launch_check(w->stream, w->blocks[i], w->words[i], w->values[i], w->result);
        OK(cuMemFree(w->blocks[i]));
        w->blocks[i] = 0;
        return;
    }
    w->words[i] = 1u << (rand_r(&w->seed) % 12);
    w->values[i] = (uint32_t)rand_r(&w->seed);
    OK(cuMemAlloc(&w->blocks[i], w->words[i] * sizeof(uint32_t)));
    launch_fill(w->stream, w->blocks[i], w->words[i], w->values[i]);
}

static void *work(void *number)
{
    struct worker w = {.seed = (unsigned)(uintptr_t)number + 1};
    uint32_t wrong = 0;

    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&w.stream, w.seed % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
    OK(cuMemAlloc(&w.result, sizeof(wrong)));
    OK(cuMemsetD32Async(w.result, 0, 1, w.stream));
    for (int i = 0; i < TURNS; i++)
        turn(&w);
    for (int i = 0; i < BLOCKS; i++)
        OK(cuMemFree(w.blocks[i]));
    OK(cuStreamSynchronize(w.stream));
    OK(cuMemcpyDtoH(&wrong, w.result, sizeof(wrong)));
    OK(cuMemFree(w.result));
    OK(cuStreamDestroy(w.stream));
    /* One block is given to another thread to free. */
    OK(cuMemAlloc(&handed_over[(uintptr_t)number], 12345));
    return (void *)(uintptr_t)wrong;
}

/* ---- many free at once ---- */

static pthread_barrier_t crowd_meets;

static void stall(void)
{
    (void)usleep(STALL_US);
}

static void *free_with_others(void *unused)
{
    CUdeviceptr block;

    (void)unused;
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc(&block, 4096));
    (void)pthread_barrier_wait(&crowd_meets);
    OK(cuMemFree(block));
    return NULL;
}

static long wakeups(void)
{
    struct rusage usage;

    OK(getrusage(RUSAGE_SELF, &usage));
    return usage.ru_nvcsw;
}

static void crowd(void)
{
    pthread_t threads[CROWD];
    long before = wakeups();

    OK(pthread_barrier_init(&crowd_meets, NULL, CROWD));
    sim_inside("cuCtxRecordEvent", false, stall);
    for (int i = 0; i < CROWD; i++)
        OK(pthread_create(&threads[i], NULL, free_with_others, NULL));
    for (int i = 0; i < CROWD; i++)
        OK(pthread_join(threads[i], NULL));
    sim_inside(NULL, false, NULL);
    say("a crowd sleeps: %d", wakeups() - before < (long)CROWD * WAKEUPS);
}

int main(void)
{
    pthread_t threads[THREADS];
    size_t before, after, total;
    void *wrong;

    context = device_open();
    OK(cuMemAlloc(&handed_over[0], 1));
    OK(cuMemFree(handed_over[0]));
    OK(cuMemGetInfo(&before, &total));
    for (uintptr_t i = 0; i < THREADS; i++)
        OK(pthread_create(&threads[i], NULL, work, (void *)i));
    for (int i = 0; i < THREADS; i++) {
        OK(pthread_join(threads[i], &wrong));
        say("thread %d: wrong words %u", i, (unsigned)(uintptr_t)wrong);
    }
    for (int i = 0; i < THREADS; i++)
        OK(cuMemFree(handed_over[i]));
    OK(cuMemGetInfo(&after, &total));
    say("all came back: %d", after + (4 << 20) >= before);
    crowd();
    say("violations: %u", sim_violations());
    return 0;
}
