/* Transfer rings of the control API: every backend, ready and cleared slots, readers, and thousands
 * of batches. */
#include <sys/mman.h>

#include "control.h"

#define WORDS 512u
#define BYTES (WORDS * sizeof(uint32_t))

static allograft_ring *open_ring(unsigned depth, allograft_ring_backend backend, unsigned flags)
{
    struct allograft_ring_options options = {.bytes = sizeof(options),
                                             .device = 0,
                                             .depth = depth,
                                             .slot_bytes = BYTES,
                                             .flags = flags,
                                             .backend = backend};
    allograft_ring *ring;

    EXPECT_STATUS(ALLOGRAFT_OK, allograft_ring_open(&options, &ring));
    return ring;
}

/* Memory as other processes could have it too. */
static uint32_t *shared_memory(void)
{
    void *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(memory != MAP_FAILED);
    return memory;
}

static void fill_host(uint32_t *host, uint32_t value)
{
    for (uint32_t i = 0; i < WORDS; i++)
        host[i] = value + i;
}

static int is_ready(allograft_ring *ring, unsigned slot)
{
    int ready = 7;

    EXPECT_STATUS(ALLOGRAFT_OK, allograft_ring_query(ring, slot, &ready));
    CHECK(ready == 0 || ready == 1);
    return ready;
}

static void test_one(allograft_ring_backend backend, unsigned flags)
{
    allograft_ring *ring = open_ring(2, backend, flags);
    struct allograft_ring_properties properties;
    struct allograft_ring_record records[8];
    uint32_t *host = shared_memory();
    void *device;
    size_t n = 0;

    EXPECT_STATUS(ALLOGRAFT_STATE, allograft_ring_submit(ring, 0, BYTES));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_ring_register(ring, 0, host, BYTES));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_ring_get_properties(ring, 0, &properties));
    CHECK(properties.backend == backend && properties.timing == (int)flags);
    CHECK(properties.pinned == (backend != ALLOGRAFT_RING_PAGEABLE));
    CHECK(properties.async_submit == (backend == ALLOGRAFT_RING_PINNED));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_ring_device_slot(ring, 0, &device));
    CHECK(!is_ready(ring, 0));
    EXPECT_STATUS(ALLOGRAFT_STATE, allograft_ring_wait_host(ring, 0));
    EXPECT_STATUS(ALLOGRAFT_STATE, allograft_ring_wait_stream(ring, 0, NULL));
    for (uint32_t iteration = 0; iteration < 6; iteration++) {
        fill_host(host, 10 * iteration);
        EXPECT_STATUS(ALLOGRAFT_OK, allograft_ring_submit(ring, 0, BYTES));
        if (!properties.async_submit)
            fill_host(host, 999); /* it may be written at once */
        EXPECT_STATUS(ALLOGRAFT_OK, allograft_ring_wait_host(ring, 0));
        CHECK(is_ready(ring, 0));
        CHECK(count_wrong((CUdeviceptr)device, WORDS, 10 * iteration) == 0);
        EXPECT_STATUS(ALLOGRAFT_OK, allograft_ring_clear(ring, 0));
        CHECK(!is_ready(ring, 0));
        EXPECT_STATUS(ALLOGRAFT_STATE, allograft_ring_wait_host(ring, 0));
    }
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_ring_trace(ring, records, 4, &n));
    CHECK(n == 4 && records[0].sequence == 3 && records[3].sequence == 6 &&
          records[3].bytes == BYTES);
    CHECK(records[1].submit_ns <= records[2].submit_ns && records[2].slot == 0);
    for (unsigned i = 0; i < 4; i++)
        CHECK(flags ? records[i].copy_ms >= 0 : records[i].copy_ms < 0);
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_ring_close(ring));
    fill_host(host, 1); /* nobody has it any more */
    CHECK(!munmap(host, BYTES));
}

