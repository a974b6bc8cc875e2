/* What a program sees of memory that is the driver's own and kept when it is freed:
 *     churn few          many allocations, all freed at the end
 *     churn turns N      N blocks of changing sizes, the oldest freed for the newest
 *     churn answers      ranges, attributes and free memory of a block that was kept
 *     churn exported     what the driver gave a handle of is nobody else's afterwards
 *     churn devices      frees on one device, allocations on the other
 *     churn threads N        N such turns in each of eight threads
 *     churn phases N         one block at a time beside one that stays, N sizes, each larger
 *     churn too-large        blocks where the cache has only much larger ones
 *     churn full             the first launch of a kernel when the card is nearly full
 *     churn was-full         likewise, when it was full before
 *     churn full-elsewhere   memory of a full card, another's context current or none
 *     churn full-slabs       the first launch when small blocks have filled it
 *     churn full-handles     likewise, when memory without an address has
 *     churn full-graph       the first launch of a graph on a full card
 *     churn full-context     a second context on a full card
 *     churn full-capture     memory of a full card while a stream is captured
 *     churn capture-beside   another thread captures while freed memory is waited for
 *     churn early            memory without an address before cuInit
 *     churn destroy          the primary context is not destroyed like another
 *     churn waits            an allocation while a kernel waits for the host
 *     churn return-beside    memory that another thread is giving back
 *     churn evict-beside     likewise, in its cudaFree
 *     churn free-beside      memory that another thread frees as this one tries again
 *     churn calls-beside     likewise, as other calls that take memory do
 *     churn limit-beside     likewise, under a limit
 *     churn limit-rows       rows in a capture, under a limit
 *     churn create-return    memory without an address, under a limit, while a cudaFree gives back
 *     churn async-return     the same in stream order
 *     churn launch-beside    likewise, as a kernel is loaded
 *     churn graph-beside     likewise, as a graph is */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/common/device.h"
#include "tests/common/parts.h"
#include "tests/common/say.h"

#define FEW 64
#define KIB ((size_t)1 << 10)
#define MIB (KIB << 10)

static CUdeviceptr get(size_t bytes)
{
    CUdeviceptr p;

    OK(cuMemAlloc(&p, bytes));
    return p;
}

/* From here on, what is freed is kept. */
static void begin_churn(void)
{
    OK(cuMemFree(get(64)));
    OK(cuMemFree(get(64)));
}

static void few(void)
{
    CUdeviceptr blocks[FEW];

    for (unsigned i = 0; i < FEW; i++)
        blocks[i] = get((i + 1) * KIB + 100);
    for (unsigned i = 0; i < FEW; i++)
        OK(cuMemFree(blocks[i]));
    say("freed");
}

static void turns(unsigned n)
{
    CUdeviceptr blocks[8] = {0};
    unsigned wrong = 0, value;

    for (unsigned i = 0; i < n; i++) {
        CUdeviceptr *block = &blocks[i % 8];

        if (*block) {
            OK(cuMemcpyDtoH(&value, *block, sizeof(value)));
            wrong += value != i - 8;
            OK(cuMemFree(*block));
        }
        *block = get((i % 13 + 1) * 70000);
        OK(cuMemcpyHtoD(*block, &i, sizeof(i)));
    }
    for (unsigned i = 0; i < 8; i++)
        OK(cuMemFree(blocks[i]));
    say("wrong: %u", wrong);
}

static size_t room(void)
{
    size_t left, total;

    OK(cuMemGetInfo(&left, &total));
    return left;
}

static void say_attributes(CUdeviceptr p, size_t bytes)
{
    CUcontext current, context = NULL;
    CUdeviceptr base = 0;
    size_t size = 0;
    unsigned type = 0, ipc = 0;

    OK(cuCtxGetCurrent(&current));
    OK(cuMemGetAddressRange(&base, &size, p + bytes / 2));
    OK(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, p));
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
    OK(cuPointerGetAttribute(&ipc, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, p));
    say("base %d, size %zu, context %d, type %u, ipc %u", base == p, size, context == current, type,
        ipc & 1);
    SAY_CODE("behind", cuMemGetAddressRange(&base, &size, p + bytes));
}

