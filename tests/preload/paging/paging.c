/* Blocks that lie on the device or the host, piece by piece: what the program is told of them, and
 * what is in them. It has 32 MiB in use at a time, so with ALLOGRAFT_LIMIT=12MiB most is elsewhere.
 *
 *     paging blocks      every question about every block, and its bytes by kernels, copies, fills
 *     paging passes N    N passes over all blocks, which write each in turn, or hidden ones
 *     paging waits       copies and fills that wait for other work
 *     paging waits-in-context
 *                        the same in a context that says so of all memory
 *     paging captured    copies and fills without a stream in captures, and frees, of a block whose
 *                        copies wait and of one whose do not
 *     paging threads     four threads with blocks of their own
 *     paging turns-of-threads
 *                        four threads that use four blocks of 16 MiB each in turn
 *     paging places-of-threads
 *                        four threads that say where the same blocks are to lie
 *     paging own-mapping the program maps memory of its own, before a block comes
 *     paging questions   one thread asks about blocks that move for another one
 *     paging small-questions
 *                        one thread sets SYNC_MEMOPS of a small block that moves
 *     paging frees       sizes that differ, freed and allocated in turns
 *     paging place       where it is to lie, as the control API is told; two turns of it
 *     paging room        the same, without room on the device
 *     paging hold        passes, then nothing until its input ends
 *     paging reset       a primary context that ends with all of it
 *     paging exit        freed blocks when the process ends: the context is given back after the
 *                        driver has ended, as the CUDA runtime does
 *     paging end         the process ends while a piece moves in another thread
 *     paging turns N K [NAMES]
 *                        N passes over sixteen blocks of 16 MiB, K kernels on each in turn, or in
 *                        the order of NAMES, which are letters from a to p
 *     paging slow N      the same with a kernel on each that takes its time
 *     paging slow-beside-other N
 *                        the same while another thread launches kernels that take no time
 *     paging slow-on-new-streams N
 *                        the same on a stream for each of them
 *     paging edges N K   N passes over those blocks: K kernels write two pages of each, and one
 *                        writes all of it
 *     paging within-twice N K
 *                        the same with kernels that are given two addresses in each
 *     paging parts N K   N passes over sixteen parts of 16 MiB, K kernels on each in turn, of which
 *                        the first one of each of four blocks comes first
 *     paging product N   turns with a kernel that writes what it makes to each, N times, and then
 *                        with one that takes its time over each as a factor, N times
 *     paging queue       kernels that are under way for long when others use what lies elsewhere
 *     paging pool N K    N passes over the parts of a block of a GiB, of 16 MiB each, K kernels on
 *                        each in turn
 *     paging unfinished  a block is used while work on others waits for the host
 *     paging kept        a block is to stay where it is while a launch waits to bring it
 *     paging refused     a stream that has nothing to do is asked after a launch that is refused
 *     paging small N K   N passes over 128 blocks of 2 MiB, K kernels on each in turn
 *     paging graphs N K  the same by launches of graphs of K kernels, the first block's of which is
 *                        updated to be the last one's, and back
 *     paging whole N K [BYTES [DEEP]]
 *                        N launches of a graph of one kernel on each of eight blocks, and then
 *                        of K, with so much shared memory, on each of eight more; so deep within
 *                        other graphs
 *     paging filled N    N launches of a kernel on a block that a node of a graph fills
 *     paging filled-by-capture N
 *                        the same, with nodes that a capture made, by N launches of the graph
 *     paging ordered N   N times cudaMallocAsync, or from the device's pool, and cudaFreeAsync on
 *                        two streams; 0: what those calls wait for
 *     paging far         most of 128 MiB is not in use
 *     paging ahead       most is, until memory of the host was made; then none, until that is back
 *     paging soon        the process ends as that begins
 *     paging fills N K   N passes over sixteen blocks of 4 MiB, K fills of each in turn
 *     paging within N K  the same by copies of a half of each block to the other one
 *     paging across N K  the same by copies from the host to each block, and back
 *     paging sites N K H N passes over sixteen blocks of 16 MiB that three places allocate: of all,
 *                        which are freed at once; of those but the first H, one kernel on each in a
 *                        pass; and of the first H, K kernels on each */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "interpose/api/allograft.h"
#include "tests/common/device.h"
#include "tests/common/parts.h"
#include "tests/common/say.h"

#define MIB       ((size_t)1 << 20)
#define BLOCKS    8u
#define BYTES     (4 * MIB)
#define WORDS     ((uint32_t)(BYTES / sizeof(uint32_t)))
#define N_THREADS 4

#define TURN_BLOCKS 16u
#define TURN_BYTES  (16 * MIB)
#define IN_TURN     "abcdefghijklmnop"
#define PIECE       (2 * MIB)
#define PAGE_WORDS  1024u

static void say_range(CUdeviceptr start, CUdeviceptr p)
{
    CUdeviceptr base = 1;
    size_t size = 1;
    CUresult code = cuMemGetAddressRange(&base, &size, p);

    say("range: %d size %zu base %s", (int)code, size, base == start ? "right" : "other");
}

static void say_attributes(CUcontext context, CUdeviceptr start, CUdeviceptr p)
{
    unsigned type = 99, managed = 99;
    int device = 99;
    CUcontext owner = NULL;
    void *host = &host;
    CUdeviceptr base = 0;
    size_t size = 0;
    CUmemoryPool pool = (CUmemoryPool)1;
    CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                   CU_POINTER_ATTRIBUTE_HOST_POINTER,
                                   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void *data[] = {&type, &host, &device};

    SAY_CODE("type", cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
    SAY_CODE("host pointer", cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, p));
    SAY_CODE("device", cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p));
    SAY_CODE("managed", cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p));
    SAY_CODE("context", cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, p));
    SAY_CODE("base", cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, p));
    SAY_CODE("size", cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, p));
    SAY_CODE("pool", cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p));
    say("%u, %d, %u, %d, %d %zu, %d", type, device, managed, owner == context, base == start, size,
        pool == NULL);
    type = 99, device = 99, host = &host;
    SAY_CODE("together", cuPointerGetAttributes(3, asked, data, p));
    say("%u, %d, %d", type, device, host == NULL);
}

/* It is not the program's to unmap, nor to open or close, and has no handle. */
static void say_not_mapped(CUdeviceptr p)
{
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle handle;
    /* NOLINTNEXTLINE(performance-no-int-to-ptr): an address of the device */
    void *inside = (void *)(uintptr_t)(p + BYTES - MIB);

    SAY_CODE("handle", cuMemRetainAllocationHandle(&handle, inside));
    SAY_CODE("closed", cuMemSetAccess(p, BYTES, &access, 1));
    SAY_CODE("unmapped", cuMemUnmap(p, BYTES));
    SAY_CODE("unmapped inside", cuMemUnmap(p + BYTES / 2, BYTES / 2));
}

/* Bytes by copies and fills that reach over pieces. */
static uint32_t wrong_copies(CUdeviceptr a, CUdeviceptr b)
{
    uint32_t *words = malloc(BYTES), wrong = 0;

    for (uint32_t i = 0; i < WORDS; i++)
        words[i] = i * 3;
    OK(cuMemcpyHtoD(a + 4, words, BYTES - 4));
    OK(cuMemcpyDtoD(b + 8, a + 4, BYTES - 8));
    OK(cuMemsetD32(b, 7, 2));
    OK(cuMemsetD32Async(b + BYTES / 2 - 64, 9, 32, NULL));
    OK(cuMemcpyDtoH(words, b, BYTES));
    for (uint32_t i = 2; i < WORDS; i++) {
        uint32_t at = WORDS / 2 - 16;

        wrong += words[i] != (i >= at && i < at + 32 ? 9 : (i - 2) * 3);
    }
    wrong += words[0] != 7 || words[1] != 7;
    free(words);
    return wrong;
}

/* What the driver refuses once may be an allocation that fails; it refuses a few times at most. */
static void allocate(CUdeviceptr *p, size_t bytes)
{
    for (unsigned tries = 8; tries && cuMemAlloc(p, bytes) != CUDA_SUCCESS; tries--)
        CHECK(tries > 1);
}

static void allocate_all(CUdeviceptr *p)
{
    for (unsigned i = 0; i < BLOCKS; i++)
        allocate(&p[i], BYTES);
}

static void free_all(const CUdeviceptr *p)
{
    for (unsigned i = 0; i < BLOCKS; i++)
        OK(cuMemFree(p[i]));
}

static void blocks(CUcontext context)
{
    CUdeviceptr p[BLOCKS];
    uint32_t wrong = 0;

    allocate_all(p);
    for (unsigned i = 0; i < BLOCKS; i++) {
        launch_fill(NULL, p[i], WORDS, i);
        say_range(p[i], p[i]);
        say_range(p[i], p[i] + BYTES / 2 + 12345);
        say_range(p[i], p[i] + BYTES - 1);
        say_attributes(context, p[i], p[i] + BYTES - MIB);
        SAY_CODE("free inside", cuMemFree(p[i] + 2 * MIB));
        say_not_mapped(p[i]);
    }
    for (unsigned i = 0; i < BLOCKS; i++)
        wrong += count_wrong(p[i], WORDS, i);
    say("wrong: %u", wrong);
    say("wrong after copies: %u", wrong_copies(p[0], p[BLOCKS - 1]));
    say("wrong after copies: %u", wrong_copies(p[BLOCKS - 1], p[1]));
    free_all(p);
    SAY_CODE("free again", cuMemFree(p[0]));
}

static void add_one(const struct sim_kernel_call *call)
{
    CUdeviceptr p = *(CUdeviceptr *)call->args[0];
    uint32_t n = *(uint32_t *)call->args[1];
    uint32_t *words = sim_kernel_access(p, n * sizeof(uint32_t), true);

    for (uint32_t i = 0; words && i < n; i++)
        words[i]++;
}

