/*
 * The last calls are a kernel that prints after 100 ms, a cudaFree and the end of the program:
 * natively everything is printed, because the free has waited. Ends in the way argv[1] says.
 */
#include "tests/gpu/check.h"

#include <unistd.h>

static const unsigned long long late_ns = 100 * 1000 * 1000;

__global__ void print_late(unsigned long long ns)
{
    spin_ns(ns);
    if (ns)
        printf("line %d\n", blockIdx.x * blockDim.x + threadIdx.x);
}

int main(int argc, char **argv)
{
    const char *end = argc > 1 ? argv[1] : "return";
    cudaStream_t stream;
    void *p;
    setvbuf(stdout, NULL, _IONBF, 0); /* what the driver wrote must not depend on stdio's exit */
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaMalloc(&p, 1 * MIB));
    print_late<<<1, 1, 0, stream>>>(0);
    OK(cudaDeviceSynchronize());
    print_late<<<4, 8, 0, stream>>>(late_ns);
    OK(cudaGetLastError());
    OK(cudaFree(p));
    if (!strcmp(end, "exit"))
        exit(0);
    if (!strcmp(end, "_exit"))
        _exit(0);
    if (!strcmp(end, "host-line"))
        printf("host line\n");
    if (!strcmp(end, "exec"))
        execl("/bin/echo", "echo", "executed", (char *)NULL);
    return 0;
}