/* To other processes and devices. */
static void say_given_away(CUdeviceptr p, size_t bytes)
{
    CUipcMemHandle handle;
    unsigned on = 1;
    int fd;

    SAY_CODE("ipc", cuIpcGetMemHandle(&handle, p));
    SAY_CODE("sync", cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
    SAY_CODE("range",
             cuMemGetHandleForAddressRange(&fd, p, bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
}

static void answers(void)
{
    static const size_t sizes[] = {100, 5000, 70000, (size_t)4 << 20};
    size_t before = room();
    CUdeviceptr p;

    begin_churn();
    for (unsigned i = 0; i < 2 * sizeof(sizes) / sizeof(sizes[0]); i++) {
        size_t bytes = sizes[i / 2];

        p = get(bytes);
        say_attributes(p, bytes);
        say("less: %zu KiB", bytes < KIB * KIB ? 0 : (before - room()) / KIB);
        OK(cuMemFree(p));
        SAY_CODE("again", cuMemFree(p));
        SAY_CODE("freed", cuMemGetAddressRange(NULL, &(size_t){0}, p));
    }
    p = get(512);
    SAY_CODE("in stream order", cuMemFreeAsync(p, NULL));
    SAY_CODE("and again", cuMemFree(p));
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        p = get(sizes[i]);
        OK(cuMemFree(p));
        say_given_away(p, sizes[i]);
    }
}

/* Freed blocks come back in the order of a stack: the next one of that size would be this. */
static void exported(void)
{
    CUipcMemHandle handle;
    unsigned on = 1;
    CUdeviceptr p, other;

    begin_churn();
    for (unsigned way = 0; way < 2; way++) {
        p = get(4096);
        OK(cuMemFree(p));
        other = get(4096);
        if (way == 0)
            OK(cuIpcGetMemHandle(&handle, other));
        else
            OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, other));
        OK(cuMemFree(other));
        OK(cuMemFree(get(4096)));
    }
    say("done");
}

static CUcontext context_of_threads;

static void *take_turns(void *argument)
{
    unsigned *n = argument;

    OK(cuCtxSetCurrent(context_of_threads));
    for (unsigned i = 0; i < *n; i++) {
        CUdeviceptr p = get((i % 7 + 1) * 70000), q = get(1000 + i);

        OK(cuMemFree(p));
        OK(cuMemFree(q));
    }
    return NULL;
}

static void threads(unsigned n)
{
    pthread_t all[8];

    OK(cuCtxGetCurrent(&context_of_threads));
    for (unsigned i = 0; i < 8; i++)
        CHECK(!pthread_create(&all[i], NULL, take_turns, &n));
    for (unsigned i = 0; i < 8; i++)
        CHECK(!pthread_join(all[i], NULL));
    say("done");
}

static void devices(void)
{
    CUcontext second;
    CUdeviceptr p, q;

    begin_churn();
    p = get(4096);
    OK(cuDevicePrimaryCtxRetain(&second, 1));
    OK(cuCtxPushCurrent(second));
    q = get(4096);
    OK(cuMemFree(p));
    OK(cuMemFree(q));
    q = get(4096);
    OK(cuMemFree(q));
    OK(cuCtxPopCurrent(&second));
    OK(cuMemFree(get(4096)));
    OK(cuDevicePrimaryCtxRelease(1));
    say("done");
}

static void phases(unsigned n)
{
    CUdeviceptr stays = get(40 * MIB);
    unsigned wrong = 0, value;

    OK(cuMemsetD32(stays + 40 * MIB - 4, n, 1));
    for (unsigned i = 0; i < n; i++) {
        size_t words = (10 + 3 * (i % 30)) * MIB / 4;
        CUdeviceptr p = get(4 * words);

        OK(cuMemsetD32(p + 4 * words - 4, i, 1));
        OK(cuMemcpyDtoH(&value, p + 4 * words - 4, 4));
        wrong += value != i;
        OK(cuMemFree(p));
    }
    OK(cuMemcpyDtoH(&value, stays + 40 * MIB - 4, 4));
    OK(cuMemFree(stays));
    say("wrong: %u", wrong + (value != n));
}

