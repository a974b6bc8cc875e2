/*
 * A random little program of allocations, kernels, copies and waits, by its seed: how long its
 * turns take, as `name value` lines, and what it does, on standard error. Of each number of turns,
 * which new threads take one after another, `turn_N_us` is what a turn took then, and `whole_N_us`
 * what it took from the first allocation on, 50 turns of warming up included.
 *
 * Once CUDA has started it says `ready`, and goes on at the next line of its standard input or at
 * the end of that; when it has said `done`, it waits for the next one. So several can start and end
 * at a time, and be measured one by one.
 *
 * usage: random_turns SEED TURNS...
 */
#include "tests/gpu/check.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <thread>
#include <vector>

static const size_t host_bytes = MIB;
static const int n_warm_turns = 50;

enum streams { LEGACY, BLOCKING, NON_BLOCKING };
enum copies { NO_COPY, TO_HOST_ASYNC, TO_HOST, TO_DEVICE_ASYNC };
enum freed { OLDEST, NEWEST, ANY };

struct options {
    int n_threads, n_streams, streams, n_kernels, kernel_us, turns_to_wait, copies, pinned, n_live,
        freed, cpu_us, events, fills;
    size_t least, most; /* bytes of a block */
};

static options options_of(unsigned seed)
{
    static const size_t bounds[][2] = {
        {256, 64 * KIB}, {64 * KIB, 4 * MIB}, {MIB, 64 * MIB}, {4 * KIB, 32 * MIB}};
    std::mt19937 random(seed);
    auto one_of = [&](std::vector<int> all) { return all[random() % all.size()]; };
    options o;
    o.n_threads = one_of({1, 1, 1, 2, 4});
    o.n_streams = one_of({1, 1, 2, 4});
    o.streams = one_of({LEGACY, BLOCKING, NON_BLOCKING, NON_BLOCKING});
    if (o.streams == LEGACY)
        o.n_streams = 1;
    o.n_kernels = one_of({0, 1, 2, 5});
    o.kernel_us = one_of({0, 0, 2, 10, 50}); /* 0: they write the block */
    o.turns_to_wait = one_of({0, 1, 4, 16}); /* 0: no wait */
    o.copies = one_of({NO_COPY, NO_COPY, NO_COPY, TO_HOST_ASYNC, TO_HOST, TO_DEVICE_ASYNC});
    o.pinned = one_of({0, 0, 1});
    o.n_live = one_of({0, 0, 3, 20}); /* beside the newest */
    o.freed = one_of({OLDEST, NEWEST, ANY});
    o.cpu_us = one_of({0, 0, 5, 30});
    o.events = one_of({0, 0, 1});
    o.fills = one_of({0, 0, 1});
    const size_t *of = bounds[random() % 4];
    o.least = of[0];
    o.most = of[1];
    return o;
}

static void say(const options &o)
{
    fprintf(
        stderr,
        "%d threads, %d streams of kind %d, %d kernels of %d us, a wait every %d, copies %d, "
        "pinned %d, %d live, freed %d, %d us of the host, events %d, fills %d, %zu to %zu bytes\n",
        o.n_threads, o.n_streams, o.streams, o.n_kernels, o.kernel_us, o.turns_to_wait, o.copies,
        o.pinned, o.n_live, o.freed, o.cpu_us, o.events, o.fills, o.least, o.most);
}

__global__ void spins(unsigned long long ns)
{
    spin_ns(ns);
}

__global__ void writes(uint4 *p, size_t n, unsigned value)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += gridDim.x * (size_t)blockDim.x)
        p[i] = make_uint4(value, value, value, value);
}

/* What a thread of the program has. */
class worker
{
  public:
    worker(const options &of_program, unsigned seed) : o(of_program), random(seed)
    {
        for (cudaStream_t &stream : streams) {
            if (o.streams == BLOCKING)
                OK(cudaStreamCreate(&stream));
            else if (o.streams == NON_BLOCKING)
                OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        }
        OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
        if (o.pinned) {
            OK(cudaMallocHost(&host, host_bytes));
        } else {
            pageable.resize(host_bytes);
            host = pageable.data();
        }
        memset(host, 1, host_bytes);
    }

    void turns(int n)
    {
        for (int i = 0; i < n; i++)
            turn(i);
    }

    void end(void)
    {
        for (char *p : live)
            OK(cudaFree(p));
        for (cudaStream_t stream : streams)
            if (stream)
                OK(cudaStreamSynchronize(stream));
    }

