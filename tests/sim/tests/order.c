/* order.c: which work waits for which: streams of all kinds, events, contexts as a whole.
 *
 * Each rule is tried in pairs: what is ordered never fails, what is not does go wrong under some
 * schedule of the iterations made here (so the scheduler is hostile indeed). */
#include "sim_test.h"

#define ITERATIONS 60

static struct test test;

enum place { ON_LEGACY, ON_PER_THREAD, ON_BLOCKING, ON_FREE, ON_OTHER_FREE, N_PLACES };

static CUstream streams[N_PLACES];

/* Work on `first` writes 1, work on `then` makes 3*1+1 = 4 of it: 4 only when run in order. */
static bool in_order(CUstream first, CUstream then)
{
    CUdeviceptr p;

    OK(cuMemAlloc(&p, 64));
    OK(cuMemsetD8(p, 0, 64));
    OK(cuCtxSynchronize());
    OK(launch(test.fill, first, p, 1, 1));
    OK(launch(test.add, then, p, 1, 1));
    OK(cuCtxSynchronize());
    bool good = word_at(p) == 4;
    OK(cuMemFree(p));
    return good;
}

static void expect_order(enum place first, enum place then, bool ordered)
{
    int bad = 0;

    for (int i = 0; i < ITERATIONS; i++)
        bad += !in_order(streams[first], streams[then]);
    if (ordered)
        CHECK(bad == 0);
    else
        CHECK(bad > 0);
}

static void test_kinds(void)
{
    expect_order(ON_LEGACY, ON_LEGACY, true);
    expect_order(ON_BLOCKING, ON_BLOCKING, true);
    expect_order(ON_FREE, ON_FREE, true);
    expect_order(ON_LEGACY, ON_BLOCKING, true);
    expect_order(ON_BLOCKING, ON_LEGACY, true);
    expect_order(ON_LEGACY, ON_PER_THREAD, true);
    expect_order(ON_PER_THREAD, ON_LEGACY, true);
    expect_order(ON_PER_THREAD, ON_BLOCKING, false);
    expect_order(ON_BLOCKING, ON_FREE, false);
    expect_order(ON_LEGACY, ON_FREE, false);
    expect_order(ON_FREE, ON_LEGACY, false);
    expect_order(ON_FREE, ON_OTHER_FREE, false);
}

static void test_events(void)
{
    CUevent event;
    CUdeviceptr p;

    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuMemAlloc(&p, 64));
    OK(cuStreamWaitEvent(streams[ON_FREE], event, 0)); /* never recorded: waits for nothing */
    for (int i = 0; i < ITERATIONS; i++) {
        OK(launch(test.fill, streams[ON_FREE], p, 1, 1));
        OK(cuEventRecord(event, streams[ON_FREE]));
        OK(cuStreamWaitEvent(streams[ON_OTHER_FREE], event, 0));
        OK(launch(test.add, streams[ON_OTHER_FREE], p, 1, 1));
        OK(cuStreamSynchronize(streams[ON_OTHER_FREE]));
        CHECK(word_at(p) == 4);
    }
    /* A query makes progress and says so in the end. */
    OK(launch(test.fill, streams[ON_FREE], p, 1, 9));
    OK(cuEventRecord(event, streams[ON_FREE]));
    CUresult result;
    while ((result = cuEventQuery(event)) == CUDA_ERROR_NOT_READY)
        continue;
    OK(result);
    CHECK(word_at(p) == 9);
    OK(cuEventDestroy(event));
    OK(cuMemFree(p));
}

static void test_context_events(void)
{
    CUevent event;
    CUdeviceptr p, q;

    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuMemAlloc(&p, 64));
    OK(cuMemAlloc(&q, 64));
    for (int i = 0; i < ITERATIONS; i++) {
        enum place first = i % 5, then = (i / 5 + i) % 5;
        OK(launch(test.fill, streams[first], p, 1, 1));
        OK(launch(test.fill, streams[ON_OTHER_FREE], q, 1, 1));
        OK(cuCtxRecordEvent(test.ctx, event));
        OK(cuCtxWaitEvent(test.ctx, event));
        OK(launch(test.add, streams[then], p, 1, 1));
        OK(launch(test.add, streams[ON_FREE], q, 1, 1));
        OK(cuCtxSynchronize());
        CHECK(word_at(p) == 4 && word_at(q) == 4);
    }
    OK(cuMemFree(p));
    OK(cuMemFree(q));
    OK(cuEventDestroy(event));
}