/* One block at a time, beside one of 8 MiB, of whole MiB up to 64 in no order. */
static void varied(unsigned n)
{
    CUdeviceptr stays = get(8 * MIB);
    unsigned wrong = 0, value, chance = 1;

    for (unsigned i = 0; i < n; i++) {
        size_t words;
        CUdeviceptr p;

        chance = chance * 1664525 + 1013904223;
        words = (1 + chance / 65536 % 64) * MIB / 4;
        p = get(4 * words);
        OK(cuMemsetD32(p + 4 * words - 4, i, 1));
        OK(cuMemcpyDtoH(&value, p + 4 * words - 4, 4));
        wrong += value != i;
        OK(cuMemFree(p));
    }
    OK(cuMemFree(stays));
    say("wrong: %u", wrong);
}

/* Has at most 320 MiB; then 200, and blocks of 30 in the cache. */
static void too_large(void)
{
    CUdeviceptr stays, blocks[4];

    begin_churn();
    stays = get(200 * MIB);
    for (unsigned i = 0; i < 4; i++)
        blocks[i] = get(30 * MIB);
    for (unsigned i = 0; i < 4; i++)
        OK(cuMemFree(blocks[i]));
    for (unsigned i = 0; i < 4; i++)
        blocks[i] = get(12 * MIB);
    for (unsigned i = 0; i < 4; i++)
        OK(cuMemFree(blocks[i]));
    OK(cuMemFree(stays));
    say("done");
}

/* Natively there are 10 MiB for the code of the kernel. What is cached comes to less than a tenth
 * of what the program has. */
static void full(void)
{
    CUdeviceptr stays, largest, others[2];
    size_t free_bytes, total_bytes;

    OK(cuMemGetInfo(&free_bytes, &total_bytes));
    stays = get(free_bytes - 16 * MIB);
    for (unsigned i = 0; i < 2; i++)
        OK(cuMemFree(get(10 * MIB)));
    largest = get(10 * MIB);
    others[0] = get(4 * MIB);
    OK(cuMemFree(largest));
    others[1] = get(2 * MIB);
    launch_fill(NULL, others[1], 4, 7);
    say("wrong: %u", count_wrong(others[1], 4, 7));
    OK(cuMemFree(others[0]));
    OK(cuMemFree(others[1]));
    OK(cuMemFree(stays));
}

/* The same, where nothing is allocated any more. */
static void was_full(void)
{
    CUdeviceptr blocks[64];
    size_t free_bytes, total_bytes;
    unsigned n;

    OK(cuMemGetInfo(&free_bytes, &total_bytes));
    n = (unsigned)(free_bytes / (2 * MIB));
    for (unsigned i = 0; i < n; i++)
        blocks[i] = get(2 * MIB);
    OK(cuMemFree(blocks[0]));
    blocks[0] = get(2 * MIB);
    for (unsigned i = 0; i < 6; i++)
        OK(cuMemFree(blocks[i]));
    launch_fill(NULL, blocks[6], 4, 7);
    say("wrong: %u", count_wrong(blocks[6], 4, 7));
    for (unsigned i = 6; i < n; i++)
        OK(cuMemFree(blocks[i]));
}

static void waits(void)
{
    static _Atomic uint32_t flag;
    CUdeviceptr p, stays;
    CUstream stream;

    begin_churn();
    stays = get(MIB);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemFree(get(40 * MIB)));
    launch_spin(stream, &flag);
    SAY_CODE("more than may be kept", cuMemAlloc(&p, 60 * MIB));
    atomic_store(&flag, 1);
    OK(cuStreamSynchronize(stream));
    OK(cuMemFree(p));
    OK(cuMemFree(stays));
}

