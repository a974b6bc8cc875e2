/* Copies between the device and memory that is not pinned, of every kind, which the program changes
 * or looks at as soon as each call returns. Its argument says what it does. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "tests/common/device.h"
#include "tests/common/parts.h"
#include "tests/common/say.h"

#define MIB  ((size_t)1 << 20)
#define PAGE ((size_t)4096)
#define MOST (24 * MIB) /* more than all slots of a ring */

static CUcontext context;
static CUstream blocking, nonblocking;

/* --- bytes --- */

#define PERIOD 65521u /* a prime: no two pieces of a copy have the same bytes */

static unsigned char pattern[2 * PERIOD];

static void make_pattern(void)
{
    for (size_t i = 0; i < sizeof(pattern); i++)
        pattern[i] = (unsigned char)(i % PERIOD * 7 + i % PERIOD / 256 * 13);
}

/* Where the bytes are that [i, ...) has, up to the end of a period. */
static const unsigned char *pattern_at(size_t i, unsigned value)
{
    return pattern + (i + value * 101u) % PERIOD;
}

static unsigned char byte_of(size_t i, unsigned value)
{
    return *pattern_at(i, value);
}

static void fill(unsigned char *bytes, size_t n, unsigned value)
{
    for (size_t i = 0; i < n; i += PERIOD)
        memcpy(bytes + i, pattern_at(i, value), n - i < PERIOD ? n - i : PERIOD);
}

static size_t wrong(const unsigned char *bytes, size_t n, unsigned value)
{
    size_t found = 0;

    for (size_t i = 0; i < n; i += PERIOD) {
        size_t here = n - i < PERIOD ? n - i : PERIOD;

        if (memcmp(bytes + i, pattern_at(i, value), here) != 0)
            for (size_t k = 0; k < here; k++)
                found += bytes[i + k] != pattern_at(i, value)[k];
    }
    return found;
}

static void open_device(void)
{
    make_pattern();
    context = device_open();
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&nonblocking, CU_STREAM_NON_BLOCKING));
}

static void *mapped(size_t bytes, int protection)
{
    void *memory = mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED)
        _exit(99);
    return memory;
}

/* A file's pages, which nobody has touched in this mapping. */
static unsigned char *mapped_file(size_t bytes, unsigned value)
{
    int file = memfd_create("source", MFD_CLOEXEC);
    unsigned char *writes, *reads;

    if (file < 0 || ftruncate(file, (off_t)bytes))
        _exit(99);
    writes = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (writes == MAP_FAILED)
        _exit(99);
    fill(writes, bytes, value);
    (void)munmap(writes, bytes);
    reads = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, file, 0);
    (void)close(file);
    if (reads == MAP_FAILED)
        _exit(99);
    return reads;
}

/* --- ways to copy --- */

enum { WAITING, ON_LEGACY, ON_BLOCKING, ON_NONBLOCKING, UNIFIED, N_WAYS };

static CUstream stream_of(int way)
{
    return way == ON_BLOCKING ? blocking : way == ON_NONBLOCKING ? nonblocking : NULL;
}

static CUresult copy_in(int way, CUdeviceptr to, const void *from, size_t bytes)
{
    if (way == WAITING)
        return cuMemcpyHtoD(to, from, bytes);
    if (way == UNIFIED)
        return cuMemcpy(to, (CUdeviceptr)(uintptr_t)from, bytes);
    return cuMemcpyHtoDAsync(to, from, bytes, stream_of(way));
}

static CUresult copy_out(int way, void *to, CUdeviceptr from, size_t bytes)
{
    if (way == WAITING)
        return cuMemcpyDtoH(to, from, bytes);
    if (way == UNIFIED)
        return cuMemcpy((CUdeviceptr)(uintptr_t)to, from, bytes);
    return cuMemcpyDtoHAsync(to, from, bytes, stream_of(way));
}

/* --- what the program does --- */

