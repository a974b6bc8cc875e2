/* Pinned memory that is taken and given back again and again: each way to tell native memory from
 * memory that is kept.
 *     pinned answers|wait|early|contexts|apart|capture|broken|cold|idle|hold|eased|large|pairs|fork
 *     pinned room|last
 *     pinned wait|cold|threads|crowd ITERATIONS */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/common/device.h"
#include "tests/common/parts.h"
#include "tests/common/say.h"

#define WORDS 1000
#define BYTES (WORDS * sizeof(uint32_t))

static CUcontext context;

static CUdeviceptr device_of(void *host)
{
    CUdeviceptr p = 0;

    OK(cuMemHostGetDevicePointer(&p, host, 0));
    return p;
}

/* Freed before, so that it is there to be handed out. */
static void warm(size_t bytes, unsigned flags)
{
    void *p;

    OK(cuMemHostAlloc(&p, bytes, flags));
    OK(cuMemFreeHost(p));
}

/* --- answers --- */

static void say_ranges(const char *what, void *host, size_t offset)
{
    CUdeviceptr p = (uintptr_t)host + offset, base = 0;
    size_t size = 0;
    CUcontext owner = NULL;
    unsigned type = 0;

    say("%s", what);
    SAY_CODE("    range", cuMemGetAddressRange(&base, &size, p));
    say("    begins %d, %zu bytes", base == (uintptr_t)host, size);
    SAY_CODE("    base alone", cuMemGetAddressRange(&base, NULL, p));
    size = 0;
    SAY_CODE("    size", cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, p));
    say("    %zu", size);
    SAY_CODE("    context", cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, p));
    say("    %s", owner == context ? "the current one" : owner ? "another" : "none");
    SAY_CODE("    type", cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
    say("    %u", type);
}

static void say_several(void *host, size_t offset)
{
    CUpointer_attribute names[] = {
        CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_HOST_POINTER,
        CU_POINTER_ATTRIBUTE_DEVICE_POINTER};
    size_t size = 7;
    unsigned type = 7;
    int ordinal = 7;
    const char *at = NULL, *device = (char *)host + 7, *asked = (char *)host + offset;
    void *places[] = {&size, &ordinal, &type, &at, &device};

    SAY_CODE("    several", cuPointerGetAttributes(5, names, places, (uintptr_t)asked));
    say("    %zu bytes, ordinal %d, type %u, itself %d, %d", size, ordinal, type, at == asked,
        device == asked);
}

static void say_host(void *host, size_t offset)
{
    char *at = (char *)host + offset;
    CUdeviceptr p = 0;
    unsigned flags = 77;

    SAY_CODE("    flags", cuMemHostGetFlags(&flags, at));
    say("    %u", flags);
    SAY_CODE("    device pointer", cuMemHostGetDevicePointer(&p, at, 0));
    say("    itself %d", p == (uintptr_t)at);
    SAY_CODE("    with flags", cuMemHostGetDevicePointer(&p, at, 1));
}

static void say_all(const char *what, void *host, size_t offset)
{
    say_ranges(what, host, offset);
    say_several(host, offset);
    say_host(host, offset);
}

/* `kept`: of that size, which the second block may be. */
static void question(size_t kept, size_t bytes, unsigned flags)
{
    unsigned long long first = 0, second = 0;
    void *p;

    say("%zu and %zu bytes, flags %u", kept, bytes, flags);
    OK(cuMemHostAlloc(&p, kept, flags));
    OK(cuPointerGetAttribute(&first, CU_POINTER_ATTRIBUTE_BUFFER_ID, (uintptr_t)p));
    OK(cuMemFreeHost(p));
    say_all("freed", p, 0);
    say_all("freed, inside", p, kept - 1);
    SAY_CODE("freed twice", cuMemFreeHost(p));
    SAY_CODE("freed inside", cuMemFreeHost((char *)p + 1));
    SAY_CODE("unregistered", cuMemHostUnregister(p));
    SAY_CODE("as device memory", cuMemFree((uintptr_t)p));
    OK(cuMemHostAlloc(&p, bytes, flags));
    say_all("again", p, 0);
    say_all("again, inside", p, bytes - 1);
    say_all("again, behind", p, bytes);
    OK(cuPointerGetAttribute(&second, CU_POINTER_ATTRIBUTE_BUFFER_ID, (uintptr_t)p));
    say("another buffer %d", first != second);
    SAY_CODE("free inside", cuMemFreeHost((char *)p + 1));
    OK(cuMemFreeHost(p));
}

