/* checks.c: every check of the simulation reports what it is there for, and nothing else.
 * Runs with SIM_VIOLATION=count. */
#include "sim_test.h"

static struct test test;
static CUstream a, b;

static unsigned seen;

static void expect_report(const char *part)
{
    OK(cuCtxSynchronize());
    if (sim_violations() == seen || !strstr(sim_last_violation(), part)) {
        fprintf(stderr, "no report of: %s; the last one: %s\n", part, sim_last_violation());
        exit(1);
    }
    CHECK(strstr(sim_last_violation(), "SIM_SEED="));
    seen = sim_violations();
}

static void expect_none(void)
{
    OK(cuCtxSynchronize());
    CHECK(sim_violations() == seen);
}

static CUdeviceptr pool_alloc(CUstream stream)
{
    CUdeviceptr p;

    OK(cuMemAllocAsync(&p, 256, stream));
    return p;
}

static void order(CUstream before, CUstream after)
{
    CUevent event;

    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuEventRecord(event, before));
    OK(cuStreamWaitEvent(after, event, 0));
    OK(cuEventDestroy(event));
}

static void test_not_yet_allocated(void)
{
    CUdeviceptr p = pool_alloc(a);

    OK(launch(test.fill, b, p, 64, 1));
    expect_report("not yet allocated in stream order");
    order(a, b);
    OK(launch(test.fill, b, p, 64, 1));
    expect_none();
    order(b, a);
    OK(cuMemFreeAsync(p, a));
    expect_none();
    /* Known to the host is ordered too. */
    p = pool_alloc(a);
    OK(cuStreamSynchronize(a));
    OK(launch(test.fill, b, p, 64, 1));
    order(b, a);
    OK(cuMemFreeAsync(p, a));
    expect_none();
}

static void test_use_after_free(void)
{
    CUdeviceptr p = pool_alloc(a);

    OK(cuMemFreeAsync(p, a));
    OK(launch(test.fill, a, p, 64, 1));
    expect_report("freed before in stream order");
    p = pool_alloc(a);
    order(a, b);
    OK(cuMemFreeAsync(p, a));
    OK(launch(test.fill, b, p, 64, 1));
    /* Which of the two runs first is up to the schedule; it is wrong either way. */
    expect_report("not ordered");
}

static void test_free_too_early(void)
{
    CUdeviceptr p = pool_alloc(a);

    order(a, b);
    OK(launch(test.fill, b, p, 64, 1));
    OK(cuMemFreeAsync(p, a));
    expect_report("not ordered");
    p = pool_alloc(a);
    order(a, b);
    OK(launch(test.fill, b, p, 64, 1));
    OK(cuMemFree(p)); /* does not wait for pool memory */
    expect_report("not ordered");
    p = pool_alloc(a);
    OK(cuMemFreeAsync(p, b));
    expect_report("not ordered behind its allocation");
}

static void test_bounds(void)
{
    CUdeviceptr p;

    OK(cuMemAlloc(&p, 256));
    OK(launch(test.fill, a, p, 65, 1));
    expect_report("beyond the end");
    OK(launch(test.fill, a, p + 4, 64, 1));
    expect_report("beyond the end");
    OK(launch(test.fill, a, p + 4, 63, 1));
    expect_none();
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(p, 0, 257));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoD(p, p + 128, 129));
    OK(cuMemFree(p));
    expect_none();
}

/* Reuse of an address: work of the old owner's time must not be taken for the new owner's. */
static void test_old_work_new_owner(void)
{
    CUdeviceptr p = pool_alloc(a), q;

    order(a, b);
    OK(cuMemFreeAsync(p, a));
    q = pool_alloc(a);
    OK(launch(test.fill, b, p, 64, 1)); /* p's address may be q's by now */
    OK(cuCtxSynchronize());
    CHECK(sim_violations() > seen);
    seen = sim_violations();
    OK(cuMemFreeAsync(q, a));
    expect_none();
}

