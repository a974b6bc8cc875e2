/* Memory runs out, is freed and is there again in another shape, also when a kernel held it up. */
#include "tests/gpu/check.h"

#include <vector>

static std::vector<unsigned *> pieces;

/* Takes pieces of 1 GiB until there is no more; each is touched at both ends. */
static void take_all(void)
{
    for (;;) {
        unsigned *p;
        cudaError_t code = cudaMalloc(&p, 1 * GIB);
        if (code == cudaSuccess) {
            OK(cudaMemsetAsync(p, 1, 4096, 0));
            OK(cudaMemsetAsync(p + 1 * GIB / sizeof *p - 1024, 1, 4096, 0));
            pieces.push_back(p);
            continue;
        }
        EXPECT(cudaErrorMemoryAllocation, code);
        (void)cudaGetLastError();
        OK(cudaDeviceSynchronize());
        return;
    }
}

static void free_all(void)
{
    for (unsigned *p : pieces)
        OK(cudaFree(p));
    pieces.clear();
}

static bool one_large(size_t bytes)
{
    void *p;
    if (cudaMalloc(&p, bytes) != cudaSuccess) {
        (void)cudaGetLastError();
        return false;
    }
    OK(cudaMemset(p, 2, bytes));
    OK(cudaDeviceSynchronize());
    OK(cudaFree(p));
    return true;
}

int main()
{
    size_t free_bytes, total;
    cudaStream_t s;
    warm_up_kernels();
    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    OK(cudaMemGetInfo(&free_bytes, &total));
    size_t most = (size_t)(0.9 * (double)free_bytes);

    take_all();
    size_t n_first = pieces.size();
    free_all();
    bool large = one_large(most);
    take_all();
    size_t n_second = pieces.size();
    late_write<<<FEW_BLOCKS, THREADS, 0, s>>>(pieces[0], 1000, 5, 100 * 1000 * 1000);
    free_all();
    bool large_while_busy = one_large(most);

    printf("%.1f GiB free, %zu pieces, then %zu, 90%% in one piece: %s, while busy: %s\n",
           (double)free_bytes / (double)GIB, n_first, n_second, large ? "yes" : "no",
           large_while_busy ? "yes" : "no");
    bool enough = (double)(n_first * GIB) >= 0.95 * (double)free_bytes && n_second + 1 >= n_first;
    return enough && large && large_while_busy ? 0 : EXIT_BROKEN;
}