/* The address stands in memory. */
static void add_hidden(const struct sim_kernel_call *call)
{
    CUdeviceptr table = *(CUdeviceptr *)call->args[0];
    const CUdeviceptr *p = sim_kernel_access(table, sizeof(*p), false);
    uint32_t *words = p ? sim_kernel_access(*p, 4096, true) : NULL;

    for (uint32_t i = 0; words && i < 1024; i++)
        words[i]++;
}

static void passes(unsigned n)
{
    CUdeviceptr p[BLOCKS], table;
    uint32_t words = WORDS, wrong = 0;
    CUmodule module;
    CUfunction add, hidden;
    void *args[] = {NULL, &words};

    sim_register_kernel("add_one", add_one, 2, (size_t[]){sizeof(CUdeviceptr), sizeof(uint32_t)});
    sim_register_kernel("add_hidden", add_hidden, 1, (size_t[]){sizeof(CUdeviceptr)});
    OK(cuModuleLoadData(&module, "paging"));
    OK(cuModuleGetFunction(&add, module, "add_one"));
    OK(cuModuleGetFunction(&hidden, module, "add_hidden"));
    allocate_all(p);
    allocate(&table, sizeof(p));
    OK(cuMemcpyHtoD(table, p, sizeof(p)));
    for (unsigned i = 0; i < BLOCKS; i++)
        launch_fill(NULL, p[i], WORDS, i);
    for (unsigned pass = 0; pass < n; pass++) {
        for (unsigned i = 0; i < BLOCKS; i++) {
            CUdeviceptr entry = table + (BLOCKS - 1 - i) * sizeof(p[0]);

            args[0] = &p[i];
            for (unsigned use = 0; use < 3; use++)
                OK(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
            args[0] = &entry;
            OK(cuLaunchKernel(hidden, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
        }
    }
    for (unsigned i = 0; i < BLOCKS; i++)
        wrong += count_wrong(p[i], 1024, i + 4 * n) +
                 count_wrong(p[i] + 4096, WORDS - 1024, i + 1024 + 3 * n);
    say("wrong: %u", wrong);
    free_all(p);
    OK(cuMemFree(table));
}

/* Bytes that nothing orders before the stream's work are there once the call is back. */
static void say_seen(const char *what, CUstream stream, CUdeviceptr p, uint32_t value)
{
    uint32_t *seen;

    OK(cuMemAllocHost((void **)&seen, sizeof(*seen)));
    OK(cuMemcpyDtoHAsync(seen, p, sizeof(*seen), stream));
    OK(cuStreamSynchronize(stream));
    say("%s: %s", what, *seen == value ? "there" : "late");
    OK(cuMemFreeHost(seen));
}

/* Calls that do not wait for their last bytes, unless the memory is such that they are to. */
static void arrivals(CUdeviceptr p)
{
    uint32_t host[4] = {0};
    CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = host,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = p,
                          .WidthInBytes = sizeof(host),
                          .Height = 1};
    CUdeviceptr plain = (CUdeviceptr)(uintptr_t)host;
    unsigned on = 7;
    CUstream other;

    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuPointerGetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
    say("it is set: %u", on & 1);
    for (uint32_t i = 0; i < 10; i++) {
        host[0] = 4 * i + 1;
        OK(cuMemcpyHtoD(p, host, sizeof(host)));
        say_seen("a copy from the host", other, p, 4 * i + 1);
        host[0] = 4 * i + 2;
        OK(cuMemcpy(p, plain, sizeof(host)));
        say_seen("one of unified addresses", other, p, 4 * i + 2);
        host[0] = 4 * i + 3;
        OK(cuMemcpy2D(&rows));
        say_seen("one of rows", other, p, 4 * i + 3);
        OK(cuMemsetD32(p, 4 * i, 4));
        say_seen("a fill", other, p, 4 * i);
    }
    OK(cuStreamDestroy(other));
}

/* --- places --- */

static struct {
    _Atomic uint32_t may_end; /* the kernel */
    atomic_bool is_asked;     /* about it, so that it need not wait for longer */
} beside;

/* Who waited for the kernel is not to hang. */
static void *end_once_asked(void *unused)
{
    for (unsigned i = 0; i < 10000 && !atomic_load(&beside.is_asked); i++)
        (void)usleep(1000);
    atomic_store(&beside.may_end, 1);
    return unused;
}

static void say_place(const char *what, CUdeviceptr p, size_t bytes, allograft_place place)
{
    /* NOLINTNEXTLINE(performance-no-int-to-ptr): an address of the device */
    SAY_CODE(what, allograft_memory_place((const void *)(uintptr_t)p, bytes, place));
}

static void say_refusals(CUdeviceptr p)
{
    unsigned on = 1;
    CUdeviceptr small;

    OK(cuMemAlloc(&small, 4096));
    say_place("small", small, 4096, ALLOGRAFT_PLACE_HOST);
    say_place("nobody's", 4096, 4096, ALLOGRAFT_PLACE_HOST);
    say_place("nothing", p, 0, ALLOGRAFT_PLACE_HOST);
    say_place("nowhere", p, 1, (allograft_place)3);
    say_place("too much", p + 1, BYTES, ALLOGRAFT_PLACE_HOST);
    OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
    say_place("held", p, BYTES, ALLOGRAFT_PLACE_HOST);
    OK(cuMemFree(small));
}

static void use(CUdeviceptr p)
{
    static uint32_t value;

    for (unsigned i = 0; i < 4; i++) {
        launch_fill(NULL, p, WORDS, ++value);
        say("wrong: %u", count_wrong(p, WORDS, value));
    }
}

/* While a kernel waits for the host nothing moves: after it, before a launch. */
static void place_beside_work(CUdeviceptr p, CUdeviceptr other)
{
    CUstream stream;
    pthread_t ends;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    launch_spin(stream, &beside.may_end);
    OK(pthread_create(&ends, NULL, end_once_asked, NULL));
    say_place("beside work", p, BYTES, ALLOGRAFT_PLACE_HOST);
    say("under way %d", cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
    atomic_store(&beside.is_asked, true);
    OK(pthread_join(ends, NULL));
    (void)usleep(300000); /* nor is it tried again at once (policy/paging/rest.h) */
    OK(cuStreamSynchronize(stream));
    use(other);
    OK(cuStreamDestroy(stream));
}

#define ROW_PITCH 1024u

/* Four rows of 1000 bytes, by each call that copies such within the device. */
static void copy_rows(CUdeviceptr to, CUdeviceptr from)
{
    CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = from,
                          .srcPitch = 1000,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = to,
                          .dstPitch = ROW_PITCH,
                          .WidthInBytes = 1000,
                          .Height = 4};
    CUDA_MEMCPY3D box = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                         .srcDevice = from,
                         .srcPitch = 1000,
                         .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                         .dstDevice = to + 8 * ROW_PITCH,
                         .dstPitch = ROW_PITCH,
                         .WidthInBytes = 1000,
                         .Height = 4,
                         .Depth = 1};

    OK(cuMemcpy2D(&rows));
    rows.dstDevice += 4 * ROW_PITCH;
    OK(cuMemcpy2DUnaligned(&rows));
    OK(cuMemcpy3D(&box));
}

static void say_rows(CUdeviceptr p, uint32_t value)
{
    uint32_t wrong = 0;

    for (unsigned row = 0; row < 3 * 4; row++)
        wrong += count_wrong(p + row * ROW_PITCH, 1, value);
    say("wrong rows: %u", wrong);
}

/* Copies and fills on the default stream do not wait for the kernel before them, wherever the
 * memory lies. */
static void returns_at_once(void)
{
    CUdeviceptr p[BLOCKS];
    CUstream stream;
    pthread_t ends;

    allocate_all(p);
    OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    launch_spin(stream, &beside.may_end);
    OK(pthread_create(&ends, NULL, end_once_asked, NULL));
    for (unsigned i = 0; i < BLOCKS; i++) {
        OK(cuMemsetD32(p[i], i, 1000));
        OK(cuMemsetD2D32(p[i] + MIB, 2048, i, 100, 10));
        OK(cuMemcpyDtoD(p[i] + 2 * MIB, p[(i + 1) % BLOCKS], 4096));
        OK(cuMemcpy(p[i] + 3 * MIB, p[i], 4000));
        copy_rows(p[i] + 3 * MIB + 4096, p[i] + 3 * MIB);
    }
    say("before its end: %u", !atomic_load(&beside.may_end));
    atomic_store(&beside.is_asked, true);
    OK(pthread_join(ends, NULL));
    for (unsigned i = 0; i < BLOCKS; i++) {
        say("wrong: %u", count_wrong(p[i], 1000, i));
        say_rows(p[i] + 3 * MIB + 4096, i);
    }
    OK(cuStreamDestroy(stream));
    free_all(p);
}

static void place(void)
{
    CUdeviceptr p[BLOCKS];

    allocate_all(p);
    use(p[0]);
    say_place("host", p[0], BYTES, ALLOGRAFT_PLACE_HOST);
    use(p[0]);
    say_place("device", p[0], BYTES, ALLOGRAFT_PLACE_DEVICE);
    say_place("a byte", p[1] + 2 * MIB, 1, ALLOGRAFT_PLACE_HOST);
    use(p[1]);
    say_place("auto", p[1], BYTES, ALLOGRAFT_PLACE_AUTO);
    place_beside_work(p[2], p[3]);
    use(p[2]);
    free_all(p);
    allocate_all(p); /* nobody has said where these are to be */
    for (unsigned i = 0; i < BLOCKS; i++)
        use(p[i]);
    say_refusals(p[4]);
    free_all(p);
}

/* What is placed on the device comes with a launch, and stays, whatever else is used. */
static void place_without_room(void)
{
    CUdeviceptr p[BLOCKS];

    allocate_all(p);
    say_place("device", p[BLOCKS - 1], BYTES, ALLOGRAFT_PLACE_DEVICE);
    use(p[BLOCKS - 1]);
    for (unsigned i = 0; i < BLOCKS; i++)
        use(p[i]);
    free_all(p);
}

/* Copies and fills that wait, since one of the two says so, and what was submitted before. */
static void waits(void)
{
    CUdeviceptr p[BLOCKS], q;
    CUstream stream;
    unsigned on = 1;

    allocate_all(p);
    allocate(&q, 4096);
    OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, q));
    OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p[BLOCKS - 1]));
    for (unsigned i = 0; i < BLOCKS; i++) {
        launch_fill(stream, p[i], WORDS, i);
        OK(cuMemcpyDtoD(p[i], q, 4096));
        SAY_CODE("after a copy", cuStreamQuery(stream));
    }
    launch_fill(stream, p[0], WORDS, 7);
    OK(cuMemsetD32(p[BLOCKS - 1], 7, 1000));
    SAY_CODE("after a fill", cuStreamQuery(stream));
    arrivals(p[BLOCKS - 1]);
    OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p[0]));
    launch_fill(stream, p[0], WORDS, 7);
    OK(cuMemsetD32(p[0], 7, 1000));
    SAY_CODE("after one on the device", cuStreamQuery(stream));
    arrivals(p[0]);
    on = 0;
    SAY_CODE("not any more", cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p[0]));
    free_all(p);
}

