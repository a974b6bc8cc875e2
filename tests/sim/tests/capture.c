/* capture.c: what capturing forbids, to whom, in which mode; and what spoils a capture. */
#include "sim_test.h"

#include <pthread.h>

static struct test test;
static CUstream capturing, blocking, other;

static CUstreamCaptureStatus status_of(CUstream stream)
{
    CUstreamCaptureStatus status;

    OK(cuStreamIsCapturing(stream, &status));
    return status;
}

typedef CUresult (*unsafe_call)(void);

static CUresult call_alloc(void)
{
    CUdeviceptr p;
    CUresult result = cuMemAlloc(&p, 256);

    if (result == CUDA_SUCCESS)
        OK(cuMemFree(p));
    return result;
}

static CUresult call_pool_alloc(void)
{
    CUdeviceptr p;
    CUresult result = cuMemAllocAsync(&p, 256, other);

    if (result == CUDA_SUCCESS)
        OK(cuMemFreeAsync(p, other));
    return result;
}

static CUresult call_sync(void)
{
    return cuStreamSynchronize(other);
}

static CUresult call_query(void)
{
    CUresult result;

    while ((result = cuStreamQuery(other)) == CUDA_ERROR_NOT_READY)
        continue;
    return result;
}

static CUevent outside;
static CUdeviceptr to_free[1024];
static unsigned n_to_free;

static CUresult call_event_query(void)
{
    return cuEventQuery(outside);
}

static CUresult call_managed(void)
{
    CUdeviceptr p;
    CUresult result = cuMemAllocManaged(&p, 256, CU_MEM_ATTACH_GLOBAL);

    if (result == CUDA_SUCCESS)
        OK(cuMemFree(p));
    return result;
}

static CUresult call_free(void)
{
    CUresult result = cuMemFree(to_free[n_to_free - 1]);

    n_to_free -= result == CUDA_SUCCESS;
    return result;
}

static CUresult call_pinned(void)
{
    void *p;
    CUresult result = cuMemAllocHost(&p, 64);

    if (result == CUDA_SUCCESS)
        OK(cuMemFreeHost(p));
    return result;
}

static const unsafe_call unsafe_calls[] = {call_alloc, call_pool_alloc,  call_sync,
                                           call_query, call_event_query, call_managed,
                                           call_free,  call_pinned};

struct attempt {
    unsafe_call call;
    CUstreamCaptureMode thread_mode;
    CUresult result;
};

static void *attempt(void *data)
{
    struct attempt *attempt = data;
    CUstreamCaptureMode mode = attempt->thread_mode;

    OK(cuCtxSetCurrent(test.ctx));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    attempt->result = attempt->call();
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    CHECK(mode == attempt->thread_mode);
    return NULL;
}

static void end(bool spoilt)
{
    CUgraph graph;

    if (spoilt) {
        EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(capturing, &graph));
        CHECK(!graph);
    } else {
        OK(cuStreamEndCapture(capturing, &graph));
        OK(cuGraphDestroy(graph));
    }
    CHECK(status_of(capturing) == CU_STREAM_CAPTURE_STATUS_NONE);
}

static void try_call(unsafe_call call, CUstreamCaptureMode mode, CUstreamCaptureMode thread_mode,
                     bool same_thread, bool forbidden)
{
    struct attempt how = {call, thread_mode, CUDA_SUCCESS};
    pthread_t thread;

    OK(cuStreamBeginCapture(capturing, mode));
    if (same_thread) {
        (void)attempt(&how);
    } else {
        CHECK(pthread_create(&thread, NULL, attempt, &how) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    CHECK(how.result == (forbidden ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS));
    CHECK(status_of(capturing) ==
          (forbidden ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE));
    end(forbidden);
}

static void test_modes(void)
{
    const CUstreamCaptureMode global = CU_STREAM_CAPTURE_MODE_GLOBAL,
                              local = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                              relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;

    OK(cuEventCreate(&outside, CU_EVENT_DISABLE_TIMING));
    for (n_to_free = 0; n_to_free < 16; n_to_free++)
        OK(cuMemAlloc(&to_free[n_to_free], 64));
    for (size_t i = 0; i < sizeof(unsafe_calls) / sizeof(unsafe_calls[0]); i++) {
        unsafe_call call = unsafe_calls[i];
        try_call(call, global, global, true, true);
        try_call(call, global, global, false, true);
        try_call(call, global, relaxed, true, false);
        try_call(call, global, relaxed, false, false);
        try_call(call, global, local, false, false);
        try_call(call, local, global, true, true);
        try_call(call, local, global, false, false);
        try_call(call, local, relaxed, true, false);
        try_call(call, relaxed, global, true, false);
        try_call(call, relaxed, global, false, false);
    }
    while (n_to_free)
        OK(call_free());
    OK(cuEventDestroy(outside));
}

/* What touches the whole context spoils its captures in every mode, from every thread. */
static void test_context_wide(void)
{
    CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUevent event;

    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuThreadExchangeStreamCaptureMode(&relaxed));
    for (int mode = 0; mode < 3; mode++) {
        OK(cuStreamBeginCapture(capturing, (CUstreamCaptureMode)mode));
        EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuCtxRecordEvent(test.ctx, event));
        end(true);
        OK(cuStreamBeginCapture(capturing, (CUstreamCaptureMode)mode));
        EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuCtxSynchronize());
        end(true);
        OK(cuCtxRecordEvent(test.ctx, event));
        OK(cuStreamBeginCapture(capturing, (CUstreamCaptureMode)mode));
        EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuCtxWaitEvent(test.ctx, event));
        end(true);
    }
    OK(cuThreadExchangeStreamCaptureMode(&relaxed));
    OK(cuEventDestroy(event));
}

