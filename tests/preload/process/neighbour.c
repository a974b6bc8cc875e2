/* Another process needs room on the card while the program frees and allocates what it has kept:
 *     neighbour BYTES [threads]   blocks of so many bytes, in one thread or in four
 * What the other process gets is printed, and whether what the program has is as it was. */
#include <pthread.h>
#include <stdlib.h>

#include "tests/common/device.h"
#include "tests/common/say.h"

#define MIB        ((size_t)1 << 20)
#define BLOCK      (48 * MIB)
#define N          16 /* of 1 GiB */
#define STEP       (8 * MIB)
#define MOST_TIMES 40    /* on a busy machine what is kept does not go back at the first look */
#define FEW        1000  /* pairs */
#define MANY       10000 /* pairs: more than pass between two looks at the card */
#define N_THREADS  4

static CUcontext context;
static size_t pair_bytes, taken;

static size_t room(void)
{
    size_t free_bytes, total_bytes;

    OK(cuMemGetInfo(&free_bytes, &total_bytes));
    return free_bytes;
}

/* The program has most of the card in turns, and frees it. */
static void churn(void)
{
    CUdeviceptr p[N];

    for (unsigned turn = 0; turn < 3; turn++) {
        for (unsigned i = 0; i < N; i++)
            OK(cuMemAlloc(&p[i], BLOCK));
        for (unsigned i = 0; i < N; i++) {
            launch_fill(NULL, p[i], 1000, i);
            OK(cuMemFree(p[i]));
        }
    }
}

static void *turns(void *pairs)
{
    unsigned n = *(const unsigned *)pairs;
    CUdeviceptr p;

    OK(cuCtxSetCurrent(context));
    for (unsigned i = 0; i < n; i++) {
        OK(cuMemAlloc(&p, pair_bytes));
        if (i % 16 == 0)
            launch_fill(NULL, p, 16, i);
        OK(cuMemFree(p));
    }
    return NULL;
}

static void turns_in_threads(unsigned n)
{
    pthread_t threads[N_THREADS];

    for (unsigned i = 0; i < N_THREADS; i++)
        OK(pthread_create(&threads[i], NULL, turns, &n));
    for (unsigned i = 0; i < N_THREADS; i++)
        OK(pthread_join(threads[i], NULL));
}

/* As much as there is, but for what the program needs to go on. */
static void take_up_to(size_t most)
{
    while (taken + STEP <= most && sim_neighbour_take(0, STEP))
        taken += STEP;
}

int main(int argc, char **argv)
{
    bool in_threads = argc > 2;
    unsigned few = FEW, many = MANY;
    size_t most;
    CUdeviceptr stays;

    context = device_open();
    pair_bytes = argc > 1 ? strtoull(argv[1], NULL, 0) : MIB;
    OK(cuMemAlloc(&stays, MIB));
    launch_fill(NULL, stays, 1000, 7);
    most = room() - N_THREADS * pair_bytes - 64 * MIB;
    churn();
    (void)turns(&few);
    take_up_to(most);
    for (unsigned i = 0; !i || (i < MOST_TIMES && most - taken >= STEP); i++) {
        if (in_threads)
            turns_in_threads(many);
        else
            (void)turns(&many);
        take_up_to(most);
    }
    say("the neighbour misses %zu MiB", (most - taken) / MIB / (STEP / MIB) * (STEP / MIB));
    sim_neighbour_give(0, taken);
    churn();
    (void)turns(&few);
    say("wrong words: %u", count_wrong(stays, 1000, 7));
    OK(cuMemFree(stays));
    return 0;
}