/* The source is overwritten when the call has returned; what came is looked at when it has. */
static void there_and_back(int way, unsigned char *source, unsigned char *target, size_t bytes,
                           unsigned value, bool writes)
{
    CUdeviceptr device;

    OK(cuMemAlloc(&device, bytes + 64));
    errno = 0;
    OK(copy_in(way, device + value % 5, source, bytes));
    if (writes)
        memset(source, 0xee, bytes);
    OK(copy_out(way, target, device + value % 5, bytes));
    say("way %d, %zu bytes: %zu wrong, errno %d", way, bytes, wrong(target, bytes, value), errno);
    OK(cuMemFree(device));
}

static void kinds_up_to(size_t most)
{
    static const size_t sizes[] = {1, 63, 4097, 100000, MIB + 3, MOST};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && sizes[i] <= most; i++) {
        size_t bytes = sizes[i];
        unsigned char *heap = malloc(bytes + 64), *file = mapped_file(bytes, 9);

        for (int way = 0; way < N_WAYS; way++) {
            unsigned char *source = heap + way, *fresh = mapped(bytes, PROT_READ | PROT_WRITE);

            fill(source, bytes, (unsigned)way);
            there_and_back(way, source, fresh, bytes, (unsigned)way, true);
            there_and_back(way, file, source, bytes, 9, false);
            (void)munmap(fresh, bytes);
        }
        (void)munmap(file, bytes);
        free(heap);
    }
}

static void kinds(void)
{
    kinds_up_to(MOST);
}

static void small_kinds(void)
{
    kinds_up_to(100000);
}

/* Long rows with gaps; the gaps are not touched. */
static void rows(void)
{
    enum { WIDTH = 70000, PITCH = 70400, HEIGHT = 5, DEPTH = 3, SLICE = PITCH * (HEIGHT + 1) };
    unsigned char *host = malloc(SLICE * DEPTH), *back = malloc(SLICE * DEPTH);
    CUDA_MEMCPY3D in = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = host,
                        .srcPitch = PITCH,
                        .srcHeight = HEIGHT + 1,
                        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                        .dstPitch = WIDTH + 80,
                        .dstHeight = HEIGHT,
                        .WidthInBytes = WIDTH,
                        .Height = HEIGHT,
                        .Depth = DEPTH};
    CUDA_MEMCPY3D out = {.dstMemoryType = CU_MEMORYTYPE_HOST,
                         .dstHost = back,
                         .dstPitch = PITCH,
                         .dstHeight = HEIGHT + 1,
                         .srcMemoryType = CU_MEMORYTYPE_DEVICE,
                         .srcPitch = WIDTH + 80,
                         .srcHeight = HEIGHT,
                         .WidthInBytes = WIDTH,
                         .Height = HEIGHT,
                         .Depth = DEPTH};
    CUDA_MEMCPY2D flat = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = host,
                          .srcPitch = PITCH,
                          .srcXInBytes = 16,
                          .srcY = 1,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstPitch = WIDTH,
                          .WidthInBytes = WIDTH,
                          .Height = HEIGHT};
    size_t found = 0, gaps = 0;
    CUdeviceptr device;

    fill(host, SLICE * DEPTH, 3);
    memset(back, 0x55, SLICE * DEPTH);
    OK(cuMemAlloc(&device, (size_t)(WIDTH + 80) * HEIGHT * DEPTH));
    in.dstDevice = out.srcDevice = flat.dstDevice = device;
    OK(cuMemcpy3D(&in));
    OK(cuMemcpy3DAsync(&out, nonblocking));
    for (size_t i = 0; i < SLICE * DEPTH; i++) {
        bool inside = i % PITCH < WIDTH && i % SLICE / PITCH < HEIGHT;

        found += inside && back[i] != byte_of(i, 3);
        gaps += !inside && back[i] != 0x55;
    }
    say("box: %zu wrong, %zu written between", found, gaps);
    OK(cuMemcpy2DAsync(&flat, blocking));
    memset(host, 0, SLICE * DEPTH);
    OK(cuMemcpyDtoH(back, device, WIDTH * HEIGHT));
    found = 0;
    for (size_t i = 0; i < WIDTH * HEIGHT; i++)
        found += back[i] != byte_of((i / WIDTH + 1) * PITCH + 16 + i % WIDTH, 3);
    say("rectangle: %zu wrong", found);
    OK(cuMemFree(device));
    free(host);
    free(back);
}

