/*
 * How long allocating and freeing takes, as `name value` lines: pairs on an idle device, pairs from
 * 16 threads, and a loop around a short kernel. First without any non-blocking stream (names end
 * in _a), then with one (_b). `pinned` holds pinned host memory from the start.
 */
#include "tests/gpu/check.h"

#include <algorithm>
#include <atomic>
#include <cuda.h>
#include <thread>
#include <vector>

static const unsigned long long kernel_ns = 25 * 1000;
static const int n_turns = 200;
static const int n_threads = 16;

__global__ void short_kernel(unsigned *p, unsigned long long ns)
{
    spin_ns(ns);
    *p = 1;
}

static void runtime_pair(size_t bytes)
{
    void *p;
    OK(cudaMalloc(&p, bytes));
    OK(cudaFree(p));
}

static void driver_pair(size_t bytes)
{
    CUdeviceptr p;
    OK(cuMemAlloc(&p, bytes));
    OK(cuMemFree(p));
}

/* Median of five batches, each long enough to be timed and short enough not to bore. */
static double pair_ns(void (*pair)(size_t), size_t bytes)
{
    double batches[5];
    for (int i = 0; i < 20; i++)
        pair(bytes);
    for (double &ns : batches) {
        int n = 0;
        double start = now_s(), now;
        do {
            for (int i = 0; i < 10; i++)
                pair(bytes);
            n += 10;
            now = now_s();
        } while (now - start < 0.02);
        ns = 1e9 * (now - start) / n;
    }
    std::sort(batches, batches + 5);
    return batches[2];
}

static double turn_us(cudaStream_t stream)
{
    double best = 1e9;
    for (int repeat = 0; repeat < 3; repeat++) {
        OK(cudaDeviceSynchronize());
        double start = now_s();
        for (int i = 0; i < n_turns; i++) {
            unsigned *p;
            OK(cudaMalloc(&p, 1 * MIB));
            short_kernel<<<1, 1, 0, stream>>>(p, kernel_ns);
            OK(cudaFree(p));
        }
        OK(cudaDeviceSynchronize());
        best = std::min(best, 1e6 * (now_s() - start) / n_turns);
    }
    OK(cudaGetLastError());
    return best;
}

static double threads_pairs_per_s(size_t bytes)
{
    std::atomic<bool> go{false}, stop{false};
    std::atomic<int> n_ready{0};
    std::vector<std::thread> threads;
    std::vector<long> counts(n_threads * 16); /* one cache line apart */
    for (int id = 0; id < n_threads; id++)
        threads.emplace_back([&, id] {
            for (int i = 0; i < 20; i++)
                runtime_pair(bytes);
            n_ready++;
            while (!go)
                std::this_thread::yield();
            long n = 0;
            while (!stop.load(std::memory_order_relaxed)) {
                for (int i = 0; i < 8; i++)
                    runtime_pair(bytes);
                n += 8;
            }
            counts[id * 16] = n;
        });
    while (n_ready < n_threads)
        std::this_thread::yield();
    double start = now_s();
    go = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    stop = true;
    for (auto &t : threads)
        t.join();
    double took = now_s() - start;
    long sum = 0;
    for (int id = 0; id < n_threads; id++)
        sum += counts[id * 16];
    return (double)sum / took;
}

static void measure(char way, cudaStream_t stream)
{
    printf("pair_512_%c_ns %.1f\n", way, pair_ns(runtime_pair, 512));
    printf("pair_1mib_%c_ns %.1f\n", way, pair_ns(runtime_pair, 1 * MIB));
    printf("pair_1mib_driver_%c_ns %.1f\n", way, pair_ns(driver_pair, 1 * MIB));
    printf("pair_1gib_%c_ns %.1f\n", way, pair_ns(runtime_pair, 1 * GIB));
    printf("loop_%c_us %.2f\n", way, turn_us(stream));
    printf("threads_64kib_%c_per_s %.0f\n", way, threads_pairs_per_s(64 * KIB));
}

int main(int argc, char **argv)
{
    cudaStream_t nonblocking;
    void *pinned;
    unsigned *p;
    OK(cudaMalloc(&p, sizeof *p));
    short_kernel<<<1, 1>>>(p, 0);
    OK(cudaDeviceSynchronize());
    OK(cudaFree(p));
    if (argc > 1 && !strcmp(argv[1], "pinned"))
        OK(cudaMallocHost(&pinned, 4096));
    measure('a', cudaStreamLegacy);
    OK(cudaStreamCreateWithFlags(&nonblocking, cudaStreamNonBlocking));
    measure('b', nonblocking);
    return 0;
}
