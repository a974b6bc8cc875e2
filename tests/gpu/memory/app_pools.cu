/*
 * The program's own stream-ordered pools.
 *   bytes   allocations from the default pool and one of its own, on four streams, in a graph: the
 *           words that kernels left, codes and attributes, one line each
 *   behind  what pools and graphs hold right behind a cudaFree, which waits for all that used them
 *   pairs   ns for cudaMallocAsync + cudaFreeAsync, `name value` lines
 *   loop    us for an iteration that allocates, computes, frees and waits: by default the pool
 *           gives everything back at that wait
 */
#include "tests/gpu/check.h"

#include <algorithm>
#include <thread>
#include <vector>

static const int n_streams = 4, n_iterations = 50;
static const size_t block_words = 1 * MIB / sizeof(unsigned);

__global__ void fill(unsigned *words, size_t n, unsigned value)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += gridDim.x * (size_t)blockDim.x)
        words[i] = value + (unsigned)i;
}

__global__ void add_up(const unsigned *words, size_t n, unsigned long long *sum)
{
    unsigned long long mine = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += gridDim.x * (size_t)blockDim.x)
        mine += words[i] * (i % 7 + 1);
    atomicAdd(sum, mine);
}

static cudaMemPool_t new_pool(void)
{
    cudaMemPoolProps props;
    cudaMemPool_t pool;
    memset(&props, 0, sizeof props);
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeDevice;
    OK(cudaMemPoolCreate(&pool, &props));
    return pool;
}

/* What a thread with a stream of its own computes in memory that it takes and gives back. */
static unsigned long long sums(cudaMemPool_t pool, unsigned number)
{
    unsigned long long *sum, total;
    cudaStream_t stream;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaMallocAsync(&sum, sizeof *sum, stream));
    OK(cudaMemsetAsync(sum, 0, sizeof *sum, stream));
    for (int iteration = 0; iteration < n_iterations; iteration++) {
        size_t n = block_words / (1 + iteration % 5);
        unsigned *words;
        if (iteration % 2)
            OK(cudaMallocAsync(&words, n * sizeof *words, stream));
        else
            OK(cudaMallocFromPoolAsync(&words, n * sizeof *words, pool, stream));
        fill<<<64, THREADS, 0, stream>>>(words, n, number * 1000 + iteration);
        add_up<<<64, THREADS, 0, stream>>>(words, n, sum);
        OK(cudaFreeAsync(words, stream));
        if (iteration % 10 == 9)
            OK(cudaStreamSynchronize(stream));
    }
    OK(cudaMemcpyAsync(&total, sum, sizeof total, cudaMemcpyDeviceToHost, stream));
    OK(cudaFreeAsync(sum, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaStreamDestroy(stream));
    return total;
}

static unsigned long long graph_sum(cudaStreamCaptureMode mode)
{
    unsigned long long *sum, total;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    unsigned *words;
    OK(cudaMalloc(&sum, sizeof *sum));
    OK(cudaMemset(sum, 0, sizeof *sum));
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaDeviceSynchronize());
    OK(cudaStreamBeginCapture(stream, mode));
    OK(cudaMallocAsync(&words, block_words * sizeof *words, stream));
    fill<<<64, THREADS, 0, stream>>>(words, block_words, 5);
    add_up<<<64, THREADS, 0, stream>>>(words, block_words, sum);
    OK(cudaFreeAsync(words, stream));
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < 3; i++)
        OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaMemcpy(&total, sum, sizeof total, cudaMemcpyDeviceToHost));
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
    OK(cudaStreamDestroy(stream));
    OK(cudaFree(sum));
    return total;
}

static void say_attributes(const char *what, cudaMemPool_t pool)
{
    uint64_t threshold = 77, used = 77;
    int code = cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold);
    printf("%s: code %d, threshold %llu", what, code, (unsigned long long)threshold);
    code = cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used);
    printf(", code %d, used %llu\n", code, (unsigned long long)used);
}

