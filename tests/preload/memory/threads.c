/* Threads allocate, fill, check and free at random: no wrong word, and all memory comes back. */
#include <pthread.h>
#include <stdlib.h>

#include "tests/common/device.h"
#include "tests/common/say.h"

#define THREADS 8
#define TURNS   150
#define BLOCKS  6

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
        NEED(cuMemFree(w->blocks[i]));
        w->blocks[i] = 0;
        return;
    }
    w->words[i] = 1u << (rand_r(&w->seed) % 12);
    w->values[i] = (uint32_t)rand_r(&w->seed);
    NEED(cuMemAlloc(&w->blocks[i], w->words[i] * sizeof(uint32_t)));
    launch_fill(w->stream, w->blocks[i], w->words[i], w->values[i]);
}

static void *work(void *number)
{
    struct worker w = {.seed = (unsigned)(uintptr_t)number + 1};
    uint32_t wrong = 0;

    NEED(cuCtxSetCurrent(context));
    NEED(cuStreamCreate(&w.stream, w.seed % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
    NEED(cuMemAlloc(&w.result, sizeof(wrong)));
    NEED(cuMemsetD32Async(w.result, 0, 1, w.stream));
    for (int i = 0; i < TURNS; i++)
        turn(&w);
    for (int i = 0; i < BLOCKS; i++)
        NEED(cuMemFree(w.blocks[i]));
    NEED(cuStreamSynchronize(w.stream));
    NEED(cuMemcpyDtoH(&wrong, w.result, sizeof(wrong)));
    NEED(cuMemFree(w.result));
    NEED(cuStreamDestroy(w.stream));
    /* One block is given to another thread to free. */
    NEED(cuMemAlloc(&handed_over[(uintptr_t)number], 12345));
    return (void *)(uintptr_t)wrong;
}

int main(void)
{
    pthread_t threads[THREADS];
    size_t before, after, total;
    void *wrong;

    context = device_open();
    NEED(cuMemAlloc(&handed_over[0], 1));
    NEED(cuMemFree(handed_over[0]));
    NEED(cuMemGetInfo(&before, &total));
    for (uintptr_t i = 0; i < THREADS; i++)
        NEED(pthread_create(&threads[i], NULL, work, (void *)i));
    for (int i = 0; i < THREADS; i++) {
        NEED(pthread_join(threads[i], &wrong));
        say("thread %d: wrong words %u", i, (unsigned)(uintptr_t)wrong);
    }
    for (int i = 0; i < THREADS; i++)
        NEED(cuMemFree(handed_over[i]));
    NEED(cuMemGetInfo(&after, &total));
    say("all came back: %d", after + (4 << 20) >= before);
    say("violations: %u", sim_violations());
    return 0;
}