/* Copies between memory of the caller's: more host buffers than slots. */
static void test_copies(void)
{
    struct allograft_ring_options options = {.bytes = sizeof(options), .depth = 2};
    CUstream stream = new_stream(), copies = NULL;
    struct allograft_ring_record record;
    CUdeviceptr device[3];
    uint32_t *host[5];
    allograft_ring *ring;
    void *none;
    size_t n = 0;

    EXPECT_STATUS(ALLOGRAFT_OK, allograft_ring_open(&options, &ring));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_ring_get_stream(ring, (void **)&copies));
    CHECK(copies);
    EXPECT_STATUS(ALLOGRAFT_STATE, allograft_ring_register(ring, 0, host, BYTES));
    EXPECT_STATUS(ALLOGRAFT_STATE, allograft_ring_device_slot(ring, 0, &none));
    EXPECT_STATUS(ALLOGRAFT_INVALID, allograft_ring_submit(ring, 0, BYTES));
    EXPECT_STATUS(ALLOGRAFT_INVALID, allograft_ring_pin(ring, NULL, BYTES));
    for (unsigned i = 0; i < 3; i++)
        OK(cuMemAlloc(&device[i], BYTES));
    for (unsigned i = 0; i < 5; i++) {
        host[i] = shared_memory();
        if (i < 4) /* the last one stays pageable */
            EXPECT_STATUS(ALLOGRAFT_OK, allograft_ring_pin(ring, host[i], BYTES));
    }
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_ring_pin(ring, host[0], BYTES)); /* as it is */
    EXPECT_STATUS(ALLOGRAFT_INVALID, allograft_ring_copy(ring, 0, NULL, host[0], BYTES));
    EXPECT_STATUS(ALLOGRAFT_INVALID, allograft_ring_copy(ring, 2, NULL, NULL, 0));
    CHECK(!is_ready(ring, 0));
    for (uint32_t i = 0; i < 30; i++) {
        void *to = (void *)device[i % 3];

        if (i)
            EXPECT_STATUS(ALLOGRAFT_OK, allograft_ring_wait_host(ring, (i - 1) % 2));
        fill_host(host[i % 5], 10 * i);
        EXPECT_STATUS(ALLOGRAFT_OK, allograft_ring_copy(ring, i % 2, to, host[i % 5], BYTES));
        EXPECT_STATUS(ALLOGRAFT_OK, allograft_ring_wait_host(ring, i % 2));
        CHECK(is_ready(ring, i % 2) && count_wrong(device[i % 3], WORDS, 10 * i) == 0);
        EXPECT_STATUS(ALLOGRAFT_OK, allograft_ring_reader(ring, i % 2, stream));
    }
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_ring_trace(ring, &record, 1, &n));
    CHECK(n == 1 && record.sequence == 30 && record.bytes == BYTES && record.slot == 1);
    /* Nothing is copied: ready when what the program submitted there itself is done. */
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_ring_clear(ring, 0));
    launch_fill(copies, device[0], WORDS, 77);
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_ring_copy(ring, 0, NULL, NULL, 0));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_ring_wait_host(ring, 0));
    CHECK(count_wrong(device[0], WORDS, 77) == 0);
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_ring_close(ring));
    for (unsigned i = 0; i < 5; i++) { /* nobody has it pinned any more */
        OK(cuMemHostRegister(host[i], BYTES, 0));
        OK(cuMemHostUnregister(host[i]));
        CHECK(!munmap(host[i], BYTES));
    }
    for (unsigned i = 0; i < 3; i++)
        OK(cuMemFree(device[i]));
}

/* While the calling thread captures, a ring is not closed, and the capture lives on. */
static void test_close_in_capture(void)
{
    allograft_ring *ring = open_ring(1, ALLOGRAFT_RING_AUTO, 0);
    CUstream stream = new_stream();
    allograft_graph *graph;
    CUdeviceptr p;

    OK(cuMemAlloc(&p, BYTES));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_create(0, &graph));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_capture_begin(graph, stream, ALLOGRAFT_NEW_POOL,
                                                              ALLOGRAFT_CAPTURE_GLOBAL));
    EXPECT_STATUS(ALLOGRAFT_CAPTURING, allograft_ring_close(ring));
    launch_fill(stream, p, WORDS, 3);
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_capture_end(graph));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_replay(graph, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(count_wrong(p, WORDS, 3) == 0);
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_ring_close(ring));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_graph_destroy(graph));
    OK(cuMemFree(p));
}

/* A host slot of which only the beginning is pinned, by the program: it travels in another way. */
static void test_half_pinned(void)
{
    allograft_ring *ring = open_ring(1, ALLOGRAFT_RING_AUTO, 0);
    struct allograft_ring_properties properties;
    uint32_t *host = shared_memory();
    void *device;

    OK(cuMemHostRegister(host, BYTES / 2, 0));
    fill_host(host, 5);
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_ring_register(ring, 0, host, BYTES));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_ring_get_properties(ring, 0, &properties));
    CHECK(properties.backend == ALLOGRAFT_RING_BOUNCE);
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_ring_device_slot(ring, 0, &device));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_ring_submit(ring, 0, BYTES));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_ring_wait_host(ring, 0));
    CHECK(count_wrong((CUdeviceptr)device, WORDS, 5) == 0);
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_ring_close(ring));
    OK(cuMemHostUnregister(host));
    CHECK(!munmap(host, BYTES));
}

