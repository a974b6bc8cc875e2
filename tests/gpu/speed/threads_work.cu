/*
 * Threads with a stream each that allocate, launch two kernels and free, with a wait every 16
 * turns: how long a turn of each takes, as a `name value` line. Natively one thread's free waits
 * for the others' work, too, but holds none of it back.
 *
 * usage: threads_work THREADS MICROSECONDS, those of a kernel
 */
#include "tests/gpu/check.h"

#include <thread>
#include <vector>

static const int n_turns = 500;
static const int turns_to_wait = 16;

__global__ void spins(unsigned long long ns)
{
    spin_ns(ns);
}

static void turns(unsigned long long kernel_ns)
{
    cudaStream_t stream;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int i = 1; i <= n_turns; i++) {
        void *p;
        OK(cudaMalloc(&p, MIB));
        spins<<<1, 32, 0, stream>>>(kernel_ns);
        spins<<<1, 32, 0, stream>>>(kernel_ns);
        OK(cudaFree(p));
        if (i % turns_to_wait == 0)
            OK(cudaStreamSynchronize(stream));
    }
    OK(cudaStreamSynchronize(stream));
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return EXIT_UNUSABLE;
    int n_threads = atoi(argv[1]), kernel_us = atoi(argv[2]);
    std::vector<std::thread> threads;
    spins<<<1, 1>>>(0);
    OK(cudaDeviceSynchronize());
    double start = now_s();
    for (int i = 0; i < n_threads; i++)
        threads.emplace_back(turns, 1000ull * (unsigned)kernel_us);
    for (std::thread &thread : threads)
        thread.join();
    OK(cudaDeviceSynchronize());
    OK(cudaGetLastError());
    printf("threads_%d_%dus_us %.3f\n", n_threads, kernel_us, 1e6 * (now_s() - start) / n_turns);
    return 0;
}
