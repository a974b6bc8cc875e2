/*
 * How long a process takes that allocates little, as `name value` lines: the first cudaMalloc once
 * there is a context, and all cudaMalloc and cudaFree of 64 blocks that are freed at the end, when
 * the device is idle.
 */
#include "tests/gpu/check.h"

static const int n_blocks = 64;

/* 4 KiB to 4 MiB, some of them no powers of two. */
static size_t size_of(int i)
{
    return (4 * KIB << i % 11) + (i % 3 ? 0 : 1000);
}

static double us(double since)
{
    return 1e6 * (now_s() - since);
}

int main()
{
    unsigned *blocks[n_blocks];
    double began, spent = 0;

    OK(cudaFree(nullptr)); /* makes the context, as any call of the runtime does */
    for (int i = 0; i < n_blocks; i++) {
        began = now_s();
        OK(cudaMalloc(&blocks[i], size_of(i)));
        spent += us(began);
        if (i == 0)
            printf("first_us %.3f\n", spent);
    }
    for (int i = 0; i < n_blocks; i++)
        late_write<<<FEW_BLOCKS, THREADS>>>(blocks[i], 1000, (unsigned)i, 1000);
    OK(cudaDeviceSynchronize());
    for (int i = 0; i < n_blocks; i++) {
        began = now_s();
        OK(cudaFree(blocks[i]));
        spent += us(began);
    }
    printf("few_us %.3f\n", spent);
    return 0;
}
