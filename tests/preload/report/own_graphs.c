/* Executable graphs of the program's own: what they cost, as the program sees it, one "key value" a
 * line. usage: own_graphs single|threads|devices|nodes|fork|refused */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "tests/common/check.h"
#include "tests/common/device.h"

#define NODES   1000u
#define THREADS 8
#define EACH    12

static CUcontext context;

static CUgraph graph_of(unsigned n)
{
    CUgraphNode last = NULL;
    CUgraph graph;

    OK(cuGraphCreate(&graph, 0));
    for (unsigned i = 0; i < n; i++)
        OK(cuGraphAddEmptyNode(&last, graph, last ? &last : NULL, last != NULL));
    return graph;
}

static size_t free_now(void)
{
    size_t free_bytes, total;

    OK(cuMemGetInfo(&free_bytes, &total));
    return free_bytes;
}

static void tell(const char *key, size_t value)
{
    printf("%s %zu\n", key, value);
}

static CUgraphExec instantiate(CUgraph graph, size_t *taken)
{
    size_t before = free_now();
    CUgraphExec exec;

    OK(cuGraphInstantiate(&exec, graph, 0));
    *taken += before - free_now();
    return exec;
}

static void launch(CUgraphExec exec, CUstream stream, size_t *taken)
{
    size_t before = free_now();

    OK(cuGraphLaunch(exec, stream));
    *taken += before - free_now();
}

/* One graph is uploaded before it is launched, one launched, one neither; and one is instantiated
 * and launched while a capture is open. */
static void single(void)
{
    size_t instantiated = 0, launched = 0, before;
    CUgraph graph = graph_of(NODES), captured;
    CUgraphExec execs[4];
    CUstream stream;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 3; i++)
        execs[i] = instantiate(graph, &instantiated);
    before = free_now();
    OK(cuGraphUpload(execs[0], stream));
    launched += before - free_now();
    launch(execs[0], stream, &launched);
    launch(execs[1], stream, &launched);
    launch(execs[1], stream, &launched);
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    execs[3] = instantiate(graph, &instantiated);
    OK(cuGraphLaunch(execs[3], stream));
    OK(cuStreamEndCapture(stream, &captured));
    launch(execs[3], stream, &launched);
    OK(cuStreamSynchronize(stream));
    OK(cuGraphExecDestroy(execs[2]));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphExecDestroy(execs[2]));
    OK(cuGraphExecDestroy(execs[3]));
    tell("instantiated", instantiated);
    tell("launched", launched);
}

static void *instantiate_many(void *unused)
{
    CUgraph graph = graph_of(NODES / 4);
    CUgraphExec exec;

    (void)unused;
    OK(cuCtxSetCurrent(context));
    for (int i = 0; i < EACH; i++) {
        OK(cuGraphInstantiate(&exec, graph, 0));
        if (i % 3 == 0)
            EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate(&exec, graph, 1u << 20));
    }
    return NULL;
}

static void threads(void)
{
    pthread_t started[THREADS];
    size_t before = free_now();

    for (int i = 0; i < THREADS; i++)
        OK(pthread_create(&started[i], NULL, instantiate_many, NULL));
    for (int i = 0; i < THREADS; i++)
        OK(pthread_join(started[i], NULL));
    tell("instantiated", before - free_now());
}

static void devices(void)
{
    CUcontext other;
    CUgraph graph;
    size_t taken[2] = {0};

    OK(cuDevicePrimaryCtxRetain(&other, 1));
    OK(cuCtxSetCurrent(other));
    graph = graph_of(NODES);
    for (int i = 0; i < 3; i++)
        (void)instantiate(graph, &taken[1]);
    OK(cuCtxSetCurrent(context));
    (void)instantiate(graph, &taken[0]);
    tell("instantiated-0", taken[0]);
    tell("instantiated-1", taken[1]);
}

/* An allocation that stays, and one that its graph frees. */
static void nodes(void)
{
    CUDA_MEM_ALLOC_NODE_PARAMS stays = {.bytesize = (size_t)3 << 20};
    CUDA_MEM_ALLOC_NODE_PARAMS goes = {.bytesize = (size_t)5 << 20};
    CUgraphNode alloc, node;
    CUgraphExec exec;
    CUgraph graph;
    cuuint64_t level;

    stays.poolProps.allocType = goes.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    stays.poolProps.location.type = goes.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemAllocNode(&alloc, graph, NULL, 0, &goes));
    OK(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &stays));
    OK(cuGraphAddMemFreeNode(&node, graph, &alloc, 1, goes.dptr));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, NULL));
    OK(cuCtxSynchronize());
    OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &level));
    tell("used_bytes", level);
    OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &level));
    tell("used_high_bytes", level);
    OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &level));
    tell("reserved_bytes", level);
    OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &level));
    tell("reserved_high_bytes", level);
}

/* The child calls the driver, and so has a report of its own; it has no graphs. */
static void forked(void)
{
    size_t taken = 0;
    CUgraphExec exec = instantiate(graph_of(NODES), &taken);
    int status, count;
    pid_t child;

    (void)exec;
    fflush(stdout);
    child = fork();
    CHECK(child >= 0);
    if (!child) {
        (void)cuDeviceGetCount(&count);
        (void)cuGraphExecDestroy(exec);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && !status);
    tell("instantiated", taken);
}

/* No room: the driver refuses, and nothing is taken. */
static void refused(void)
{
    CUgraph graph = graph_of(NODES);
    CUgraphExec exec;
    CUdeviceptr p;

    OK(cuMemAlloc(&p, free_now()));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuGraphInstantiate(&exec, graph, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate(&exec, NULL, 0));
    OK(cuMemFree(p));
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } modes[] = {{"single", single}, {"threads", threads}, {"devices", devices},
                 {"nodes", nodes},   {"fork", forked},     {"refused", refused}};

    context = device_open();
    for (size_t i = 0; argc > 1 && i < sizeof(modes) / sizeof(modes[0]); i++) {
        if (!strcmp(argv[1], modes[i].name)) {
            modes[i].run();
            return 0;
        }
    }
    return 2;
}
