/*
 * Loops of every kind of work that graph replay meets; prints what a program can see of them: bytes
 * and codes. The text must not depend on replay. usage: graph_bytes PART...   (or none: every part
 * that needs no argument) graph_bytes code FATBIN | elsewhere | exits HOW | fault | reset | stack
 */
#include "tests/gpu/replay/graph.h"

#include <atomic>
#include <cooperative_groups.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

static const int n_words = 64;
static const int n_iterations = 30;

/* Every word of `to` depends on one of `from`, on its own past, and on both parameters. */
__global__ void mix(unsigned *to, const unsigned *from, unsigned a, unsigned b)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n_words)
        to[i] = (to[i] ^ from[(i + a) % n_words]) * 16777619u + b;
}

__global__ void mix_early(unsigned *to, const unsigned *from, unsigned a, unsigned b)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
    if (i < n_words)
        to[i] = (to[i] ^ from[(i + a) % n_words]) * 16777619u + b;
}

__global__ void mix_together(unsigned *to, const unsigned *from, unsigned a, unsigned b)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    cooperative_groups::this_grid().sync();
    if (i < n_words)
        to[i] = (to[i] ^ from[(i + a) % n_words]) * 16777619u + b;
}

__global__ void sum_up(unsigned *to, const unsigned *from, unsigned long long n)
{
    unsigned sum = 0;
    for (unsigned long long i = threadIdx.x; i < n; i += blockDim.x)
        sum += from[i] * (unsigned)(2 * i + 1);
    atomicAdd(to, sum);
}

__global__ void mix_deep(unsigned *to, unsigned depth, unsigned a)
{
    to[0] = (to[0] ^ descend(depth, a)) * 16777619u;
}

struct large {
    unsigned words[500];
};

__global__ void mix_large(unsigned *to, large values)
{
    if (threadIdx.x < n_words)
        to[threadIdx.x] =
            (to[threadIdx.x] ^ values.words[threadIdx.x * 7]) * 16777619u + values.words[499];
}

/* Two arrays on the device that kernels mix into each other. */
struct pair {
    unsigned *a, *b;
    pair()
    {
        OK(cudaMalloc(&a, n_words * sizeof *a));
        OK(cudaMalloc(&b, n_words * sizeof *b));
        OK(cudaMemset(a, 1, n_words * sizeof *a));
        OK(cudaMemset(b, 2, n_words * sizeof *b));
        OK(cudaDeviceSynchronize());
    }
    ~pair()
    {
        OK(cudaFree(a));
        OK(cudaFree(b));
    }
    void mix_on(cudaStream_t s, unsigned x, unsigned y)
    {
        mix<<<1, n_words, 0, s>>>(a, b, x, y);
        mix<<<2, n_words / 2, 0, s>>>(b, a, y, x);
    }
    void say(const char *what)
    {
        unsigned words[2][n_words];
        uint64_t hash = 14695981039346656037ull;
        OK(cudaDeviceSynchronize());
        OK(cudaMemcpy(words[0], a, sizeof words[0], cudaMemcpyDeviceToHost));
        OK(cudaMemcpy(words[1], b, sizeof words[1], cudaMemcpyDeviceToHost));
        for (auto &half : words)
            for (unsigned word : half)
                hash = (hash ^ word) * 1099511628211ull;
        printf("%s: %016llx\n", what, (unsigned long long)hash);
    }
};

static cudaStream_t new_stream(unsigned flags = cudaStreamNonBlocking)
{
    cudaStream_t s;
    OK(cudaStreamCreateWithFlags(&s, flags));
    return s;
}

/* ---- plain loops ---- */

static void plain(void)
{
    cudaStream_t own = new_stream(), blocking = new_stream(cudaStreamDefault);
    struct {
        const char *name;
        cudaStream_t stream;
    } rows[] = {{"non-blocking", own},
                {"blocking", blocking},
                {"legacy", cudaStreamLegacy},
                {"per-thread", cudaStreamPerThread}};
    for (auto &row : rows) {
        pair same, changing, unsynced, swapped, periodic;
        for (int i = 0; i < n_iterations; i++) {
            for (int k = 0; k < 20; k++)
                same.mix_on(row.stream, k, 1);
            OK(cudaStreamSynchronize(row.stream));
            for (int k = 0; k < 20; k++)
                changing.mix_on(row.stream, i * 20 + k, i);
            OK(cudaStreamSynchronize(row.stream));
        }
        for (int i = 0; i < 20 * n_iterations; i++)
            for (int k = 0; k < 5; k++)
                unsynced.mix_on(row.stream, k, i);
        for (int i = 0; i < 10 * n_iterations; i++) {
            for (int k = 0; k < 7; k++)
                swapped.mix_on(row.stream, k, i);
            std::swap(swapped.a, swapped.b);
            OK(cudaStreamSynchronize(row.stream));
        }
        /* Iterations of different lengths: every fifth saves, every seventh is another kind. */
        unsigned seen = 0, saved;
        for (int i = 0; i < 10 * n_iterations; i++) {
            for (int k = 0; k < (i % 7 ? 11 : 4); k++)
                periodic.mix_on(row.stream, k, i % 3);
            if (i % 5 == 0) {
                OK(cudaMemcpyAsync(&saved, periodic.a, sizeof saved, cudaMemcpyDeviceToHost,
                                   row.stream));
                OK(cudaStreamSynchronize(row.stream));
                seen = seen * 31 + saved;
            }
        }
        printf("%s stream, saved %08x\n", row.name, seen);
        same.say("  same parameters");
        changing.say("  all parameters changing");
        unsynced.say("  no waiting");
        swapped.say("  addresses of period 2");
        periodic.say("  different iterations");
    }
    OK(cudaStreamDestroy(own));
    OK(cudaStreamDestroy(blocking));
}

