/* Loops over a kernel, and in between calls functions of the driver that are not hooked, found
 * by the lookup path that its argument names: each must see what the kernels before it did. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "tests/common/device.h"
#include "tests/common/say.h"

#define WORDS      16u
#define KERNELS    6u
#define ITERATIONS 12u

/* Nothing is linked with what no list knows: it is looked up in any case. */
#define LINKED_cuMemcpyDtoH_v2        cuMemcpyDtoH_v2
#define LINKED_cuMemcpy2DUnaligned_v2 cuMemcpy2DUnaligned_v2
#define LINKED_cuMemcpy3DPeerAsync    cuMemcpy3DPeerAsync
#define LINKED_cuCtxGetCurrent        cuCtxGetCurrent
#define LINKED_cuGetExportTable       cuGetExportTable
#define LINKED_cuAllograftFuture      (typeof(&cuAllograftFuture))dlsym(driver, "cuAllograftFuture")

/* Names as they are exported, and as cuGetProcAddress knows them. */
#define FUNCTIONS(X)                                     \
    X(cuMemcpyDtoH_v2, cuMemcpyDtoH, 3020)               \
    X(cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned, 3020) \
    X(cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync, 4000)    \
    X(cuCtxGetCurrent, cuCtxGetCurrent, 4000)            \
    X(cuGetExportTable, cuGetExportTable, 3000)          \
    X(cuAllograftFuture, cuAllograftFuture, 13000)

static struct {
#define MEMBER(symbol, base, version) __typeof__(&symbol) symbol;
    FUNCTIONS(MEMBER)
} found;

static CUresult (*old_destroy)(CUstream stream);
static CUdeviceptr memory, wrong;
static uint32_t last_value; /* that a kernel was to write to the first word */
static uint32_t copied[WORDS];

static void say_owner(const char *name, void *function)
{
    Dl_info info;
    const char *file = "nobody";

    if (function == NULL)
        file = "nothing";
    else if (dladdr(function, &info) != 0)
        file = strrchr(info.dli_fname, '/') ? strrchr(info.dli_fname, '/') + 1 : info.dli_fname;
    say("%s belongs to %s", name, file);
}

static void *get(const char *base, int version)
{
    void *function = NULL, *again = NULL;

    OK(cuGetProcAddress(base, &function, version, 0, NULL));
    OK(cuGetProcAddress(base, &again, version, 0, NULL));
    say("%s: the same twice: %d", base, function == again);
    return function;
}

static void find_all(const char *lookup)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);

#define FIND(symbol, base, version)                       \
    if (strcmp(lookup, "linked") == 0)                    \
        found.symbol = LINKED_##symbol;                   \
    else if (strcmp(lookup, "dlsym") == 0)                \
        *(void **)&found.symbol = dlsym(driver, #symbol); \
    else                                                  \
        *(void **)&found.symbol = get(#base, version);    \
    say_owner(#symbol, *(void **)&found.symbol);
    FUNCTIONS(FIND)
}

static void by_copy(CUstream stream)
{
    (void)stream;
    SAY_CODE("copy", found.cuMemcpyDtoH_v2(copied, memory, sizeof(copied)));
}

static void by_shaped_copy(CUstream stream)
{
    const CUDA_MEMCPY2D copy = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = memory,
        .dstMemoryType = CU_MEMORYTYPE_HOST,
        .dstHost = copied,
        .WidthInBytes = sizeof(copied),
        .Height = 1,
    };

    (void)stream;
    SAY_CODE("2-D copy", found.cuMemcpy2DUnaligned_v2(&copy));
}

/* Behind the kernels on their stream; if they came later, it would copy what was there before. */
static void by_peer_copy(CUstream stream)
{
    CUDA_MEMCPY3D_PEER copy = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = memory,
        .dstMemoryType = CU_MEMORYTYPE_HOST,
        .dstHost = copied,
        .WidthInBytes = sizeof(copied),
        .Height = 1,
        .Depth = 1,
    };

    SAY_CODE("peer copy", found.cuMemcpy3DPeerAsync(&copy, stream));
    OK(cuStreamSynchronize(stream));
}

static void by_future(CUstream stream)
{
    double sum = 0;

    (void)stream;
    SAY_CODE("future", found.cuAllograftFuture(copied, memory, sizeof(copied), 1, 20, 300, 4000,
                                               50000, .125, .25f, 600000, &sum));
    say("future was given %.3f", sum);
}