/* The same in a context that says so of all memory. */
static void waits_in_context(void)
{
    CUdeviceptr p[BLOCKS];
    CUstream stream;

    OK(cuCtxSetFlags(CU_CTX_SYNC_MEMOPS));
    allocate_all(p);
    OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    for (unsigned i = 0; i < BLOCKS; i++) {
        launch_fill(stream, p[i], WORDS, i);
        OK(cuMemsetD32(p[i], 7, 1000));
        SAY_CODE("after a fill", cuStreamQuery(stream));
        launch_fill(stream, p[i], WORDS, i);
        OK(cuMemcpyDtoD(p[i], p[(i + 1) % BLOCKS], 4096));
        SAY_CODE("after a copy", cuStreamQuery(stream));
    }
    arrivals(p[0]);
    arrivals(p[BLOCKS - 1]);
    free_all(p);
}

static unsigned long long buffer_of(CUdeviceptr p)
{
    unsigned long long id = 0;

    (void)cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, p);
    return id;
}

/* A free that is refused changes nothing. */
static void free_in_capture(CUstreamCaptureMode mode, bool waits)
{
    unsigned long long buffer;
    CUdeviceptr p;
    CUstream stream;
    CUgraph graph = NULL;
    unsigned on = 1;

    allocate(&p, BYTES);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    if (waits)
        OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
    buffer = buffer_of(p);
    OK(cuStreamBeginCapture(stream, mode));
    SAY_CODE("free in a capture", cuMemFree(p));
    SAY_CODE("its end", cuStreamEndCapture(stream, &graph));
    say("the same buffer: %s", buffer_of(p) == buffer ? "yes" : "no");
    SAY_CODE("free again", cuMemFree(p));
    if (graph)
        OK(cuGraphDestroy(graph));
    OK(cuStreamDestroy(stream));
}

CUresult cuMemsetD32_v2_ptds(CUdeviceptr p, unsigned value, size_t n);
CUresult cuMemcpyDtoD_v2_ptds(CUdeviceptr to, CUdeviceptr from, size_t bytes);

/* What waits for a stream is none that its capture could record. */
static void wait_in_capture(CUdeviceptr p, CUdeviceptr q)
{
    CUgraph graph = NULL;

    for (unsigned fills = 0; fills < 2; fills++) {
        OK(cuStreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED));
        SAY_CODE("work that waits",
                 fills ? cuMemsetD32_v2_ptds(p, 7, 100) : cuMemcpyDtoD_v2_ptds(p, q, 100));
        SAY_CODE("its end", cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph));
        if (graph)
            OK(cuGraphDestroy(graph));
    }
}

/* Nor does the default stream take anything while one captures that it would wait for. */
static void copy_beside_capture(CUdeviceptr p)
{
    CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = p,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = p + MIB,
                          .WidthInBytes = 1000,
                          .Height = 1};
    CUgraph graph = NULL;
    CUstream stream;

    OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    SAY_CODE("rows beside a capture", cuMemcpy2D(&rows));
    SAY_CODE("its end", cuStreamEndCapture(stream, &graph));
    OK(cuStreamDestroy(stream));
}

static void captured(void)
{
    CUdeviceptr p[BLOCKS];

    allocate_all(p);
    copy_beside_capture(p[0]);
    wait_in_capture(p[0], p[BLOCKS - 1]);
    wait_in_capture(p[BLOCKS - 1], p[0]);
    for (unsigned mode = 0; mode < 3; mode++) {
        free_in_capture((CUstreamCaptureMode)mode, false);
        free_in_capture((CUstreamCaptureMode)mode, true);
    }
    free_all(p);
}

static CUcontext context;
static _Atomic uint32_t all_wrong;

static void *work(void *number)
{
    unsigned seed = (unsigned)(uintptr_t)number;
    CUdeviceptr p[BLOCKS / 2];
    CUstream stream;

    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; i < BLOCKS / 2; i++) {
        OK(cuMemAlloc(&p[i], BYTES / 2));
        launch_fill(stream, p[i], WORDS / 2, i + seed);
    }
    for (unsigned turn = 0; turn < 16; turn++) {
        unsigned i = (unsigned)rand_r(&seed) % (BLOCKS / 2);
        uint32_t value = turn * 1000 + seed % 1000;

        launch_fill(stream, p[i], WORDS / 2, value);
        OK(cuStreamSynchronize(stream));
        all_wrong += count_wrong(p[i], WORDS / 2, value);
    }
    for (unsigned i = 0; i < BLOCKS / 2; i++)
        OK(cuMemFree(p[i]));
    OK(cuStreamDestroy(stream));
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
    say("wrong: %u", (uint32_t)all_wrong);
}

static void frees(void)
{
    static const size_t sizes[] = {MIB, 3 * MIB + 5, 2 * MIB, 9 * MIB, 100, 5 * MIB - 1};
    CUdeviceptr p[BLOCKS] = {0};
    uint32_t wrong = 0;

    for (unsigned turn = 0; turn < 36; turn++) {
        unsigned i = turn % BLOCKS;
        uint32_t n = (uint32_t)(sizes[turn % 6] / sizeof(uint32_t));

        if (p[i])
            OK(cuMemFree(p[i]));
        allocate(&p[i], sizes[turn % 6]);
        launch_fill(NULL, p[i], n, turn);
        wrong += count_wrong(p[i], n, turn);
    }
    say("wrong: %u", wrong);
    free_all(p);
}

/* Writes the first word of every piece. */
static void touch(const struct sim_kernel_call *call)
{
    CUdeviceptr p = *(CUdeviceptr *)call->args[0];
    uint32_t *words = sim_kernel_touch(p, TURN_BYTES);

    for (size_t i = 0; words && i < TURN_BYTES / sizeof(*words); i += PIECE / sizeof(*words))
        words[i]++;
}

static void touch_first(const struct sim_kernel_call *call)
{
    uint32_t *words = sim_kernel_touch(*(CUdeviceptr *)call->args[0], PIECE);

    if (words)
        words[0]++;
}

/* A kernel that is given a block. */
static CUfunction function_of(const char *name, sim_kernel_fn kernel)
{
    CUmodule module;
    CUfunction function;

    sim_register_kernel(name, kernel, 1, (size_t[]){sizeof(CUdeviceptr)});
    OK(cuModuleLoadData(&module, "paging"));
    OK(cuModuleGetFunction(&function, module, name));
    return function;
}

static CUfunction touch_function(void)
{
    return function_of("touch", touch);
}

static void touch_shared(CUfunction function, CUdeviceptr p, unsigned k, CUstream stream,
                         unsigned shared_bytes)
{
    for (unsigned i = 0; i < k; i++)
        OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, shared_bytes, stream, (void *[]){&p}, NULL));
}

static void touch_often(CUfunction function, CUdeviceptr p, unsigned k, CUstream stream)
{
    touch_shared(function, p, k, stream, 0);
}

/* As kernel_fill does, of every piece the first page: what is moved is moved by pieces. */
static void fill_pages(const struct sim_kernel_call *call)
{
    uint32_t n = *(uint32_t *)call->args[1], value = *(uint32_t *)call->args[2];
    uint32_t *words = sim_kernel_touch(*(CUdeviceptr *)call->args[0], n * sizeof(*words));

    for (uint32_t i = 0; words && i < n; i += PIECE / sizeof(*words))
        for (uint32_t k = i; k < i + PAGE_WORDS; k++)
            words[k] = value + k;
}

static void launch_fill_pages(CUstream stream, CUdeviceptr p, size_t bytes, uint32_t value)
{
    static CUfunction function;
    uint32_t n = (uint32_t)(bytes / sizeof(uint32_t));
    CUmodule module;

    if (!function) {
        sim_register_kernel("fill_pages", fill_pages, 3, (size_t[]){sizeof(p), sizeof(n), 4});
        OK(cuModuleLoadData(&module, "paging"));
        OK(cuModuleGetFunction(&function, module, "fill_pages"));
    }
    OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, (void *[]){&p, &n, &value}, NULL));
}

/* The first word of each piece is for the caller. */
static uint32_t count_wrong_pages(CUdeviceptr p, size_t bytes, uint32_t value)
{
    uint32_t wrong = 0;

    for (size_t at = 0; at < bytes; at += PIECE)
        wrong += count_wrong(p + at + 4, PAGE_WORDS - 1, value + (uint32_t)(at / 4) + 1);
    return wrong;
}

