/*
 * What an allocator takes, as `name value` lines.
 *
 * usage: bench HEAP pairs BYTES THREADS    allocate and free at once, nothing submitted between
 *        bench HEAP turn                   the same around two tiny kernels, above these alone
 *        bench HEAP cold BYTES             allocate, and free nothing
 *        bench HEAP live N                 free one of N blocks, and allocate another
 *        bench HEAP trace FILE THREADS     each thread plays the trace on streams of its own, twice
 *        bench HEAP checked FILE THREADS   the same; blocks are written, and read before the free
 *        bench HEAP hurried                is a block handed out whose last kernel still runs on a
 *                                          stream that the allocator was not told of? Wrong words.
 *        bench heaps                       the names of the heaps
 */
#include "tests/gpu/check.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <pthread.h>
#include <random>
#include <thread>

#include "tests/bench/device_memory.h"
#include "tests/bench/heap.h"
#include "tests/bench/trace.h"

static std::unique_ptr<heap> the;
static double made_in_s;
static std::unique_ptr<memory_watch> memory; /* of what is checked */

/* --- kernels --- */

__global__ void tiny(unsigned *p)
{
    *p = 1;
}

__global__ void stamp(unsigned *words, size_t n_words, unsigned value, unsigned long long ns)
{
    if (ns)
        spin_ns(ns);
    for (size_t i = threadIdx.x; i < n_words; i += blockDim.x)
        words[i] = value;
}

__global__ void verify(const unsigned *words, size_t n_words, unsigned value, unsigned *n_wrong)
{
    for (size_t i = threadIdx.x; i < n_words; i += blockDim.x)
        if (words[i] != value)
            atomicAdd(n_wrong, 1);
}

/* --- one call after another --- */

static void *must_allocate(size_t bytes, cudaStream_t stream)
{
    void *block = the->allocate(bytes, stream);
    if (!block) {
        fprintf(stderr, "out of memory: %zu bytes\n", bytes);
        exit(EXIT_UNUSABLE);
    }
    return block;
}

static void pair(size_t bytes, cudaStream_t stream)
{
    the->release(must_allocate(bytes, stream), bytes, stream);
}

