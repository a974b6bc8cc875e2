/* pieces.c: memory that is mapped piece by piece, on the device or on the host, and moved. */
#include "sim_test.h"

#include <sys/wait.h>
#include <unistd.h>

#define PIECE ((size_t)2 << 20)
#define WORDS ((unsigned)(PIECE / sizeof(unsigned)))

static struct test test;

static const CUmemLocation device = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
static const CUmemLocation node = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = 0};
static const CUmemLocation host = {.type = CU_MEM_LOCATION_TYPE_HOST, .id = 0};

static CUresult create(CUmemGenericAllocationHandle *handle, CUmemLocation location, size_t bytes)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = location};

    return cuMemCreate(handle, bytes, &prop, 0);
}

static CUmemGenericAllocationHandle piece(CUmemLocation location)
{
    CUmemGenericAllocationHandle handle = 0;

    OK(create(&handle, location, PIECE));
    return handle;
}

static CUdeviceptr reserve(size_t bytes)
{
    CUdeviceptr p = 0;

    OK(cuMemAddressReserve(&p, bytes, 0, 0, 0));
    return p;
}

static CUresult open_to(CUmemLocation location, CUdeviceptr p, size_t bytes,
                        CUmemAccess_flags flags)
{
    const CUmemAccessDesc access = {.location = location, .flags = flags};

    return cuMemSetAccess(p, bytes, &access, 1);
}

static void map(CUdeviceptr p, CUmemGenericAllocationHandle handle)
{
    OK(cuMemMap(p, PIECE, 0, handle, 0));
    OK(open_to(device, p, PIECE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
}

static size_t free_bytes(void)
{
    size_t bytes = 0;

    OK(cuMemGetInfo(&bytes, NULL));
    return bytes;
}

/* Host memory: not of the card; the host reaches it where it is let in. */
static void test_host(void)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = node};
    CUmemGenericAllocationHandle handle;
    const size_t before = free_bytes();
    CUdeviceptr p = reserve(2 * PIECE);
    unsigned long long flags = 9;
    size_t unit = 0;

    OK(cuMemGetAllocationGranularity(&unit, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CHECK(unit == PIECE);
    EXPECT(CUDA_ERROR_INVALID_VALUE, create(&handle, node, PIECE + 4096));
    prop.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, PIECE, &prop, 0));
    OK(create(&handle, host, 2 * PIECE));
    CHECK(free_bytes() == before);
    OK(cuMemMap(p, 2 * PIECE, 0, handle, 0));
    OK(open_to(device, p, 2 * PIECE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    OK(cuMemGetAccess(&flags, &host, p));
    CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    OK(launch(test.fill, NULL, p, 2 * WORDS, 7));
    OK(cuCtxSynchronize());
    OK(open_to(host, p, 2 * PIECE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    unsigned *words = (unsigned *)(uintptr_t)p;
    CHECK(words[0] == 7 && words[2 * WORDS - 1] == 7);
    words[1] = 8;
    CHECK(word_at(p + 4) == 8);
    OK(cuMemUnmap(p, 2 * PIECE));
    OK(cuMemRelease(handle));
    OK(cuMemAddressFree(p, 2 * PIECE));
}

/* The same memory at two places, wholly and in part. */
static void test_twice(void)
{
    CUdeviceptr p = reserve(PIECE), q = reserve(2 * PIECE);
    CUmemGenericAllocationHandle handle, one = piece(node), again;

    map(p, one);
    map(q, one);
    OK(launch(test.fill, NULL, p, WORDS, 5));
    OK(cuCtxSynchronize());
    CHECK(word_at(q + PIECE - 4) == 5);
    OK(cuMemsetD32(q, 6, WORDS));
    OK(cuCtxSynchronize());
    CHECK(word_at(p) == 6);
    OK(cuMemUnmap(q, PIECE));
    OK(create(&handle, device, 2 * PIECE));
    OK(cuMemMap(q, PIECE, PIECE, handle, 0));
    OK(cuMemMap(q + PIECE, PIECE, 0, handle, 0));
    OK(open_to(device, q, 2 * PIECE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    OK(launch(test.fill, NULL, q, WORDS, 1));
    OK(cuCtxSynchronize());
    OK(cuMemUnmap(p, PIECE));
    OK(cuMemMap(p, PIECE, PIECE, handle, 0));
    OK(open_to(device, p, PIECE, CU_MEM_ACCESS_FLAGS_PROT_READ));
    CHECK(word_at(p) == 1 && word_at(q + PIECE) == 0);
    OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)p));
    CHECK(again == handle);
    OK(cuMemRelease(again));
    OK(cuMemRelease(handle));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemRelease(handle));
    OK(cuMemUnmap(p, PIECE));
    CHECK(word_at(q) == 1);
    OK(cuMemUnmap(q, 2 * PIECE));
    OK(cuMemRelease(one));
    OK(cuMemAddressFree(p, PIECE));
    OK(cuMemAddressFree(q, 2 * PIECE));
}

/* Kernels, copies and fills pass from one piece to the next. */
static void test_across(void)
{
    CUdeviceptr p = reserve(4 * PIECE), q;
    static unsigned words[4 * PIECE / sizeof(unsigned)];

    for (unsigned i = 0; i < 4; i++) {
        CUmemGenericAllocationHandle handle = piece(i % 2 ? node : device);
        map(p + i * PIECE, handle);
        OK(cuMemRelease(handle));
    }
    OK(launch(test.fill, NULL, p, 4 * WORDS, 7));
    OK(launch(test.add, NULL, p + PIECE / 2, 3 * WORDS, 1));
    OK(cuMemsetD32Async(p + 2 * PIECE - 64, 3, 32, NULL));
    OK(cuMemcpyDtoH(words, p, 4 * PIECE));
    CHECK(words[0] == 7 && words[WORDS] == 22 && words[2 * WORDS - 16] == 3);
    CHECK(words[2 * WORDS + 15] == 3 && words[2 * WORDS + 16] == 22 && words[4 * WORDS - 1] == 7);
    OK(cuMemAlloc(&q, PIECE));
    OK(cuMemcpyDtoD(q, p + 3 * PIECE / 2, PIECE));
    OK(cuMemcpyDtoD(p + 5 * PIECE / 2, q, PIECE));
    OK(cuCtxSynchronize());
    CHECK(word_at(p + 3 * PIECE - 32) == 3 && word_at(p + 3 * PIECE + 64) == 22);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoD(p + 7 * PIECE / 2, q, PIECE));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(p, PIECE + PIECE / 2));
    OK(cuMemUnmap(p + PIECE, PIECE));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoD(p + PIECE / 2, q, PIECE));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(words, p + PIECE, 4));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(p + PIECE / 2, 1, PIECE));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(p + PIECE, 1, 4));
    OK(cuMemUnmap(p, 4 * PIECE));
    OK(cuMemFree(q));
    OK(cuMemAddressFree(p, 4 * PIECE));
}