static void begin_turns(CUdeviceptr *p)
{
    for (unsigned i = 0; i < TURN_BLOCKS; i++) {
        OK(cuMemAlloc(&p[i], TURN_BYTES));
        launch_fill_pages(NULL, p[i], TURN_BYTES, i);
    }
}

/* Each block's first word was written so often. */
static uint32_t end_turns(const CUdeviceptr *p, const unsigned *often)
{
    uint32_t wrong = 0;

    for (unsigned i = 0; i < TURN_BLOCKS; i++) {
        wrong += count_wrong(p[i], 1, i + often[i]) + count_wrong_pages(p[i], TURN_BYTES, i);
        wrong += count_wrong(p[i] + 14 * MIB, 1, i + often[i] + 14 * MIB / sizeof(uint32_t));
        OK(cuMemFree(p[i]));
    }
    return wrong;
}

/* As a product of matrices would on memory of the host: many times as long as that takes to cross
 * the bus, which here is what a copy takes on a busy machine. */
static void touch_slowly(const struct sim_kernel_call *call)
{
    sim_kernel_spend(10000000000);
    touch(call);
}

/* --- threads with default streams of their own --- */

static struct {
    CUcontext context;
    CUfunction function;
    CUdeviceptr block;
    atomic_uint asked, done;
    atomic_bool is_over;
} other;

static void *launch_when_asked(void *unused)
{
    OK(cuCtxSetCurrent(other.context));
    while (!atomic_load(&other.is_over)) {
        if (atomic_load(&other.asked) == atomic_load(&other.done)) {
            (void)sched_yield();
            continue;
        }
        touch_often(other.function, other.block, 1, CU_STREAM_PER_THREAD);
        OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
        atomic_fetch_add(&other.done, 1);
    }
    return unused;
}

static void let_other_launch(void)
{
    unsigned n = atomic_fetch_add(&other.asked, 1) + 1;

    while (atomic_load(&other.done) != n)
        (void)sched_yield();
}

/* After each kernel that takes its time another thread launches one that does not, on a stream of
 * the same name. */
static void slow_beside_other(unsigned n)
{
    CUdeviceptr p[TURN_BLOCKS];
    unsigned often[TURN_BLOCKS] = {0};
    CUfunction function = function_of("touch_slowly", touch_slowly);
    pthread_t thread;

    OK(cuCtxGetCurrent(&other.context));
    OK(cuMemAlloc(&other.block, 2 * MIB));
    other.function = function_of("touch_first", touch_first);
    begin_turns(p);
    OK(cuCtxSynchronize());
    OK(pthread_create(&thread, NULL, launch_when_asked, NULL));
    for (unsigned i = 0; i < n * TURN_BLOCKS; i++) {
        touch_often(function, p[i % TURN_BLOCKS], 1, CU_STREAM_PER_THREAD);
        let_other_launch();
        often[i % TURN_BLOCKS]++;
    }
    atomic_store(&other.is_over, true);
    OK(pthread_join(thread, NULL));
    OK(cuCtxSynchronize());
    say("wrong: %u", end_turns(p, often));
}

/* Each kernel is the last of its stream, whose name the next one may have. */
static void slow_on_new_streams(unsigned n)
{
    CUdeviceptr p[TURN_BLOCKS];
    unsigned often[TURN_BLOCKS] = {0};
    CUfunction function = function_of("touch_slowly", touch_slowly);
    CUstream stream;

    begin_turns(p);
    OK(cuCtxSynchronize());
    for (unsigned i = 0; i < n * TURN_BLOCKS; i++) {
        OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        touch_often(function, p[i % TURN_BLOCKS], 1, stream);
        OK(cuStreamDestroy(stream));
        often[i % TURN_BLOCKS]++;
    }
    OK(cuCtxSynchronize());
    say("wrong: %u", end_turns(p, often));
}

static void turns(CUfunction function, unsigned n, unsigned k, const char *names)
{
    CUdeviceptr p[TURN_BLOCKS];
    unsigned often[TURN_BLOCKS] = {0};

    begin_turns(p);
    for (unsigned pass = 0; pass < n; pass++) {
        for (const char *name = names; *name; name++) {
            unsigned i = (unsigned)(*name - 'a') % TURN_BLOCKS;

            touch_often(function, p[i], k, NULL);
            often[i] += k;
        }
        OK(cuCtxSynchronize()); /* what the pass took can be seen */
    }
    say("wrong: %u", end_turns(p, often));
}

static void *place_in_turns(void *blocks)
{
    const CUdeviceptr *p = blocks;

    OK(cuCtxSetCurrent(context));
    for (unsigned turn = 0; turn < 60; turn++)
        /* NOLINTNEXTLINE(performance-no-int-to-ptr): an address of the device */
        OK(allograft_memory_place((const void *)(uintptr_t)p[turn % BLOCKS], BYTES,
                                  (allograft_place)(turn % 3)));
    return NULL;
}

/* Where one says that a block is to lie another may say something else meanwhile. */
static void places_of_threads(void)
{
    CUdeviceptr p[BLOCKS];
    pthread_t thread[N_THREADS];
    uint32_t wrong = 0;

    OK(cuCtxGetCurrent(&context));
    allocate_all(p);
    for (unsigned i = 0; i < BLOCKS; i++)
        launch_fill(NULL, p[i], WORDS, i);
    for (unsigned i = 0; i < N_THREADS; i++)
        OK(pthread_create(&thread[i], NULL, place_in_turns, p));
    for (unsigned i = 0; i < N_THREADS; i++)
        OK(pthread_join(thread[i], NULL));
    for (unsigned i = 0; i < BLOCKS; i++)
        wrong += count_wrong(p[i], WORDS, i);
    say("wrong: %u", wrong);
    free_all(p);
}

/* --- questions while pieces move --- */

static struct {
    CUdeviceptr blocks[TURN_BLOCKS];
    atomic_bool is_over;
} asked;

/* The driver does not know the piece that is to be mapped. */
static void map_slowly(void)
{
    (void)usleep(1000);
}

static uint32_t wrong_answers(CUdeviceptr p)
{
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                        CU_POINTER_ATTRIBUTE_DEVICE_POINTER};
    CUdeviceptr pointer = 0;
    unsigned type = 0;
    void *data[] = {&type, &pointer};
    CUresult result = cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p);
    uint32_t wrong = result != CUDA_SUCCESS || type != CU_MEMORYTYPE_DEVICE;

    result = cuPointerGetAttributes(2, attributes, data, p);
    return wrong + (result != CUDA_SUCCESS || type != CU_MEMORYTYPE_DEVICE || pointer != p);
}

static void *ask_again_and_again(void *unused)
{
    OK(cuCtxSetCurrent(context));
    while (!atomic_load(&asked.is_over))
        for (unsigned i = 0; i < TURN_BLOCKS; i++)
            for (size_t at = 0; at < TURN_BYTES; at += 2 * MIB)
                all_wrong += wrong_answers(asked.blocks[i] + at);
    return unused;
}

/* What the program maps itself is no work, and no memory of cudaMalloc: pieces still move. */
static void map_own(void)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemAccessDesc access = {.location = properties.location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    unsigned often[TURN_BLOCKS] = {0};
    CUfunction function = touch_function();
    CUdeviceptr p[TURN_BLOCKS], own;

    begin_turns(p);
    OK(cuMemAddressReserve(&own, 2 * MIB, 0, 0, 0));
    OK(cuMemCreate(&handle, 2 * MIB, &properties, 0));
    OK(cuMemMap(own, 2 * MIB, 0, handle, 0));
    OK(cuMemSetAccess(own, 2 * MIB, &access, 1));
    launch_fill(NULL, own, 1000, 7);
    say("wrong: %u", count_wrong(own, 1000, 7));
    OK(cuMemUnmap(own, 2 * MIB));
    OK(cuMemAddressFree(own, 2 * MIB));
    OK(cuMemRelease(handle));
    often[TURN_BLOCKS - 1] = 8;
    touch_often(function, p[TURN_BLOCKS - 1], 8, NULL);
    say("wrong: %u", end_turns(p, often));
}

static void questions(void)
{
    unsigned often[TURN_BLOCKS] = {0};
    CUfunction function = touch_function();
    pthread_t asks;

    sim_inside("cuMemMap", false, map_slowly); /* before any thread is started */
    OK(cuCtxGetCurrent(&context));
    begin_turns(asked.blocks);
    OK(cuCtxSynchronize());
    OK(pthread_create(&asks, NULL, ask_again_and_again, NULL));
    often[TURN_BLOCKS - 1] = 8;
    touch_often(function, asked.blocks[TURN_BLOCKS - 1], 8, NULL);
    OK(cuCtxSynchronize());
    atomic_store(&asked.is_over, true);
    OK(pthread_join(asks, NULL));
    say("wrong: %u", all_wrong + end_turns(asked.blocks, often));
}

#define PART_BYTES ((size_t)64 << 10)
#define SMALL_ONES 64u /* more than there is room for beside large blocks */

static void *set_again_and_again(void *small)
{
    unsigned on = 1;

    OK(cuCtxSetCurrent(context));
    while (!atomic_load(&asked.is_over))
        all_wrong += cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
                                           *(CUdeviceptr *)small) != CUDA_SUCCESS;
    return NULL;
}

