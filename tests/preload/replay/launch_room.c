/* Work that takes memory of the card itself (its code, or the local memory of its threads) after
 * the program has freed nearly all of it: launch_room kernel|extended|cooperative     the first
 * launch of a kernel that has such launch_room thread-kernel|thread-extended|thread-cooperative
 *                       likewise, by the functions for per-thread default streams
 *     launch_room graph|upload         a graph of one, not launched before
 *     launch_room loop                 one in a loop of others, which needs it late
 *     launch_room managed|prefetch|prefetch-to|batch|advice
 *                       managed memory that is to lie there: first asked for, prefetched, advised
 *     launch_room tries                calls of which each finds no memory at first (SIM_FAIL) */
#include <dlfcn.h>
#include <string.h>

#include "tests/common/device.h"
#include "tests/common/say.h"

#define MIB   ((size_t)1 << 20)
#define BLOCK (64 * MIB)
#define N     14    /* of 1 GiB */
#define LOCAL 26624 /* 832 MiB */

static CUdeviceptr word;
static uint32_t n_words = 1, value = 7;
static void *params[] = {&word, &n_words, &value};

/* The program has all of the card in turns, and then next to nothing. */
static void churn(void)
{
    CUdeviceptr p[N];

    OK(cuMemAlloc(&word, sizeof(value)));
    OK(cuMemsetD32(word, 7, 1));
    for (unsigned turn = 0; turn < 4; turn++) {
        for (unsigned i = 0; i < N; i++)
            OK(cuMemAlloc(&p[i], BLOCK));
        for (unsigned i = 0; i < N; i++)
            OK(cuMemFree(p[i]));
    }
}

static void say_free(void)
{
    size_t free_bytes, total_bytes;

    OK(cuMemGetInfo(&free_bytes, &total_bytes));
    say("free for more: %d", free_bytes >= N * BLOCK);
}

static CUlaunchConfig config_of(CUstream stream)
{
    return (CUlaunchConfig){.gridDimX = 1,
                            .gridDimY = 1,
                            .gridDimZ = 1,
                            .blockDimX = 1,
                            .blockDimY = 1,
                            .blockDimZ = 1,
                            .hStream = stream};
}

static CUresult by_kernel(CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned,
                                             unsigned, unsigned, unsigned, CUstream, void **,
                                             void **))
{
    return launch(kernel_fill, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL);
}

static CUresult by_extended(CUresult (*launch)(const CUlaunchConfig *, CUfunction, void **,
                                               void **))
{
    CUlaunchConfig config = config_of(NULL);

    return launch(&config, kernel_fill, params, NULL);
}

static CUresult by_cooperative(CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned,
                                                  unsigned, unsigned, unsigned, unsigned, CUstream,
                                                  void **))
{
    return launch(kernel_fill, 1, 1, 1, 1, 1, 1, 0, NULL, params);
}

static void *function(const char *name)
{
    void *found = dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), name);

    if (!found)
        say("no %s", name);
    return found;
}

static CUgraphExec graph_of_one(void)
{
    CUDA_KERNEL_NODE_PARAMS node = {.func = kernel_fill,
                                    .gridDimX = 1,
                                    .gridDimY = 1,
                                    .gridDimZ = 1,
                                    .blockDimX = 1,
                                    .blockDimY = 1,
                                    .blockDimZ = 1,
                                    .kernelParams = params};
    CUgraphExec exec;
    CUgraphNode added;
    CUgraph graph;

    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddKernelNode(&added, graph, NULL, 0, &node));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
}

/* As often as is worth a graph of replay, with waits in between; then one needs memory. */
static void loop(void)
{
    CUdeviceptr out;

    OK(cuMemAlloc(&out, sizeof(value)));
    OK(cuMemsetD32(out, 0, 1));
    for (unsigned turn = 0; turn < 40; turn++) {
        for (unsigned i = 0; i < 20; i++)
            launch_check(NULL, word, 1, 7, out);
        if (turn == 35)
            sim_kernel_local("fill", LOCAL);
        launch_fill(NULL, word, 1, 7);
        SAY_CODE("waited", cuCtxSynchronize());
    }
    say("wrong: %u", count_wrong(out, 1, 0));
}

