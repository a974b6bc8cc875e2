/* Memory is freed while a kernel on some stream still writes it: the next owner's bytes stay. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/common/device.h"
#include "tests/common/say.h"

#define WORDS      20000
#define BYTES      (WORDS * sizeof(uint32_t))
#define ITERATIONS 30

static bool early; /* kernels of new owners may start before the old owner's has ended */

static void launch_fill_early(CUstream stream, CUdeviceptr p, uint32_t n, uint32_t value)
{
    void *args[] = {&p, &n, &value};
    CUlaunchAttribute attributes[] = {
        {.id = CU_LAUNCH_ATTRIBUTE_PRIORITY},
        {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
         .value.programmaticStreamSerializationAllowed = 1},
    };
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, stream, attributes, 2};

    OK(cuLaunchKernelEx(&config, kernel_fill, args, NULL));
}

/* The old owner's kernel on `old`, the new owner's on `next`, checked on the new owner's stream. */
static void iteration_of(CUstream old, CUstream next, CUdeviceptr result, uint32_t iteration)
{
    CUdeviceptr first, second;

    OK(cuMemAlloc(&first, BYTES));
    launch_fill(old, first, WORDS, 1000 * iteration);
    launch_fill(old, first, WORDS, 1000 * iteration + 7);
    OK(cuMemFree(first));
    OK(cuMemAlloc(&second, BYTES));
    (early ? launch_fill_early : launch_fill)(next, second, WORDS, 5000 * iteration);
    launch_check(next, second, WORDS, 5000 * iteration, result);
    OK(cuMemFree(second));
}

/* As above, the new owner being a blocking call of the host. */
static uint32_t host_iteration(CUstream old, uint32_t iteration)
{
    CUdeviceptr first, second;
    uint32_t *words = malloc(BYTES), wrong;

    if (words == NULL)
        _exit(98);
    for (uint32_t i = 0; i < WORDS; i++)
        words[i] = 9000 * iteration + i;
    OK(cuMemAlloc(&first, BYTES));
    launch_fill(old, first, WORDS, 77);
    OK(cuMemFree(first));
    OK(cuMemAlloc(&second, BYTES));
    OK(cuMemcpyHtoD(second, words, BYTES));
    OK(cuStreamSynchronize(old));
    wrong = count_wrong(second, WORDS, 9000 * iteration);
    OK(cuMemFree(second));
    free(words);
    return wrong;
}

