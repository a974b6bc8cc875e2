/* A capture is open while memory is taken and given back: it survives, and its graph runs. */
#include <pthread.h>

#include "device.h"
#include "say.h"

#define WORDS 1000

static CUcontext context;

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

    say("mode %d, %s thread", (int)mode, own_thread ? "own" : "another");
    NEED(cuMemAlloc(&p, WORDS * sizeof(uint32_t)));
    NEED(cuMemAlloc(&before, 1 << 20));
    SAY_CODE("begin", cuStreamBeginCapture(stream, mode));
    launch_fill(stream, p, WORDS, 5);
    if (own_thread) {
        SAY_CODE("free from before", cuMemFree(before));
        alloc_and_free(NULL);
    } else {
        NEED(pthread_create(&thread, NULL, alloc_and_free, NULL));
        NEED(pthread_join(thread, NULL));
    }
    SAY_CODE("end", cuStreamEndCapture(stream, &graph));
    say("graph: %d", graph != NULL);
    if (!own_thread)
        SAY_CODE("free from before", cuMemFree(before));
    NEED(cuMemsetD32(p, 0, WORDS));
    SAY_CODE("instantiate", cuGraphInstantiate(&exec, graph, 0));
    SAY_CODE("launch", cuGraphLaunch(exec, stream));
    NEED(cuStreamSynchronize(stream));
    say("wrong words: %u", count_wrong(p, WORDS, 5));
    SAY_CODE("destroy", cuGraphExecDestroy(exec));
    SAY_CODE("destroy", cuGraphDestroy(graph));
    SAY_CODE("free", cuMemFree(p));
}

int main(void)
{
    CUstream streams[2];

    context = device_open();
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
