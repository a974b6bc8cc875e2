/*
 * How fast memory from cudaMalloc is when it is managed memory, as `name value` lines:
 *   stream  2 GiB: the time to make it ready, the first kernel on it, a copy kernel afterwards
 *   pairs   allocating and freeing on an idle device
 * With a further word `naive` the program itself asks for managed memory and does nothing about it.
 */
#include "tests/gpu/check.h"

#include <algorithm>
#include <vector>

static const size_t stream_bytes = 2 * GIB;
static const int n_again = 11, n_copies = 41;
static bool naive;

static void *take(size_t bytes)
{
    void *p;
    if (naive)
        OK(cudaMallocManaged(&p, bytes));
    else
        OK(cudaMalloc(&p, bytes));
    return p;
}

static double median(std::vector<double> values)
{
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

__global__ void fill(uint4 *to, size_t n, unsigned value)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += gridDim.x * (size_t)blockDim.x)
        to[i] = make_uint4(value, (unsigned)i, value, (unsigned)i);
}

__global__ void copy(uint4 *to, const uint4 *from, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += gridDim.x * (size_t)blockDim.x)
        to[i] = from[i];
}

__global__ void differ(const uint4 *words, size_t n, unsigned value, unsigned *ret_wrong)
{
    unsigned n_wrong = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += gridDim.x * (size_t)blockDim.x)
        n_wrong += words[i].x != value || words[i].y != (unsigned)i;
    if (n_wrong)
        atomicAdd(ret_wrong, n_wrong);
}

__global__ void given(unsigned *p)
{
    if (!p)
        __trap();
}

static const int blocks = 132 * 16;

/* Milliseconds on the device of whatever `launch` submits to the legacy stream. */
template <class F> static double device_ms(F launch)
{
    static cudaEvent_t from, to;
    float ms;
    if (!from) {
        OK(cudaEventCreate(&from));
        OK(cudaEventCreate(&to));
    }
    OK(cudaEventRecord(from));
    launch();
    OK(cudaGetLastError());
    OK(cudaEventRecord(to));
    OK(cudaEventSynchronize(to));
    OK(cudaEventElapsedTime(&ms, from, to));
    return ms;
}

/* Kernels are loaded, and the device's clocks are up, before anything is measured. */
static void warm_up(void)
{
    uint4 *p = (uint4 *)take(1 * MIB);
    unsigned *n_wrong = (unsigned *)take(sizeof *n_wrong);
    fill<<<1, 256>>>(p, 256, 1);
    copy<<<1, 256>>>(p + 256, p, 256);
    differ<<<1, 256>>>(p, 256, 1, n_wrong);
    given<<<1, 1>>>(n_wrong);
    (void)device_ms([&] { late_write<<<FEW_BLOCKS, THREADS>>>(n_wrong, 1, 0, 200 * 1000 * 1000); });
    OK(cudaDeviceSynchronize());
    OK(cudaFree(p));
    OK(cudaFree(n_wrong));
    OK(cudaDeviceSynchronize());
}

/* Takes memory and waits until nothing is left to be done about it. */
static uint4 *take_ready(size_t bytes, double *ret_us)
{
    double start = now_s();
    uint4 *p = (uint4 *)take(bytes);
    OK(cudaDeviceSynchronize());
    *ret_us = 1e6 * (now_s() - start);
    return p;
}

static unsigned wrong(const uint4 *p, unsigned value)
{
    unsigned n_wrong = 0, *sum = (unsigned *)take(sizeof *sum);
    OK(cudaMemset(sum, 0, sizeof *sum));
    differ<<<blocks, 256>>>(p, stream_bytes / sizeof *p, value, sum);
    OK(cudaMemcpy(&n_wrong, sum, sizeof n_wrong, cudaMemcpyDeviceToHost));
    OK(cudaFree(sum));
    return n_wrong;
}

static int stream(void)
{
    const size_t n = stream_bytes / sizeof(uint4);
    double first_us, us;
    std::vector<double> again_us, touch_ms, copy_ms;
    uint4 *p = take_ready(stream_bytes, &first_us);
    printf("ready_first_ms %.3f\n", first_us / 1000);
    printf("touch_first_ms %.4f\n", device_ms([&] { fill<<<blocks, 256>>>(p, n, 1); }));
    for (int i = 0; i < n_again; i++) {
        OK(cudaFree(p));
        OK(cudaDeviceSynchronize());
        p = take_ready(stream_bytes, &us);
        again_us.push_back(us);
        touch_ms.push_back(device_ms([&] { fill<<<blocks, 256>>>(p, n, 2); }));
    }
    printf("ready_again_us %.2f\n", median(again_us));
    printf("touch_again_ms %.4f\n", median(touch_ms));
    uint4 *q = (uint4 *)take(stream_bytes);
    for (int i = 0; i < n_copies; i++)
        copy_ms.push_back(device_ms([&] { copy<<<blocks, 256>>>(q, p, n); }));
    printf("copy_gb_per_s %.1f\n", 2e-6 * (double)stream_bytes / median(copy_ms));
    unsigned n_wrong = wrong(q, 2);
    OK(cudaFree(p));
    OK(cudaFree(q));
    return n_wrong ? EXIT_BROKEN : 0;
}

/* Median of five batches, each long enough to be timed. */
static double pair_ns(size_t bytes)
{
    std::vector<double> batches;
    for (int i = 0; i < 20; i++)
        OK(cudaFree(take(bytes)));
    OK(cudaDeviceSynchronize());
    for (int batch = 0; batch < 5; batch++) {
        int n = 0;
        double start = now_s(), now;
        do {
            for (int i = 0; i < 10; i++)
                OK(cudaFree(take(bytes)));
            n += 10;
            now = now_s();
        } while (now - start < 0.02);
        batches.push_back(1e9 * (now - start) / n);
    }
    return median(batches);
}

static int pairs(void)
{
    printf("pair_64kib_ns %.1f\n", pair_ns(64 * KIB));
    printf("pair_1mib_ns %.1f\n", pair_ns(1 * MIB));
    printf("pair_16mib_ns %.1f\n", pair_ns(16 * MIB));
    printf("pair_1gib_ns %.1f\n", pair_ns(1 * GIB));
    return 0;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    naive = argc > 2 && !strcmp(argv[2], "naive");
    warm_up();
    if (!strcmp(mode, "stream"))
        return stream();
    if (!strcmp(mode, "pairs"))
        return pairs();
    fprintf(stderr, "usage: managed stream|pairs [naive]\n");
    return EXIT_UNUSABLE;
}
