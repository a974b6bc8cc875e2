/* Writes outside of blocks, and into freed ones, for guards to find; and, with "clean", much that
 * is right. Each mistake stands in a function of its own; the blocks' sizes tell them apart. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/common/device.h"
#include "tests/common/parts.h"
#include "tests/common/say.h"

static CUdeviceptr allocate(size_t bytes)
{
    CUdeviceptr p;

    OK(cuMemAlloc(&p, bytes));
    return p;
}

/* `n` words of a kernel from `p` on. */
static void kernel_writes(CUdeviceptr p, uint32_t n)
{
    launch_fill(NULL, p, n, 0x11111111);
    OK(cuCtxSynchronize());
}

static void copy_writes(CUdeviceptr p, size_t bytes)
{
    static const unsigned char ones[64] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

    OK(cuMemcpyHtoD(p, ones, bytes));
}

/* 3 words behind a block of 1000 bytes, from its end on. */
static void behind(void)
{
    CUdeviceptr p = allocate(1000);

    kernel_writes(p, 253);
    OK(cuMemFree(p));
}

/* 5 bytes behind a block of 2001 bytes, 7 bytes from its end. */
static void behind_by_copy(void)
{
    CUdeviceptr p = allocate(2001);

    copy_writes(p + 2008, 5);
    OK(cuMemFree(p));
}

/* 2 words before a block of 3000 bytes, one of them right before it. */
static void before(void)
{
    CUdeviceptr p = allocate(3000);

    kernel_writes(p - 8, 2);
    OK(cuMemFree(p));
}

/* A byte at both ends of a block of 4000 bytes that is never freed. */
static void leaked(void)
{
    CUdeviceptr p = allocate(4000);

    copy_writes(p - 1, 1);
    copy_writes(p + 4000, 1);
}

/* 4 words into a block of 5000 bytes, 400 bytes into it, after it was freed. */
static void freed_by_kernel(void)
{
    CUdeviceptr p = allocate(5000);

    OK(cuMemFree(p));
    kernel_writes(p + 400, 4);
}

/* The last 6 bytes of a block of 6000 bytes. */
static void freed_by_copy(void)
{
    CUdeviceptr p = allocate(6000);

    OK(cuMemFree(p));
    copy_writes(p + 5994, 6);
}

/* A block of 7000 bytes that is freed by another thread and written there. */
static void *free_it(void *p)
{
    OK(cuCtxSetCurrent(device_open()));
    OK(cuMemFree(*(CUdeviceptr *)p));
    kernel_writes(*(CUdeviceptr *)p, 1);
    return NULL;
}

static void freed_elsewhere(void)
{
    CUdeviceptr p = allocate(7000);
    pthread_t thread;

    CHECK(!pthread_create(&thread, NULL, free_it, &p));
    CHECK(!pthread_join(thread, NULL));
}

/* In a context of its own, which is destroyed. */
static void with_a_context(void)
{
    CUcontext own, before_it;
    CUdevice device;
    CUdeviceptr p;

    OK(cuCtxGetCurrent(&before_it));
    OK(cuDeviceGet(&device, 0));
    OK(cuCtxCreate(&own, NULL, 0, device));
    p = allocate(8000);
    copy_writes(p + 8000, 2);
    OK(cuCtxDestroy(own));
    OK(cuCtxSetCurrent(before_it));
}

/* Uninitialised memory is read: the first word of a new block. */
static void fresh(void)
{
    uint32_t word = 0;
    CUdeviceptr p = allocate(9000);

    OK(cuMemcpyDtoH(&word, p, sizeof(word)));
    say("fresh: %08x", word);
    OK(cuMemFree(p));
}

/* What a freed block shows to whom still reads it. */
static void stale(void)
{
    uint32_t word = 0;
    CUdeviceptr p = allocate(9000);

    kernel_writes(p, 4);
    OK(cuMemFree(p));
    SAY_CODE("stale", cuMemcpyDtoH(&word, p, sizeof(word)));
    say("stale: %08x", word);
}

/* --- what is right --- */