static double median(std::vector<double> values)
{
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

/* How long a batch takes, in seconds: 20 ms, or what BENCH_MS says where times mean nothing. */
static double batch_s()
{
    static const double s = getenv("BENCH_MS") ? atof(getenv("BENCH_MS")) / 1e3 : 0.02;
    return s;
}

/* What one call of `work` takes on the host, in ns: the median of batches. */
static double host_ns(const std::function<void()> &work)
{
    std::vector<double> batches;
    for (int i = 0; i < 20; i++)
        work();
    for (int batch = 0; batch < 7; batch++) {
        long n = 0;
        double start = now_s(), now;
        do {
            for (int i = 0; i < 10; i++)
                work();
            n += 10;
            now = now_s();
        } while (now - start < batch_s());
        OK(cudaDeviceSynchronize());
        batches.push_back(1e9 * (now - start) / (double)n);
    }
    return median(batches);
}

/* Where threads wait for each other. */
class meeting
{
    pthread_barrier_t barrier;

  public:
    explicit meeting(unsigned n)
    {
        OK(pthread_barrier_init(&barrier, nullptr, n));
    }
    ~meeting()
    {
        (void)pthread_barrier_destroy(&barrier);
    }
    void wait()
    {
        (void)pthread_barrier_wait(&barrier);
    }
};

static cudaStream_t new_stream()
{
    cudaStream_t stream;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

static void pairs_alone(size_t bytes)
{
    printf("pair_%zu_ns %.1f\n", bytes, host_ns([=] { pair(bytes, nullptr); }));
}

/* Pairs per second of all threads, each with a stream of its own. */
static void pairs_of_threads(size_t bytes, unsigned n_threads)
{
    meeting together(n_threads + 1);
    std::atomic<bool> stop{false};
    std::atomic<long> sum{0};
    std::vector<std::thread> threads;
    for (unsigned id = 0; id < n_threads; id++)
        threads.emplace_back([&] {
            cudaStream_t stream = new_stream();
            long n = 0;
            for (int i = 0; i < 20; i++)
                pair(bytes, stream);
            together.wait();
            for (; !stop.load(std::memory_order_relaxed); n += 8)
                for (int i = 0; i < 8; i++)
                    pair(bytes, stream);
            sum += n;
        });
    together.wait();
    double start = now_s();
    std::this_thread::sleep_for(std::chrono::duration<double>(10 * batch_s()));
    stop = true;
    for (auto &thread : threads)
        thread.join();
    printf("pairs_%zu_x%u_per_s %.0f\n", bytes, n_threads, (double)sum / (now_s() - start));
}

static void turn()
{
    static unsigned *scratch;
    OK(cudaMalloc(&scratch, 64 * KIB));
    auto kernels = [](unsigned *p) {
        tiny<<<1, 1>>>(p);
        tiny<<<1, 1>>>(p);
    };
    std::vector<double> more;
    for (int i = 0; i < 5; i++) {
        double alone = host_ns([=] { kernels(scratch); });
        double with = host_ns([=] {
            void *block = must_allocate(64 * KIB, nullptr);
            kernels((unsigned *)block);
            the->release(block, 64 * KIB, nullptr);
        });
        more.push_back(with - alone);
    }
    OK(cudaGetLastError());
    printf("turn_more_ns %.1f\n", median(more));
}

static void cold(size_t bytes)
{
    const int n = 500;
    double start = now_s();
    for (int i = 0; i < n; i++)
        (void)must_allocate(bytes, nullptr);
    printf("cold_%zu_ns %.1f\n", bytes, 1e9 * (now_s() - start) / n);
}

static void live(size_t n)
{
    const size_t bytes = 512;
    std::vector<void *> blocks(n);
    std::minstd_rand random(1);
    for (void *&block : blocks)
        block = must_allocate(bytes, nullptr);
    printf("live_%zu_ns %.1f\n", n, host_ns([&] {
               void *&block = blocks[random() % blocks.size()];
               the->release(block, bytes, nullptr);
               block = must_allocate(bytes, nullptr);
           }));
}

/* --- traces --- */

static unsigned *n_wrong; /* on the device */

static const size_t most_words = 1024; /* of each block */

static unsigned value_of(unsigned block, unsigned thread)
{
    return (block + 1) * 2654435761u + thread;
}

/* What one thread of a player has. */
struct player {
    const trace &it;
    unsigned thread;
    bool checks;
    std::vector<void *> blocks;
    std::vector<cudaStream_t> streams;

    player(const trace &played, unsigned number, bool checked)
        : it(played), thread(number), checks(checked), blocks(played.n_blocks)
    {
        for (unsigned i = 0; i < played.n_streams; i++)
            streams.push_back(new_stream());
    }
    void allocate(const step &s)
    {
        size_t n_words = std::min(s.bytes / sizeof(unsigned), most_words);
        void *block = blocks[s.block] = must_allocate(s.bytes, streams[s.stream]);
        if (checks)
            stamp<<<1, 64, 0, streams[s.stream]>>>((unsigned *)block, n_words,
                                                   value_of(s.block, thread), 0);
    }
    void release(const step &s, cudaStream_t stream)
    {
        size_t n_words = std::min(s.bytes / sizeof(unsigned), most_words);
        if (checks)
            verify<<<1, 64, 0, stream>>>((unsigned *)blocks[s.block], n_words,
                                         value_of(s.block, thread), n_wrong);
        the->release(blocks[s.block], s.bytes, stream);
        blocks[s.block] = nullptr;
    }
    void play()
    {
        for (const step &s : it.steps) {
            if (s.is_free)
                release(s, streams[s.stream]);
            else
                allocate(s);
        }
    }
    /* What the program never freed. */
    void finish()
    {
        for (const step &s : it.steps)
            if (!s.is_free && blocks[s.block])
                release(s, streams[s.stream]);
    }
};

/* Allocated on one stream and freed on another, a block was used on both: as in the program that
 * was recorded, the second waits for the first. */
static bool streams_cross(const trace &it)
{
    std::vector<unsigned> of(it.n_blocks);
    for (const step &s : it.steps) {
        if (s.is_free && of[s.block] != s.stream)
            return true;
        of[s.block] = s.stream;
    }
    return false;
}

/* How long it takes, in seconds; each time that it is played. What is left is freed
 * between. */
static std::vector<double> play(const trace &it, unsigned n_threads, unsigned times, bool checked)
{
    meeting together(n_threads + 1);
    std::vector<std::thread> threads;
    std::vector<double> took;
    if (checked && streams_cross(it)) {
        fprintf(stderr,
                "blocks are freed on other streams than they were allocated on: unchecked\n");
        exit(EXIT_UNUSABLE);
    }
    for (unsigned id = 0; id < n_threads; id++)
        threads.emplace_back([&, id] {
            player player(it, id, checked);
            for (unsigned i = 0; i < times; i++) {
                together.wait();
                player.play();
                OK(cudaDeviceSynchronize());
                together.wait();
                player.finish();
                OK(cudaDeviceSynchronize());
            }
        });
    for (unsigned i = 0; i < times; i++) {
        together.wait();
        double start = now_s();
        together.wait();
        took.push_back(now_s() - start);
    }
    for (auto &thread : threads)
        thread.join();
    return took;
}

static void play_timed(const trace &it, unsigned n_threads)
{
    std::vector<double> took = play(it, n_threads, 2, false);
    double n_steps = (double)it.steps.size();
    printf("trace_x%u_ns %.1f\n", n_threads, 1e9 * took[0] / n_steps);
    printf("trace_x%u_whole_ms %.3f\n", n_threads, 1e3 * (made_in_s + took[0]));
    printf("trace_x%u_again_ns %.1f\n", n_threads, 1e9 * took[1] / n_steps);
}

static void count_wrong_words()
{
    OK(cudaMalloc(&n_wrong, sizeof *n_wrong));
    OK(cudaMemset(n_wrong, 0, sizeof *n_wrong));
}

static unsigned words_wrong()
{
    unsigned n = 0;
    OK(cudaGetLastError());
    OK(cudaDeviceSynchronize());
    OK(cudaMemcpy(&n, n_wrong, sizeof n, cudaMemcpyDeviceToHost));
    return n;
}

static void play_checked(const trace &it, unsigned n_threads)
{
    (void)play(it, n_threads, 1, true);
    printf("trace_x%u_wrong_words %u\n", n_threads, words_wrong());
    printf("trace_x%u_asked_bytes %zu\n", n_threads, it.peak_bytes * n_threads);
    if (memory->peak_bytes())
        printf("trace_x%u_peak_bytes %zu\n", n_threads, memory->peak_bytes());
}

/* A program that knows cudaMalloc and cudaFree says nothing of streams. */
static void hurried()
{
    const size_t bytes = 1 * MIB, n_words = 1024;
    cudaStream_t busy = new_stream(), other = new_stream();
    for (int i = 0; i < 20; i++) {
        void *first = must_allocate(bytes, nullptr);
        stamp<<<1, 64, 0, busy>>>((unsigned *)first, n_words, 1, 1000 * 1000);
        the->release(first, bytes, nullptr);
        void *second = must_allocate(bytes, nullptr);
        stamp<<<1, 64, 0, other>>>((unsigned *)second, n_words, 2, 0);
        OK(cudaStreamSynchronize(busy));
        verify<<<1, 64, 0, other>>>((unsigned *)second, n_words, 2, n_wrong);
        OK(cudaStreamSynchronize(other));
        the->release(second, bytes, nullptr);
    }
    printf("hurried_wrong_words %u\n", words_wrong());
}

/* --- command line --- */

static size_t number(const char *text)
{
    char *end;
    unsigned long long n = strtoull(text, &end, 10);
    if (*end || end == text || !n) {
        fprintf(stderr, "not a number above 0: %s\n", text);
        exit(2);
    }
    return n;
}

static bool run(int n, char **words)
{
    std::string what = words[0];
    if (what == "pairs" && n == 3 && number(words[2]) == 1)
        pairs_alone(number(words[1]));
    else if (what == "pairs" && n == 3)
        pairs_of_threads(number(words[1]), (unsigned)number(words[2]));
    else if (what == "turn" && n == 1)
        turn();
    else if (what == "cold" && n == 2)
        cold(number(words[1]));
    else if (what == "live" && n == 2)
        live(number(words[1]));
    else if (what == "trace" && n == 3)
        play_timed(read_trace(words[1]), (unsigned)number(words[2]));
    else if (what == "checked" && n == 3)
        play_checked(read_trace(words[1]), (unsigned)number(words[2]));
    else if (what == "hurried" && n == 1)
        hurried();
    else
        return false;
    return true;
}

static int usage()
{
    fprintf(stderr, "usage: bench HEAP pairs BYTES THREADS | turn | cold BYTES | live N | trace "
                    "FILE THREADS |\n"
                    "       checked FILE THREADS | hurried;  bench heaps\n");
    return 2;
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "heaps")) {
        for (const add_heap *one = heaps; one; one = one->next)
            puts(one->name);
        return 0;
    }
    if (argc < 3)
        return usage();
    for (const add_heap *one = heaps; one; one = one->next)
        if (!strcmp(one->name, argv[1])) {
            /* What is timed begins with a device that is open, and no memory of anybody's. */
            OK(cudaFree(nullptr));
            if (!strcmp(argv[2], "checked") || !strcmp(argv[2], "hurried"))
                count_wrong_words();
            if (!strcmp(argv[2], "checked"))
                memory = std::make_unique<memory_watch>();
            double start = now_s();
            the = one->make();
            made_in_s = now_s() - start;
            bool has_run = run(argc - 2, argv + 2);
            the.reset(); /* while there is a driver: the end of the process is too late for some */
            memory.reset();
            return has_run ? 0 : usage();
        }
    fprintf(stderr, "no heap is named %s; `bench heaps` lists them\n", argv[1]);
    return 2;
}