static void by_nothing_that_looks(CUstream stream)
{
    CUcontext context = NULL;

    if (found.cuCtxGetCurrent != NULL)
        SAY_CODE("current", found.cuCtxGetCurrent(&context));
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH(copied, memory, sizeof(copied)));
}

/* Kernels that are withheld once that has repeated, and a look at what the last one wrote. */
static void iterations(const char *what, CUstream stream, void (*look)(CUstream stream))
{
    for (uint32_t iteration = 0; iteration < ITERATIONS; iteration++) {
        for (uint32_t i = 0; i < KERNELS; i++) {
            last_value = iteration * 1000 + i * 100;
            launch_fill(stream, memory, WORDS, last_value);
            /* In the middle, every other time: what is withheld then might become longer. */
            if (i == KERNELS / (1 + iteration % 2) - 1)
                look(stream);
        }
        say("%s %u: %u %u", what, iteration, copied[0], copied[WORDS - 1]);
    }
}

/* --- a stream destroyed by the interface of before CUDA 4.0, and another one with its handle ---
 */

/* A kernel on the legacy stream runs after those on blocking ones. */
static void by_legacy_kernel(CUstream stream)
{
    (void)stream;
    launch_check(NULL, memory, WORDS, last_value, wrong);
}

static int with_old_calls(void)
{
    CUstream streams[64];
    unsigned n = 0;

    (void)device_open();
    OK(cuMemAlloc(&memory, sizeof(copied)));
    OK(cuStreamCreate(&streams[0], CU_STREAM_NON_BLOCKING));
    iterations("before", streams[0], by_nothing_that_looks);
    *(void **)&old_destroy = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuStreamDestroy");
    OK(cuStreamSynchronize(streams[0]));
    OK(old_destroy(streams[0]));
    do {
        OK(cuStreamCreate(&streams[++n], CU_STREAM_DEFAULT));
    } while (streams[n] != streams[0] && n < 63);
    OK(cuMemAlloc(&wrong, sizeof(uint32_t)));
    OK(cuMemsetD32(wrong, 0, 1));
    iterations("after", streams[n], by_legacy_kernel);
    OK(cuMemcpyDtoH(copied, wrong, sizeof(uint32_t)));
    say("wrong words: %u", copied[0]);
    return 0;
}

/* --- a library that comes late --- */

static CUresult (*read_past)(void *to, CUdeviceptr from, size_t bytes);

static void by_library(CUstream stream)
{
    (void)stream;
    SAY_CODE("library", read_past(copied, memory, sizeof(copied)));
}

/* As with every library that has code for the device, its code is loaded. */
static void open_library(const char *file, int flags)
{
    static const char image[64] = "any bytes";
    void *library = dlopen(file, RTLD_NOW | flags);
    CUmodule module;

    if (library == NULL) {
        say("%s", dlerror());
        _exit(97);
    }
    *(void **)&read_past = dlsym(library, "read_past");
    OK(cuModuleLoadData(&module, image));
}

/* argv: what opens it ("plain" or "deep"), when ("early" or "late"), the library. */
static int with_library(char **argv)
{
    int flags = strcmp(argv[1], "deep") == 0 ? RTLD_DEEPBIND : 0;
    bool late = strcmp(argv[2], "late") == 0;
    CUstream stream;

    if (!late)
        (void)dlopen(argv[3], RTLD_NOW | flags);
    (void)device_open();
    OK(cuMemAlloc(&memory, sizeof(copied)));
    OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    if (late)
        iterations("before", stream, by_nothing_that_looks);
    open_library(argv[3], flags);
    iterations("library", stream, by_library);
    return 0;
}

int main(int argc, char **argv)
{
    CUstream stream;

    if (argc == 4)
        return with_library(argv);
    if (argc > 1 && strcmp(argv[1], "old") == 0)
        return with_old_calls();
    (void)device_open();
    find_all(argc > 1 ? argv[1] : "linked");
    OK(cuMemAlloc(&memory, sizeof(copied)));
    OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    iterations("copy", stream, by_copy);
    iterations("2-D copy", stream, by_shaped_copy);
    iterations("peer copy", stream, by_peer_copy);
    iterations("future", stream, by_future);
    iterations("still", stream, by_nothing_that_looks);
    OK(cuMemFree(memory));
    return 0;
}
