/* Two threads retain the primary context at the same time, when nobody has yet.
 *     retains both       what one of them lets go stays the other's, with all its memory
 *     retains second     a second context comes to life while freed memory is still in use
 *     retains neither    they let it go at the same time, too, and it is retained again */
#include <pthread.h>

#include "tests/common/device.h"
#include "tests/common/say.h"

#define BLOCKS 100u /* beyond the first 64, small ones are cut from slabs */
#define WORDS  1024u
#define BYTES  (WORDS * sizeof(uint32_t))

static bool is_retained;

static void *retain(void *unused)
{
    CUcontext context;

    OK(cuDevicePrimaryCtxRetain(&context, 0));
    return unused;
}

/* By another thread: in the middle of the first one's call, if that asks the driver so much. */
static void retain_elsewhere(void)
{
    pthread_t thread;

    if (is_retained)
        return;
    is_retained = true;
    OK(pthread_create(&thread, NULL, retain, NULL));
    OK(pthread_join(thread, NULL));
}

static void both_retain(void)
{
    sim_inside("cuDeviceGetName", false, retain_elsewhere);
    (void)device_open();
    sim_inside(NULL, false, NULL);
    retain_elsewhere();
}

static CUdeviceptr get(size_t bytes)
{
    CUdeviceptr p;

    OK(cuMemAlloc(&p, bytes));
    return p;
}

static void both(void)
{
    CUdeviceptr blocks[BLOCKS];
    unsigned n_wrong = 0, n_refused = 0;

    for (unsigned i = 0; i < BLOCKS; i++) {
        blocks[i] = get(BYTES);
        launch_fill(NULL, blocks[i], WORDS, i);
    }
    SAY_CODE("one lets go", cuDevicePrimaryCtxRelease(0));
    for (unsigned i = 0; i < BLOCKS; i++)
        launch_fill(NULL, get(BYTES), WORDS, ~i);
    for (unsigned i = 0; i < BLOCKS; i++)
        n_wrong += count_wrong(blocks[i], WORDS, i);
    for (unsigned i = 0; i < BLOCKS; i++)
        n_refused += cuMemFree(blocks[i]) != CUDA_SUCCESS;
    say("wrong words: %u, frees refused: %u", n_wrong, n_refused);
    SAY_CODE("the other lets go", cuDevicePrimaryCtxRelease(0));
    SAY_CODE("nobody has it", cuDevicePrimaryCtxRelease(0));
}

static void second(void)
{
    CUcontext primary, context;
    CUdeviceptr p;
    CUstream one, two;

    OK(cuCtxGetCurrent(&primary));
    OK(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&two, CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; i < 2; i++) /* from here on, what is freed is kept */
        OK(cuMemFree(get(64)));
    for (unsigned i = 0; i < 4; i++) {
        p = get(BYTES);
        launch_fill(one, p, WORDS, i);
        OK(cuMemFree(p));
        if (i == 2)
            OK(cuCtxCreate(&context, NULL, 0, 0));
        OK(cuCtxSetCurrent(primary));
        p = get(BYTES);
        launch_fill(two, p, WORDS, 100 + i);
        OK(cuStreamSynchronize(two));
        OK(cuStreamSynchronize(one));
        say("wrong words: %u", count_wrong(p, WORDS, 100 + i));
        OK(cuMemFree(p));
    }
}

static bool is_released;

static void *release(void *unused)
{
    OK(cuDevicePrimaryCtxRelease(0));
    return unused;
}

static void release_elsewhere(void)
{
    pthread_t thread;

    if (is_released)
        return;
    is_released = true;
    OK(pthread_create(&thread, NULL, release, NULL));
    OK(pthread_join(thread, NULL));
}

/* A few blocks are kept, and one is not freed. */
static void neither(void)
{
    CUdeviceptr blocks[BLOCKS], left;
    uint32_t n_wrong = 0;

    for (unsigned turn = 0; turn < 3; turn++) {
        for (unsigned i = 0; i < BLOCKS; i++)
            blocks[i] = get(BYTES << i % 8);
        for (unsigned i = 0; i < BLOCKS; i++)
            launch_fill(NULL, blocks[i], WORDS, i);
        for (unsigned i = 0; i < BLOCKS; i++)
            n_wrong += count_wrong(blocks[i], WORDS, i);
        for (unsigned i = 0; i < BLOCKS; i++)
            OK(cuMemFree(blocks[i]));
        left = get(BYTES);
        is_released = false;
        sim_inside("cuDevicePrimaryCtxRelease_v2", false, release_elsewhere);
        SAY_CODE("both let go", cuDevicePrimaryCtxRelease(0));
        sim_inside(NULL, false, NULL);
        is_retained = false;
        both_retain();
        SAY_CODE("what went with it", cuMemFree(left));
    }
    say("wrong words: %u", n_wrong);
}

int main(int argc, char **argv)
{
    both_retain();
    if (argc > 1 && strcmp(argv[1], "second") == 0)
        second();
    else if (argc > 1 && strcmp(argv[1], "neither") == 0)
        neither();
    else
        both();
    say("violations: %u", sim_violations());
    return 0;
}