/* Is the memory said to come from the pool that is current? */
static void say_owner(cudaMemPool_t current)
{
    cudaStream_t stream = 0;
    void *p;
    OK(cudaMallocAsync(&p, MIB, stream));
    cudaMemPool_t pool = NULL;
    cudaPointerAttributes attributes;
    OK(cudaDeviceGetMemPool(&pool, 0));
    OK(cudaPointerGetAttributes(&attributes, p));
    printf("current: %d, device %d\n", pool == current, attributes.device);
    printf("kind: %d\n", (int)attributes.type);
    OK(cudaFreeAsync(p, stream));
    OK(cudaStreamSynchronize(stream));
}

static void say_codes(cudaMemPool_t pool)
{
    void *p = (void *)0x1234;
    int code = cudaMallocAsync(&p, (size_t)1 << 50, 0);
    printf("1 PiB: %d, pointer kept %d\n", code, p == (void *)0x1234);
    code = cudaMallocFromPoolAsync(&p, (size_t)1 << 50, pool, 0);
    printf("1 PiB from a pool: %d, pointer kept %d\n", code, p == (void *)0x1234);
    code = cudaFreeAsync((char *)0x10000, 0);
    printf("free of nothing: %d\n", code);
    (void)cudaGetLastError();
    code = cudaMemPoolTrimTo(pool, 0);
    printf("trim: %d\n", code);
    uint64_t high = 1;
    code = cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &high);
    printf("set high: %d\n", code);
    (void)cudaGetLastError();
}

static int bytes(void)
{
    cudaMemPool_t pool = new_pool(), usual;
    unsigned long long results[n_streams];
    std::vector<std::thread> threads;
    void *p;
    OK(cudaMalloc(&p, MIB));
    for (int i = 0; i < n_streams; i++)
        threads.emplace_back([&results, pool, i] { results[i] = sums(pool, i); });
    for (int i = 0; i < n_streams; i++) {
        threads[i].join();
        printf("sum %d: %llu\n", i, results[i]);
    }
    for (int mode = 0; mode < 3; mode++)
        printf("graph, mode %d: %llu\n", mode, graph_sum((cudaStreamCaptureMode)mode));
    OK(cudaDeviceGetDefaultMemPool(&usual, 0));
    say_attributes("default", usual);
    say_attributes("created", pool);
    say_owner(usual);
    OK(cudaDeviceSetMemPool(0, pool));
    say_owner(pool);
    say_codes(pool);
    OK(cudaMemPoolDestroy(pool));
    say_owner(usual);
    OK(cudaFree(p));
    return 0;
}

__global__ void late_word(int *p, unsigned long long ns)
{
    spin_ns(ns);
    *p = 1;
}

/* Memory in stream order, and a kernel that is late to use it. */
static void use_late(cudaMemPool_t pool, size_t size, cudaStream_t stream)
{
    int *p;
    OK(pool ? cudaMallocFromPoolAsync((void **)&p, size, pool, stream)
            : cudaMallocAsync((void **)&p, size, stream));
    late_word<<<1, 1, 0, stream>>>(p, 200000000);
    OK(cudaGetLastError());
    OK(cudaFreeAsync(p, stream));
}

static unsigned long long graph_level(cudaGraphMemAttributeType which)
{
    unsigned long long value = 0;
    OK(cudaDeviceGetGraphMemAttribute(0, which, &value));
    return value >> 20;
}

