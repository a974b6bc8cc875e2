/* program.cu for machines without nvcc: the same calls through the mini runtime. */
#include <stdio.h>

#include <cuda_runtime_api.h>

int main(void)
{
    void *p = NULL;
    printf("cudaMalloc %d\n", (int)cudaMalloc(&p, 4096));
    printf("cudaFree %d\n", (int)cudaFree(p));
    return 0;
}
