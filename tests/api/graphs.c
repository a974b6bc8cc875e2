/* Graphs of the control API: captured, replayed, shared, and refused in every wrong order. */
#include <pthread.h>

#include "control.h"

#define WORDS 256u

static uint32_t first_word(CUdeviceptr p)
{
    uint32_t word;

    OK(cuMemcpyDtoH(&word, p, sizeof(word)));
    return word;
}

static void capture_fill(allograft_graph *graph, CUstream stream, allograft_pool pool,
                         CUdeviceptr p, uint32_t value)
{
    EXPECT_STATUS(ALLOGRAFT_OK,
                  allograft_graph_capture_begin(graph, stream, pool, ALLOGRAFT_CAPTURE_GLOBAL));
    launch_fill(stream, p, WORDS, value);
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_capture_end(graph));
}

static void test_orders(allograft_graph *graph, CUstream stream)
{
    allograft_pool pool;
    void *raw;

    EXPECT_STATUS(ALLOGRAFT_STATE, allograft_graph_capture_end(graph));
    EXPECT_STATUS(ALLOGRAFT_STATE, allograft_graph_replay(graph, stream));
    EXPECT_STATUS(ALLOGRAFT_STATE, allograft_graph_instantiate(graph));
    EXPECT_STATUS(ALLOGRAFT_STATE, allograft_graph_raw(graph, &raw));
    EXPECT_STATUS(ALLOGRAFT_STATE, allograft_graph_pool(graph, &pool));
    EXPECT_STATUS(ALLOGRAFT_STATE, allograft_graph_debug_dump(graph, "x"));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_reset(graph));
    EXPECT_STATUS(ALLOGRAFT_INVALID, allograft_graph_capture_begin(graph, NULL, ALLOGRAFT_NEW_POOL,
                                                                   ALLOGRAFT_CAPTURE_GLOBAL));
    EXPECT_STATUS(ALLOGRAFT_INVALID,
                  allograft_graph_capture_begin(graph, CU_STREAM_PER_THREAD, ALLOGRAFT_NEW_POOL,
                                                ALLOGRAFT_CAPTURE_GLOBAL));
    EXPECT_STATUS(ALLOGRAFT_INVALID,
                  allograft_graph_capture_begin(graph, stream, 1234567, ALLOGRAFT_CAPTURE_GLOBAL));
    EXPECT_STATUS(ALLOGRAFT_INVALID,
                  allograft_graph_capture_begin(graph, stream, ALLOGRAFT_NEW_POOL,
                                                (allograft_capture_mode)3));
    EXPECT_STATUS(ALLOGRAFT_INVALID, allograft_graph_replay(NULL, stream));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_destroy(NULL));
}

static void test_open_capture(allograft_graph *graph, CUstream stream, CUdeviceptr p)
{
    allograft_graph *other;
    CUstream second = new_stream();

    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_create(0, &other));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_capture_begin(graph, stream, ALLOGRAFT_NEW_POOL,
                                                              ALLOGRAFT_CAPTURE_RELAXED));
    EXPECT_STATUS(ALLOGRAFT_STATE, allograft_graph_capture_begin(graph, stream, ALLOGRAFT_NEW_POOL,
                                                                 ALLOGRAFT_CAPTURE_RELAXED));
    EXPECT_STATUS(ALLOGRAFT_STATE, allograft_graph_capture_begin(other, second, ALLOGRAFT_NEW_POOL,
                                                                 ALLOGRAFT_CAPTURE_RELAXED));
    launch_fill(stream, p, WORDS, 900);
    EXPECT_STATUS(ALLOGRAFT_STATE, allograft_graph_replay(graph, stream));
    /* Given up in the middle. */
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_reset(graph));
    OK(cuStreamSynchronize(stream));
    CHECK(first_word(p) != 900);
    /* The program captures the stream itself. */
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT_STATUS(ALLOGRAFT_CAPTURING,
                  allograft_graph_capture_begin(graph, stream, ALLOGRAFT_NEW_POOL,
                                                ALLOGRAFT_CAPTURE_RELAXED));
    CUgraph raw;
    OK(cuStreamEndCapture(stream, &raw));
    OK(cuGraphDestroy(raw));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_destroy(other));
    OK(cuStreamDestroy(second));
}

