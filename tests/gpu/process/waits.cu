/* A program that waits for a kernel of 50 ms in every way, by the CUDA runtime. Lines that end in
 * "wait: NAME" make the host wait, as waits.py looks for.
 *
 *     waits             waits, and says whether what it waited for was there
 *     waits time N      N synchronisations of an idle stream, and how long each took */
#include <cuda_runtime.h>

#include "tests/gpu/check.h"

#define BUSY_NS 50000000ull

static const size_t bytes = MIB, n_words = MIB / sizeof(unsigned);
static unsigned *device, *other, *pageable, *pinned;
static cudaArray_t array;
static cudaStream_t stream;
static cudaEvent_t event;

/* The device is busy from now on; `value` is in its memory when it is done. */
static void be_busy(cudaStream_t on, unsigned value)
{
    late_write<<<FEW_BLOCKS, THREADS, 0, on>>>(device, n_words, value, BUSY_NS);
    OK(cudaGetLastError());
}

static __attribute__((noinline)) void wait_stream(void)
{
    OK(cudaStreamSynchronize(stream)); // wait: stream
}

static __attribute__((noinline)) void wait_event(void)
{
    OK(cudaEventSynchronize(event)); // wait: event
}

static __attribute__((noinline)) void wait_device(void)
{
    OK(cudaDeviceSynchronize()); // wait: device
}

static __attribute__((noinline)) void wait_copy(void)
{
    OK(cudaMemcpy(pageable, device, bytes, cudaMemcpyDeviceToHost)); // wait: copy
}

static __attribute__((noinline)) void wait_pageable(void)
{
    OK(cudaMemcpyAsync(pageable, device, bytes, cudaMemcpyDefault, stream)); // wait: pageable
}

static __attribute__((noinline)) void wait_fill(void)
{
    OK(cudaMemset(pinned, 1, bytes)); // wait: fill
}

static __attribute__((noinline)) void wait_free_pinned(void)
{
    OK(cudaFreeHost(pinned)); // wait: free_pinned
}

static __attribute__((noinline)) void wait_free_array(void)
{
    OK(cudaFreeArray(array)); // wait: free_array
}

/* What the host's own clock says goes to standard error, for waits.py. */
static void measure(const char *name, unsigned value, void (*wait)(void))
{
    double began;

    be_busy(stream, value);
    if (wait == wait_event)
        OK(cudaEventRecord(event, stream));
    began = now_s();
    wait();
    fprintf(stderr, "%s %.0f\n", name, (now_s() - began) * 1e9);
}

#define MEASURE(name, value) measure(#name, value, wait_##name)

static void take_memory(void)
{
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();

    OK(cudaStreamCreate(&stream));
    OK(cudaEventCreate(&event));
    OK(cudaMalloc((void **)&device, bytes));
    OK(cudaMalloc((void **)&other, bytes));
    OK(cudaMallocArray(&array, &format, 64, 64));
    pageable = (unsigned *)malloc(bytes);
    CHECK(pageable);
    /* The first use of each is the driver's own time. */
    OK(cudaMemcpyAsync(pageable, other, bytes, cudaMemcpyDefault, stream));
    late_write<<<FEW_BLOCKS, THREADS>>>(device, n_words, 0, 0);
    OK(cudaDeviceSynchronize());
}

static void wait_in_every_way(void)
{
    OK(cudaMallocHost((void **)&pinned, bytes));
    MEASURE(stream, 1);
    MEASURE(event, 2);
    MEASURE(device, 3);
    MEASURE(copy, 4); /* the stream is a blocking one: the copy is behind it */
    printf("copied %u %u\n", pageable[0], pageable[n_words - 1]);
    MEASURE(pageable, 5);
    OK(cudaStreamSynchronize(stream));
    printf("copied %u %u\n", pageable[0], pageable[n_words - 1]);
    MEASURE(fill, 6);
    OK(cudaDeviceSynchronize());
    printf("filled %x\n", pinned[n_words - 1]);
    MEASURE(free_pinned, 7);
    MEASURE(free_array, 8);
    OK(cudaFree(other));
    OK(cudaFree(device));
}

int main(int argc, char **argv)
{
    take_memory();
    if (argc > 2 && !strcmp(argv[1], "time")) {
        int n = atoi(argv[2]);
        double before = now_s();

        for (int i = 0; i < n; i++)
            OK(cudaStreamSynchronize(stream));
        printf("%.3f us\n", (now_s() - before) * 1e6 / n);
        return 0;
    }
    wait_in_every_way();
    return 0;
}
