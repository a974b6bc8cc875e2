/* Programs that each setting which a report may advise is of use for, and some that it is not: see
 * test_advice.py. */
#include <stdlib.h>

#include "tests/common/device.h"
#include "tests/common/rules_module.h"
#include "tests/common/say.h"

#define MIB ((size_t)1 << 20)

static CUdeviceptr get(size_t bytes)
{
    CUdeviceptr p = 0;

    (void)cuMemAlloc(&p, bytes);
    return p;
}

/* Frees and allocates in turns, with work that uses the memory. */
static void turns(unsigned n, size_t bytes)
{
    for (unsigned i = 0; i < n; i++) {
        CUdeviceptr p = get(bytes);

        launch_fill(NULL, p, 1024, i);
        OK(cuMemFree(p));
    }
}

/* The same where a free could be seen not to wait. */
static void visible(const char *why)
{
    CUcontext other, first;
    CUdeviceptr managed;
    void *host;

    if (!strcmp(why, "pinned")) {
        OK(cuMemHostAlloc(&host, 4096, 0));
    } else if (!strcmp(why, "managed")) {
        OK(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
    } else {
        OK(cuCtxGetCurrent(&first));
        OK(cuCtxCreate(&other, NULL, 0, 0));
        OK(cuCtxSetCurrent(first));
    }
    turns(100, MIB);
}

/* So much in all, of blocks of 32 MiB, and then of other ones after the first half was freed. */
static void fill_up(unsigned mib)
{
    enum { MOST = 64 };
    CUdeviceptr blocks[MOST] = {0};
    unsigned n = mib / 32 < MOST ? mib / 32 : MOST;

    for (unsigned i = 0; i < n; i++)
        blocks[i] = get(32 * MIB);
    for (unsigned i = 0; i < n / 2; i++) {
        if (blocks[i])
            OK(cuMemFree(blocks[i]));
    }
    turns(20, 64 * 1024);
}

/* All of so many blocks at a time, again and again. */
static void at_once(unsigned n, unsigned n_blocks, size_t bytes)
{
    CUdeviceptr blocks[64];

    for (unsigned k = 0; k < n; k++) {
        for (unsigned i = 0; i < n_blocks; i++) {
            blocks[i] = get(bytes);
            launch_fill(NULL, blocks[i], 1024, i);
        }
        for (unsigned i = 0; i < n_blocks; i++)
            OK(cuMemFree(blocks[i]));
    }
}

/* Blocks of a size that never comes again. */
static void growing(unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        OK(cuMemFree(get((i + 1) * MIB)));
}

static void only_at_the_end(void)
{
    CUdeviceptr blocks[32];

    for (unsigned i = 0; i < 32; i++)
        blocks[i] = get(MIB);
    for (unsigned i = 0; i < 32; i++)
        OK(cuMemFree(blocks[i]));
}

static CUdeviceptr get_in_module(size_t bytes)
{
    CUdeviceptr p;

    OK(module_allocate(&p, bytes));
    return p;
}

static void exported(void)
{
    for (unsigned i = 0; i < 100; i++)
        OK(cuMemFree(get_in_module(MIB)));
}

/* Iterations of launches on a stream of the program's own. */
static void iterations(unsigned n)
{
    CUdeviceptr p = get(MIB);
    CUstream stream;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; i < n; i++) {
        for (unsigned k = 0; k < 20; k++)
            launch_fill(stream, p, 1024, k);
        OK(cuStreamSynchronize(stream));
    }
    OK(cuMemFree(p));
}

/* What an iteration begins with is always the same, what follows hardly ever. */
static void varied_ends(unsigned n)
{
    CUdeviceptr p = get(MIB);
    uint32_t state = 1;

    for (unsigned i = 0; i < n; i++) {
        for (unsigned k = 0; k < 100; k++)
            launch_fill(NULL, p, 1024, k);
        for (unsigned k = 0; k < 100; k++) {
            state = state * 1664525 + 1013904223;
            if ((state >> 16) % 16)
                launch_fill(NULL, p, 1024, k);
            else
                OK(cuMemsetD32Async(p, k, 64, NULL));
        }
        OK(cuCtxSynchronize());
    }
    OK(cuMemFree(p));
}

int main(int argc, char **argv)
{
    const char *part = argc > 1 ? argv[1] : "", *word = argc > 2 ? argv[2] : "";

    device_open();
    if (!strcmp(part, "turns"))
        turns(100, MIB);
    else if (!strcmp(part, "visible"))
        visible(word);
    else if (!strcmp(part, "fill"))
        fill_up((unsigned)atoi(word));
    else if (!strcmp(part, "at_once"))
        at_once(20, 8, (unsigned)atoi(word) * MIB);
    else if (!strcmp(part, "growing"))
        growing(100);
    else if (!strcmp(part, "end"))
        only_at_the_end();
    else if (!strcmp(part, "exported"))
        exported();
    else if (!strcmp(part, "iterations"))
        iterations(200);
    else if (!strcmp(part, "ends"))
        varied_ends(300);
    else
        return 97;
    OK(cuCtxSynchronize());
    say("done");
    return 0;
}
