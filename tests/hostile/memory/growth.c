/* growth PART N: what is made and ended N times takes no more memory than made once: says by how
 * many KiB the process grew, after it did the same N / 4 times to warm up. */
#include <pthread.h>
#include <stdlib.h>

#include <cuda.h>

#include "tests/common/say.h"

static CUdevice device;

static long resident_kib(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    long pages = 0;

    NEED(!file || fscanf(file, "%*d %ld", &pages) != 1);
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static CUcontext make_primary_current(void)
{
    CUcontext context;

    NEED(cuDevicePrimaryCtxRetain(&context, device));
    NEED(cuCtxSetCurrent(context));
    return context;
}

static void pair(size_t bytes)
{
    CUdeviceptr p;

    NEED(cuMemAlloc(&p, bytes));
    NEED(cuMemFree(p));
}

/* Memory that dies with its context, beside some that waits in a cache. */
static void leave_memory(void)
{
    CUdeviceptr p;

    pair(4096);
    NEED(cuMemAlloc(&p, 1 << 16));
}

static void one_context(void)
{
    CUcontext context;

    NEED(cuCtxCreate(&context, NULL, 0, device));
    leave_memory();
    NEED(cuCtxDestroy(context));
}

static void one_reset(void)
{
    (void)make_primary_current();
    leave_memory();
    NEED(cuDevicePrimaryCtxReset(device));
}

static void one_release(void)
{
    (void)make_primary_current();
    leave_memory();
    NEED(cuDevicePrimaryCtxRelease(device));
}

static CUdevResourceDesc some_multiprocessors(void)
{
    static CUdevResource all, part;
    static CUdevResourceDesc descriptor;
    unsigned n = 1;

    if (!descriptor) {
        NEED(cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM));
        NEED(cuDevSmResourceSplitByCount(&part, &n, &all, NULL, 0, 8));
        NEED(cuDevResourceGenerateDesc(&descriptor, &part, 1));
    }
    return descriptor;
}

static void one_green(void)
{
    CUdevResourceDesc descriptor = some_multiprocessors();
    CUcontext inside;
    CUgreenCtx green;
    CUdeviceptr p;
    CUstream stream;

    NEED(cuGreenCtxCreate(&green, descriptor, device, CU_GREEN_CTX_DEFAULT_STREAM));
    NEED(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    NEED(cuCtxFromGreenCtx(&inside, green));
    NEED(cuCtxPushCurrent(inside));
    NEED(cuMemAlloc(&p, 4096));
    NEED(cuMemsetD8Async(p, 0, 4096, stream));
    NEED(cuMemFree(p));
    NEED(cuCtxPopCurrent(&inside));
    NEED(cuStreamDestroy(stream));
    NEED(cuGreenCtxDestroy(green));
}

static void one_pair(void)
{
    static unsigned turn;

    pair((size_t)512 << turn++ % 12);
}

static void *live_shortly(void *context)
{
    CUdeviceptr p;

    NEED(cuCtxSetCurrent(context));
    NEED(cuMemAlloc(&p, 4096));
    NEED(cuMemsetD8Async(p, 1, 4096, CU_STREAM_PER_THREAD));
    NEED(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    NEED(cuMemFree(p));
    return NULL;
}

static void one_thread(void)
{
    static CUcontext context;
    pthread_t thread;

    if (!context)
        context = make_primary_current();
    NEED(pthread_create(&thread, NULL, live_shortly, context));
    NEED(pthread_join(thread, NULL));
}

static const struct {
    const char *name;
    void (*once)(void);
    int has_primary; /* all the time */
} parts[] = {
    {"context", one_context, 1}, {"lone_context", one_context, 0}, {"reset", one_reset, 0},
    {"release", one_release, 0}, {"green", one_green, 1},          {"pair", one_pair, 1},
    {"thread", one_thread, 1},
};

int main(int argc, char **argv)
{
    long n = argc == 3 ? atol(argv[2]) : 0, before;

    NEED(cuInit(0));
    NEED(cuDeviceGet(&device, 0));
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (argc != 3 || strcmp(argv[1], parts[i].name))
            continue;
        if (parts[i].has_primary)
            (void)make_primary_current();
        for (long turn = 0; turn < n / 4; turn++)
            parts[i].once();
        before = resident_kib();
        for (long turn = 0; turn < n; turn++)
            parts[i].once();
        say("grew by %ld KiB", resident_kib() - before);
        return 0;
    }
    say("growth PART N: no such part");
    return 97;
}
