/* Memory is freed while a kernel on some stream still writes it: the next owner's bytes stay. */
#include <stdlib.h>

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
    OK(cuMemFree(result));
    say("violations: %u", sim_violations());
    return 0;
}
