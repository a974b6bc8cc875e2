/* managed.c: where managed memory lies: touch, prefetch, advice, eviction; what races with a free.
 */
#include "sim_test.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static struct test test;
static const CUmemLocation device0 = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                           device1 = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1},
                           host = {.type = CU_MEM_LOCATION_TYPE_HOST};

/* What cuMemGetInfo tells; it counts as taken what managed pages have left until somebody needs it.
 */
static size_t free_bytes(void)
{
    size_t bytes;

    OK(cuMemGetInfo(&bytes, NULL));
    return bytes;
}

static int range(CUmem_range_attribute attribute, CUdeviceptr p, size_t bytes)
{
    int value = 77;

    OK(cuMemRangeGetAttribute(&value, sizeof(value), attribute, p, bytes));
    return value;
}

static CUdeviceptr managed_new(size_t bytes)
{
    CUdeviceptr p;

    OK(cuMemAllocManaged(&p, bytes, CU_MEM_ATTACH_GLOBAL));
    return p;
}

static void fill_all(CUdeviceptr p, size_t bytes)
{
    OK(launch(test.fill, NULL, p, (unsigned)(bytes / 4), 3));
    OK(cuCtxSynchronize());
}

static void test_room(void)
{
    size_t before = free_bytes();
    CUdeviceptr p = managed_new(4 * MIB);

    CHECK(free_bytes() == before && sim_bytes_resident(p, 4 * MIB, 0) == 0);
    OK(cuMemPrefetchAsync(p, 2 * MIB, device0, 0, NULL));
    OK(cuCtxSynchronize());
    CHECK(before - free_bytes() == 2 * MIB && sim_bytes_resident(p, 4 * MIB, 0) == 2 * MIB);
    fill_all(p, 4 * MIB);
    CHECK(before - free_bytes() == 4 * MIB);
    OK(cuMemPrefetchAsync(p, 4 * MIB, host, 0, NULL));
    OK(cuCtxSynchronize());
    CHECK(before - free_bytes() == 4 * MIB && ((unsigned *)(uintptr_t)p)[MIB - 1] == 3);
    CHECK(sim_bytes_resident(p, 4 * MIB, 0) == 0);
    fill_all(p, MIB);
    OK(cuMemFree(p));
    CHECK(before - free_bytes() == 4 * MIB);
    OK(cuMemAlloc(&p, before - 2 * MIB));
    OK(cuMemFree(p));
    CHECK(free_bytes() == before);
}

static void test_answers(void)
{
    CUdeviceptr p = managed_new(4 * MIB);
    int list[3] = {7, 7, 7};
    CUmemLocation nowhere = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 9};

    CHECK(range(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, p, 4 * MIB) == CU_DEVICE_INVALID);
    CHECK(range(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, p, 4 * MIB) == CU_DEVICE_INVALID);
    CHECK(range(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, p, 4 * MIB) == 0);
    OK(cuMemAdvise(p, 2 * MIB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, device0));
    OK(cuMemAdvise(p, 4 * MIB, CU_MEM_ADVISE_SET_ACCESSED_BY, device0));
    OK(cuMemAdvise(p, 2 * MIB, CU_MEM_ADVISE_SET_ACCESSED_BY, host));
    OK(cuMemAdvise(p, 4 * MIB, CU_MEM_ADVISE_SET_READ_MOSTLY, nowhere));
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           cuMemAdvise(p, 4 * MIB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, nowhere));
    CHECK(range(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, p, 2 * MIB) == 0);
    CHECK(range(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, p, 4 * MIB) == CU_DEVICE_INVALID);
    CHECK(range(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, p, 4 * MIB) == 1);
    OK(cuMemRangeGetAttribute(list, sizeof(list), CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, p, 2 * MIB));
    CHECK(list[0] == CU_DEVICE_CPU && list[1] == 0 && list[2] == CU_DEVICE_INVALID);
    OK(cuMemRangeGetAttribute(list, sizeof(list), CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, p, 4 * MIB));
    CHECK(list[0] == 0 && list[1] == CU_DEVICE_INVALID);
    OK(cuMemPrefetchAsync(p, 4 * MIB, host, 0, NULL));
    CHECK(range(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, p, 4 * MIB) == CU_DEVICE_CPU);
    CHECK(range(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE, p, 4 * MIB) == (int)host.type);
    OK(cuMemAdvise(p, 4 * MIB, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, nowhere));
    CHECK(range(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, p, 2 * MIB) == CU_DEVICE_INVALID);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAdvise(p, 5 * MIB, CU_MEM_ADVISE_SET_READ_MOSTLY, host));
    OK(cuMemFree(p));
}

