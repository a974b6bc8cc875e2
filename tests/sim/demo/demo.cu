// The demonstration program: plain CUDA that knows nothing of Allograft.
//
// Warmth spreads over a field of whole numbers. As many programs do, it takes new device memory in
// every step and gives back the old while the GPU is still at work. Whole numbers make the result
// the same on every machine, and each step depends on all words of the one before, so a single
// wrong word changes the checksum.
//
// Usage: demo [steps]

#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda_runtime.h>

#define CHECK_CUDA(call)                                                          \
    do {                                                                          \
        cudaError_t error_ = (call);                                              \
        if (error_ != cudaSuccess) {                                              \
            fprintf(stderr, "demo: %s: %s\n", #call, cudaGetErrorString(error_)); \
            exit(1);                                                              \
        }                                                                         \
    } while (0)

static const int side = 512;
static const int cells = side * side;
static const int bins = 64;
static const int threads = 256;

__global__ void spread(const unsigned *from, unsigned *to, int side)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= side * side)
        return;
    int x = i % side, y = i / side;
    int left = (x + side - 1) % side, right = (x + 1) % side;
    int up = (y + side - 1) % side, down = (y + 1) % side;
    to[i] = (4 * from[i] + from[y * side + left] + from[y * side + right] + from[up * side + x] +
             from[down * side + x]) /
            8;
}

__global__ void tally(const unsigned *field, unsigned *counts, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        atomicAdd(&counts[field[i] % 64], 1u);
}

__global__ void season(unsigned *field, const unsigned *counts, int n, unsigned step)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        field[i] = (field[i] + counts[(i + step) % 64]) & 0xffffff;
}

static unsigned checksum(const unsigned *device_field)
{
    std::vector<unsigned> field(cells);
    CHECK_CUDA(
        cudaMemcpy(field.data(), device_field, cells * sizeof(unsigned), cudaMemcpyDeviceToHost));
    unsigned sum = 2166136261u;
    for (unsigned word : field)
        sum = (sum ^ word) * 16777619u;
    return sum;
}

int main(int argc, char **argv)
{
    int steps = argc > 1 ? atoi(argv[1]) : 100;
    printf("demo: %d steps over %d x %d cells, two streams\n", steps, side, side);
    printf("demo: every step takes two buffers with cudaMalloc and gives two back with cudaFree\n");

    std::vector<unsigned> start(cells);
    for (int i = 0; i < cells; i++)
        start[i] = (unsigned)i * 2654435761u >> 8;

    cudaStream_t work, count;
    cudaEvent_t spread_done, tally_done;
    CHECK_CUDA(cudaStreamCreate(&work));
    CHECK_CUDA(cudaStreamCreateWithFlags(&count, cudaStreamNonBlocking));
    CHECK_CUDA(cudaEventCreateWithFlags(&spread_done, cudaEventDisableTiming));
    CHECK_CUDA(cudaEventCreateWithFlags(&tally_done, cudaEventDisableTiming));

    unsigned *field;
    CHECK_CUDA(cudaMalloc(&field, cells * sizeof(unsigned)));
    CHECK_CUDA(cudaMemcpy(field, start.data(), cells * sizeof(unsigned), cudaMemcpyHostToDevice));

    for (int step = 1; step <= steps; step++) {
        unsigned *next, *counts;
        CHECK_CUDA(cudaMalloc(&next, cells * sizeof(unsigned)));
        CHECK_CUDA(cudaMalloc(&counts, bins * sizeof(unsigned)));

        spread<<<cells / threads, threads, 0, work>>>(field, next, side);
        CHECK_CUDA(cudaEventRecord(spread_done, work));

        CHECK_CUDA(cudaMemsetAsync(counts, 0, bins * sizeof(unsigned), count));
        CHECK_CUDA(cudaStreamWaitEvent(count, spread_done, 0));
        tally<<<cells / threads, threads, 0, count>>>(next, counts, cells);
        CHECK_CUDA(cudaEventRecord(tally_done, count));

        CHECK_CUDA(cudaStreamWaitEvent(work, tally_done, 0));
        season<<<cells / threads, threads, 0, work>>>(next, counts, cells, step);
        CHECK_CUDA(cudaGetLastError());

        CHECK_CUDA(cudaFree(field));
        CHECK_CUDA(cudaFree(counts));
        field = next;
        if (step % 50 == 0 && step != steps) {
            CHECK_CUDA(cudaStreamSynchronize(work));
            printf("demo: step %d, checksum %08x\n", step, checksum(field));
        }
    }

    CHECK_CUDA(cudaDeviceSynchronize());
    printf("demo: done, checksum %08x\n", checksum(field));
    CHECK_CUDA(cudaFree(field));
    CHECK_CUDA(cudaEventDestroy(spread_done));
    CHECK_CUDA(cudaEventDestroy(tally_done));
    CHECK_CUDA(cudaStreamDestroy(work));
    CHECK_CUDA(cudaStreamDestroy(count));
    return 0;
}
