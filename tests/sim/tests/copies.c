/* copies.c: what copies wait for, between which memories, and memory that is gone. */
#include "sim_test.h"

#include <sys/mman.h>

static struct test test;
static CUstream stream;

/* Not even the synchronous copy between device memories waits; the one from pageable memory
 * returns before the bytes have arrived. Some schedule shows it. */
static void test_late_arrival(void)
{
    unsigned *seen, plain[16] = {7};
    CUdeviceptr p, q;
    int early = 0;

    OK(cuMemAllocHost((void **)&seen, 64));
    OK(cuMemAlloc(&p, 64));
    OK(cuMemAlloc(&q, 64));
    for (int i = 0; i < 60; i++) {
        OK(launch(test.fill, NULL, p, 16, 1));
        OK(launch(test.fill, NULL, q, 16, 2));
        OK(cuCtxSynchronize());
        if (i % 2)
            OK(cuMemcpyDtoD(p, q, 64));
        else
            OK(cuMemcpyHtoD(p, plain, 64));
        /* Another stream, which nothing orders behind the copy. */
        OK(cuMemcpyDtoHAsync(seen, p, 4, stream));
        OK(cuStreamSynchronize(stream));
        early += *seen == 1;
        OK(cuCtxSynchronize());
        CHECK(word_at(p) == (i % 2 ? 2 : 7));
    }
    CHECK(early > 0 || getenv("SIM_SCHED"));
    OK(cuMemFree(p));
    OK(cuMemFree(q));
    OK(cuMemFreeHost(seen));
}

/* Of memory with SYNC_MEMOPS the bytes are there when the synchronous call returns. */
static void test_no_late_arrival(void)
{
    unsigned *seen, plain[16] = {7}, on = 1;
    CUdeviceptr p;

    OK(cuMemAllocHost((void **)&seen, 64));
    OK(cuMemAlloc(&p, 64));
    OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
    for (int i = 0; i < 60; i++) {
        OK(launch(test.fill, NULL, p, 16, 1));
        OK(cuCtxSynchronize());
        OK(cuMemcpyHtoD(p, plain, 64));
        OK(cuMemcpyDtoHAsync(seen, p, 4, stream));
        OK(cuStreamSynchronize(stream));
        CHECK(*seen == 7);
    }
    OK(cuCtxSynchronize());
    OK(cuMemFree(p));
    OK(cuMemFreeHost(seen));
}

static void test_unified(void)
{
    unsigned from[16], to[16];
    CUdeviceptr p, m;

    for (unsigned i = 0; i < 16; i++)
        from[i] = i * 3;
    OK(cuMemAlloc(&p, 64));
    OK(cuMemAllocManaged(&m, 64, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemcpy(p, (CUdeviceptr)(uintptr_t)from, 64));
    OK(cuStreamSynchronize(NULL));
    OK(cuMemcpyAsync(m, p, 64, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(!memcmp(from, (void *)(uintptr_t)m, 64));
    OK(cuMemcpy((CUdeviceptr)(uintptr_t)to, m, 64));
    CHECK(!memcmp(from, to, 64));
    OK(cuMemFree(p));
    OK(cuMemFree(m));
}

static void test_boxes(void)
{
    unsigned from[3][4][5], to[3][4][5];
    CUdeviceptr p;

    for (unsigned i = 0; i < 60; i++)
        from[i / 20][i / 5 % 4][i % 5] = i;
    memset(to, 0, sizeof(to));
    OK(cuMemAlloc(&p, sizeof(from)));
    CUDA_MEMCPY3D in = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = from,
                        .srcPitch = 20,
                        .srcHeight = 4,
                        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                        .dstDevice = p,
                        .dstPitch = 20,
                        .dstHeight = 4,
                        .WidthInBytes = 20,
                        .Height = 4,
                        .Depth = 3};
    OK(cuMemcpy3D(&in));
    CUDA_MEMCPY3D out = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                         .srcDevice = p,
                         .srcXInBytes = 4,
                         .srcY = 1,
                         .srcZ = 1,
                         .srcPitch = 20,
                         .srcHeight = 4,
                         .dstMemoryType = CU_MEMORYTYPE_HOST,
                         .dstHost = to,
                         .dstPitch = 20,
                         .dstHeight = 4,
                         .WidthInBytes = 8,
                         .Height = 2,
                         .Depth = 2};
    OK(cuMemcpy3D(&out));
    CHECK(to[0][0][0] == from[1][1][1] && to[1][1][1] == from[2][2][2] && to[0][0][2] == 0);
    OK(cuMemFree(p));
}

/* A graph's node keeps the address of pageable memory; the memory may be gone at the launch. */
static void test_gone(void)
{
    void *pages = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CUgraphExec exec;
    CUgraph graph;
    CUdeviceptr p;

    CHECK(pages != MAP_FAILED);
    OK(cuMemAlloc(&p, 64));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemcpyHtoDAsync(p, pages, 64, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(sim_violations() == 0);
    CHECK(munmap(pages, 4096) == 0);
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(sim_violations() == 1 && strstr(sim_last_violation(), "host memory that is gone"));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuMemFree(p));
}

/* A graph's node keeps what it was made of; the memory may be other memory at the launch, at the
 * same address. Set again, it may be launched. */
static void test_freed_since(void)
{
    CUDA_MEMSET_NODE_PARAMS fill = {.elementSize = 1, .width = 64, .height = 1};
    unsigned seen = sim_violations();
    CUdeviceptr p, q = 0;
    CUgraphExec exec;
    CUgraphNode node;
    CUgraph graph;
    CUcontext ctx;

    OK(cuCtxGetCurrent(&ctx));
    OK(cuMemAlloc(&p, 4 << 20));
    fill.dst = p;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &fill, ctx));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemFree(p));
    for (int i = 0; i < 64 && q != p; i++)
        OK(cuMemAlloc(&q, 4 << 20));
    CHECK(sim_violations() == seen);
    OK(cuGraphLaunch(exec, stream));
    CHECK(sim_violations() == seen + 1 && strstr(sim_last_violation(), "freed since it was set"));
    OK(cuStreamSynchronize(stream));
    seen = sim_violations();
    fill.dst = q;
    OK(cuGraphExecMemsetNodeSetParams(exec, node, &fill, ctx));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(sim_violations() == seen);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuMemFree(q));
}

int main(void)
{
    test_open(&test, 0);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    test_late_arrival();
    test_no_late_arrival();
    test_unified();
    test_boxes();
    CHECK(sim_violations() == 0);
    test_gone();
    test_freed_since();
    CHECK(sim_bytes_in_use(0) == 0);
    return 0;
}
