/* pools.c: stream-ordered pools: who may reuse what, what is kept, what goes back. */
#include "sim_test.h"

static struct test test;
static CUstream a, b;

static CUmemoryPool pool_new(bool follow, bool opportunistic, bool internal)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED};
    cuuint64_t keep = UINT64_MAX;
    int values[] = {follow, opportunistic, internal};
    CUmemoryPool pool;

    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    props.maxSize = (size_t)32 << 20; /* one chunk: what is not reused cannot be had */
    OK(cuMemPoolCreate(&pool, &props));
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, &values[0]));
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &values[1]));
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &values[2]));
    return pool;
}

#define HALF ((size_t)20 << 20)

static CUdeviceptr freed_on_a(CUmemoryPool pool)
{
    CUdeviceptr p;

    OK(cuMemAllocFromPoolAsync(&p, HALF, pool, a));
    OK(launch(test.fill, a, p, 64, 1));
    OK(cuMemFreeAsync(p, a));
    return p;
}

/* Under these attributes, may stream b have what was freed on a? */
static bool b_gets_it(bool follow, bool opportunistic, bool internal, bool with_event, bool done)
{
    CUmemoryPool pool = pool_new(follow, opportunistic, internal);
    CUdeviceptr p, q;
    CUevent event;

    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    p = freed_on_a(pool);
    if (with_event) {
        OK(cuEventRecord(event, a));
        OK(cuStreamWaitEvent(b, event, 0));
    }
    if (done)
        while (cuStreamQuery(a) == CUDA_ERROR_NOT_READY)
            continue;
    CUresult result = cuMemAllocFromPoolAsync(&q, HALF, pool, b);
    if (result == CUDA_SUCCESS) {
        CHECK(p == q || p - q == 0);
        OK(launch(test.add, b, q, 64, 1));
        OK(cuMemFreeAsync(q, b));
    }
    OK(cuCtxSynchronize());
    OK(cuEventDestroy(event));
    OK(cuMemPoolDestroy(pool));
    return result == CUDA_SUCCESS;
}

static void test_reuse(void)
{
    for (int i = 0; i < 10; i++) {
        CHECK(b_gets_it(true, false, false, true, false));
        CHECK(!b_gets_it(false, false, false, true, false) || getenv("SIM_SCHED"));
        CHECK(b_gets_it(false, true, false, false, true));
        CHECK(b_gets_it(false, false, true, false, false));
    }
    /* The same stream always gets it. */
    CUmemoryPool pool = pool_new(false, false, false);
    CUdeviceptr p = freed_on_a(pool), q;
    OK(cuMemAllocFromPoolAsync(&q, HALF, pool, a));
    CHECK(p == q);
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&p, HALF, pool, a));
    OK(cuMemFreeAsync(q, a));
    OK(cuCtxSynchronize());
    OK(cuMemPoolDestroy(pool));
}

static cuuint64_t number(CUmemoryPool pool, CUmemPool_attribute which)
{
    cuuint64_t value;

    OK(cuMemPoolGetAttribute(pool, which, &value));
    return value;
}

static void test_numbers(void)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED};
    CUmemoryPool pool;
    CUdeviceptr p, q;
    cuuint64_t zero = 0, one = 1, keep;

    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    OK(cuMemPoolCreate(&pool, &props));
    CHECK(number(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == 0);
    OK(cuMemAllocFromPoolAsync(&p, 1000, pool, a));
    OK(cuMemAllocFromPoolAsync(&q, 3000, pool, a));
    CHECK(number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 4000);
    CHECK(number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == (cuuint64_t)32 << 20);
    OK(cuMemFreeAsync(p, a));
    CHECK(number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 3000);
    CHECK(number(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 4000);
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &one));
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
    CHECK(number(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 3000);
    OK(cuMemFreeAsync(q, a));
    /* Nothing is kept over a synchronisation: the threshold is 0. */
    OK(cuStreamSynchronize(a));
    CHECK(number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0);
    keep = UINT64_MAX;
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    OK(cuMemAllocFromPoolAsync(&p, 1000, pool, a));
    OK(cuMemFreeAsync(p, a));
    OK(cuStreamSynchronize(a));
    CHECK(number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == (cuuint64_t)32 << 20);
    OK(cuMemPoolTrimTo(pool, 0));
    CHECK(number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0);
    OK(cuMemAllocFromPoolAsync(&p, 1000, pool, a));
    OK(cuMemFreeAsync(p, a));
    for (int i = 0; i < 100 && cuStreamQuery(a) == CUDA_ERROR_NOT_READY; i++)
        ;
    OK(cuMemPoolTrimTo(pool, 0)); /* a query is no wait */
    CHECK(number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == (cuuint64_t)32 << 20);
    OK(cuStreamSynchronize(a));
    OK(cuMemPoolTrimTo(pool, 0));
    CHECK(number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0);
    OK(cuMemAllocFromPoolAsync(&p, 0, pool, a)); /* natively no error */
    OK(cuMemFreeAsync(p, a));
    OK(cuMemPoolDestroy(pool));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemPoolTrimTo(pool, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(p, a));
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemPoolDestroy(pool));
}

/* A free of memory that the scheduler has run must not let others in before their time. */
static void test_contents(void)
{
    CUmemoryPool pool = pool_new(true, true, true);
    CUdeviceptr p;

    for (int i = 0; i < 200; i++) {
        CUstream stream = i % 3 ? a : b;
        OK(cuMemAllocFromPoolAsync(&p, HALF / 64, pool, stream));
        OK(launch(test.fill, stream, p, 64, (unsigned)i));
        OK(launch(test.add, stream, p, 64, 1));
        if (i % 7 == 0) {
            OK(cuStreamSynchronize(stream));
            CHECK(word_at(p + 252) == 3 * (unsigned)i + 1);
        }
        OK(cuMemFreeAsync(p, stream));
    }
    OK(cuCtxSynchronize());
    CHECK(number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
    OK(cuMemPoolDestroy(pool));
}

static void test_managed_pool(void)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED};
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
    CUmemoryPool pool;
    CUdeviceptr p;

    props.location = here;
    OK(cuMemPoolCreate(&pool, &props));
    OK(cuMemAllocFromPoolAsync(&p, 4096, pool, a));
    EXPECT(CUDA_ERROR_NOT_SUPPORTED,
           cuMemAdvise(p, 4096, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, here));
    OK(cuMemPrefetchAsync(p, 4096, here, 0, a));
    OK(launch(test.fill, a, p, 64, 6));
    OK(cuStreamSynchronize(a));
    CHECK(*(unsigned *)(uintptr_t)p == 6);
    OK(cuMemFreeAsync(p, a));
    OK(cuCtxSynchronize());
    OK(cuMemPoolDestroy(pool));
    props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemPoolCreate(&pool, &props));
}

int main(void)
{
    test_open(&test, 0);
    OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    test_reuse();
    test_numbers();
    test_contents();
    test_managed_pool();
    CHECK(sim_violations() == 0);
    CHECK(sim_bytes_in_use(0) == 0);
    return 0;
}