static int behind(void)
{
    cudaMemPool_t pool = new_pool(), usual;
    unsigned long long used, reserved;
    cudaGraphExec_t exec;
    cudaGraph_t graph;
    cudaStream_t stream;
    void *p[4];
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    use_late(NULL, MIB, stream);
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    for (auto &one : p)
        OK(cudaMalloc(&one, 4 * MIB));
    OK(cudaFree(p[0]));
    OK(cudaMalloc(&p[0], 4 * MIB)); /* from here on frees need not be the driver's own */
    OK(cudaDeviceSynchronize());
    OK(cudaDeviceGetDefaultMemPool(&usual, 0));
    use_late(NULL, MIB, stream);
    OK(cudaFree(p[0]));
    OK(cudaMemPoolGetAttribute(usual, cudaMemPoolAttrUsedMemCurrent, &used));
    OK(cudaMemPoolGetAttribute(usual, cudaMemPoolAttrReservedMemCurrent, &reserved));
    printf("pool: used %llu, reserved %llu MiB\n", used, reserved >> 20);
    OK(cudaDeviceSynchronize());
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaFree(p[1]));
    printf("graphs: used %llu, reserved %llu MiB\n", graph_level(cudaGraphMemAttrUsedMemCurrent),
           graph_level(cudaGraphMemAttrReservedMemCurrent));
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaFree(p[2]));
    OK(cudaDeviceGraphMemTrim(0));
    printf("graphs, trimmed: used %llu, reserved %llu MiB\n",
           graph_level(cudaGraphMemAttrUsedMemCurrent),
           graph_level(cudaGraphMemAttrReservedMemCurrent));
    /* Whether its memory is gone at once the driver does not always answer alike. */
    use_late(pool, 256 * MIB, stream);
    OK(cudaFree(p[3]));
    OK(cudaMemPoolDestroy(pool));
    return 0;
}

static double median(std::vector<double> values)
{
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

/* Median of many batches: a pair takes about as long as a cache miss or two. */
static double pair_ns(size_t size, cudaStream_t stream)
{
    std::vector<double> batches;
    void *p;
    for (int batch = 0; batch < 101; batch++) {
        double start = now_s();
        for (int i = 0; i < 1000; i++) {
            OK(cudaMallocAsync(&p, size, stream));
            OK(cudaFreeAsync(p, stream));
        }
        batches.push_back(1e9 * (now_s() - start) / 1000);
        OK(cudaStreamSynchronize(stream));
    }
    return median(batches);
}

static int pairs(void)
{
    cudaMemPool_t usual;
    cudaStream_t stream;
    uint64_t all = UINT64_MAX;
    void *p;
    OK(cudaMalloc(&p, MIB)); /* so that the library has something in its ledger */
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaDeviceGetDefaultMemPool(&usual, 0));
    OK(cudaMemPoolSetAttribute(usual, cudaMemPoolAttrReleaseThreshold, &all));
    (void)pair_ns(64 * KIB, stream);
    printf("pair_64kib_ns %.1f\n", pair_ns(64 * KIB, stream));
    printf("pair_1mib_ns %.1f\n", pair_ns(MIB, stream));
    OK(cudaFree(p));
    return 0;
}

static int loop(void)
{
    const size_t n = 64 * MIB / sizeof(unsigned);
    std::vector<double> us;
    cudaStream_t stream;
    unsigned *words[4];
    void *p;
    OK(cudaMalloc(&p, MIB));
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int iteration = 0; iteration < 60; iteration++) {
        double start = now_s();
        for (unsigned *&block : words)
            OK(cudaMallocAsync(&block, n * sizeof *block, stream));
        for (unsigned *block : words)
            fill<<<256, THREADS, 0, stream>>>(block, n, iteration);
        for (unsigned *block : words)
            OK(cudaFreeAsync(block, stream));
        OK(cudaStreamSynchronize(stream));
        if (iteration >= 10)
            us.push_back(1e6 * (now_s() - start));
    }
    OK(cudaFree(p));
    printf("loop_us %.1f\n", median(us));
    return 0;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    if (!strcmp(mode, "bytes"))
        return bytes();
    if (!strcmp(mode, "behind"))
        return behind();
    if (!strcmp(mode, "pairs"))
        return pairs();
    if (!strcmp(mode, "loop"))
        return loop();
    fprintf(stderr, "usage: app_pools bytes|behind|pairs|loop\n");
    return EXIT_UNUSABLE;
}
