/* What a program sees of small blocks, which are cut from slabs:
 *     slabs answers      each block's own range, attributes, codes; bytes of neighbours
 *     slabs sync         SYNC_MEMOPS of one of them
 *     slabs sync-large   of a block that is none of them, and what comes after it
 *     slabs sync-in-capture    the same, freed while a stream captures
 *     slabs contexts     a second context, its end, a reset, with small blocks in each
 *     slabs full         the card full of small blocks, then of one large one
 *     slabs parts        slabs of which a little is in use, and all that is said to be free
 *     slabs captures     allocated and freed while a stream captures
 *     slabs async        freed in stream order
 *     slabs threads N    N threads that come and go, each with a few blocks
 *     slabs codes N      N allocations of 4 KiB, what each returns
 *     slabs cold N       N small blocks before anything is freed, then all are
 *     slabs advice       cuMemAdvise of one small block
 *     slabs mixed        sizes below and above what is cut, freed in another order */
#include <pthread.h>
#include <stdlib.h>

#include "tests/common/chance.h"
#include "tests/common/device.h"
#include "tests/common/parts.h"
#include "tests/common/say.h"

#define KIB  ((size_t)1 << 10)
#define MIB  (KIB << 10)
#define MANY 200u

static CUcontext context;

static CUdeviceptr get(size_t bytes)
{
    CUdeviceptr p;

    OK(cuMemAlloc(&p, bytes));
    return p;
}

static size_t room(void)
{
    size_t left, total;

    OK(cuMemGetInfo(&left, &total));
    return left;
}

static size_t size_of(unsigned i)
{
    static const size_t sizes[] = {100, 4096, 16384, 65536, 1, 20000, 512, 65000};

    return sizes[i % 8] - i / 8 % (i % 8 == 4 ? 1 : 90);
}

/* --- each one's own --- */

struct facts {
    CUdeviceptr start;
    size_t size, attribute_size;
    CUcontext context;
    unsigned long long id, pool, handles;
    unsigned type, ipc;
    int device;
};

