/* The programs of the fault tests: what a CUDA program does, in several mixtures, each call a step.
 *
 * What a program does next depends only on what its calls returned, so that natively and preloaded
 * it does the same. */
#include <stdlib.h>
#include <string.h>

#include "step.h"

#define N_BLOCKS 12u
#define MIB      (1024u * 1024u)

static struct step_block blocks[N_BLOCKS];

/* Sizes of all kinds; blocks come and go while streams work on them. */
static void mix(void)
{
    static const size_t sizes[] = {1, 512, 4000, 65536, MIB + 1, 700};
    CUstream streams[3] = {NULL};
    CUdeviceptr own = 0, base;
    size_t size, free_bytes, total_bytes;
    unsigned type;

    if (!step_open(0))
        return;
    for (unsigned iteration = 0; iteration < 3; iteration++) {
        if (iteration &&
            !STEP(cuStreamCreate, &streams[iteration], iteration > 1 ? CU_STREAM_NON_BLOCKING : 0))
            streams[iteration] = NULL;
        for (unsigned i = 0; i < 6; i++)
            step_alloc(&blocks[i + 6 * (iteration % 2)], sizes[i], streams[iteration],
                       100 * iteration + i);
        if (blocks[3].p) {
            STEP(cuMemGetAddressRange, &base, &size, blocks[3].p + 100);
            STEP(cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, blocks[3].p);
        }
        STEP(cuMemGetInfo, &free_bytes, &total_bytes);
        for (unsigned i = 0; i < N_BLOCKS; i += 1 + iteration)
            step_verify(&blocks[i], streams[iteration]);
        for (unsigned i = iteration; i < N_BLOCKS; i++)
            step_free(&blocks[i]);
        for (unsigned i = 0; i < iteration; i++) /* what is about to be overwritten */
            step_free(&blocks[i]);
    }
    if (STEP(cuMemAllocAsync, &own, 5000, streams[1]))
        STEP(cuMemFreeAsync, own, streams[1]);
    step_alloc(&blocks[0], 10000, streams[2], 7);
    step_alloc(&blocks[1], MIB, NULL, 8);
    for (unsigned i = 1; i < 3; i++) {
        if (streams[i])
            STEP(cuStreamDestroy, streams[i]);
    }
    step_free(&blocks[1]);
    if (STEP(cuCtxSynchronize))
        step_verify(&blocks[0], NULL);
    step_live(blocks, N_BLOCKS);
}

/* Two contexts, memory of both freed from either; the second is destroyed with blocks in it. */
static void contexts(void)
{
    CUcontext second = NULL, popped;
    CUdevice device = 0;

    if (!step_open(0))
        return;
    step_alloc(&blocks[0], 8000, NULL, 1);
    step_alloc(&blocks[1], 70000, NULL, 2);
    step_free(&blocks[0]);
    if (STEP(cuCtxCreate, &second, NULL, 0, device)) {
        for (unsigned i = 4; i < 8; i++) {
            if (STEP(cuMemAlloc, &blocks[i].p, 3000 * i))
                STEP(cuMemsetD8, blocks[i].p, 1, 3000);
            blocks[i].context = 2;
        }
        step_free(&blocks[1]); /* of the other context */
        step_free(&blocks[4]);
        if (STEP(cuCtxPopCurrent, &popped)) {
            step_free(&blocks[5]);
            step_alloc(&blocks[2], 9000, NULL, 3);
            step_verify(&blocks[2], NULL);
        }
        if (STEP(cuCtxDestroy, second))
            step_context_gone(blocks, N_BLOCKS, 2);
    }
    step_alloc(&blocks[3], 64, NULL, 4);
    step_verify(&blocks[2], NULL);
    step_live(blocks, N_BLOCKS);
}

