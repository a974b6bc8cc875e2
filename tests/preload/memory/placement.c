/* Where memory lies, how much there is, and what becomes of what does not fit: a program that asks.
 *
 *     placement where BYTES     one allocation, what the driver says of it, the same again after a
 *                               free
 *     placement budget          1 MiB pieces until there is no more, then one back, one more
 *     placement refused         too much for the driver, again and again, then what fits
 *     placement captured        rows in a capture, until there is no more; then after an error
 *     placement spill           4 MiB pieces, all in use, the first freed one by one
 *     placement threads         four threads that allocate, use and free
 *     placement waits           an allocation while a kernel waits for the host behind a free */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/common/device.h"
#include "tests/common/say.h"

#define MIB       ((size_t)1 << 20)
#define PIECES    64
#define N_THREADS 4

static int range_attribute(CUmem_range_attribute which, CUdeviceptr p, size_t bytes)
{
    int value = -99;

    return cuMemRangeGetAttribute(&value, sizeof(value), which, p, bytes) == CUDA_SUCCESS ? value
                                                                                          : -98;
}

static int is_managed(CUdeviceptr p)
{
    unsigned managed = 0;

    OK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p));
    return (int)managed;
}

static void say_where(CUdeviceptr p, size_t bytes)
{
    CUdeviceptr base;
    size_t size;

    say("managed: %d", is_managed(p));
    if (is_managed(p)) {
        say("prefers: %d", range_attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, p, bytes));
        say("accessed by: %d", range_attribute(CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, p, bytes));
        say("read mostly: %d", range_attribute(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, p, bytes));
        say("brought to: %d",
            range_attribute(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, p, bytes));
    }
    OK(cuMemGetAddressRange(&base, &size, p + bytes / 2));
    say("range: %d %d", base == p, size == bytes);
}

static void where(size_t bytes)
{
    CUdeviceptr p, again;
    uint32_t n = (uint32_t)(bytes / sizeof(uint32_t));
    CUdeviceptr base;
    size_t size;

    OK(cuMemAlloc(&p, bytes));
    say_where(p, bytes);
    launch_fill(NULL, p, n, 7);
    say("wrong: %u", count_wrong(p, n, 7));
    OK(cuMemFree(p));
    SAY_CODE("free again", cuMemFree(p));
    SAY_CODE("range of what was freed", cuMemGetAddressRange(&base, &size, p));
    OK(cuMemAlloc(&again, bytes));
    say("the same again: %d", again == p);
    say("managed again: %d", is_managed(again));
    OK(cuMemFree(again));
}

static size_t free_memory(size_t *ret_total)
{
    size_t free_bytes;

    OK(cuMemGetInfo(&free_bytes, ret_total));
    return free_bytes;
}

static void budget(void)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr p[PIECES + 1];
    size_t total, before, pitch;
    unsigned n = 0;
    CUresult result;

    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    before = free_memory(&total);
    say("total: %zu MiB, free: %zu MiB", total / MIB, before / MIB);
    while (n < PIECES && (result = cuMemAlloc(&p[n], MIB)) == CUDA_SUCCESS)
        n++;
    say("pieces: %u, then %d", n, (int)result);
    say("free: %zu KiB", free_memory(&total) / 1024);
    SAY_CODE("memory without an address", cuMemCreate(&handle, 2 * MIB, &properties, 0));
    SAY_CODE("rows", cuMemAllocPitch(&p[n], &pitch, 1000, 1024, 4));
    OK(cuMemFree(p[--n]));
    say("free after one: %zu KiB", free_memory(&total) / 1024);
    SAY_CODE("of another size", cuMemAlloc(&p[n], MIB - 4096));
    OK(cuMemFree(p[n]));
    OK(cuMemFree(p[--n]));
    SAY_CODE("memory without an address", cuMemCreate(&handle, 2 * MIB, &properties, 0));
    SAY_CODE("no more", cuMemAlloc(&p[n], MIB));
    OK(cuMemRelease(handle));
    SAY_CODE("and again", cuMemAlloc(&p[n], MIB));
    n++;
    while (n > 0)
        OK(cuMemFree(p[--n]));
    say("all back: %d", free_memory(&total) == before);
}

static void refused(void)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr kept, p;
    size_t total, pitch;

    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    OK(cuMemAlloc(&kept, 16 * MIB));
    for (unsigned i = 0; i < 3; i++) {
        SAY_CODE("too much", cuMemAlloc(&p, 60 * MIB));
        SAY_CODE("too many rows", cuMemAllocPitch(&p, &pitch, 60000, 1024, 4));
        SAY_CODE("too much without an address", cuMemCreate(&handle, 60 * MIB, &properties, 0));
    }
    say("free: %zu MiB", free_memory(&total) / MIB);
    SAY_CODE("what fits", cuMemAlloc(&p, 40 * MIB));
}