/* Of small blocks beyond what the device has room for, one moves, and with it its neighbours. */
static void small_questions(void)
{
    CUdeviceptr small[SMALL_ONES], *last = &small[SMALL_ONES - 1];
    void *p;
    pthread_t sets;

    sim_inside("cuMemMap", false, map_slowly);
    OK(cuCtxGetCurrent(&context));
    begin_turns(asked.blocks);
    for (unsigned i = 0; i < SMALL_ONES; i++)
        OK(cuMemAlloc(&small[i], PART_BYTES));
    for (unsigned i = 0; i < TURN_BLOCKS; i++)
        OK(cuMemFree(asked.blocks[i]));
    OK(cuCtxSynchronize());
    p = (void *)(uintptr_t)*last; /* NOLINT(performance-no-int-to-ptr): of the device */
    OK(pthread_create(&sets, NULL, set_again_and_again, last));
    for (unsigned i = 0; i < 20; i++)
        all_wrong += allograft_memory_place(
                         p, PART_BYTES, i % 2 ? ALLOGRAFT_PLACE_HOST : ALLOGRAFT_PLACE_DEVICE) != 0;
    atomic_store(&asked.is_over, true);
    OK(pthread_join(sets, NULL));
    say("wrong: %u", all_wrong);
}

/* --- the end of the process while pieces move --- */

static struct {
    pthread_t thread;
    atomic_bool moves, driver_has_ended;
} mover;

/* Old and new memory of the piece have their aliases: it is mapped nowhere when the driver ends. */
static void map_after_end(void)
{
    static unsigned n;

    if (++n < 3)
        return;
    atomic_store(&mover.moves, true);
    while (!atomic_load(&mover.driver_has_ended))
        (void)usleep(1000);
}

static void *move_first(void *p)
{
    OK(cuCtxSetCurrent(context));
    (void)allograft_memory_place(p, 1, ALLOGRAFT_PLACE_HOST);
    return NULL;
}

/* After the driver's own. */
static void let_it_go_on(void)
{
    atomic_store(&mover.driver_has_ended, true);
    OK(pthread_join(mover.thread, NULL));
}

static void end_while_pieces_move(void)
{
    CUdeviceptr p;

    OK(cuCtxGetCurrent(&context));
    OK(cuMemAlloc(&p, BYTES));
    OK(cuCtxSynchronize());
    sim_inside("cuMemMap", false, map_after_end);
    /* NOLINTNEXTLINE(performance-no-int-to-ptr): an address of the device */
    OK(pthread_create(&mover.thread, NULL, move_first, (void *)(uintptr_t)p));
    while (!atomic_load(&mover.moves))
        (void)usleep(1000);
}

#define N_TURNS 240u

static CUfunction touched_by_all;
static pthread_barrier_t all_have_blocks; /* more than there is room for */

/* Blocks of its own in turn, on a stream of its own. */
static void *take_turns(void *unused)
{
    CUdeviceptr p[TURN_BLOCKS / N_THREADS];
    uint32_t wrong = 0;
    CUstream stream;

    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; i < TURN_BLOCKS / N_THREADS; i++) {
        OK(cuMemAlloc(&p[i], TURN_BYTES));
        launch_fill_pages(stream, p[i], TURN_BYTES, i);
    }
    (void)pthread_barrier_wait(&all_have_blocks);
    for (unsigned turn = 0; turn < N_TURNS; turn++)
        touch_often(touched_by_all, p[turn / 5 % (TURN_BLOCKS / N_THREADS)], 5, stream);
    OK(cuStreamSynchronize(stream));
    for (unsigned i = 0; i < TURN_BLOCKS / N_THREADS; i++) {
        wrong += count_wrong(p[i], 1, i + 5 * N_TURNS / (TURN_BLOCKS / N_THREADS)) +
                 count_wrong_pages(p[i], TURN_BYTES, i);
        OK(cuMemFree(p[i]));
    }
    all_wrong += wrong;
    OK(cuStreamDestroy(stream));
    return unused;
}

/* Others launch, and log what they use, while one moves. */
static void turns_of_threads(void)
{
    pthread_t thread[N_THREADS];

    OK(cuCtxGetCurrent(&context));
    touched_by_all = touch_function();
    OK(pthread_barrier_init(&all_have_blocks, NULL, N_THREADS));
    for (unsigned i = 0; i < N_THREADS; i++)
        OK(pthread_create(&thread[i], NULL, take_turns, NULL));
    for (unsigned i = 0; i < N_THREADS; i++)
        OK(pthread_join(thread[i], NULL));
    say("wrong: %u", (uint32_t)all_wrong);
}

static void touch_edge(const struct sim_kernel_call *call)
{
    CUdeviceptr p = *(CUdeviceptr *)call->args[0];
    uint32_t *first = sim_kernel_access(p, 4096, true);
    uint32_t *last = sim_kernel_access(p + 14 * MIB, 4096, true);

    if (first && last) {
        ++*first;
        ++*last;
    }
}

/* As a code of fluids does: the values at the edge of a field are set before the field is used. */
static void edges(unsigned n, unsigned k)
{
    CUfunction inner = touch_function(), edge = function_of("touch_edge", touch_edge);
    CUdeviceptr p[TURN_BLOCKS];
    unsigned often[TURN_BLOCKS] = {0};

    begin_turns(p);
    for (unsigned pass = 0; pass < n; pass++) {
        for (unsigned i = 0; i < TURN_BLOCKS; i++) {
            touch_often(edge, p[i], k, NULL);
            touch_often(inner, p[i], 1, NULL);
            often[i] += k + 1;
        }
        OK(cuCtxSynchronize());
    }
    say("wrong: %u", end_turns(p, often));
}

#define STATES (TURN_BLOCKS - 7)

/* It is given all of them, and uses a quarter, the n-th. */
static void touch_quarter(const struct sim_kernel_call *call)
{
    unsigned n = *(uint32_t *)call->args[STATES];

    for (unsigned i = n; i < STATES; i += 4)
        touch(&(struct sim_kernel_call){.args = &call->args[i]});
}

static CUfunction quarter_function(void)
{
    size_t sizes[STATES + 1];
    CUmodule module;
    CUfunction function;

    for (unsigned i = 0; i < STATES; i++)
        sizes[i] = sizeof(CUdeviceptr);
    sizes[STATES] = sizeof(uint32_t);
    sim_register_kernel("touch_quarter", touch_quarter, STATES + 1, sizes);
    OK(cuModuleLoadData(&module, "paging"));
    OK(cuModuleGetFunction(&function, module, "touch_quarter"));
    return function;
}

/* As an optimizer's step for many tensors does: each launch is given what those before it were. */
static void step_by_quarters(CUfunction function, CUdeviceptr *states)
{
    void *params[STATES + 1];

    for (unsigned i = 0; i < STATES; i++)
        params[i] = &states[i];
    for (uint32_t quarter = 0; quarter < 4; quarter++) {
        params[STATES] = &quarter;
        OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    }
}

static void quarters(unsigned n, unsigned k)
{
    CUfunction often_used = touch_function(), step = quarter_function();
    CUdeviceptr p[TURN_BLOCKS];
    unsigned often[TURN_BLOCKS];

    begin_turns(p);
    for (unsigned i = 0; i < TURN_BLOCKS; i++)
        often[i] = i < TURN_BLOCKS - STATES ? n * k : n;
    for (unsigned pass = 0; pass < n; pass++) {
        for (unsigned i = 0; i < TURN_BLOCKS - STATES; i++)
            touch_often(often_used, p[i], k, NULL);
        step_by_quarters(step, p + TURN_BLOCKS - STATES);
        OK(cuCtxSynchronize());
    }
    say("wrong: %u", end_turns(p, often));
}

static CUfunction function_of_three(const char *name, sim_kernel_fn kernel)
{
    CUmodule module;
    CUfunction function;

    sim_register_kernel(name, kernel, 3, (size_t[]){sizeof(CUdeviceptr), sizeof(CUdeviceptr), 8});
    OK(cuModuleLoadData(&module, "paging"));
    OK(cuModuleGetFunction(&function, module, name));
    return function;
}

/* Goes on in what lies behind the second address. */
static void touch_twice(const struct sim_kernel_call *call)
{
    touch(call);
}

static void touch_both(CUfunction function, CUdeviceptr first, CUdeviceptr second, uint64_t ns)
{
    OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&first, &second, &ns}, NULL));
}

static void within_twice(unsigned n, unsigned k)
{
    CUdeviceptr p[TURN_BLOCKS];
    CUfunction function = function_of_three("touch_twice", touch_twice);
    unsigned often[TURN_BLOCKS];

    begin_turns(p);
    for (unsigned pass = 0; pass < n; pass++)
        for (unsigned i = 0; i < TURN_BLOCKS; i++)
            for (unsigned use = 0; use < k; use++)
                touch_both(function, p[i], p[i] + 4 * MIB, 0);
    for (unsigned i = 0; i < TURN_BLOCKS; i++)
        often[i] = n * k;
    say("wrong: %u", end_turns(p, often));
}

/* As an allocator of the program's own divides blocks. */
static void parts(unsigned n, unsigned k)
{
    CUdeviceptr blocks_of_parts[4], p[TURN_BLOCKS];
    CUfunction function = function_of_three("touch_part", touch_twice);
    uint32_t wrong = 0;

    for (unsigned i = 0; i < 4; i++)
        OK(cuMemAlloc(&blocks_of_parts[i], 4 * TURN_BYTES));
    for (unsigned i = 0; i < TURN_BLOCKS; i++) {
        p[i] = blocks_of_parts[i % 4] + i / 4 * TURN_BYTES;
        launch_fill_pages(NULL, p[i], TURN_BYTES, i);
    }
    for (unsigned pass = 0; pass < n; pass++)
        for (unsigned i = 0; i < TURN_BLOCKS; i++)
            for (unsigned use = 0; use < k; use++)
                touch_both(function, p[i], p[i], 0);
    for (unsigned i = 0; i < TURN_BLOCKS; i++)
        wrong += count_wrong(p[i], 1, i + n * k) + count_wrong_pages(p[i], TURN_BYTES, i);
    say("wrong: %u", wrong);
    for (unsigned i = 0; i < 4; i++)
        OK(cuMemFree(blocks_of_parts[i]));
}