  private:
    size_t size(void)
    {
        double place = std::uniform_real_distribution<>(0, 1)(random);
        return (size_t)((double)o.least * std::pow((double)o.most / (double)o.least, place));
    }

    void copy(char *p, size_t bytes, cudaStream_t stream)
    {
        size_t copied = std::min(bytes, host_bytes);
        if (o.copies == TO_HOST_ASYNC)
            OK(cudaMemcpyAsync(host, p, copied, cudaMemcpyDeviceToHost, stream));
        else if (o.copies == TO_HOST)
            OK(cudaMemcpy(host, p, std::min(bytes, 4 * KIB), cudaMemcpyDeviceToHost));
        else if (o.copies == TO_DEVICE_ASYNC)
            OK(cudaMemcpyAsync(p, host, copied, cudaMemcpyHostToDevice, stream));
    }

    void work(char *p, size_t bytes, int i)
    {
        cudaStream_t stream = streams[i % o.n_streams], next = streams[(i + 1) % o.n_streams];
        size_t touched = std::min(bytes, MIB);
        if (o.fills)
            OK(cudaMemsetAsync(p, 0, touched, stream));
        for (int k = 0; k < o.n_kernels; k++) {
            if (o.kernel_us)
                spins<<<1, 32, 0, stream>>>(1000ull * o.kernel_us);
            else
                writes<<<64, 256, 0, stream>>>((uint4 *)p, touched / sizeof(uint4), i);
        }
        copy(p, bytes, stream);
        if (o.events) {
            OK(cudaEventRecord(event, stream));
            if (o.n_streams > 1)
                OK(cudaStreamWaitEvent(next, event, 0));
        }
    }

    void free_one(void)
    {
        size_t at = 0;
        if (o.freed == NEWEST)
            at = live.size() - 1;
        else if (o.freed == ANY)
            at = random() % live.size();
        OK(cudaFree(live[at]));
        live.erase(live.begin() + (long)at);
    }

    void turn(int i)
    {
        size_t bytes = size();
        char *p;
        OK(cudaMalloc(&p, bytes));
        work(p, bytes, i);
        for (double start = now_s(); 1e6 * (now_s() - start) < o.cpu_us;)
            ;
        live.push_back(p);
        if ((int)live.size() > o.n_live)
            free_one();
        if (o.turns_to_wait && i % o.turns_to_wait == o.turns_to_wait - 1)
            OK(cudaStreamSynchronize(streams[i % o.n_streams]));
    }

    const options &o;
    std::mt19937 random;
    std::vector<cudaStream_t> streams = std::vector<cudaStream_t>(o.n_streams);
    cudaEvent_t event;
    std::vector<char> pageable;
    char *host;
    std::vector<char *> live;
};

static void run(const options &o, unsigned seed, int n)
{
    worker one(o, seed);
    one.turns(n);
    one.end();
}

/* Loads what is launched, so that no turn has to. */
static void load(void)
{
    spins<<<1, 1>>>(0);
    writes<<<1, 1>>>(nullptr, 0, 0);
    OK(cudaGetLastError());
    OK(cudaDeviceSynchronize());
}

/* So many turns in each thread of the program; returns when they ended. */
static double take_turns(const options &o, unsigned seed, int n)
{
    std::vector<std::thread> threads;
    for (int i = 0; i < o.n_threads; i++)
        threads.emplace_back(run, std::cref(o), seed * 977 + (unsigned)i, n);
    for (std::thread &thread : threads)
        thread.join();
    OK(cudaDeviceSynchronize());
    return now_s();
}

static void say_and_wait(const char *word)
{
    puts(word);
    fflush(stdout);
    for (int c = getchar(); c != '\n' && c != EOF; c = getchar())
        ;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return EXIT_UNUSABLE;
    unsigned seed = (unsigned)strtoul(argv[1], nullptr, 10);
    options o = options_of(seed);
    say(o);
    load();
    say_and_wait("ready");
    double begin = now_s();
    run(o, seed * 977, n_warm_turns);
    OK(cudaDeviceSynchronize());
    double start = now_s();
    for (int i = 2, n_all = n_warm_turns; i < argc; i++) {
        int n = atoi(argv[i]);
        double end = take_turns(o, seed, n);
        n_all += n;
        printf("turn_%d_us %.4f\nwhole_%d_us %.4f\n", n, 1e6 * (end - start) / n, n,
               1e6 * (end - begin) / n_all);
        start = end;
    }
    OK(cudaGetLastError());
    say_and_wait("done");
    return 0;
}
