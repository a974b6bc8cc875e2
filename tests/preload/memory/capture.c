/* A capture is open while memory is taken and given back: it survives, and its graph runs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "tests/common/device.h"
#include "tests/common/say.h"

#define WORDS 1000

static CUcontext context;

/* Looked up, so that the program also links with a driver that cannot capture. */
static CUresult (*begin_capture)(CUstream, CUstreamCaptureMode);
static CUresult (*end_capture)(CUstream, CUgraph *);
static CUresult (*instantiate)(CUgraphExec *, CUgraph, unsigned long long);
static CUresult (*launch_graph)(CUgraphExec, CUstream);
static CUresult (*destroy_exec)(CUgraphExec);
static CUresult (*destroy_graph)(CUgraph);

static CUresult (*destroy_stream)(CUstream);

static bool find_calls(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

    *(void **)&begin_capture = dlsym(driver, "cuStreamBeginCapture_v2");
    *(void **)&end_capture = dlsym(driver, "cuStreamEndCapture");
    *(void **)&instantiate = dlsym(driver, "cuGraphInstantiateWithFlags");
    *(void **)&launch_graph = dlsym(driver, "cuGraphLaunch");
    *(void **)&destroy_exec = dlsym(driver, "cuGraphExecDestroy");
    *(void **)&destroy_graph = dlsym(driver, "cuGraphDestroy");
    *(void **)&destroy_stream = dlsym(driver, "cuStreamDestroy_v2");
    return begin_capture && end_capture && instantiate && launch_graph && destroy_exec &&
           destroy_graph;
}

static void *alloc_and_free(void *unused)
{
    CUdeviceptr p, q;

    (void)unused;
    OK(cuCtxSetCurrent(context));
    SAY_CODE("alloc", cuMemAlloc(&p, 1 << 20));
    SAY_CODE("alloc", cuMemAlloc(&q, 1 << 20));
    SAY_CODE("free", cuMemFree(p));
    SAY_CODE("free twice", cuMemFree(p));
    SAY_CODE("free", cuMemFree(q));
    return NULL;
}

/* What is allocated before and freed inside natively waits for the device; inside a capture of
 * the same context the program is allowed that under RELAXED, or from another thread. */
static void capture(CUstream stream, CUstreamCaptureMode mode, bool own_thread)
{
    pthread_t thread;
    CUgraph graph = NULL;
    CUgraphExec exec;
    CUdeviceptr p, before;
    CUstream other;

    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    say("mode %d, %s thread", (int)mode, own_thread ? "own" : "another");
    OK(cuMemAlloc(&p, WORDS * sizeof(uint32_t)));
    OK(cuMemAlloc(&before, 1 << 20));
    SAY_CODE("begin", begin_capture(stream, mode));
    SAY_CODE("destroy another stream", cuStreamDestroy(other));
    launch_fill(stream, p, WORDS, 5);
    if (own_thread) {
        SAY_CODE("free from before", cuMemFree(before));
        alloc_and_free(NULL);
    } else {
        OK(pthread_create(&thread, NULL, alloc_and_free, NULL));
        OK(pthread_join(thread, NULL));
    }
    SAY_CODE("end", end_capture(stream, &graph));
    say("graph: %d", graph != NULL);
    if (!own_thread)
        SAY_CODE("free from before", cuMemFree(before));
    OK(cuMemsetD32(p, 0, WORDS));
    OK(cuCtxSynchronize()); /* a non-blocking stream does not wait for the memset */
    SAY_CODE("instantiate", instantiate(&exec, graph, 0));
    SAY_CODE("launch", launch_graph(exec, stream));
    OK(cuStreamSynchronize(stream));
    say("wrong words: %u", count_wrong(p, WORDS, 5));
    SAY_CODE("destroy", destroy_exec(exec));
    SAY_CODE("destroy", destroy_graph(graph));
    SAY_CODE("free", cuMemFree(p));
}

/* A stream that joined the capture, and one that did not, are gone before it ends; then the one
 * that it began on goes, which ends it. Nobody may ask about a stream that is gone. */
