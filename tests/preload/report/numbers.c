/* A random program that counts what it does itself, so that every form of a report can be held
 * against it: see test_numbers.py. At its end it waits until its standard input is closed. */
#include <pthread.h>
#include <stdlib.h>

#include "tests/common/chance.h"
#include "tests/common/device.h"
#include "tests/common/say.h"

#define MIB     ((size_t)1 << 20)
#define N_STEPS 600u
#define N_LIVE  24u
#define N_LEFT  3u /* never freed */

static struct {
    CUdeviceptr address;
    size_t bytes;
} live[N_LIVE];

static struct {
    unsigned allocs, frees;
    size_t bytes, now, peak;
} counts;

static void take(unsigned i, size_t bytes)
{
    OK(cuMemAlloc(&live[i].address, bytes));
    live[i].bytes = bytes;
    counts.allocs++;
    counts.bytes += bytes;
    counts.now += bytes;
    counts.peak = counts.now > counts.peak ? counts.now : counts.peak;
}

static void give(unsigned i)
{
    OK(cuMemFree(live[i].address));
    counts.frees++;
    counts.now -= live[i].bytes;
    live[i].bytes = 0;
}

/* Small ones, and whole chunks of the driver, so that it is known what they take of the card. */
static size_t choose(uint64_t *state)
{
    return chance_below(state, 2) ? 256 + chance_below(state, 60000)
                                  : 2 * MIB * (1 + chance_below(state, 6));
}

static void step(uint64_t *state)
{
    unsigned i = chance_below(state, N_LIVE);

    if (live[i].bytes) {
        if (chance_below(state, 3) == 0)
            launch_fill(NULL, live[i].address, 16, 1);
        give(i);
    } else {
        take(i, choose(state));
    }
}

/* Another thread has the most that there ever is, and what it leaves is freed here. */
static void *take_more(void *data)
{
    uint64_t state = *(uint64_t *)data;
    CUcontext context;

    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    for (unsigned i = 0; i < N_LIVE; i++) {
        if (!live[i].bytes)
            take(i, choose(&state));
    }
    for (unsigned i = 0; i < N_LIVE; i += 2)
        give(i);
    OK(cuDevicePrimaryCtxRelease(0));
    return NULL;
}

int main(int argc, char **argv)
{
    uint64_t state = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    size_t before, most;
    pthread_t thread;

    device_open();
    before = sim_bytes_of_card(0, NULL);
    for (unsigned i = 0; i < N_STEPS; i++) {
        step(&state);
        if (i == N_STEPS / 2) {
            OK(pthread_create(&thread, NULL, take_more, &state));
            OK(pthread_join(thread, NULL));
        }
    }
    OK(cuCtxSynchronize());
    for (unsigned i = 0, n = 0; i < N_LIVE; i++) {
        if (live[i].bytes && n++ >= N_LEFT)
            give(i);
    }
    (void)sim_bytes_of_card(0, &most);
    say("%u %u %zu %zu %zu %zu", counts.allocs, counts.frees, counts.bytes, counts.peak, counts.now,
        most - before);
    say("ready");
    while (getchar() != EOF)
        ;
    return 0;
}