static void many(void)
{
    pair p;
    cudaStream_t s = new_stream();
    for (int i = 0; i < 20000; i++)
        mix<<<1, n_words, 0, s>>>(p.a, p.b, i, i >> 3);
    p.say("one kernel 20,000 times");
    for (int i = 0; i < 20000; i++)
        mix<<<1, n_words, 0, s>>>(p.a, p.b, 1, 2);
    p.say("the same one 20,000 times");
    unsigned random = 1;
    for (int i = 0; i < 5000; i++) {
        random = random * 1664525 + 1013904223;
        mix<<<1 + (random >> 30), n_words / (1 + (random >> 29) % 2), 0, s>>>(p.a, p.b,
                                                                              random >> 20, i);
    }
    p.say("5,000 that never repeat");
    OK(cudaStreamDestroy(s));
}

/* ---- several streams ---- */

static void fork_and_join(void)
{
    cudaStream_t s[4];
    cudaEvent_t forked, joined[4];
    pair p[4];
    OK(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming));
    for (int k = 0; k < 4; k++) {
        s[k] = new_stream();
        OK(cudaEventCreateWithFlags(&joined[k], cudaEventDisableTiming));
    }
    for (int i = 0; i < 4 * n_iterations; i++) {
        for (int n = 0; n < 6; n++)
            p[0].mix_on(s[0], n, i);
        OK(cudaEventRecord(forked, s[0]));
        for (int k = 1; k < 4; k++) {
            OK(cudaStreamWaitEvent(s[k], forked, 0));
            for (int n = 0; n < 16; n++)
                mix<<<1, n_words, 0, s[k]>>>(p[k].a, n % 2 ? p[0].a : p[k].b, n, k);
            OK(cudaEventRecord(joined[k], s[k]));
        }
        for (int k = 1; k < 4; k++)
            OK(cudaStreamWaitEvent(s[0], joined[k], 0));
        for (int k = 1; k < 4; k++)
            mix<<<1, n_words, 0, s[0]>>>(p[0].a, p[k].a, k, i);
        if (i % 3 == 0)
            OK(cudaStreamSynchronize(s[0]));
    }
    for (auto &one : p)
        one.say("fork and join");
    /* Blocking streams and the legacy one wait for each other without any event. */
    cudaStream_t blocking[2] = {new_stream(cudaStreamDefault), new_stream(cudaStreamDefault)};
    for (int i = 0; i < 4 * n_iterations; i++) {
        for (int n = 0; n < 5; n++)
            mix<<<1, n_words, 0, blocking[0]>>>(p[0].a, p[1].a, n, i);
        for (int n = 0; n < 5; n++)
            mix<<<1, n_words>>>(p[1].a, p[0].a, n, i);
        for (int n = 0; n < 5; n++)
            mix<<<1, n_words, 0, blocking[1]>>>(p[2].a, p[1].a, n, i);
        mix<<<1, n_words>>>(p[0].a, p[2].a, i, i);
    }
    for (auto &one : p)
        one.say("blocking streams and the legacy one");
    for (int k = 0; k < 4; k++) {
        OK(cudaStreamDestroy(s[k]));
        OK(cudaEventDestroy(joined[k]));
    }
    OK(cudaEventDestroy(forked));
    OK(cudaStreamDestroy(blocking[0]));
    OK(cudaStreamDestroy(blocking[1]));
}

static void threads(void)
{
    cudaStream_t s[4] = {new_stream(), new_stream(cudaStreamDefault), cudaStreamPerThread,
                         cudaStreamPerThread};
    pair p[4], shared;
    std::vector<std::thread> all;
    for (int k = 0; k < 4; k++)
        all.emplace_back([&, k] {
            for (int i = 0; i < 10 * n_iterations; i++) {
                for (int n = 0; n < 9; n++)
                    p[k].mix_on(s[k], n, i);
                if (i % (k + 2) == 0)
                    OK(cudaStreamSynchronize(s[k]));
            }
            OK(cudaStreamSynchronize(s[k]));
        });
    for (auto &t : all)
        t.join();
    for (auto &one : p)
        one.say("a thread's own stream");
    /* One stream, two threads in turn. */
    cudaStream_t one = new_stream();
    for (int i = 0; i < n_iterations; i++)
        std::thread([&] {
            for (int n = 0; n < 9; n++)
                shared.mix_on(one, n, i);
        }).join();
    shared.say("a stream of many threads");
    for (auto stream : {s[0], s[1], one})
        OK(cudaStreamDestroy(stream));
}

/* ---- copies, fills, host functions, memory ---- */