static void say_range(const char *name, CUdeviceptr p, CUdeviceptr at)
{
    CUdeviceptr base = 0;
    size_t size = 0, range = 0;
    CUdeviceptr start = 0;
    CUresult result = cuMemGetAddressRange(&base, &size, at);

    say("%s: %d, %lld, %zu", name, (int)result, result ? 0ll : (long long)(base - p), size);
    result = cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at);
    say("%s: start %d, %lld", name, (int)result, result ? 0ll : (long long)(start - p));
    result = cuPointerGetAttribute(&range, CU_POINTER_ATTRIBUTE_RANGE_SIZE, at);
    say("%s: size %d, %zu", name, (int)result, range);
}

static void answers(size_t bytes)
{
    CUcontext context = NULL, current = NULL;
    CUdeviceptr p = allocate(bytes);
    unsigned type = 0;
    unsigned long long first = 0, second = 0;

    say("aligned: %d", p % 256 == 0);
    say_range("at its beginning", p, p);
    say_range("in its middle", p, p + bytes / 2);
    say_range("at its last byte", p, p + bytes - 1);
    OK(cuCtxGetCurrent(&current));
    OK(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, p + 1));
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p + 1));
    OK(cuPointerGetAttribute(&first, CU_POINTER_ATTRIBUTE_BUFFER_ID, p));
    OK(cuPointerGetAttribute(&second, CU_POINTER_ATTRIBUTE_BUFFER_ID, p + bytes - 1));
    say("context: %d, type %u, one buffer: %d", context == current, type, first == second);
    SAY_CODE("a free of its middle", cuMemFree(p + 16));
    SAY_CODE("a free of what lies before it", cuMemFree(p - 512));
    OK(cuMemFree(p));
    SAY_CODE("a second free", cuMemFree(p));
    SAY_CODE("its range then", cuMemGetAddressRange(NULL, &(size_t){0}, p));
}

/* Blocks of many sizes, written to their last byte by kernels and copies, several times over. */
static void fill_to_the_brim(void)
{
    CUdeviceptr blocks[40];
    CUstream stream;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned turn = 0; turn < 4; turn++) {
        for (unsigned i = 0; i < N_OF(blocks); i++) {
            uint32_t words = 1 + 61 * i * (turn + 1);

            blocks[i] = allocate(4 * (size_t)words);
            launch_fill(i % 2 ? stream : NULL, blocks[i], words, i);
        }
        for (unsigned i = 0; i < N_OF(blocks); i++) {
            uint32_t words = 1 + 61 * i * (turn + 1);

            if (i % 2)
                OK(cuStreamSynchronize(stream));
            say("block %u: wrong words: %u", i, count_wrong(blocks[i], words, i));
            OK(cuMemFree(blocks[i]));
        }
    }
    OK(cuStreamDestroy(stream));
}

static void pitched(void)
{
    CUdeviceptr p;
    size_t pitch;

    OK(cuMemAllocPitch(&p, &pitch, 1000, 30, 4));
    OK(cuMemsetD8(p, 7, pitch * 30));
    say("pitch: %zu", pitch);
    say_range("rows", p, p + 999);
    OK(cuMemFree(p));
}

/* Freed in the order of a stream. */
static void in_order(void)
{
    CUdeviceptr p = allocate(10000);

    SAY_CODE("cuMemFreeAsync", cuMemFreeAsync(p, NULL));
    OK(cuCtxSynchronize());
    SAY_CODE("a second free", cuMemFree(p));
}

/* Allocated and freed while a capture is open. */
static void captured(void)
{
    CUstream stream;
    CUgraph graph;
    CUdeviceptr p, before_it = allocate(11000);

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    p = allocate(12000);
    launch_fill(stream, p, 3000, 5);
    OK(cuMemFree(before_it));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphDestroy(graph));
    say_range("of a capture", p, p + 11999);
    OK(cuMemFree(p));
    OK(cuStreamDestroy(stream));
}

static void clean(void)
{
    answers(4096);
    answers(77);
    answers((2 << 20) + 1);
    fill_to_the_brim();
    pitched();
    in_order();
    captured();
}