/* Without rights nothing is done; reading may be all there is a right to. */
static void test_rights(void)
{
    CUdeviceptr p = reserve(PIECE), other;
    CUmemGenericAllocationHandle handle = piece(device);
    unsigned word = 0, on = 1;

    OK(cuMemAlloc(&other, 4096));
    OK(cuMemMap(p, PIECE, 0, handle, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(&word, p, 4));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoD(p, other, 4));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(p, 1, 4));
    EXPECT(CUDA_ERROR_NOT_SUPPORTED,
           open_to(host, p, PIECE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)); /* not its own */
    EXPECT(CUDA_ERROR_NOT_SUPPORTED,
           cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
    OK(open_to(device, p, PIECE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    OK(cuMemsetD32(p, 1, 4));
    OK(cuMemcpyDtoH(&word, p, 4));
    CHECK(word == 1);
    OK(open_to(device, p, PIECE, CU_MEM_ACCESS_FLAGS_PROT_READ));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoD(p, other, 4));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD8Async(p, 1, 4, NULL));
    OK(cuMemcpyDtoD(other, p, 4));
    OK(cuCtxSynchronize());
    OK(cuMemUnmap(p, PIECE));
    OK(cuMemRelease(handle));
    OK(cuMemFree(other));
    OK(cuMemAddressFree(p, PIECE));
}

