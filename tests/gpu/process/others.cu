/*
 * What other threads ask while one is in cudaFree, behind a kernel of 100 ms: natively they do not
 * wait for it, and neither may they where the free was ordered on the device.
 *
 *     others asks        questions about events, streams and memory, and waits for their own work
 *     others submits     launches, which natively wait: these must be found to take long
 */
#include "tests/gpu/check.h"

#include <atomic>
#include <thread>

static const int n_iterations = 12;
static const double kernel_s = 0.1, most_s = 0.05;
/* Other processes may be on the card and take a slice of it: where a free holds the others back, it
 * does so each time. */
static const int most_waited = 2;

static bool submits;
static cudaStream_t ours, theirs;
static cudaEvent_t behind; /* the kernel */
static std::atomic<int> launched{0}, answered{0};
static std::atomic<bool> is_ready{false};

__global__ void spin(unsigned long long ns)
{
    spin_ns(ns);
}

static void wait_for(const std::atomic<int> &count, int n)
{
    while (count.load() < n)
        std::this_thread::yield();
}

static void ask(void)
{
    size_t free_bytes, total_bytes;
    if (submits) {
        spin<<<1, 1, 0, theirs>>>(0);
        OK(cudaGetLastError());
        return;
    }
    EXPECT(cudaErrorNotReady, cudaEventQuery(behind));
    EXPECT(cudaErrorNotReady, cudaStreamQuery(ours));
    OK(cudaStreamQuery(theirs));
    OK(cudaStreamSynchronize(theirs));
    OK(cudaMemGetInfo(&free_bytes, &total_bytes));
}

/* How often it took long. */
static void ask_each_time(int *ret_waited)
{
    spin<<<1, 1, 0, theirs>>>(0);
    OK(cudaStreamSynchronize(theirs));
    is_ready = true;
    for (int i = 1; i <= n_iterations; i++) {
        double began;
        wait_for(launched, i);
        std::this_thread::sleep_for(std::chrono::milliseconds(10)); /* the free is under way */
        began = now_s();
        ask();
        if (now_s() - began > most_s)
            ++*ret_waited;
        answered = i;
    }
}

static void begin(void **block)
{
    OK(cudaStreamCreateWithFlags(&ours, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&theirs, cudaStreamNonBlocking));
    OK(cudaEventCreateWithFlags(&behind, cudaEventDisableTiming));
    for (int i = 0; i < 4; i++) { /* from here on, frees need not wait */
        OK(cudaMalloc(block, MIB));
        OK(cudaFree(*block));
    }
    OK(cudaMalloc(block, MIB));
    spin<<<1, 1, 0, ours>>>(0);
    OK(cudaDeviceSynchronize());
}

int main(int argc, char **argv)
{
    int waited = 0;
    void *block;
    submits = argc > 1 && !strcmp(argv[1], "submits");
    if (argc != 2 || (strcmp(argv[1], "asks") && !submits)) {
        fprintf(stderr, "usage: others asks|submits\n");
        return EXIT_UNUSABLE;
    }
    begin(&block);
    std::thread other(ask_each_time, &waited);
    while (!is_ready)
        std::this_thread::yield();
    for (int i = 1; i <= n_iterations; i++) {
        spin<<<1, 1, 0, ours>>>((unsigned long long)(kernel_s * 1e9));
        OK(cudaEventRecord(behind, ours));
        launched = i;
        OK(cudaFree(block));
        OK(cudaMalloc(&block, MIB));
        wait_for(answered, i);
        OK(cudaDeviceSynchronize());
    }
    other.join();
    printf("%s\n", waited <= most_waited ? "nobody waited" : "another thread waited");
    return waited <= most_waited ? 0 : EXIT_BROKEN;
}
