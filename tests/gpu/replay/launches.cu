/*
 * What launches cost and bring about, as `name value` lines:
 *   cost [N]  an empty kernel that gets eight pointers, by the runtime, by the driver's linked
 *             symbol, and by the driver's own function past whatever is preloaded, and what the
 *             first two take more than that; with N further blocks, one of which no kernel ever
 *             gets
 *   first     2 GiB that nobody has touched: the launch that touches them first, and the next
 *   held      launches behind, and beside, a kernel that waits for the host: they return at once
 *   layouts   what the driver tells of parameters, of every kind of handle: facts, not measured
 */
#include "tests/gpu/check.h"
#include "tests/gpu/own.h"

#include <algorithm>
#include <cuda.h>
#include <functional>
#include <vector>

__global__ void given(const char *, const char *, const char *, const char *, const char *,
                      const char *, const char *, const char *)
{
}

__global__ void given_nothing(void)
{
}

struct image {
    int kind;
    unsigned *pixels;
    short n;
};

__global__ void given_more(struct image image, char c, unsigned *to)
{
    to[c] = image.pixels ? image.pixels[0] + image.n : 0;
}

__global__ void fill(uint4 *to, size_t n, unsigned value)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += gridDim.x * (size_t)blockDim.x)
        to[i] = make_uint4(value, (unsigned)i, value, (unsigned)i);
}

/*
 * Time of a launch by each way, in batches that the device takes without delay: of the quickest
 * tenth of them, for what the host does besides only makes them longer. The ways in turn, so that
 * the whole process being slower than another shows in all of them alike.
 */
static std::vector<double> launch_ns(const std::vector<std::function<void(int)>> &ways)
{
    const int n_batches = 401, n_launches = 200;
    std::vector<std::vector<double>> ns(ways.size());
    std::vector<double> quick;
    for (int batch = 0; batch < n_batches; batch++)
        for (size_t way = 0; way < ways.size(); way++) {
            double start = now_s();
            ways[way](n_launches);
            ns[way].push_back(1e9 * (now_s() - start) / n_launches);
            OK(cudaDeviceSynchronize());
        }
    for (auto &values : ns) {
        std::sort(values.begin(), values.end());
        quick.push_back(values[values.size() / 10]);
    }
    return quick;
}

static int cost(int n_more)
{
    std::vector<char *> blocks(8 + n_more);
    void *params[8];
    cudaFunction_t function;
    for (size_t i = 0; i < blocks.size(); i++)
        OK(cudaMalloc(&blocks[i], 2 * MIB));
    for (size_t i = 0; i + 8 < blocks.size() || i == 0; i++) {
        char **b = &blocks[i];
        given<<<1, 1>>>(b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]);
    }
    OK(cudaGetLastError());
    OK(cudaDeviceSynchronize());
    for (int i = 0; i < 8; i++)
        params[i] = &blocks[i];
    OK(cudaGetFuncBySymbol(&function, (const void *)given));
    auto own = (decltype(&cuLaunchKernel))own_function("libcuda.so.1", "cuLaunchKernel");
    OK(own == NULL);
    auto ns = launch_ns({
        [&](int n) {
            char **b = blocks.data();
            while (n--)
                given<<<1, 1>>>(b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]);
        },
        [&](int n) {
            while (n--)
                (void)cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL);
        },
        [&](int n) {
            while (n--)
                (void)own(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL);
        },
    });
    printf("runtime_ns %.0f\nlinked_ns %.0f\nown_ns %.0f\n", ns[0], ns[1], ns[2]);
    printf("runtime_more_ns %.1f\nlinked_more_ns %.1f\n", ns[0] - ns[2], ns[1] - ns[2]);
    for (char *p : blocks)
        OK(cudaFree(p));
    return 0;
}

/* Milliseconds of the host until the kernel is over, and of them until the launch returned. */
static double fill_ms(uint4 *p, size_t bytes, unsigned value, double *ret_launch_ms)
{
    double start = now_s();
    fill<<<132 * 16, 256>>>(p, bytes / sizeof *p, value);
    *ret_launch_ms = 1e3 * (now_s() - start);
    OK(cudaDeviceSynchronize());
    return 1e3 * (now_s() - start);
}

static int first(void)
{
    const size_t bytes = 2 * GIB;
    double launch_ms, total_ms;
    uint4 *p, word;
    OK(cudaMalloc(&p, MIB));
    (void)fill_ms(p, MIB, 1, &launch_ms);
    OK(cudaFree(p));
    double start = now_s();
    OK(cudaMalloc(&p, bytes));
    OK(cudaDeviceSynchronize());
    printf("alloc_ms %.3f\n", 1e3 * (now_s() - start));
    total_ms = fill_ms(p, bytes, 5, &launch_ms);
    printf("first_launch_ms %.3f\nfirst_ms %.3f\n", launch_ms, total_ms);
    total_ms = fill_ms(p, bytes, 6, &launch_ms);
    printf("second_launch_ms %.4f\nsecond_ms %.3f\n", launch_ms, total_ms);
    OK(cudaMemcpy(&word, p + bytes / sizeof *p - 1, sizeof word, cudaMemcpyDeviceToHost));
    OK(cudaFree(p));
    return word.x == 6 && word.y == (unsigned)(bytes / sizeof *p - 1) ? 0 : EXIT_BROKEN;
}

