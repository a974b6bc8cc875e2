/*
 * Eight threads allocate and free at random; kernels on streams of every kind fill each buffer
 * with its own pattern and check it later, and a buffer is freed while its check may still run.
 * Every byte that is not what was filled in is counted on the device.
 *
 * Threads end and are replaced every two seconds; what they held is freed by their successors.
 * usage: soak SECONDS [MIB_PER_THREAD] [planted]; `planted` spoils one byte and must be found out.
 */
#include "tests/gpu/check.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <random>
#include <thread>
#include <vector>

static const int n_threads = 8;
static const size_t max_bytes = 64 * MIB;
static const size_t max_buffers = 24;

static std::atomic<bool> planted{false};
static size_t budget_bytes = 256 * MIB;
static unsigned long long *wrong_bytes; /* one counter for each thread, on the device */

__host__ __device__ static inline unsigned char pattern(unsigned seed, size_t i)
{
    return (unsigned char)((seed ^ (unsigned)(i >> 2)) * 2654435761u >> 8 * (i & 3));
}

__global__ void fill(unsigned char *p, size_t n, unsigned seed)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += gridDim.x * (size_t)blockDim.x)
        p[i] = pattern(seed, i);
}

__global__ void check(const unsigned char *p, size_t n, unsigned seed, unsigned long long *wrong)
{
    unsigned long long mine = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += gridDim.x * (size_t)blockDim.x)
        mine += p[i] != pattern(seed, i);
    if (mine)
        atomicAdd(wrong, mine);
}

struct buffer {
    unsigned char *p;
    size_t n;
    unsigned seed;
    cudaStream_t stream; /* filled on */
    cudaEvent_t filled;
};

class Worker
{
  public:
    explicit Worker(int id) : id_(id), random_(id + 1)
    {
        OK(cudaEventCreateWithFlags(&passed_, cudaEventDisableTiming));
    }

    void run(double until)
    {
        make_streams();
        while (now_s() < until)
            step();
        /* The successor has another default stream, and these streams go: hand over quiesced. */
        quiesce();
        drop_streams();
    }

    void finish(void)
    {
        make_streams();
        for (auto &b : held_)
            release(b);
        held_.clear();
        quiesce();
        drop_streams();
        OK(cudaEventDestroy(passed_));
    }

    unsigned long n_pairs = 0;

  private:
    void make_streams(void)
    {
        cudaStream_t s;
        streams_ = {cudaStreamLegacy, cudaStreamPerThread};
        OK(cudaStreamCreateWithFlags(&s, cudaStreamDefault));
        streams_.push_back(s);
        OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
        streams_.push_back(s);
    }

    void drop_streams(void)
    {
        OK(cudaStreamDestroy(streams_[2]));
        OK(cudaStreamDestroy(streams_[3]));
    }

    void quiesce(void)
    {
        for (cudaStream_t s : streams_)
            OK(cudaStreamSynchronize(s));
        for (auto &b : held_)
            b.stream = cudaStreamLegacy;
    }

    cudaStream_t any_stream(void)
    {
        return streams_[random_() % streams_.size()];
    }

    /* Small sizes as often as large ones. */
    size_t any_size(void)
    {
        double bits = std::uniform_real_distribution<double>(0, 26)(random_);
        return std::min(max_bytes, (size_t)exp2(bits) + random_() % 3);
    }

    void take(void)
    {
        struct buffer b = {};
        b.n = any_size();
        if (held_bytes_ + b.n > budget_bytes)
            return;
        b.seed = random_();
        b.stream = any_stream();
        OK(cudaMalloc(&b.p, b.n));
        OK(cudaEventCreateWithFlags(&b.filled, cudaEventDisableTiming));
        fill<<<blocks(b.n), THREADS, 0, b.stream>>>(b.p, b.n, b.seed);
        OK(cudaGetLastError());
        OK(cudaEventRecord(b.filled, b.stream));
        held_bytes_ += b.n;
        held_.push_back(b);
    }

