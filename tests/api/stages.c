/* Stages of the control API: warm-up, record, replay; inputs; stages in turns; what cannot be
 * recorded. */
#include <pthread.h>

#include "control.h"

#define WORDS 128u
#define BYTES (WORDS * sizeof(uint32_t))

static allograft_stage *open_stage(const char *name, unsigned warmup, unsigned flags)
{
    struct allograft_stage_options options = {
        .bytes = sizeof(options), .name = name, .warmup = warmup, .flags = flags};
    allograft_stage *stage, *again;

    EXPECT_STATUS(ALLOGRAFT_OK, allograft_stage_open(&options, &stage));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_stage_open(&options, &again));
    CHECK(stage == again);
    return stage;
}

/* One iteration: out becomes a copy of the input. How it was done. */
static allograft_action iterate(allograft_stage *stage, CUstream stream, CUdeviceptr out,
                                uint32_t value)
{
    uint32_t source[WORDS];
    allograft_action action;
    void *input;

    for (uint32_t i = 0; i < WORDS; i++)
        source[i] = value + i;
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_stage_input(stage, 1, 2, BYTES, &input));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_stage_load(stage, 1, 2, source, BYTES, stream));
    memset(source, 0xee, sizeof(source)); /* pageable: it has been read */
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_stage_begin(stage, stream, &action));
    EXPECT_STATUS(ALLOGRAFT_STATE, allograft_stage_begin(stage, stream, &action));
    EXPECT_STATUS(ALLOGRAFT_STATE, allograft_stage_load(stage, 1, 2, source, BYTES, stream));
    if (action != ALLOGRAFT_SKIP)
        OK(cuMemcpyDtoDAsync(out, (CUdeviceptr)input, BYTES, stream));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_stage_end(stage));
    EXPECT_STATUS(ALLOGRAFT_STATE, allograft_stage_end(stage));
    OK(cuStreamSynchronize(stream));
    CHECK(count_wrong(out, WORDS, value) == 0);
    return action;
}

static void check_number(allograft_stage *stage, uint64_t current, uint64_t next)
{
    uint64_t is_current, is_next;

    EXPECT_STATUS(ALLOGRAFT_OK, allograft_stage_iteration(stage, &is_current, &is_next));
    CHECK(is_current == current && is_next == next);
}

static void test_invalid(CUstream stream)
{
    struct allograft_stage_options options = {.bytes = sizeof(options), .name = ""};
    allograft_stage *stage = open_stage("to be asked wrongly", 1, 0);
    allograft_action action;
    void *input;

    EXPECT_STATUS(ALLOGRAFT_INVALID, allograft_stage_open(&options, &stage));
    options.name = "x";
    options.flags = 4;
    EXPECT_STATUS(ALLOGRAFT_INVALID, allograft_stage_open(&options, &stage));
    options = (struct allograft_stage_options){.bytes = 4, .name = "x"};
    EXPECT_STATUS(ALLOGRAFT_INVALID, allograft_stage_open(&options, &stage));
    EXPECT_STATUS(ALLOGRAFT_INVALID, allograft_stage_begin(stage, NULL, &action));
    EXPECT_STATUS(ALLOGRAFT_INVALID, allograft_stage_begin(NULL, stream, &action));
    EXPECT_STATUS(ALLOGRAFT_INVALID, allograft_stage_input(stage, 0, 0, 0, &input));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_stage_input(stage, 0, 0, 64, &input));
    EXPECT_STATUS(ALLOGRAFT_INVALID, allograft_stage_input(stage, 0, 0, 65, &input));
    EXPECT_STATUS(ALLOGRAFT_INVALID, allograft_stage_load(stage, 0, 1, &options, 4, stream));
    EXPECT_STATUS(ALLOGRAFT_INVALID, allograft_stage_load(stage, 0, 0, &options, 65, stream));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_stage_close(stage));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_stage_close(NULL));
}

static void *end_elsewhere(void *stage)
{
    EXPECT_STATUS(ALLOGRAFT_STATE, allograft_stage_end(stage));
    return NULL;
}

/* The iteration is recorded by one thread, and another one tries to end it. */
static void test_other_thread(CUstream stream, CUdeviceptr out)
{
    allograft_stage *stage = open_stage("of one thread", 0, 0);
    allograft_action action;
    pthread_t other;

    EXPECT_STATUS(ALLOGRAFT_OK, allograft_stage_begin(stage, stream, &action));
    CHECK(action == ALLOGRAFT_RECORD);
    CHECK(!pthread_create(&other, NULL, end_elsewhere, stage) && !pthread_join(other, NULL));
    launch_fill(stream, out, WORDS, 11);
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_stage_end(stage));
    OK(cuMemsetD32Async(out, 0, WORDS, stream));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_stage_begin(stage, stream, &action));
    CHECK(action == ALLOGRAFT_SKIP);
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_stage_end(stage));
    OK(cuStreamSynchronize(stream));
    CHECK(count_wrong(out, WORDS, 11) == 0);
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_stage_close(stage));
}