/* One of the two is a block, the other one has no pieces. */
static void touch_product(const struct sim_kernel_call *call)
{
    uint64_t ns = *(uint64_t *)call->args[2];
    struct sim_kernel_call of_block = *call;

    sim_kernel_spend(ns);
    of_block.args = ns ? call->args : call->args + 1;
    touch(&of_block);
}

static void product(unsigned n)
{
    CUdeviceptr p[TURN_BLOCKS], small;
    CUfunction function = function_of_three("touch_product", touch_product);
    unsigned often[TURN_BLOCKS];

    OK(cuMemAlloc(&small, 4096));
    begin_turns(p);
    for (unsigned pass = 0; pass < 2 * n; pass++) {
        for (unsigned i = 0; i < TURN_BLOCKS; i++) {
            if (pass < n)
                touch_both(function, small, p[i], 0);
            else
                touch_both(function, p[i], small, 10000000000);
        }
        OK(cuCtxSynchronize()); /* what the pass took can be seen */
    }
    for (unsigned i = 0; i < TURN_BLOCKS; i++)
        often[i] = 2 * n;
    say("wrong: %u", end_turns(p, often));
    OK(cuMemFree(small));
}

/* How many there are is not known to the compiler: so they are of one place in the code. */
static __attribute__((noinline)) void allocate_turns(CUdeviceptr *p, unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++)
        OK(cuMemAlloc(&p[i], TURN_BYTES));
}

static void sites(unsigned n, unsigned k, unsigned hot)
{
    CUdeviceptr p[TURN_BLOCKS];
    CUfunction function = touch_function();
    unsigned often[TURN_BLOCKS];

    allocate_turns(p, 0, TURN_BLOCKS);
    for (unsigned i = 0; i < TURN_BLOCKS; i++)
        OK(cuMemFree(p[i]));
    allocate_turns(p, hot, TURN_BLOCKS);
    allocate_turns(p, 0, hot);
    for (unsigned i = 0; i < TURN_BLOCKS; i++) {
        launch_fill_pages(NULL, p[i], TURN_BYTES, i);
        often[i] = n * (i < hot ? k : 1);
    }
    for (unsigned pass = 0; pass < n; pass++)
        for (unsigned i = 0; i < TURN_BLOCKS; i++)
            touch_often(function, p[i], i < hot ? k : 1, NULL);
    say("wrong: %u", end_turns(p, often));
}

static void touch_late(const struct sim_kernel_call *call)
{
    usleep(2000);
    touch(call);
}

/* The first block is on the device, the last one is not. Each launch is late enough to be marked.
 */
static void queue(void)
{
    CUdeviceptr p[TURN_BLOCKS];
    CUfunction late = function_of("touch_late", touch_late);
    unsigned often[TURN_BLOCKS] = {0};

    begin_turns(p);
    OK(cuCtxSynchronize());
    for (; often[0] < 60; often[0]++) {
        touch_often(late, p[0], 1, NULL);
        usleep(1000);
    }
    often[TURN_BLOCKS - 1] = 5;
    touch_often(touch_function(), p[TURN_BLOCKS - 1], 5, NULL);
    OK(cuCtxSynchronize());
    say("wrong: %u", end_turns(p, often));
}

/* What kernels behind one that waits use, which is nearly all that the device has, stays where it
 * is until they have run, whoever else wants the room. */
static void unfinished(void)
{
    CUdeviceptr p[TURN_BLOCKS];
    CUfunction function = touch_function();
    unsigned often[TURN_BLOCKS] = {0};
    CUstream stream;
    pthread_t ends;

    begin_turns(p);
    OK(cuCtxSynchronize());
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    launch_spin(stream, &beside.may_end);
    for (unsigned i = 0; i < 7; i++)
        touch_often(function, p[i], often[i] = 1, stream);
    OK(pthread_create(&ends, NULL, end_once_asked, NULL));
    often[TURN_BLOCKS - 1] = 5;
    touch_often(function, p[TURN_BLOCKS - 1], 5, NULL);
    atomic_store(&beside.is_asked, true);
    OK(pthread_join(ends, NULL));
    OK(cuCtxSynchronize());
    OK(cuStreamDestroy(stream));
    say("wrong: %u", end_turns(p, often));
}

/* --- a block that is kept while others are inside a call --- */

static struct {
    CUcontext context;
    CUdeviceptr block, other;
    atomic_bool is_inside, is_kept;
} kept;

/* Within the driver's fill: nothing can move. */
static void wait_until_kept(void)
{
    atomic_store(&kept.is_inside, true);
    for (unsigned i = 0; i < 10000 && !atomic_load(&kept.is_kept); i++)
        (void)usleep(1000);
}

static void *fill_other(void *unused)
{
    OK(cuCtxSetCurrent(kept.context));
    OK(cuMemsetD16Async(kept.other, 0, 1, NULL));
    return unused;
}

static void await_fill(void)
{
    for (unsigned i = 0; i < 10000 && !atomic_load(&kept.is_inside); i++)
        (void)usleep(1000);
}

static void *keep_block(void *unused)
{
    unsigned on = 1;

    OK(cuCtxSetCurrent(kept.context));
    await_fill();
    (void)usleep(20000); /* the launch waits for the fill by then, and not for so long yet */
    OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, kept.block));
    atomic_store(&kept.is_kept, true);
    return unused;
}

static void keeps(void)
{
    CUdeviceptr p[TURN_BLOCKS];
    CUfunction function = touch_function();
    unsigned often[TURN_BLOCKS] = {0};
    pthread_t fills, keeps;

    sim_inside("cuMemsetD16Async", false, wait_until_kept); /* before any thread is started */
    begin_turns(p);
    OK(cuMemAlloc(&kept.other, 4096));
    OK(cuCtxGetCurrent(&kept.context));
    OK(cuCtxSynchronize());
    kept.block = p[TURN_BLOCKS - 1];
    OK(pthread_create(&fills, NULL, fill_other, NULL));
    OK(pthread_create(&keeps, NULL, keep_block, NULL));
    await_fill();
    often[TURN_BLOCKS - 1] = 8;
    touch_often(function, kept.block, 8, NULL);
    OK(pthread_join(fills, NULL));
    OK(pthread_join(keeps, NULL));
    OK(cuMemFree(kept.other));
    say("wrong: %u", end_turns(p, often));
}

/* An event of ours in the stream before the launch that is refused would be all that is in it. */
static void refuse_one(CUfunction function, CUdeviceptr here, CUdeviceptr on_host)
{
    CUstream stream;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    touch_often(function, here, 1, stream);
    for (unsigned i = 0; i < 2; i++) { /* the second one is timed, and has ended */
        touch_often(function, on_host, 1, stream);
        OK(cuCtxSynchronize());
    }
    usleep(1000); /* late enough to be marked */
    SAY_CODE("no threads",
             cuLaunchKernel(function, 1, 1, 1, 0, 1, 1, 0, stream, (void *[]){&here}, NULL));
    SAY_CODE("idle", cuStreamQuery(stream));
    OK(cuStreamDestroy(stream));
}

static void refused(void)
{
    CUdeviceptr p[TURN_BLOCKS];
    CUfunction function = touch_function();
    unsigned often[TURN_BLOCKS] = {0}, stays = 1; /* so that each launch uses it where it is */

    begin_turns(p);
    OK(cuCtxSynchronize());
    OK(cuPointerSetAttribute(&stays, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p[TURN_BLOCKS - 1]));
    for (unsigned i = 0; i < 8; i++)
        refuse_one(function, p[0], p[TURN_BLOCKS - 1]);
    often[0] = 8;
    often[TURN_BLOCKS - 1] = 16;
    say("wrong: %u", end_turns(p, often));
}

#define PARTS 64u

/* As an allocator of the program's own divides memory that it has in one piece. */
static void pool(unsigned n, unsigned k)
{
    CUdeviceptr block;
    CUfunction function = touch_function();
    uint32_t wrong = 0;

    OK(cuMemAlloc(&block, PARTS * TURN_BYTES));
    for (unsigned i = 0; i < PARTS; i++)
        launch_fill_pages(NULL, block + i * TURN_BYTES, TURN_BYTES, i);
    for (unsigned pass = 0; pass < n; pass++)
        for (unsigned i = 0; i < PARTS; i++)
            touch_often(function, block + i * TURN_BYTES, k, NULL);
    for (unsigned i = 0; i < PARTS; i++)
        wrong += count_wrong(block + i * TURN_BYTES, 1, i + n * k) +
                 count_wrong_pages(block + i * TURN_BYTES, TURN_BYTES, i);
    OK(cuMemFree(block));
    say("wrong: %u", wrong);
}

#define SMALL_BLOCKS 128u
#define SMALL_BYTES  (2 * MIB)

static void small_blocks(unsigned n, unsigned k)
{
    CUdeviceptr p[SMALL_BLOCKS];
    CUfunction function = function_of("touch_first", touch_first);
    uint32_t wrong = 0;

    for (unsigned i = 0; i < SMALL_BLOCKS; i++) {
        OK(cuMemAlloc(&p[i], SMALL_BYTES));
        launch_fill_pages(NULL, p[i], SMALL_BYTES, i);
    }
    for (unsigned pass = 0; pass < n; pass++)
        for (unsigned i = 0; i < SMALL_BLOCKS; i++)
            touch_often(function, p[i], k, NULL);
    for (unsigned i = 0; i < SMALL_BLOCKS; i++) {
        wrong += count_wrong(p[i], 1, i + n * k) + count_wrong(p[i] + 4, 1023, i + 1);
        OK(cuMemFree(p[i]));
    }
    say("wrong: %u", wrong);
}

static CUgraph graph_of(CUfunction function, CUdeviceptr p, unsigned k, CUstream stream)
{
    CUgraph graph;

    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    touch_often(function, p, k, stream);
    OK(cuStreamEndCapture(stream, &graph));
    return graph;
}

