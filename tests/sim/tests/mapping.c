/* mapping.c: virtual memory management: reserve, create, map, open, unmap; arrays beside it. */
#define _GNU_SOURCE
#include "sim_test.h"

#include <sys/mman.h>
#include <unistd.h>

#define CHUNK ((size_t)2 << 20)

static struct test test;

static void test_mapping(void)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    CUmemAccessDesc open = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr p;
    size_t unit, free_before, free_now;

    prop.location.type = open.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    OK(cuMemGetAllocationGranularity(&unit, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CHECK(unit == CHUNK);
    OK(cuMemGetInfo(&free_before, NULL));
    OK(cuMemAddressReserve(&p, 4 * CHUNK, 0, 0, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, CHUNK + 1, &prop, 0));
    OK(cuMemCreate(&handle, CHUNK, &prop, 0));
    OK(cuMemGetInfo(&free_now, NULL));
    CHECK(free_before - free_now == CHUNK);
    OK(cuMemMap(p + CHUNK, CHUNK, 0, handle, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemMap(p + CHUNK, CHUNK, 0, handle, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(p, 4 * CHUNK));
    OK(cuMemSetAccess(p + CHUNK, CHUNK, &open, 1));
    OK(launch(test.fill, NULL, p + CHUNK, 64, 7));
    OK(cuCtxSynchronize());
    CHECK(word_at(p + CHUNK) == 7);
    OK(cuMemRelease(handle)); /* the mapping keeps it */
    OK(launch(test.add, NULL, p + CHUNK, 64, 0));
    OK(cuCtxSynchronize());
    CHECK(word_at(p + CHUNK) == 21);
    OK(cuMemUnmap(p + CHUNK, CHUNK));
    OK(cuMemAddressFree(p, 4 * CHUNK));
    OK(cuMemGetInfo(&free_now, NULL));
    CHECK(free_before == free_now);
}

static void test_arrays(void)
{
    CUDA_ARRAY3D_DESCRIPTOR desc = {
        .Width = 8, .Height = 4, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1};
    unsigned from[4][8], to[4][8];
    CUarray array;

    for (unsigned i = 0; i < 32; i++)
        from[i / 8][i % 8] = i;
    OK(cuArray3DCreate(&array, &desc));
    CUDA_MEMCPY2D in = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = from,
                        .srcPitch = 32,
                        .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                        .dstArray = array,
                        .WidthInBytes = 32,
                        .Height = 4};
    OK(cuMemcpy2D(&in));
    CUDA_MEMCPY2D out = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                         .srcArray = array,
                         .dstMemoryType = CU_MEMORYTYPE_HOST,
                         .dstHost = to,
                         .dstPitch = 32,
                         .WidthInBytes = 32,
                         .Height = 4};
    OK(cuMemcpy2D(&out));
    CHECK(!memcmp(from, to, sizeof(from)));
    OK(cuMemcpyAtoH(to, array, 4, 8));
    CHECK(to[0][0] == 1 && to[0][1] == 2);
    OK(cuArrayDestroy(array));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(array));
}

/* One stream waits for a word that another one writes. */
static void test_values(void)
{
    CUstream a, b;
    CUdeviceptr word, p;

    OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&word, 64));
    OK(cuMemAlloc(&p, 64));
    OK(cuMemsetD32(word, 0, 16));
    OK(cuCtxSynchronize());
    for (unsigned i = 1; i < 30; i++) {
        OK(cuStreamWaitValue32(b, word, i, CU_STREAM_WAIT_VALUE_GEQ));
        OK(launch(test.add, b, p, 1, 1));
        OK(launch(test.fill, a, p, 1, i));
        OK(cuStreamWriteValue32(a, word, i, 0));
        OK(cuStreamSynchronize(a));
        OK(cuStreamSynchronize(b));
        CHECK(word_at(p) == 3 * i + 1);
    }
    OK(cuMemFree(word));
    OK(cuMemFree(p));
}

static int file_of(size_t bytes)
{
    int fd = memfd_create("outside", 0);

    CHECK(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    return fd;
}

/* Memory and a semaphore that another API has made. */
static void test_external(void)
{
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC memory_desc = {
        .type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .size = 8192};
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC buffer_desc = {.offset = 4096, .size = 4096};
    CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC semaphore_desc = {
        .type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD};
    CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS signal = {0};
    CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS wait = {0};
    CUexternalMemory memory;
    CUexternalSemaphore semaphore;
    CUstream a, b;
    CUdeviceptr p;

    OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    memory_desc.handle.fd = file_of(8192);
    semaphore_desc.handle.fd = file_of(4096);
    OK(cuImportExternalMemory(&memory, &memory_desc));
    OK(cuImportExternalSemaphore(&semaphore, &semaphore_desc));
    OK(cuExternalMemoryGetMappedBuffer(&p, memory, &buffer_desc));
    unsigned *outside = mmap(NULL, 8192, PROT_READ, MAP_SHARED, memory_desc.handle.fd, 0);
    CHECK(outside != MAP_FAILED);
    for (unsigned i = 1; i < 20; i++) {
        wait.params.fence.value = signal.params.fence.value = i;
        OK(cuWaitExternalSemaphoresAsync(&semaphore, &wait, 1, b));
        OK(launch(test.add, b, p, 1, 1));
        OK(launch(test.fill, a, p, 1, i));
        OK(cuSignalExternalSemaphoresAsync(&semaphore, &signal, 1, a));
        OK(cuStreamSynchronize(b));
        CHECK(outside[1024] == 3 * i + 1);
    }
    OK(cuMemFree(p));
    CHECK(outside[1024] == 3 * 19 + 1);
    OK(cuDestroyExternalMemory(memory));
    OK(cuDestroyExternalSemaphore(semaphore));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuDestroyExternalSemaphore(semaphore));
    CHECK(munmap(outside, 8192) == 0);
}

/* Unmapped under work that is still to come: the last test, it leaves a fault. */
static void test_unmapped(void)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    CUmemAccessDesc open = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr p;

    prop.location.type = open.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    OK(cuMemAddressReserve(&p, CHUNK, 0, 0, 0));
    OK(cuMemCreate(&handle, CHUNK, &prop, 0));
    OK(cuMemMap(p, CHUNK, 0, handle, 0));
    OK(cuMemSetAccess(p, CHUNK, &open, 1));
    OK(launch(test.fill, NULL, p, 64, 7));
    OK(cuMemUnmap(p, CHUNK));
    (void)cuCtxSynchronize();
    CHECK(sim_violations() == 1);
}

int main(void)
{
    test_open(&test, 0);
    test_mapping();
    test_arrays();
    test_values();
    test_external();
    CHECK(sim_violations() == 0);
    CHECK(sim_bytes_in_use(0) == 0);
    test_unmapped();
    return 0;
}