static void pageable(void)
{
    cudaStream_t s = new_stream();
    for (size_t bytes : {(size_t)4, 4 * KIB, 60 * KIB, 64 * KIB, 256 * KIB, MIB}) {
        unsigned *host = (unsigned *)malloc(bytes), *device, *sums, got[2 * n_iterations];
        OK(cudaMalloc(&device, bytes));
        OK(cudaMalloc(&sums, sizeof got));
        OK(cudaMemset(sums, 0, sizeof got));
        OK(cudaDeviceSynchronize());
        for (int i = 0; i < 2 * n_iterations; i++) {
            memset(host, i + 1, bytes);
            host[0] = i;
            OK(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, s));
            memset(host, 0xee,
                   bytes); /* the call has returned: the buffer is the program's again */
            sum_up<<<1, 256, 0, s>>>(sums + i, device, bytes / sizeof *device);
            if (i % 4 == 3)
                OK(cudaStreamSynchronize(s));
        }
        OK(cudaStreamSynchronize(s));
        OK(cudaMemcpy(got, sums, sizeof got, cudaMemcpyDeviceToHost));
        unsigned sum = 0;
        for (unsigned one : got)
            sum = sum * 31 + one;
        printf("%zu pageable bytes, overwritten: %08x\n", bytes, sum);
        OK(cudaFree(device));
        OK(cudaFree(sums));
        free(host);
    }
    OK(cudaStreamDestroy(s));
}

/* More copies on their way than any ring has slots: the device is kept busy, and nobody waits. */
static void pageable_behind(void)
{
    const int n = 3000;
    const size_t bytes = 4 * KIB;
    cudaStream_t s = new_stream();
    unsigned *host = (unsigned *)malloc(bytes), *device, *sums, got[n], sum = 0;
    OK(cudaMalloc(&device, bytes));
    OK(cudaMalloc(&sums, sizeof got));
    OK(cudaMemset(sums, 0, sizeof got));
    OK(cudaDeviceSynchronize());
    for (int i = 0; i < n; i++) {
        memset(host, i, bytes);
        OK(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, s));
        memset(host, 0xee, bytes);
        slow<<<1, 1, 0, s>>>(device, i, 5 * 1000);
        sum_up<<<1, 256, 0, s>>>(sums + i, device, bytes / sizeof *device);
    }
    OK(cudaStreamSynchronize(s));
    OK(cudaMemcpy(got, sums, sizeof got, cudaMemcpyDeviceToHost));
    for (unsigned one : got)
        sum = sum * 31 + one;
    printf("%d copies behind a busy device: %08x\n", n, sum);
    OK(cudaFree(device));
    OK(cudaFree(sums));
    OK(cudaStreamDestroy(s));
    free(host);
}

/* A program that asks until it is done: what it was told is done, must be. */
static void queries(void)
{
    cudaStream_t s = new_stream();
    cudaEvent_t event;
    pair p;
    unsigned *pinned, seen = 0, early = 0;
    OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    OK(cudaMallocHost(&pinned, sizeof *pinned));
    for (int i = 0; i < 4 * n_iterations; i++) {
        *pinned = 0xdead;
        for (int k = 0; k < 8; k++)
            p.mix_on(s, k, i);
        if (i % 3 == 0)
            slow<<<1, 1, 0, s>>>(p.a, i, 300 * 1000);
        OK(cudaMemcpyAsync(pinned, p.a, sizeof *pinned, cudaMemcpyDeviceToHost, s));
        if (i % 2)
            OK(cudaEventRecord(event, s));
        cudaError_t code;
        do
            code = i % 2 ? cudaEventQuery(event) : cudaStreamQuery(s);
        while (code == cudaErrorNotReady);
        OK(code);
        early += *(volatile unsigned *)pinned == 0xdead;
        seen = seen * 31 + *pinned;
    }
    (void)cudaGetLastError();
    p.say("asked until it is done");
    printf("  seen %08x, too early %u\n", seen, early);
    OK(cudaFreeHost(pinned));
    OK(cudaEventDestroy(event));
    OK(cudaStreamDestroy(s));
}

static unsigned host_sum;
static void add_up(void *data)
{
    host_sum = host_sum * 31 + *(unsigned *)data;
}

static void operations(void)
{
    cudaStream_t s = new_stream();
    pair p;
    unsigned *pinned, *flat, pageable[n_words], numbers[8], seen = 0;
    char *pitched;
    size_t pitch;
    OK(cudaMallocHost(&pinned, 2 * n_words * sizeof *pinned));
    OK(cudaMalloc(&flat, 4096));
    OK(cudaMallocPitch(&pitched, &pitch, 40, 6));
    OK(cudaMemset2D(pitched, pitch, 0, 40, 6));
    OK(cudaDeviceSynchronize());
    for (int i = 0; i < 6 * n_iterations; i++) {
        OK(cudaMemsetAsync(p.a + 3, i, 8, s));
        p.mix_on(s, 1, i);
        OK(cuMemsetD32Async((CUdeviceptr)(p.b + 20), i, i % 4 + 1, s));
        OK(cuMemsetD16Async((CUdeviceptr)(p.b + 30), i, 4, s));
        OK(cudaMemcpyAsync(flat, p.a, n_words * 4, cudaMemcpyDeviceToDevice, s));
        OK(cudaMemcpy2DAsync(pitched, pitch, flat, 40, 40, 6, cudaMemcpyDeviceToDevice, s));
        OK(cudaMemset2DAsync(pitched + pitch, pitch, i % 3, 8, 3, s));
        p.mix_on(s, 2, i);
        OK(cudaMemcpyAsync(pinned + i % 2 * n_words, p.a, n_words * 4, cudaMemcpyDeviceToHost, s));
        numbers[i % 8] = i;
        OK(cudaLaunchHostFunc(s, add_up, &numbers[i % 8]));
        p.mix_on(s, 3, i);
        OK(cudaMemcpyAsync(p.b, pitched + pitch, 40, cudaMemcpyDeviceToDevice, s));
        if (i % 3 == 0) {
            OK(cudaMemcpyAsync(pageable, p.b, sizeof pageable, cudaMemcpyDeviceToHost, s));
            OK(cudaStreamSynchronize(s));
            seen = seen * 31 + pageable[5] + pinned[i % 2 * n_words + 7];
            pinned[n_words - 1] = seen;
            OK(cudaMemcpyAsync(p.a + 9, pinned + n_words - 1, 4, cudaMemcpyHostToDevice, s));
        }
        if (i % 8 == 7)
            OK(cudaStreamSynchronize(s));
    }
    p.say("copies, fills, host functions");
    printf("  seen %08x, host functions %08x\n", seen, host_sum);
    OK(cudaFreeHost(pinned));
    OK(cudaFree(flat));
    OK(cudaFree(pitched));
    OK(cudaStreamDestroy(s));
}