static void graphs(unsigned n, unsigned k)
{
    CUdeviceptr p[TURN_BLOCKS];
    CUfunction function = touch_function();
    CUgraphExecUpdateResultInfo info;
    CUgraph graph[TURN_BLOCKS];
    CUgraphExec exec[TURN_BLOCKS];
    CUstream stream;
    unsigned often[TURN_BLOCKS];

    begin_turns(p);
    OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    for (unsigned i = 0; i < TURN_BLOCKS; i++) {
        often[i] = n * k;
        graph[i] = graph_of(function, p[i], k, stream);
        OK(cuGraphInstantiate(&exec[i], graph[i], 0));
    }
    for (unsigned pass = 0; pass < n; pass++) {
        for (unsigned i = 0; i + 1 < TURN_BLOCKS; i++)
            OK(cuGraphLaunch(exec[i], stream));
        OK(cuGraphExecUpdate(exec[0], graph[TURN_BLOCKS - 1], &info));
        OK(cuGraphLaunch(exec[0], stream));
        OK(cuGraphExecUpdate(exec[0], graph[0], &info));
    }
    OK(cuStreamSynchronize(stream));
    for (unsigned i = 0; i < TURN_BLOCKS; i++) {
        OK(cuGraphExecDestroy(exec[i]));
        OK(cuGraphDestroy(graph[i]));
    }
    say("wrong: %u", end_turns(p, often));
}

/* A graph of one node, which is that graph. */
static CUgraph graph_around(CUgraph child)
{
    CUgraph graph;
    CUgraphNode node;

    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddChildGraphNode(&node, graph, NULL, 0, child));
    OK(cuGraphDestroy(child));
    return graph;
}

/* The second half is used by kernels with so much shared memory. */
static void whole(unsigned n, unsigned k, unsigned shared_bytes, unsigned deep)
{
    CUdeviceptr p[TURN_BLOCKS];
    CUfunction function = touch_function();
    unsigned often[TURN_BLOCKS];
    CUgraphExec exec;
    CUstream stream;
    CUgraph graph;

    begin_turns(p);
    OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    for (unsigned i = 0; i < TURN_BLOCKS; i++) {
        bool is_first = i < TURN_BLOCKS / 2;

        often[i] = n * (is_first ? 1 : k);
        touch_shared(function, p[i], often[i] / n, stream, is_first ? 0 : shared_bytes);
    }
    OK(cuStreamEndCapture(stream, &graph));
    for (unsigned i = 0; i < deep; i++)
        graph = graph_around(graph);
    OK(cuGraphInstantiate(&exec, graph, 0));
    for (unsigned i = 0; i < n; i++)
        OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    say("wrong: %u", end_turns(p, often));
}

/* A node that fills a block which lies on the host, and then kernels that use it. */
static void filled(unsigned n)
{
    CUdeviceptr p[TURN_BLOCKS];
    CUfunction function = touch_function();
    CUDA_MEMSET_NODE_PARAMS fill = {.elementSize = 4, .width = 1, .height = 1};
    unsigned often[TURN_BLOCKS] = {0};
    CUcontext context;
    CUgraphNode node;
    CUgraph graph;

    begin_turns(p);
    OK(cuCtxGetCurrent(&context));
    OK(cuGraphCreate(&graph, 0));
    fill.dst = p[TURN_BLOCKS - 1];
    OK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &fill, context));
    touch_often(function, p[TURN_BLOCKS - 1], n, NULL);
    often[TURN_BLOCKS - 1] = n;
    OK(cuGraphDestroy(graph));
    say("wrong: %u", end_turns(p, often));
}

/* Two nodes that fill the block, one that copies into it, and a kernel that uses it. */
static CUgraph capture_fills(CUstream stream, CUdeviceptr p, CUdeviceptr other)
{
    CUgraph graph;

    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemsetD32Async(p + MIB, 77, 1, stream));
    OK(cuMemsetD32Async(p + TURN_BYTES - 4, 78, 1, stream));
    OK(cuMemcpyDtoDAsync(p + TURN_BYTES - 8, other, 4, stream));
    touch_often(touch_function(), p, 1, stream);
    OK(cuStreamEndCapture(stream, &graph));
    return graph;
}

static void filled_by_capture(unsigned n)
{
    CUdeviceptr p[TURN_BLOCKS], block;
    unsigned often[TURN_BLOCKS] = {0};
    uint32_t first = 0, last[2] = {0};
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;

    begin_turns(p);
    OK(cuCtxSynchronize());
    block = p[TURN_BLOCKS - 1];
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    graph = capture_fills(stream, block, p[3]);
    OK(cuGraphInstantiate(&exec, graph, 0));
    for (unsigned i = 0; i < n; i++)
        OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    often[TURN_BLOCKS - 1] = n;
    OK(cuMemcpyDtoH(&first, block + MIB, sizeof(first)));
    OK(cuMemcpyDtoH(last, block + TURN_BYTES - sizeof(last), sizeof(last)));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    say("wrong: %u", end_turns(p, often) + (first != 77) + (last[1] != 78) + (last[0] != 3));
}

/* --- memory of the host that is made ahead --- */

static void await_calls(const char *symbol, unsigned long n)
{
    for (unsigned i = 0; i < 30000 && sim_calls(symbol) < n; i++)
        (void)usleep(2000);
    say("%s: %s", symbol, sim_calls(symbol) < n ? "too few" : "enough");
}

/* Blocks of eight pieces each. */
static void take(CUdeviceptr *p, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        OK(cuMemAlloc(&p[i], TURN_BYTES));
}

static void ahead(void)
{
    CUdeviceptr p[7];
    unsigned long created = sim_calls("cuMemCreate"), released;

    take(p, 7);
    await_calls("cuMemCreate", created + 7 * 8 + 4);
    released = sim_calls("cuMemRelease");
    for (unsigned i = 0; i < 7; i++)
        OK(cuMemFree(p[i]));
    await_calls("cuMemRelease", released + 7 * 8 - 2 + 4); /* two pieces are kept */
}

/* --- copies and fills --- */

static void fill_often(CUdeviceptr p, unsigned k, uint32_t *host)
{
    (void)host;
    for (unsigned i = 0; i < k; i++)
        OK(i % 2 ? cuMemsetD32(p, 7 + i, WORDS)
                 : cuMemsetD2D32Async(p, BYTES / 4, 7 + i, WORDS / 4, 4, NULL));
}

static void copy_within_often(CUdeviceptr p, unsigned k, uint32_t *host)
{
    CUdeviceptr half = p + BYTES / 2;

    (void)host;
    OK(cuMemsetD32Async(p + 256, 7 + k - 1, 1, NULL)); /* less than counts */
    for (unsigned i = 0; i < k; i++)
        OK(i % 3 == 0   ? cuMemcpyDtoDAsync_v2(half, p, BYTES / 2, NULL)
           : i % 3 == 1 ? cuMemcpyDtoD_v2(half, p, BYTES / 2)
                        : cuMemcpyAsync(half, p, BYTES / 2, NULL));
}

static void copy_across_often(CUdeviceptr p, unsigned k, uint32_t *host)
{
    for (unsigned i = 0; i < k; i++) {
        host[64] = 7 + i;
        OK(cuMemcpyHtoD(p, host, BYTES));
        host[64] = 0;
        OK(cuMemcpyDtoH(host, p, BYTES));
    }
}

/* The word 64 is the last value that was copied or set. */
static void copies(unsigned n, unsigned k, void (*often)(CUdeviceptr, unsigned, uint32_t *))
{
    CUdeviceptr p[TURN_BLOCKS];
    uint32_t *host, word, wrong = 0;

    OK(cuMemAllocHost((void **)&host, BYTES));
    for (unsigned i = 0; i < TURN_BLOCKS; i++)
        OK(cuMemAlloc(&p[i], BYTES));
    for (unsigned pass = 0; pass < n; pass++)
        for (unsigned i = 0; i < TURN_BLOCKS; i++)
            often(p[i], k, host);
    for (unsigned i = 0; i < TURN_BLOCKS; i++) {
        OK(cuMemcpyDtoH(&word, p[i] + 256, sizeof(word)));
        wrong += word != 7 + k - 1;
        OK(cuMemFree(p[i]));
    }
    OK(cuMemFreeHost(host));
    say("wrong: %u", wrong);
}

static void give_context_back(void)
{
    SAY_CODE("released", cuDevicePrimaryCtxRelease(0));
}

static void frees_before_exit(void)
{
    CUdeviceptr p[BLOCKS];

    allocate_all(p);
    free_all(p);
}

static void reset(void)
{
    CUdeviceptr p[BLOCKS], q;

    allocate_all(p);
    launch_fill(NULL, p[0], WORDS, 1);
    OK(cuDevicePrimaryCtxReset(0));
    say("in use: %zu", sim_bytes_in_use(0));
    (void)device_open();
    OK(cuMemAlloc(&q, BYTES));
    launch_fill(NULL, q, WORDS, 2);
    say("wrong: %u", count_wrong(q, WORDS, 2));
}

/* Half of the blocks by each of two streams, whose work is under way when it frees them. What one
 * has freed, the other one may get, and write, only behind that. */
static void say_whose(CUdeviceptr p, CUmemoryPool pool)
{
    CUmemoryPool its = NULL;
    CUcontext context = NULL;

    SAY_CODE("its pool", cuPointerGetAttribute(&its, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p));
    SAY_CODE("its context", cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, p));
    say("of %s pool, %s context",
        its == pool ? "that"
        : its       ? "another"
                    : "no",
        context ? "a" : "no");
}