static void ask(CUdeviceptr p, struct facts *facts)
{
    CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                   CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    CUdeviceptr start = 0;
    size_t size = 0;
    void *places[] = {&start, &size};

    memset(facts, 0, sizeof(*facts));
    OK(cuMemGetAddressRange(&facts->start, &facts->size, p));
    OK(cuPointerGetAttribute(&facts->attribute_size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, p));
    OK(cuPointerGetAttribute(&facts->context, CU_POINTER_ATTRIBUTE_CONTEXT, p));
    OK(cuPointerGetAttribute(&facts->id, CU_POINTER_ATTRIBUTE_BUFFER_ID, p));
    OK(cuPointerGetAttribute(&facts->pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p));
    OK(cuPointerGetAttribute(&facts->handles, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, p));
    OK(cuPointerGetAttribute(&facts->type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
    OK(cuPointerGetAttribute(&facts->ipc, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, p));
    OK(cuPointerGetAttribute(&facts->device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p));
    OK(cuPointerGetAttributes(2, names, places, p));
    if (start != facts->start || size != facts->attribute_size)
        say("several attributes at once differ");
    OK(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, p));
    if (start != facts->start)
        say("the start differs");
}

static void say_facts(CUdeviceptr p, size_t bytes)
{
    struct facts first, last;

    ask(p, &first);
    ask(p + bytes - 1, &last);
    say("%zu: starts %d, size %zu %zu, context %d, pool %d, handles %llu, type %u, device %d, "
        "aligned %d, the same "
        "at its end %d",
        bytes, first.start == p, first.size, first.attribute_size, first.context == context,
        first.pool != 0, first.handles, first.type, first.device, p % 512 == 0,
        !memcmp(&first, &last, sizeof(first)));
    say("kind: ipc %u", first.ipc & 1);
}

static void say_mistakes(CUdeviceptr p, size_t bytes)
{
    size_t size;
    unsigned type;

    if (bytes > 1)
        SAY_CODE("free inside", cuMemFree(p + bytes / 2));
    SAY_CODE("free", cuMemFree(p));
    SAY_CODE("free again", cuMemFree(p));
    SAY_CODE("range", cuMemGetAddressRange(NULL, &size, p));
    SAY_CODE("attribute", cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
}

static void answers(void)
{
    static CUdeviceptr blocks[MANY];
    static unsigned long long ids[MANY];
    unsigned n_wrong = 0, n_same = 0;
    struct facts facts;

    for (unsigned i = 0; i < MANY; i++) {
        blocks[i] = get(size_of(i));
        OK(cuMemsetD8(blocks[i], (unsigned char)i, size_of(i)));
    }
    for (unsigned i = 0; i < MANY; i++) {
        unsigned char byte[2] = {0};

        if (i < 24)
            say_facts(blocks[i], size_of(i));
        ask(blocks[i], &facts);
        ids[i] = facts.id;
        for (unsigned k = 0; k < i; k++)
            n_same += ids[k] == ids[i];
        OK(cuMemcpyDtoH(byte, blocks[i], 1));
        OK(cuMemcpyDtoH(byte + 1, blocks[i] + size_of(i) - 1, 1));
        n_wrong += byte[0] != (unsigned char)i || byte[1] != (unsigned char)i;
    }
    say("ids that are another's: %u, wrong bytes: %u", n_same, n_wrong);
    for (unsigned i = 0; i < MANY; i += 2)
        say_mistakes(blocks[i], size_of(i));
    for (unsigned i = 1; i < MANY; i += 2) { /* their neighbours are gone */
        ask(blocks[i], &facts);
        n_wrong += facts.start != blocks[i] || facts.size != size_of(i) || facts.id != ids[i];
        OK(cuMemFree(blocks[i]));
    }
    say("wrong answers: %u", n_wrong);
    SAY_CODE("long gone", cuMemFree(blocks[1]));
    SAY_CODE("long gone", cuMemFree(blocks[0]));
}

/* --- SYNC_MEMOPS --- */

static int is_sync(CUdeviceptr p)
{
    unsigned on = 0;

    OK(cuPointerGetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
    return (int)(on & 1);
}

static void sync_memops(void)
{
    CUdeviceptr blocks[8], before[4];
    unsigned on = 1, off = 0, n_again = 0;

    for (unsigned i = 0; i < 8; i++)
        blocks[i] = get(4096);
    say("ours: before %d", is_sync(blocks[0]));
    SAY_CODE("on", cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, blocks[0]));
    SAY_CODE("off", cuPointerSetAttribute(&off, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, blocks[1] + 100));
    SAY_CODE("nothing", cuPointerSetAttribute(NULL, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, blocks[1]));
    SAY_CODE("another", cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, blocks[1]));
    say("ours: %d %d %d", is_sync(blocks[0]), is_sync(blocks[1]), is_sync(blocks[2]));
    for (unsigned i = 0; i < 4; i++) {
        before[i] = blocks[i];
        OK(cuMemFree(blocks[i]));
    }
    for (unsigned i = 0; i < 4; i++) {
        blocks[i] = get(4096);
        for (unsigned k = 0; k < 4; k++)
            n_again += before[k] == blocks[i];
    }
    say("ours: handed out again %u", n_again);
    for (unsigned i = 0; i < 8; i++)
        OK(cuMemFree(blocks[i]));
    say("done");
}

static void sync_large(void)
{
    unsigned on = 1;

    for (unsigned i = 0; i < 4; i++) {
        CUdeviceptr p = get(300000);

        say("before %d", is_sync(p));
        OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
        say("set %d", is_sync(p));
        OK(cuMemFree(p));
    }
}

/* The last piece of its slab, while the slab itself cannot be given back. */
static void sync_in_capture(void)
{
    CUdeviceptr p = get(4096), large[4];
    unsigned on = 1;
    CUstream stream;
    CUgraph graph;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemFree(get(300000)));
    OK(cuMemFree(get(300000)));
    OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    SAY_CODE("freed", cuMemFree(p));
    SAY_CODE("ended", cuStreamEndCapture(stream, &graph));
    for (unsigned i = 0; i < 4; i++)
        large[i] = get(2 * MIB);
    for (unsigned i = 0; i < 4; i++)
        OK(cuMemFree(large[i]));
}

/* --- contexts --- */

