/* A run through the control API in which the driver may fail any call: nothing may crash, hang, or
 * stay behind. */
#include "control.h"

#define WORDS 64u
#define BYTES (WORDS * sizeof(uint32_t))

static unsigned n_failed;

/* Goes on after a failure, which must have a text. */
static bool works(allograft_status status)
{
    if (status == ALLOGRAFT_OK)
        return true;
    CHECK(*allograft_last_error());
    n_failed++;
    return false;
}

/* What the API counts of managed memory; only where it intercepts, it sees the program's frees. */
static uint64_t held(void)
{
    struct allograft_snapshot now = {.bytes = sizeof(now)};

    EXPECT_STATUS(ALLOGRAFT_OK, allograft_snapshot(&now));
    return now.current_bytes[ALLOGRAFT_MANAGED];
}

/* Freed by the program: what the driver would not free is still there. */
static void free_managed(CUstream stream)
{
    void *memory = NULL;

    if (!works(allograft_managed_alloc(&memory, 1u << 20, 0, stream)))
        return;
    CHECK(held() == 1u << 20);
    if (cuMemFree((CUdeviceptr)memory) != CUDA_SUCCESS) {
        n_failed++;
        CHECK(held() == 1u << 20);
        OK(cuMemFree((CUdeviceptr)memory));
    }
    CHECK(held() == (intercepted ? 0 : 1u << 20));
}

static void use_managed(CUstream stream)
{
    void *memory = NULL;
    struct allograft_range range;

    if (!works(allograft_managed_alloc(&memory, 4u << 20, 0, stream)))
        return;
    range = (struct allograft_range){memory, 4u << 20};
    (void)works(allograft_prefetch(memory, 4u << 20, ALLOGRAFT_HOST, stream));
    (void)works(allograft_advise_preferred_location(&range, 1, ALLOGRAFT_HOST, NULL));
    (void)works(allograft_advise_accessed_by(&range, 1, 0, NULL));
    if (!works(allograft_managed_free(memory, 4u << 20, 0, stream))) {
        CHECK(held() == 4u << 20);
        (void)works(allograft_managed_free(memory, 4u << 20, 0, stream));
    }
    CHECK(held() == 0);
}

static void use_graph(CUstream stream, CUdeviceptr p)
{
    allograft_graph *graph;
    CUdeviceptr temporary;

    if (!works(allograft_graph_create(1, &graph)))
        return;
    for (unsigned iteration = 0; iteration < 2; iteration++) {
        if (!works(allograft_graph_capture_begin(graph, stream, ALLOGRAFT_NEW_POOL,
                                                 ALLOGRAFT_CAPTURE_GLOBAL)))
            continue;
        if (intercepted && cuMemAlloc(&temporary, BYTES) == CUDA_SUCCESS)
            (void)cuMemFree(temporary);
        (void)cuMemsetD32Async(p, 7, WORDS, stream);
        (void)works(allograft_graph_capture_end(graph));
        (void)works(allograft_graph_replay(graph, stream));
        (void)works(allograft_graph_reset(graph));
    }
    while (!works(allograft_graph_destroy(graph)))
        continue;
}

static void use_stage(CUstream stream, CUdeviceptr out)
{
    struct allograft_stage_options options = {
        .bytes = sizeof(options), .name = "s", .warmup = 1, .flags = ALLOGRAFT_STAGE_SINGLE_POOL};
    uint32_t source[WORDS] = {1};
    allograft_stage *stage;
    allograft_action action;
    void *input;

    if (!works(allograft_stage_open(&options, &stage)))
        return;
    for (unsigned iteration = 0; iteration < 4; iteration++) {
        if (!works(allograft_stage_input(stage, 0, 0, BYTES, &input)))
            continue;
        (void)works(allograft_stage_load(stage, 0, 0, source, BYTES, stream));
        if (!works(allograft_stage_begin(stage, stream, &action)))
            continue;
        if (action != ALLOGRAFT_SKIP)
            (void)cuMemcpyDtoDAsync(out, (CUdeviceptr)input, BYTES, stream);
        (void)works(allograft_stage_end(stage));
    }
    while (!works(allograft_stage_close(stage)))
        continue;
}

static void use_ring(CUstream stream)
{
    struct allograft_ring_options options = {
        .bytes = sizeof(options), .depth = 2, .slot_bytes = BYTES, .flags = ALLOGRAFT_RING_TIMING};
    static uint32_t host[2][WORDS];
    struct allograft_ring_record records[4];
    allograft_ring *ring;
    int ready;
    size_t n;

    if (!works(allograft_ring_open(&options, &ring)))
        return;
    for (unsigned iteration = 0; iteration < 4; iteration++) {
        unsigned slot = iteration % 2;

        if (iteration < 2)
            (void)works(allograft_ring_register(ring, slot, host[slot], BYTES));
        if (!works(allograft_ring_submit(ring, slot, BYTES)))
            continue;
        (void)works(allograft_ring_query(ring, slot, &ready));
        (void)works(allograft_ring_wait_stream(ring, slot, stream));
        (void)works(allograft_ring_reader(ring, slot, stream));
        (void)works(allograft_ring_wait_host(ring, slot));
    }
    (void)works(allograft_ring_trace(ring, records, 4, &n));
    (void)works(allograft_ring_close(ring));
}

static void use_copies(CUdeviceptr p)
{
    struct allograft_ring_options options = {.bytes = sizeof(options), .depth = 1};
    static uint32_t host[WORDS];
    allograft_ring *ring;

    if (!works(allograft_ring_open(&options, &ring)))
        return;
    (void)works(allograft_ring_pin(ring, host, BYTES));
    for (unsigned iteration = 0; iteration < 3; iteration++) {
        if (works(allograft_ring_copy(ring, 0, (void *)p, host, BYTES)))
            (void)works(allograft_ring_wait_host(ring, 0));
    }
    (void)works(allograft_ring_close(ring));
}

static size_t room(void)
{
    size_t room = 0, total;

    (void)cuCtxSynchronize();
    (void)cuMemGetInfo(&room, &total);
    return room;
}

void test_failures(void)
{
    CUstream stream = new_stream();
    CUdeviceptr p;
    allograft_pool pool;
    void *shared;
    size_t before;

    OK(cuMemAlloc(&p, BYTES));
    use_managed(stream);
    free_managed(stream);
    before = room(); /* the driver keeps what managed memory was freed */
    use_graph(stream, p);
    use_stage(stream, p);
    use_ring(stream);
    use_copies(p);
    (void)works(allograft_pool_shared(0, &pool));
    (void)works(allograft_capture_stream(0, &shared));
    say("left behind: %zu", before - room());
    say("came to the end, %s", n_failed ? "with failures" : "without a failure");
}
