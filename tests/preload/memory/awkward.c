/* Allocations at awkward moments, as the first argument names them. */
#include <string.h>

#include "tests/common/device.h"
#include "tests/common/say.h"

#define MIB ((size_t)1 << 20)

/* flag: until the host has written it */
static void run_await(const struct sim_kernel_call *call)
{
    const uint32_t *flag = sim_kernel_access(*(CUdeviceptr *)call->args[0], 4, false);

    if (flag && !__atomic_load_n(flag, __ATOMIC_ACQUIRE))
        sim_kernel_again();
}

/* A block of the cache, after an error of the first work that there is. */
static void broken(void)
{
    CUdeviceptr p;

    for (unsigned i = 0; i < 3; i++) {
        OK(cuMemAlloc(&p, MIB));
        OK(cuMemFree(p));
    }
    launch_fill(NULL, 4096, 64, 1);
    SAY_CODE("a bad kernel", cuCtxSynchronize());
    SAY_CODE("a block after that", cuMemAlloc(&p, MIB));
    SAY_CODE("another size", cuMemAlloc(&p, 3 * MIB));
}

/* Rows, while nothing is left of a limit and a kernel waits for what the host does next. */
static void full(void)
{
    static const size_t pointer = sizeof(CUdeviceptr);
    static const char image[64] = "any bytes";
    CUdeviceptr p[8], flag;
    CUfunction await;
    CUmodule module;
    CUstream stream;
    size_t pitch;
    void *host, *args[] = {&flag};

    sim_register_kernel("await", run_await, 1, &pointer);
    OK(cuModuleLoadData(&module, image));
    OK(cuModuleGetFunction(&await, module, "await"));
    OK(cuMemAllocHost(&host, 4096));
    memset(host, 0, 4096);
    flag = (CUdeviceptr)(uintptr_t)host;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; i < 4; i++)
        OK(cuMemAlloc(&p[i], 2 * MIB));
    OK(cuLaunchKernel(await, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
    for (unsigned i = 4; i < 8; i++)
        (void)cuMemAllocPitch(&p[i], &pitch, 300, 5, 4); /* whether there is room is the limit's */
    __atomic_store_n((uint32_t *)host, 1, __ATOMIC_RELEASE);
    SAY_CODE("went on", cuStreamSynchronize(stream));
    say("pitch %zu", pitch);
}

int main(int argc, char **argv)
{
    device_open();
    if (argc > 1 && !strcmp(argv[1], "broken"))
        broken();
    else if (argc > 1 && !strcmp(argv[1], "full"))
        full();
    return 0;
}
