/* holders.cpp: a program of known leaks and holders. Lines that end in "leak: NAME" or "holder:
 * NAME" allocate what test_holders.py looks for; everything else is freed.
 *
 *     holders leaks PLUGIN    leaks in functions, threads and a library, then ends
 *     holders wait PLUGIN     the same, but waits for its standard input before it ends
 *     holders full            holds some, then asks for more than there is
 *     holders reset           leaks, and ends the context itself
 *     holders refused         the driver is to refuse a free
 *     holders churn N         N allocations and frees, of which nothing stays
 *     holders forks           the child of a process with memory has none */
#include <cuda.h>
#include <dlfcn.h>
#include <sys/wait.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/common/check.h"

static CUcontext context;

static void open_device()
{
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
}

namespace model
{

class Weights
{
  public:
    explicit Weights(size_t bytes)
    {
        OK(cuMemAlloc(&memory, bytes)); // leak: Weights
    }

  private:
    CUdeviceptr memory;
};

__attribute__((always_inline)) static inline CUdeviceptr reserve(size_t bytes)
{
    CUdeviceptr memory;

    OK(cuMemAlloc(&memory, bytes)); // leak: reserve
    return memory;
}

__attribute__((noinline)) CUdeviceptr activations(size_t bytes)
{
    CUdeviceptr memory = reserve(bytes); // caller: reserve

    __asm__ volatile("");
    return memory;
}

} // namespace model

__attribute__((noinline)) static void hold_most(std::vector<CUdeviceptr> *blocks)
{
    for (int i = 0; i < 3; i++) {
        blocks->push_back(0);
        OK(cuMemAlloc(&blocks->back(), 20 << 20)); // holder: hold_most
    }
}

/* More than anybody, in the end, but one block at a time. */
__attribute__((noinline)) static void churn(int n)
{
    for (int i = 0; i < n; i++) {
        CUdeviceptr memory;

        OK(cuMemAlloc(&memory, 1 << 20));
        OK(cuMemFree(memory));
    }
}

static void work()
{
    CUdeviceptr memory[8];

    OK(cuCtxSetCurrent(context));
    for (int i = 0; i < 8; i++)
        OK(cuMemAlloc(&memory[i], 64 << 10)); // leak: work
    for (int i = 0; i < 7; i++)
        OK(cuMemFree(memory[i]));
}

static void leak_elsewhere()
{
    CUdeviceptr memory, stays;
    CUstream stream;
    void *pinned, *freed;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAllocAsync(&stays, 48 << 10, stream)); // leak: pool
    OK(cuMemAllocAsync(&memory, 48 << 10, stream));
    OK(cuMemFreeAsync(memory, stream));
    OK(cuMemHostAlloc(&pinned, 12 << 10, 0)); // leak: pinned
    OK(cuMemHostAlloc(&freed, 12 << 10, 0));
    OK(cuMemFreeHost(freed));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost((char *)pinned + 1));
    OK(cuStreamSynchronize(stream));
}

static void *leak_in_plugin(const char *path)
{
    void *plugin = dlopen(path, RTLD_NOW);
    void (*keep)(void);

    CHECK_SAID(plugin, "%s", dlerror());
    keep = (void (*)(void))dlsym(plugin, "plugin_keep");
    CHECK(keep);
    keep();
    return plugin;
}

static void *leak(const char *plugin)
{
    std::vector<CUdeviceptr> most;
    std::vector<std::thread> threads;
    void *opened;

    new model::Weights(3 << 20);
    (void)model::activations(2 << 20);
    hold_most(&most);
    churn(200);
    for (CUdeviceptr memory : most)
        OK(cuMemFree(memory));
    for (int i = 0; i < 3; i++)
        threads.emplace_back(work);
    for (std::thread &thread : threads)
        thread.join();
    leak_elsewhere();
    opened = leak_in_plugin(plugin);
    churn(100);
    return opened;
}

__attribute__((noinline)) static void fill()
{
    CUdeviceptr memory;

    OK(cuMemAlloc(&memory, 40 << 20)); // holder: fill
    __asm__ volatile("");
}

static void forks()
{
    int status;
    pid_t child;

    fill();
    child = fork();
    CHECK(child >= 0);
    if (!child) {
        CUdeviceptr memory;

        CHECK(cuMemAlloc(&memory, 64) != CUDA_SUCCESS); // a child has no context
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && !status);
}

int main(int argc, char **argv)
{
    std::string what = argc > 1 ? argv[1] : "";
    CUdeviceptr memory;

    open_device();
    if (what == "leaks" || what == "wait") {
        void *plugin = leak(argv[2]);

        if (what == "wait") {
            puts("ready");
            fflush(stdout);
            (void)getchar();
        }
        OK(dlclose(plugin));
    } else if (what == "full") {
        fill();
        churn(8);
        for (int i = 0; i < 3; i++)
            EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&memory, (size_t)1 << 44));
    } else if (what == "reset") {
        fill();
        OK(cuDevicePrimaryCtxReset(0));
    } else if (what == "churn") {
        churn(atoi(argv[2]));
    } else if (what == "refused") {
        void *pinned;

        OK(cuMemHostAlloc(&pinned, 12 << 10, 0));
        CHECK(cuMemFreeHost(pinned) != CUDA_SUCCESS);
    } else if (what == "forks") {
        forks();
    }
    return 0;
}