static void streams_that_go(void)
{
    CUstream origin, joined, other;
    CUevent there, back;
    CUdeviceptr p, q;
    CUgraph graph = NULL;

    OK(cuMemAlloc(&p, 1 << 20));
    OK(cuMemAlloc(&q, 1 << 20));
    OK(cuStreamCreate(&origin, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&joined, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&there, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&back, CU_EVENT_DISABLE_TIMING));
    SAY_CODE("begin", begin_capture(origin, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuEventRecord(there, origin));
    OK(cuStreamWaitEvent(joined, there, 0));
    OK(cuMemsetD8Async(p, 1, 1 << 20, joined));
    OK(cuEventRecord(back, joined));
    OK(cuStreamWaitEvent(origin, back, 0));
    SAY_CODE("destroy the other", destroy_stream(other));
    SAY_CODE("destroy the joined", destroy_stream(joined));
    SAY_CODE("free", cuMemFree(q));
    SAY_CODE("end", end_capture(origin, &graph));
    SAY_CODE("begin again", begin_capture(origin, CU_STREAM_CAPTURE_MODE_RELAXED));
    SAY_CODE("destroy it", destroy_stream(origin));
    SAY_CODE("free", cuMemFree(p));
    OK(cuMemAlloc(&p, 1 << 20));
    SAY_CODE("free", cuMemFree(p));
}

/* In stream order, on the stream that captures: memory from before is refused, and the capture goes
 * on. Small blocks, large ones, managed ones. */
static void in_stream_order(void)
{
    static const size_t sizes[] = {100, 70000, (size_t)1 << 20, (size_t)4 << 20};
    CUstream streams[] = {NULL, CU_STREAM_PER_THREAD};
    CUdeviceptr p[5];
    CUgraph graph;

    OK(cuStreamCreate(&streams[0], CU_STREAM_NON_BLOCKING));
    for (unsigned turn = 0; turn < 4; turn++) {
        CUstream stream = streams[turn % 2];

        for (unsigned i = 0; i < 4; i++)
            OK(cuMemAlloc(&p[i], sizes[i]));
        OK(cuMemAllocManaged(&p[4], 5000, CU_MEM_ATTACH_GLOBAL));
        OK(begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        for (unsigned i = 0; i < 5; i++)
            SAY_CODE("free", cuMemFreeAsync(p[i], stream));
        launch_fill(stream, p[turn], 4, turn);
        SAY_CODE("end", end_capture(stream, &graph));
        for (unsigned i = 0; i < 5; i++)
            SAY_CODE("free", cuMemFree(p[i]));
    }
}

static void *capture_for_good(void *block)
{
    OK(cuCtxSetCurrent(context));
    OK(begin_capture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemFree((CUdeviceptr)(uintptr_t)block));
    return NULL;
}

/* A thread ends while its own stream captures: the stream goes, and the capture with it. */
static void threads_that_end(void)
{
    pthread_t thread;
    CUdeviceptr p;

    for (unsigned turn = 0; turn < 3; turn++) {
        OK(cuMemAlloc(&p, 4 << 20));
        OK(pthread_create(&thread, NULL, capture_for_good, (void *)(uintptr_t)p));
        OK(pthread_join(thread, NULL));
        for (unsigned i = 0; i < 100; i++) {
            OK(cuMemAlloc(&p, 4 << 20));
            launch_fill(NULL, p, 4, i);
            OK(cuMemFree(p));
        }
        say("thread %u has ended", turn);
    }
}

int main(int argc, char **argv)
{
    CUstream streams[2];

    if (!find_calls())
        return 77;
    context = device_open();
    if (argc > 1 && !strcmp(argv[1], "streams")) {
        streams_that_go();
        return 0;
    }
    if (argc > 1 && !strcmp(argv[1], "ended")) {
        threads_that_end();
        return 0;
    }
    if (argc > 1 && !strcmp(argv[1], "ordered")) {
        in_stream_order();
        return 0;
    }
    OK(cuStreamCreate(&streams[0], CU_STREAM_DEFAULT));
    for (int i = 0; i < 2; i++) {
        capture(streams[i], CU_STREAM_CAPTURE_MODE_RELAXED, true);
        capture(streams[i], CU_STREAM_CAPTURE_MODE_RELAXED, false);
        capture(streams[i], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, false);
        if (i == 0)
            OK(cuStreamCreate(&streams[1], CU_STREAM_NON_BLOCKING));
    }
    return 0;
}
