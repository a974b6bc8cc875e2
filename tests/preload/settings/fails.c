/* Every kind of call that takes memory, each several times, for rules to fail: what each returned,
 * one letter a call. A call that failed is tried once more, and counts as one more call. With a
 * word as argument: one thing in particular. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/common/device.h"
#include "tests/common/say.h"

#define TURNS   12
#define THREADS 4
#define CALLS   250 /* of each thread */

static CUcontext context;
static CUgraph graph;
static char host_memory[1 << 16] __attribute__((aligned(4096)));

static CUresult device_once(size_t bytes)
{
    CUdeviceptr p = 0;
    CUresult result = cuMemAlloc(&p, bytes);

    if (result == CUDA_SUCCESS)
        OK(cuMemFree(p));
    return result;
}

static CUresult pitch_once(size_t bytes)
{
    CUdeviceptr p = 0;
    size_t pitch;
    CUresult result = cuMemAllocPitch(&p, &pitch, bytes / 16, 16, 4);

    if (result == CUDA_SUCCESS)
        OK(cuMemFree(p));
    return result;
}

static CUresult async_once(size_t bytes)
{
    CUdeviceptr p = 0;
    CUresult result = cuMemAllocAsync(&p, bytes, NULL);

    if (result == CUDA_SUCCESS)
        OK(cuMemFreeAsync(p, NULL));
    return result;
}

static CUresult from_pool_once(size_t bytes)
{
    static CUmemoryPool pool;
    CUdeviceptr p = 0;
    CUresult result;

    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    result = cuMemAllocFromPoolAsync(&p, bytes, pool, NULL);
    if (result == CUDA_SUCCESS)
        OK(cuMemFreeAsync(p, NULL));
    return result;
}

static CUresult managed_once(size_t bytes)
{
    CUdeviceptr p = 0;
    CUresult result = cuMemAllocManaged(&p, bytes, CU_MEM_ATTACH_GLOBAL);

    if (result == CUDA_SUCCESS)
        OK(cuMemFree(p));
    return result;
}

static CUresult virtual_once(size_t bytes)
{
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemGenericAllocationHandle handle;
    CUresult result;

    (void)bytes;
    result = cuMemCreate(&handle, 2 << 20, &properties, 0);
    if (result == CUDA_SUCCESS)
        OK(cuMemRelease(handle));
    return result;
}

static CUresult host_once(size_t bytes)
{
    void *p = NULL;
    CUresult result = cuMemAllocHost(&p, bytes);

    if (result == CUDA_SUCCESS)
        OK(cuMemFreeHost(p));
    return result;
}

static CUresult host_flags_once(size_t bytes)
{
    void *p = NULL;
    CUresult result = cuMemHostAlloc(&p, bytes, CU_MEMHOSTALLOC_PORTABLE);

    if (result == CUDA_SUCCESS)
        OK(cuMemFreeHost(p));
    return result;
}

static CUresult register_once(size_t bytes)
{
    CUresult result;

    (void)bytes;
    result = cuMemHostRegister(host_memory, sizeof(host_memory), 0);
    if (result == CUDA_SUCCESS)
        OK(cuMemHostUnregister(host_memory));
    return result;
}

static CUresult pool_once(size_t bytes)
{
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemoryPool pool;
    CUresult result;

    (void)bytes;
    result = cuMemPoolCreate(&pool, &properties);
    if (result == CUDA_SUCCESS)
        OK(cuMemPoolDestroy(pool));
    return result;
}

static CUresult graph_once(size_t bytes)
{
    CUgraphExec exec;
    CUresult result;

    (void)bytes;
    result = cuGraphInstantiate(&exec, graph, 0);
    if (result == CUDA_SUCCESS)
        OK(cuGraphExecDestroy(exec));
    return result;
}

static CUresult graph_parameters_once(size_t bytes)
{
    CUDA_GRAPH_INSTANTIATE_PARAMS parameters = {.result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS};
    CUgraphExec exec;
    CUresult result;

    (void)bytes;
    result = cuGraphInstantiateWithParams(&exec, graph, &parameters);
    CHECK((result == CUDA_SUCCESS) == (parameters.result_out == CUDA_GRAPH_INSTANTIATE_SUCCESS));
    if (result == CUDA_SUCCESS)
        OK(cuGraphExecDestroy(exec));
    return result;
}

