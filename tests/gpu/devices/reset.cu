/* cudaDeviceReset frees everything, and the program goes on with a new context. */
#include "tests/gpu/check.h"

#include <vector>

static size_t free_now(void)
{
    size_t free_bytes, total;
    OK(cudaMemGetInfo(&free_bytes, &total));
    return free_bytes;
}

static bool works(void)
{
    const size_t n = 1 * MIB;
    unsigned *p;
    std::vector<unsigned> back(n);
    OK(cudaMalloc(&p, n * sizeof *p));
    late_write<<<FEW_BLOCKS, THREADS>>>(p, n, 77, 1000 * 1000);
    OK(cudaMemcpy(back.data(), p, n * sizeof *p, cudaMemcpyDeviceToHost));
    OK(cudaFree(p));
    return count_wrong(back.data(), n, 77) == 0;
}

int main()
{
    for (int iteration = 0; iteration < 3; iteration++) {
        unsigned *kept, *freed;
        cudaStream_t s;
        warm_up_kernels();
        size_t before = free_now();
        if (iteration != 1)
            OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
        else
            OK(cudaStreamCreate(&s));
        OK(cudaMalloc(&kept, 512 * MIB));
        OK(cudaMalloc(&freed, 512 * MIB));
        late_write<<<FEW_BLOCKS, THREADS, 0, s>>>(freed, 1000, 5, 50 * 1000 * 1000);
        OK(cudaFree(freed));
        printf("reset: %s\n", cudaGetErrorName(cudaDeviceReset()));
        printf("new context: %s\n", cudaGetErrorName(cudaFree(0)));
        printf("free of old memory: %s\n", cudaGetErrorName(cudaFree(kept)));
        printf("last error: %s\n", cudaGetErrorName(cudaGetLastError()));
        warm_up_kernels();
        printf("memory back: %s\n", free_now() + 64 * MIB >= before ? "yes" : "no");
        printf("works: %s\n", works() ? "yes" : "no");
    }
    return 0;
}