/* A part of the primary context. */
static CUgreenCtx make_green(void)
{
    CUdevResource all, part;
    CUdevResourceDesc description;
    CUgreenCtx green;
    unsigned n_groups = 1;

    OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    OK(cuDevSmResourceSplitByCount(&part, &n_groups, &all, NULL, 0, 8));
    OK(cuDevResourceGenerateDesc(&description, &part, 1));
    OK(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    return green;
}

/* Each context has a default stream of its own: one that waited says nothing of the other. */
static uint32_t default_streams(void)
{
    CUcontext primary, inside;
    CUdeviceptr first, second, elsewhere;
    uint32_t wrong = 0;

    OK(cuCtxGetCurrent(&primary));
    OK(cuCtxFromGreenCtx(&inside, make_green()));
    OK(cuMemAlloc(&elsewhere, BYTES));
    for (uint32_t iteration = 0; iteration < ITERATIONS; iteration++) {
        OK(cuMemAlloc(&first, BYTES));
        OK(cuCtxSetCurrent(inside));
        launch_fill(NULL, first, WORDS, 1000 * iteration);
        OK(cuMemFree(first));
        OK(cuCtxSetCurrent(primary));
        launch_fill_early(NULL, elsewhere, WORDS, iteration);
        OK(cuMemAlloc(&second, BYTES));
        OK(cuCtxSetCurrent(inside));
        launch_fill_early(NULL, second, WORDS, 5000 * iteration);
        OK(cuStreamSynchronize(NULL));
        OK(cuCtxSetCurrent(primary));
        wrong += count_wrong(second, WORDS, 5000 * iteration);
        OK(cuMemFree(second));
    }
    return wrong;
}

static struct {
    pthread_t thread;
    CUdeviceptr block;
    atomic_bool is_on_the_way, may_end;
} freeing;

static void wait_inside(void)
{
    if (!pthread_equal(pthread_self(), freeing.thread) || atomic_load(&freeing.is_on_the_way))
        return;
    atomic_store(&freeing.is_on_the_way, true);
    while (!atomic_load(&freeing.may_end))
        (void)usleep(100);
}

static void *free_block(void *unused)
{
    freeing.thread = pthread_self();
    OK(cuMemFree(freeing.block));
    atomic_store(&freeing.is_on_the_way, true); /* without the library it asks for no stream */
    return unused;
}

/* One thread is in the middle of a free, as another one begins a capture, and frees, too. */
static uint32_t two_free(CUstream stream, CUstream captured, uint32_t iteration)
{
    CUdeviceptr first, second;
    CUgraph graph;
    pthread_t thread;
    uint32_t wrong;

    OK(cuMemAlloc(&freeing.block, BYTES / 2));
    OK(cuMemAlloc(&first, BYTES));
    OK(cuMemFree(first));
    OK(cuMemAlloc(&first, BYTES));
    launch_fill_early(stream, first, WORDS, iteration);
    launch_fill(stream, first, WORDS, 1000 * iteration);
    atomic_store(&freeing.is_on_the_way, false);
    atomic_store(&freeing.may_end, false);
    OK(pthread_create(&thread, NULL, free_block, NULL));
    while (!atomic_load(&freeing.is_on_the_way))
        (void)usleep(100);
    OK(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuStreamEndCapture(captured, &graph));
    OK(cuMemFree(first));
    OK(cuMemAlloc(&second, BYTES));
    launch_fill_early(stream, second, WORDS, 5000 * iteration);
    atomic_store(&freeing.may_end, true);
    OK(pthread_join(thread, NULL));
    OK(cuStreamSynchronize(stream));
    wrong = count_wrong(second, WORDS, 5000 * iteration);
    OK(cuMemFree(second));
    return wrong;
}

int main(int argc, char **argv)
{
    CUstream streams[4] = {NULL, CU_STREAM_LEGACY};
    bool only_blocking = argc > 1 && strcmp(argv[1], "blocking") == 0;
    bool in_green = argc > 1 && strcmp(argv[1], "green") == 0;
    CUdeviceptr result;
    uint32_t wrong = 0;

    early = argc > 1 && strcmp(argv[1], "early") == 0;
    if (early)
        sim_start_early();
    device_open();
    OK(cuMemAlloc(&result, sizeof(wrong)));
    OK(cuMemsetD32(result, 0, 1));
    for (int i = 2; i < 4; i++) {
        if (in_green)
            OK(cuGreenCtxStreamCreate(&streams[i], make_green(), CU_STREAM_NON_BLOCKING, 0));
        else
            OK(cuStreamCreate(&streams[i],
                              only_blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
    }
    for (uint32_t iteration = 0; iteration < ITERATIONS; iteration++)
        iteration_of(streams[rand() % 4], streams[rand() % 4], result, iteration);
    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH(&wrong, result, sizeof(wrong)));
    say("wrong words on the device: %u", wrong);
    wrong = 0;
    for (uint32_t iteration = 0; iteration < ITERATIONS; iteration++)
        wrong += host_iteration(streams[rand() % 4], iteration);
    say("wrong words on the host: %u", wrong);
    if (argc > 1 && strcmp(argv[1], "default-streams") == 0) {
        sim_start_early();
        say("wrong words on default streams: %u", default_streams());
    }
    if (argc > 1 && strcmp(argv[1], "two-free") == 0) {
        sim_start_early();
        sim_inside("cuStreamIsCapturing", false, wait_inside);
        wrong = 0;
        for (uint32_t iteration = 0; iteration < ITERATIONS; iteration++)
            wrong += two_free(streams[2], streams[3], iteration);
        say("wrong words of two threads: %u", wrong);
    }
    OK(cuMemFree(result));
    say("violations: %u", sim_violations());
    return 0;
}
