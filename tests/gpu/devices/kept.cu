/*
 * How much of the device a program takes that frees blocks of sizes it never asks for again, by the
 * driver's own count: `held_mib N`. Every block is written by one kernel and read by another.
 *
 * `kept waits`: an allocation for which a kept block would have to go, while a kernel waits for
 * what the host does behind it. `waited_ms N`.
 */
#include "tests/gpu/check.h"
#include "tests/gpu/own.h"

#include <algorithm>
#include <cuda.h>

__global__ void write_words(unsigned *words, size_t n_words, unsigned value)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n_words;
         i += gridDim.x * (size_t)blockDim.x)
        words[i] = value + (unsigned)i;
}

__global__ void count_wrong(const unsigned *words, size_t n_words, unsigned value, unsigned *wrong)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n_words;
         i += gridDim.x * (size_t)blockDim.x)
        if (words[i] != value + (unsigned)i)
            atomicAdd(wrong, 1);
}

__global__ void wait_for(volatile unsigned *flag)
{
    while (!*flag)
        ;
}

static double room_mib()
{
    static auto own = (decltype(&cuMemGetInfo))own_function("libcuda.so.1", "cuMemGetInfo_v2");
    size_t left, total;
    CHECK(own && own(&left, &total) == CUDA_SUCCESS);
    return (double)left / (double)MIB;
}

static void phases()
{
    unsigned *stays, *wrong, n_wrong;
    OK(cudaMalloc(&stays, 400 * MIB));
    OK(cudaMalloc(&wrong, 4));
    OK(cudaMemset(wrong, 0, 4));
    write_words<<<FEW_BLOCKS, THREADS>>>(stays, 100 * MIB, 7);
    count_wrong<<<FEW_BLOCKS, THREADS>>>(stays, 100 * MIB, 7, wrong); /* loads both */
    OK(cudaDeviceSynchronize());
    double before = room_mib(), least = before;
    for (unsigned i = 0; i < 24; i++) {
        size_t n_words = (40 + 15 * i) * MIB / 4;
        unsigned *block;
        OK(cudaMalloc(&block, 4 * n_words));
        write_words<<<FEW_BLOCKS, THREADS>>>(block, n_words, i);
        count_wrong<<<FEW_BLOCKS, THREADS>>>(block, n_words, i, wrong);
        least = std::min(least, room_mib());
        OK(cudaFree(block));
    }
    count_wrong<<<FEW_BLOCKS, THREADS>>>(stays, 100 * MIB, 7, wrong);
    OK(cudaMemcpy(&n_wrong, wrong, 4, cudaMemcpyDeviceToHost));
    OK(cudaFree(stays));
    printf("held_mib %.0f\nwrong %u\n", before - least + 400, n_wrong);
}

static void waits()
{
    unsigned *flag, *block;
    cudaStream_t stream;
    OK(cudaHostAlloc(&flag, 4, cudaHostAllocMapped));
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    *flag = 1;
    wait_for<<<1, 1, 0, stream>>>(flag); /* loads it */
    for (int i = 0; i < 3; i++) {        /* the last is kept */
        OK(cudaMalloc(&block, 40 * MIB));
        OK(cudaFree(block));
    }
    OK(cudaDeviceSynchronize());
    *(volatile unsigned *)flag = 0;
    wait_for<<<1, 1, 0, stream>>>(flag);
    double began = now_s();
    OK(cudaMalloc(&block, 80 * MIB));
    double ms = 1e3 * (now_s() - began);
    *(volatile unsigned *)flag = 1;
    OK(cudaStreamSynchronize(stream));
    OK(cudaFree(block));
    printf("waited_ms %.1f\n", ms);
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "waits"))
        waits();
    else
        phases();
    return 0;
}
