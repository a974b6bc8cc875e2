/* The program's own stream-ordered pools: every function of that allocator, with right and wrong
 * arguments, in captures of every mode, from several threads. Prints codes and what was answered.
 *
 *     preload_pools
 * codes|current|captures|threads|share|levels|limit|devices|many|fork|reset|killed
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "tests/common/device.h"
#include "tests/common/say.h"

#define MIB       (1u << 20)
#define WORDS     1000u
#define N_THREADS 8

static CUcontext context;
static const CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};

static CUmemPoolProps properties(CUmemAllocationType type, CUmemAllocationHandleType handles)
{
    CUmemPoolProps props = {.allocType = type, .handleTypes = handles, .location = here};

    return props;
}

static CUmemoryPool create(CUmemAllocationHandleType handles)
{
    CUmemPoolProps props = properties(CU_MEM_ALLOCATION_TYPE_PINNED, handles);
    CUmemoryPool pool;

    OK(cuMemPoolCreate(&pool, &props));
    return pool;
}

/* --- codes --- */

static CUdeviceptr untouched_address = 0x1234;
static CUmemoryPool untouched_pool = (CUmemoryPool)&untouched_pool;

static void say_alloc(const char *what, CUresult code, const CUdeviceptr *p)
{
    say("%s: %d, address %s", what, (int)code, *p == untouched_address ? "untouched" : "set");
}

static void say_pool(const char *what, CUresult code, const CUmemoryPool *pool)
{
    say("%s: %d, pool %s", what, (int)code,
        *pool == untouched_pool ? "untouched"
        : *pool                 ? "set"
                                : "NULL");
}

static void codes_of_allocations(CUmemoryPool pool, CUmemoryPool destroyed)
{
    CUdeviceptr p = untouched_address;

    say_alloc("alloc of 1 PiB", cuMemAllocAsync(&p, (size_t)1 << 50, NULL), &p);
    SAY_CODE("alloc to nowhere", cuMemAllocAsync(NULL, 1000, NULL));
    say_alloc("from pool, 1 PiB", cuMemAllocFromPoolAsync(&p, (size_t)1 << 50, pool, NULL), &p);
    say_alloc("from no pool", cuMemAllocFromPoolAsync(&p, 1000, NULL, NULL), &p);
    say_alloc("from a destroyed pool", cuMemAllocFromPoolAsync(&p, 1000, destroyed, NULL), &p);
    SAY_CODE("from pool to nowhere", cuMemAllocFromPoolAsync(NULL, 1000, pool, NULL));
    say_alloc("alloc of nothing", cuMemAllocAsync(&p, 0, NULL), &p);
    SAY_CODE("free of it", cuMemFreeAsync(p, NULL));
    p = untouched_address;
    say_alloc("from pool, nothing", cuMemAllocFromPoolAsync(&p, 0, pool, NULL), &p);
    SAY_CODE("free of it", cuMemFreeAsync(p, NULL));
    SAY_CODE("free of NULL", cuMemFreeAsync(0, NULL));
    OK(cuMemAllocAsync(&p, 4096, NULL));
    SAY_CODE("free inside", cuMemFreeAsync(p + 512, NULL));
    SAY_CODE("free", cuMemFreeAsync(p, NULL));
    SAY_CODE("free of what is nowhere", cuMemFreeAsync(0x10000, NULL));
    OK(cuMemAllocAsync(&p, 4096, NULL));
    OK(cuStreamSynchronize(NULL));
    SAY_CODE("cuMemFree of pool memory", cuMemFree(p));
    SAY_CODE("cuMemFree of it again", cuMemFree(p));
    OK(cuMemAlloc(&p, 4096));
    SAY_CODE("cuMemFreeAsync of cuMemAlloc memory", cuMemFreeAsync(p, NULL));
}