/* The primary context goes, with blocks in it, and comes back. */
static void release(void)
{
    CUcontext context;
    CUdevice device = 0;

    if (!step_open(0))
        return;
    for (unsigned iteration = 0; iteration < 2; iteration++) {
        for (unsigned i = 0; i < 4; i++)
            step_alloc(&blocks[i], 5000 * (i + 1), CU_STREAM_PER_THREAD, i);
        step_free(&blocks[1]);
        step_verify(&blocks[2], CU_STREAM_PER_THREAD);
        if (STEP(cuDevicePrimaryCtxRelease, device)) {
            step_context_gone(blocks, N_BLOCKS, 0);
            step_print("held on the device: %zu", sim_bytes_in_use(0));
        }
        if (!STEP(cuDevicePrimaryCtxRetain, &context, device) || !STEP(cuCtxSetCurrent, context) ||
            !step_load())
            break;
    }
    if (STEP(cuDevicePrimaryCtxReset, device))
        step_context_gone(blocks, N_BLOCKS, 0);
    step_live(blocks, N_BLOCKS);
    step_print("held on the device: %zu", sim_bytes_in_use(0));
}

static void launch_graph(CUgraph graph, CUstream stream)
{
    CUgraphExec executable;

    if (STEP(cuGraphInstantiate, &executable, graph, 0)) {
        STEP(cuGraphLaunch, executable, stream);
        STEP(cuStreamSynchronize, stream);
        STEP(cuGraphExecDestroy, executable);
    }
    STEP(cuGraphDestroy, graph);
}

/* Allocations and frees while the program captures, relaxed and global, and after. */
static void capture(void)
{
    static const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_RELAXED,
                                                CU_STREAM_CAPTURE_MODE_RELAXED,
                                                CU_STREAM_CAPTURE_MODE_GLOBAL};
    CUstream stream = NULL;
    CUgraph graph;

    if (!step_open(0) || !STEP(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING))
        return;
    step_alloc(&blocks[0], 4096, stream, 5);
    for (unsigned i = 0; i < 3; i++) {
        bool relaxed = modes[i] == CU_STREAM_CAPTURE_MODE_RELAXED;

        step_alloc(&blocks[1], 4096, stream, 6);
        step_alloc(&blocks[2], 100000, stream, 7);
        if (!STEP(cuStreamBeginCapture, stream, modes[i])) {
            step_free(&blocks[1]);
            step_free(&blocks[2]);
            continue;
        }
        if (blocks[0].p)
            step_launch_fill(stream, blocks[0].p, blocks[0].n, blocks[0].value = 50 + i);
        if (relaxed) {
            step_free(&blocks[1]);
            step_alloc(&blocks[3], 4096, CU_STREAM_LEGACY, 9);
            step_free(&blocks[2]);
        }
        if (STEP(cuStreamEndCapture, stream, &graph))
            launch_graph(graph, stream);
        step_verify(&blocks[0], stream);
        step_verify(&blocks[3], CU_STREAM_LEGACY);
        for (unsigned j = 1; j < 4; j++)
            step_free(&blocks[j]);
    }
    step_free(&blocks[0]);
    STEP(cuStreamDestroy, stream);
    step_live(blocks, N_BLOCKS);
}

/* What tells whether work is finished, after frees; then pinned memory, after which frees drain. */
static void queries(void)
{
    CUevent began = NULL, ended = NULL;
    CUstream stream = NULL;
    float milliseconds;
    void *pinned = NULL;
    bool waited;

    if (!step_open(0) || !STEP(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING))
        return;
    if (!STEP(cuEventCreate, &began, 0) || !STEP(cuEventCreate, &ended, 0))
        return;
    for (unsigned iteration = 0; iteration < 2; iteration++) {
        step_alloc(&blocks[0], 300000, stream, 1 + iteration);
        step_alloc(&blocks[1], 2000, NULL, 2);
        STEP(cuEventRecord, began, stream);
        if (blocks[0].p)
            step_launch_fill(stream, blocks[0].p, 1000, 3);
        STEP(cuEventRecord, ended, stream);
        step_free(&blocks[1]);
        waited = !blocks[1].p; /* the free has waited for all of it */
        STEP_READY(waited, cuStreamQuery, stream);
        STEP_READY(waited, cuEventQuery, ended);
        STEP_READY(waited, cuEventElapsedTime, &milliseconds, began, ended);
        step_free(&blocks[0]);
        STEP(cuEventSynchronize, ended);
        if (!iteration && STEP(cuMemAllocHost, &pinned, 4096))
            memset(pinned, 1, 4096);
    }
    if (pinned)
        STEP(cuMemFreeHost, pinned);
    STEP(cuEventDestroy, began);
    STEP(cuEventDestroy, ended);
    STEP(cuCtxSetLimit, CU_LIMIT_STACK_SIZE, 2048);
    step_live(blocks, N_BLOCKS);
}