/* What stays with memory is no later owner's. */
static void altered(void)
{
    unsigned value = 1, is = 7;
    void *p;

    OK(cuMemHostAlloc(&p, BYTES, 0));
    SAY_CODE("set", cuPointerSetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, (uintptr_t)p));
    OK(cuMemFreeHost(p));
    SAY_CODE("set of freed",
             cuPointerSetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, (uintptr_t)p));
    OK(cuMemHostAlloc(&p, BYTES, 0));
    OK(cuPointerGetAttribute(&is, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, (uintptr_t)p));
    say("of another's memory: %u", is & 1);
    OK(cuMemFreeHost(p));
}

static void answers(void)
{
    void *p = (void *)1;

    question(BYTES, BYTES, 0);
    question(4090, 4000, CU_MEMHOSTALLOC_PORTABLE);
    question(1 << 20, (1 << 20) - 5000, CU_MEMHOSTALLOC_DEVICEMAP);
    question(8192, 8192, CU_MEMHOSTALLOC_WRITECOMBINED);
    altered();
    SAY_CODE("nothing", cuMemFreeHost(NULL));
    SAY_CODE("no bytes", cuMemHostAlloc(&p, 0, 0));
    SAY_CODE("no place", cuMemHostAlloc(NULL, 16, 0));
    SAY_CODE("no such flag", cuMemHostAlloc(&p, 16, 1u << 20));
    OK(cuMemAllocHost(&p, 16));
    OK(cuMemFreeHost(p));
    for (unsigned i = 3; i < 32; i++)
        say("flag %u: %d", i, (int)cuMemHostAlloc(&p, 16, 1u << i));
    warm(4096, 0);
    OK(cuCtxSetCurrent(NULL));
    SAY_CODE("without a context", cuMemHostAlloc(&p, 4096, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuMemHostAlloc(&p, 4096, 0));
    OK(cuCtxSetCurrent(NULL));
    SAY_CODE("free without a context", cuMemFreeHost(p));
    OK(cuCtxSetCurrent(context));
    say_all("still there", p, 0);
    SAY_CODE("free", cuMemFreeHost(p));
}

/* --- large blocks --- */

#define LARGE (((size_t)20 << 20) - 5000)

static void say_kind(void *host)
{
    static const CUpointer_attribute kinds[] = {
        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
        CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
        CU_POINTER_ATTRIBUTE_MAPPED,
        CU_POINTER_ATTRIBUTE_ACCESS_FLAGS,
        CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE,
        CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE,
        CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
    };

    for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        CUpointer_attribute kind = kinds[i];
        unsigned long long one = 0, together = 0;
        void *place = &together;

        SAY_CODE("    kind", cuPointerGetAttribute(&one, kind, (uintptr_t)host));
        SAY_CODE("    together", cuPointerGetAttributes(1, &kind, &place, (uintptr_t)host + 5));
        say("    %llu %llu", one, together);
    }
}

static void say_mistakes(char *host)
{
    CUdeviceptr device;

    OK(cuMemAlloc(&device, 4096));
    SAY_CODE("unregistered", cuMemHostUnregister(host));
    SAY_CODE("unregistered, inside", cuMemHostUnregister(host + 4096));
    SAY_CODE("registered", cuMemHostRegister(host, LARGE, 0));
    SAY_CODE("registered, a part", cuMemHostRegister(host + 8192, 4096, 0));
    SAY_CODE("freed inside", cuMemFreeHost(host + 4096));
    SAY_CODE("as device memory", cuMemFree((uintptr_t)host));
    SAY_CODE("copied past its end", cuMemcpyHtoD(device, host + LARGE - 100, 4096));
    SAY_CODE("copied", cuMemcpyHtoD(device, host + LARGE - 4096, 4096));
    OK(cuMemFree(device));
}