static const struct {
    const char *name;
    CUresult (*once)(size_t bytes);
} kinds[] = {
    {"device", device_once},     {"pitch", pitch_once},
    {"async", async_once},       {"from-pool", from_pool_once},
    {"managed", managed_once},   {"virtual", virtual_once},
    {"host", host_once},         {"host-flags", host_flags_once},
    {"register", register_once}, {"pool", pool_once},
    {"graph", graph_once},       {"graph-parameters", graph_parameters_once},
};

static char letter(CUresult result)
{
    return result == CUDA_SUCCESS ? '.' : result == CUDA_ERROR_OUT_OF_MEMORY ? 'F' : '?';
}

/* One letter a call; the sizes are 4 KiB, 8 KiB, ... */
static void every_kind(void)
{
    char text[2 * TURNS + 1];

    for (size_t i = 0; i < N_OF(kinds); i++) {
        size_t n = 0;

        for (unsigned turn = 0; turn < TURNS; turn++) {
            text[n] = letter(kinds[i].once(4096u * (turn + 1)));
            if (text[n++] == 'F')
                text[n++] = letter(kinds[i].once(4096u * (turn + 1)));
        }
        text[n] = '\0';
        say("%s: %s", kinds[i].name, text);
    }
}

static void *call(void *failed)
{
    OK(cuCtxSetCurrent(context));
    for (unsigned i = 0; i < CALLS; i++)
        *(unsigned *)failed += letter(device_once(4096)) == 'F';
    return NULL;
}

/* How many of all threads' calls failed. */
static void threads(void)
{
    pthread_t thread[THREADS];
    unsigned failed[THREADS] = {0}, sum = 0;

    for (unsigned i = 0; i < THREADS; i++)
        CHECK(!pthread_create(&thread[i], NULL, call, &failed[i]));
    for (unsigned i = 0; i < THREADS; i++) {
        CHECK(!pthread_join(thread[i], NULL));
        sum += failed[i];
    }
    say("failed: %u of %u", sum, THREADS * CALLS);
}

/* Calls that the driver refuses say why it does. */
static void mistakes(void)
{
    CUdeviceptr p;
    void *host;
    CUgraphExec exec;
    CUmemoryPool pool;

    SAY_CODE("no bytes", cuMemAlloc(&p, 0));
    SAY_CODE("no address", cuMemAlloc(NULL, 4096));
    SAY_CODE("no managed bytes", cuMemAllocManaged(&p, 0, CU_MEM_ATTACH_GLOBAL));
    SAY_CODE("no host bytes", cuMemAllocHost(&host, 0));
    SAY_CODE("no graph", cuGraphInstantiate(&exec, NULL, 0));
    SAY_CODE("no properties", cuMemPoolCreate(&pool, NULL));
    OK(cuCtxSetCurrent(NULL));
    SAY_CODE("no context", cuMemAlloc(&p, 4096));
    SAY_CODE("no context for host memory", cuMemAllocHost(&host, 4096));
    OK(cuCtxSetCurrent(context));
}

/* In a capture of that mode: the codes, and whether the capture lives. */
static void capture(const char *name, CUstreamCaptureMode mode)
{
    CUstream stream;
    CUgraph captured = NULL;
    CUdeviceptr p;
    CUresult result;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture(stream, mode));
    result = cuMemAlloc(&p, 4096);
    say("%s: %d", name, (int)result);
    if (result == CUDA_SUCCESS)
        OK(cuMemFree(p));
    result = cuMemAllocAsync(&p, 4096, stream);
    say("%s, as a node: %d", name, (int)result);
    SAY_CODE("its end", cuStreamEndCapture(stream, &captured));
    if (captured)
        OK(cuGraphDestroy(captured));
    OK(cuStreamDestroy(stream));
}

/* A child that begins afresh counts its own calls. */
static int forked(void)
{
    pid_t child = fork();

    if (child == 0) {
        context = device_open();
        say("child: %c%c", letter(device_once(4096)), letter(device_once(4096)));
        _exit(0);
    }
    say_child(child);
    context = device_open();
    say("parent: %c%c", letter(device_once(4096)), letter(device_once(4096)));
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    CUgraphNode node;

    if (!strcmp(what, "fork"))
        return forked();
    context = device_open();
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddEmptyNode(&node, graph, NULL, 0));
    if (!strcmp(what, "threads"))
        threads();
    else if (!strcmp(what, "mistakes"))
        mistakes();
    else if (!strcmp(what, "captures")) {
        capture("relaxed", CU_STREAM_CAPTURE_MODE_RELAXED);
        capture("global", CU_STREAM_CAPTURE_MODE_GLOBAL);
    } else
        every_kind();
    OK(cuGraphDestroy(graph));
    return 0;
}