/* What the stream does before the copy counts, and what it does after it. */
static void order(void)
{
    enum { N = 400000 };
    size_t bytes = N * sizeof(uint32_t);
    uint32_t *host = malloc(bytes);
    CUdeviceptr device, result;
    uint32_t found = 0;

    OK(cuMemAlloc(&device, bytes));
    OK(cuMemAlloc(&result, sizeof(uint32_t)));
    OK(cuMemsetD32(result, 0, 1));
    OK(cuCtxSynchronize());
    for (uint32_t turn = 0; turn < 6; turn++) {
        CUstream stream = stream_of(ON_LEGACY + (int)turn % 3);

        for (uint32_t i = 0; i < N; i++)
            host[i] = 1000 * turn + i;
        launch_fill(stream, device, N, 7);
        OK(cuMemcpyHtoDAsync(device, host, bytes, stream));
        memset(host, 0, bytes);
        launch_check(stream, device, N, 1000 * turn, result);
        launch_fill(stream, device, N, 5 + turn);
        OK(cuMemcpyDtoHAsync(host, device, bytes, stream));
        say("turn %u: %u wrong", turn, wrong_words(host, N, 5 + turn));
    }
    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH(&found, result, sizeof(found)));
    say("on the device: %u wrong", found);
    free(host);
}

/* --- threads --- */

static void *copy_in_thread(void *number)
{
    unsigned value = (unsigned)(uintptr_t)number;
    size_t bytes = 3 * MIB + value * 1000, found = 0;
    unsigned char *host = malloc(bytes);
    CUdeviceptr device;
    CUstream own;

    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&device, bytes));
    for (unsigned turn = 0; turn < 4; turn++) {
        CUstream stream = turn % 2 ? own : CU_STREAM_PER_THREAD;

        fill(host, bytes, value + turn);
        OK(cuMemcpyHtoDAsync(device, host, bytes, stream));
        memset(host, 0, bytes);
        OK(cuMemcpyDtoHAsync(host, device, bytes, stream));
        found += wrong(host, bytes, value + turn);
    }
    OK(cuMemFree(device));
    free(host);
    return (void *)found;
}

static void threads(void)
{
    enum { N = 4 };
    pthread_t ids[N];
    size_t found = 0;

    for (uintptr_t i = 0; i < N; i++)
        CHECK(!pthread_create(&ids[i], NULL, copy_in_thread, (void *)i));
    for (int i = 0; i < N; i++) {
        void *result;

        CHECK(!pthread_join(ids[i], &result));
        found += (size_t)result;
    }
    say("threads: %zu wrong", found);
}

/* --- faults and signals --- */

static unsigned char *closed;
static pid_t faulting_thread;

static void open_page(int signal)
{
    (void)signal;
    faulting_thread = gettid();
    (void)mprotect(closed, PAGE, PROT_READ | PROT_WRITE);
}

/* The fault is the calling thread's, whose handler mends it. */
static void faults(void)
{
    size_t bytes = 4 * MIB;
    unsigned char *memory = mapped(bytes, PROT_READ | PROT_WRITE);
    struct sigaction action = {.sa_handler = open_page};
    CUdeviceptr device;

    (void)sigaction(SIGSEGV, &action, NULL);
    OK(cuMemAlloc(&device, bytes));
    fill(memory, bytes, 1);
    closed = memory + 3 * MIB + 5 * PAGE;
    (void)mprotect(closed, PAGE, PROT_NONE);
    OK(cuMemcpyHtoD(device, memory, bytes));
    say("in: the fault was %s", faulting_thread == getpid() ? "this thread's" : "another's");
    faulting_thread = 0;
    memset(memory, 0, bytes);
    (void)mprotect(closed, PAGE, PROT_READ);
    OK(cuMemcpyDtoH(memory, device, bytes));
    say("out: the fault was %s; %zu wrong",
        faulting_thread == getpid() ? "this thread's" : "another's", wrong(memory, bytes, 1));
}

static _Atomic unsigned ticks;

static void tick(int signal)
{
    (void)signal;
    atomic_fetch_add(&ticks, 1);
}