static void codes_of_attributes(CUmemoryPool pool, CUmemoryPool destroyed)
{
    static const CUmemPool_attribute all[] = {
        CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
        CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
        CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
        CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
        CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
        CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH,
        CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
        CU_MEMPOOL_ATTR_USED_MEM_HIGH,
        (CUmemPool_attribute)77,
    };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        cuuint64_t value = 0x5555, new_value = 1;

        SAY_CODE("get from no pool", cuMemPoolGetAttribute(NULL, all[i], &value));
        SAY_CODE("get from a destroyed pool", cuMemPoolGetAttribute(destroyed, all[i], &value));
        SAY_CODE("get to nowhere", cuMemPoolGetAttribute(pool, all[i], NULL));
        say("value %#llx", (unsigned long long)value);
        SAY_CODE("get", cuMemPoolGetAttribute(pool, all[i], &value));
        say("attribute %d is %#llx", (int)all[i], (unsigned long long)value);
        SAY_CODE("set of no pool", cuMemPoolSetAttribute(NULL, all[i], &new_value));
        SAY_CODE("set of a destroyed pool", cuMemPoolSetAttribute(destroyed, all[i], &new_value));
        SAY_CODE("set to nothing", cuMemPoolSetAttribute(pool, all[i], NULL));
        SAY_CODE("set", cuMemPoolSetAttribute(pool, all[i], &new_value));
        SAY_CODE("get", cuMemPoolGetAttribute(pool, all[i], &value));
        say("attribute %d is %#llx", (int)all[i], (unsigned long long)value);
    }
}