/* What is in new memory is nobody's to know (R1147). */
static void say_contents(uint32_t *host)
{
    const uint32_t words = LARGE / sizeof(*host);

    launch_fill(NULL, device_of(host) + 4096, 5000, 7);
    launch_fill(NULL, device_of(host) + LARGE - 4096, 1024, 9);
    OK(cuCtxSynchronize());
    say("wrong words %u %u", wrong_words(host + 1024, 5000, 7),
        wrong_words(host + words - 1024, 1024, 9));
}

/* Memory is shared with a child, or is its own from then on: the parent's is as it was. */
static void say_after_fork(uint32_t *host)
{
    pid_t child = fork();

    if (!child)
        _exit(0);
    say_child(child);
    launch_fill(NULL, device_of(host), 5000, 70);
    OK(cuCtxSynchronize());
    say("wrong words %u", wrong_words(host, 5000, 70));
}

static void large_life(unsigned flags)
{
    char *p;

    say("flags %u", flags);
    OK(cuMemHostAlloc((void **)&p, LARGE, flags));
    say_all("new", p, 0);
    say_all("new, inside", p, LARGE - 1);
    say_all("behind", p, LARGE);
    say_kind(p);
    say_mistakes(p);
    say_contents((uint32_t *)p);
    say_after_fork((uint32_t *)p);
    OK(cuMemFreeHost(p));
    say_all("freed", p, 4096);
    SAY_CODE("freed twice", cuMemFreeHost(p));
    SAY_CODE("unregistered", cuMemHostUnregister(p));
}

static void large_in_context(void)
{
    CUcontext other;
    CUdeviceptr device;
    uint32_t *p, *q;

    OK(cuCtxCreate(&other, NULL, 0, 0));
    OK(cuMemHostAlloc((void **)&p, LARGE, 0));
    OK(cuMemAllocHost((void **)&q, LARGE));
    OK(cuMemFreeHost(q));
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc(&device, 4096)); /* the other context's memory is this one's, too */
    memset(p, 3, 4096);
    OK(cuMemcpyHtoD(device, p, 4096));
    launch_fill(NULL, (uintptr_t)p, 100, 5);
    OK(cuCtxSynchronize());
    say("wrong words %u", wrong_words(p, 100, 5));
    OK(cuCtxDestroy(other));
    say_all("its context is gone", p, 0);
    SAY_CODE("free", cuMemFreeHost(p));
}

/* The context that asked about another one's memory first ends before that one. */
static void large_asked_elsewhere(void)
{
    CUcontext owner, asks;
    char *p;

    OK(cuCtxCreate(&owner, NULL, 0, 0));
    OK(cuMemHostAlloc((void **)&p, LARGE, CU_MEMHOSTALLOC_PORTABLE));
    OK(cuCtxCreate(&asks, NULL, 0, 0));
    say("asked elsewhere");
    say_kind(p);
    OK(cuCtxDestroy(asks));
    OK(cuCtxSetCurrent(owner));
    say("asked where it is from");
    say_kind(p);
    SAY_CODE("unregistered", cuMemHostUnregister(p));
    SAY_CODE("free", cuMemFreeHost(p));
    OK(cuCtxDestroy(owner));
    OK(cuCtxSetCurrent(context));
}

/* However many contexts there are, the driver allocates nothing when it is asked again. */
static void large_asked_of_many(void)
{
    enum { N = 7 };
    CUcontext contexts[N];
    unsigned long before;
    void *p;

    for (unsigned i = 0; i < 5 * N; i++) {
        if (i % 5 == 0)
            OK(cuCtxCreate(&contexts[i / 5], NULL, 0, 0));
        OK(i % 5 == 4 ? cuMemAllocHost(&p, LARGE) : cuMemHostAlloc(&p, LARGE, i % 5));
        if (i == 5 * N - 1)
            break;
        say_kind(p);
        OK(cuMemFreeHost(p));
    }
    say_kind(p);
    before = sim_calls("cuMemAllocHost_v2");
    say_kind(p);
    say("allocations meanwhile: %lu", sim_calls("cuMemAllocHost_v2") - before);
    for (unsigned i = 0; i < N; i++)
        OK(cuCtxDestroy(contexts[i]));
    OK(cuCtxSetCurrent(context));
}