/* Memory whose free is refused is the pool's still. */
static void free_beside_capture(CUmemoryPool pool, CUstream captures, CUstream frees)
{
    CUgraph graph = NULL;
    CUdeviceptr p;

    OK(cuMemAllocAsync(&p, BYTES, frees));
    OK(cuStreamSynchronize(frees));
    OK(cuStreamBeginCapture(captures, CU_STREAM_CAPTURE_MODE_GLOBAL));
    SAY_CODE("free beside a capture", cuMemFreeAsync(p, frees));
    SAY_CODE("its end", cuStreamEndCapture(captures, &graph));
    say_whose(p, pool);
    SAY_CODE("free again", cuMemFreeAsync(p, frees));
}

static void ordered(unsigned n)
{
    CUdeviceptr p[BLOCKS], q;
    CUmemoryPool pool;
    CUstream streams[2];
    uint32_t wrong = 0;

    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    for (unsigned i = 0; i < 2; i++)
        OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    for (unsigned pass = 0; pass < n; pass++) {
        for (unsigned i = 0; i < BLOCKS; i++) {
            OK(cuMemAllocAsync(&p[i], BYTES, streams[i % 2]));
            launch_fill(streams[i % 2], p[i], WORDS, pass + i);
        }
        for (unsigned i = 0; i < 2; i++)
            OK(cuStreamSynchronize(streams[i]));
        for (unsigned i = 0; i < BLOCKS; i++)
            wrong += count_wrong(p[i], WORDS, pass + i);
        for (unsigned i = 0; i < BLOCKS; i++) {
            launch_fill(streams[i % 2], p[i], WORDS, 1000);
            OK(cuMemFreeAsync(p[i], streams[i % 2]));
            OK(cuMemAllocFromPoolAsync(&q, BYTES, pool, streams[(i + 1) % 2]));
            launch_fill(streams[(i + 1) % 2], q, WORDS, pass);
            OK(cuStreamSynchronize(streams[(i + 1) % 2]));
            OK(cuStreamSynchronize(streams[i % 2]));
            wrong += count_wrong(q, WORDS, pass);
            if (!pass)
                say_whose(q, pool);
            OK(cuMemFreeAsync(q, streams[i % 2]));
        }
    }
    free_beside_capture(pool, streams[0], streams[1]);
    for (unsigned i = 0; i < 2; i++)
        OK(cuStreamDestroy(streams[i]));
    OK(cuMemAlloc(&q, BYTES));
    say_whose(q, pool);
    OK(cuMemFree(q));
    say("wrong: %u", wrong);
}

/* As code has them that is compiled for a default stream of each thread's own. */
CUresult cuMemAllocAsync_ptsz(CUdeviceptr *p, size_t bytes, CUstream stream);
CUresult cuMemFreeAsync_ptsz(CUdeviceptr p, CUstream stream);

/* A free and an allocation while the stream has work wait for nothing. */
static void unwaited_on(CUstream stream)
{
    CUresult (*alloc)(CUdeviceptr *, size_t, CUstream) = cuMemAllocAsync;
    CUresult (*free_later)(CUdeviceptr, CUstream) = cuMemFreeAsync;
    CUstream named = stream;
    CUdeviceptr p, q;

    if (stream == CU_STREAM_PER_THREAD) {
        alloc = cuMemAllocAsync_ptsz;
        free_later = cuMemFreeAsync_ptsz;
        named = NULL;
    }
    OK(alloc(&p, BYTES, named));
    launch_fill(stream, p, WORDS, 1);
    OK(free_later(p, named));
    SAY_CODE("after a free", cuStreamQuery(stream));
    OK(alloc(&q, BYTES, named));
    launch_fill(stream, q, WORDS, 2);
    say("the same block: %s", p == q ? "yes" : "no");
    SAY_CODE("after an allocation", cuStreamQuery(stream));
    OK(cuStreamSynchronize(stream));
    say("wrong: %u", count_wrong(q, WORDS, 2));
    OK(free_later(q, named));
}

/* Nor for the work of other streams, once their own has come to the free. */
static void unwaited_beside(CUstream stream)
{
    CUstream busy;
    CUdeviceptr p[2];
    pthread_t ends;

    OK(cuStreamCreate(&busy, CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; i < 2; i++)
        OK(cuMemAllocAsync(&p[i], (i + 1) * BYTES, stream));
    OK(cuMemFreeAsync(p[0], stream));
    OK(cuStreamSynchronize(stream));
    launch_spin(busy, &beside.may_end);
    OK(pthread_create(&ends, NULL, end_once_asked, NULL));
    OK(cuMemFreeAsync(p[1], stream));
    OK(cuMemAllocAsync(&p[0], 4 * BYTES, stream));
    say("beside a kernel that waits: %s", atomic_load(&beside.may_end) ? "after it" : "at once");
    atomic_store(&beside.is_asked, true);
    OK(pthread_join(ends, NULL));
    OK(cuMemFreeAsync(p[0], stream));
    OK(cuStreamSynchronize(busy));
    OK(cuStreamDestroy(busy));
}

static void unwaited(void)
{
    CUstream stream;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    unwaited_on(stream);
    unwaited_beside(stream);
    OK(cuStreamDestroy(stream));
    unwaited_on(NULL);
    unwaited_on(CU_STREAM_PER_THREAD);
}

static void hold(void)
{
    place_without_room();
    say("ready");
    while (getchar() != EOF)
        ;
}

/* What takes no arguments. */
static const struct part alone[] = {
    {"waits", waits},
    {"waits-in-context", waits_in_context},
    {"at-once", returns_at_once},
    {"captured", captured},
    {"threads", threads},
    {"turns-of-threads", turns_of_threads},
    {"own-mapping", map_own},
    {"questions", questions},
    {"small-questions", small_questions},
    {"places-of-threads", places_of_threads},
    {"frees", frees},
    {"reset", reset},
    {"queue", queue},
    {"refused", refused},
    {"unfinished", unfinished},
    {"kept", keeps},
    {"ahead", ahead},
    {"hold", hold},
    {"place", place},
    {"exit", frees_before_exit},
    {"end", end_while_pieces_move},
    {"room", place_without_room},
};

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    CUcontext opened;

    if (!strcmp(what, "exit"))
        OK(atexit(give_context_back)); /* before the driver's own: runs after it */
    if (!strcmp(what, "end"))
        OK(atexit(let_it_go_on)); /* likewise */
    opened = device_open();
    if (RUN_PART(alone, what))
        return 0;
    if (!strcmp(what, "blocks"))
        blocks(opened);
    else if (!strcmp(what, "passes") && argc > 2)
        passes((unsigned)atoi(argv[2]));
    else if (!strcmp(what, "turns") && argc > 3)
        turns(touch_function(), (unsigned)atoi(argv[2]), (unsigned)atoi(argv[3]),
              argc > 4 ? argv[4] : IN_TURN);
    else if (!strcmp(what, "slow") && argc > 2)
        turns(function_of("touch_slowly", touch_slowly), (unsigned)atoi(argv[2]), 1, IN_TURN);
    else if (!strcmp(what, "slow-on-new-streams") && argc > 2)
        slow_on_new_streams((unsigned)atoi(argv[2]));
    else if (!strcmp(what, "slow-beside-other") && argc > 2)
        slow_beside_other((unsigned)atoi(argv[2]));
    else if (!strcmp(what, "within-twice") && argc > 3)
        within_twice((unsigned)atoi(argv[2]), (unsigned)atoi(argv[3]));
    else if (!strcmp(what, "parts") && argc > 3)
        parts((unsigned)atoi(argv[2]), (unsigned)atoi(argv[3]));
    else if (!strcmp(what, "product") && argc > 2)
        product((unsigned)atoi(argv[2]));
    else if (!strcmp(what, "pool") && argc > 3)
        pool((unsigned)atoi(argv[2]), (unsigned)atoi(argv[3]));
    else if (!strcmp(what, "small") && argc > 3)
        small_blocks((unsigned)atoi(argv[2]), (unsigned)atoi(argv[3]));
    else if (!strcmp(what, "edges") && argc > 3)
        edges((unsigned)atoi(argv[2]), (unsigned)atoi(argv[3]));
    else if (!strcmp(what, "quarters") && argc > 3)
        quarters((unsigned)atoi(argv[2]), (unsigned)atoi(argv[3]));
    else if (!strcmp(what, "sites") && argc > 4)
        sites((unsigned)atoi(argv[2]), (unsigned)atoi(argv[3]), (unsigned)atoi(argv[4]));
    else if (!strcmp(what, "filled-by-capture") && argc > 2)
        filled_by_capture((unsigned)atoi(argv[2]));
    else if (!strcmp(what, "filled") && argc > 2)
        filled((unsigned)atoi(argv[2]));
    else if (!strcmp(what, "graphs") && argc > 3)
        graphs((unsigned)atoi(argv[2]), (unsigned)atoi(argv[3]));
    else if (!strcmp(what, "whole") && argc > 3)
        whole((unsigned)atoi(argv[2]), (unsigned)atoi(argv[3]),
              argc > 4 ? (unsigned)atoi(argv[4]) : 0, argc > 5 ? (unsigned)atoi(argv[5]) : 0);
    else if (!strcmp(what, "far") || !strcmp(what, "soon"))
        take((CUdeviceptr[7]){0}, *what == 'f' ? 5 : 7);
    else if (!strcmp(what, "fills") && argc > 3)
        copies((unsigned)atoi(argv[2]), (unsigned)atoi(argv[3]), fill_often);
    else if (!strcmp(what, "within") && argc > 3)
        copies((unsigned)atoi(argv[2]), (unsigned)atoi(argv[3]), copy_within_often);
    else if (!strcmp(what, "across") && argc > 3)
        copies((unsigned)atoi(argv[2]), (unsigned)atoi(argv[3]), copy_across_often);
    else if (!strcmp(what, "ordered") && argc > 2)
        atoi(argv[2]) ? ordered((unsigned)atoi(argv[2])) : unwaited();
    else
        return 99;
    return 0;
}