/* All of the device's memory, taken, freed and taken once more. */
static void all_memory(void)
{
    static CUdeviceptr blocks[4096];
    unsigned counts[2] = {0};

    for (unsigned turn = 0; turn < 2; turn++) {
        while (counts[turn] < N_OF(blocks) &&
               cuMemAlloc(&blocks[counts[turn]], 64 << 20) == CUDA_SUCCESS)
            counts[turn]++;
        for (unsigned i = 0; i < counts[turn]; i++)
            OK(cuMemFree(blocks[i]));
    }
    say("all memory: %d", counts[0] && counts[0] == counts[1]);
}

/* More in turns than there is: by every call that a limit holds for. */
static void in_turns(void)
{
    const CUmemAllocationProp shape = {CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr p;
    size_t pitch;

    for (unsigned i = 0; i < 20; i++)
        OK(cuMemFree(allocate(16 << 20)));
    SAY_CODE("memory without an address", cuMemCreate(&handle, 16 << 20, &shape, 0));
    OK(cuMemRelease(handle));
    for (unsigned i = 0; i < 4; i++)
        OK(cuMemFree(allocate(16 << 20)));
    SAY_CODE("rows", cuMemAllocPitch(&p, &pitch, 1 << 14, 1 << 10, 4));
}

/* 3 bytes at the beginning, and 2 at the end, of a freed block of 1 MiB: it is checked in parts. */
static void freed_large(void)
{
    CUdeviceptr p = allocate(1 << 20);

    OK(cuMemFree(p));
    copy_writes(p + 5, 3);
    copy_writes(p + (1 << 20) - 2, 2);
}

/* 8 bytes beyond the last page of a block. */
static void beyond(void)
{
    CUdeviceptr p = allocate(4096);

    kernel_writes(p + 4096, 2);
    OK(cuMemFree(p));
}

/* What is free once 64 MiB were freed, and memory of kinds that are never guarded. */
static void room(void)
{
    CUdeviceptr p, managed, async;
    size_t before_it, then, total;

    OK(cuMemFree(allocate(2 << 20)));
    OK(cuMemGetInfo(&before_it, &total));
    p = allocate(64 << 20);
    OK(cuMemFree(p));
    OK(cuMemGetInfo(&then, &total));
    say("free as before: %d", then == before_it);
    OK(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemAllocAsync(&async, 4096, NULL));
    OK(cuMemFree(managed));
    OK(cuMemFreeAsync(async, NULL));
}

/* 1000 bytes that are freed, and 2000 that are not. */
static void sizes(void)
{
    CUdeviceptr p = allocate(1000);

    (void)allocate(2000);
    OK(cuMemFree(p));
}

/* A handle for other processes; of a block that is there, and of a later one. */
static void handle(void)
{
    CUdeviceptr p = allocate(1 << 20);
    CUipcMemHandle text;

    SAY_CODE("handle", cuIpcGetMemHandle(&text, p));
    OK(cuMemFree(p));
    SAY_CODE("of a later block", cuIpcGetMemHandle(&text, allocate(1 << 20)));
}

#define PAIRS 64 /* some lie side by side, in whatever order addresses are given out */

/* All that the driver says of 512 bytes that end where one of our blocks may begin: one line where
 * it is not what it is to be. */
static void ask_of_neighbour(const char *name, CUdeviceptr p)
{
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                   CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    CUdeviceptr base = 0, start = 0, start_alone = 0;
    size_t size = 0, range = 0;
    CUmemoryPool pool = NULL;
    CUresult results[] = {
        cuMemGetAddressRange(&base, &size, p + 511),
        cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p),
        cuPointerGetAttribute(&start_alone, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, p + 1),
        cuPointerGetAttributes(2, which, (void *[]){&start, &range}, p + 2),
        cuPointerSetAttribute(&(unsigned){1}, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p),
    };

    for (unsigned i = 0; i < N_OF(results); i++) {
        if (results[i] != CUDA_SUCCESS)
            say("%s: question %u: %d", name, i, (int)results[i]);
    }
    if (base != p || start != p || start_alone != p || size != 512 || range != 512 || pool)
        say("%s: another range or pool", name);
}

static CUdeviceptr open_external(void)
{
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC handle = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
                                               .size = 4096};
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC part = {.size = 512};
    CUexternalMemory memory;
    CUdeviceptr p;

    handle.handle.fd = memfd_create("external", 0);
    CHECK(handle.handle.fd >= 0 && !ftruncate(handle.handle.fd, 4096));
    OK(cuImportExternalMemory(&memory, &handle));
    OK(cuExternalMemoryGetMappedBuffer(&p, memory, &part));
    return p;
}

