/* One thing that graph replay keeps something of, again and again: a part and how often. Says how
 * much memory is resident after a fifth of it and at the end, and nothing else. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"
#include "tests/common/context.h"
#include "tests/common/say.h"

#define BUFFER_BYTES (4u << 20)

static CUcontext context;
static CUmodule module;
static CUfunction kernel;
static CUdeviceptr buffer;

static void do_nothing(const struct sim_kernel_call *call)
{
    (void)call;
}

static unsigned long resident_kib(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long pages = 0;

    if (!file || fscanf(file, "%*u %lu", &pages) != 1)
        _exit(97);
    (void)fclose(file);
    return pages * 4;
}

static void load(void)
{
    static const char image[64] = "any bytes";

    OK(cuModuleLoadData(&module, image));
    OK(cuModuleGetFunction(&kernel, module, "nothing"));
}

static void launch(CUstream stream, unsigned grid, unsigned block)
{
    void *args[] = {&buffer};

    OK(cuLaunchKernel(kernel, grid, 1, 1, block, 1, 1, 0, stream, args, NULL));
}

static void iterations(CUstream stream, unsigned n)
{
    for (unsigned iteration = 0; iteration < n; iteration++) {
        for (unsigned i = 1; i <= 8; i++)
            launch(stream, i, 32);
        OK(cuStreamSynchronize(stream));
    }
}

/* ---- one time of each part ---- */

static void stream_once(unsigned n_iterations)
{
    CUstream stream;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    launch(stream, 1, 64);
    iterations(stream, n_iterations);
    OK(cuStreamDestroy(stream));
}

static void stream(void)
{
    stream_once(1);
}

static void stream_with_graphs(void)
{
    stream_once(6);
}

static void module_with_graphs(void)
{
    CUmodule kept = module;

    load();
    iterations(CU_STREAM_LEGACY, 4);
    OK(cuModuleUnload(module));
    module = kept;
    OK(cuModuleGetFunction(&kernel, module, "nothing"));
}

static void attribute(void)
{
    OK(cuFuncSetAttribute(kernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024));
    iterations(CU_STREAM_LEGACY, 1);
}

static void sequence(void)
{
    static uint32_t chance = 1;

    for (unsigned i = 0; i < 8; i++) {
        chance = chance * 1664525u + 1013904223u;
        launch(CU_STREAM_LEGACY, 1, 1 + (chance >> 8) % 1000);
    }
    OK(cuStreamSynchronize(CU_STREAM_LEGACY));
}

static void shape(void)
{
    static size_t n;
    CUDA_MEMCPY2D copy = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = buffer,
        .srcPitch = 1 + n % 1000,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = buffer + BUFFER_BYTES / 2,
        .dstPitch = 1 + n % 1000 + n / 1000 % 1000,
        .WidthInBytes = 1 + n % 1000,
        .Height = 2,
    };

    OK(cuMemcpy2DAsync(&copy, CU_STREAM_LEGACY));
    if (++n % 16 == 0)
        OK(cuStreamSynchronize(CU_STREAM_LEGACY));
}

static void *thread_main(void *n_iterations)
{
    OK(cuCtxSetCurrent(context));
    launch(CU_STREAM_PER_THREAD, 1, 64);
    iterations(CU_STREAM_PER_THREAD, *(unsigned *)n_iterations);
    return NULL;
}

static void thread_once(unsigned n_iterations)
{
    pthread_t id;

    OK(pthread_create(&id, NULL, thread_main, &n_iterations));
    OK(pthread_join(id, NULL));
}

static void thread(void)
{
    thread_once(0);
}

static void thread_with_graphs(void)
{
    thread_once(5);
}

static const struct {
    const char *name;
    void (*once)(void);
} parts[] = {
    {"stream", stream},
    {"stream-with-graphs", stream_with_graphs},
    {"module", module_with_graphs},
    {"attribute", attribute},
    {"sequence", sequence},
    {"shape", shape},
    {"thread", thread},
    {"thread-with-graphs", thread_with_graphs},
};

int main(int argc, char **argv)
{
    static const size_t sizes[] = {sizeof(CUdeviceptr)};
    unsigned long n = argc == 3 ? strtoul(argv[2], NULL, 10) : 0;
    void (*once)(void) = NULL;

    for (unsigned i = 0; argc == 3 && i < sizeof(parts) / sizeof(parts[0]); i++)
        once = strcmp(parts[i].name, argv[1]) == 0 ? parts[i].once : once;
    if (!once || n < 5)
        return 97;
    sim_register_kernel("nothing", do_nothing, 1, sizes);
    context = context_open();
    load();
    OK(cuMemAlloc(&buffer, BUFFER_BYTES));
    for (unsigned long i = 0; i < n; i++) {
        if (i == n / 5)
            say("resident early: %lu KiB", resident_kib());
        once();
    }
    say("resident late: %lu KiB", resident_kib());
    return 0;
}
