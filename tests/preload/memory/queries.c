/* A free natively waits, so queries right after it say "done"; an event is timed without an error.
 *     queries threads    the same of several threads
 *     queries capture    another thread begins a capture while that wait is made up for
 *     queries access     access to mapped memory ends after the free
 *     queries trim       what was freed in stream order leaves its pool after the free
 *     queries pool-X     what a pool has reserved after the free; first comes X: asked or reset
 *     queries destroy    a pool that is destroyed after the free leaves nothing behind
 *     queries graphs-X   what graphs hold after the free; first comes X: asked, trim or reset */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "tests/common/device.h"
#include "tests/common/say.h"

#define MIB     ((size_t)1 << 20)
#define THREADS 4
#ifdef __SANITIZE_THREAD__ /* which sees at the first meeting what others see when times are bad */
#define ITERATIONS 1000
#else
#define ITERATIONS 20000
#endif

/* Its own stream is done after its own free, whatever the other threads free and ask meanwhile. */
static void *ask_often(void *context)
{
    uintptr_t wrong = 0;
    CUdeviceptr p, used;
    CUstream stream;

    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    OK(cuMemAlloc(&used, 4096));
    for (uint32_t iteration = 0; iteration < ITERATIONS; iteration++) {
        OK(cuMemAlloc(&p, 4096));
        launch_fill(stream, used, 16, iteration);
        OK(cuMemFree(p));
        wrong += cuStreamQuery(stream) != CUDA_SUCCESS;
    }
    return (void *)wrong;
}

static void in_threads(CUcontext context)
{
    pthread_t threads[THREADS];
    void *wrong;

    for (int i = 0; i < THREADS; i++)
        OK(pthread_create(&threads[i], NULL, ask_often, context));
    for (int i = 0; i < THREADS; i++) {
        OK(pthread_join(threads[i], &wrong));
        say("wrong answers: %d", (int)(uintptr_t)wrong);
    }
}

static struct {
    pthread_t thread;
    CUcontext context;
    bool is_started;
    atomic_bool has_begun, may_end;
} capture;

static void *capture_all(void *unused)
{
    CUstream stream;
    CUgraph graph;

    OK(cuCtxSetCurrent(capture.context));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    atomic_store(&capture.has_begun, true);
    while (!atomic_load(&capture.may_end))
        (void)usleep(1000);
    SAY_CODE("captured", cuStreamEndCapture(stream, &graph));
    return unused;
}

static void begin_capture(void)
{
    if (capture.is_started)
        return;
    capture.is_started = true;
    OK(pthread_create(&capture.thread, NULL, capture_all, NULL));
    while (!atomic_load(&capture.has_begun))
        (void)usleep(1000);
}

static void nothing(void *unused)
{
    (void)unused;
}

/* The host sees by a host function what is done, so the wait comes before it. */
static void in_capture(CUcontext context)
{
    CUdeviceptr p, used;
    CUstream stream;

    capture.context = context;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&used, 4096));
    for (unsigned i = 0; i < 3; i++) {
        OK(cuMemAlloc(&p, 4096));
        launch_fill(stream, used, 1000, i);
        OK(cuMemFree(p));
    }
    sim_inside("cuEventSynchronize", false, begin_capture);
    SAY_CODE("host function", cuLaunchHostFunc(stream, nothing, NULL));
    begin_capture();
    atomic_store(&capture.may_end, true);
    OK(pthread_join(capture.thread, NULL));
    sim_inside(NULL, false, NULL);
    OK(cuStreamSynchronize(stream));
    say("wrong words: %u", count_wrong(used, 1000, 2));
}

/* From here on, frees do not wait. */
static CUdeviceptr begin_churn(CUstream stream)
{
    CUdeviceptr p, used;

    OK(cuMemAlloc(&used, 4096));
    for (unsigned i = 0; i < 4; i++) {
        OK(cuMemAlloc(&p, MIB));
        launch_fill(stream, used, 1000, i);
        OK(cuMemFree(p));
    }
    OK(cuMemAlloc(&p, MIB));
    return p;
}

static void access_ends(CUstream stream)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemAccessDesc access = {.location = properties.location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr p = begin_churn(stream), mapped;
    CUmemGenericAllocationHandle handle;

    OK(cuMemCreate(&handle, 2 * MIB, &properties, 0));
    OK(cuMemAddressReserve(&mapped, 2 * MIB, 0, 0, 0));
    OK(cuMemMap(mapped, 2 * MIB, 0, handle, 0));
    OK(cuMemSetAccess(mapped, 2 * MIB, &access, 1));
    launch_fill(stream, mapped, 1000, 3);
    OK(cuMemFree(p));
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    SAY_CODE("access ends", cuMemSetAccess(mapped, 2 * MIB, &access, 1));
    SAY_CODE("the kernel", cuStreamSynchronize(stream));
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    OK(cuMemSetAccess(mapped, 2 * MIB, &access, 1));
    say("wrong words: %u", count_wrong(mapped, 1000, 3));
}

static void pool_trimmed(CUstream stream)
{
    cuuint64_t keep = UINT64_MAX, reserved = 0;
    CUdeviceptr p = begin_churn(stream), q;
    CUmemoryPool pool;

    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    OK(cuMemAllocAsync(&q, 64 * MIB, stream));
    launch_fill(stream, q, 1000, 3);
    OK(cuMemFreeAsync(q, stream));
    OK(cuMemFree(p));
    SAY_CODE("trim", cuMemPoolTrimTo(pool, 0));
    OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
    say("reserved: %d MiB", (int)(reserved / MIB));
}