/* Memory that comes and goes within an iteration, plainly and in stream order. */
static void memory(void)
{
    cudaStream_t s = new_stream();
    pair p, q;
    for (int i = 0; i < 3 * n_iterations; i++) {
        unsigned *t, *u;
        OK(cudaMalloc(&t, n_words * sizeof *t));
        OK(cudaMemsetAsync(t, i, n_words * sizeof *t, s));
        for (int k = 0; k < 6; k++)
            mix<<<1, n_words, 0, s>>>(k % 2 ? p.a : t, k % 2 ? t : p.a, k, i);
        OK(cudaMalloc(&u, 2 * n_words * sizeof *u));
        OK(cudaMemcpyAsync(u, t, n_words * sizeof *u, cudaMemcpyDeviceToDevice, s));
        OK(cudaFree(t));
        for (int k = 0; k < 6; k++)
            mix<<<1, n_words, 0, s>>>(k % 2 ? p.b : u, k % 2 ? u : p.b, k, i);
        OK(cudaFree(u));
    }
    p.say("cudaMalloc and cudaFree inside");
    for (int i = 0; i < 3 * n_iterations; i++) {
        unsigned *t;
        OK(cudaMallocAsync(&t, n_words * sizeof *t, s));
        OK(cudaMemsetAsync(t, i, n_words * sizeof *t, s));
        for (int k = 0; k < 6; k++)
            mix<<<1, n_words, 0, s>>>(k % 2 ? q.a : t, k % 2 ? t : q.a, k, i);
        OK(cudaFreeAsync(t, s));
        for (int k = 0; k < 3; k++)
            q.mix_on(s, k, i);
    }
    q.say("cudaMallocAsync and cudaFreeAsync inside");
    OK(cudaStreamDestroy(s));
}

/* ---- launches of every kind ---- */

/* A launch with one attribute, in a loop among plain ones. */
static void with_attribute(const char *name, const void *kernel, cudaStream_t s, int id,
                           cudaLaunchAttributeValue value)
{
    pair p;
    cudaLaunchAttribute attribute = {};
    cudaLaunchConfig_t config = {};
    attribute.id = (cudaLaunchAttributeID)id;
    attribute.val = value;
    config.gridDim = dim3(4);
    config.blockDim = dim3(16);
    config.stream = s;
    config.attrs = &attribute;
    config.numAttrs = id ? 1 : 0;
    cudaError_t code = cudaSuccess;
    for (int i = 0; i < 2 * n_iterations; i++) {
        p.mix_on(s, 1, i);
        for (unsigned k = 0; k < 6; k++) {
            unsigned a = k, b = i;
            void *args[] = {k % 2 ? &p.a : &p.b, k % 2 ? &p.b : &p.a, &a, &b};
            cudaError_t one = cudaLaunchKernelExC(&config, kernel, args);
            if (one)
                code = one;
        }
        p.mix_on(s, 2, i);
        if (i % 3 == 0)
            OK(cudaStreamSynchronize(s));
    }
    printf("%s: code %d\n", name, code);
    (void)cudaGetLastError();
    p.say("  bytes");
}

