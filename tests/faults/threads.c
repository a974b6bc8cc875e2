/* Threads that allocate and free, of which some end in the middle: by return, pthread_exit, or
 * cancelled where the program allows it. Arguments: threads, steps, seed.
 *
 * Prints the same natively and preloaded, unless a call failed that the program made: those codes
 * are counted apart. */
#include <cuda.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "sim.h"

#define MOST_THREADS 32
#define N_HELD       6

static CUcontext context;
static unsigned n_steps;
static _Atomic unsigned n_failed;

struct worker {
    pthread_t thread;
    unsigned number, seed;
};

static bool worked(CUresult code)
{
    n_failed += code != CUDA_SUCCESS;
    return code == CUDA_SUCCESS;
}

/* What the thread holds goes with it, however it ends. */
static void give_back(void *held_blocks)
{
    CUdeviceptr *held = held_blocks;

    for (unsigned i = 0; i < N_HELD; i++) {
        if (held[i] && !worked(cuMemFree(held[i])))
            (void)worked(cuMemFree(held[i])); /* one fault a run: again works */
    }
}

static void turn(CUdeviceptr *held, unsigned *seed, CUstream stream)
{
    unsigned i = (unsigned)rand_r(seed) % N_HELD;

    if (held[i]) {
        if (worked(cuMemFree(held[i])))
            held[i] = 0;
        return;
    }
    if (!worked(cuMemAlloc(&held[i], 256u << rand_r(seed) % 12)))
        held[i] = 0;
    else if (!worked(cuMemsetD8Async(held[i], 5, 256, stream)))
        n_failed++;
}

static void *work(void *arguments)
{
    struct worker *me = arguments;
    CUdeviceptr held[N_HELD] = {0};
    CUstream stream = NULL;
    int old;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
    if (!worked(cuCtxSetCurrent(context)))
        return NULL;
    pthread_cleanup_push(give_back, held);
    if (me->number % 3 == 1 && !worked(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)))
        stream = NULL;
    for (unsigned step = 0; step < n_steps; step++) {
        turn(held, &me->seed, me->number % 3 == 2 ? CU_STREAM_PER_THREAD : stream);
        if (me->number % 4 == 1 && step == n_steps / 2)
            pthread_exit(NULL);
        if (me->number % 4 == 2) { /* may be cancelled here and nowhere else */
            pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old);
            pthread_testcancel();
            pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
        }
    }
    pthread_cleanup_pop(1);
    return NULL;
}

int main(int argc, char **argv)
{
    static struct worker workers[MOST_THREADS];
    unsigned n_threads = argc > 1 ? (unsigned)atoi(argv[1]) : 4,
             seed = argc > 3 ? atoi(argv[3]) : 1;

    n_steps = argc > 2 ? (unsigned)atoi(argv[2]) : 200;
    if (n_threads > MOST_THREADS || cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) ||
        cuCtxSetCurrent(context)) {
        printf("no start\n");
        return 0;
    }
    for (unsigned i = 0; i < n_threads; i++) {
        workers[i].number = i;
        workers[i].seed = seed * 100 + i;
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
            return 98;
    }
    usleep(2000);
    for (unsigned i = 2; i < n_threads; i += 4)
        pthread_cancel(workers[i].thread);
    for (unsigned i = 0; i < n_threads; i++)
        pthread_join(workers[i].thread, NULL);
    printf("violations: %u\n", sim_violations());
    fprintf(stderr, "failed calls: %u\n", n_failed);
    return 3;
}