static void large(void)
{
    void *p;

    for (unsigned flags = 0; flags < 5; flags++)
        large_life(flags);
    question(LARGE, LARGE - 5000, 0);
    OK(cuMemAllocHost(&p, LARGE));
    say_host(p, 4096);
    SAY_CODE("free", cuMemFreeHost(p));
    large_asked_elsewhere();
    large_in_context();
}

/* --- waits --- */

/* Whoever frees pinned memory has waited for all work, on every stream. */
static void wait_of_free(unsigned iterations)
{
    CUstream stream;
    uint32_t *seen;
    void *other;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAllocHost((void **)&seen, BYTES));
    for (uint32_t i = 0; i < iterations; i++) {
        OK(cuMemAllocHost(&other, BYTES));
        if (i % 3 != 2)
            launch_fill(i % 3 ? stream : NULL, device_of(seen), WORDS, 100 * i);
        else
            launch_fill(stream, device_of(other), WORDS, 7);
        OK(cuMemFreeHost(other));
        say("wrong words %u", i % 3 == 2 ? 0 : wrong_words(seen, WORDS, 100 * i));
    }
    OK(cuMemFreeHost(seen));
}

static _Atomic uint32_t may_end;

static void *end_soon(void *unused)
{
    (void)usleep(100000);
    atomic_store(&may_end, 1);
    return unused;
}

/* A kernel waits, and writes to the block behind that, when the block has been freed. `fast`: the
 * free need not wait; then the block is nobody's until it has. */
static void early(void)
{
    pthread_t ends;
    CUstream stream;
    uint32_t *words;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAllocHost((void **)&words, BYTES));
    for (unsigned i = 0; i < 3; i++) {
        atomic_store(&may_end, 0);
        launch_spin(stream, &may_end);
        launch_fill(stream, device_of(words), WORDS, 5000);
        OK(pthread_create(&ends, NULL, end_soon, NULL));
        OK(cuMemFreeHost(words));
        OK(cuMemAllocHost((void **)&words, BYTES));
        for (uint32_t k = 0; k < WORDS; k++)
            words[k] = k;
        OK(pthread_join(ends, NULL));
        OK(cuStreamSynchronize(stream));
        say("wrong words %u", wrong_words(words, WORDS, 0));
    }
    OK(cuMemFreeHost(words));
}

/* --- contexts --- */

static void contexts(void)
{
    CUcontext other, primary;
    CUstream stream;
    uint32_t *words;
    void *p, *left;

    warm(BYTES, 0);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAllocHost((void **)&words, BYTES));
    OK(cuCtxCreate(&other, NULL, 0, 0));
    for (unsigned i = 0; i < 4; i++) { /* a free waits for the work where the memory was made */
        OK(cuCtxSetCurrent(context));
        OK(cuMemHostAlloc(&p, BYTES, 0));
        launch_fill(stream, device_of(words), WORDS, i);
        OK(cuCtxSetCurrent(other));
        OK(cuMemFreeHost(p));
        say("wrong words %u", wrong_words(words, WORDS, i));
        OK(cuMemHostAlloc(&p, BYTES, 0));
        OK(cuMemFreeHost(p));
    }
    OK(cuMemHostAlloc(&left, BYTES, 0));
    context = other;
    say_ranges("of the second context", left, 0);
    OK(cuCtxDestroy(other));
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    OK(cuCtxSetCurrent(primary));
    context = primary;
    say_all("its context is gone", left, 0);
    SAY_CODE("free", cuMemFreeHost(left));
    OK(cuMemHostAlloc(&p, BYTES, 0));
    say_ranges("of the first", p, 0);
    memset(p, 1, BYTES);
    OK(cuDevicePrimaryCtxReset(0));
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    OK(cuCtxSetCurrent(primary));
    say_all("after a reset", p, 0);
    OK(cuMemHostAlloc(&p, BYTES, 0));
    memset(p, 2, BYTES);
    SAY_CODE("free", cuMemFreeHost(p));
}

