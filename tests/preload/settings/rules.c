/* Allocations that differ in size, thread, calling module and number, for rules to tell apart. With
 * a number as argument, the program fails unless that one has an IPC handle, as the driver's
 * has. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdlib.h>

#include "tests/common/device.h"
#include "tests/common/rules_module.h"
#include "tests/common/say.h"

#define BLOCKS 12u

static CUcontext context;
static CUdeviceptr blocks[BLOCKS + 1]; /* by the number of the allocation, from 1 */
static size_t sizes[BLOCKS + 1];
static unsigned n_blocks;

static void note(CUdeviceptr block, size_t bytes)
{
    sizes[++n_blocks] = bytes;
    blocks[n_blocks] = block;
}

static void allocate(size_t bytes)
{
    CUdeviceptr block;

    NEED(cuMemAlloc(&block, bytes));
    note(block, bytes);
}

static void *work(void *unused)
{
    (void)unused;
    NEED(pthread_setname_np(pthread_self(), "worker 1"));
    NEED(cuCtxSetCurrent(context));
    allocate(4096);
    allocate(1 << 20);
    return NULL;
}

int main(int argc, char **argv)
{
    unsigned exported = argc > 1 ? (unsigned)atoi(argv[1]) : 0;
    CUipcMemHandle handle;
    CUdeviceptr block;
    pthread_t thread;

    context = device_open();
    for (size_t bytes = 4096; bytes <= 1 << 19; bytes *= 2) /* numbers 1 to 8 */
        allocate(bytes);
    NEED(pthread_create(&thread, NULL, work, NULL)); /* 9 and 10 */
    NEED(pthread_join(thread, NULL));
    NEED(module_allocate(&block, 4096)); /* 11 */
    note(block, 4096);
    allocate(1 << 20); /* 12 */
    for (unsigned i = 1; i <= BLOCKS; i++) {
        uint32_t words = (uint32_t)(sizes[i] / sizeof(uint32_t));

        launch_fill(NULL, blocks[i], words, 1000 * i);
        say("block %u: wrong words: %u", i, count_wrong(blocks[i], words, 1000 * i));
    }
    if (exported && cuIpcGetMemHandle(&handle, blocks[exported]) != CUDA_SUCCESS)
        return 1;
    for (unsigned i = 1; i <= BLOCKS; i++)
        NEED(cuMemFree(blocks[i]));
    return 0;
}