/* A stream that is destroyed with work in it is still part of all that. */
static void test_destroyed_stream(void)
{
    CUdeviceptr p;
    CUstream stream;

    OK(cuMemAlloc(&p, 64));
    for (int i = 0; i < ITERATIONS; i++) {
        OK(cuStreamCreate(&stream, i & 1 ? CU_STREAM_NON_BLOCKING : 0));
        OK(launch(test.fill, stream, p, 1, 1));
        OK(cuStreamDestroy(stream));
        if (i & 1)
            OK(cuCtxSynchronize());
        OK(launch(test.add, NULL, p, 1, 1));
        OK(cuStreamSynchronize(NULL));
        CHECK(word_at(p) == 4);
    }
    OK(cuMemFree(p));
}

static void add_in_host(void *data)
{
    unsigned *word = data;

    CUresult query = cuStreamQuery(CU_STREAM_LEGACY);
    CHECK(query == CUDA_SUCCESS || query == CUDA_ERROR_NOT_READY);
    CHECK(cuStreamSynchronize(CU_STREAM_LEGACY) == CUDA_ERROR_NOT_PERMITTED);
    *word = *word * 3 + 1;
}

static void CUDA_CB add_in_callback(CUstream stream, CUresult status, void *data)
{
    (void)stream;
    CHECK(status == CUDA_SUCCESS);
    add_in_host(data);
}

static void test_host_functions(void)
{
    unsigned *word;

    OK(cuMemAllocHost((void **)&word, 64));
    for (int i = 0; i < ITERATIONS; i++) {
        CUstream stream = streams[i % N_PLACES];
        OK(launch(test.fill, stream, (CUdeviceptr)(uintptr_t)word, 1, 1));
        OK(cuLaunchHostFunc(stream, add_in_host, word));
        OK(launch(test.add, stream, (CUdeviceptr)(uintptr_t)word, 1, 1));
        OK(cuStreamAddCallback(stream, add_in_callback, word, 0));
        OK(cuStreamSynchronize(stream));
        CHECK(*word == 40);
    }
    OK(cuMemFreeHost(word));
}

/* Natively a free waits for all work of its context; so does the end of pinned memory. */
static void test_native_free(void)
{
    CUdeviceptr p, q;
    unsigned *word;

    OK(cuMemAllocHost((void **)&word, 64));
    OK(cuMemAlloc(&p, 64));
    for (int i = 0; i < ITERATIONS; i++) {
        OK(cuMemAlloc(&q, 64));
        OK(launch(test.fill, streams[ON_FREE], p, 1, 7 + (unsigned)i));
        OK(cuMemcpyDtoHAsync(word, p, 4, streams[ON_FREE]));
        OK(cuMemFree(q));
        CHECK(*word == 7 + (unsigned)i);
    }
    OK(cuMemFree(p));
    OK(cuMemFreeHost(word));
}

static void test_timing(void)
{
    CUevent start, end, plain;
    CUdeviceptr p;
    float ms;

    OK(cuMemAlloc(&p, 64));
    OK(cuEventCreate(&start, 0));
    OK(cuEventCreate(&end, 0));
    OK(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, start, end));
    OK(cuEventRecord(start, NULL));
    OK(launch(test.fill, NULL, p, 1, 1));
    OK(cuEventRecord(end, NULL));
    OK(cuEventRecord(plain, NULL));
    CUresult result;
    while ((result = cuEventElapsedTime(&ms, start, end)) == CUDA_ERROR_NOT_READY)
        (void)cuEventQuery(end);
    OK(result);
    CHECK(ms > 0);
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, start, plain));
    OK(cuEventDestroy(start));
    OK(cuEventDestroy(end));
    OK(cuEventDestroy(plain));
    OK(cuMemFree(p));
}

int main(void)
{
    test_open(&test, 0);
    streams[ON_PER_THREAD] = CU_STREAM_PER_THREAD;
    OK(cuStreamCreate(&streams[ON_BLOCKING], CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&streams[ON_FREE], CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&streams[ON_OTHER_FREE], CU_STREAM_NON_BLOCKING));
    if (!getenv("SIM_SCHED")) /* the others are not out to show what may go wrong */
        test_kinds();
    test_events();
    test_context_events();
    test_destroyed_stream();
    test_host_functions();
    test_native_free();
    test_timing();
    CHECK(sim_violations() == 0);
    CHECK(sim_bytes_in_use(0) == 0);
    return 0;
}