static void test_legacy(void)
{
    CUstreamCaptureStatus status;
    CUgraph graph;
    CUdeviceptr p;

    OK(cuMemAlloc(&p, 256));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
           cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuStreamIsCapturing(NULL, &status));
    CHECK(status_of(blocking) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, launch(test.fill, NULL, p, 64, 1));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(blocking, &graph));
    /* A non-blocking stream's capture is nothing to the legacy stream. */
    OK(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(launch(test.fill, NULL, p, 64, 1));
    end(false);
    OK(cuMemFree(p));
}

static void test_of_the_stream(void)
{
    CUevent event;
    CUgraph graph;
    CUdeviceptr m;

    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamQuery(capturing));
    end(true);
    OK(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT(CUDA_ERROR_ILLEGAL_STATE, cuStreamBeginCapture(capturing, 0));
    OK(cuEventRecord(event, capturing));
    EXPECT(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(event));
    end(true);
    OK(cuMemAllocManaged(&m, 4096, CU_MEM_ATTACH_GLOBAL));
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    OK(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
           cuMemPrefetchAsync(m, 4096, location, 0, capturing));
    end(true);
    OK(cuMemFree(m));
    /* An event from outside, and a fork that never comes back. */
    OK(cuEventRecord(event, other));
    OK(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(capturing, event, 0));
    end(true);
    OK(cuMemAlloc(&m, 256));
    OK(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuEventRecord(event, capturing));
    OK(cuStreamWaitEvent(other, event, 0));
    OK(launch(test.fill, other, m, 64, 1));
    CHECK(status_of(other) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, cuStreamEndCapture(capturing, &graph));
    CHECK(status_of(other) == CU_STREAM_CAPTURE_STATUS_NONE);
    /* The end on the wrong stream spoils it. */
    OK(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuEventRecord(event, capturing));
    OK(cuStreamWaitEvent(other, event, 0));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture(other, &graph));
    end(true);
    OK(cuMemFree(m));
    OK(cuEventDestroy(event));
}

static void *leave_capturing(void *unused)
{
    (void)unused;
    OK(cuCtxSetCurrent(test.ctx));
    OK(cuStreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_GLOBAL));
    return NULL;
}

/* The capture of a thread's own stream ends with the thread. */
static void test_of_thread(void)
{
    pthread_t thread;
    CUdeviceptr p;

    CHECK(pthread_create(&thread, NULL, leave_capturing, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    OK(cuMemAlloc(&p, 256));
    OK(cuMemFree(p));
}

/* Captured work runs when the graph is launched, not before; pageable memory is read then. */
static void test_result(void)
{
    unsigned input = 5, output = 0;
    CUgraphExec exec;
    CUgraph graph;
    CUevent fork, join;
    CUdeviceptr p, q;

    OK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
    OK(cuMemAlloc(&p, 256));
    OK(cuMemAlloc(&q, 256));
    OK(cuMemsetD32(p, 1, 64));
    OK(cuCtxSynchronize());
    OK(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemcpyHtoDAsync(p, &input, 4, capturing));
    OK(cuEventRecord(fork, capturing));
    OK(cuStreamWaitEvent(other, fork, 0));
    OK(cuMemsetD32Async(q, 3, 64, other));
    OK(cuEventRecord(join, other));
    OK(launch(test.add, capturing, p, 1, 1));
    OK(cuStreamWaitEvent(capturing, join, 0));
    OK(cuMemcpyDtoDAsync(p + 4, q, 4, capturing));
    OK(cuMemcpyDtoHAsync(&output, p, 4, capturing));
    OK(cuStreamEndCapture(capturing, &graph));
    CHECK(word_at(p) == 1);
    OK(cuGraphInstantiate(&exec, graph, 0));
    for (unsigned i = 0; i < 10; i++) {
        input = 100 + i;
        OK(cuGraphLaunch(exec, capturing));
        OK(cuStreamSynchronize(capturing));
        CHECK(output == input * 3 + 1 && word_at(p + 4) == 3);
        OK(cuMemsetD32(q, 0, 64));
        OK(cuCtxSynchronize());
    }
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuMemFree(p));
    OK(cuMemFree(q));
    OK(cuEventDestroy(fork));
    OK(cuEventDestroy(join));
}

int main(void)
{
    test_open(&test, 0);
    OK(cuStreamCreate(&capturing, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    test_modes();
    test_context_wide();
    test_legacy();
    test_of_the_stream();
    test_of_thread();
    test_result();
    CHECK(sim_violations() == 0);
    CHECK(sim_bytes_in_use(0) == 0);
    return 0;
}