static struct {
    pthread_t thread;
    bool is_started;
    CUcontext context;
    void *(*take)(void *unused); /* NULL: take_most() */
    CUresult code;
} beside_return;

static void *take_most(void *unused)
{
    CUdeviceptr p;

    OK(cuCtxSetCurrent(beside_return.context));
    beside_return.code = cuMemAlloc(&p, 200 * MIB);
    return unused;
}

/* In the other's call that gives back, before the driver has it, if there is one. */
static void begin_beside_return(void)
{
    if (beside_return.is_started)
        return;
    beside_return.is_started = true;
    OK(pthread_create(&beside_return.thread, NULL,
                      beside_return.take ? beside_return.take : take_most, NULL));
    (void)usleep(100 * 1000);
}

/* Of 256 MiB: what was freed before is free, whatever becomes of it. */
static void return_beside(void)
{
    CUdeviceptr p;

    begin_churn();
    OK(cuCtxGetCurrent(&beside_return.context));
    OK(cuMemFree(get(120 * MIB)));
    sim_inside("cuMemFree_v2", false, begin_beside_return);
    SAY_CODE("less than was freed", cuMemAlloc(&p, 24 * MIB));
    begin_beside_return();
    OK(pthread_join(beside_return.thread, NULL));
    sim_inside(NULL, false, NULL);
    SAY_CODE("most of the card", beside_return.code);
}

/* The same, where the cache has no room for what is freed, and what it had goes. */
static void evict_beside(void)
{
    CUdeviceptr p;

    begin_churn();
    OK(cuCtxGetCurrent(&beside_return.context));
    p = get(10 * MIB);
    OK(cuMemFree(get(60 * MIB)));
    sim_inside("cuMemFree_v2", false, begin_beside_return);
    OK(cuMemFree(p));
    begin_beside_return();
    OK(pthread_join(beside_return.thread, NULL));
    sim_inside(NULL, false, NULL);
    SAY_CODE("most of the card", beside_return.code);
}

/* Memory of the device without an address. */
static CUresult create(int device, size_t bytes, CUmemGenericAllocationHandle *ret_handle)
{
    const CUmemAllocationProp shape = {
        CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};

    return cuMemCreate(ret_handle, bytes, &shape, 0);
}

static void *create_most(void *unused)
{
    CUmemGenericAllocationHandle handle;

    OK(cuCtxSetCurrent(beside_return.context));
    beside_return.code = create(0, 200 * MIB, &handle);
    return unused;
}

static void *take_most_async(void *unused)
{
    CUdeviceptr p;

    OK(cuCtxSetCurrent(beside_return.context));
    beside_return.code = cuMemAllocAsync(&p, 200 * MIB, CU_STREAM_PER_THREAD);
    return unused;
}

/* Of a limit, where the driver has room: while the host waits for what it is to give back. */
static void limit_return(void *(*take)(void *unused))
{
    CUdeviceptr p;

    begin_churn();
    OK(cuCtxGetCurrent(&beside_return.context));
    p = get(10 * MIB);
    OK(cuMemFree(get(60 * MIB)));
    launch_fill(NULL, p, 4, 7);
    beside_return.take = take;
    sim_inside("cuEventQuery", false, begin_beside_return);
    OK(cuMemFree(p));
    begin_beside_return();
    OK(pthread_join(beside_return.thread, NULL));
    sim_inside(NULL, false, NULL);
    SAY_CODE("most of the limit", beside_return.code);
}

static void create_beside_return(void)
{
    limit_return(create_most);
}

static void async_beside_return(void)
{
    limit_return(take_most_async);
}

static struct {
    CUcontext context;
    size_t takes; /* bytes */
    CUdeviceptr freed, taken;
    unsigned n_calls; /* of what is short of memory */
    bool is_done;
} beside_free;

