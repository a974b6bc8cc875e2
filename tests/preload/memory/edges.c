/* Return codes of allocation and free at their edges; out-parameters after success and failure.
 * With an argument: allocations at an awkward moment. */
#include <stdlib.h>
#include <string.h>

#include "tests/common/device.h"
#include "tests/common/kernel_words.h"
#include "tests/common/say.h"

#define UNTOUCHED ((CUdeviceptr)0x5a5a5a5a5a5aULL)
#define MIB       ((size_t)1 << 20)

static void say_alloc(const char *what, size_t size)
{
    CUdeviceptr p = UNTOUCHED;
    CUresult code = cuMemAlloc(&p, size);

    say("alloc %s: %d, pointer %s", what, (int)code, p == UNTOUCHED ? "untouched" : "written");
    if (code == CUDA_SUCCESS)
        SAY_CODE("    free", cuMemFree(p));
}

static void allocations(void)
{
    SAY_CODE("alloc to nowhere", cuMemAlloc(NULL, 16));
    SAY_CODE("alloc nothing to nowhere", cuMemAlloc(NULL, 0));
    say_alloc("nothing", 0);
    say_alloc("a byte", 1);
    say_alloc("1 MiB and a byte", ((size_t)1 << 20) + 1);
    say_alloc("1 PiB", (size_t)1 << 50);
    say_alloc("everything", SIZE_MAX);
    say_alloc("a page after that", 4096);
}

static void frees(void)
{
    static char host[64];
    char *heap = malloc(64);
    CUdeviceptr p, other;

    OK(cuMemAlloc(&p, 10000));
    OK(cuMemAlloc(&other, 10000));
    SAY_CODE("free nothing", cuMemFree(0));
    SAY_CODE("free inside", cuMemFree(p + 256));
    SAY_CODE("free the last byte", cuMemFree(p + 9999));
    SAY_CODE("free host memory", cuMemFree((CUdeviceptr)(uintptr_t)host));
    SAY_CODE("free heap memory", cuMemFree((CUdeviceptr)(uintptr_t)heap));
    SAY_CODE("free a small number", cuMemFree(0x1234));
    SAY_CODE("free async what is not stream-ordered", cuMemFreeAsync(p, NULL));
    SAY_CODE("free it", cuMemFree(p));
    SAY_CODE("free it twice", cuMemFree(p));
    /* The driver takes such an address without a look (580.159); nobody may get its memory
     * twice. */
    (void)cuMemFreeAsync(p, NULL);
    SAY_CODE("free inside after that", cuMemFree(p + 256));
    SAY_CODE("free the other", cuMemFree(other));
    SAY_CODE("free async nothing", cuMemFreeAsync(0, NULL));
    free(heap);
}

/* The program's own stream-ordered memory, freed by either call, is none of ours. */
static void own_stream_ordered(void)
{
    CUdeviceptr p;
    CUstream stream;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    SAY_CODE("alloc async", cuMemAllocAsync(&p, 10000, stream));
    SAY_CODE("free async", cuMemFreeAsync(p, stream));
    SAY_CODE("alloc async again", cuMemAllocAsync(&p, 10000, stream));
    SAY_CODE("synchronise", cuStreamSynchronize(stream));
    SAY_CODE("plain free of it", cuMemFree(p));
    SAY_CODE("and twice", cuMemFree(p));
    SAY_CODE("alloc async nothing", cuMemAllocAsync(&p, 0, stream));
    SAY_CODE("destroy", cuStreamDestroy(stream));
}