/* What waits for the device cannot be captured: the graph is empty again, and works the next time.
 */
static void test_invalid_capture(allograft_graph *graph, CUstream stream, CUdeviceptr p)
{
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_capture_begin(graph, stream, ALLOGRAFT_NEW_POOL,
                                                              ALLOGRAFT_CAPTURE_GLOBAL));
    launch_fill(stream, p, WORDS, 901);
    CHECK(cuStreamSynchronize(stream) != CUDA_SUCCESS);
    EXPECT_STATUS(ALLOGRAFT_DRIVER, allograft_graph_capture_end(graph));
    CHECK(strstr(allograft_last_error(), "cuStreamEndCapture") != NULL);
    EXPECT_STATUS(ALLOGRAFT_STATE, allograft_graph_replay(graph, stream));
    capture_fill(graph, stream, ALLOGRAFT_NEW_POOL, p, 40);
    EXPECT_STATUS(ALLOGRAFT_STATE, allograft_graph_capture_begin(graph, stream, ALLOGRAFT_NEW_POOL,
                                                                 ALLOGRAFT_CAPTURE_GLOBAL));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_replay(graph, NULL)); /* a default stream will do */
    OK(cuCtxSynchronize());
    CHECK(first_word(p) == 40);
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_reset(graph));
}

static bool exists(const char *path)
{
    FILE *file = fopen(path, "r");
    bool found = file && fgetc(file) != EOF;

    if (file)
        fclose(file);
    return found;
}

static void test_kept(CUstream stream, CUdeviceptr p, const char *folder)
{
    allograft_graph *graph;
    char path[512];
    size_t n = 0;
    void *raw;

    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_create(1, &graph));
    capture_fill(graph, stream, ALLOGRAFT_NEW_POOL, p, 50);
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_raw(graph, &raw));
    OK(cuGraphGetNodes(raw, NULL, &n));
    CHECK(n == 1);
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_instantiate(graph));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_instantiate(graph));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_replay(graph, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(first_word(p) == 50);
    snprintf(path, sizeof(path), "%s/kept.dot", folder);
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_debug_dump(graph, path));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_debug_dump(graph, path));
    CHECK(exists(path));
    EXPECT_STATUS(ALLOGRAFT_INVALID, allograft_graph_debug_dump(graph, ""));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_destroy(graph));
    /* Instantiated by the first replay. */
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_create(1, &graph));
    capture_fill(graph, stream, ALLOGRAFT_NEW_POOL, p, 51);
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_replay(graph, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(first_word(p) == 51);
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_destroy(graph));
    /* Debug mode keeps it for one file. */
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_create(0, &graph));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_enable_debug_mode(graph));
    capture_fill(graph, stream, ALLOGRAFT_NEW_POOL, p, 52);
    EXPECT_STATUS(ALLOGRAFT_STATE, allograft_graph_raw(graph, &raw));
    snprintf(path, sizeof(path), "%s/debug.dot", folder);
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_debug_dump(graph, path));
    CHECK(exists(path));
    EXPECT_STATUS(ALLOGRAFT_STATE, allograft_graph_debug_dump(graph, path));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_destroy(graph));
}

static void test_shared(void)
{
    allograft_pool pool = 0, other = 0, fresh = 0;
    void *stream, *again;

    EXPECT_STATUS(ALLOGRAFT_OK, allograft_pool_shared(0, &pool));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_pool_shared(0, &other));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_pool_new(&fresh));
    CHECK(pool && pool == other && fresh && fresh != pool);
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_capture_stream(0, &stream));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_capture_stream(0, &again));
    CHECK(stream && stream == again);
    EXPECT_STATUS(ALLOGRAFT_INVALID, allograft_pool_shared(77, &pool));
    EXPECT_STATUS(ALLOGRAFT_INVALID, allograft_capture_stream(-1, &stream));
}