static void signals(void)
{
    const struct itimerval every = {{0, 500}, {0, 500}}, none = {{0, 0}, {0, 0}};
    struct sigaction action = {.sa_handler = tick};
    sigset_t blocked;

    (void)sigaction(SIGALRM, &action, NULL);
    (void)setitimer(ITIMER_REAL, &every, NULL);
    threads();
    small_kinds();
    (void)setitimer(ITIMER_REAL, &none, NULL);
    CHECK(!pthread_sigmask(SIG_BLOCK, NULL, &blocked));
    say("signals come: %d; they are blocked: %d", atomic_load(&ticks) > 0,
        sigismember(&blocked, SIGALRM));
}

static void *copy_until_cancelled(void *unused)
{
    size_t bytes = 2 * MIB;
    unsigned char *host = malloc(bytes);
    CUdeviceptr device;

    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc(&device, bytes));
    for (;;) {
        OK(cuMemcpyHtoD(device, host, bytes));
        pthread_testcancel();
    }
    return unused;
}

/* A thread that is cancelled leaves nothing behind that the next one would wait for. */
static void cancelled(void)
{
    for (int i = 0; i < 5; i++) {
        pthread_t thread;
        void *result;

        CHECK(!pthread_create(&thread, NULL, copy_until_cancelled, NULL));
        (void)usleep(3000);
        CHECK(!pthread_cancel(thread));
        CHECK(!pthread_join(thread, &result));
        say("cancelled: %d", result == PTHREAD_CANCELED);
    }
    small_kinds();
}

/* --- contexts, captures, processes --- */

static void contexts(void)
{
    size_t bytes = 4 * MIB;
    unsigned char *host = malloc(bytes);
    CUdeviceptr device;

    for (unsigned turn = 0; turn < 4; turn++) {
        CUcontext other;

        OK(cuCtxCreate(&other, NULL, 0, 0));
        OK(cuMemAlloc(&device, bytes));
        fill(host, bytes, turn);
        OK(cuMemcpyHtoD(device, host, bytes));
        memset(host, 0, bytes);
        OK(cuMemcpyDtoH(host, device, bytes));
        say("context %u: %zu wrong", turn, wrong(host, bytes, turn));
        /* The memory is known to the driver no more: it is not pinned, and may be copied. */
        OK(cuMemcpyHtoDAsync(device, host, bytes, NULL));
        OK(cuCtxDestroy(other));
    }
    OK(cuDevicePrimaryCtxReset(0));
    open_device();
    small_kinds();
}