    void look_at(const struct buffer &b)
    {
        cudaStream_t s = any_stream();
        if (s != b.stream)
            OK(cudaStreamWaitEvent(s, b.filled, 0));
        if (planted.exchange(false))
            OK(cudaMemsetAsync(b.p, pattern(b.seed, 0) ^ 1, 1, s));
        check<<<blocks(b.n), THREADS, 0, s>>>(b.p, b.n, b.seed, &wrong_bytes[id_]);
        OK(cudaGetLastError());
    }

    /* Freed without any wait: the check may not even have started. */
    void release(const struct buffer &b)
    {
        look_at(b);
        OK(cudaFree(b.p));
        OK(cudaEventDestroy(b.filled));
        held_bytes_ -= b.n;
        n_pairs++;
    }

    void step(void)
    {
        unsigned dice = random_() % 100;
        if (held_.size() < max_buffers && (held_.empty() || dice < 48)) {
            take();
        } else if (dice < 96) {
            size_t i = random_() % held_.size();
            std::swap(held_[i], held_.back());
            release(held_.back());
            held_.pop_back();
        } else if (dice < 98) {
            look_at(held_[random_() % held_.size()]);
        } else {
            OK(cudaEventRecord(passed_, any_stream()));
            OK(cudaEventSynchronize(passed_));
        }
        if (random_() % 2000 == 0) {
            quiesce();
            drop_streams();
            make_streams();
        }
    }

    static int blocks(size_t n)
    {
        return (int)std::min<size_t>(64, 1 + n / 4096);
    }

    int id_;
    std::mt19937 random_;
    std::vector<cudaStream_t> streams_;
    std::vector<struct buffer> held_;
    size_t held_bytes_ = 0;
    cudaEvent_t passed_;
};

/* Meanwhile the main thread asks how much memory there is, which has to stay a sane answer. */
static void watch(double until)
{
    while (now_s() < until) {
        size_t free_bytes, total_bytes;
        OK(cudaMemGetInfo(&free_bytes, &total_bytes));
        if (free_bytes > total_bytes) {
            printf("cudaMemGetInfo: %zu of %zu free\n", free_bytes, total_bytes);
            exit(EXIT_BROKEN);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: soak SECONDS [MIB_PER_THREAD] [planted]\n");
        return EXIT_UNUSABLE;
    }
    double start = now_s(), end = start + atof(argv[1]);
    if (argc > 2)
        budget_bytes = (size_t)atol(argv[2]) * MIB;
    planted = argc > 3 && !strcmp(argv[3], "planted");
    unsigned long long back[n_threads], n_wrong = 0;
    unsigned long n_pairs = 0;
    OK(cudaMalloc(&wrong_bytes, sizeof back));
    OK(cudaMemset(wrong_bytes, 0, sizeof back));

    std::vector<Worker> workers;
    for (int id = 0; id < n_threads; id++)
        workers.emplace_back(id);
    while (now_s() < end) {
        double until = std::min(end, now_s() + 2);
        std::vector<std::thread> threads;
        for (auto &w : workers)
            threads.emplace_back([&w, until] { w.run(until); });
        watch(until);
        for (auto &t : threads)
            t.join();
    }
    for (auto &w : workers) {
        std::thread last([&w] { w.finish(); });
        last.join();
        n_pairs += w.n_pairs;
    }
    double took = now_s() - start;
    OK(cudaDeviceSynchronize());
    OK(cudaMemcpy(back, wrong_bytes, sizeof back, cudaMemcpyDeviceToHost));
    OK(cudaFree(wrong_bytes));
    for (unsigned long long n : back)
        n_wrong += n;
    printf("%llu wrong bytes, %lu pairs, %.0f pairs/s\n", n_wrong, n_pairs, n_pairs / took);
    return n_wrong ? EXIT_BROKEN : 0;
}