/* What is mapped or has a handle is of the card, once. */
static void test_room(void)
{
    const size_t before = free_bytes(), most = before / PIECE;
    CUmemGenericAllocationHandle handle, big;
    CUdeviceptr p = reserve(2 * PIECE);

    OK(create(&big, device, (most - 1) * PIECE));
    handle = piece(device);
    CHECK(free_bytes() < PIECE);
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, create(&big, device, PIECE));
    map(p, handle);
    map(p + PIECE, handle);
    OK(cuMemRelease(handle));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, create(&handle, device, PIECE));
    OK(cuMemUnmap(p, PIECE));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, create(&handle, device, PIECE));
    OK(create(&handle, node, PIECE));
    OK(cuMemRelease(handle));
    OK(cuMemUnmap(p + PIECE, PIECE));
    OK(create(&handle, device, PIECE));
    OK(cuMemRelease(handle));
    OK(cuMemRelease(big));
    CHECK(free_bytes() == before);
    OK(cuMemAddressFree(p, 2 * PIECE));
}

/* As it is meant to be: idle, copied through a second mapping, mapped anew, used again. */
static void test_moved(void)
{
    CUmemGenericAllocationHandle on_device = piece(device), on_host = piece(node);
    CUdeviceptr p = reserve(PIECE), from = reserve(PIECE), to = reserve(PIECE);
    CUstream stream;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    map(p, on_device);
    map(from, on_device);
    map(to, on_host);
    for (unsigned i = 0; i < 10; i++) {
        CUdeviceptr swap = from;
        OK(launch(test.fill, stream, p, WORDS, i));
        OK(cuCtxSynchronize());
        OK(cuMemUnmap(p, PIECE));
        map(p, i % 2 ? on_device : on_host);
        OK(cuMemcpyAsync(to, from, PIECE, stream));
        OK(launch(test.add, stream, p, WORDS, 1));
        OK(cuStreamSynchronize(stream));
        CHECK(word_at(p + PIECE - 4) == 3 * i + 1);
        from = to;
        to = swap;
    }
    OK(cuMemUnmap(p, PIECE));
    OK(cuMemUnmap(from, PIECE));
    OK(cuMemUnmap(to, PIECE));
    OK(cuMemRelease(on_device));
    OK(cuMemRelease(on_host));
    OK(cuMemAddressFree(p, PIECE));
    OK(cuMemAddressFree(from, PIECE));
    OK(cuMemAddressFree(to, PIECE));
    OK(cuStreamDestroy(stream));
}

static void check_same(CUdeviceptr a, CUdeviceptr b, size_t bytes)
{
    unsigned char *of_a = malloc(bytes), *of_b = malloc(bytes);

    CHECK(of_a && of_b);
    OK(cuMemcpyDtoH(of_a, a, bytes));
    OK(cuMemcpyDtoH(of_b, b, bytes));
    CHECK(memcmp(of_a, of_b, bytes) == 0);
    free(of_a);
    free(of_b);
}

/* Pages that nobody has written are copied as others are, to and from memory of any kind, also
 * where something else was before. */
static void test_little_written(void)
{
    CUdeviceptr from = reserve(2 * PIECE), to = reserve(PIECE), blocks[2];
    CUmemGenericAllocationHandle pieces[] = {piece(device), piece(node), piece(device)};

    map(from, pieces[0]);
    map(from + PIECE, pieces[1]);
    map(to, pieces[2]);
    for (unsigned i = 0; i < 2; i++) {
        OK(cuMemAlloc(&blocks[i], 2 * PIECE));
        OK(launch(test.fill, NULL, blocks[i], 2 * WORDS, 7 + i));
    }
    OK(launch(test.fill, NULL, from + 80000, 3000, 3));
    OK(launch(test.fill, NULL, from + PIECE - 8, 4, 9));
    OK(launch(test.fill, NULL, to, WORDS, 5));
    OK(cuMemcpyDtoD(blocks[0], from, 2 * PIECE));
    check_same(blocks[0], from, 2 * PIECE);
    unsigned before = word_at(blocks[1]), behind = word_at(blocks[1] + PIECE + 70004);
    OK(cuMemcpyDtoD(blocks[1] + 4, from + 12, PIECE + 70000));
    check_same(blocks[1] + 4, from + 12, PIECE + 70000);
    CHECK(word_at(blocks[1]) == before && word_at(blocks[1] + PIECE + 70004) == behind);
    OK(cuMemcpyDtoD(to, from + PIECE / 2, PIECE));
    check_same(to, from + PIECE / 2, PIECE);
    OK(cuMemcpyDtoD(from, blocks[0], 2 * PIECE));
    check_same(blocks[0], from, 2 * PIECE);
    OK(cuMemUnmap(from, 2 * PIECE));
    OK(cuMemUnmap(to, PIECE));
    for (unsigned i = 0; i < 3; i++)
        OK(cuMemRelease(pieces[i]));
    OK(cuMemAddressFree(from, 2 * PIECE));
    OK(cuMemAddressFree(to, PIECE));
    for (unsigned i = 0; i < 2; i++)
        OK(cuMemFree(blocks[i]));
}