/* Ends the kernel, unless the frees have returned before long. */
static void *end_late(void *waited)
{
    for (unsigned i = 0; i < 1000 && !atomic_load(&may_end); i++)
        (void)usleep(10000);
    *(bool *)waited = !atomic_exchange(&may_end, 1);
    return NULL;
}

/* A kernel of one context waits for the host, while memory of another is freed that is not idle
 * either: natively such a free waits for nothing of the first. */
static void apart(void)
{
    CUstream stream, there;
    bool waited = false;
    CUcontext other;
    CUdeviceptr p;
    pthread_t ends;
    void *host[3];

    warm(BYTES, 0);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuCtxCreate(&other, NULL, 0, 0));
    OK(cuStreamCreate(&there, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&p, BYTES));
    for (unsigned i = 0; i < 3; i++)
        OK(cuMemHostAlloc(&host[i], BYTES, 0));
    OK(cuCtxSetCurrent(context));
    launch_spin(stream, &may_end);
    OK(pthread_create(&ends, NULL, end_late, &waited));
    for (unsigned i = 0; i < 3; i++) { /* whatever is current */
        OK(cuCtxSetCurrent(other));
        OK(cuMemsetD32Async(p, i, WORDS, there));
        if (i == 1)
            OK(cuCtxSetCurrent(context));
        OK(cuMemFreeHost(host[i]));
    }
    atomic_store(&may_end, 1);
    OK(pthread_join(ends, NULL));
    say("waited for the other context: %d", waited);
    OK(cuCtxSetCurrent(context));
    OK(cuStreamSynchronize(stream));
}

/* --- captures --- */

static void captured(CUstreamCaptureMode mode, bool frees)
{
    CUgraph graph = NULL;
    CUstream stream;
    void *p, *q = NULL;

    say("mode %d", (int)mode);
    warm(BYTES, 0);
    OK(cuMemHostAlloc(&p, 4 * BYTES, 0));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture(stream, mode));
    if (frees)
        SAY_CODE("free", cuMemFreeHost(p));
    else
        SAY_CODE("alloc", cuMemHostAlloc(&q, BYTES, 0));
    say_host(p, 0);
    SAY_CODE("end", cuStreamEndCapture(stream, &graph));
    SAY_CODE("free later", cuMemFreeHost(q ? q : p));
    OK(cuStreamDestroy(stream));
}

static void captures(void)
{
    const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL,
                                         CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                         CU_STREAM_CAPTURE_MODE_RELAXED};

    for (unsigned i = 0; i < 6; i++)
        captured(modes[i % 3], i < 3);
}

/* --- an error that stays --- */

/* `known`: before the free, whose own wait finds it otherwise. */
static void broken(bool known)
{
    CUdeviceptr p;
    void *host;

    warm(BYTES, 0);
    OK(cuMemHostAlloc(&host, 2 * BYTES, 0));
    OK(cuMemAlloc(&p, 4096));
    launch_fill(NULL, p + ((CUdeviceptr)1 << 40), 10, 1);
    if (known)
        SAY_CODE("wait", cuCtxSynchronize());
    SAY_CODE("free", cuMemFreeHost(host));
    SAY_CODE("alloc", cuMemHostAlloc(&host, BYTES, 0));
    SAY_CODE("free again", cuMemFreeHost(host));
}

/* --- many sizes, and calls of the driver --- */