/* The first rows of the process: the driver alone knows their pitch. */
static void captured(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUdeviceptr p[4] = {0};
    CUstream stream;
    CUgraph graph;
    size_t total, pitch;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    for (unsigned i = 0; i < 4; i++)
        SAY_CODE("rows", cuMemAllocPitch(&p[i], &pitch, 1024, 3 * 1024, 4));
    OK(cuStreamEndCapture(stream, &graph));
    say("free: %zu KiB", free_memory(&total) / 1024);
    OK(cuMemFree(p[0]));
    say("free after one: %zu KiB", free_memory(&total) / 1024);
    SAY_CODE("too much", cuMemAlloc(&p[2], 16 * MIB));
    launch_fill(stream, 4096, 64, 1);
    SAY_CODE("a bad kernel", cuStreamSynchronize(stream));
    SAY_CODE("too much after that", cuMemAlloc(&p[2], 16 * MIB));
}

static void spill(void)
{
    const size_t bytes = 4 * MIB;
    const uint32_t words = (uint32_t)(bytes / sizeof(uint32_t));
    CUdeviceptr p[5];
    uint32_t wrong = 0;

    for (unsigned i = 0; i < 5; i++) {
        OK(cuMemAlloc(&p[i], bytes));
        say("%u: managed %d", i, is_managed(p[i]));
        launch_fill(NULL, p[i], words, i);
    }
    for (unsigned i = 0; i < 5; i++)
        wrong += count_wrong(p[i], words, i);
    say("wrong: %u", wrong);
    for (unsigned i = 0; i < 2; i++) {
        OK(cuMemFree(p[i]));
        for (unsigned j = i + 1; j < 5; j++) {
            if (is_managed(p[j]))
                say("free of %u: %u prefers %d", i, j,
                    range_attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, p[j], bytes));
        }
    }
    for (unsigned i = 2; i < 5; i++)
        wrong += count_wrong(p[i], words, i);
    say("wrong: %u", wrong);
    for (unsigned i = 2; i < 5; i++)
        OK(cuMemFree(p[i]));
}

static CUcontext context;
static _Atomic uint32_t all_wrong;

static void *work(void *number)
{
    unsigned seed = (unsigned)(uintptr_t)number;
    CUstream stream;

    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (uint32_t iteration = 0; iteration < 60; iteration++) {
        size_t bytes = ((size_t)(rand_r(&seed) % 48) + 1) * 64 * 1024;
        uint32_t words = (uint32_t)(bytes / sizeof(uint32_t));
        CUdeviceptr p, q;

        OK(cuMemAlloc(&p, bytes));
        OK(cuMemAlloc(&q, 4096));
        OK(cuMemsetD32Async(q, 0, 1, stream));
        launch_fill(stream, p, words, iteration);
        launch_check(stream, p, words, iteration, q);
        if (iteration % 3 == 0)
            OK(cuStreamSynchronize(stream));
        OK(cuMemFree(p));
        atomic_fetch_add(&all_wrong, count_wrong(q, 1, 0));
        OK(cuMemFree(q));
    }
    return NULL;
}

static void threads(void)
{
    pthread_t thread[N_THREADS];

    OK(cuCtxGetCurrent(&context));
    for (uintptr_t i = 0; i < N_THREADS; i++)
        OK(pthread_create(&thread[i], NULL, work, (void *)(i + 1)));
    for (unsigned i = 0; i < N_THREADS; i++)
        OK(pthread_join(thread[i], NULL));
    say("wrong: %u", atomic_load(&all_wrong));
}

static CUdeviceptr freed_elsewhere;
static atomic_bool is_about_to_free;

static void *free_elsewhere(void *unused)
{
    (void)unused;
    OK(cuCtxSetCurrent(context));
    atomic_store(&is_about_to_free, true);
    OK(cuMemFree(freed_elsewhere)); /* natively it waits here for the kernel */
    return NULL;
}

/* Natively the first thread gets its memory and lets the kernel go on, whatever the other waits
 * for. */
static void waits(void)
{
    static _Atomic uint32_t flag;
    CUdeviceptr held;
    pthread_t thread;
    CUstream stream;

    OK(cuCtxGetCurrent(&context));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&held, 16 * MIB));
    OK(cuMemAlloc(&freed_elsewhere, 56 * MIB));
    launch_spin(stream, &flag);
    OK(pthread_create(&thread, NULL, free_elsewhere, NULL));
    while (!atomic_load(&is_about_to_free))
        usleep(1000);
    usleep(300000);
    OK(cuMemFree(0)); /* waits for nothing */
    SAY_CODE("more than is free until the kernel ends", cuMemAlloc(&held, 40 * MIB));
    atomic_store(&flag, 1);
    OK(pthread_join(thread, NULL));
    OK(cuCtxSynchronize());
    SAY_CODE("and then", cuMemAlloc(&held, 40 * MIB));
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";

    device_open();
    if (!strcmp(what, "where") && argc > 2)
        where(strtoull(argv[2], NULL, 10));
    else if (!strcmp(what, "budget"))
        budget();
    else if (!strcmp(what, "refused"))
        refused();
    else if (!strcmp(what, "captured"))
        captured();
    else if (!strcmp(what, "spill"))
        spill();
    else if (!strcmp(what, "threads"))
        threads();
    else if (!strcmp(what, "waits"))
        waits();
    else
        return 2;
    return 0;
}