/* Takes the room that was made, and frees what is enough, too. */
static void *take_and_free(void *unused)
{
    OK(cuCtxSetCurrent(beside_free.context));
    beside_free.taken = get(beside_free.takes);
    OK(cuMemFree(beside_free.freed));
    return unused;
}

static void free_beside_it(void)
{
    pthread_t other;

    if (beside_free.is_done || ++beside_free.n_calls < 2)
        return;
    beside_free.is_done = true;
    OK(pthread_create(&other, NULL, take_and_free, NULL));
    OK(pthread_join(other, NULL));
}

static void begin_calls_beside(size_t takes)
{
    begin_churn();
    OK(cuCtxGetCurrent(&beside_free.context));
    beside_free.takes = takes;
}

/* Of 160 MiB, the other thread has 60, or what it takes instead, until the call is answered. */
static void begin_beside(const char *symbol)
{
    beside_free.freed = get(60 * MIB);
    OK(cuMemFree(get(beside_free.takes)));
    beside_free.n_calls = 0;
    beside_free.is_done = false;
    sim_inside(symbol, false, free_beside_it);
}

static void end_beside(void)
{
    sim_inside(NULL, false, NULL);
    OK(cuMemFree(beside_free.is_done ? beside_free.taken : beside_free.freed));
}

static void free_beside(void)
{
    CUdeviceptr p;

    begin_calls_beside(92 * MIB);
    begin_beside("cuMemAlloc_v2");
    SAY_CODE("of what is left", cuMemAlloc(&p, 14 * MIB));
    sim_inside(NULL, false, NULL);
}

static void calls_beside(void)
{
    const CUDA_ARRAY_DESCRIPTOR shape = {2048, 1792, CU_AD_FORMAT_FLOAT, 1};
    CUmemGenericAllocationHandle handle;
    size_t pitch;
    CUarray array;
    CUdeviceptr p;

    begin_calls_beside(90 * MIB);
    begin_beside("cuMemCreate");
    SAY_CODE("without an address", create(0, 14 * MIB, &handle));
    end_beside();
    OK(cuMemRelease(handle));
    begin_beside("cuMemAllocPitch_v2");
    SAY_CODE("in rows", cuMemAllocPitch(&p, &pitch, 2 * MIB, 7, 16));
    end_beside();
    OK(cuMemFree(p));
    begin_beside("cuArrayCreate_v2");
    SAY_CODE("an array", cuArrayCreate(&array, &shape));
    end_beside();
    OK(cuArrayDestroy(array));
    begin_beside("cuMemAllocAsync");
    SAY_CODE("in stream order", cuMemAllocAsync(&p, 14 * MIB, NULL));
    end_beside();
    OK(cuMemFreeAsync(p, NULL));
}

/* Under a limit of 160 MiB, where the driver has room: the other thread comes as a block goes back.
 */
static void limit_beside(void)
{
    CUmemGenericAllocationHandle handle;

    begin_calls_beside(90 * MIB);
    begin_beside("cuMemFree_v2");
    beside_free.n_calls = 1;
    SAY_CODE("without an address", create(0, 14 * MIB, &handle));
    end_beside();
    OK(cuMemRelease(handle));
}

/* Rows in a capture, where the pitch is not asked for, under a limit that what was freed takes. */
static void limit_rows(void)
{
    CUstream stream;
    CUgraph graph;
    CUdeviceptr p;
    size_t pitch;

    begin_churn();
    OK(cuMemFree(get(150 * MIB)));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    SAY_CODE("in rows", cuMemAllocPitch(&p, &pitch, 2 * MIB, 7, 16));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuMemFree(p));
}

/* A kernel is loaded when it is first launched. */
static void launch_beside(void)
{
    CUdeviceptr p = get(64);

    begin_calls_beside(90 * MIB);
    begin_beside("cuLaunchKernel");
    launch_fill(NULL, p, 4, 7);
    say("%u wrong", count_wrong(p, 4, 7));
    end_beside();
}