static void *stream_of(CUcontext context)
{
    CUcontext of = NULL;
    void *stream = NULL;

    OK(cuCtxSetCurrent(context));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_capture_stream(0, &stream));
    OK(cuStreamGetCtx(stream, &of));
    CHECK(of == context);
    return stream;
}

/* Each context of the device has its own, for as long as it lives. */
static void test_shared_by_context(void)
{
    CUcontext first, other[2];
    void *stream, *others;

    OK(cuCtxGetCurrent(&first));
    stream = stream_of(first);
    for (unsigned i = 0; i < 20; i++) {
        OK(cuCtxCreate(&other[0], NULL, 0, 0));
        OK(cuCtxCreate(&other[1], NULL, 0, 0));
        others = stream_of(other[0]);
        CHECK(stream_of(other[1]) != others && stream_of(first) == stream);
        CHECK(stream_of(other[0]) == others);
        OK(cuCtxDestroy(other[i % 2]));
        (void)stream_of(other[(i + 1) % 2]);
        OK(cuCtxDestroy(other[(i + 1) % 2]));
        CHECK(stream_of(first) == stream);
    }
}

void test_graphs(const char *folder)
{
    CUstream stream = new_stream();
    allograft_graph *graph;
    CUdeviceptr p;

    OK(cuMemAlloc(&p, WORDS * sizeof(uint32_t)));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_create(0, &graph));
    test_orders(graph, stream);
    test_open_capture(graph, stream, p);
    test_invalid_capture(graph, stream, p);
    for (uint32_t iteration = 0; iteration < 100; iteration++) { /* resets leave nothing behind */
        capture_fill(graph, stream, ALLOGRAFT_NEW_POOL, p, iteration);
        launch_fill(stream, p, WORDS, 12345);
        EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_replay(graph, stream));
        OK(cuStreamSynchronize(stream));
        CHECK(first_word(p) == iteration && count_wrong(p, WORDS, iteration) == 0);
        EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_reset(graph));
    }
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_destroy(graph));
    test_kept(stream, p, folder);
    test_shared();
    test_shared_by_context();
    OK(cuMemFree(p));
    say("graphs: right");
}

/* ---- memory of captures ---- */

static size_t room(void)
{
    size_t room, total;

    OK(cuCtxSynchronize());
    OK(cuMemGetInfo(&room, &total));
    return room;
}

/* Temporaries as a library allocates them: filled, copied out, freed, all while it is captured. */
static void capture_temporaries(allograft_graph *graph, CUstream stream, allograft_pool pool,
                                CUdeviceptr out, uint32_t value)
{
    CUdeviceptr a, b;

    EXPECT_STATUS(ALLOGRAFT_OK,
                  allograft_graph_capture_begin(graph, stream, pool, ALLOGRAFT_CAPTURE_GLOBAL));
    OK(cuMemAlloc(&a, 1 << 20));
    launch_fill(stream, a, WORDS, value);
    OK(cuMemAlloc(&b, 1 << 20));
    CHECK(a != b);
    OK(cuMemcpyDtoDAsync(b, a, WORDS * sizeof(uint32_t), stream));
    OK(cuMemFree(a));
    OK(cuMemcpyDtoDAsync(out, b, WORDS * sizeof(uint32_t), stream));
    OK(cuMemFree(b));
    CHECK(cuMemFree(b) == CUDA_ERROR_INVALID_VALUE);
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_capture_end(graph));
}

static void replay_and_check(allograft_graph *graph, CUstream stream, CUdeviceptr out,
                             uint32_t value)
{
    CUdeviceptr noise;

    /* Whoever allocates now must not get the graph's memory. */
    OK(cuMemAlloc(&noise, 1 << 20));
    launch_fill(stream, noise, WORDS, 66666);
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_replay(graph, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(count_wrong(noise, WORDS, 66666) == 0 && count_wrong(out, WORDS, value) == 0);
    OK(cuMemFree(noise));
}

static unsigned long long buffer_of(CUdeviceptr p)
{
    unsigned long long id = 0;

    OK(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, p));
    return id;
}

