/* memory.c: device, pinned and managed memory: codes, sizes, attributes, who can read what. */
#include "sim_test.h"

#include <sys/wait.h>
#include <unistd.h>

static struct test test;

static void test_codes(void)
{
    CUdeviceptr p, m, base;
    size_t size, free_before, free_after, total;

    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(&p, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(NULL, 1));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&p, (size_t)1 << 50));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAllocManaged(&m, 0, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemFree(0));
    OK(cuMemGetInfo(&free_before, &total));
    CHECK(free_before <= total);
    OK(cuMemAlloc(&p, 1000));
    OK(cuMemGetInfo(&free_after, NULL));
    CHECK(free_before - free_after == (size_t)2 << 20);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(p + 512));
    OK(cuMemGetAddressRange(&base, &size, p + 999));
    CHECK(base == p && size == 1000);
    EXPECT(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange(&base, &size, p + 1000));
    OK(cuMemGetAddressRange(NULL, NULL, p + 1000));
    OK(cuMemFree(p));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(p));
    EXPECT(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange(&base, &size, p));
    OK(cuMemGetInfo(&free_after, NULL));
    CHECK(free_before == free_after);
    OK(cuMemAllocPitch(&p, &size, 700, 3, 4));
    CHECK(size == 1024);
    OK(cuMemFree(p));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAllocPitch(&p, &size, 700, 3, 3));
}

static int attribute(CUdeviceptr p, CUpointer_attribute which)
{
    int value = -1;

    OK(cuPointerGetAttribute(&value, which, p));
    return value;
}

static void test_attributes(void)
{
    CUdeviceptr native, pool, managed;
    CUcontext ctx;
    CUmemoryPool of, current;
    void *pinned;
    int local, type = 7, ordinal = 7;

    OK(cuMemAlloc(&native, 64));
    OK(cuMemAllocAsync(&pool, 64, NULL));
    OK(cuMemAllocManaged(&managed, 64, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemAllocHost(&pinned, 64));
    OK(cuPointerGetAttribute(&ctx, CU_POINTER_ATTRIBUTE_CONTEXT, native));
    CHECK(ctx == test.ctx);
    OK(cuPointerGetAttribute(&ctx, CU_POINTER_ATTRIBUTE_CONTEXT, pool));
    CHECK(!ctx);
    OK(cuDeviceGetMemPool(&current, 0));
    OK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, pool));
    CHECK(of == current);
    OK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, native));
    CHECK(!of);
    CHECK(attribute(native, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE) == 1);
    CHECK(attribute(pool, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE) == 0);
    CHECK(attribute(native, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE) == 1);
    CHECK(attribute(pool, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE) == 0);
    CHECK(attribute(native, CU_POINTER_ATTRIBUTE_MEMORY_TYPE) == CU_MEMORYTYPE_DEVICE);
    CHECK(attribute(pool + 63, CU_POINTER_ATTRIBUTE_MEMORY_TYPE) == CU_MEMORYTYPE_DEVICE);
    CHECK(attribute((uintptr_t)pinned, CU_POINTER_ATTRIBUTE_MEMORY_TYPE) == CU_MEMORYTYPE_HOST);
    CHECK(attribute(managed, CU_POINTER_ATTRIBUTE_IS_MANAGED) == 1);
    CHECK(attribute(native, CU_POINTER_ATTRIBUTE_IS_MANAGED) == 0);
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           cuPointerGetAttribute(&local, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)&local));
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void *data[] = {&type, &ordinal};
    OK(cuPointerGetAttributes(2, which, data, (uintptr_t)&local));
    CHECK(type == 0 && ordinal == -2);
    OK(cuMemFree(native));
    OK(cuMemFreeAsync(pool, NULL));
    OK(cuMemFree(managed));
    OK(cuMemFreeHost(pinned));
    OK(cuCtxSynchronize());
}