static void cold(unsigned iterations)
{
    unsigned long before = sim_calls("cuMemHostAlloc"), freed = sim_calls("cuMemFreeHost");
    unsigned long any = 0;
    void *p[8];

    for (unsigned i = 0; i < iterations; i++) {
        for (unsigned k = 0; k < 8; k++)
            OK(cuMemHostAlloc(&p[k], (size_t)4096 << k, k % 4));
        any = sim_calls("*");
        for (unsigned k = 0; k < 8; k++)
            OK(cuMemFreeHost(p[k]));
    }
    say("calls: %lu allocations, %lu frees, %lu while freeing the last",
        sim_calls("cuMemHostAlloc") - before, sim_calls("cuMemFreeHost") - freed,
        sim_calls("*") - any);
}

/* Half of what was freed is wanted again, before and after some seconds. */
static void idle(void)
{
    void (*pass)(int);
    void *p[8];

    *(void **)&pass = dlsym(RTLD_DEFAULT, "fake_pass");
    for (unsigned k = 0; k < 8; k++)
        OK(cuMemHostAlloc(&p[k], (size_t)4096 << k, 0));
    for (unsigned k = 0; k < 8; k++)
        OK(cuMemFreeHost(p[k]));
    for (unsigned i = 0; i < 4; i++) {
        if (pass)
            pass(6);
        for (unsigned k = 0; k < 8; k += 2)
            warm((size_t)4096 << k, 0);
    }
    say("calls: %lu frees", sim_calls("cuMemFreeHost"));
}

static void count_pairs(const char *what)
{
    unsigned long before = sim_calls("*");

    for (unsigned i = 0; i < 100; i++)
        warm(BYTES, 0);
    if (what)
        say("%s: 100 pairs, %lu calls of the driver", what, sim_calls("*") - before);
}

/* Calls of pairs, when all that was submitted is done. */
static void pairs(void)
{
    CUstream one, other;
    CUdeviceptr p;

    OK(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&p, BYTES));
    warm(BYTES, 0);
    launch_fill(one, p, WORDS, 1);
    launch_fill(other, p, WORDS, 1);
    OK(cuCtxSynchronize());
    count_pairs(NULL); /* what is made once is made */
    count_pairs("at first");
    launch_fill(one, p, WORDS, 1);
    OK(cuCtxSynchronize());
    count_pairs("one stream");
    launch_fill(one, p, WORDS, 1);
    launch_fill(other, p, WORDS, 1);
    OK(cuCtxSynchronize());
    count_pairs("two streams");
}

/* A host that is short of memory, and has some again. */
static void ease(void)
{
    const char *host = getenv("FAKE_HOST");
    char path[4096];
    FILE *file;

    if (!host)
        return;
    (void)snprintf(path, sizeof(path), "%s/proc/meminfo", host);
    file = fopen(path, "w");
    if (!file || fprintf(file, "MemTotal: 1000000 kB\nMemAvailable: 900000 kB\n") < 0 ||
        fclose(file))
        abort();
}

static void say_frees(const char *when)
{
    unsigned long before = sim_calls("cuMemFreeHost");

    for (unsigned i = 0; i < 4; i++)
        warm(BYTES, 0);
    say("%s: %lu of 4 frees", when, sim_calls("cuMemFreeHost") - before);
}

static void eased(void)
{
    void (*pass)(int);

    *(void **)&pass = dlsym(RTLD_DEFAULT, "fake_pass");
    say_frees("short");
    ease();
    say_frees("at once");
    if (pass)
        pass(2);
    say_frees("later");
}

/* Until its input ends. */
static void hold(void)
{
    warm(1 << 20, 0);
    say("ready");
    while (getchar() != EOF)
        ;
}

/* --- threads --- */

static unsigned n_iterations;

static uint32_t turn(CUstream stream, unsigned number, unsigned i)
{
    const uint32_t words = 100u << (i * 7 + number) % 5;
    uint32_t *p, wrong, value = number * 100000 + i;

    OK(cuMemHostAlloc((void **)&p, words * sizeof(*p), i % 4 & 3));
    for (uint32_t k = 0; k < words; k++)
        p[k] = 0;
    launch_fill(stream, device_of(p), words, value);
    OK(cuStreamSynchronize(stream));
    wrong = wrong_words(p, words, value);
    if (i % 3 == 0)
        launch_fill(stream, device_of(p), words, 1); /* still under way when it is freed */
    OK(cuMemFreeHost(p));
    return wrong;
}

