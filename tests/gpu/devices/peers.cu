/* Two GPUs: copies between them with and without peer access, kernels on the other's memory, frees
 * from the other device, and work of one GPU that waits for work of the other. Skips with one
 * GPU. */
#include "tests/gpu/check.h"

#include <atomic>
#include <thread>
#include <vector>

static const size_t n = 1 * MIB; /* words */

__global__ void add_to(unsigned *to, const unsigned *from, size_t count)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count;
         i += (size_t)gridDim.x * blockDim.x)
        to[i] += from[i];
}

/* Spins until *flag is set by somebody, or for 5 s. */
__global__ void wait_for(volatile unsigned *flag, unsigned *ret_seen)
{
    for (int i = 0; i < 5000 && !*flag; i++)
        spin_ns(1000 * 1000);
    *ret_seen = *flag;
}

__global__ void set(volatile unsigned *flag)
{
    *flag = 1;
}

static unsigned *take_on(int device, unsigned value)
{
    unsigned *p;
    OK(cudaSetDevice(device));
    OK(cudaMalloc(&p, n * sizeof *p));
    late_write<<<FEW_BLOCKS, THREADS>>>(p, n, value, 1000 * 1000);
    OK(cudaGetLastError());
    return p;
}

static size_t wrong(const unsigned *device_words, unsigned value)
{
    std::vector<unsigned> back(n);
    OK(cudaMemcpy(back.data(), device_words, n * sizeof(unsigned), cudaMemcpyDeviceToHost));
    return count_wrong(back.data(), n, value);
}

static void copies(const char *when)
{
    for (int iteration = 0; iteration < 3;
         iteration++) { /* the later ones in memory that was freed before */
        unsigned *a = take_on(0, 10 + iteration), *b = take_on(1, 20 + iteration),
                 *c = take_on(0, 0);
        OK(cudaMemcpyPeer(b, 1, a, 0, n * sizeof *a));
        OK(cudaMemcpyPeer(c, 0, b, 1, n * sizeof *a));
        OK(cudaDeviceSynchronize());
        printf("%s: copied there: %zu wrong, and back: %zu wrong\n", when, wrong(b, 10 + iteration),
               wrong(c, 10 + iteration));
        OK(cudaFree(a)); /* device 0's memory, device 0 current */
        OK(cudaFree(b)); /* device 1's memory, device 0 current */
        OK(cudaFree(c));
    }
}

static void kernels(void)
{
    unsigned *a = take_on(0, 3), *b = take_on(1, 4);
    OK(cudaSetDevice(0));
    OK(cudaDeviceSynchronize());
    OK(cudaSetDevice(1));
    add_to<<<FEW_BLOCKS, THREADS>>>(b, a, n);
    add_to<<<FEW_BLOCKS, THREADS>>>(a, b, n);
    OK(cudaDeviceSynchronize());
    printf("kernel on the other's memory: %zu and %zu wrong\n", wrong(b, 7), wrong(a, 10));
    OK(cudaFree(a));
    OK(cudaFree(b));
}

/* Device 0 waits for what another thread submits to device 1 while this thread is in cudaFree. */
static void waits_for_the_other(void)
{
    unsigned *flag = take_on(0, 0), *seen = take_on(0, 0), *other = take_on(0, 0);
    std::atomic<bool> launched{false};
    OK(cudaDeviceSynchronize());
    std::thread setter([&] {
        OK(cudaSetDevice(1));
        while (!launched)
            std::this_thread::yield();
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        set<<<1, 1>>>(flag);
        OK(cudaDeviceSynchronize());
    });
    OK(cudaSetDevice(0));
    wait_for<<<1, 1>>>(flag, seen);
    OK(cudaGetLastError());
    launched = true;
    OK(cudaFree(other));
    setter.join();
    OK(cudaDeviceSynchronize());
    unsigned value;
    OK(cudaMemcpy(&value, seen, sizeof value, cudaMemcpyDeviceToHost));
    printf("work of device 0 saw what device 1 set: %u\n", value);
    OK(cudaFree(flag));
    OK(cudaFree(seen));
}

/* A word of the current device that is never freed. */
static unsigned *scratch_word(unsigned value)
{
    unsigned *word;
    OK(cudaMalloc(&word, sizeof *word));
    OK(cudaMemcpy(word, &value, sizeof value, cudaMemcpyHostToDevice));
    return word;
}

int main()
{
    int count, can = 0;
    OK(cudaGetDeviceCount(&count));
    if (count > 1)
        OK(cudaDeviceCanAccessPeer(&can, 1, 0));
    if (!can)
        return 77;
    for (int device = 0; device < 2; device++) {
        OK(cudaSetDevice(device));
        warm_up_kernels();
        add_to<<<1, 1>>>(NULL, NULL, 0); /* loaded before it matters */
        wait_for<<<1, 1>>>(scratch_word(1), scratch_word(0));
        set<<<1, 1>>>(scratch_word(0));
        OK(cudaDeviceSynchronize());
    }
    copies("peers not enabled");
    for (int device = 0; device < 2; device++) {
        OK(cudaSetDevice(device));
        OK(cudaDeviceEnablePeerAccess(1 - device, 0));
    }
    copies("peers enabled");
    kernels();
    waits_for_the_other();
    OK(cudaSetDevice(1));
    OK(cudaDeviceDisablePeerAccess(0));
    copies("peers half disabled");
    return 0;
}
