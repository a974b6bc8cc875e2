/* What every GPU test program shares: error exits, a clock, and kernels that take a known time. */
#ifndef ALLOGRAFT_TESTS_GPU_CHECK_H
#define ALLOGRAFT_TESTS_GPU_CHECK_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Exit statuses: 0 the promise held, 1 it was broken, 2 the test could not be made. */
#define EXIT_BROKEN   1
#define EXIT_UNUSABLE 2

/* A call that must succeed for the test to make sense. */
#define CHECK_FAILED EXIT_UNUSABLE
#include "tests/common/check.h"

static inline double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

#ifdef __CUDACC__

/* Few blocks on purpose: other kernels must find room beside one that spins. */
#define FEW_BLOCKS 32
#define THREADS    256

__device__ static inline void spin_ns(unsigned long long ns)
{
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - start < ns);
}

/* Waits `ns`, then sets every word: who reads or reuses the memory too early can be told. */
__global__ void late_write(unsigned *words, size_t n_words, unsigned value, unsigned long long ns)
{
    spin_ns(ns);
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n_words;
         i += gridDim.x * (size_t)blockDim.x)
        words[i] = value;
}

__global__ void copy_words(unsigned *to, const unsigned *from, size_t n_words)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n_words;
         i += gridDim.x * (size_t)blockDim.x)
        to[i] = from[i];
}

/*
 * Loads the kernels above before anything is measured: with lazy loading the first launch of a
 * kernel may wait for the device, and a test of ordering would then pass for the wrong reason.
 */
static inline void warm_up_kernels(void)
{
    unsigned *words;
    OK(cudaMalloc(&words, 2 * sizeof *words));
    late_write<<<1, 1>>>(words, 1, 0, 0);
    copy_words<<<1, 1>>>(words + 1, words, 1);
    OK(cudaMemsetAsync(words, 0, sizeof *words, 0));
    OK(cudaGetLastError());
    OK(cudaDeviceSynchronize());
    OK(cudaFree(words));
}

static inline size_t count_wrong(const unsigned *words, size_t n_words, unsigned wanted)
{
    size_t n_wrong = 0;
    for (size_t i = 0; i < n_words; i++)
        n_wrong += words[i] != wanted;
    return n_wrong;
}

#endif
#endif
