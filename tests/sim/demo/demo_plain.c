/* demo.cu without nvcc: the same steps and the same output, in C, on the simulated driver only.
 * Where nvcc would generate code for <<<...>>>, kernels are looked up by name and launched. */
#include <stdio.h>
#include <stdlib.h>

#include <cuda_runtime_api.h>

#define CHECK_CUDA(call)                                                          \
    do {                                                                          \
        cudaError_t error_ = (call);                                              \
        if (error_ != cudaSuccess) {                                              \
            fprintf(stderr, "demo: %s: %s\n", #call, cudaGetErrorString(error_)); \
            exit(1);                                                              \
        }                                                                         \
    } while (0)

enum { SIDE = 512, CELLS = SIDE * SIDE, BINS = 64, THREADS = 256 };

/* The simulated driver takes any bytes for device code. */
static const char device_code[] = "kernels of demo_kernels.c";

static cudaKernel_t spread, tally, season;

static void load_kernels(void)
{
    cudaLibrary_t library;
    CHECK_CUDA(cudaLibraryLoadData(&library, device_code, NULL, NULL, 0, NULL, NULL, 0));
    CHECK_CUDA(cudaLibraryGetKernel(&spread, library, "_Z6spreadPKjPji"));
    CHECK_CUDA(cudaLibraryGetKernel(&tally, library, "_Z5tallyPKjPji"));
    CHECK_CUDA(cudaLibraryGetKernel(&season, library, "_Z6seasonPjPKjij"));
}

static void launch(cudaKernel_t kernel, cudaStream_t stream, void **args)
{
    dim3 grid = {CELLS / THREADS, 1, 1}, block = {THREADS, 1, 1};
    CHECK_CUDA(cudaLaunchKernel((const void *)kernel, grid, block, args, 0, stream));
}

static unsigned checksum(const unsigned *device_field)
{
    static unsigned field[CELLS];
    CHECK_CUDA(cudaMemcpy(field, device_field, sizeof(field), cudaMemcpyDeviceToHost));
    unsigned sum = 2166136261u;
    for (size_t i = 0; i < CELLS; i++)
        sum = (sum ^ field[i]) * 16777619u;
    return sum;
}

static unsigned *first_field(void)
{
    static unsigned start[CELLS];
    for (size_t i = 0; i < CELLS; i++)
        start[i] = (unsigned)i * 2654435761u >> 8;
    void *field;
    CHECK_CUDA(cudaMalloc(&field, sizeof(start)));
    CHECK_CUDA(cudaMemcpy(field, start, sizeof(start), cudaMemcpyHostToDevice));
    return field;
}

static struct {
    cudaStream_t work, count;
    cudaEvent_t spread_done, tally_done;
} gpu;

static unsigned *advance(unsigned *field, int step)
{
    void *next, *counts;
    int side = SIDE, cells = CELLS;
    CHECK_CUDA(cudaMalloc(&next, CELLS * sizeof(unsigned)));
    CHECK_CUDA(cudaMalloc(&counts, BINS * sizeof(unsigned)));

    launch(spread, gpu.work, (void *[]){&field, &next, &side});
    CHECK_CUDA(cudaEventRecord(gpu.spread_done, gpu.work));

    CHECK_CUDA(cudaMemsetAsync(counts, 0, BINS * sizeof(unsigned), gpu.count));
    CHECK_CUDA(cudaStreamWaitEvent(gpu.count, gpu.spread_done, 0));
    launch(tally, gpu.count, (void *[]){&next, &counts, &cells});
    CHECK_CUDA(cudaEventRecord(gpu.tally_done, gpu.count));

    CHECK_CUDA(cudaStreamWaitEvent(gpu.work, gpu.tally_done, 0));
    launch(season, gpu.work, (void *[]){&next, &counts, &cells, &step});

    CHECK_CUDA(cudaFree(field));
    CHECK_CUDA(cudaFree(counts));
    return next;
}

int main(int argc, char **argv)
{
    int steps = argc > 1 ? atoi(argv[1]) : 100;
    printf("demo: %d steps over %d x %d cells, two streams\n", steps, SIDE, SIDE);
    printf("demo: every step takes two buffers with cudaMalloc and gives two back with cudaFree\n");

    load_kernels();
    CHECK_CUDA(cudaStreamCreate(&gpu.work));
    CHECK_CUDA(cudaStreamCreateWithFlags(&gpu.count, cudaStreamNonBlocking));
    CHECK_CUDA(cudaEventCreateWithFlags(&gpu.spread_done, cudaEventDisableTiming));
    CHECK_CUDA(cudaEventCreateWithFlags(&gpu.tally_done, cudaEventDisableTiming));

    unsigned *field = first_field();
    for (int step = 1; step <= steps; step++) {
        field = advance(field, step);
        if (step % 50 == 0 && step != steps) {
            CHECK_CUDA(cudaStreamSynchronize(gpu.work));
            printf("demo: step %d, checksum %08x\n", step, checksum(field));
        }
    }

    CHECK_CUDA(cudaDeviceSynchronize());
    printf("demo: done, checksum %08x\n", checksum(field));
    CHECK_CUDA(cudaFree(field));
    CHECK_CUDA(cudaEventDestroy(gpu.spread_done));
    CHECK_CUDA(cudaEventDestroy(gpu.tally_done));
    CHECK_CUDA(cudaStreamDestroy(gpu.work));
    CHECK_CUDA(cudaStreamDestroy(gpu.count));
    return 0;
}