static void other_kinds(void)
{
    CUdeviceptr p;
    void *host;

    SAY_CODE("managed", cuMemAllocManaged(&p, 10000, CU_MEM_ATTACH_GLOBAL));
    SAY_CODE("    free", cuMemFree(p));
    SAY_CODE("    free twice", cuMemFree(p));
    SAY_CODE("managed nothing", cuMemAllocManaged(&p, 0, CU_MEM_ATTACH_GLOBAL));
    SAY_CODE("managed, bad flags", cuMemAllocManaged(&p, 16, 0));
    SAY_CODE("pinned", cuMemHostAlloc(&host, 10000, 0));
    SAY_CODE("    free as device memory", cuMemFree((CUdeviceptr)(uintptr_t)host));
    SAY_CODE("    free", cuMemFreeHost(host));
    OK(cuMemAlloc(&p, 64));
    SAY_CODE("free device memory as host memory", cuMemFreeHost((void *)(uintptr_t)p));
    SAY_CODE("    free", cuMemFree(p));
}

/* The driver frees without a current context what it would free with another one (580.159). */
static void without_context(void)
{
    CUcontext context;
    CUdeviceptr p, q, base;
    size_t bytes;

    OK(cuMemAlloc(&p, 4096));
    OK(cuMemAllocManaged(&q, 4096, CU_MEM_ATTACH_GLOBAL));
    OK(cuCtxGetCurrent(&context));
    OK(cuCtxSetCurrent(NULL));
    SAY_CODE("range without a context", cuMemGetAddressRange(&base, &bytes, p));
    SAY_CODE("free inside without a context", cuMemFree(p + 512));
    SAY_CODE("free without a context", cuMemFree(p));
    SAY_CODE("    again", cuMemFree(p));
    SAY_CODE("free nothing without a context", cuMemFree(0));
    SAY_CODE("free managed memory without a context", cuMemFree(q));
    OK(cuCtxSetCurrent(context));
    SAY_CODE("    and again with one", cuMemFree(q));
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

/* Rows, while nothing is left of a limit and a kernel waits for what the host does next. In a
 * capture: where the pitch cannot be asked for. */
static void full(bool in_capture)
{
    static const size_t pointer = sizeof(CUdeviceptr);
    static const char image[64] = "any bytes";
    CUdeviceptr p[8], flag;
    CUfunction await;
    CUmodule module;
    CUstream stream, captured;
    CUgraph graph;
    size_t pitch;
    void *host, *args[] = {&flag};

    sim_register_kernel("await", run_await, 1, &pointer);
    OK(cuModuleLoadData(&module, image));
    OK(cuModuleGetFunction(&await, module, "await"));
    OK(cuMemAllocHost(&host, 4096));
    memset(host, 0, 4096);
    flag = (CUdeviceptr)(uintptr_t)host;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&captured, CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; i < 4; i++)
        OK(cuMemAlloc(&p[i], 2 * MIB));
    OK(cuLaunchKernel(await, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
    if (in_capture)
        OK(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
    for (unsigned i = 4; i < 8; i++)
        (void)cuMemAllocPitch(&p[i], &pitch, 300, 5, 4); /* whether there is room is the limit's */
    if (in_capture)
        OK(cuStreamEndCapture(captured, &graph));
    __atomic_store_n((uint32_t *)host, 1, __ATOMIC_RELEASE);
    SAY_CODE("went on", cuStreamSynchronize(stream));
    say("pitch %zu", pitch);
}

static int at_awkward_moment(const char *which)
{
    device_open();
    if (!strcmp(which, "broken"))
        broken();
    else
        full(!strcmp(which, "full-in-capture"));
    return 0;
}

int main(int argc, char **argv)
{
    CUdeviceptr p = UNTOUCHED;

    if (argc > 1)
        return at_awkward_moment(argv[1]);
    SAY_CODE("alloc before cuInit", cuMemAlloc(&p, 16));
    SAY_CODE("free before cuInit", cuMemFree(16));
    SAY_CODE("free nothing before cuInit", cuMemFree(0));
    OK(cuInit(0));
    SAY_CODE("alloc without a context", cuMemAlloc(&p, 16));
    SAY_CODE("free without a context", cuMemFree(16));
    say("pointer %s", p == UNTOUCHED ? "untouched" : "written");
    device_open();
    allocations();
    frees();
    own_stream_ordered();
    other_kinds();
    without_context();
    return 0;
}