/* Nearly all memory, in pieces that no earlier piece fits: what is kept has to go back first. */
static void tight(void)
{
    CUstream stream = NULL;
    CUdeviceptr pitched;
    size_t pitch;

    if (!step_open(0) || !STEP(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING))
        return;
    for (unsigned iteration = 0; iteration < 4; iteration++) {
        for (unsigned i = 0; i < 3; i++)
            step_alloc(&blocks[i], (6 + iteration) * MIB * (i + 1) / 8, stream, i);
        step_verify(&blocks[1], stream);
        for (unsigned i = 0; i < 3; i++)
            step_free(&blocks[i]);
    }
    if (STEP(cuMemAllocPitch, &pitched, &pitch, 1000, 20, 4)) {
        step_print("pitch: %zu", pitch);
        STEP(cuMemFree, pitched);
    }
    step_alloc(&blocks[5], 10 * MIB, stream, 5);
    step_alloc(&blocks[6], 250 * MIB, stream, 5); /* more than there is */
    step_verify(&blocks[5], stream);
    step_free(&blocks[5]);
    step_live(blocks, N_BLOCKS);
}

/* Ends with work under way and the wait for it pending. */
static void pending(void)
{
    CUstream stream = NULL;

    if (!step_open(0) || !STEP(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING))
        return;
    for (unsigned i = 0; i < 4; i++)
        step_alloc(&blocks[i], 50000, i % 2 ? stream : NULL, i);
    step_free(&blocks[1]);
    step_free(&blocks[2]);
    step_live(blocks, N_BLOCKS);
}

/* The program's own pools: the default one, and one that it makes, chooses and destroys. */
static void pools(void)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemoryPool usual, mine = NULL, other = NULL, owner;
    CUstream stream = NULL;
    CUdeviceptr p, q;
    cuuint64_t value = 4 * MIB;

    if (!step_open(0) || !STEP(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING))
        return;
    if (STEP(cuMemAllocAsync, &p, 5000, stream)) {
        if (STEP(cuDeviceGetDefaultMemPool, &usual, 0) &&
            STEP(cuPointerGetAttribute, &owner, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p))
            step_print("from the default pool: %d", usual == owner);
        STEP(cuMemFreeAsync, p, stream);
    }
    if (STEP(cuMemPoolCreate, &mine, &props) && STEP(cuMemPoolCreate, &other, &props)) {
        STEP(cuMemPoolSetAttribute, other, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value);
        for (unsigned i = 0; i < 3; i++) {
            CUmemoryPool pool = i % 2 ? other : mine;

            if (STEP(cuMemAllocFromPoolAsync, &q, MIB, pool, stream))
                STEP(cuMemFreeAsync, q, stream);
            if (STEP(cuMemPoolGetAttribute, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value))
                step_print("threshold: %llu", (unsigned long long)value);
        }
        if (STEP(cuDeviceSetMemPool, 0, mine) && STEP(cuMemAllocAsync, &p, 3000, stream))
            STEP(cuMemFreeAsync, p, stream);
        STEP(cuMemPoolTrimTo, other, 0);
        STEP(cuStreamSynchronize, stream);
        STEP(cuMemPoolDestroy, mine);
        STEP(cuMemPoolDestroy, other);
    }
    if (STEP(cuMemAllocAsync, &p, 3000, stream))
        STEP(cuMemFreeAsync, p, stream);
    step_alloc(&blocks[0], 4096, stream, 1);
    step_verify(&blocks[0], stream);
    step_live(blocks, N_BLOCKS);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } programs[] = {
        {"mix", mix},         {"contexts", contexts}, {"release", release}, {"capture", capture},
        {"queries", queries}, {"tight", tight},       {"pending", pending}, {"pools", pools},
    };

    for (size_t i = 0; argc > 1 && i < sizeof(programs) / sizeof(programs[0]); i++) {
        if (!strcmp(argv[1], programs[i].name)) {
            programs[i].run();
            step_print("done; violations: %u", sim_violations());
            return 3;
        }
    }
    return 2;
}