/* Advice decides whether a kernel brings the pages to its device. */
static void test_advice(void)
{
    CUdeviceptr p = managed_new(2 * MIB), q = managed_new(2 * MIB);

    OK(cuMemAdvise(p, 2 * MIB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, host));
    OK(cuMemAdvise(p, 2 * MIB, CU_MEM_ADVISE_SET_ACCESSED_BY, device0));
    fill_all(p, 2 * MIB);
    CHECK(sim_bytes_resident(p, 2 * MIB, 0) == 0);
    OK(cuMemPrefetchAsync(p, 2 * MIB, device0, 0, NULL));
    OK(cuCtxSynchronize());
    CHECK(sim_bytes_resident(p, 2 * MIB, 0) == 2 * MIB);
    OK(cuMemAdvise(q, 2 * MIB, CU_MEM_ADVISE_SET_READ_MOSTLY, host));
    OK(cuMemPrefetchAsync(q, 2 * MIB, device0, 0, NULL));
    OK(cuMemPrefetchAsync(q, 2 * MIB, device1, 0, NULL));
    OK(cuCtxSynchronize());
    CHECK(sim_bytes_resident(q, 2 * MIB, 0) == 2 * MIB);
    CHECK(sim_bytes_resident(q, 2 * MIB, 1) == 2 * MIB);
    fill_all(q, 2 * MIB);
    CHECK(sim_bytes_resident(q, 2 * MIB, 0) == 2 * MIB);
    CHECK(sim_bytes_resident(q, 2 * MIB, 1) == 0);
    OK(cuMemFree(p));
    OK(cuMemFree(q));
}

/* Device memory drives managed pages out; what then does not fit stays on the host. */
static void test_eviction(void)
{
    size_t most, half;
    CUdeviceptr managed, native;

    OK(cuMemAlloc(&native, (size_t)60 * MIB)); /* nothing is kept from what was before */
    OK(cuMemFree(native));
    most = free_bytes() / MIB * MIB, half = most / 2 / MIB * MIB;
    managed = managed_new(2 * most);

    fill_all(managed, 2 * most);
    CHECK(free_bytes() < MIB);
    OK(cuMemAlloc(&native, half));
    CHECK(sim_bytes_resident(managed, 2 * most, 0) <= most - half + MIB);
    fill_all(managed, 2 * most);
    CHECK(((unsigned *)(uintptr_t)managed)[2 * most / 4 - 1] == 3);
    CHECK(sim_bytes_resident(managed, 2 * most, 0) <= most - half + MIB);
    OK(cuMemFree(native));
    OK(cuMemFree(managed));
}

static CUmemoryPool pool_new(CUmemLocation location)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED, .location = location};
    cuuint64_t keep = UINT64_MAX;
    CUmemoryPool pool;

    OK(cuMemPoolCreate(&pool, &props));
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    return pool;
}

/* A prefetch is a use: memory freed elsewhere meanwhile is a mistake. */
static void test_prefetch_and_free(void)
{
    CUmemoryPool pool = pool_new(device0);
    CUstream a, b;
    CUdeviceptr p;
    CUevent event;

    OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (int ordered = 1; ordered >= 0; ordered--) {
        OK(cuMemAllocFromPoolAsync(&p, MIB, pool, a));
        OK(cuMemPrefetchAsync(p, MIB, host, 0, a));
        OK(cuEventRecord(event, a));
        if (ordered)
            OK(cuStreamWaitEvent(b, event, 0));
        OK(cuMemFreeAsync(p, b));
        OK(cuCtxSynchronize());
        CHECK((sim_violations() == 0) == ordered);
    }
    OK(cuMemPoolDestroy(pool));
}

static void test_pool(void)
{
    CUdeviceptr native;

    OK(cuMemAlloc(&native, (size_t)60 * MIB));
    OK(cuMemFree(native));
    size_t before = free_bytes();
    CUmemoryPool pool = pool_new(device0), on_host = pool_new(host);
    CUdeviceptr p, q;
    CUmemFabricHandle handle;

    OK(cuMemAllocFromPoolAsync(&q, MIB, on_host, NULL));
    CHECK(free_bytes() == before);
    OK(cuMemAllocFromPoolAsync(&p, MIB, pool, NULL));
    CHECK(free_bytes() < before && sim_bytes_resident(p, MIB, 0) == MIB);
    EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuMemAdvise(p, MIB, CU_MEM_ADVISE_SET_ACCESSED_BY, device0));
    OK(cuMemFreeAsync(p, NULL));
    OK(cuMemFreeAsync(q, NULL));
    OK(cuCtxSynchronize());
    OK(cuMemPoolTrimTo(pool, 0));
    CHECK(free_bytes() == before);
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           cuMemPoolExportToShareableHandle(&handle, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                            0));
    OK(cuMemPoolDestroy(pool));
    OK(cuMemPoolDestroy(on_host));
}

/* In a process of its own, before this one has to do with the driver: the driver crashes. */
static void test_dma_buf(void)
{
    int status, fd;
    pid_t child = fork();

    if (child == 0) {
        CUdeviceptr p;

        test_open(&test, 0);
        OK(cuMemAllocFromPoolAsync(&p, MIB, pool_new(device0), NULL));
        OK(cuCtxSynchronize());
        (void)cuMemGetHandleForAddressRange(&fd, p, MIB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(!WIFEXITED(status) || WEXITSTATUS(status)); /* a sanitizer exits with a status */
}

int main(void)
{
    (void)setenv("SIM_DEVICES", "2", 1);
    (void)setenv("SIM_MEMORY", "64MiB", 1);
    test_dma_buf();
    test_open(&test, 0);
    test_room();
    test_answers();
    test_advice();
    test_eviction();
    test_pool();
    CHECK(sim_violations() == 0);
    test_prefetch_and_free();
    return 0;
}
