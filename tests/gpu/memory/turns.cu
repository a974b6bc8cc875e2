/*
 * What allocating and freeing adds to a program's kernels, as `name value` lines: around tiny
 * kernels on one stream, on the device around kernels of 10 us, ten frees in a row after work on
 * three streams. Then what hides a slow allocator: cold blocks, a million live ones, pinned memory
 * beside 16 threads. Names in _more are the difference to the kernels alone in the same process.
 *
 * `ten-frees` runs only the frees in a row, and prints how often.
 */
#include "tests/gpu/check.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

static const int n_batches = 7;
static const int n_turns = 300;
static const int n_threads = 16;

__global__ void tiny(unsigned *p)
{
    *p = 1;
}

__global__ void short_kernel(unsigned *p, unsigned long long ns)
{
    spin_ns(ns);
    *p = 1;
}

static double median(std::vector<double> values)
{
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

/* The host's time of a turn, the device's work included, in us. */
static double host_us(const std::function<void(void)> &turn)
{
    double start = now_s();
    for (int i = 0; i < n_turns; i++)
        turn();
    OK(cudaDeviceSynchronize());
    return 1e6 * (now_s() - start) / n_turns;
}

static cudaEvent_t from, to;

/* The time of a turn on the NULL stream between two events, in us. */
static double device_us(const std::function<void(void)> &turn)
{
    float ms;
    OK(cudaEventRecord(from));
    for (int i = 0; i < n_turns; i++)
        turn();
    OK(cudaEventRecord(to));
    OK(cudaEventSynchronize(to));
    OK(cudaEventElapsedTime(&ms, from, to));
    return 1e3 * ms / n_turns;
}

/* Both in turn, so that both see the same machine. */
static void compare(const char *name, double (*time_us)(const std::function<void(void)> &),
                    const std::function<void(void)> &alone, const std::function<void(void)> &full)
{
    std::vector<double> without, with, more;
    (void)time_us(full);
    for (int i = 0; i < n_batches; i++) {
        without.push_back(time_us(alone));
        with.push_back(time_us(full));
        more.push_back(with.back() - without.back());
    }
    printf("%s_alone_us %.3f\n%s_us %.3f\n%s_more_us %.3f\n", name, median(without), name,
           median(with), name, median(more));
}

/* --- around kernels --- */

static unsigned *scratch;

static void tiny_kernels(const char *name, cudaStream_t stream)
{
    auto kernels = [=](unsigned *p) {
        tiny<<<1, 1, 0, stream>>>(p);
        tiny<<<1, 1, 0, stream>>>(p);
    };
    compare(
        name, host_us, [=] { kernels(scratch); },
        [=] {
            unsigned *p;
            OK(cudaMalloc(&p, 64 * KIB));
            kernels(p);
            OK(cudaFree(p));
        });
}

static void on_the_device(void)
{
    compare(
        "device", device_us, [] { short_kernel<<<1, 1>>>(scratch, 10 * 1000); },
        [] {
            unsigned *p;
            OK(cudaMalloc(&p, 64 * KIB));
            short_kernel<<<1, 1>>>(p, 10 * 1000);
            OK(cudaFree(p));
        });
}

static cudaStream_t three[3];

static void work_on_three(void)
{
    for (cudaStream_t stream : three)
        tiny<<<1, 1, 0, stream>>>(scratch);
}

static void ten_frees(void)
{
    void *p[10];
    for (void *&one : p)
        OK(cudaMalloc(&one, 64 * KIB));
    work_on_three();
    for (void *one : p)
        OK(cudaFree(one));
}

/* --- without kernels --- */

/* Nothing is freed, so nothing is used again. */
static void cold(void)
{
    static const size_t sizes[] = {1, 2, 4, 8, 16, 32, 64};
    const int n = 500;
    for (size_t size : sizes) {
        double start = now_s();
        for (int i = 0; i < n; i++) {
            void *p;
            OK(cudaMalloc(&p, size * KIB));
        }
        printf("cold_%zukib_ns %.1f\n", size, 1e9 * (now_s() - start) / n);
    }
}

static void beside_live(const char *name, size_t n_live)
{
    static std::vector<void *> live;
    static unsigned random = 1;
    std::vector<double> batches;
    while (live.size() < n_live) {
        live.push_back(nullptr);
        OK(cudaMalloc(&live.back(), 512));
    }
    for (int batch = 0; batch < n_batches; batch++) {
        double start = now_s();
        for (int i = 0; i < n_turns; i++) {
            random = random * 1664525 + 1013904223;
            void *&one = live[random / 4 % n_live];
            OK(cudaFree(one));
            OK(cudaMalloc(&one, 512));
        }
        batches.push_back(1e9 * (now_s() - start) / n_turns);
    }
    printf("live_%s_ns %.1f\n", name, median(batches));
}

static void pair(void)
{
    void *p;
    OK(cudaMalloc(&p, 64 * KIB));
    OK(cudaFree(p));
}

/* Counts, each in a cache line of its own, until told to stop. */
static void count_pairs(std::atomic<int> *n_ready, std::atomic<int> *phase, long *ret_n)
{
    long n = 0;
    for (int i = 0; i < 20; i++)
        pair();
    (*n_ready)++;
    while (*phase == 0)
        std::this_thread::yield();
    for (; *phase == 1; n += 8)
        for (int i = 0; i < 8; i++)
            pair();
    *ret_n = n;
}

static double pairs_per_s(void)
{
    std::atomic<int> n_ready{0}, phase{0};
    std::vector<std::thread> threads;
    std::vector<long> counts(n_threads * 16);
    long sum = 0;
    for (int i = 0; i < n_threads; i++)
        threads.emplace_back(count_pairs, &n_ready, &phase, &counts[i * 16]);
    while (n_ready < n_threads)
        std::this_thread::yield();
    double start = now_s();
    phase = 1;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    phase = 2;
    for (auto &thread : threads)
        thread.join();
    double took = now_s() - start;
    for (int i = 0; i < n_threads; i++)
        sum += counts[i * 16];
    return (double)sum / took;
}

static void beside_pinned(void)
{
    void *pinned;
    OK(cudaMallocHost(&pinned, 4096));
    printf("pinned_threads_64kib_per_s %.0f\n", pairs_per_s());
}

/* --- all of it --- */

static void prepare(void)
{
    OK(cudaMalloc(&scratch, 64 * KIB));
    OK(cudaEventCreate(&from));
    OK(cudaEventCreate(&to));
    tiny<<<1, 1>>>(scratch);
    short_kernel<<<1, 1>>>(scratch, 0);
    OK(cudaDeviceSynchronize());
}

static void make_three(void)
{
    for (cudaStream_t &stream : three)
        OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
}

int main(int argc, char **argv)
{
    prepare();
    if (argc > 1 && !strcmp(argv[1], "ten-frees")) {
        make_three();
        for (int i = 0; i < n_turns; i++)
            ten_frees();
        printf("%d\n", n_turns);
        return 0;
    }
    cold();
    tiny_kernels("turn_null", cudaStreamLegacy);
    on_the_device();
    make_three();
    tiny_kernels("turn_nonblocking", three[0]);
    compare("ten_frees", host_us, work_on_three, ten_frees);
    beside_live("1e3", 1000);
    beside_live("1e6", 1000 * 1000);
    beside_pinned();
    OK(cudaGetLastError());
    return 0; /* what is live ends with the process: natively a million frees take a minute */
}
