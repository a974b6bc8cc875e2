// An unmodified CUDA program that says how far NVIDIA's runtime came: the code of the first call.

#include <cstdio>

#include <cuda_runtime.h>

__global__ void nothing(int *p)
{
    if (p)
        *p = 1;
}

int main()
{
    void *p = nullptr;
    printf("cudaMalloc %d\n", (int)cudaMalloc(&p, 4096));
    nothing<<<1, 1>>>(nullptr);
    printf("launch %d\n", (int)cudaGetLastError());
    printf("cudaFree %d\n", (int)cudaFree(p));
    return 0;
}
