/* Waits that may sleep (ALLOGRAFT_WAIT), by the CUDA runtime: what they return, what is done by
 * then, how long they take, and what of a core.
 *
 *     sleeps right       every kind of wait, often, for work that takes 10 us and 5 ms
 *     sleeps later       work submitted during a wait, which ends only after that
 *     sleeps later-all   the same of waits for the legacy stream and the device
 *     sleeps apart       waits beside a kernel on a non-blocking stream that ends only after them
 *     sleeps captures    captures during which something waits, and that begin during a wait
 *     sleeps broken      waits in a context in which every call fails
 *     sleeps spin        as right, in a context that the program has made to spin
 *     sleeps measure     "NAME VALUE" lines: medians of how long waits took, shares of a core
 *     sleeps varied      likewise, of waits of varying length at one place: how late in the mean
 *     sleeps blocked     the same waits by an event that blocks, for which the driver sleeps
 *     sleeps history     what a wait for nothing costs after events that block were waited for */
#include <algorithm>
#include <atomic>
#include <cuda.h>
#include <cuda_runtime.h>
#include <pthread.h>
#include <unistd.h>
#include <vector>

#include "tests/gpu/check.h"

#define LONG_NS  5000000ull
#define SHORT_NS 10000ull
#define WARM     48  /* waits at a place before it is measured: it may have known others */
#define LONG_N   60  /* waits of 5 ms */
#define SHORT_N  400 /* of 10 us */
#define VARIED_N 200 /* of varying length */

static unsigned *words, *pinned, *pageable;
static volatile int *may_end;
static cudaStream_t blocking, apart, other;
static cudaEvent_t event;
static unsigned value;

/* Runs until the host lets it go. */
__global__ void wait_for_host(volatile int *flag)
{
    while (!*flag)
        ;
}

/* As late_write, by the processor's clock: the one of nanoseconds may go by microseconds. */
__global__ void soon_write(unsigned *words, size_t n_words, unsigned to, long long cycles)
{
    long long from = clock64();
    while (clock64() - from < cycles)
        ;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n_words;
         i += gridDim.x * (size_t)blockDim.x)
        words[i] = to;
}

static void begin(void)
{
    OK(cudaMalloc(&words, KIB));
    OK(cudaMallocHost(&pinned, KIB));
    OK(cudaMallocHost((int **)&may_end, sizeof(int)));
    pageable = (unsigned *)malloc(KIB);
    OK(cudaStreamCreate(&blocking));
    OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    warm_up_kernels();
    *may_end = 1;
    wait_for_host<<<1, 1, 0, blocking>>>(may_end);
    soon_write<<<1, 1, 0, blocking>>>(words, 1, 0, 0);
    OK(cudaDeviceSynchronize());
}