/* While the calling thread captures another graph, a stage stays open, and the capture lives on. */
static void test_close_in_capture(CUstream stream, CUdeviceptr out)
{
    allograft_stage *stage = open_stage("to be closed", 0, 0), *other = open_stage("other", 0, 0);
    allograft_action action;
    void *input;

    EXPECT_STATUS(ALLOGRAFT_OK, allograft_stage_input(stage, 0, 0, BYTES, &input));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_stage_begin(other, stream, &action));
    EXPECT_STATUS(ALLOGRAFT_CAPTURING, allograft_stage_close(stage));
    launch_fill(stream, out, WORDS, 12);
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_stage_end(other));
    OK(cuStreamSynchronize(stream));
    CHECK(count_wrong(out, WORDS, 12) == 0);
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_stage_close(stage));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_stage_close(other));
}

void test_stages(void)
{
    CUstream stream = new_stream();
    allograft_stage *training = open_stage("training", 2, ALLOGRAFT_STAGE_SINGLE_POOL);
    allograft_stage *validation = open_stage("validation", 0, ALLOGRAFT_STAGE_SINGLE_POOL);
    allograft_stage *transparent = open_stage("transparent", 1, ALLOGRAFT_STAGE_TRANSPARENT);
    CUdeviceptr out;

    OK(cuMemAlloc(&out, BYTES));
    check_number(training, UINT64_MAX, 0);
    for (uint32_t iteration = 0; iteration < 12; iteration++) {
        unsigned expected = iteration < 2    ? ALLOGRAFT_RUN
                            : iteration == 2 ? ALLOGRAFT_RECORD
                                             : ALLOGRAFT_SKIP;

        CHECK(iterate(training, stream, out, 100 * iteration) == expected);
        check_number(training, iteration, iteration + 1);
        if (iteration % 3 == 0)
            CHECK(iterate(validation, stream, out, 7 + iteration) ==
                  (iteration ? ALLOGRAFT_SKIP : ALLOGRAFT_RECORD));
        CHECK(iterate(transparent, stream, out, 3 * iteration) == ALLOGRAFT_RUN);
    }
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_stage_reset(training));
    check_number(training, UINT64_MAX, 0);
    check_number(validation, 3, 4);
    CHECK(iterate(training, stream, out, 5) == ALLOGRAFT_RUN);
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_stage_reset(NULL));
    check_number(validation, UINT64_MAX, 0);
    CHECK(iterate(validation, stream, out, 6) == ALLOGRAFT_RECORD);
    for (unsigned i = 0; i < 50; i++) {
        EXPECT_STATUS(ALLOGRAFT_OK, allograft_stage_reset(NULL));
        CHECK(iterate(validation, stream, out, i) == ALLOGRAFT_RECORD);
    }
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_stage_close(training));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_stage_close(validation));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_stage_close(transparent));
    test_invalid(stream);
    test_other_thread(stream, out);
    test_close_in_capture(stream, out);
    OK(cuMemFree(out));
    say("stages: right");
}

/* A body that waits for the device: told once, then it runs as it is. */
void test_failing_stages(void)
{
    CUstream stream = new_stream();
    allograft_stage *stage = open_stage("waits", 1, 0);
    allograft_action action;
    CUdeviceptr p;

    OK(cuMemAlloc(&p, BYTES));
    for (unsigned iteration = 0; iteration < 5; iteration++) {
        allograft_status status;

        EXPECT_STATUS(ALLOGRAFT_OK, allograft_stage_begin(stage, stream, &action));
        CHECK(action == (iteration == 1 ? ALLOGRAFT_RECORD : ALLOGRAFT_RUN));
        launch_fill(stream, p, WORDS, iteration);
        (void)cuStreamSynchronize(stream);
        status = allograft_stage_end(stage);
        CHECK(status == (iteration == 1 ? ALLOGRAFT_DRIVER : ALLOGRAFT_OK));
        if (iteration != 1)
            CHECK(count_wrong(p, WORDS, iteration) == 0);
    }
    check_number(stage, 3, 4);
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_stage_reset(stage)); /* gives it another chance */
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_stage_begin(stage, stream, &action));
    CHECK(action == ALLOGRAFT_RUN);
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_stage_end(stage));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_stage_begin(stage, stream, &action));
    CHECK(action == ALLOGRAFT_RECORD);
    launch_fill(stream, p, WORDS, 5);
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_stage_close(stage)); /* in the middle */
    OK(cuMemFree(p));
    say("failing stages: right");
}

/* The first launch of what was recorded fails (SIM_FAIL): the next iterations run, and compute. */
void test_refused_stages(void)
{
    CUstream stream = new_stream();
    allograft_stage *stage = open_stage("refused", 1, 0);
    allograft_action action;
    CUdeviceptr p;

    OK(cuMemAlloc(&p, BYTES));
    for (unsigned iteration = 0; iteration < 4; iteration++) {
        EXPECT_STATUS(ALLOGRAFT_OK, allograft_stage_begin(stage, stream, &action));
        CHECK(action == (iteration == 1 ? ALLOGRAFT_RECORD : ALLOGRAFT_RUN));
        launch_fill(stream, p, WORDS, iteration);
        EXPECT_STATUS(iteration == 1 ? ALLOGRAFT_DRIVER : ALLOGRAFT_OK, allograft_stage_end(stage));
        OK(cuStreamSynchronize(stream));
        CHECK(count_wrong(p, WORDS, iteration == 1 ? 0 : iteration) == 0);
    }
    check_number(stage, 2, 3);
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_stage_close(stage));
    OK(cuMemFree(p));
    say("refused stages: right");
}
