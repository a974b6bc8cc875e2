/* Two threads retain the primary context at the same time, when nobody has yet.
 *     retains both       what one of them lets go stays the other's, with all its memory
 *     retains second     a second context comes to life while freed memory is still in use
 *     retains neither    they let it go at the same time, too, and it is retained again
 *     retains anew       one retains it, and uses it, while the last one lets it go
 *     retains often      three do all that over and over again, as tasks of their own */
#include <pthread.h>
#include <stdatomic.h>

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

static struct {
    pthread_t thread;
    bool is_started;
    atomic_bool has_memory, may_end;
} user;

static void get_filled(CUdeviceptr *blocks, unsigned value)
{
    for (unsigned i = 0; i < BLOCKS; i++) {
        blocks[i] = get(BYTES);
        OK(cuMemsetD32(blocks[i], value + i, WORDS));
    }
}

static unsigned free_filled(const CUdeviceptr *blocks, unsigned value)
{
    unsigned n_wrong = 0;
    uint32_t word;

    for (unsigned i = 0; i < BLOCKS; i++) {
        n_wrong += cuMemcpyDtoH(&word, blocks[i], sizeof(word)) != CUDA_SUCCESS;
        n_wrong += word != value + i;
        n_wrong += cuMemFree(blocks[i]) != CUDA_SUCCESS;
    }
    return n_wrong;
}

static void *use(void *unused)
{
    CUdeviceptr before[BLOCKS], after[BLOCKS];
    CUcontext context;

    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    get_filled(before, 0);
    atomic_store(&user.has_memory, true);
    while (!atomic_load(&user.may_end))
        (void)usleep(1000);
    get_filled(after, 1000);
    say("wrong: %u %u", free_filled(before, 0), free_filled(after, 1000));
    SAY_CODE("its user lets go", cuDevicePrimaryCtxRelease(0));
    return unused;
}

/* In the middle of the call that lets go: does it get that far until it is over? */
static void start_user(void)
{
    if (user.is_started)
        return;
    user.is_started = true;
    OK(pthread_create(&user.thread, NULL, use, NULL));
    for (unsigned i = 0; i < 100 && !atomic_load(&user.has_memory); i++)
        (void)usleep(1000);
}

static void anew(void)
{
    for (unsigned i = 0; i < 3; i++)
        OK(cuMemFree(get(BYTES)));
    OK(cuDevicePrimaryCtxRelease(0));
    sim_inside("cuCtxSynchronize", false, start_user);
    SAY_CODE("the last one lets go", cuDevicePrimaryCtxRelease(0));
    start_user();
    atomic_store(&user.may_end, true);
    OK(pthread_join(user.thread, NULL));
    sim_inside(NULL, false, NULL);
    SAY_CODE("nobody has it", cuDevicePrimaryCtxRelease(0));
}

#define THREADS 3u
#define TASKS   40u

static unsigned task(uint32_t value)
{
    CUdeviceptr blocks[6];
    unsigned n_wrong = 0;
    CUcontext context;
    CUstream stream;
    uint32_t word;

    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, value % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
    for (unsigned i = 0; i < 6; i++) {
        blocks[i] = get(BYTES << i);
        OK(cuMemsetD32Async(blocks[i], value + i, WORDS, stream));
    }
    OK(cuStreamSynchronize(stream));
    for (unsigned i = 0; i < 6; i++) {
        OK(cuMemcpyDtoH(&word, blocks[i], sizeof(word)));
        n_wrong += word != value + i;
        n_wrong += cuMemFree(blocks[i]) != CUDA_SUCCESS;
    }
    OK(cuStreamDestroy(stream));
    OK(cuDevicePrimaryCtxRelease(0));
    OK(cuCtxSetCurrent(NULL));
    return n_wrong;
}

static void *do_tasks(void *number)
{
    uintptr_t n_wrong = 0;

    for (unsigned i = 0; i < TASKS; i++)
        n_wrong += task(1000 * (uint32_t)(uintptr_t)number + 10 * i);
    return (void *)n_wrong;
}

static void often(void)
{
    pthread_t threads[THREADS];
    void *n_wrong;

    OK(cuInit(0));
    for (uintptr_t i = 0; i < THREADS; i++)
        OK(pthread_create(&threads[i], NULL, do_tasks, (void *)i));
    for (unsigned i = 0; i < THREADS; i++) {
        OK(pthread_join(threads[i], &n_wrong));
        say("wrong: %u", (unsigned)(uintptr_t)n_wrong);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "often") == 0) {
        often();
        return 0;
    }
    both_retain();
    if (argc > 1 && strcmp(argv[1], "second") == 0)
        second();
    else if (argc > 1 && strcmp(argv[1], "neither") == 0)
        neither();
    else if (argc > 1 && strcmp(argv[1], "anew") == 0)
        anew();
    else
        both();
    say("violations: %u", sim_violations());
    return 0;
}
