/* An ordinary CUDA program: four host threads that allocate, compute, copy back and free. */
#include "tests/gpu/check.h"

#include <thread>
#include <vector>

static const int n_threads = 4;
static const int n_iterations = 60;

__global__ void saxpy(float *y, const float *x, float a, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = a * x[i] + y[i];
}

/* Sum over the bits, so that a single wrong one shows. */
static uint64_t bits_of(const std::vector<float> &values)
{
    uint64_t sum = 14695981039346656037ull;
    for (float v : values) {
        uint32_t bits;
        memcpy(&bits, &v, sizeof bits);
        sum = (sum ^ bits) * 1099511628211ull;
    }
    return sum;
}

static void work(int id, uint64_t *ret_sum)
{
    for (int iteration = 0; iteration < n_iterations; iteration++) {
        int n = 1000 + 7919 * ((iteration * n_threads + id) % 37);
        std::vector<float> x(n), y(n);
        for (int i = 0; i < n; i++) {
            x[i] = (float)(i % 1013) / (float)(id + 1);
            y[i] = (float)(iteration - i % 7);
        }
        float *dx, *dy, *unused;
        OK(cudaMalloc(&dx, n * sizeof(float)));
        OK(cudaMalloc(&unused, 1 + iteration));
        OK(cudaMalloc(&dy, n * sizeof(float)));
        OK(cudaMemcpy(dx, x.data(), n * sizeof(float), cudaMemcpyHostToDevice));
        OK(cudaMemcpy(dy, y.data(), n * sizeof(float), cudaMemcpyHostToDevice));
        OK(cudaFree(unused));
        for (int k = 0; k < 5; k++)
            saxpy<<<(n + 255) / 256, 256>>>(dy, dx, 0.5f + k, n);
        OK(cudaGetLastError());
        OK(cudaFree(dx));
        OK(cudaMemcpy(y.data(), dy, n * sizeof(float), cudaMemcpyDeviceToHost));
        OK(cudaFree(dy));
        *ret_sum = *ret_sum * 31 + bits_of(y);
    }
}

int main()
{
    std::vector<std::thread> threads;
    uint64_t sums[n_threads] = {};
    for (int id = 0; id < n_threads; id++)
        threads.emplace_back(work, id, &sums[id]);
    for (auto &t : threads)
        t.join();
    for (int id = 0; id < n_threads; id++)
        printf("thread %d: %016llx\n", id, (unsigned long long)sums[id]);
    printf("device: %s, last error: %s\n", cudaGetErrorName(cudaDeviceSynchronize()),
           cudaGetErrorName(cudaGetLastError()));
    return 0;
}
