/* A program of known leaks and holders, by the CUDA runtime: in functions, three threads, and a
 * library that it opens. Lines that end in "leak: NAME" or "holder: NAME" allocate what holders.py
 * looks for; everything else is freed. With -DPLUGIN it is that library.
 *
 *     holders PLUGIN          leaks, and ends
 *     holders time N          N allocations and frees of 1 MiB, and how long each pair took */
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <cstring>
#include <thread>
#include <vector>

#include "tests/gpu/check.h"

#ifdef PLUGIN

extern "C" __attribute__((visibility("default"))) void plugin_keep(void)
{
    void *memory;

    OK(cudaMallocManaged(&memory, 256 * KIB)); // leak: plugin
}

#else

namespace model
{

class Weights
{
  public:
    explicit Weights(size_t bytes)
    {
        OK(cudaMalloc(&memory, bytes)); // leak: Weights
    }

  private:
    void *memory;
};

} // namespace model

__attribute__((noinline)) static void hold_most(std::vector<void *> *blocks)
{
    for (int i = 0; i < 3; i++) {
        blocks->push_back(nullptr);
        OK(cudaMalloc(&blocks->back(), 200 * MIB)); // holder: hold_most
    }
}

__attribute__((noinline)) static void churn(int n)
{
    for (int i = 0; i < n; i++) {
        void *memory;

        OK(cudaMalloc(&memory, MIB));
        OK(cudaFree(memory));
    }
}

static void work()
{
    void *memory[8];

    for (void *&block : memory)
        OK(cudaMalloc(&block, 64 * KIB)); // leak: work
    for (int i = 0; i < 7; i++)
        OK(cudaFree(memory[i]));
}

static void leak_elsewhere()
{
    void *stays, *memory, *pinned, *freed;
    cudaStream_t stream;

    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaMallocAsync(&stays, 48 * KIB, stream)); // leak: pool
    OK(cudaMallocAsync(&memory, 48 * KIB, stream));
    OK(cudaFreeAsync(memory, stream));
    OK(cudaHostAlloc(&pinned, 12 * KIB, cudaHostAllocDefault)); // leak: pinned
    OK(cudaMallocHost(&freed, 12 * KIB));
    OK(cudaFreeHost(freed));
    OK(cudaStreamSynchronize(stream));
}

static void leak(const char *path)
{
    std::vector<void *> most;
    std::vector<std::thread> threads;
    void *plugin = dlopen(path, RTLD_NOW);
    void (*keep)(void) = plugin ? (void (*)(void))dlsym(plugin, "plugin_keep") : nullptr;

    CHECK_SAID(keep, "%s", dlerror());
    new model::Weights(3 * MIB);
    hold_most(&most);
    churn(2000);
    for (void *memory : most)
        OK(cudaFree(memory));
    for (int i = 0; i < 3; i++)
        threads.emplace_back(work);
    for (std::thread &thread : threads)
        thread.join();
    leak_elsewhere();
    keep();
}

int main(int argc, char **argv)
{
    CHECK(argc > 1);
    if (strcmp(argv[1], "time") != 0) {
        leak(argv[1]);
        puts("leaked");
        return 0;
    }
    churn(1000);
    double before = now_s();
    churn(atoi(argv[2]));
    printf("%.3f us\n", (now_s() - before) * 1e6 / atoi(argv[2]));
    return 0;
}

#endif