/* What loads code, or changes a graph. */
static void tries(void)
{
    CUgraphExecUpdateResultInfo info;
    CUgraphExec exec;
    CUlibrary library;
    CUfunction loaded;
    CUmodule module;
    CUkernel kernel;
    CUgraph graph;
    int number;

    OK(cuLibraryLoadData(&library, "any bytes", NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernel(&kernel, library, "fill"));
    SAY_CODE("module", cuLibraryGetModule(&module, library));
    SAY_CODE("function", cuModuleGetFunction(&loaded, module, "check"));
    SAY_CODE("of a kernel", cuKernelGetFunction(&loaded, kernel));
    SAY_CODE("load", cuFuncLoad(loaded));
    SAY_CODE("attribute", cuFuncGetAttribute(&number, CU_FUNC_ATTRIBUTE_NUM_REGS, loaded));
    SAY_CODE("of a kernel", cuKernelGetAttribute(&number, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel, 0));
    SAY_CODE("blocks", cuOccupancyMaxActiveBlocksPerMultiprocessor(&number, loaded, 32, 0));
    SAY_CODE("blocks by flags",
             cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&number, loaded, 32, 0, 0));
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    SAY_CODE("update", cuGraphExecUpdate(exec, graph, &info));
}

#define MANAGED (12 * BLOCK)
#define PAGE    ((size_t)64 << 10) /* of managed memory */

/* What of it lies on the device once work has used it? Where it had been made before, only the call
 * that `how` names can have made room. */
static void manage(CUdeviceptr p, const char *how)
{
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
    CUresult (*prefetch)(CUdeviceptr, size_t, CUdevice, CUstream);
    size_t bytes = MANAGED, first = 0;

    *(void **)&prefetch = function("cuMemPrefetchAsync");
    if (!strcmp(how, "managed"))
        OK(cuMemAllocManaged(&p, MANAGED, CU_MEM_ATTACH_GLOBAL));
    else if (!strcmp(how, "prefetch"))
        OK(prefetch(p, MANAGED, 0, NULL));
    else if (!strcmp(how, "prefetch-to"))
        OK(cuMemPrefetchAsync_v2(p, MANAGED, here, 0, NULL));
    else if (!strcmp(how, "batch"))
        OK(cuMemPrefetchBatchAsync(&p, &bytes, 1, &here, &first, 1, 0, NULL));
    else
        OK(cuMemAdvise(p, MANAGED, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, here));
    /* A byte of each page: the host's own memory need not be filled for it. */
    OK(cuMemsetD2D8(p, PAGE, 3, 1, MANAGED / PAGE));
    OK(cuCtxSynchronize());
    say("on the device: %zu MiB", sim_bytes_resident(p, MANAGED, 0) / MIB);
}

static void launch(const char *kind)
{
    bool thread = !strncmp(kind, "thread-", 7);
    const char *how = thread ? kind + 7 : kind;

    if (!strcmp(how, "kernel"))
        SAY_CODE("launch", by_kernel(thread ? function("cuLaunchKernel_ptsz") : cuLaunchKernel));
    else if (!strcmp(how, "extended"))
        SAY_CODE("launch",
                 by_extended(thread ? function("cuLaunchKernelEx_ptsz") : cuLaunchKernelEx));
    else
        SAY_CODE("launch", by_cooperative(thread ? function("cuLaunchCooperativeKernel_ptsz")
                                                 : cuLaunchCooperativeKernel));
}

int main(int argc, char **argv)
{
    const char *kind = argc > 1 ? argv[1] : "kernel";
    const char *const managing[] = {"managed", "prefetch", "prefetch-to", "batch", "advice"};
    CUgraphExec exec = NULL;
    CUdeviceptr managed;

    device_open();
    if (!strcmp(kind, "tries")) {
        tries();
        return 0;
    }
    OK(cuMemAllocManaged(&managed, MANAGED, CU_MEM_ATTACH_GLOBAL));
    churn();
    for (unsigned i = 0; i < sizeof(managing) / sizeof(managing[0]); i++) {
        if (!strcmp(kind, managing[i])) {
            manage(managed, kind);
            return 0;
        }
    }
    if (!strcmp(kind, "graph") || !strcmp(kind, "upload"))
        exec = graph_of_one();
    say_free();
    if (strcmp(kind, "loop"))
        sim_kernel_local("fill", LOCAL);
    if (!strcmp(kind, "graph"))
        SAY_CODE("launch", cuGraphLaunch(exec, NULL));
    else if (!strcmp(kind, "upload"))
        SAY_CODE("upload", cuGraphUpload(exec, NULL));
    else if (!strcmp(kind, "loop"))
        loop();
    else
        launch(kind);
    SAY_CODE("waited", cuCtxSynchronize());
    say_free();
    say("wrong: %u", count_wrong(word, 1, 7));
    return 0;
}
