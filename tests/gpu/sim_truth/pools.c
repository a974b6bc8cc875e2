/* pools.c: numbers and reuse of memory pools (R700 on). */
#include "tests/gpu/sim_truth/truth.h"

#include <unistd.h>

static cuuint64_t pool_number(CUmemoryPool pool, CUmemPool_attribute which)
{
    cuuint64_t value = 0;

    OK(D(cuMemPoolGetAttribute)(pool, which, &value));
    return value;
}

static CUmemoryPool own_pool(bool keep, bool follow, bool opportunistic, bool internal)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED};
    cuuint64_t all = UINT64_MAX;
    int values[] = {follow, opportunistic, internal};
    CUmemoryPool pool;

    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    OK(D(cuMemPoolCreate)(&pool, &props));
    if (keep)
        OK(D(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
    for (int i = 0; i < 3; i++)
        OK(D(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES + i,
                                    &values[i]));
    return pool;
}

CUdeviceptr from_pool(CUmemoryPool pool, size_t bytes, CUstream stream)
{
    CUdeviceptr p;

    OK(D(cuMemAllocFromPoolAsync)(&p, bytes, pool, stream));
    return p;
}

void group_pool_numbers(void)
{
    CUmemoryPool pool;
    CUdeviceptr p, q;
    cuuint64_t one = 1;
    int follow, opportunistic, internal;

    open_device();
    OK(D(cuDeviceGetDefaultMemPool)(&pool, 0));
    OK(D(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, &follow));
    OK(D(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &opportunistic));
    OK(D(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
                                &internal));
    row("R700", "a pool's defaults", "follow %d, opportunistic %d, internal %d, threshold %llu",
        follow, opportunistic, internal,
        (unsigned long long)pool_number(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD));
    row("R701", "destroying the default pool", "code %d", D(cuMemPoolDestroy)(pool));
    pool = own_pool(false, true, true, true);
    p = from_pool(pool, 1000, nonblocking);
    q = from_pool(pool, 3000, nonblocking);
    row("R702", "used after 1000 and 3000 bytes", "%llu",
        (unsigned long long)pool_number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
    row("R703", "reserved then, in MiB", "%llu",
        (unsigned long long)pool_number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >> 20);
    arm(nonblocking);
    OK(D(cuMemFreeAsync)(p, nonblocking));
    row("R704", "used after the first is freed behind work under way", "%llu",
        (unsigned long long)pool_number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
    row("R705", "used, high", "%llu",
        (unsigned long long)pool_number(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH));
    row("R706", "setting the high mark to 1", "code %d",
        D(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &one));
    OK(D(cuMemFreeAsync)(q, nonblocking));
    synchronize();
    row("R707", "reserved after all is freed and waited for, threshold 0", "%llu",
        (unsigned long long)pool_number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
    pool = own_pool(true, true, true, true);
    p = from_pool(pool, 1000, nonblocking);
    OK(D(cuMemFreeAsync)(p, nonblocking));
    synchronize();
    row("R708", "the same with threshold max, in MiB", "%llu",
        (unsigned long long)pool_number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >> 20);
    OK(D(cuMemPoolTrimTo)(pool, 0));
    row("R709", "after cuMemPoolTrimTo", "%llu",
        (unsigned long long)pool_number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
    p = from_pool(pool, 1000, nonblocking);
    TWO("R710", "destroying a pool in use, then a free of its memory", D(cuMemPoolDestroy)(pool),
        D(cuMemFreeAsync)(p, nonblocking));
    row("R711", "a destroyed pool", "code %d", D(cuMemPoolTrimTo)(pool, 0));
}

/* Blocks that are no multiple of what a pool grows by. */
void group_pool_packing(void)
{
    enum { N = 20 };
    CUdeviceptr p[N];
    CUmemoryPool pool;

    open_device();
    pool = own_pool(true, true, true, true);
    for (int i = 0; i < N; i++)
        p[i] = from_pool(pool, (size_t)33 << 20, nonblocking);
    row("R714", "reserved for 20 blocks of 33 MiB, in MiB", "%llu",
        (unsigned long long)pool_number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >> 20);
    for (int i = 0; i < N; i++)
        if (i != N / 2)
            OK(D(cuMemFreeAsync)(p[i], nonblocking));
    synchronize();
    OK(D(cuMemPoolTrimTo)(pool, 0));
    row("R715", "reserved after a trim with one of them left, in MiB", "%llu",
        (unsigned long long)pool_number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >> 20);
    p[0] = from_pool(pool, (size_t)33 << 20, nonblocking);
    row("R716", "reserved with another one, in MiB", "%llu",
        (unsigned long long)pool_number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >> 20);
}

/* What a pool with threshold 0 has reserved once its memory was freed behind work under way, and
 * the host has waited for that in another way than by waiting for a stream, an event or a context.
 */
void group_pool_waits(void)
{
    CUmemoryPool pool;
    CUdeviceptr p, other;
    CUevent event;

    open_device();
    OK(D(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
    pool = own_pool(false, true, true, true);
    p = from_pool(pool, 1000, nonblocking);
    other = device_memory(4096);
    arm(nonblocking);
    OK(D(cuMemFreeAsync)(p, nonblocking));
    OK(D(cuEventRecord)(event, nonblocking));
    OK(D(cuMemFree)(other));
    row("R712", "reserved after a cuMemFree of other memory, in MiB", "%llu",
        (unsigned long long)pool_number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >> 20);
    OK(D(cuEventSynchronize)(event));
    row("R713", "and after a cuEventSynchronize", "%llu",
        (unsigned long long)pool_number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >> 20);
}

/* What a trim gives back of memory that was freed in stream order, after the host has learnt in
 * some way that this has happened. */
void group_pool_trims(void)
{
    CUmemoryPool pool;
    CUdeviceptr p, other;
    CUevent event;

    open_device();
    OK(D(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
    pool = own_pool(true, true, true, true);
    p = from_pool(pool, (size_t)64 << 20, nonblocking);
    other = device_memory(4096);
    synchronize();
    OK(D(cuMemFreeAsync)(p, nonblocking));
    for (int i = 0; i < 500 && D(cuStreamQuery)(nonblocking) == CUDA_ERROR_NOT_READY; i++)
        (void)usleep(1000); /* a lazy simulation does nothing meanwhile */
    OK(D(cuMemPoolTrimTo)(pool, 0));
    row("R717", "reserved after a free that cuStreamQuery calls done, and a trim, in MiB", "%llu",
        (unsigned long long)pool_number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >> 20);
    OK(D(cuEventRecord)(event, nonblocking));
    OK(D(cuEventSynchronize)(event));
    OK(D(cuMemPoolTrimTo)(pool, 0));
    row("R718", "and after a wait for an event behind it and another trim", "%llu",
        (unsigned long long)pool_number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >> 20);
    p = from_pool(pool, (size_t)64 << 20, nonblocking);
    arm(nonblocking);
    OK(D(cuMemFreeAsync)(p, nonblocking));
    OK(D(cuMemFree)(other));
    OK(D(cuMemPoolTrimTo)(pool, 0));
    row("R719", "reserved after a free, a cuMemFree of other memory and a trim, in MiB", "%llu",
        (unsigned long long)pool_number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >> 20);
    synchronize();
}

/* Memory freed on one stream behind work under way: does another stream's allocation get it? */
static const char *reuse(bool follow, bool opportunistic, bool internal, CUstream then, bool event)
{
    CUmemoryPool pool = own_pool(true, follow, opportunistic, internal);
    CUdeviceptr p = from_pool(pool, (size_t)8 << 20, nonblocking), q;
    CUevent record;

    arm(nonblocking);
    OK(D(cuMemFreeAsync)(p, nonblocking));
    OK(D(cuEventCreate)(&record, CU_EVENT_DISABLE_TIMING));
    OK(D(cuEventRecord)(record, nonblocking));
    if (event)
        OK(D(cuStreamWaitEvent)(then, record, 0));
    q = from_pool(pool, (size_t)8 << 20, then);
    bool waited = *flag != 0;
    OK(D(cuMemFreeAsync)(q, then));
    synchronize();
    OK(D(cuEventDestroy)(record));
    OK(D(cuMemPoolDestroy)(pool));
    return waited ? "waits" : p == q ? "gets it" : "gets other memory";
}

void group_pool_reuse(void)
{
    open_device();
    row("R720", "the same stream, no reuse allowed", "%s",
        reuse(false, false, false, nonblocking, false));
    row("R721", "another stream, no reuse allowed", "%s",
        reuse(false, false, false, other_nonblocking, false));
    row("R722", "another stream behind an event, follow", "%s",
        reuse(true, false, false, other_nonblocking, true));
    row("R723", "another stream behind an event, no follow", "%s",
        reuse(false, false, false, other_nonblocking, true));
    row("R724", "another stream, opportunistic only", "%s",
        reuse(false, true, false, other_nonblocking, false));
}

void group_pool_managed(void)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED};
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    CUmemoryPool pool;
    CUdeviceptr p;
    CUresult code;

    open_device();
    props.location = here;
    code = D(cuMemPoolCreate)(&pool, &props);
    row("R730", "a managed pool", "code %d", code);
    if (code != CUDA_SUCCESS)
        return;
    p = from_pool(pool, 1 << 20, nonblocking);
    synchronize();
    row("R731", "cuMemAdvise of its memory", "code %d",
        D(cuMemAdvise)(p, 1 << 20, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, here));
    row("R732", "cuMemPrefetchAsync of its memory", "code %d",
        D(cuMemPrefetchAsync)(p, 1 << 20, here, 0, nonblocking));
    attribute_line("R733", "attributes of its memory", p);
    props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    row("R734", "a managed pool to export", "code %d", D(cuMemPoolCreate)(&pool, &props));
    props.handleTypes = CU_MEM_HANDLE_TYPE_NONE;
    props.location.type = CU_MEM_LOCATION_TYPE_HOST;
    row("R735", "a managed pool on the host", "code %d", D(cuMemPoolCreate)(&pool, &props));
    int location = 99;
    code = D(cuMemRangeGetAttribute)(&location, sizeof(location),
                                     CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, p, 1 << 20);
    row("R736", "last prefetch of its memory", "code %d, location %d", code, location);
    synchronize();
    WAITS("R737", "cuMemFree of its memory", nonblocking, D(cuMemFree)(p));
    code = D(cuMemGetDefaultMemPool)(&pool, &here, CU_MEM_ALLOCATION_TYPE_MANAGED);
    row("R738", "the default managed pool of a device", "code %d", code);
    OK(D(cuMemSetMemPool)(&here, CU_MEM_ALLOCATION_TYPE_MANAGED, pool));
    int managed = 9;
    OK(D(cuMemAllocAsync)(&p, 64, nonblocking));
    OK(D(cuPointerGetAttribute)(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p));
    row("R739", "cuMemAllocAsync gives managed memory when that is the current one", "%d", managed);
}
