/* The control API as a program uses it: `api_control PART [FOLDER]`, with the library preloaded, or
 * opened where CONTROL_LOAD names it. Prints what must be the same in both. */
#include <pthread.h>

#include "control.h"

bool intercepted;

void expect_status(allograft_status status, allograft_status got, const char *file, int line,
                   const char *call)
{
    if (got != status)
        check_failed(file, line, call, " returned %d, not %d: %s", (int)got, (int)status,
                     allograft_last_error());
}

CUstream new_stream(void)
{
    CUstream stream;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

uint32_t next_random(void)
{
    static uint64_t state = 88172645463325252u;

    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 11);
}

/* ---- managed memory ---- */

#define WORDS 1024u
#define BYTES (WORDS * sizeof(uint32_t))

static void test_ranges(CUstream stream)
{
    void *blocks[3];
    CUdeviceptr device;
    uint32_t local[4] = {0};
    struct allograft_range ranges[5];
    const char *policy = getenv("ALLOGRAFT_POLICY");
    bool is_managed =
        intercepted && policy && !strcmp(policy, "managed"); /* what cuMemAlloc gives */
    size_t bytes = 7;

    for (unsigned i = 0; i < 3; i++) {
        EXPECT_STATUS(ALLOGRAFT_OK, allograft_managed_alloc(&blocks[i], BYTES << i, 0, stream));
        ranges[i] = (struct allograft_range){blocks[i], BYTES << i};
    }
    OK(cuMemAlloc(&device, BYTES));
    ranges[3] = (struct allograft_range){(void *)device, BYTES};
    ranges[4] = (struct allograft_range){local, sizeof(local)};
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_prefetch_ranges(ranges, 5, 0, stream, &bytes));
    CHECK(bytes == (7 + is_managed) * BYTES); /* what is not managed is passed over */
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_prefetch_ranges(ranges, 5, ALLOGRAFT_HOST, stream, NULL));
    EXPECT_STATUS(ALLOGRAFT_OK,
                  allograft_advise_preferred_location(ranges, 2, ALLOGRAFT_HOST, &bytes));
    CHECK(bytes == 3 * BYTES);
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_advise_accessed_by(&ranges[1], 2, 0, &bytes));
    CHECK(bytes == 6 * BYTES);
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_advise_accessed_by(NULL, 0, 0, &bytes));
    CHECK(bytes == 0);
    EXPECT_STATUS(ALLOGRAFT_INVALID, allograft_advise_accessed_by(NULL, 1, 0, &bytes));
    EXPECT_STATUS(ALLOGRAFT_INVALID, allograft_prefetch_ranges(ranges, 1, 99, stream, &bytes));
    CHECK(strstr(allograft_last_error(), "device 99") != NULL);
    EXPECT_STATUS(ALLOGRAFT_INVALID, allograft_prefetch(local, sizeof(local), 0, stream));
    OK(cuStreamSynchronize(stream));
    for (unsigned i = 0; i < 3; i++)
        EXPECT_STATUS(ALLOGRAFT_OK, allograft_managed_free(blocks[i], BYTES << i, 0, stream));
    OK(cuMemFree(device));
}

/* A thread that has made no context current, and has none afterwards. */
static void *use_without_context(void *memory)
{
    const struct allograft_range range = {memory, 4u << 20};
    CUcontext current;
    size_t bytes = 0;

    EXPECT_STATUS(ALLOGRAFT_OK, allograft_prefetch(memory, 4u << 20, 0, NULL));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_prefetch(memory, 4u << 20, ALLOGRAFT_HOST, NULL));
    EXPECT_STATUS(ALLOGRAFT_OK,
                  allograft_advise_preferred_location(&range, 1, ALLOGRAFT_HOST, &bytes));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_advise_accessed_by(&range, 1, 0, &bytes));
    CHECK(bytes == 4u << 20);
    OK(cuCtxGetCurrent(&current));
    CHECK(!current);
    return NULL;
}

static void test_without_context(void)
{
    pthread_t thread;
    void *memory;

    EXPECT_STATUS(ALLOGRAFT_OK, allograft_managed_alloc(&memory, 4u << 20, 0, NULL));
    CHECK(!pthread_create(&thread, NULL, use_without_context, memory) &&
          !pthread_join(thread, NULL));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_managed_free(memory, 4u << 20, 0, NULL));
}