/* Small memory of other kinds, which no guard knows, right before blocks of ours that are kept once
 * they are freed: those begin there, as the driver knows them. */
static void neighbours(void)
{
    CUdeviceptr ours[2 * PAIRS], external[PAIRS];
    void *pinned[PAIRS];

    for (unsigned i = 0; i < 4; i++) /* so that what is freed is kept */
        OK(cuMemFree(allocate(100)));
    for (unsigned i = 0; i < PAIRS; i++) {
        ours[i] = allocate(100);
        OK(cuMemAllocHost(&pinned[i], 512));
    }
    for (unsigned i = 0; i < PAIRS; i++) {
        external[i] = open_external();
        ours[PAIRS + i] = allocate(100);
    }
    for (unsigned i = 0; i < 2 * PAIRS; i++)
        OK(cuMemFree(ours[i]));
    for (unsigned i = 0; i < PAIRS; i++) {
        ask_of_neighbour("pinned", (CUdeviceptr)(uintptr_t)pinned[i]);
        ask_of_neighbour("external", external[i]);
    }
    for (unsigned i = 0; i < PAIRS; i++) {
        OK(cuMemFreeHost(pinned[i]));
        OK(cuMemFree(external[i]));
    }
}

/* Many threads at once, each with its own blocks, and one mistake of 4 words in each. */
static bool threads_err;

static void *work(void *context)
{
    OK(cuCtxSetCurrent(context));
    for (unsigned i = 0; i < 60; i++) {
        CUdeviceptr p = allocate(1024 + 16 * i);

        if (i == 30 && threads_err)
            copy_writes(p + 1024 + 16 * i, 16);
        OK(cuMemFree(p));
    }
    return NULL;
}

static void at_once(void)
{
    pthread_t thread[4];
    CUcontext context;

    OK(cuCtxGetCurrent(&context));
    for (unsigned i = 0; i < N_OF(thread); i++)
        CHECK(!pthread_create(&thread[i], NULL, work, context));
    for (unsigned i = 0; i < N_OF(thread); i++)
        CHECK(!pthread_join(thread[i], NULL));
}

static void threads(void)
{
    threads_err = true;
    at_once();
}

static void threads_right(void)
{
    threads_err = false;
    at_once();
}

/* In a context of its own each time, whose freed blocks others have to give back meanwhile. */
static void *work_in_contexts(void *unused)
{
    CUcontext own;
    CUdevice device;

    OK(cuDeviceGet(&device, 0));
    for (unsigned i = 0; i < 20; i++) {
        OK(cuCtxCreate(&own, NULL, 0, device));
        for (unsigned k = 0; k < 40; k++)
            OK(cuMemFree(allocate(100000 + 16 * k)));
        OK(cuCtxDestroy(own));
    }
    return unused;
}

static void contexts(void)
{
    pthread_t thread[4];

    for (unsigned i = 0; i < N_OF(thread); i++)
        CHECK(!pthread_create(&thread[i], NULL, work_in_contexts, NULL));
    for (unsigned i = 0; i < N_OF(thread); i++)
        CHECK(!pthread_join(thread[i], NULL));
}

static const struct part parts[] = {
    {"behind", behind},
    {"behind-by-copy", behind_by_copy},
    {"before", before},
    {"leaked", leaked},
    {"freed-by-kernel", freed_by_kernel},
    {"freed-by-copy", freed_by_copy},
    {"freed-elsewhere", freed_elsewhere},
    {"context", with_a_context},
    {"fresh", fresh},
    {"stale", stale},
    {"clean", clean},
    {"all-memory", all_memory},
    {"in-turns", in_turns},
    {"threads", threads},
    {"threads-right", threads_right},
    {"contexts", contexts},
    {"beyond", beyond},
    {"freed-large", freed_large},
    {"sizes", sizes},
    {"room", room},
    {"handle", handle},
    {"neighbours", neighbours},
};

int main(int argc, char **argv)
{
    (void)device_open();
    for (int i = 1; i < argc; i++)
        (void)RUN_PART(parts, argv[i]);
    say("done");
    return 0;
}