static void contexts(void)
{
    CUdeviceptr here[20], there[20], after;
    CUcontext second;
    struct facts facts;
    CUdevice device;

    OK(cuCtxGetDevice(&device));
    for (unsigned i = 0; i < 20; i++)
        here[i] = get(4096);
    OK(cuCtxCreate(&second, NULL, 0, device));
    for (unsigned i = 0; i < 20; i++)
        there[i] = get(4096);
    ask(there[3], &facts);
    say("its own: %d", facts.context == second);
    OK(cuMemFree(here[0])); /* of the context that is not current */
    OK(cuMemFree(there[0]));
    after = get(4096);
    ask(after, &facts);
    say("its own: %d", facts.context == second);
    OK(cuCtxSetCurrent(context));
    ask(there[7], &facts);
    say("the other's: %d", facts.context == second);
    OK(cuCtxDestroy(second));
    OK(cuCtxSetCurrent(context));
    SAY_CODE("gone with it", cuMemFree(there[7]));
    for (unsigned i = 1; i < 20; i++) {
        ask(here[i], &facts);
        if (facts.context != context || facts.start != here[i])
            say("block %u is another", i);
    }
    OK(cuDevicePrimaryCtxReset(device));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    SAY_CODE("gone with the reset", cuMemFree(here[4]));
    after = get(4096);
    ask(after, &facts);
    say("its own: %d", facts.context == context);
    OK(cuMemFree(after));
    say("the bytes are back: %zu", sim_bytes_in_use(0) > 2 * MIB ? sim_bytes_in_use(0) : 0);
}

/* --- how much there is --- */

static void full(void)
{
    static CUdeviceptr blocks[40000];
    size_t before = room(), during, after;
    unsigned n = 0;
    CUdeviceptr large;

    while (n < 40000 && cuMemAlloc(&blocks[n], 30000) == CUDA_SUCCESS)
        n++;
    during = room();
    say("full: %d, nothing is left: %d", n < 40000, during < 4 * MIB);
    for (unsigned i = 0; i < n; i += 2)
        OK(cuMemFree(blocks[i]));
    SAY_CODE("half of each page is in use", cuMemAlloc(&large, before / 2));
    for (unsigned i = 1; i < n; i += 2)
        OK(cuMemFree(blocks[i]));
    after = room();
    say("the room is back: %d", after + 4 * MIB >= before);
    SAY_CODE("one large one", cuMemAlloc(&large, before - 4 * MIB));
    OK(cuMemFree(large));
    SAY_CODE("a small one", cuMemAlloc(&blocks[0], 100));
    OK(cuMemFree(blocks[0]));
}

/* What is in use is only in part free: a program that takes all it is told there is gets it. */
static void parts(void)
{
    static CUdeviceptr blocks[1000];
    CUdeviceptr large;

    for (unsigned i = 0; i < 1000; i++)
        blocks[i] = get(30000);
    for (unsigned i = 0; i < 2; i++) /* from here on, what is freed is kept */
        OK(cuMemFree(get(100)));
    for (unsigned i = 0; i < 1000; i++) {
        if (i % 100)
            OK(cuMemFree(blocks[i]));
    }
    SAY_CODE("all that is said to be free", cuMemAlloc(&large, room() / (2 * MIB) * (2 * MIB)));
    for (unsigned i = 0; i < 1000; i += 100)
        OK(cuMemFree(blocks[i]));
}

/* --- captures --- */

static void captures(void)
{
    CUdeviceptr blocks[10], p;
    CUstreamCaptureStatus status;
    CUstream stream;
    CUgraph graph;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; i < 10; i++)
        blocks[i] = get(4096);
    for (unsigned mode = 0; mode < 3; mode++) {
        OK(cuStreamBeginCapture(stream, (CUstreamCaptureMode)mode));
        OK(cuMemsetD8Async(blocks[9], 1, 4096, stream));
        SAY_CODE("allocated", cuMemAlloc(&p, 4096));
        SAY_CODE("freed", cuMemFree(blocks[mode]));
        OK(cuStreamIsCapturing(stream, &status));
        say("status %d", (int)status);
        SAY_CODE("ended", cuStreamEndCapture(stream, &graph));
    }
    p = get(4096);
    OK(cuMemsetD8(p, 3, 4096));
    for (unsigned i = 3; i < 10; i++)
        OK(cuMemFree(blocks[i]));
    say("done");
}

/* --- stream order --- */

static void async(void)
{
    CUdeviceptr blocks[10];
    CUstream stream;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; i < 10; i++)
        blocks[i] = get(4096);
    OK(cuMemsetD8Async(blocks[0], 1, 4096, stream));
    OK(cuStreamSynchronize(stream)); /* with work pending the driver may lock up natively */
    SAY_CODE("freed", cuMemFreeAsync(blocks[0], stream));
    for (unsigned i = 1; i < 10; i++)
        OK(cuMemFree(blocks[i]));
    SAY_CODE("again", cuMemFree(blocks[5]));
}

/* --- threads --- */