static void test_invalid(void)
{
    struct allograft_ring_options options = {
        .bytes = sizeof(options), .depth = 0, .slot_bytes = 64};
    allograft_ring *ring;
    uint32_t word;

    EXPECT_STATUS(ALLOGRAFT_INVALID, allograft_ring_open(&options, &ring));
    options.depth = 1;
    options.device = 55;
    EXPECT_STATUS(ALLOGRAFT_INVALID, allograft_ring_open(&options, &ring));
    options.device = 0;
    options.flags = 6;
    EXPECT_STATUS(ALLOGRAFT_INVALID, allograft_ring_open(&options, &ring));
    CHECK(strstr(allograft_last_error(), "0x6") != NULL);
    ring = open_ring(1, ALLOGRAFT_RING_AUTO, 0);
    EXPECT_STATUS(ALLOGRAFT_INVALID, allograft_ring_register(ring, 1, &word, BYTES));
    EXPECT_STATUS(ALLOGRAFT_INVALID, allograft_ring_register(ring, 0, &word, sizeof(word)));
    EXPECT_STATUS(ALLOGRAFT_INVALID, allograft_ring_submit(ring, 0, BYTES + 1));
    EXPECT_STATUS(ALLOGRAFT_INVALID, allograft_ring_clear(ring, 9));
    EXPECT_STATUS(ALLOGRAFT_INVALID, allograft_ring_query(NULL, 0, NULL));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_ring_close(ring));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_ring_close(NULL));
}

void test_rings(void)
{
    void *pinned;
    allograft_ring *ring;
    struct allograft_ring_properties properties;

    for (unsigned flags = 0; flags <= ALLOGRAFT_RING_TIMING; flags++) {
        test_one(ALLOGRAFT_RING_PINNED, flags);
        test_one(ALLOGRAFT_RING_BOUNCE, flags);
        test_one(ALLOGRAFT_RING_PAGEABLE, flags);
    }
    /* Pinned by the program: used as it is, and left so. */
    OK(cuMemHostAlloc(&pinned, BYTES, 0));
    ring = open_ring(1, ALLOGRAFT_RING_AUTO, 0);
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_ring_register(ring, 0, pinned, BYTES));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_ring_get_properties(ring, 0, &properties));
    CHECK(properties.backend == ALLOGRAFT_RING_PINNED);
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_ring_register(ring, 0, pinned, BYTES));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_ring_close(ring));
    OK(cuMemFreeHost(pinned));
    test_copies();
    test_close_in_capture();
    test_half_pinned();
    test_invalid();
    say("rings: right");
}

/* A producer and two consumers on streams of their own, with delays: never a torn or a stale batch.
 */
void test_batches(unsigned batches)
{
    allograft_ring *ring = open_ring(2, ALLOGRAFT_RING_AUTO, ALLOGRAFT_RING_TIMING);
    CUstream streams[2] = {new_stream(), new_stream()};
    CUdeviceptr wrong, delay;
    uint32_t *host[2], count = 0;
    void *device[2];

    OK(cuMemAlloc(&wrong, sizeof(uint32_t)));
    OK(cuMemsetD32(wrong, 0, 1));
    OK(cuMemAlloc(&delay, 1 << 16));
    for (unsigned i = 0; i < 2; i++) {
        host[i] = shared_memory();
        EXPECT_STATUS(ALLOGRAFT_OK, allograft_ring_register(ring, i, host[i], BYTES));
        EXPECT_STATUS(ALLOGRAFT_OK, allograft_ring_device_slot(ring, i, &device[i]));
    }
    for (unsigned batch = 0; batch < batches; batch++) {
        unsigned slot = batch % 2;

        if (batch >= 2)
            EXPECT_STATUS(ALLOGRAFT_OK,
                          allograft_ring_wait_host(ring, slot)); /* the host slot was read */
        EXPECT_STATUS(ALLOGRAFT_OK, allograft_ring_clear(ring, slot));
        fill_host(host[slot], 7919 * batch);
        CHECK(!is_ready(ring, slot));
        EXPECT_STATUS(ALLOGRAFT_OK, allograft_ring_submit(ring, slot, BYTES));
        for (unsigned c = 0; c < 1 + next_random() % 2; c++) {
            EXPECT_STATUS(ALLOGRAFT_OK, allograft_ring_wait_stream(ring, slot, streams[c]));
            for (unsigned d = next_random() % 4; d; d--)
                launch_fill(streams[c], delay, 64, d);
            launch_check(streams[c], (CUdeviceptr)device[slot], WORDS, 7919 * batch, wrong);
            EXPECT_STATUS(ALLOGRAFT_OK, allograft_ring_reader(ring, slot, streams[c]));
        }
    }
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_ring_close(ring));
    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH(&count, wrong, sizeof(count)));
    say("%u batches: %u wrong words", batches, count);
}
