/* crowds PART N: more of a thing alive at once than anybody has use for: contexts, blocks. */
#include <stdint.h>
#include <stdlib.h>

#include <cuda.h>

#include "tests/common/context.h"
#include "tests/common/say.h"

#define BYTES      8192
#define ITERATIONS 4u

static CUdevice device;
static CUcontext primary;
static unsigned n;

static void *table_of(size_t bytes_each)
{
    void *table = calloc(n, bytes_each);

    OK(!table);
    return table;
}

/* --- contexts --- */

struct life {
    CUcontext context;
    CUstream stream;
    CUdeviceptr kept;
};

static void begin(struct life *life, unsigned number)
{
    OK(cuCtxCreate(&life->context, NULL, 0, device));
    OK(cuMemAlloc(&life->kept, BYTES));
    OK(cuMemsetD8(life->kept, (unsigned char)number, BYTES));
    OK(cuStreamCreate(&life->stream, number % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
    OK(cuCtxPopCurrent(&life->context));
}

/* Memory that is used on the stream is freed at once, and the next one is on another stream. */
static void live(struct life *life, unsigned iteration)
{
    CUdeviceptr p;

    OK(cuCtxSetCurrent(life->context));
    OK(cuMemAlloc(&p, BYTES));
    OK(cuMemcpyDtoDAsync(p, life->kept, BYTES, life->stream));
    OK(cuMemcpyDtoDAsync(life->kept, p, BYTES, life->stream));
    OK(cuMemFree(p));
    OK(cuMemAlloc(&p, BYTES));
    OK(cuMemsetD8Async(p, 0xff, BYTES, NULL));
    OK(cuMemFree(p));
    if (iteration % 3 == 0)
        OK(cuStreamSynchronize(life->stream));
}

static unsigned count_wrong(struct life *life, unsigned number)
{
    unsigned char bytes[BYTES];
    unsigned wrong = 0;

    OK(cuCtxSetCurrent(life->context));
    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH(bytes, life->kept, BYTES));
    for (unsigned i = 0; i < BYTES; i++)
        wrong += bytes[i] != (unsigned char)number;
    return wrong;
}

static void contexts(void)
{
    struct life *lives = table_of(sizeof(*lives));
    unsigned wrong = 0;

    for (unsigned i = 0; i < n; i++)
        begin(&lives[i], i);
    for (unsigned iteration = 0; iteration < ITERATIONS; iteration++) {
        for (unsigned i = 0; i < n; i++)
            live(&lives[i], iteration);
    }
    for (unsigned i = 0; i < n; i++)
        wrong += count_wrong(&lives[i], i);
    say("wrong bytes: %u", wrong);
    for (unsigned i = 0; i < n; i++)
        OK(cuCtxDestroy(lives[(i * 7 + 3) % n].context)); /* n is no multiple of 7 */
    free(lives);
}

/* --- blocks --- */

static unsigned chance(unsigned below)
{
    static uint64_t state = 1;

    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)((state >> 33) % below);
}

static void shuffle(CUdeviceptr *blocks)
{
    for (unsigned i = n - 1; i; i--) {
        unsigned j = chance(i + 1);
        CUdeviceptr other = blocks[i];

        blocks[i] = blocks[j];
        blocks[j] = other;
    }
}

/* What is asked of some of the blocks before and after they are freed, with another context
 * current. */
static void free_oddly(CUdeviceptr block, unsigned counts[3], CUcontext other)
{
    size_t bytes;
    CUdeviceptr base;

    counts[0] += cuMemFree(block + 8) == CUDA_ERROR_INVALID_VALUE;
    OK(cuCtxSetCurrent(other));
    OK(cuMemFree(block));
    OK(cuCtxSetCurrent(primary));
    counts[1] += cuMemFree(block) == CUDA_ERROR_INVALID_VALUE;
    counts[2] += cuMemGetAddressRange(&base, &bytes, block) != CUDA_SUCCESS;
}

static void blocks(void)
{
    CUdeviceptr *blocks = table_of(sizeof(*blocks));
    unsigned counts[3] = {0};
    CUcontext other;

    for (unsigned i = 0; i < n; i++)
        OK(cuMemAlloc(&blocks[i], 1 + i % 512));
    shuffle(blocks);
    OK(cuCtxCreate(&other, NULL, 0, device));
    OK(cuCtxSetCurrent(primary));
    for (unsigned i = 0; i < n; i++) {
        if (i % 1000 == 0)
            free_oddly(blocks[i], counts, other);
        else
            OK(cuMemFree(blocks[i]));
    }
    say("refused: inside %u, twice %u, range %u", counts[0], counts[1], counts[2]);
    free(blocks);
}

int main(int argc, char **argv)
{
    OK(argc != 3);
    n = (unsigned)atol(argv[2]);
    primary = context_open();
    OK(cuDeviceGet(&device, 0));
    if (!strcmp(argv[1], "contexts"))
        contexts();
    else if (!strcmp(argv[1], "blocks"))
        blocks();
    else
        OK(97);
    return 0;
}