/* Natively a copy on a stream that captures is a node of its graph. */
static void captures(void)
{
    size_t bytes = 2 * MIB;
    unsigned char *host = malloc(bytes), *pinned;
    CUgraphExec exec;
    CUdeviceptr device;
    CUgraph graph;

    OK(cuMemAllocHost((void **)&pinned, bytes));
    OK(cuMemAlloc(&device, bytes));
    OK(cuStreamBeginCapture(nonblocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    fill(host, bytes, 1);
    OK(cuMemcpyHtoDAsync(device, host, bytes, nonblocking));
    SAY_CODE("another stream meanwhile", cuMemcpyHtoDAsync(device, host, bytes, blocking));
    OK(cuStreamEndCapture(nonblocking, &graph));
    OK(cuStreamSynchronize(blocking));
    OK(cuGraphInstantiate(&exec, graph, 0));
    fill(host, bytes, 2);
    OK(cuGraphLaunch(exec, nonblocking));
    OK(cuStreamSynchronize(nonblocking));
    OK(cuMemcpyDtoH(pinned, device, bytes));
    say("captured: %zu wrong", wrong(pinned, bytes, 2));
}

/* Who captures waits for WANTED; who copies for the next two. */
enum { NOT_WANTED, COPYING, WANTED, BEGUN, COPIED };
static _Atomic int capture_state;
static const unsigned char *asked_about;

#define POPULATE_READ  22 /* since Linux 5.14 */
#define POPULATE_WRITE 23
static bool kernel_is_older;

static void await_capture(int state)
{
    while (atomic_load(&capture_state) != state)
        (void)usleep(100);
}

/* A capture begins in another thread, unless one has during this copy. */
static void have_captured(void)
{
    int copying = COPYING;

    if (!atomic_compare_exchange_strong(&capture_state, &copying, WANTED))
        return;
    await_capture(BEGUN);
}

/* The library asks the kernel for the pages of a copy, and the driver about its stream behind
 * that. */
__attribute__((visibility("default"))) int madvise(void *memory, size_t bytes, int advice)
{
    if (asked_about && (uintptr_t)memory / PAGE == (uintptr_t)asked_about / PAGE)
        have_captured();
    if (kernel_is_older && (advice == POPULATE_READ || advice == POPULATE_WRITE)) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_madvise, memory, bytes, advice);
}

static void *capture_meanwhile(void *n)
{
    CUstream stream;
    CUgraph graph;

    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (uintptr_t i = 0; i < (uintptr_t)n; i++) {
        await_capture(WANTED);
        OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        atomic_store(&capture_state, BEGUN);
        await_capture(COPIED);
        SAY_CODE("the capture's end", cuStreamEndCapture(stream, &graph));
        atomic_store(&capture_state, NOT_WANTED);
    }
    return NULL;
}

static void on_an_older_kernel(void)
{
    kernel_is_older = true;
    small_kinds();
}

/* No copy ends such a capture (R611, R1175 to R1177), be its stream idle or not. Natively nobody
 * asks the kernel for pages, and the capture begins behind the copy. */
static void captured_meanwhile(void)
{
    enum { N = 4 * N_WAYS };
    size_t bytes = 2 * MIB;
    unsigned char *host = mapped(bytes, PROT_READ | PROT_WRITE);
    CUdeviceptr device;
    pthread_t thread;

    small_kinds();
    OK(cuMemAlloc(&device, bytes));
    asked_about = host;
    CHECK(!pthread_create(&thread, NULL, capture_meanwhile, (void *)(uintptr_t)N));
    for (int i = 0; i < N; i++) {
        int way = i / 4;

        atomic_store(&capture_state, COPYING);
        if (i & 2)
            OK(cuMemsetD8Async(device, 1, bytes, stream_of(way)));
        SAY_CODE("a copy",
                 i & 1 ? copy_out(way, host, device, bytes) : copy_in(way, device, host, bytes));
        have_captured();
        atomic_store(&capture_state, COPIED);
        await_capture(NOT_WANTED);
    }
    CHECK(!pthread_join(thread, NULL));
}

/* A kernel waits for what the program does after copies on its stream, and on others. More than two
 * pieces of 1 MiB wait for the kernel natively, too (R1025, R1052). */
static void behind(void)
{
    size_t bytes = 2 * MIB;
    unsigned char *host = malloc(bytes);
    _Atomic uint32_t *flag;
    CUdeviceptr device;

    OK(cuMemAllocHost((void **)&flag, sizeof(*flag)));
    OK(cuMemAlloc(&device, bytes));
    for (unsigned turn = 0; turn < 3; turn++) {
        atomic_store(flag, 0);
        launch_spin(blocking, flag);
        for (unsigned i = 0; i < 3; i++) {
            fill(host, bytes, turn + i);
            OK(cuMemcpyHtoDAsync(device, host, bytes / 2 >> 2 * i, blocking));
        }
        fill(host, bytes / 2, turn);
        OK(cuMemcpyHtoDAsync(device + bytes / 2, host, bytes / 2, nonblocking));
        OK(cuMemcpyDtoHAsync(host, device + bytes / 2, bytes / 2, nonblocking));
        say("beside it: %zu wrong", wrong(host, bytes / 2, turn));
        atomic_store(flag, 1);
        OK(cuStreamSynchronize(blocking));
        OK(cuMemcpyDtoH(host, device, bytes / 32));
        say("behind it: %zu wrong", wrong(host, bytes / 32, turn + 2));
    }
}

static _Atomic uint32_t *released;

static void release(int signal)
{
    (void)signal;
    atomic_store(released, 1);
}

static void *signal_soon(void *thread)
{
    (void)usleep(20000);
    CHECK(!pthread_kill(*(pthread_t *)thread, SIGUSR1));
    return NULL;
}

/* The legacy stream's work ends once a handler has run in the thread whose call waits for it. */
static void handled(void)
{
    size_t bytes = 4 * MIB;
    unsigned char *host = malloc(bytes);
    struct sigaction action = {.sa_handler = release};
    pthread_t self = pthread_self(), other;
    CUdeviceptr device;

    (void)sigaction(SIGUSR1, &action, NULL);
    OK(cuMemAllocHost((void **)&released, sizeof(*released)));
    OK(cuMemAlloc(&device, bytes));
    for (unsigned turn = 0; turn < 4; turn++) {
        fill(host, bytes, turn / 2);
        atomic_store(released, 0);
        launch_spin(NULL, released);
        CHECK(!pthread_create(&other, NULL, signal_soon, &self));
        if (turn % 2 == 0)
            OK(cuMemcpyHtoDAsync(device, host, bytes, blocking));
        else
            OK(cuMemcpyDtoHAsync(host, device, bytes, blocking));
        CHECK(!pthread_join(other, NULL));
        OK(cuCtxSynchronize());
        say("turn %u: %zu wrong", turn, wrong(host, bytes, turn / 2));
    }
}

/* Uploads one after the other, with no wait between them. */
enum { ROW = 8, ROW_TARGETS = 3 };
#define ROW_BYTES (4 * MIB) /* eight are more than all slots of a ring */

static void upload_row(int way, unsigned char *host, const CUdeviceptr *to, size_t bytes)
{
    size_t found = 0;

    for (unsigned i = 0; i < ROW; i++) {
        fill(host, bytes, i);
        OK(copy_in(way, to[i % ROW_TARGETS], host, bytes));
    }
    memset(host, 0xee, bytes);
    for (unsigned i = ROW - ROW_TARGETS; i < ROW; i++) {
        OK(copy_out(way, host, to[i % ROW_TARGETS], bytes));
        found += wrong(host, bytes, i);
    }
    say("way %d, %d uploads of %zu bytes: %zu wrong", way, ROW, bytes, found);
}

static void row_of(size_t bytes)
{
    unsigned char *host = malloc(bytes);
    CUdeviceptr to[ROW_TARGETS];

    for (int i = 0; i < ROW_TARGETS; i++)
        OK(cuMemAlloc(&to[i], bytes));
    for (int way = 0; way < N_WAYS; way++)
        upload_row(way, host, to, bytes);
    for (int i = 0; i < ROW_TARGETS; i++)
        OK(cuMemFree(to[i]));
    free(host);
}

static void row(void)
{
    row_of(ROW_BYTES);
}

/* A kernel that does not end stands between two of them. */
static void row_with_kernels(void)
{
    enum { BYTES = 2 * MIB };
    unsigned char *host = malloc(BYTES);
    _Atomic uint32_t *flag;
    CUdeviceptr to;

    OK(cuMemAllocHost((void **)&flag, sizeof(*flag)));
    OK(cuMemAlloc(&to, BYTES));
    for (int way = ON_LEGACY; way <= ON_NONBLOCKING; way++) {
        for (unsigned i = 0; i < 3; i++) {
            atomic_store(flag, 0);
            fill(host, BYTES, i);
            OK(copy_in(way, to, host, BYTES));
            launch_spin(way == ON_LEGACY && i == 1 ? blocking : stream_of(way), flag);
            fill(host, BYTES, i + 1);
            OK(copy_in(way, to, host, BYTES));
            fill(host, BYTES, i + 2);
            atomic_store(flag, 1);
            OK(cuCtxSynchronize());
            OK(cuMemcpyDtoH(host, to, BYTES));
            say("way %d: %zu wrong", way, wrong(host, BYTES, i + 1));
        }
    }
}

/* What a large upload waits for, or the last of many, has been done when it is back: the host may
 * look (R1025, R1027). */
static void behind_large(void)
{
    enum { N = 1000 };
    unsigned char *host = malloc(4 * MIB);
    uint32_t *seen;
    CUdeviceptr device;

    OK(cuMemAllocHost((void **)&seen, N * sizeof(*seen)));
    OK(cuMemAlloc(&device, 4 * MIB));
    for (uint32_t turn = 0; turn < 8; turn++) {
        CUstream stream = turn % 4 < 2 ? blocking : nonblocking;

        fill(host, 4 * MIB, turn);
        launch_fill(stream, (CUdeviceptr)(uintptr_t)seen, N, turn);
        if (turn % 2)
            OK(cuMemcpyHtoDAsync(device, host, 4 * MIB, stream));
        for (unsigned i = 0; turn % 2 == 0 && i < 8; i++)
            OK(cuMemcpyHtoDAsync(device, host, MIB, stream));
        say("turn %u: %u wrong", turn, wrong_words(seen, N, turn));
    }
    OK(cuCtxSynchronize());
}

struct beside {
    CUdeviceptr device, words;
    CUevent filled; /* the words, on the legacy stream */
};

/* `n` uploads on a stream that has no work, while the legacy stream has some. */
static void beside_legacy(struct beside *beside, unsigned n, size_t bytes, CUstream stream)
{
    unsigned char *host = malloc(bytes);

    fill(host, bytes, 1);
    launch_fill(NULL, beside->words, 1000, 7);
    OK(cuEventRecord(beside->filled, NULL));
    SAY_CODE("idle beside the legacy stream", cuStreamQuery(stream));
    for (unsigned i = 0; i < n; i++)
        OK(cuMemcpyHtoDAsync(beside->device, host, bytes, stream));
    say("%u of %zu MiB: the legacy stream's work is %s", n, bytes / MIB,
        cuEventQuery(beside->filled) == CUDA_SUCCESS ? "done" : "not done");
    OK(cuCtxSynchronize());
    memset(host, 0, bytes);
    OK(cuMemcpyDtoH(host, beside->device, bytes));
    say("%zu wrong", wrong(host, bytes, 1));
    free(host);
}

/* A blocking stream that has no work waits for the legacy one all the same, and so does a call of
 * which more is under way than the driver has room for (R1028 to R1038). */
static void legacy(void)
{
    struct beside beside;

    OK(cuEventCreate(&beside.filled, CU_EVENT_DISABLE_TIMING));
    OK(cuMemAlloc(&beside.device, 4 * MIB));
    OK(cuMemAlloc(&beside.words, 1000 * sizeof(uint32_t)));
    for (size_t bytes = 2 * MIB; bytes <= 4 * MIB; bytes += MIB)
        beside_legacy(&beside, 1, bytes, blocking);
    beside_legacy(&beside, 2, 2 * MIB, blocking);
    beside_legacy(&beside, 2, 2 * MIB, nonblocking);
    beside_legacy(&beside, 2, 2 * MIB, CU_STREAM_PER_THREAD);
}

static unsigned char *map_anew(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(memory != MAP_FAILED);
    return memory;
}

/* Nobody has touched the memory of the host, which begins and ends anywhere in a page. */
static void untouched(void)
{
    size_t most = 140 * MIB, bytes = most - 20001, found = 0;
    unsigned char *known = map_anew(most), *memory = map_anew(most) + 12345;
    CUdeviceptr device;

    fill(known, bytes, 3);
    OK(cuMemAlloc(&device, bytes));
    OK(cuMemcpyHtoD(device, known, bytes));
    OK(cuMemcpyDtoH(memory, device, bytes));
    say("out: the same %d; around it %d %d", !memcmp(memory, known, bytes), memory[-1],
        memory[bytes]);
    memory = map_anew(most) + 12345;
    OK(cuMemcpyHtoD(device, memory, bytes));
    OK(cuMemcpyDtoH(known, device, bytes));
    for (size_t i = 0; i < bytes; i++)
        found += known[i] != 0;
    say("in: %zu wrong", found);
}

static void forks(void)
{
    unsigned char host[PAGE];
    CUdeviceptr device;
    pid_t child;

    small_kinds();
    OK(cuMemAlloc(&device, PAGE));
    child = fork();
    if (!child) {
        SAY_CODE("in the child", cuMemcpyHtoD(device, host, PAGE));
        _exit(7);
    }
    say_child(child);
    OK(cuMemcpyHtoD(device, host, PAGE));
    small_kinds();
}

/* A context whose work has failed tells so in each call. */
static void errors(void)
{
    size_t bytes = 2 * MIB;
    unsigned char *host = malloc(bytes);
    CUdeviceptr device;
    void *nowhere;

    OK(cuMemAlloc(&device, bytes));
    nowhere = (void *)(uintptr_t)(device + 512 * MIB);
    OK(cuMemcpyHtoD(device, host, bytes));
    SAY_CODE("more than there is", cuMemcpyHtoD(device + MIB, host, bytes));
    SAY_CODE("from no memory", cuMemcpyHtoD(device, NULL, bytes));
    SAY_CODE("to no memory", cuMemcpyDtoH(host, device + 64 * MIB, bytes));
    SAY_CODE("no stream", cuMemcpyHtoDAsync(device, host, bytes, (CUstream)(uintptr_t)0x1234560));
    errno = 0;
    SAY_CODE("from a device's address", cuMemcpyHtoD(device, nowhere, bytes));
    SAY_CODE("to a device's address", cuMemcpyDtoH(nowhere, device, bytes));
    say("errno %d", errno);
    SAY_CODE("the other way", cuMemcpyHtoD((CUdeviceptr)(uintptr_t)host, host, bytes));
    OK(cuMemcpyDtoH(host, device, bytes));
}

/* --- what a process has that copies little --- */

static unsigned threads_named(const char *name)
{
    DIR *folder = opendir("/proc/self/task");
    struct dirent *entry;
    unsigned found = 0;

    while (folder && (entry = readdir(folder))) {
        char path[300], text[32] = "";
        FILE *file;

        snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
        file = fopen(path, "r");
        if (file && fgets(text, sizeof(text), file))
            found += !strncmp(text, name, strlen(name));
        if (file)
            (void)fclose(file);
    }
    if (folder)
        (void)closedir(folder);
    return found;
}

/* Each gives itself its name, once it is let run: the others may have copied all by then. */
static unsigned threads_that_copy(unsigned wanted)
{
    for (unsigned i = 0; i < 10000 && threads_named("allograft-copy") < wanted; i++)
        (void)usleep(1000);
    return threads_named("allograft-copy");
}

static void copy_times(unsigned n, size_t bytes, unsigned n_threads)
{
    unsigned char *host = malloc(bytes);
    size_t found = 0;
    CUdeviceptr device;

    OK(cuMemAlloc(&device, bytes));
    for (unsigned i = 0; i < n; i++) {
        fill(host, bytes, i);
        OK(cuMemcpyHtoD(device, host, bytes));
        memset(host, 0, bytes);
        OK(cuMemcpyDtoH(host, device, bytes));
        found += wrong(host, bytes, i);
    }
    say("%u copies of %zu bytes: %zu wrong; threads of ours: %u, registered: %lu", 2 * n, bytes,
        found, threads_that_copy(n_threads), sim_calls("cuMemHostRegister_v2"));
    OK(cuMemFree(device));
    free(host);
}

static void little(void)
{
    copy_times(20, MIB - 1, 0);
    copy_times(1, 16 * MIB, 0);
}

static void much(void)
{
    copy_times(2, 160 * MIB, 2);
}

/* Mappings of 64 MiB that a child would not have. */
static unsigned rings(void)
{
    FILE *file = fopen("/proc/self/smaps", "r");
    unsigned long kib = 0;
    unsigned found = 0;
    char line[512];

    while (file && fgets(line, sizeof(line), file)) {
        (void)sscanf(line, "Size: %lu kB", &kib);
        found += kib == 65536 && !strncmp(line, "VmFlags:", 8) && strstr(line, " dc");
    }
    if (file)
        (void)fclose(file);
    return found;
}

/* The driver may refuse to pin slots: then nobody needs them. */
static void refused(void)
{
    copy_times(2, 160 * MIB, 0);
    say("rings: %u", rings());
}

static const struct part parts[] = {
    {"kinds", kinds},
    {"rows", rows},
    {"order", order},
    {"threads", threads},
    {"faults", faults},
    {"signals", signals},
    {"cancelled", cancelled},
    {"contexts", contexts},
    {"captures", captures},
    {"behind", behind},
    {"handled", handled},
    {"untouched", untouched},
    {"forks", forks},
    {"errors", errors},
    {"little", little},
    {"much", much},
    {"row", row},
    {"kernels", row_with_kernels},
    {"large", behind_large},
    {"legacy", legacy},
    {"meanwhile", captured_meanwhile},
    {"older", on_an_older_kernel},
    {"refused", refused},
};

int main(int argc, char **argv)
{
    open_device();
    return argc == 2 && RUN_PART(parts, argv[1]) ? 0 : 97;
}