static void kinds(void)
{
    int least, greatest;
    cudaStream_t s = new_stream(), urgent;
    cudaEvent_t event;
    OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    OK(cudaStreamCreateWithPriority(&urgent, cudaStreamNonBlocking, greatest));
    OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    cudaLaunchAttributeValue v = {};
    with_attribute("no attribute", (const void *)mix, s, 0, v);
    with_attribute("urgent stream", (const void *)mix, urgent, 0, v);
    v.cooperative = 1;
    with_attribute("cooperative", (const void *)mix_together, s, cudaLaunchAttributeCooperative, v);
    v = {};
    v.clusterDim.x = 2;
    v.clusterDim.y = v.clusterDim.z = 1;
    with_attribute("clusters of 2", (const void *)mix, s, cudaLaunchAttributeClusterDimension, v);
    v = {};
    v.programmaticStreamSerializationAllowed = 1;
    with_attribute("programmatic serialization", (const void *)mix_early, s,
                   cudaLaunchAttributeProgrammaticStreamSerialization, v);
    v = {};
    v.programmaticEvent.event = event;
    with_attribute("programmatic event", (const void *)mix_early, s,
                   cudaLaunchAttributeProgrammaticEvent, v);
    v = {};
    v.launchCompletionEvent.event = event;
    with_attribute("launch completion event", (const void *)mix, s,
                   cudaLaunchAttributeLaunchCompletionEvent, v);
    v = {};
    v.priority = greatest;
    with_attribute("priority", (const void *)mix, s, cudaLaunchAttributePriority, v);
    v = {};
    v.memSyncDomain = cudaLaunchMemSyncDomainRemote;
    with_attribute("remote domain", (const void *)mix, s, cudaLaunchAttributeMemSyncDomain, v);
    v = {};
    v.accessPolicyWindow.hitProp = cudaAccessPropertyNormal;
    with_attribute("access policy window", (const void *)mix, s,
                   cudaLaunchAttributeAccessPolicyWindow, v);
    pair p;
    for (int i = 0; i < n_iterations; i++) {
        for (unsigned k = 0; k < 6; k++) {
            unsigned b = i;
            void *args[] = {k % 2 ? &p.a : &p.b, k % 2 ? &p.b : &p.a, &k, &b};
            OK(cudaLaunchCooperativeKernel((const void *)mix_together, dim3(4), dim3(16), args, 0,
                                           s));
        }
        OK(cudaStreamSynchronize(s));
    }
    p.say("cudaLaunchCooperativeKernel");
    large values = {};
    for (int i = 0; i < n_iterations; i++) {
        for (int k = 0; k < 6; k++) {
            values.words[k * 7] = i;
            values.words[499] = k;
            mix_large<<<1, n_words, 0, s>>>(p.a, values);
        }
        OK(cudaStreamSynchronize(s));
    }
    p.say("2,000 bytes of parameters");
    OK(cudaStreamDestroy(s));
    OK(cudaStreamDestroy(urgent));
    OK(cudaEventDestroy(event));
}

/* The driver's own calls: CUfunction, CUkernel, `extra`. */
static void handles(void)
{
    cudaStream_t s = new_stream();
    cudaKernel_t kernel;
    CUfunction function = function_of((const void *)mix);
    pair by_function, by_kernel, by_extra;
    OK(cudaGetKernel(&kernel, (const void *)mix));
    for (int i = 0; i < 2 * n_iterations; i++) {
        unsigned b = i;
        for (unsigned k = 0; k < 8; k++) {
            void *params[] = {&by_function.a, &by_function.b, &k, &b};
            OK(cuLaunchKernel(function, 1, 1, 1, n_words, 1, 1, 0, s, params, NULL));
        }
        for (unsigned k = 0; k < 8; k++) {
            void *params[] = {&by_kernel.a, &by_kernel.b, &k, &b};
            OK(cuLaunchKernel((CUfunction)kernel, 1, 1, 1, n_words, 1, 1, 0, s, params, NULL));
        }
        for (unsigned k = 0; k < 8; k++) {
            struct {
                unsigned *to, *from;
                unsigned a, b;
            } buffer = {by_extra.a, by_extra.b, k, b};
            size_t bytes = sizeof buffer;
            void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_BUFFER_SIZE,
                             &bytes, CU_LAUNCH_PARAM_END};
            OK(cuLaunchKernel(function, 1, 1, 1, n_words, 1, 1, 0, s, NULL, extra));
        }
        if (i % 2)
            OK(cudaStreamSynchronize(s));
    }
    by_function.say("CUfunction");
    by_kernel.say("CUkernel");
    by_extra.say("extra");
    OK(cudaStreamDestroy(s));
}

/* ---- the program's own graphs ---- */

