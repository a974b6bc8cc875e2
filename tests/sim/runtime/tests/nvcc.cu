// What only nvcc's code uses of the runtime: registration, <<<...>>>, variables in device code.
// Built with each kind of default stream and of runtime library.

#include <cstring>
#include <thread>
#include <vector>

#include <cuda_runtime.h>

#include "runtime_test.h"

enum { N = 1000 };

__device__ unsigned table[N];
__constant__ unsigned factors[4];
__managed__ unsigned shared_words[N];

__global__ void fill(unsigned *p, unsigned value, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        p[i] = value;
}

__global__ void add(unsigned *to, const unsigned *from, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        to[i] += from[i];
}

__global__ void shape(unsigned *p)
{
    extern __shared__ unsigned scratch[];
    p[0] = gridDim.x, p[1] = gridDim.y, p[2] = gridDim.z;
    p[3] = blockDim.x, p[4] = blockDim.y, p[5] = blockDim.z;
    p[6] = sizeof(scratch[0]) * 16;
}

template <typename T> __global__ void scale(T *p, T by, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        p[i] *= by;
}

__global__ void without_host_function(unsigned *p)
{
    *p = 1;
}

static void test_launches()
{
    unsigned *p, back[7];
    OK(cudaMalloc(&p, sizeof(back)));
    shape<<<dim3(2, 3, 4), dim3(5, 6, 7), 64>>>(p);
    OK(cudaGetLastError());
    OK(cudaMemcpy(back, p, sizeof(back), cudaMemcpyDeviceToHost));
    const unsigned expected[7] = {2, 3, 4, 5, 6, 7, 64};
    CHECK(memcmp(back, expected, sizeof(back)) == 0);

    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(8);
    config.blockDim = dim3(9);
    OK(cudaLaunchKernelEx(&config, shape, p));
    OK(cudaMemcpy(back, p, sizeof(back), cudaMemcpyDeviceToHost));
    CHECK(back[0] == 8 && back[3] == 9);
    OK(cudaFree(p));

    double host[N], *d;
    for (int i = 0; i < N; i++)
        host[i] = i;
    OK(cudaMalloc(&d, sizeof(host)));
    OK(cudaMemcpy(d, host, sizeof(host), cudaMemcpyHostToDevice));
    scale<double><<<4, 256>>>(d, 0.5, N);
    OK(cudaMemcpy(host, d, sizeof(host), cudaMemcpyDeviceToHost));
    for (int i = 0; i < N; i++)
        CHECK(host[i] == i * 0.5);
    OK(cudaFree(d));
}

static void test_variables()
{
    unsigned host[N], back[N];
    for (int i = 0; i < N; i++)
        host[i] = i + 1;
    OK(cudaMemcpyToSymbol(table, host, sizeof(host)));
    void *address;
    size_t size;
    OK(cudaGetSymbolAddress(&address, table));
    OK(cudaGetSymbolSize(&size, table));
    CHECK(size == sizeof(table));
    add<<<4, 256>>>((unsigned *)address, (const unsigned *)address, N);
    OK(cudaMemcpyFromSymbol(back, table, sizeof(back)));
    for (int i = 0; i < N; i++)
        CHECK(back[i] == 2 * host[i]);
    OK(cudaMemcpyFromSymbol(back, table, 8, 16));
    CHECK(back[0] == 10 && back[1] == 12);
    OK(cudaMemcpyToSymbol(factors, host, sizeof(factors)));
    EXPECT(cudaErrorInvalidValue, cudaMemcpyToSymbol(factors, host, sizeof(factors) + 1));
    (void)cudaGetLastError();

    fill<<<4, 256>>>(shared_words, 3, N);
    OK(cudaDeviceSynchronize());
    CHECK(shared_words[0] == 3 && shared_words[N - 1] == 3);
}

static void test_errors()
{
    unsigned *p;
    OK(cudaMalloc(&p, sizeof(*p)));
    without_host_function<<<1, 1>>>(p);
    EXPECT(cudaErrorInvalidDeviceFunction, cudaGetLastError());
    OK(cudaFree(p));
}

// Every thread works for itself: on its own default stream where the program has one per thread.
static void work_alone(unsigned value, bool *right)
{
    unsigned *p, *q;
    std::vector<unsigned> host(N, value);
    *right = true;
    for (int iteration = 0; iteration < 20; iteration++) {
        OK(cudaMalloc(&p, N * sizeof(unsigned)));
        OK(cudaMalloc(&q, N * sizeof(unsigned)));
        OK(cudaMemcpyAsync(p, host.data(), N * sizeof(unsigned), cudaMemcpyHostToDevice, 0));
        fill<<<4, 256>>>(q, iteration, N);
        add<<<4, 256>>>(q, p, N);
        std::vector<unsigned> back(N);
        OK(cudaMemcpy(back.data(), q, N * sizeof(unsigned), cudaMemcpyDeviceToHost));
        for (unsigned word : back)
            *right = *right && word == value + iteration;
        OK(cudaFree(p));
        OK(cudaFree(q));
    }
}

static void test_threads()
{
    enum { THREADS = 8 };
    bool right[THREADS];
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < THREADS; i++)
        threads.emplace_back(work_alone, 100 * i, &right[i]);
    for (std::thread &thread : threads)
        thread.join();
    for (bool r : right)
        CHECK(r);
}

static void test_capture()
{
    unsigned *p, back[N];
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    OK(cudaMalloc(&p, sizeof(back)));
    OK(cudaStreamCreate(&stream));
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    fill<<<4, 256, 0, stream>>>(p, 21, N);
    add<<<4, 256, 0, stream>>>(p, p, N);
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaMemcpy(back, p, sizeof(back), cudaMemcpyDeviceToHost));
    CHECK(back[0] == 42 && back[N - 1] == 42);
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
    OK(cudaStreamDestroy(stream));
    OK(cudaFree(p));
}

int main()
{
    test_launches();
    test_variables();
    test_errors();
    test_threads();
    if (driver_has_graphs())
        test_capture();
    printf("ok\n");
    return 0;
}