/* The host may not look into device memory, but into managed memory it may. */
static void test_host_access(void)
{
    CUdeviceptr p, m;
    int status;

    OK(cuMemAlloc(&p, 64));
    OK(cuMemAllocManaged(&m, 64, CU_MEM_ATTACH_GLOBAL));
    OK(launch(test.fill, NULL, m, 16, 5));
    OK(cuCtxSynchronize());
    CHECK(((unsigned *)(uintptr_t)m)[15] == 5);
    pid_t child = fork();
    if (child == 0) {
        fclose(stderr);
        (void)*(volatile unsigned *)(uintptr_t)p;
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(!WIFEXITED(status) || WEXITSTATUS(status) != 0);
    OK(cuMemFree(p));
    OK(cuMemFree(m));
}

/* Pageable memory is taken when the call is made, pinned memory when the copy runs. */
static void test_sources(void)
{
    CUstream stream;
    CUdeviceptr p;
    unsigned plain[16], *pinned, late = 0;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&p, 64));
    OK(cuMemAllocHost((void **)&pinned, 64));
    for (int i = 0; i < 64; i++) {
        plain[0] = 1;
        OK(cuMemcpyHtoDAsync(p, plain, 64, stream));
        plain[0] = 2;
        OK(cuStreamSynchronize(stream));
        CHECK(word_at(p) == 1);
        pinned[0] = 1;
        OK(cuMemcpyHtoDAsync(p, pinned, 64, stream));
        if (!getenv("SIM_SCHED")) /* with a worker thread this would be a race of the test's */
            pinned[0] = 2;
        OK(cuStreamSynchronize(stream));
        late += word_at(p) == 2;
        /* To pageable memory: the call returns when it is there. */
        OK(launch(test.fill, stream, p, 1, 40 + (unsigned)i));
        OK(cuMemcpyDtoHAsync(plain, p, 4, stream));
        CHECK(plain[0] == 40 + (unsigned)i);
    }
    CHECK(late > 0 || getenv("SIM_SCHED"));
    OK(cuMemFree(p));
    OK(cuMemFreeHost(pinned));
    OK(cuStreamDestroy(stream));
}

static void test_registered(void)
{
    static unsigned words[64];
    CUdeviceptr p;

    OK(cuMemHostRegister(words, sizeof(words), CU_MEMHOSTREGISTER_DEVICEMAP));
    EXPECT(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
           cuMemHostRegister(words + 8, 64, CU_MEMHOSTREGISTER_DEVICEMAP));
    OK(cuMemHostGetDevicePointer(&p, words, 0));
    OK(launch(test.fill, NULL, p, 64, 3));
    OK(cuMemHostUnregister(words)); /* waits */
    CHECK(words[63] == 3);
    EXPECT(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(words));
}

static void test_rows(void)
{
    unsigned from[6][4], to[6][4];
    CUdeviceptr p;
    size_t pitch;

    for (unsigned i = 0; i < 24; i++)
        from[i / 4][i % 4] = i;
    memset(to, 0, sizeof(to));
    OK(cuMemAllocPitch(&p, &pitch, sizeof(from[0]), 6, 4));
    CUDA_MEMCPY2D in = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = from,
                        .srcPitch = sizeof(from[0]),
                        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                        .dstDevice = p,
                        .dstPitch = pitch,
                        .WidthInBytes = sizeof(from[0]),
                        .Height = 6};
    OK(cuMemcpy2D(&in));
    CUDA_MEMCPY2D out = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                         .srcDevice = p,
                         .srcPitch = pitch,
                         .srcXInBytes = 4,
                         .srcY = 2,
                         .dstMemoryType = CU_MEMORYTYPE_HOST,
                         .dstHost = to,
                         .dstPitch = sizeof(to[0]),
                         .WidthInBytes = 8,
                         .Height = 3};
    OK(cuMemcpy2D(&out));
    CHECK(to[0][0] == 9 && to[0][1] == 10 && to[0][2] == 0 && to[2][1] == 18);
    OK(cuMemsetD2D32(p, pitch, 7, 2, 6));
    OK(cuCtxSynchronize());
    CHECK(word_at(p + 5 * pitch + 4) == 7 && word_at(p + 5 * pitch + 8) == 22);
    OK(cuMemFree(p));
}

/* Freed memory is spoilt, so that a stale read shows. */
static void test_poison(void)
{
    CUdeviceptr p, q;

    OK(cuMemAlloc(&p, 4096));
    OK(launch(test.fill, NULL, p, 4, 1));
    OK(cuMemFree(p));
    for (int i = 0; i < 64; i++) {
        OK(cuMemAlloc(&q, 4096));
        CHECK(q != p || word_at(q) == 0xdbdbdbdb);
        OK(cuMemFree(q));
    }
}

static void test_whole_card(void)
{
    size_t free_bytes, total;
    CUdeviceptr p, q;
    cuuint64_t keep = UINT64_MAX;
    CUmemoryPool pool;

    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    OK(cuMemAllocAsync(&q, (size_t)200 << 20, NULL));
    OK(cuMemFreeAsync(q, NULL));
    OK(cuCtxSynchronize());
    OK(cuMemGetInfo(&free_bytes, &total));
    CHECK(free_bytes <= total - ((size_t)200 << 20));
    /* More than is free, but not more than the pool would give back. */
    OK(cuMemAlloc(&p, total - ((size_t)100 << 20)));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&q, (size_t)120 << 20));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&q, (size_t)120 << 20, NULL));
    OK(cuMemFree(p));
    OK(cuMemAlloc(&q, (size_t)120 << 20));
    OK(cuMemFree(q));
}

int main(void)
{
    test_open(&test, 0);
    test_codes();
    test_attributes();
    test_host_access();
    test_sources();
    test_registered();
    test_rows();
    test_poison();
    test_whole_card();
    CHECK(sim_violations() == 0);
    CHECK(sim_bytes_in_use(0) == 0);
    return 0;
}