static void own_graphs(void)
{
    cudaStream_t s = new_stream(), other = new_stream();
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    pair p, q;
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    for (int k = 0; k < 10; k++)
        p.mix_on(s, k, 77);
    OK(cudaStreamEndCapture(s, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3 * n_iterations; i++) {
        for (int k = 0; k < 7; k++)
            p.mix_on(s, k, i);
        if (i % 3 == 0) { /* on another stream, which waits for nothing by itself */
            OK(cudaStreamSynchronize(s));
            OK(cudaGraphLaunch(exec, other));
            OK(cudaStreamSynchronize(other));
        } else {
            OK(cudaGraphLaunch(exec, s));
        }
        for (int k = 0; k < 7; k++)
            p.mix_on(s, k, i);
        if (i % 9 == 8) { /* the very loop, captured this time */
            cudaGraph_t once;
            cudaGraphExec_t once_exec;
            OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
            for (int k = 0; k < 7; k++)
                p.mix_on(s, k, i);
            OK(cudaStreamEndCapture(s, &once));
            OK(cudaGraphInstantiate(&once_exec, once, 0));
            OK(cudaGraphLaunch(once_exec, s));
            OK(cudaGraphExecDestroy(once_exec));
            OK(cudaGraphDestroy(once));
        }
    }
    p.say("own graphs between");
    /* A thread captures while this one goes round. */
    std::atomic<bool> stop{false};
    std::thread capturing([&] {
        cudaStream_t mine = new_stream();
        cudaGraph_t one;
        while (!stop) {
            OK(cudaStreamBeginCapture(mine, cudaStreamCaptureModeThreadLocal));
            for (int k = 0; k < 3; k++)
                p.mix_on(mine, k, 1);
            OK(cudaStreamEndCapture(mine, &one));
            OK(cudaGraphDestroy(one));
        }
        OK(cudaStreamDestroy(mine));
    });
    for (int i = 0; i < 10 * n_iterations; i++) {
        for (int k = 0; k < 9; k++)
            q.mix_on(other, k, i);
        OK(cudaStreamSynchronize(other));
    }
    stop = true;
    capturing.join();
    q.say("beside a thread that captures");
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
    OK(cudaStreamDestroy(s));
    OK(cudaStreamDestroy(other));
}

/* ---- events ---- */

static void events(void)
{
    cudaStream_t s = new_stream(), other = new_stream();
    cudaEvent_t from, inside, to, last;
    pair p;
    int wrong = 0, pending = 0;
    OK(cudaEventCreate(&from));
    OK(cudaEventCreate(&inside));
    OK(cudaEventCreate(&to));
    OK(cudaEventCreateWithFlags(&last, cudaEventDisableTiming));
    for (int i = 0; i < 2 * n_iterations; i++) {
        float whole = -1, first = -1, second = -1;
        double start = now_s();
        OK(cudaEventRecord(from, s));
        for (int k = 0; k < 5; k++)
            p.mix_on(s, k, i);
        slow<<<1, 1, 0, s>>>(p.a, i, 200 * 1000);
        OK(cudaEventRecord(inside, s));
        for (int k = 0; k < 5; k++)
            p.mix_on(s, k, i);
        slow<<<1, 1, 0, s>>>(p.b, i, 100 * 1000);
        OK(cudaEventRecord(to, s));
        OK(cudaEventSynchronize(to));
        double wall = 1e3 * (now_s() - start);
        OK(cudaEventElapsedTime(&whole, from, to));
        OK(cudaEventElapsedTime(&first, from, inside));
        OK(cudaEventElapsedTime(&second, inside, to));
        /* The device's clock ticks in microseconds. */
        if (first < 0.19f || second < 0.09f || whole > wall + 0.05 ||
            whole < first + second - 0.01f)
            wrong++;
    }
    p.say("timing events");
    printf("  implausible times: %d\n", wrong);
    /* An event that was recorded last behind work in progress is not ready, and is waited for. */
    for (int i = 0; i < n_iterations; i++) {
        for (int k = 0; k < 5; k++)
            p.mix_on(s, k, i);
        slow<<<1, 1, 0, s>>>(p.a, i, 2000 * 1000);
        OK(cudaEventRecord(last, s));
        pending += cudaEventQuery(last) == cudaErrorNotReady;
        (void)cudaGetLastError();
        OK(cudaStreamWaitEvent(other, last, 0));
        mix<<<1, n_words, 0, other>>>(p.b, p.a, 1, i);
        OK(cudaEventRecord(inside, other));
        OK(cudaStreamWaitEvent(s, inside, 0));
    }
    p.say("events waited for");
    printf("  not ready at once: %s\n",
           pending >= n_iterations - 3 ? "nearly always" : "too seldom");
    OK(cudaEventDestroy(from));
    OK(cudaEventDestroy(inside));
    OK(cudaEventDestroy(to));
    OK(cudaEventDestroy(last));
    OK(cudaStreamDestroy(s));
    OK(cudaStreamDestroy(other));
}

/* ---- errors ---- */

/* Launches that the driver refuses come in the middle of what has been repeated: the code comes at
 * once. */
static void refused(void)
{
    cudaStream_t s = new_stream();
    CUfunction function = function_of((const void *)mix);
    pair p;
    unsigned shapes[][5] = {/* grid, block, shared memory */
                            {0, 1, 64, 1, 0}, {1, 70000, 64, 1, 0},    {1, 1, 2048, 1, 0},
                            {1, 1, 0, 1, 0},  {1, 1, 64, 1, 1u << 20}, {1, 1, 64, 100, 0}};
    for (auto &shape : shapes) {
        int codes[2] = {0, 0};
        for (int i = 0; i < n_iterations; i++) {
            unsigned b = i;
            for (unsigned k = 0; k < 6; k++) {
                void *params[] = {&p.a, &p.b, &k, &b};
                bool odd = i >= n_iterations - 2 && k == 3;
                CUresult code =
                    odd ? cuLaunchKernel(function, shape[0], shape[1], 1, shape[2], shape[3], 1,
                                         shape[4], s, params, NULL)
                        : cuLaunchKernel(function, 1, 1, 1, n_words, 1, 1, 0, s, params, NULL);
                if (odd)
                    codes[i - n_iterations + 2] = code;
                else
                    OK(code);
            }
            OK(cudaStreamSynchronize(s));
        }
        printf("grid %u,%u block %u,%u shared %u: %d %d\n", shape[0], shape[1], shape[2], shape[3],
               shape[4], codes[0], codes[1]);
        (void)cudaGetLastError();
    }
    p.say("refused launches between");
    OK(cudaStreamDestroy(s));
}

/* Addresses that copies and fills refuse, in the last iteration. */
static void bad_addresses(void)
{
    cudaStream_t s = new_stream();
    pair p;
    int codes[4] = {0, 0, 0, 0};
    for (int i = 0; i < n_iterations; i++) {
        CUdeviceptr bad = i == n_iterations - 1 ? 0x10 : (CUdeviceptr)p.a;
        for (int k = 0; k < 4; k++)
            p.mix_on(s, k, i);
        codes[0] = cuMemsetD32Async(bad, 1, 4, s);
        codes[1] = cuMemcpyDtoDAsync((CUdeviceptr)p.b, bad, 16, s);
        codes[2] = cuMemsetD32Async(bad + (i == n_iterations - 1 ? 2 : 0), 1, 4, s);
        codes[3] = cuMemcpyDtoDAsync((CUdeviceptr)p.b, (CUdeviceptr)p.a, 0, s);
        OK(cudaStreamSynchronize(s));
    }
    printf("bad addresses: fill %d, copy %d, odd fill %d, copy of nothing %d\n", codes[0], codes[1],
           codes[2], codes[3]);
    p.say("bad addresses between");
    OK(cudaStreamDestroy(s));
}

/* A kernel that faults in the twentieth iteration of a loop. Its context is lost. */
static void fault(void)
{
    cudaStream_t s = new_stream();
    pair p;
    unsigned *to = p.a;
    CUresult code = CUDA_SUCCESS;
    int i;
    for (i = 0; i < n_iterations && code == CUDA_SUCCESS; i++) {
        for (int k = 0; k < 12; k++) {
            if (i == 20 && k == 6)
                to = NULL;
            mix<<<1, n_words, 0, s>>>(to, p.b, k, i);
            mix<<<1, n_words, 0, s>>>(p.b, p.a, k, i);
        }
        code = cuStreamSynchronize(s);
    }
    printf("the wait of iteration %d says %d\n", i, code);
    printf("then: stream %d", cuStreamQuery(s));
    mix<<<1, 1, 0, s>>>(p.a, p.b, 1, 1);
    printf(", launch %d", cudaGetLastError());
    printf(", malloc %d", cudaMalloc(&to, 16));
    printf(", reset %d\n", cudaDeviceReset());
    exit(0); /* what is left has no context any more */
}

/* ---- ends ---- */

static void streams_come_and_go(void)
{
    pair p;
    for (int i = 0; i < n_iterations; i++) {
        cudaStream_t s = new_stream(i % 2 ? cudaStreamNonBlocking : cudaStreamDefault);
        for (int iteration = 0; iteration < 6; iteration++) {
            for (int k = 0; k < 8; k++)
                p.mix_on(s, k, i);
            if (iteration < 5)
                OK(cudaStreamSynchronize(s));
        }
        OK(cudaStreamDestroy(s)); /* with work that was just submitted */
        OK(cudaDeviceSynchronize());
    }
    p.say("streams destroyed with work");
    /* A child that knows nothing of CUDA, in the middle. */
    cudaStream_t s = new_stream();
    for (int i = 0; i < n_iterations; i++) {
        for (int k = 0; k < 8; k++)
            p.mix_on(s, k, i);
        if (i % 10 == 9) {
            fflush(stdout);
            pid_t child = fork();
            if (child == 0)
                _exit(7);
            int status = 0;
            OK(child < 0 || waitpid(child, &status, 0) != child);
            printf("child %d\n", WEXITSTATUS(status));
            for (int k = 0; k < 8; k++)
                p.mix_on(s, k, i);
        }
        OK(cudaStreamSynchronize(s));
    }
    p.say("forked in the middle");
    OK(cudaStreamDestroy(s));
}

static void reset(void)
{
    for (int life = 0; life < 3; life++) {
        cudaStream_t s = new_stream();
        pair *p = new pair;
        for (int i = 0; i < n_iterations; i++) {
            for (int k = 0; k < 8; k++)
                p->mix_on(s, k, i);
            OK(cudaStreamSynchronize(s));
        }
        p->say("before a reset");
        for (int k = 0; k < 5; k++)
            p->mix_on(s, k, 1);
        printf("reset %d\n", cudaDeviceReset());
    }
}

/* A loop whose kernel needs more stack than there was when it was found. */
static void stack(void)
{
    cudaStream_t s = new_stream();
    pair p;
    for (unsigned depth : {1, 18}) {
        if (depth > 2)
            OK(cudaDeviceSetLimit(cudaLimitStackSize, 8 * KIB));
        for (int i = 0; i < n_iterations; i++) {
            for (unsigned k = 0; k < 10; k++)
                mix_deep<<<1, 1, 0, s>>>(p.a, depth - k % 2, i % 2 + k);
            OK(cudaStreamSynchronize(s));
        }
        p.say("deep");
    }
    OK(cudaStreamDestroy(s));
}

/* Copies and fills submitted while another context of the device is current. */
static void elsewhere(void)
{
    CUcontext home, other;
    cudaStream_t s = new_stream();
    pair p;
    unsigned *copy, sum = 0;
    OK(cudaMallocHost(&copy, n_words * sizeof *copy));
    OK(cuCtxGetCurrent(&home));
    OK(cuCtxCreate(&other, NULL, 0, 0));
    OK(cuCtxSetCurrent(home));
    for (int i = 0; i < n_iterations; i++) {
        for (unsigned k = 0; k < 6; k++)
            p.mix_on(s, k, i % 3 + k);
        OK(cuCtxSetCurrent(other));
        CUresult copied =
            cuMemcpyDtoHAsync(copy, (CUdeviceptr)p.a, n_words * sizeof *copy, (CUstream)s);
        CUresult filled = cuMemsetD32Async((CUdeviceptr)p.a, i, 1, (CUstream)s);
        OK(cuCtxSetCurrent(home));
        if (i % 10 == 0)
            printf("codes: %d, %d\n", copied, filled);
        p.mix_on(s, 1, i % 2);
        OK(cudaStreamSynchronize(s));
        for (unsigned word = 0; word < n_words; word++)
            sum = (sum ^ copy[word]) * 16777619u;
    }
    p.say("elsewhere");
    printf("copied: %08x\n", sum);
    OK(cudaFreeHost(copy));
    OK(cudaStreamDestroy(s));
}

/* Code that is loaded, looped, unloaded and loaded again. */
static void code(const char *path)
{
    OK(cudaFree(NULL));
    unsigned *words, n = n_words, factor, back[n_words];
    cudaStream_t s = new_stream();
    OK(cudaMalloc(&words, n_words * sizeof *words));
    OK(cudaMemset(words, 1, n_words * sizeof *words));
    OK(cudaDeviceSynchronize());
    for (int life = 0; life < 5; life++) {
        CUmodule module;
        CUfunction scale;
        OK(cuModuleLoad(&module, path));
        OK(cuModuleGetFunction(&scale, module, "scale"));
        void *params[] = {&words, &n, &factor};
        for (int i = 0; i < n_iterations; i++) {
            for (int k = 0; k < 10; k++) {
                factor = 3 + k + i % 2 * life;
                OK(cuLaunchKernel(scale, 1, 1, 1, n_words, 1, 1, 0, s, params, NULL));
            }
            if (i < n_iterations - 1)
                OK(cudaStreamSynchronize(s));
        }
        if (life % 2)
            OK(cudaStreamSynchronize(s));
        OK(cuModuleUnload(module)); /* with launches that nobody waited for, every other time */
        OK(cudaStreamSynchronize(s));
        OK(cudaMemcpy(back, words, sizeof back, cudaMemcpyDeviceToHost));
        unsigned hash = 0;
        for (unsigned word : back)
            hash = hash * 31 + word;
        printf("life %d of a module: %08x\n", life, hash);
    }
    OK(cudaStreamDestroy(s));
    OK(cudaFree(words));
}

/* Ends right after a launch, in several ways; the parent has the memory that the kernels write to.
 */
static void exits(const char *how)
{
    unsigned *shared =
        (unsigned *)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    OK(shared == MAP_FAILED);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        unsigned *seen;
        cudaStream_t s;
        OK(cudaHostRegister(shared, 4096, cudaHostRegisterMapped));
        OK(cudaHostGetDevicePointer((void **)&seen, shared, 0));
        s = new_stream();
        for (int i = 0; i < n_iterations; i++) {
            for (int k = 0; k < 10; k++)
                chain<<<1, 1, 0, s>>>(seen, k, i);
            if (i < n_iterations - 1)
                OK(cudaStreamSynchronize(s));
        }
        if (!strcmp(how, "return"))
            exit(0);
        if (!strcmp(how, "destroy"))
            (void)cudaStreamDestroy(s);
        else if (!strcmp(how, "reset"))
            (void)cudaDeviceReset();
        else if (!strcmp(how, "pause"))
            usleep(20 * 1000);
        else if (!strcmp(how, "thread"))
            std::thread([] { exit(0); }).join();
        _exit(0);
    }
    int status = 0;
    OK(child < 0 || waitpid(child, &status, 0) != child);
    unsigned wanted = 0;
    for (int i = 0; i < n_iterations; i++)
        for (int k = 0; k < 10; k++)
            wanted = chained(wanted, k, i);
    printf("ended by %s with %d: %s\n", how, WEXITSTATUS(status),
           shared[0] == wanted ? "all work was done" : "work is missing");
}