/* ---- what is wrong, each in a process of its own, which it leaves with a fault ---- */

static void end_with(CUresult expected)
{
    CHECK(cuCtxSynchronize() == expected);
    CHECK(sim_violations() > 0);
}

/* Still to come when the piece is moved. */
static void moved_too_early(void)
{
    CUdeviceptr p = reserve(PIECE);

    map(p, piece(device));
    OK(launch(test.fill, NULL, p, WORDS, 7));
    OK(cuMemUnmap(p, PIECE));
    map(p, piece(node));
    (void)cuCtxSynchronize();
    CHECK(sim_violations() == 1);
}

static unsigned waits_left = 3;

/* Kernel linger(p): under way for some time, and uses the word all along. */
static void kernel_linger(const struct sim_kernel_call *call)
{
    unsigned *word = sim_kernel_access(*(CUdeviceptr *)call->args[0], sizeof(*word), true);

    if (word && waits_left && waits_left--)
        sim_kernel_again();
}

static void moved_under_a_kernel(void)
{
    static const size_t sizes[] = {8};
    CUdeviceptr p = reserve(PIECE);
    void *args[] = {&p};
    CUfunction linger;

    sim_register_kernel("linger", kernel_linger, 1, sizes);
    OK(cuModuleGetFunction(&linger, test.module, "linger"));
    map(p, piece(device));
    OK(cuLaunchKernel(linger, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
    OK(cuMemUnmap(p, PIECE));
    (void)cuCtxSynchronize();
    CHECK(sim_violations() > 0);
}

static void used_without_mapping(void)
{
    CUdeviceptr p = reserve(2 * PIECE);

    map(p, piece(device));
    OK(launch(test.fill, NULL, p, 2 * WORDS, 7));
    end_with(CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK(strstr(sim_last_violation(), "a device address without memory"));
}

static void used_after_unmapping(void)
{
    CUdeviceptr p = reserve(PIECE);

    map(p, piece(device));
    OK(cuMemUnmap(p, PIECE));
    OK(launch(test.fill, NULL, p, WORDS, 7));
    end_with(CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void used_without_rights(void)
{
    CUdeviceptr p = reserve(2 * PIECE);

    map(p, piece(device));
    OK(cuMemMap(p + PIECE, PIECE, 0, piece(node), 0));
    OK(launch(test.fill, NULL, p, 2 * WORDS, 7));
    end_with(CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK(strstr(sim_last_violation(), "mapped memory without access"));
}

static void written_without_rights(void)
{
    CUdeviceptr p = reserve(PIECE);

    map(p, piece(device));
    OK(open_to(device, p, PIECE, CU_MEM_ACCESS_FLAGS_PROT_READ));
    OK(launch(test.fill, NULL, p, WORDS, 7));
    end_with(CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* The rights go while the copy is still to come. */
static void copied_without_rights(void)
{
    CUdeviceptr p = reserve(PIECE), q;
    CUstream stream;
    CUresult result;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&q, 4096));
    map(p, piece(device));
    OK(cuMemcpyAsync(q, p, 4096, stream));
    OK(open_to(device, p, PIECE, CU_MEM_ACCESS_FLAGS_PROT_NONE));
    result = cuCtxSynchronize();
    CHECK(result == (sim_violations() ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS));
}

static void in_child(void (*what)(void))
{
    int status;
    pid_t child = fork();

    if (!child) {
        test_open(&test, 0);
        what();
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
    in_child(moved_too_early);
    in_child(moved_under_a_kernel);
    in_child(used_without_mapping);
    in_child(used_after_unmapping);
    in_child(used_without_rights);
    in_child(written_without_rights);
    in_child(copied_without_rights);
    test_open(&test, 0);
    test_host();
    test_twice();
    test_across();
    test_rights();
    test_room();
    test_moved();
    test_little_written();
    CHECK(sim_violations() == 0);
    return 0;
}