__global__ void wait_for(volatile unsigned *flag, unsigned *seen)
{
    while (!*flag)
        ;
    *seen = *flag;
}

__global__ void add(unsigned *words, const unsigned *seen)
{
    words[0] += *seen;
    words[MIB] += *seen;
}

/* Whoever waits for the kernel before the host has let it go waits for ever: the run is ended
 * then. */
static int held(void)
{
    cudaStream_t streams[2];
    unsigned *flag, *seen, *words[4], got[2];
    int wrong = 0;
    OK(cudaHostAlloc(&flag, sizeof *flag, cudaHostAllocMapped));
    OK(cudaMalloc(&seen, sizeof *seen));
    for (int i = 0; i < 2; i++)
        OK(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
    for (int i = 0; i < 4; i++) {
        OK(cudaMalloc(&words[i], 64 * MIB));
        OK(cudaMemset(words[i], 0, sizeof *words[i]));
        OK(cudaMemset(words[i] + MIB, 0, sizeof *words[i]));
    }
    OK(cudaMemset(seen, 0, sizeof *seen));
    *flag = 1; /* kernels are loaded before one of them waits */
    wait_for<<<1, 1, 0, streams[0]>>>(flag, seen);
    add<<<1, 1, 0, streams[0]>>>(words[0], seen);
    OK(cudaDeviceSynchronize());
    *flag = 0;
    wait_for<<<1, 1, 0, streams[0]>>>(flag, seen);
    double start = now_s();
    add<<<1, 1, 0, streams[1]>>>(words[1], seen); /* beside it, of words hardly touched */
    double beside = now_s();
    add<<<1, 1, 0, streams[0]>>>(words[2], seen);
    add<<<1, 1, 0, streams[0]>>>(words[3], seen);
    double behind = now_s();
    OK(cudaGetLastError());
    OK(cudaStreamSynchronize(streams[1]));
    *(volatile unsigned *)flag = 7;
    OK(cudaDeviceSynchronize());
    for (int i = 2; i < 4; i++) {
        OK(cudaMemcpy(got, words[i], sizeof *got, cudaMemcpyDeviceToHost));
        OK(cudaMemcpy(got + 1, words[i] + MIB, sizeof *got, cudaMemcpyDeviceToHost));
        wrong += (got[0] != 7) + (got[1] != 7);
    }
    printf("launch beside %.3f ms, two behind %.3f ms, wrong words %d\n", 1e3 * (beside - start),
           1e3 * (behind - beside), wrong);
    return wrong ? EXIT_BROKEN : 0;
}

static void say_layout(const char *name, const char *how,
                       CUresult (*ask)(void *, size_t, size_t *, size_t *), void *handle)
{
    size_t i, offset, size;
    CUresult code;
    printf("%s %s", name, how);
    for (i = 0; (code = ask(handle, i, &offset, &size)) == CUDA_SUCCESS && i < 20; i++)
        printf(" (%zu,%zu)", offset, size);
    printf(" then code %d\n", (int)code);
}

static CUresult ask_function(void *handle, size_t i, size_t *offset, size_t *size)
{
    return cuFuncGetParamInfo((CUfunction)handle, i, offset, size);
}

static CUresult ask_kernel(void *handle, size_t i, size_t *offset, size_t *size)
{
    return cuKernelGetParamInfo((CUkernel)handle, i, offset, size);
}

static void say_layouts(const char *name, const void *symbol)
{
    cudaFunction_t function;
    cudaKernel_t kernel;
    OK(cudaGetFuncBySymbol(&function, symbol));
    OK(cudaGetKernel(&kernel, symbol));
    say_layout(name, "function asked as function:", ask_function, function);
    say_layout(name, "kernel asked as kernel:", ask_kernel, kernel);
    say_layout(name, "kernel asked as function:", ask_function, kernel);
    fflush(stdout); /* this one may crash */
    say_layout(name, "function asked as kernel:", ask_kernel, function);
}

static int layouts(void)
{
    OK(cudaFree(NULL));
    say_layouts("given", (const void *)given);
    say_layouts("given_more", (const void *)given_more);
    say_layouts("given_nothing", (const void *)given_nothing);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "cost"))
        return cost(argc > 2 ? atoi(argv[2]) : 0);
    if (argc > 1 && !strcmp(argv[1], "first"))
        return first();
    if (argc > 1 && !strcmp(argv[1], "held"))
        return held();
    if (argc > 1 && !strcmp(argv[1], "layouts"))
        return layouts();
    fprintf(stderr, "usage: launches cost [N]|first|held|layouts\n");
    return EXIT_UNUSABLE;
}