/* What is freed is unknown, though the graph has it; the next allocation there is another one. */
static void ask_in_captures(CUstream stream)
{
    allograft_graph *graph, *sharing;
    unsigned long long id;
    allograft_pool pool;
    CUdeviceptr p, again;
    size_t bytes;

    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_create(0, &graph));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_create(0, &sharing));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_capture_begin(graph, stream, ALLOGRAFT_NEW_POOL,
                                                              ALLOGRAFT_CAPTURE_GLOBAL));
    OK(cuMemAlloc(&p, 3u << 20));
    id = buffer_of(p);
    OK(cuMemFree(p));
    CHECK(cuMemGetAddressRange(NULL, &bytes, p) == CUDA_ERROR_NOT_FOUND);
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_capture_end(graph));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_pool(graph, &pool));
    EXPECT_STATUS(ALLOGRAFT_OK,
                  allograft_graph_capture_begin(sharing, stream, pool, ALLOGRAFT_CAPTURE_GLOBAL));
    OK(cuMemAlloc(&again, 2u << 20));
    OK(cuMemGetAddressRange(NULL, &bytes, again));
    CHECK(again == p && bytes == 2u << 20 && buffer_of(again) != id);
    OK(cuMemFree(again));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_capture_end(sharing));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_destroy(graph));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_destroy(sharing));
}

/* In stream order, on the stream that is captured: refused, and the capture goes on. */
static void free_from_before(CUstream stream, CUdeviceptr out)
{
    static const size_t sizes[] = {4096, 4u << 20};
    allograft_graph *graph;
    CUdeviceptr p;

    for (unsigned i = 0; i < 2; i++) {
        OK(cuMemAlloc(&p, sizes[i]));
        EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_create(0, &graph));
        EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_capture_begin(graph, stream, ALLOGRAFT_NEW_POOL,
                                                                  ALLOGRAFT_CAPTURE_GLOBAL));
        launch_fill(stream, out, WORDS, 60);
        CHECK(cuMemFreeAsync(p, stream) == CUDA_ERROR_INVALID_VALUE);
        EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_capture_end(graph));
        EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_destroy(graph));
        OK(cuMemFree(p));
    }
}

/* What the program has freed before is there for a capture on a card that is else full. */
static void capture_when_full(CUstream stream)
{
    size_t free_bytes = room();
    allograft_graph *graph;
    CUdeviceptr rest, p;

    OK(cuMemAlloc(&rest, free_bytes / 4 * 3));
    for (unsigned i = 0; i < 2; i++) {
        OK(cuMemAlloc(&p, free_bytes / 5));
        OK(cuMemFree(p));
    }
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_create(0, &graph));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_capture_begin(graph, stream, ALLOGRAFT_NEW_POOL,
                                                              ALLOGRAFT_CAPTURE_GLOBAL));
    OK(cuMemAlloc(&p, free_bytes / 5));
    launch_fill(stream, p, WORDS, 50);
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_capture_end(graph));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_replay(graph, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(count_wrong(p, WORDS, 50) == 0);
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_destroy(graph));
    OK(cuMemFree(p));
    OK(cuMemFree(rest));
}

