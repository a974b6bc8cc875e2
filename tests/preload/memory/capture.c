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
    NEED(cuCtxSetCurrent(context));
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

    NEED(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    say("mode %d, %s thread", (int)mode, own_thread ? "own" : "another");
    NEED(cuMemAlloc(&p, WORDS * sizeof(uint32_t)));
    NEED(cuMemAlloc(&before, 1 << 20));
    SAY_CODE("begin", begin_capture(stream, mode));
    SAY_CODE("destroy another stream", cuStreamDestroy(other));
    launch_fill(stream, p, WORDS, 5);
    if (own_thread) {
        SAY_CODE("free from before", cuMemFree(before));
        alloc_and_free(NULL);
    } else {
        NEED(pthread_create(&thread, NULL, alloc_and_free, NULL));
        NEED(pthread_join(thread, NULL));
    }
    SAY_CODE("end", end_capture(stream, &graph));
    say("graph: %d", graph != NULL);
    if (!own_thread)
        SAY_CODE("free from before", cuMemFree(before));
    NEED(cuMemsetD32(p, 0, WORDS));
    NEED(cuCtxSynchronize()); /* a non-blocking stream does not wait for the memset */
    SAY_CODE("instantiate", instantiate(&exec, graph, 0));
    SAY_CODE("launch", launch_graph(exec, stream));
    NEED(cuStreamSynchronize(stream));
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

    NEED(cuMemAlloc(&p, 1 << 20));
    NEED(cuMemAlloc(&q, 1 << 20));
    NEED(cuStreamCreate(&origin, CU_STREAM_NON_BLOCKING));
    NEED(cuStreamCreate(&joined, CU_STREAM_NON_BLOCKING));
    NEED(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    NEED(cuEventCreate(&there, CU_EVENT_DISABLE_TIMING));
    NEED(cuEventCreate(&back, CU_EVENT_DISABLE_TIMING));
    SAY_CODE("begin", begin_capture(origin, CU_STREAM_CAPTURE_MODE_RELAXED));
    NEED(cuEventRecord(there, origin));
    NEED(cuStreamWaitEvent(joined, there, 0));
    NEED(cuMemsetD8Async(p, 1, 1 << 20, joined));
    NEED(cuEventRecord(back, joined));
    NEED(cuStreamWaitEvent(origin, back, 0));
    SAY_CODE("destroy the other", destroy_stream(other));
    SAY_CODE("destroy the joined", destroy_stream(joined));
    SAY_CODE("free", cuMemFree(q));
    SAY_CODE("end", end_capture(origin, &graph));
    SAY_CODE("begin again", begin_capture(origin, CU_STREAM_CAPTURE_MODE_RELAXED));
    SAY_CODE("destroy it", destroy_stream(origin));
    SAY_CODE("free", cuMemFree(p));
    NEED(cuMemAlloc(&p, 1 << 20));
    SAY_CODE("free", cuMemFree(p));
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
    NEED(cuStreamCreate(&streams[0], CU_STREAM_DEFAULT));
    for (int i = 0; i < 2; i++) {
        capture(streams[i], CU_STREAM_CAPTURE_MODE_RELAXED, true);
        capture(streams[i], CU_STREAM_CAPTURE_MODE_RELAXED, false);
        capture(streams[i], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, false);
        if (i == 0)
            NEED(cuStreamCreate(&streams[1], CU_STREAM_NON_BLOCKING));
    }
    return 0;
}