void test_managed(void)
{
    CUstream stream = new_stream();
    void *memory = &stream;
    CUgraph graph;

    EXPECT_STATUS(ALLOGRAFT_OK, allograft_managed_support(0));
    EXPECT_STATUS(ALLOGRAFT_INVALID, allograft_managed_support(-1));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_managed_alloc(&memory, 0, 0, stream));
    CHECK(!memory);
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_managed_free(NULL, 0, 0, stream));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_managed_alloc(&memory, 4u << 20, 0, stream));
    launch_fill(stream, (CUdeviceptr)memory, WORDS, 5);
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_prefetch(memory, 4u << 20, ALLOGRAFT_HOST, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(((uint32_t *)memory)[WORDS - 1] == 5 + WORDS - 1);
    ((uint32_t *)memory)[0] = 77;
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_prefetch(memory, 4u << 20, 0, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(*(uint32_t *)memory == 77);
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_managed_free(memory, 4u << 20, 0, stream));
    test_ranges(stream);
    test_without_context();
    /* In a capture: refused, and the capture lives on. */
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_managed_alloc(&memory, BYTES, 0, stream));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT_STATUS(ALLOGRAFT_CAPTURING, allograft_managed_alloc(&memory, BYTES, 0, stream));
    EXPECT_STATUS(ALLOGRAFT_CAPTURING, allograft_prefetch(memory, BYTES, 0, stream));
    CHECK(strstr(allograft_last_error(), "captured") != NULL);
    launch_fill(stream, (CUdeviceptr)memory, WORDS, 5);
    OK(cuStreamEndCapture(stream, &graph));
    CHECK(graph);
    OK(cuGraphDestroy(graph));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_managed_free(memory, BYTES, 0, stream));
    say("managed memory: right");
}

/* ---- statistics ---- */

void test_statistics(const char *folder)
{
    struct allograft_snapshot before = {.bytes = sizeof(before)}, after = before,
                              small = {.bytes = 0};
    char path[512], name[80], text[64] = "";
    CUdeviceptr p;
    FILE *file;

    EXPECT_STATUS(ALLOGRAFT_OK, allograft_snapshot(&before));
    OK(cuMemAlloc(&p, 1 << 20));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_snapshot(&after));
    uint64_t allocations = 0, bytes = 0;
    for (unsigned i = 0; i < ALLOGRAFT_PLACES; i++) {
        allocations += after.allocations[i] - before.allocations[i];
        bytes += after.current_bytes[i] - before.current_bytes[i];
    }
    CHECK(allocations == intercepted && bytes == (intercepted ? 1u << 20 : 0));
    EXPECT_STATUS(ALLOGRAFT_INVALID, allograft_snapshot(NULL));
    EXPECT_STATUS(ALLOGRAFT_INVALID, allograft_snapshot(&small));
    small.bytes = offsetof(struct allograft_snapshot, frees); /* of an older header */
    small.refused = 123;
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_snapshot(&small));
    CHECK(small.refused == 123 && small.bytes == offsetof(struct allograft_snapshot, frees));

    EXPECT_STATUS(ALLOGRAFT_INVALID, allograft_mark(""));
    for (unsigned i = 0; i < 3; i++)
        EXPECT_STATUS(ALLOGRAFT_OK, allograft_mark("epoch \"1\""));
    for (unsigned i = 0; i < 63; i++) {
        snprintf(name, sizeof(name), "mark %u of a name that is longer than its row can hold", i);
        EXPECT_STATUS(ALLOGRAFT_OK, allograft_mark(name));
    }
    EXPECT_STATUS(ALLOGRAFT_NO_MEMORY, allograft_mark("one too many"));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_mark("epoch \"1\""));
    snprintf(path, sizeof(path), "%s/now.json", folder);
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_dump(path));
    snprintf(path, sizeof(path), "%s/now.txt", folder);
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_dump(path));
    file = fopen(path, "r");
    CHECK(file && fgets(text, sizeof(text), file) && !strncmp(text, "allograft ", 10));
    fclose(file);
    EXPECT_STATUS(ALLOGRAFT_INVALID, allograft_dump("/nowhere/at/all"));
    OK(cuMemFree(p));
    say("statistics: right");
}

int main(int argc, char **argv)
{
    const char *load = getenv("CONTROL_LOAD"), *part = argc > 1 ? argv[1] : "";
    const char *folder = argc > 2 ? argv[2] : ".";

    device_open();
    if (load)
        EXPECT_STATUS(ALLOGRAFT_OK, allograft_load(load));
    intercepted = !load;
    CHECK(allograft_is_loaded());
    if (!strcmp(part, "managed"))
        test_managed();
    else if (!strcmp(part, "counted"))
        test_counted();
    else if (!strcmp(part, "advice"))
        test_advice(argc > 2 ? (size_t)atol(argv[2]) : 0);
    else if (!strcmp(part, "statistics"))
        test_statistics(folder);
    else if (!strcmp(part, "graphs"))
        test_graphs(folder);
    else if (!strcmp(part, "private"))
        test_private_memory();
    else if (!strcmp(part, "threads"))
        test_threads();
    else if (!strcmp(part, "stages"))
        test_stages();
    else if (!strcmp(part, "failing"))
        test_failing_stages();
    else if (!strcmp(part, "refused"))
        test_refused_stages();
    else if (!strcmp(part, "rings"))
        test_rings();
    else if (!strcmp(part, "failures"))
        test_failures();
    else if (!strcmp(part, "batches"))
        test_batches(argc > 2 ? (unsigned)atoi(argv[2]) : 300);
    else
        return 2;
    say("violations: %u", sim_violations());
    return 0;
}