/* One kernel after another, the last of which fills with 6 + n. */
static CUgraph chain(CUstream stream, CUdeviceptr p, unsigned n)
{
    CUgraph graph;

    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    for (unsigned i = 0; i < n; i++)
        launch_fill(stream, p, 4, 7 + i);
    OK(cuStreamEndCapture(stream, &graph));
    return graph;
}

/* A graph is brought to the device when it is first launched. */
static void graph_beside(void)
{
    CUdeviceptr p = get(64);
    CUgraphExec exec;
    CUstream stream;

    begin_calls_beside(90 * MIB);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuGraphInstantiateWithFlags(&exec, chain(stream, p, 7), 0));
    begin_beside("cuGraphLaunch");
    SAY_CODE("launched", cuGraphLaunch(exec, stream));
    end_beside();
    OK(cuStreamSynchronize(stream));
    say("%u wrong", count_wrong(p, 4, 13));
}

/* What a free keeps is given back for whoever asks for memory of that device. */
static void full_elsewhere(void)
{
    const CUmemLocation device = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1};
    const CUmemPoolProps kind = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = device};
    CUmemGenericAllocationHandle handle;
    CUcontext home, other;
    CUmemoryPool pool;
    CUdeviceptr p;

    OK(cuCtxGetCurrent(&home));
    OK(cuDevicePrimaryCtxRetain(&other, 1));
    OK(cuCtxSetCurrent(other));
    begin_churn();
    (void)get(20 * MIB);
    for (unsigned turn = 0; turn < 3; turn++) {
        OK(cuCtxSetCurrent(other));
        OK(cuMemFree(get(12 * MIB)));
        OK(cuCtxSetCurrent(turn == 1 ? NULL : home));
        if (turn == 2) {
            OK(cuMemPoolCreate(&pool, &kind));
            SAY_CODE("a pool's", cuMemAllocFromPoolAsync(&p, 38 * MIB, pool, NULL));
            continue;
        }
        SAY_CODE("without an address", create(1, 38 * MIB, &handle));
        OK(cuMemRelease(handle));
    }
}

/* Takes 20 MiB, and keeps 12 beside them. */
static void take_and_keep(void)
{
    begin_churn();
    (void)get(20 * MIB);
    OK(cuMemFree(get(12 * MIB)));
}

/* Small blocks, or memory without an address, fill the card up to what a free keeps of it. */
static void full_of(bool handles)
{
    CUmemGenericAllocationHandle handle;
    size_t left, total;
    CUdeviceptr p;

    take_and_keep();
    OK(cuMemGetInfo(&left, &total));
    p = get(64);
    for (; !handles && left >= 14 * MIB; left -= 4 * KIB)
        (void)get(4 * KIB);
    for (; left >= 16 * MIB; left -= 2 * MIB)
        OK(create(0, 2 * MIB, &handle));
    launch_fill(NULL, p, 4, 7);
    say("%u wrong", count_wrong(p, 4, 7));
}

/* The driver uploads it then. */
static void full_graph(void)
{
    CUmemGenericAllocationHandle handle;
    CUstream stream;
    CUgraphExec exec;
    CUdeviceptr p;
    size_t left, total;

    take_and_keep();
    p = get(64);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    launch_fill(stream, p, 4, 7);
    OK(cuStreamSynchronize(stream));
    OK(cuMemGetInfo(&left, &total));
    for (; left >= 14 * MIB; left -= 2 * MIB)
        OK(create(0, 2 * MIB, &handle));
    OK(cuGraphInstantiateWithFlags(&exec, chain(stream, p, 8), 0));
    SAY_CODE("launched", cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    say("%u wrong", count_wrong(p, 4, 14));
}

/* The first one of its device makes the primary context. */
static CUresult make_green(int device)
{
    CUdevResource all, part;
    CUdevResourceDesc description;
    CUgreenCtx green;
    unsigned n_groups = 1;

    OK(cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM));
    OK(cuDevSmResourceSplitByCount(&part, &n_groups, &all, NULL, 0, 8));
    OK(cuDevResourceGenerateDesc(&description, &part, 1));
    return cuGreenCtxCreate(&green, description, device, CU_GREEN_CTX_DEFAULT_STREAM);
}