static const struct part {
    const char *name;
    void (*run)(void);
} parts[] = {
    {"plain", plain},
    {"many", many},
    {"fork_and_join", fork_and_join},
    {"threads", threads},
    {"pageable", pageable},
    {"pageable_behind", pageable_behind},
    {"queries", queries},
    {"operations", operations},
    {"memory", memory},
    {"kinds", kinds},
    {"handles", handles},
    {"own_graphs", own_graphs},
    {"events", events},
    {"refused", refused},
    {"bad_addresses", bad_addresses},
    {"streams", streams_come_and_go},
};

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "exits")) {
        exits(argv[2]);
        return 0;
    }
    if (argc == 3 && !strcmp(argv[1], "code")) {
        code(argv[2]);
        return 0;
    }
    if (argc == 2 && !strcmp(argv[1], "reset")) {
        reset();
        return 0;
    }
    if (argc == 2 && !strcmp(argv[1], "stack")) {
        stack();
        return 0;
    }
    if (argc == 2 && !strcmp(argv[1], "elsewhere")) {
        elsewhere();
        return 0;
    }
    if (argc == 2 && !strcmp(argv[1], "fault"))
        fault();
    int n_run = 0;
    for (const part &one : parts) {
        bool wanted = argc == 1;
        for (int i = 1; i < argc; i++)
            wanted = wanted || !strcmp(argv[i], one.name);
        if (wanted) {
            one.run();
            fflush(stdout);
            n_run++;
        }
    }
    return n_run ? 0 : EXIT_UNUSABLE;
}