/* The pool keeps nothing: a free has the rest go back. */
static void pool_reserved(CUstream stream, const char *first)
{
    cuuint64_t reserved = 9, zero = 0;
    CUdeviceptr p = begin_churn(stream), q;
    CUmemoryPool pool;

    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuMemAllocAsync(&q, 64 * MIB, stream));
    launch_fill(stream, q, 1000, 3);
    OK(cuMemFreeAsync(q, stream));
    OK(cuMemFree(p));
    if (strcmp(first, "reset") == 0) {
        SAY_CODE("reset", cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &zero));
        OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &reserved));
    } else {
        OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
    }
    say("reserved: %d MiB", (int)(reserved / MIB));
}

static void pool_destroyed(CUstream stream)
{
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUdeviceptr p = begin_churn(stream), q;
    size_t before = 0, after = 0, total;
    CUmemoryPool pool;

    OK(cuMemGetInfo(&before, &total));
    OK(cuMemPoolCreate(&pool, &properties));
    OK(cuMemAllocFromPoolAsync(&q, 64 * MIB, pool, stream));
    launch_fill(stream, q, 1000, 3);
    OK(cuMemFreeAsync(q, stream));
    OK(cuMemFree(p));
    SAY_CODE("destroy", cuMemPoolDestroy(pool));
    OK(cuMemGetInfo(&after, &total));
    say("left behind: %d MiB", before < after ? 0 : (int)((before - after) / (8 * MIB)) * 8);
}

static void say_graphs(const char *when)
{
    cuuint64_t used = 9, used_high = 9, reserved = 9;

    OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
    OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &used_high));
    OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved));
    say("%s: used %d, high %d, reserved %d MiB", when, (int)(used / MIB), (int)(used_high / MIB),
        (int)(reserved / MIB));
}

/* A graph of `bytes` that it takes, fills and frees. */
static CUgraphExec graph_with_memory(CUcontext context, size_t bytes)
{
    CUDA_MEM_ALLOC_NODE_PARAMS alloc = {.bytesize = bytes};
    CUDA_MEMSET_NODE_PARAMS fill = {.value = 1, .elementSize = 1, .width = bytes, .height = 1};
    CUgraphNode allocated, filled, freed;
    CUgraph graph;
    CUgraphExec exec;

    alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    alloc.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemAllocNode(&allocated, graph, NULL, 0, &alloc));
    fill.dst = alloc.dptr;
    OK(cuGraphAddMemsetNode(&filled, graph, &allocated, 1, &fill, context));
    OK(cuGraphAddMemFreeNode(&freed, graph, &filled, 1, alloc.dptr));
    OK(cuGraphInstantiate(&exec, graph, 0));
    return exec;
}

/* Which question comes first is which one waits. */
static void graph_memory(CUstream stream, const char *first)
{
    cuuint64_t zero = 0;
    CUcontext context;
    CUgraphExec exec;
    CUdeviceptr p;

    OK(cuCtxGetCurrent(&context));
    p = begin_churn(stream);
    exec = graph_with_memory(context, 8 * MIB);
    OK(cuGraphLaunch(exec, stream));
    OK(cuMemFree(p));
    if (strcmp(first, "trim") == 0)
        SAY_CODE("trim", cuDeviceGraphMemTrim(0));
    else if (strcmp(first, "reset") == 0)
        SAY_CODE("reset", cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &zero));
    say_graphs(first);
    SAY_CODE("trim", cuDeviceGraphMemTrim(0));
    say_graphs("trimmed");
    SAY_CODE("launch", cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    say_graphs("launched again");
}

static void part(const char *name, CUstream stream)
{
    if (strcmp(name, "access") == 0)
        access_ends(stream);
    else if (strcmp(name, "trim") == 0)
        pool_trimmed(stream);
    else if (strncmp(name, "pool-", 5) == 0)
        pool_reserved(stream, name + strlen("pool-"));
    else if (strcmp(name, "destroy") == 0)
        pool_destroyed(stream);
    else
        graph_memory(stream, name + strlen("graphs-"));
}

int main(int argc, char **argv)
{
    CUdeviceptr p, used;
    CUevent start, stop;
    CUstream stream;
    CUcontext context;
    float ms = -1;

    context = device_open();
    if (argc > 1 && strcmp(argv[1], "threads") == 0) {
        in_threads(context);
        return 0;
    }
    if (argc > 1 && strcmp(argv[1], "capture") == 0) {
        in_capture(context);
        return 0;
    }
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    if (argc > 1) {
        part(argv[1], stream);
        return 0;
    }
    OK(cuEventCreate(&start, CU_EVENT_DEFAULT));
    OK(cuEventCreate(&stop, CU_EVENT_DEFAULT));
    OK(cuMemAlloc(&used, 4096));
    for (uint32_t iteration = 0; iteration < 5; iteration++) {
        OK(cuMemAlloc(&p, 4096));
        OK(cuEventRecord(start, stream));
        launch_fill(stream, used, 1000, iteration);
        OK(cuEventRecord(stop, stream));
        OK(cuMemFree(p));
        if (iteration % 3 == 0)
            SAY_CODE("stream", cuStreamQuery(stream));
        if (iteration % 3 == 1)
            SAY_CODE("event", cuEventQuery(stop));
        SAY_CODE("time", cuEventElapsedTime(&ms, start, stop));
        say("    not negative: %d", ms >= 0);
    }
    return 0;
}