/* Beside what is in use there is room for a second context. */
static void full_context(void)
{
    CUcontext other;

    take_and_keep();
    SAY_CODE("created", cuCtxCreate(&other, NULL, 0, 0));
    OK(cuCtxCreate(&other, NULL, 0, 1));
    take_and_keep();
    SAY_CODE("retained", cuDevicePrimaryCtxRetain(&other, 1));
    OK(cuCtxCreate(&other, NULL, 0, 2));
    take_and_keep();
    SAY_CODE("green", make_green(2));
}

struct asked {
    CUcontext context;
    CUdeviceptr p;
    CUresult code;
};

static void *ask_for_more(void *data)
{
    struct asked *asked = data;

    OK(cuCtxSetCurrent(asked->context));
    asked->code = cuMemAlloc(&asked->p, 80 * MIB);
    return NULL;
}

/* By the thread that captures, in the modes that allow it, and by another one. What was freed has
 * users that run. */
static void full_in_capture(void)
{
    static const CUstreamCaptureMode modes[] = {
        CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED,
        CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL};
    struct asked asked;
    CUdeviceptr stays, p;
    CUstream stream, other;
    pthread_t thread;
    CUgraph graph;

    begin_churn();
    OK(cuCtxGetCurrent(&asked.context));
    stays = get(64 * MIB);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    for (unsigned way = 0; way < 4; way++) {
        p = get(32 * MIB);
        launch_fill(other, p, (unsigned)(32 * MIB / 4), way);
        OK(cuMemFree(p));
        OK(cuStreamBeginCapture(stream, modes[way]));
        launch_fill(stream, stays, 4, 7 + way);
        if (way == 1) {
            (void)ask_for_more(&asked);
        } else {
            OK(pthread_create(&thread, NULL, ask_for_more, &asked));
            OK(pthread_join(thread, NULL));
        }
        SAY_CODE("asked", asked.code);
        SAY_CODE("ended", cuStreamEndCapture(stream, &graph));
        if (asked.code == CUDA_SUCCESS) {
            launch_fill(other, asked.p, (unsigned)(80 * MIB / 4), 3);
            OK(cuStreamSynchronize(other));
            say("wrong: %u", count_wrong(asked.p, (unsigned)(80 * MIB / 4), 3));
            OK(cuMemFree(asked.p));
        }
    }
}

/* A graph is instantiated on a card that is full but for what was freed, whose users still run:
 * meanwhile another thread captures in global mode, which a wait of ours must not end. */
static _Atomic uint32_t runs_on;

struct beside {
    CUcontext context;
    CUgraph graph;
    CUresult code;
};

static void *instantiate_beside(void *data)
{
    struct beside *beside = data;
    CUgraphExec exec;

    OK(cuCtxSetCurrent(beside->context));
    beside->code = cuGraphInstantiateWithFlags(&exec, beside->graph, 0);
    return NULL;
}

static void *let_go(void *unused)
{
    (void)unused;
    (void)usleep(400 * 1000);
    atomic_store(&runs_on, 1);
    return NULL;
}

/* Until nothing more than a page is left. */
static void fill_up(CUgraph small, CUgraph large)
{
    CUmemGenericAllocationHandle handle;
    CUgraphExec exec;

    while (room() >= 2 * MIB && create(0, 2 * MIB, &handle) == CUDA_SUCCESS)
        ;
    while (room() >= 60 * KIB && cuGraphInstantiateWithFlags(&exec, large, 0) == CUDA_SUCCESS)
        ;
    while (room() >= 3 * KIB && cuGraphInstantiateWithFlags(&exec, small, 0) == CUDA_SUCCESS)
        ;
}