static void test_host_memory(void)
{
    static unsigned plain[64];
    unsigned *pinned;

    OK(cuMemAllocHost((void **)&pinned, 256));
    OK(launch(test.fill, a, (CUdeviceptr)(uintptr_t)pinned, 64, 3));
    expect_none();
    CHECK(pinned[63] == 3);
    OK(cuMemHostRegister(plain, sizeof(plain), 0));
    OK(launch(test.fill, a, (CUdeviceptr)(uintptr_t)plain, 64, 4));
    expect_none();
    CHECK(plain[63] == 4);
    OK(cuMemHostUnregister(plain));
    OK(cuMemFreeHost(pinned));
    expect_none();
}

/* The real driver takes it, and may lock up some time later when work is pending. */
static void test_free_async_of_native(void)
{
    CUdeviceptr p;

    OK(cuMemAlloc(&p, 256));
    OK(cuMemFreeAsync(p, a));
    expect_none();
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(p));
    OK(cuMemAlloc(&p, 256));
    int reported = 0;
    for (int i = 0; i < 60 && !reported; i++) {
        CUdeviceptr q;
        OK(cuMemAlloc(&q, 256));
        OK(launch(test.fill, a, p, 64, 1));
        OK(cuMemFreeAsync(q, a));
        reported = sim_violations() > seen;
    }
    CHECK(reported || getenv("SIM_SCHED"));
    seen = sim_violations();
    OK(cuMemFree(p));
}

/* A graph is launched after its code went, though a function may have the same handle again. */
static void test_code_unloaded(void)
{
    unsigned n = 16, value = 3;
    CUDA_KERNEL_NODE_PARAMS node = {.gridDimX = 1,
                                    .gridDimY = 1,
                                    .gridDimZ = 1,
                                    .blockDimX = 1,
                                    .blockDimY = 1,
                                    .blockDimZ = 1};
    CUgraphNode ret_node;
    CUdeviceptr p;
    CUgraphExec exec;
    CUgraph graph;
    void *args[] = {&p, &n, &value};

    OK(cuMemAlloc(&p, 256));
    node.func = test.fill;
    node.kernelParams = args;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddKernelNode(&ret_node, graph, NULL, 0, &node));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, a));
    OK(launch(test.fill, b, p, 0, 1));
    OK(cuModuleUnload(test.module));
    expect_none();
    OK(cuModuleLoadData(&test.module, "any"));
    OK(cuModuleGetFunction(&test.fill, test.module, "fill"));
    OK(cuModuleGetFunction(&test.add, test.module, "add"));
    OK(cuGraphLaunch(exec, a));
    OK(cuStreamSynchronize(a));
    CHECK(sim_violations() > seen && strstr(sim_last_violation(), "unloaded"));
    seen = sim_violations();
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuMemFree(p));
}

/* The last ones: these faults are for ever. */
static void test_faults(void)
{
    static unsigned plain[64];
    CUcontext other;
    CUdeviceptr p;

    /* Another context of the same device: nothing wrong with that. */
    OK(cuCtxCreate(&other, NULL, 0, 0));
    OK(cuMemAlloc(&p, 256));
    OK(cuCtxSetCurrent(test.ctx));
    OK(launch(test.fill, a, p, 64, 1));
    expect_none();
    OK(launch(test.fill, NULL, (CUdeviceptr)(uintptr_t)plain, 64, 1));
    EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(NULL));
    CHECK(sim_violations() > seen && strstr(sim_last_violation(), "pageable host memory"));
    EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc(&p, 256));
}

int main(void)
{
    test_open(&test, 0);
    OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    test_not_yet_allocated();
    test_use_after_free();
    test_free_too_early();
    test_bounds();
    test_old_work_new_owner();
    test_host_memory();
    test_free_async_of_native();
    test_code_unloaded();
    test_faults();
    return 0;
}