void test_private_memory(void)
{
    CUstream stream = new_stream();
    allograft_graph *graph, *sharing;
    allograft_pool pool;
    CUdeviceptr out, kept, other;
    size_t before;

    if (!intercepted) {
        say("private memory: right");
        return;
    }
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_create(0, &graph));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_create(0, &sharing));
    OK(cuMemAlloc(&out, WORDS * sizeof(uint32_t)));
    before = room();
    capture_temporaries(graph, stream, ALLOGRAFT_NEW_POOL, out, 10);
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_pool(graph, &pool));
    replay_and_check(graph, stream, out, 10);
    capture_temporaries(sharing, stream, pool, out, 20);
    CHECK(room() >= before - (5u << 20)); /* the second capture used what the first had freed */
    for (uint32_t iteration = 0; iteration < 10; iteration++) {
        replay_and_check(graph, stream, out, 10);
        replay_and_check(sharing, stream, out, 20);
    }
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_reset(graph));
    replay_and_check(sharing, stream, out, 20); /* the pool lives as long as one of them */
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_replay(sharing, stream));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_reset(sharing)); /* while it may run */
    /* What the program keeps outlives the graph, and is an allocation like any other then. */
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_capture_begin(graph, stream, ALLOGRAFT_NEW_POOL,
                                                              ALLOGRAFT_CAPTURE_RELAXED));
    OK(cuMemAlloc(&kept, WORDS * sizeof(uint32_t)));
    launch_fill(stream, kept, WORDS, 30);
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_capture_end(graph));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_replay(graph, stream));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_reset(graph));
    OK(cuCtxSynchronize());
    CHECK(count_wrong(kept, WORDS, 30) == 0);
    OK(cuMemFree(kept));
    /* Freed between captures, and in stream order. */
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_capture_begin(graph, stream, ALLOGRAFT_NEW_POOL,
                                                              ALLOGRAFT_CAPTURE_GLOBAL));
    OK(cuMemAlloc(&kept, WORDS * sizeof(uint32_t)));
    OK(cuMemAlloc(&other, WORDS * sizeof(uint32_t)));
    launch_fill(stream, kept, WORDS, 40);
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_capture_end(graph));
    OK(cuMemFree(kept));
    OK(cuMemFreeAsync(other, stream));
    for (unsigned i = 0; i < 3; i++)
        EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_replay(graph, stream));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_destroy(graph));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_destroy(sharing));
    CHECK(room() >= before - (5u << 20));
    ask_in_captures(stream);
    free_from_before(stream, out);
    capture_when_full(stream);
    OK(cuMemFree(out));
    say("private memory: right");
}

/* ---- several threads ---- */

static CUcontext context;

static void *work(void *data)
{
    uint32_t number = (uint32_t)(uintptr_t)data;
    CUstream stream;
    allograft_graph *graph;
    CUdeviceptr p, q;

    OK(cuCtxSetCurrent(context));
    stream = new_stream();
    OK(cuMemAlloc(&p, WORDS * sizeof(uint32_t)));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_create(0, &graph));
    for (uint32_t iteration = 0; iteration < 20; iteration++) {
        uint32_t value = 1000 * number + iteration;

        EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_capture_begin(graph, stream, ALLOGRAFT_NEW_POOL,
                                                                  ALLOGRAFT_CAPTURE_THREAD_LOCAL));
        if (intercepted)
            OK(cuMemAlloc(&q, 4096));
        launch_fill(stream, p, WORDS, value);
        if (intercepted)
            OK(cuMemFree(q));
        EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_capture_end(graph));
        for (unsigned i = 0; i < 3; i++)
            EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_replay(graph, stream));
        OK(cuStreamSynchronize(stream));
        uint32_t words[WORDS];
        OK(cuMemcpyDtoHAsync(words, p, sizeof(words), stream));
        OK(cuStreamSynchronize(stream));
        for (uint32_t i = 0; i < WORDS; i++)
            CHECK(words[i] == value + i);
        EXPECT_STATUS(ALLOGRAFT_OK, allograft_mark("iteration"));
        EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_reset(graph));
    }
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_destroy(graph));
    CHECK(!*allograft_last_error());
    return NULL;
}

void test_threads(void)
{
    pthread_t threads[4];

    OK(cuCtxGetCurrent(&context));
    for (unsigned i = 0; i < 4; i++)
        OK(pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)(i + 1)));
    for (unsigned i = 0; i < 4; i++)
        OK(pthread_join(threads[i], NULL));
    say("threads: right");
}