static void capture_beside(void)
{
    struct beside beside;
    CUdeviceptr freed, stays;
    pthread_t thread, other;
    CUstream stream, busy;
    CUgraph graph;
    unsigned long n_before;

    begin_churn();
    OK(cuCtxGetCurrent(&beside.context));
    stays = get(MIB);
    OK(cuStreamCreate(&busy, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    beside.graph = chain(stream, stays, 20);
    launch_fill(stream, stays, 4, 1);
    OK(cuStreamSynchronize(stream));
    freed = get(32 * MIB);
    fill_up(chain(stream, stays, 1), beside.graph);
    launch_spin(busy, &runs_on);
    OK(pthread_create(&other, NULL, let_go, NULL));
    OK(cuMemFree(freed));
    n_before = sim_calls("cuGraphInstantiateWithFlags");
    OK(pthread_create(&thread, NULL, instantiate_beside, &beside));
    while (sim_calls("cuGraphInstantiateWithFlags") == n_before)
        (void)usleep(100);
    (void)usleep(100 * 1000);
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    launch_fill(stream, stays, 4, 3);
    (void)usleep(100 * 1000);
    SAY_CODE("ended", cuStreamEndCapture(stream, &graph));
    OK(pthread_join(thread, NULL));
    OK(pthread_join(other, NULL));
    SAY_CODE("instantiated", beside.code);
}

/* Before there is a driver to speak of: what is refused then leaves nothing behind. */
static void create_early(void)
{
    CUmemGenericAllocationHandle handle;

    SAY_CODE("early", create(0, 2 * MIB, &handle));
    device_open();
    for (unsigned i = 0; i < 20; i++)
        OK(cuMemFree(get(MIB)));
    SAY_CODE("late", create(0, 2 * MIB, &handle));
}

/* The driver refuses, and nothing else changes. */
static void destroy_primary(void)
{
    CUdeviceptr small, large, base;
    CUcontext context;
    size_t size;

    begin_churn();
    small = get(4 * KIB);
    large = get(4 * MIB);
    launch_fill(NULL, small, 4, 7);
    launch_fill(NULL, large, 4, 9);
    OK(cuCtxGetCurrent(&context));
    SAY_CODE("destroyed", cuCtxDestroy(context));
    say("%u, %u wrong", count_wrong(small, 4, 7), count_wrong(large, 4, 9));
    OK(cuMemGetAddressRange(&base, &size, small));
    say("of %zu", size);
    OK(cuMemFree(small));
    OK(cuMemFree(large));
}

static const struct part parts[] = {
    {"few", few},
    {"answers", answers},
    {"exported", exported},
    {"devices", devices},
    {"too-large", too_large},
    {"full", full},
    {"full-elsewhere", full_elsewhere},
    {"full-graph", full_graph},
    {"full-context", full_context},
    {"full-capture", full_in_capture},
    {"capture-beside", capture_beside},
    {"destroy", destroy_primary},
    {"was-full", was_full},
    {"waits", waits},
    {"return-beside", return_beside},
    {"evict-beside", evict_beside},
    {"free-beside", free_beside},
    {"calls-beside", calls_beside},
    {"limit-beside", limit_beside},
    {"limit-rows", limit_rows},
    {"create-return", create_beside_return},
    {"async-return", async_beside_return},
    {"launch-beside", launch_beside},
    {"graph-beside", graph_beside},
};

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";

    if (!strcmp(what, "early")) {
        create_early();
        return 0;
    }
    device_open();
    if (RUN_PART(parts, what))
        return 0;
    if (!strcmp(what, "turns"))
        turns((unsigned)atoi(argv[2]));
    else if (!strcmp(what, "threads"))
        threads((unsigned)atoi(argv[2]));
    else if (!strcmp(what, "phases"))
        phases((unsigned)atoi(argv[2]));
    else if (!strcmp(what, "varied"))
        varied((unsigned)atoi(argv[2]));
    else if (!strcmp(what, "full-slabs"))
        full_of(false);
    else if (!strcmp(what, "full-handles"))
        full_of(true);
    else
        return 86;
    return 0;
}
