/* Memory is freed while a kernel on some stream still writes it: the next owner's bytes stay. */
#include <stdlib.h>

#include "tests/common/device.h"
#include "tests/common/say.h"

#define WORDS  20000
#define BYTES  (WORDS * sizeof(uint32_t))
#define ROUNDS 30

/* The old owner's kernel on `old`, the new owner's on `next`, checked on the new owner's stream. */
static void round_of(CUstream old, CUstream next, CUdeviceptr result, uint32_t round)
{
    CUdeviceptr first, second;

    NEED(cuMemAlloc(&first, BYTES));
    launch_fill(old, first, WORDS, 1000 * round);
    launch_fill(old, first, WORDS, 1000 * round + 7);
    NEED(cuMemFree(first));
    NEED(cuMemAlloc(&second, BYTES));
    launch_fill(next, second, WORDS, 5000 * round);
    launch_check(next, second, WORDS, 5000 * round, result);
    NEED(cuMemFree(second));
}

/* As above, the new owner being a blocking call of the host. */
static uint32_t host_round(CUstream old, uint32_t round)
{
    CUdeviceptr first, second;
    uint32_t *words = malloc(BYTES), wrong;

    if (words == NULL)
        _exit(98);
    for (uint32_t i = 0; i < WORDS; i++)
        words[i] = 9000 * round + i;
    NEED(cuMemAlloc(&first, BYTES));
    launch_fill(old, first, WORDS, 77);
    NEED(cuMemFree(first));
    NEED(cuMemAlloc(&second, BYTES));
    NEED(cuMemcpyHtoD(second, words, BYTES));
    NEED(cuStreamSynchronize(old));
    wrong = count_wrong(second, WORDS, 9000 * round);
    NEED(cuMemFree(second));
    free(words);
    return wrong;
}

int main(int argc, char **argv)
{
    CUstream streams[4] = {NULL, CU_STREAM_LEGACY};
    bool only_blocking = argc > 1 && strcmp(argv[1], "blocking") == 0;
    CUdeviceptr result;
    uint32_t wrong = 0;

    device_open();
    NEED(cuMemAlloc(&result, sizeof(wrong)));
    NEED(cuMemsetD32(result, 0, 1));
    for (int i = 2; i < 4; i++)
        NEED(cuStreamCreate(&streams[i],
                            only_blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
    for (uint32_t round = 0; round < ROUNDS; round++)
        round_of(streams[rand() % 4], streams[rand() % 4], result, round);
    NEED(cuCtxSynchronize());
    NEED(cuMemcpyDtoH(&wrong, result, sizeof(wrong)));
    say("wrong words on the device: %u", wrong);
    wrong = 0;
    for (uint32_t round = 0; round < ROUNDS; round++)
        wrong += host_round(streams[rand() % 4], round);
    say("wrong words on the host: %u", wrong);
    NEED(cuMemFree(result));
    say("violations: %u", sim_violations());
    return 0;
}