/* A context that has had one waits for its legacy stream in another way. */
static void make_apart(void)
{
    OK(cudaStreamCreateWithFlags(&apart, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
}

/* --- the kinds of waits --- */

static __attribute__((noinline)) cudaError_t wait_legacy(void)
{
    return cudaStreamSynchronize(0);
}

static __attribute__((noinline)) cudaError_t wait_blocking(void)
{
    return cudaStreamSynchronize(blocking);
}

static __attribute__((noinline)) cudaError_t wait_own(void)
{
    return cudaStreamSynchronize(cudaStreamPerThread);
}

static __attribute__((noinline)) cudaError_t wait_event(void)
{
    return cudaEventSynchronize(event);
}

static __attribute__((noinline)) cudaError_t wait_device(void)
{
    return cudaDeviceSynchronize();
}

static __attribute__((noinline)) cudaError_t wait_copy(void)
{
    return cudaMemcpy(pageable, words, KIB, cudaMemcpyDeviceToHost);
}

static __attribute__((noinline)) cudaError_t wait_apart(void)
{
    return cudaStreamSynchronize(apart);
}

static const struct kind {
    const char *name;
    cudaError_t (*wait)(void);
    const cudaStream_t *stream; /* NULL: the legacy stream */
    bool beside;                /* with a non-blocking stream in the context */
} kinds[] = {
    {"legacy", wait_legacy, NULL, false},
    {"blocking", wait_blocking, &blocking, false},
    {"own", wait_own, NULL, false},
    {"event", wait_event, &blocking, false},
    {"device", wait_device, NULL, false},
    {"copy", wait_copy, NULL, false},
    {"apart", wait_apart, &apart, true},
    {"device_apart", wait_device, &apart, true},
    {"event_apart", wait_event, &apart, true},
};

static cudaStream_t stream_of(const struct kind *kind)
{
    if (kind->wait == wait_own)
        return cudaStreamPerThread;
    return kind->stream ? *kind->stream : 0;
}

static void be_busy(cudaStream_t stream, unsigned long long ns)
{
    if (ns > SHORT_NS)
        late_write<<<FEW_BLOCKS, THREADS, 0, stream>>>(words, KIB / sizeof *words, ++value, ns);
    else
        soon_write<<<FEW_BLOCKS, THREADS, 0, stream>>>(words, KIB / sizeof *words, ++value,
                                                       (long long)(ns * 17 / 10));
    OK(cudaGetLastError());
    OK(cudaMemcpyAsync(pinned, words, KIB, cudaMemcpyDeviceToHost, stream));
    OK(cudaEventRecord(event, stream));
}

/* --- what they wait for --- */

static void wait_rightly(const struct kind *kind, unsigned times, unsigned long long ns)
{
    size_t n_wrong = 0;
    int codes = 0;
    for (unsigned i = 0; i < times; i++) {
        be_busy(stream_of(kind), ns);
        codes |= kind->wait();
        n_wrong += count_wrong(pinned, KIB / sizeof *pinned, value);
    }
    printf("%s, %llu ns: codes %d, %zu wrong words\n", kind->name, ns, codes, n_wrong);
}

static void be_right(void)
{
    for (const struct kind &kind : kinds) {
        if (kind.beside && !apart)
            make_apart();
        wait_rightly(&kind, 200, SHORT_NS);
        wait_rightly(&kind, 20, LONG_NS);
        wait_rightly(&kind, 20, SHORT_NS);
    }
}

/* --- other threads --- */

struct waiter {
    cudaError_t (*wait)(void);
    std::atomic<bool> begins;
    cudaError_t code;
};

static void *wait_then_let_go(void *data)
{
    struct waiter *waiter = (struct waiter *)data;
    OK(cudaSetDevice(0));
    OK(cudaFree(0));
    waiter->begins = true;
    waiter->code = waiter->wait();
    *may_end = 1;
    return NULL;
}

/* Runs `meanwhile` while another thread is in a wait for 100 ms of work on the stream. */
template <typename Meanwhile>
static cudaError_t during(const struct kind *kind, Meanwhile meanwhile)
{
    struct waiter waiter = {kind->wait, {false}, cudaSuccess};
    pthread_t thread;
    *may_end = 0;
    be_busy(stream_of(kind), 20 * LONG_NS);
    CHECK(!pthread_create(&thread, NULL, wait_then_let_go, &waiter));
    while (!waiter.begins)
        ;
    (void)usleep(10000);
    meanwhile();
    CHECK(!pthread_join(thread, NULL));
    return waiter.code;
}

static bool is_for_all(const struct kind *kind)
{
    return kind->wait == wait_legacy || kind->wait == wait_device || kind->wait == wait_copy;
}

static void submit_later(bool for_all)
{
    for (const struct kind &kind : kinds) {
        if (kind.beside && !apart)
            make_apart();
        if (kind.wait == wait_own || is_for_all(&kind) != for_all)
            continue;
        cudaError_t code = during(&kind, [&] {
            wait_for_host<<<1, 1, 0, stream_of(&kind)>>>(may_end);
            OK(cudaGetLastError());
        });
        OK(cudaDeviceSynchronize());
        printf("%s: waited %d\n", kind.name, (int)code);
    }
}

static void leave_apart(void)
{
    make_apart();
    for (const struct kind &kind : kinds) {
        if (kind.wait == wait_device || kind.wait == wait_apart || kind.beside)
            continue;
        *may_end = 0;
        wait_for_host<<<1, 1, 0, apart>>>(may_end);
        OK(cudaGetLastError());
        wait_rightly(&kind, 5, LONG_NS);
        printf("the kernel beside it: %d\n", (int)cudaStreamQuery(apart));
        *may_end = 1;
        OK(cudaDeviceSynchronize());
    }
}

/* --- captures --- */

static void end_capture(const char *what, const char *name, int code)
{
    cudaGraph_t graph = NULL;
    int end = cudaStreamEndCapture(other, &graph);
    printf("%s, %s: %d, the capture's end %d\n", what, name, code, end);
    if (graph)
        OK(cudaGraphDestroy(graph));
    (void)cudaGetLastError();
    OK(cudaDeviceSynchronize());
}

static void capture(void)
{
    static const cudaStreamCaptureMode modes[] = {cudaStreamCaptureModeGlobal,
                                                  cudaStreamCaptureModeThreadLocal,
                                                  cudaStreamCaptureModeRelaxed};
    make_apart();
    for (const struct kind &kind : kinds) {
        for (cudaStreamCaptureMode mode : modes) {
            be_busy(stream_of(&kind), LONG_NS);
            OK(cudaStreamBeginCapture(other, mode));
            end_capture("in a capture", kind.name, (int)kind.wait());
        }
        if (kind.wait == wait_own)
            continue;
        cudaError_t code = during(&kind, [&] {
            OK(cudaStreamBeginCapture(other, cudaStreamCaptureModeGlobal));
            wait_for_host<<<1, 1, 0, other>>>(may_end);
            OK(cudaGetLastError());
        });
        end_capture("before a capture", kind.name, (int)code);
    }
}

static void break_all(void)
{
    late_write<<<1, 1, 0, blocking>>>((unsigned *)64, 1, 1, LONG_NS);
    (void)cudaEventRecord(event, blocking);
    for (unsigned i = 0; i < 3; i++) {
        for (const struct kind &kind : kinds)
            if (!kind.beside)
                printf("%s: %d\n", kind.name, (int)kind.wait());
    }
}

/* --- how long they take --- */

static double processor_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double median(std::vector<double> *values)
{
    std::sort(values->begin(), values->end());
    return (*values)[values->size() / 2];
}

/* From the launch on, which is the same either way; of a core, what the wait alone takes. */
static void measure_one(const struct kind *kind, const char *length, unsigned long long ns,
                        unsigned times)
{
    std::vector<double> took;
    double wall = 0, processor = 0;
    for (unsigned i = 0; i < WARM + times; i++) {
        double launched = now_s();
        be_busy(stream_of(kind), ns);
        double begins = now_s(), used = processor_s();
        OK(kind->wait());
        used = processor_s() - used;
        double ends = now_s();
        if (i < WARM)
            continue;
        took.push_back((ends - launched) * 1e6);
        wall += ends - begins;
        processor += used;
    }
    printf("%s_%s_us %.3f\n", kind->name, length, median(&took));
    printf("%s_%s_core_percent %.3f\n", kind->name, length, 100 * processor / wall);
}

/* In us, of one of 1000 calls. */
template <typename Call> static double time_of(Call call)
{
    double began = now_s();
    for (unsigned n = 0; n < 1000; n++)
        call();
    return (now_s() - began) * 1e3;
}

/* Waits for nothing. */
static void measure_idle(const char *prefix)
{
    std::vector<double> stream, device, with_event;
    OK(cudaDeviceSynchronize());
    for (unsigned i = 0; i < 30; i++) {
        stream.push_back(time_of([] { OK(wait_blocking()); }));
        with_event.push_back(time_of([] { OK(wait_event()); }));
        device.push_back(time_of([] { OK(wait_device()); }));
    }
    printf("%sidle_stream_us %.4f\n%sidle_event_us %.4f\n%sidle_device_us %.4f\n", prefix,
           median(&stream), prefix, median(&with_event), prefix, median(&device));
}

/* What events cost that the driver may sleep for: each may interrupt the host. */
static void measure_records(void)
{
    std::vector<double> recorded, done;
    for (unsigned i = 0; i < 30; i++) {
        double began = now_s();
        recorded.push_back(time_of([] { OK(cudaEventRecord(event, blocking)); }));
        OK(cudaStreamSynchronize(blocking));
        done.push_back((now_s() - began) * 1e3);
    }
    printf("record_us %.4f\nrecord_done_us %.4f\n", median(&recorded), median(&done));
}

/* The idle ones again once threads have slept: the driver may remember that. */
static void measure(void)
{
    measure_records();
    measure_idle("");
    for (const struct kind &kind : kinds) {
        if (kind.beside && !apart)
            make_apart();
        measure_one(&kind, "10us", SHORT_NS, SHORT_N);
        measure_one(&kind, "5ms", LONG_NS, LONG_N);
    }
    measure_idle("later_");
}

/* --- waits of varying length --- */

static cudaEvent_t blocks;

/* In place of a wait for the stream: for an event that the driver sleeps for. */
static __attribute__((noinline)) cudaError_t wait_blocked(cudaStream_t stream)
{
    OK(cudaEventRecord(blocks, stream));
    return cudaEventSynchronize(blocks);
}

static unsigned long long draw(unsigned long long below)
{
    static unsigned long long state = 1;
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (state >> 33) % below;
}

/* How much later a wait ends than the kernel that it is for takes, launch included. */
template <typename Length>
static void vary(const struct kind *kind, const char *pattern, bool by_block, Length length)
{
    double late = 0, wall = 0, processor = 0;
    for (unsigned i = 0; i < WARM + VARIED_N; i++) {
        unsigned long long ns = length(i);
        double launched = now_s();
        be_busy(stream_of(kind), ns);
        double begins = now_s(), used = processor_s();
        OK(by_block ? wait_blocked(stream_of(kind)) : kind->wait());
        used = processor_s() - used;
        double ends = now_s();
        if (i < WARM)
            continue;
        late += ends - launched - 1e-9 * (double)ns;
        wall += ends - begins;
        processor += used;
    }
    printf("%s_%s_late_us %.3f\n", kind->name, pattern, 1e6 * late / VARIED_N);
    printf("%s_%s_core_percent %.3f\n", kind->name, pattern, 100 * processor / wall);
}

static void measure_varied(bool by_block)
{
    OK(cudaEventCreateWithFlags(&blocks, cudaEventBlockingSync | cudaEventDisableTiming));
    for (const struct kind &kind : kinds) {
        if (kind.wait != wait_blocking && kind.wait != wait_event && kind.wait != wait_device)
            continue;
        if (kind.beside)
            continue;
        vary(&kind, "turns", by_block, [](unsigned i) { return i % 2 ? LONG_NS : LONG_NS / 5; });
        vary(&kind, "any", by_block,
             [](unsigned) { return LONG_NS / 25 + draw(LONG_NS - LONG_NS / 25); });
    }
}

/* --- what the driver remembers --- */

/* With a marker the thread waits for that as an event of the context, in place of the device: waits
 * that sleep do so. */
static void say_idle(const char *when, CUevent marker = nullptr)
{
    std::vector<double> query, stream, with_event, device;
    CUcontext context;
    CHECK(cuCtxGetCurrent(&context) == CUDA_SUCCESS);
    for (unsigned i = 0; i < 10; i++) {
        query.push_back(time_of([] { OK(cudaStreamQuery(blocking)); }));
        stream.push_back(time_of([] { OK(wait_blocking()); }));
        with_event.push_back(time_of([] { OK(wait_event()); }));
        device.push_back(time_of([=] {
            if (!marker) {
                OK(wait_device());
                return;
            }
            CHECK(cuCtxRecordEvent(context, marker) == CUDA_SUCCESS);
            CHECK(cuEventSynchronize(marker) == CUDA_SUCCESS);
        }));
    }
    printf("%s: query %.3f, stream %.3f, event %.3f, device %.3f us\n", when, median(&query),
           median(&stream), median(&with_event), median(&device));
    OK(cudaDeviceSynchronize());
}

static void remember(void)
{
    OK(cudaEventCreateWithFlags(&blocks, cudaEventBlockingSync | cudaEventDisableTiming));
    OK(cudaEventRecord(event, blocking));
    be_busy(blocking, SHORT_NS);
    OK(cudaDeviceSynchronize());
    say_idle("first");
    say_idle("beside events of the context", event);
    say_idle("after these");
    OK(cudaEventRecord(blocks, blocking));
    OK(cudaDeviceSynchronize());
    say_idle("after an event that blocks");
    be_busy(blocking, LONG_NS);
    OK(wait_blocked(blocking));
    say_idle("after sleeping for one");
    say_idle("beside events of the context that block", blocks);
    say_idle("after these");
    std::swap(event, blocks);
    say_idle("the event that blocks");
    be_busy(blocking, SHORT_NS);
    OK(cudaDeviceSynchronize());
    say_idle("after other work");
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!strcmp(what, "spin"))
        OK(cudaSetDeviceFlags(cudaDeviceScheduleSpin));
    begin();
    if (!strcmp(what, "right") || !strcmp(what, "spin"))
        be_right();
    else if (!strncmp(what, "later", 5))
        submit_later(!strcmp(what, "later-all"));
    else if (!strcmp(what, "apart"))
        leave_apart();
    else if (!strcmp(what, "captures"))
        capture();
    else if (!strcmp(what, "broken"))
        break_all();
    else if (!strcmp(what, "measure"))
        measure();
    else if (!strcmp(what, "varied") || !strcmp(what, "blocked"))
        measure_varied(!strcmp(what, "blocked"));
    else if (!strcmp(what, "history"))
        remember();
    else
        return EXIT_UNUSABLE;
    return 0;
}