static void *a_few(void *number)
{
    CUdeviceptr blocks[3];
    unsigned first = (unsigned)(uintptr_t)number;

    OK(cuCtxSetCurrent(context));
    for (unsigned i = 0; i < 3; i++) {
        blocks[i] = get(1000 * (i + 1));
        OK(cuMemsetD32(blocks[i], first + i, 250));
    }
    for (unsigned i = 0; i < 3; i++) {
        uint32_t words[250];

        OK(cuMemcpyDtoH(words, blocks[i], sizeof(words)));
        if (words[0] != first + i || words[249] != first + i)
            say("another's bytes");
        OK(cuMemFree(blocks[i]));
    }
    return NULL;
}

static void threads(unsigned n)
{
    pthread_t all[16];

    for (unsigned done = 0; done < n; done += 16) {
        for (uintptr_t i = 0; i < 16; i++)
            CHECK(!pthread_create(&all[i], NULL, a_few, (void *)(i * 3 + done)));
        for (unsigned i = 0; i < 16; i++)
            CHECK(!pthread_join(all[i], NULL));
    }
    say("done");
}

/* --- the rest --- */

static void codes(unsigned n)
{
    CUdeviceptr p = 0;

    for (unsigned i = 0; i < n; i++)
        SAY_CODE("alloc", cuMemAlloc(&p, 4096));
}

static void cold(unsigned n)
{
    CUdeviceptr blocks[1000], base;
    unsigned n_wrong = 0;
    size_t bytes;

    if (n > 1000)
        n = 1000;
    for (uint32_t i = 0; i < n; i++) {
        blocks[i] = get(512 + i % 7 * 1000);
        OK(cuMemsetD32(blocks[i], i, 128));
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t word;

        OK(cuMemcpyDtoH(&word, blocks[i] + 508, sizeof(word)));
        OK(cuMemGetAddressRange(&base, &bytes, blocks[i] + 511));
        n_wrong += word != i || base != blocks[i];
        OK(cuMemFree(blocks[i]));
        SAY_CODE("again", cuMemFree(blocks[i]));
    }
    say("wrong: %u", n_wrong);
}

static void advice(void)
{
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
    CUdeviceptr blocks[8];

    for (unsigned i = 0; i < 8; i++)
        blocks[i] = get(65536);
    SAY_CODE("advice", cuMemAdvise(blocks[3], 65536, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, here));
    SAY_CODE("prefetch", cuMemPrefetchAsync(blocks[3], 65536, here, 0, NULL));
    OK(cuCtxSynchronize());
    for (unsigned i = 0; i < 8; i++)
        OK(cuMemFree(blocks[i]));
}

/* In slabs there are holes of every size by then. */
static void mixed(void)
{
    static CUdeviceptr blocks[400];
    static uint32_t words[400];
    uint64_t state = 9;
    unsigned n_wrong = 0;

    for (unsigned turn = 0; turn < 4000; turn++) {
        unsigned i = (unsigned)chance_below(&state, 400);
        size_t bytes = 4 + chance_below(&state, chance_below(&state, 4) ? 9000 : 100000);
        uint32_t word;

        if (blocks[i]) {
            OK(cuMemcpyDtoH(&word, blocks[i], sizeof(word)));
            n_wrong += word != words[i];
            OK(cuMemFree(blocks[i]));
        }
        blocks[i] = turn % 3 == 2 ? 0 : get(bytes);
        words[i] = turn;
        if (blocks[i])
            OK(cuMemsetD32(blocks[i], turn, bytes / 4));
    }
    for (unsigned i = 0; i < 400; i++) {
        if (blocks[i])
            OK(cuMemFree(blocks[i]));
    }
    say("wrong: %u", n_wrong);
}

/* By default native blocks are cut once the program allocates after a free. */
static void churn(void)
{
    CUdeviceptr p;

    for (unsigned i = 0; i < 2; i++) {
        OK(cuMemAlloc(&p, 1 << 20));
        OK(cuMemFree(p));
    }
}

static const struct part all[] = {
    {"answers", answers},       {"sync", sync_memops},
    {"sync-large", sync_large}, {"sync-in-capture", sync_in_capture},
    {"contexts", contexts},     {"full", full},
    {"parts", parts},           {"captures", captures},
    {"async", async},           {"advice", advice},
};

int main(int argc, char **argv)
{
    const char *part = argc > 1 ? argv[1] : "";
    unsigned n = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;

    context = device_open();
    if (strcmp(part, "codes") != 0 &&
        strcmp(part, "cold") != 0) /* what that is told is of a process that has just begun */
        churn();
    if (RUN_PART(all, part))
        return 0;
    if (!strcmp(part, "threads"))
        threads(n);
    else if (!strcmp(part, "codes"))
        codes(n);
    else if (!strcmp(part, "cold"))
        cold(n);
    else
        mixed();
    return 0;
}