static void codes_of_pools(CUmemoryPool pool, CUmemoryPool destroyed)
{
    CUmemPoolProps props = properties(CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_HANDLE_TYPE_NONE);
    CUmemAccessDesc access = {.location = here, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemAccess_flags flags = (CUmemAccess_flags)77;
    CUmemLocation location = here;
    CUmemoryPool made = untouched_pool;

    say_pool("create to nowhere", cuMemPoolCreate(NULL, &props), &made);
    say_pool("create of nothing", cuMemPoolCreate(&made, NULL), &made);
    props.location.id = 99;
    say_pool("create on no device", cuMemPoolCreate(&made, &props), &made);
    props = properties((CUmemAllocationType)9, CU_MEM_HANDLE_TYPE_NONE);
    say_pool("create of no type", cuMemPoolCreate(&made, &props), &made);
    SAY_CODE("destroy of no pool", cuMemPoolDestroy(NULL));
    SAY_CODE("destroy of a destroyed pool", cuMemPoolDestroy(destroyed));
    SAY_CODE("trim of no pool", cuMemPoolTrimTo(NULL, 0));
    SAY_CODE("trim", cuMemPoolTrimTo(pool, 0));
    SAY_CODE("access of no pool", cuMemPoolSetAccess(NULL, &access, 1));
    SAY_CODE("access by nobody", cuMemPoolSetAccess(pool, NULL, 0));
    SAY_CODE("access", cuMemPoolSetAccess(pool, &access, 1));
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    SAY_CODE("no access of its own device", cuMemPoolSetAccess(pool, &access, 1));
    SAY_CODE("get access of no pool", cuMemPoolGetAccess(&flags, NULL, &location));
    SAY_CODE("get access to nowhere", cuMemPoolGetAccess(NULL, pool, &location));
    say("flags %d", (int)flags);
    SAY_CODE("get access", cuMemPoolGetAccess(&flags, pool, &location));
    say("flags %d", (int)flags);
    SAY_CODE("export of no pool", cuMemPoolExportToShareableHandle(
                                      &flags, NULL, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    SAY_CODE("export of a pool that is not for it",
             cuMemPoolExportToShareableHandle(&flags, pool,
                                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    say_pool("import of nothing",
             cuMemPoolImportFromShareableHandle(&made, (void *)(intptr_t)-1,
                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
             &made);
}

static void codes_of_choices(CUmemoryPool destroyed)
{
    CUmemLocation location = here, nowhere = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 99};
    CUmemoryPool pool = untouched_pool, current;
    int supported = 0;

    OK(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0));
    say("pools are supported: %d", supported);
    SAY_CODE("default to nowhere", cuDeviceGetDefaultMemPool(NULL, 0));
    say_pool("default of no device", cuDeviceGetDefaultMemPool(&pool, 99), &pool);
    SAY_CODE("current to nowhere", cuDeviceGetMemPool(NULL, 0));
    say_pool("current of no device", cuDeviceGetMemPool(&pool, 99), &pool);
    SAY_CODE("choose no pool", cuDeviceSetMemPool(0, NULL));
    SAY_CODE("choose for no device", cuDeviceSetMemPool(99, pool));
    say_pool("default by no location",
             cuMemGetDefaultMemPool(&pool, NULL, CU_MEM_ALLOCATION_TYPE_PINNED), &pool);
    say_pool("default by a wrong one",
             cuMemGetDefaultMemPool(&pool, &nowhere, CU_MEM_ALLOCATION_TYPE_PINNED), &pool);
    say_pool("current by no location", cuMemGetMemPool(&pool, NULL, CU_MEM_ALLOCATION_TYPE_PINNED),
             &pool);
    SAY_CODE("choose by no location",
             cuMemSetMemPool(NULL, CU_MEM_ALLOCATION_TYPE_PINNED, destroyed));
    SAY_CODE("choose a destroyed pool",
             cuMemSetMemPool(&location, CU_MEM_ALLOCATION_TYPE_PINNED, destroyed));
    say_pool("default", cuDeviceGetDefaultMemPool(&pool, 0), &pool);
    SAY_CODE("destroy of it", cuMemPoolDestroy(pool));
    OK(cuMemGetMemPool(&current, &location, CU_MEM_ALLOCATION_TYPE_PINNED));
    say("it is current: %d", current == pool);
}

static void codes(void)
{
    CUmemoryPool pool = create(CU_MEM_HANDLE_TYPE_NONE),
                 destroyed = create(CU_MEM_HANDLE_TYPE_NONE);

    OK(cuMemPoolDestroy(destroyed));
    codes_of_allocations(pool, destroyed);
    codes_of_attributes(pool, destroyed);
    codes_of_pools(pool, destroyed);
    codes_of_choices(destroyed);
    SAY_CODE("destroy", cuMemPoolDestroy(pool));
    SAY_CODE("destroy again", cuMemPoolDestroy(pool));
}

/* --- the current pool --- */

static cuuint64_t attribute(CUmemoryPool pool, CUmemPool_attribute which)
{
    cuuint64_t value = 77;

    OK(cuMemPoolGetAttribute(pool, which, &value));
    return value;
}

static CUmemoryPool pool_of(CUdeviceptr p)
{
    CUmemoryPool pool = NULL;

    OK(cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p));
    return pool;
}

static void say_owner(const char *what, CUmemoryPool wanted)
{
    CUpointer_attribute which = CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE;
    CUmemoryPool listed = NULL;
    void *data = &listed;
    CUdeviceptr p;
    unsigned managed = 7;

    OK(cuMemAllocAsync(&p, 4096, NULL));
    OK(cuPointerGetAttributes(1, &which, &data, p));
    say("%s: from the pool that is current: %d %d", what, pool_of(p) == wanted, listed == wanted);
    OK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p));
    say("kind: managed %u", managed);
    OK(cuMemFreeAsync(p, NULL));
}

/* The driver crashes when it is asked for a dma-buf of a managed pool's memory. */
static void say_range(void)
{
    CUdeviceptr p;
    int handle;

    OK(cuMemAllocAsync(&p, 1 << 20, NULL));
    SAY_CODE("dma-buf", cuMemGetHandleForAddressRange(&handle, p, 1 << 20,
                                                      CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
    SAY_CODE("dma-buf to nowhere", cuMemGetHandleForAddressRange(
                                       NULL, p, 1 << 20, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
    SAY_CODE("ipc", cuIpcGetMemHandle(&(CUipcMemHandle){{0}}, p));
    OK(cuMemFreeAsync(p, NULL));
}

static void current(void)
{
    CUmemoryPool mine = create(CU_MEM_HANDLE_TYPE_NONE), usual, found;
    CUmemLocation location = here;

    OK(cuDeviceGetDefaultMemPool(&usual, 0));
    say_owner("at first", usual);
    OK(cuDeviceSetMemPool(0, mine));
    say_owner("chosen", mine);
    OK(cuMemSetMemPool(&location, CU_MEM_ALLOCATION_TYPE_PINNED, usual));
    say_owner("chosen by location", usual);
    OK(cuDeviceSetMemPool(0, mine));
    OK(cuStreamSynchronize(NULL));
    OK(cuMemPoolDestroy(mine));
    OK(cuDeviceGetMemPool(&found, 0));
    say("destroyed: the default is current: %d", found == usual);
    say_owner("destroyed", usual);
    say_range();
}

/* --- several devices --- */

static CUcontext enter_device(int device)
{
    CUcontext entered;

    OK(cuDevicePrimaryCtxRetain(&entered, device));
    OK(cuCtxSetCurrent(entered));
    return entered;
}

/* Memory comes from the pool of the stream's device, whichever context is current. */
static void devices(void)
{
    CUmemoryPool usual[2];
    CUstream stream[2];
    CUdeviceptr p;

    for (int i = 0; i < 2; i++) {
        (void)enter_device(i);
        OK(cuStreamCreate(&stream[i], CU_STREAM_NON_BLOCKING));
        OK(cuDeviceGetDefaultMemPool(&usual[i], i));
    }
    for (int i = 0; i < 6; i++) {
        (void)enter_device(i % 2);
        OK(cuMemAllocAsync(&p, 4096, i < 4 ? stream[i / 2] : NULL));
        say("allocation %d: of device 0 %d, of device 1 %d", i, pool_of(p) == usual[0],
            pool_of(p) == usual[1]);
        OK(cuMemFreeAsync(p, i < 4 ? stream[i / 2] : NULL));
    }
}

/* --- captures --- */

struct attempt {
    CUmemoryPool pool;
    CUstream other;
    CUdeviceptr p;
    bool only_about_pools, freed;
};

static void *try_everything(void *data)
{
    struct attempt *attempt = data;
    cuuint64_t value = 0;
    CUdeviceptr p = untouched_address;
    CUmemoryPool made = untouched_pool;
    CUmemPoolProps props = properties(CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_HANDLE_TYPE_NONE);

    OK(cuCtxSetCurrent(context));
    if (attempt->only_about_pools) {
        say_pool("default", cuDeviceGetDefaultMemPool(&made, 0), &made);
        say_pool("current", cuDeviceGetMemPool(&made, 0), &made);
        SAY_CODE("choose", cuDeviceSetMemPool(0, made));
        SAY_CODE("trim", cuMemPoolTrimTo(attempt->pool, 0));
        say_pool("create", cuMemPoolCreate(&made, &props), &made);
        SAY_CODE("destroy", cuMemPoolDestroy(made));
        return NULL;
    }
    attempt->freed = cuMemFreeAsync(attempt->p, attempt->other) == CUDA_SUCCESS;
    say("free: %d", attempt->freed);
    say_alloc("alloc", cuMemAllocAsync(&p, 4096, attempt->other), &p);
    p = untouched_address;
    say_alloc("from pool", cuMemAllocFromPoolAsync(&p, 4096, attempt->pool, attempt->other), &p);
    SAY_CODE("get",
             cuMemPoolGetAttribute(attempt->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
    SAY_CODE("set",
             cuMemPoolSetAttribute(attempt->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
    return NULL;
}

static void end_and_run(CUstream stream, CUdeviceptr words)
{
    CUgraph graph = NULL;
    CUgraphExec exec;
    CUresult code = cuStreamEndCapture(stream, &graph);

    say("end: %d, graph %d", (int)code, graph != NULL);
    if (code != CUDA_SUCCESS)
        return;
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    say("wrong words: %u", count_wrong(words, WORDS, 3));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

static void capture(CUstreamCaptureMode mode, bool own_thread, bool only_about_pools)
{
    struct attempt attempt = {.pool = create(CU_MEM_HANDLE_TYPE_NONE),
                              .only_about_pools = only_about_pools};
    CUdeviceptr words;
    CUstream stream;
    pthread_t thread;

    say("mode %d, %s thread", (int)mode, own_thread ? "own" : "another");
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&attempt.other, CU_STREAM_NON_BLOCKING));
    OK(cuMemAllocAsync(&attempt.p, 4096, attempt.other));
    OK(cuMemAlloc(&words, WORDS * sizeof(uint32_t)));
    OK(cuStreamBeginCapture(stream, mode));
    launch_fill(stream, words, WORDS, 3);
    if (own_thread) {
        (void)try_everything(&attempt);
    } else {
        OK(pthread_create(&thread, NULL, try_everything, &attempt));
        OK(pthread_join(thread, NULL));
    }
    end_and_run(stream, words);
    OK(cuCtxSynchronize());
    OK(cuMemFree(words));
    if (!attempt.freed)
        SAY_CODE("free afterwards", cuMemFreeAsync(attempt.p, attempt.other));
    OK(cuCtxSynchronize());
    OK(cuMemPoolDestroy(attempt.pool));
}

/* Allocations and frees on the captured stream itself become nodes. */
static void capture_nodes(CUstreamCaptureMode mode)
{
    CUmemoryPool pool = create(CU_MEM_HANDLE_TYPE_NONE);
    CUdeviceptr p, q, words;
    CUstream stream;

    say("nodes, mode %d", (int)mode);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&words, WORDS * sizeof(uint32_t)));
    OK(cuStreamBeginCapture(stream, mode));
    SAY_CODE("alloc", cuMemAllocAsync(&p, 4096, stream));
    SAY_CODE("from pool", cuMemAllocFromPoolAsync(&q, 4096, pool, stream));
    launch_fill(stream, p, WORDS, 3);
    OK(cuMemcpyDtoDAsync(words, p, WORDS * sizeof(uint32_t), stream));
    SAY_CODE("free", cuMemFreeAsync(p, stream));
    SAY_CODE("free", cuMemFreeAsync(q, stream));
    end_and_run(stream, words);
    OK(cuMemFree(words));
    OK(cuMemPoolDestroy(pool));
}

static void captures(void)
{
    for (int mode = 0; mode < 3; mode++) {
        for (int i = 0; i < 4; i++)
            capture((CUstreamCaptureMode)mode, i & 1, i & 2);
        capture_nodes((CUstreamCaptureMode)mode);
    }
}

/* --- threads --- */

static void *work(void *data)
{
    unsigned number = (unsigned)(uintptr_t)data, wrong = 0;
    CUmemoryPool pool = create(CU_MEM_HANDLE_TYPE_NONE);
    CUdeviceptr p;
    CUstream stream;

    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (uint32_t i = 0; i < 40; i++) {
        OK(i % 2 ? cuMemAllocAsync(&p, WORDS * 4, stream)
                 : cuMemAllocFromPoolAsync(&p, WORDS * 4, pool, stream));
        launch_fill(stream, p, WORDS, number * 1000 + i);
        if (i % 8 == 0) {
            OK(cuStreamSynchronize(stream));
            wrong += count_wrong(p, WORDS, number * 1000 + i);
        }
        OK(cuMemFreeAsync(p, stream));
    }
    OK(cuStreamSynchronize(stream));
    OK(cuMemPoolDestroy(pool));
    return (void *)(uintptr_t)wrong;
}

static void threads(void)
{
    pthread_t thread[N_THREADS];
    void *wrong;

    for (unsigned i = 0; i < N_THREADS; i++)
        OK(pthread_create(&thread[i], NULL, work, (void *)(uintptr_t)i));
    for (unsigned i = 0; i < N_THREADS; i++) {
        OK(pthread_join(thread[i], &wrong));
        say("wrong words: %u", (unsigned)(uintptr_t)wrong);
    }
}

/* --- pools of another process: here of this one --- */

/* What names no pool comes from the one that is current, which may be there to be shared. */
static void share_current(void)
{
    CUmemoryPool pool = create(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR), usual;
    CUmemPoolPtrExportData data;
    CUdeviceptr p, of_usual;

    OK(cuDeviceGetMemPool(&usual, 0));
    OK(cuMemAllocAsync(&of_usual, WORDS * 4, NULL));
    OK(cuDeviceSetMemPool(0, pool));
    OK(cuMemAllocAsync(&p, WORDS * 4, NULL));
    SAY_CODE("export pointer", cuMemPoolExportPointer(&data, p));
    say("used: %llu", (unsigned long long)attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
    say("of the pool that is current: %d", pool_of(p) == pool);
    say("of the one that was: %d", pool_of(of_usual) == usual);
    SAY_CODE("free", cuMemFreeAsync(p, NULL));
    SAY_CODE("free", cuMemFreeAsync(of_usual, NULL));
    OK(cuStreamSynchronize(NULL));
    OK(cuMemPoolDestroy(pool));
}

static void share(void)
{
    CUmemoryPool pool = create(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR), imported = untouched_pool;
    CUmemoryPool again = untouched_pool;
    CUmemPoolPtrExportData data;
    CUdeviceptr p, q = untouched_address;
    int file = -1;

    OK(cuMemAllocFromPoolAsync(&p, WORDS * 4, pool, NULL));
    launch_fill(NULL, p, WORDS, 9);
    OK(cuStreamSynchronize(NULL));
    SAY_CODE("export pool", cuMemPoolExportToShareableHandle(
                                &file, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    SAY_CODE("export pointer", cuMemPoolExportPointer(&data, p));
    SAY_CODE("export of nothing", cuMemPoolExportPointer(&data, 0x10000));
    say_pool("import pool",
             cuMemPoolImportFromShareableHandle(&imported, (void *)(intptr_t)file,
                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
             &imported);
    (void)cuMemPoolImportFromShareableHandle(&again, (void *)(intptr_t)file,
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    say("imported again: %s", again == imported ? "the same pool" : "another");
    say_alloc("alloc from an imported pool", cuMemAllocFromPoolAsync(&q, 4096, imported, NULL), &q);
    say_alloc("import pointer", cuMemPoolImportPointer(&q, imported, &data), &q);
    say_alloc("import pointer to no pool", cuMemPoolImportPointer(&q, NULL, &data), &q);
    if (q != untouched_address) {
        say("wrong words: %u", count_wrong(q, WORDS, 9));
        SAY_CODE("free of the import", cuMemFreeAsync(q, NULL));
        OK(cuStreamSynchronize(NULL));
    }
    SAY_CODE("free", cuMemFreeAsync(p, NULL));
    OK(cuStreamSynchronize(NULL));
    SAY_CODE("destroy of the import", cuMemPoolDestroy(imported));
    SAY_CODE("destroy", cuMemPoolDestroy(pool));
    share_current();
}

/* --- levels: what the pools hold after everything was given back --- */

static void use(CUmemoryPool pool, size_t bytes)
{
    CUdeviceptr p;

    OK(pool ? cuMemAllocFromPoolAsync(&p, bytes, pool, NULL) : cuMemAllocAsync(&p, bytes, NULL));
    launch_fill(NULL, p, WORDS, 1);
    OK(cuMemFreeAsync(p, NULL));
    OK(cuStreamSynchronize(NULL));
}

static void say_held(const char *what, CUmemoryPool pool)
{
    say("%s: threshold %#llx", what,
        (unsigned long long)attribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD));
    say("held: %s: %llu", what,
        (unsigned long long)attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
}

static void levels(void)
{
    CUmemoryPool mine = create(CU_MEM_HANDLE_TYPE_NONE), chosen = create(CU_MEM_HANDLE_TYPE_NONE),
                 usual;
    cuuint64_t value = 0;
    size_t before, after, total;

    OK(cuMemGetInfo(&before, &total));
    use(NULL, 8 * MIB);
    use(mine, 8 * MIB);
    OK(cuMemGetInfo(&after, &total));
    say("free memory is as before: %d", before == after);
    OK(cuDeviceGetDefaultMemPool(&usual, 0));
    say_held("default", usual);
    say_held("created", mine);
    OK(cuMemPoolSetAttribute(chosen, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
    use(chosen, 8 * MIB);
    say_held("chosen 0", chosen);
    value = 5 * MIB;
    OK(cuMemPoolSetAttribute(mine, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
    use(mine, 8 * MIB);
    say_held("chosen 5 MiB", mine);
    value = UINT64_MAX;
    OK(cuMemPoolSetAttribute(chosen, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
    use(chosen, 8 * MIB);
    say_held("chosen max", chosen);
    value = 0;
    OK(cuMemPoolSetAttribute(mine, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value));
    OK(cuMemPoolTrimTo(usual, 0));
    say("trimmed: %llu",
        (unsigned long long)attribute(usual, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
}

/* --- a card of 64 MiB, or a limit of as much --- */

static void limit(void)
{
    CUmemoryPool mine = create(CU_MEM_HANDLE_TYPE_NONE);
    size_t free_bytes, total;
    CUdeviceptr p[3], q = 0;

    for (int i = 0; i < 3; i++) {
        OK(i % 2 ? cuMemAllocAsync(&p[i], 16 * MIB, NULL)
                 : cuMemAllocFromPoolAsync(&p[i], 16 * MIB, mine, NULL));
        launch_fill(NULL, p[i], WORDS, 1);
    }
    OK(cuMemGetInfo(&free_bytes, &total));
    say("free: %zu of %zu MiB", free_bytes / MIB, total / MIB);
    SAY_CODE("32 MiB more", cuMemAllocAsync(&q, 32 * MIB, NULL));
    SAY_CODE("32 MiB more from a pool", cuMemAllocFromPoolAsync(&q, 32 * MIB, mine, NULL));
    SAY_CODE("32 MiB more of cuMemAlloc", cuMemAlloc(&q, 32 * MIB));
    OK(cuCtxSetCurrent(
        NULL)); /* as in a new thread: the CUDA runtime tries first, and sets it then */
    SAY_CODE("without a context", cuMemAllocAsync(&q, 32 * MIB, NULL));
    SAY_CODE("of a pool", cuMemAllocFromPoolAsync(&q, 32 * MIB, mine, NULL));
    SAY_CODE("of cuMemAlloc", cuMemAlloc(&q, 32 * MIB));
    OK(cuCtxSetCurrent(context));
    SAY_CODE("free", cuMemFreeAsync(p[0], NULL));
    SAY_CODE("free", cuMemFreeAsync(p[1], NULL));
    OK(cuStreamSynchronize(NULL));
    SAY_CODE("32 MiB", cuMemAllocAsync(&q, 32 * MIB, NULL));
    SAY_CODE("free", cuMemFreeAsync(q, NULL));
    OK(cuStreamSynchronize(NULL));
    SAY_CODE("32 MiB of cuMemAlloc", cuMemAlloc(&q, 32 * MIB));
    SAY_CODE("32 MiB more", cuMemAllocAsync(&p[0], 32 * MIB, NULL));
    SAY_CODE("free", cuMemFree(q));
    SAY_CODE("32 MiB", cuMemAllocAsync(&p[0], 32 * MIB, NULL));
}

/* --- more pools than the table has rows --- */

static void many(void)
{
    CUmemoryPool pools[80];

    for (unsigned i = 0; i < 300; i++) {
        CUmemoryPool pool = create(CU_MEM_HANDLE_TYPE_NONE);

        use(pool, 4096);
        OK(cuMemPoolDestroy(pool));
    }
    for (unsigned i = 0; i < 80; i++)
        use(pools[i] = create(CU_MEM_HANDLE_TYPE_NONE), 4096);
    for (unsigned i = 0; i < 80; i++)
        OK(cuMemPoolDestroy(pools[i]));
    say("made");
}

/* --- fork and reset --- */

static void forked(void)
{
    CUdeviceptr p;
    int status;
    pid_t child;

    use(NULL, 4096);
    child = fork();
    if (!child)
        _exit(cuMemAllocAsync(&p, 4096, NULL) == CUDA_SUCCESS ? 1 : 0);
    OK(waitpid(child, &status, 0) != child);
    say("in the child it works: %d", WEXITSTATUS(status));
    use(NULL, 4096);
}

static void reset(void)
{
    CUmemoryPool mine = create(CU_MEM_HANDLE_TYPE_NONE);
    cuuint64_t value = 0;

    OK(cuMemPoolSetAttribute(mine, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
    use(NULL, 8 * MIB);
    use(mine, 8 * MIB);
    OK(cuDevicePrimaryCtxReset(0));
    OK(cuCtxSetCurrent(NULL));
    context = device_open();
    use(NULL, 8 * MIB);
    use(mine, 8 * MIB);
    say("kept where 0 was chosen before: %d",
        attribute(mine, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) != 0);
}

/* --- killed --- */

static void killed(void)
{
    for (unsigned i = 0; i < 5; i++)
        use(NULL, MIB);
    (void)raise(SIGKILL);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } parts[] = {
        {"codes", codes}, {"current", current}, {"captures", captures}, {"threads", threads},
        {"share", share}, {"levels", levels},   {"limit", limit},       {"devices", devices},
        {"many", many},   {"fork", forked},     {"reset", reset},       {"killed", killed},
    };

    if (argc != 2)
        return 2;
    context = device_open();
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (!strcmp(argv[1], parts[i].name)) {
            parts[i].run();
            return 0;
        }
    }
    return 2;
}