static void *pins_and_frees(void *number)
{
    uint32_t wrong = 0;
    CUstream stream;

    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; i < n_iterations; i++)
        wrong += turn(stream, (unsigned)(uintptr_t)number, i);
    OK(cuStreamSynchronize(stream));
    return (void *)(uintptr_t)wrong;
}

/* With `crowded`, four threads have one processor. */
static void threads(unsigned iterations, bool crowded)
{
    pthread_t thread[4];
    uintptr_t wrong = 0;
    void *each;

    n_iterations = iterations;
    for (uintptr_t i = 0; i < 4; i++)
        OK(pthread_create(&thread[i], NULL, pins_and_frees, (void *)i));
    for (unsigned i = 0; i < 4; i++) {
        OK(pthread_join(thread[i], &each));
        wrong += (uintptr_t)each;
    }
    say("wrong words %u", (unsigned)wrong);
    if (crowded)
        say("waits in the driver for an event: %lu", sim_calls("cuEventSynchronize"));
}

static void get_crowded(void)
{
    cpu_set_t one;

    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    if (sched_setaffinity(0, sizeof(one), &one))
        abort();
}

/* --- fork, and a host without room --- */

static void forks(void)
{
    void *p, *q;
    pid_t child;

    warm(BYTES, 0);
    OK(cuMemHostAlloc(&p, 2 * BYTES, 0));
    child = fork();
    if (!child) {
        SAY_CODE("child's free", cuMemFreeHost(p));
        SAY_CODE("child's alloc", cuMemHostAlloc(&q, BYTES, 0));
        _exit(0);
    }
    say_child(child);
    SAY_CODE("free", cuMemFreeHost(p));
}

/* Of several blocks that no work may use, the one that was freed last is handed out. */
static void last(void)
{
    void *p[3], *again;

    for (unsigned i = 0; i < 3; i++)
        OK(cuMemHostAlloc(&p[i], BYTES, 0));
    for (unsigned i = 0; i < 3; i++)
        OK(cuMemFreeHost(p[i]));
    for (unsigned i = 0; i < 3; i++) {
        OK(cuMemHostAlloc(&again, BYTES, 0));
        say("the last: %d", again == p[2]);
        OK(cuMemFreeHost(again));
    }
}

static void room(void)
{
    static char registered[8192];
    CUdeviceptr managed;
    void *p;

    warm(BYTES, 0);
    SAY_CODE("pinned", cuMemHostAlloc(&p, 64 * BYTES, 0));
    warm(BYTES, 0);
    SAY_CODE("registered", cuMemHostRegister(registered, sizeof(registered), 0));
    warm(BYTES, 0);
    SAY_CODE("managed", cuMemAllocManaged(&managed, BYTES, CU_MEM_ATTACH_GLOBAL));
}

static const struct part parts[] = {
    {"answers", answers},
    {"early", early},
    {"contexts", contexts},
    {"apart", apart},
    {"capture", captures},
    {"large", large},
    {"hold", hold},
    {"eased", eased},
    {"pairs", pairs},
    {"idle", idle},
    {"last", last},
    {"fork", forks},
    {"many", large_asked_of_many},
};

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "answers";
    unsigned iterations = argc > 2 ? (unsigned)atoi(argv[2]) : 12;

    if (!strcmp(what, "crowd"))
        get_crowded();
    context = device_open();
    if (RUN_PART(parts, what))
        return 0;
    if (!strcmp(what, "wait"))
        wait_of_free(iterations);
    else if (!strcmp(what, "broken"))
        broken(argc == 2);
    else if (!strcmp(what, "cold"))
        cold(iterations);
    else if (!strcmp(what, "threads") || !strcmp(what, "crowd"))
        threads(iterations, *what == 'c');
    else
        room();
    return 0;
}
