/* full.c: a card without room: everything that needs some fails, and works once there is some. */
#include "sim_test.h"

#define MIB ((size_t)1 << 20)

static struct test test;
static CUdeviceptr taken[64];
static unsigned n_taken;
static CUmemoryPool pool;
static CUgraph graph;

static void take_all(void)
{
    CUdeviceptr p;

    for (size_t bytes = 32 * MIB; bytes >= MIB; bytes /= 2)
        while (n_taken < 64 && cuMemAlloc(&p, bytes) == CUDA_SUCCESS)
            taken[n_taken++] = p;
    while (n_taken < 64 && cuMemAlloc(&p, 64 << 10) == CUDA_SUCCESS)
        taken[n_taken++] = p;
}

static void give_all(void)
{
    while (n_taken)
        OK(cuMemFree(taken[--n_taken]));
}

static CUresult try_alloc(void)
{
    CUdeviceptr p;
    CUresult result = cuMemAlloc(&p, 2 * MIB);

    return result ? result : cuMemFree(p);
}

static CUresult try_pool(void)
{
    CUdeviceptr p;
    CUresult result = cuMemAllocFromPoolAsync(&p, 2 * MIB, pool, NULL);

    return result ? result : cuMemFreeAsync(p, NULL);
}

static CUresult try_array(void)
{
    CUDA_ARRAY_DESCRIPTOR desc = {
        .Width = 1024, .Height = 1024, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUarray array;
    CUresult result = cuArrayCreate(&array, &desc);

    return result ? result : cuArrayDestroy(array);
}

static CUresult try_create(void)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle handle;
    CUresult result = cuMemCreate(&handle, 2 * MIB, &prop, 0);

    return result ? result : cuMemRelease(handle);
}

/* Code lies in pieces of 2 MiB: the first modules may find room in one. */
static CUresult try_modules(void)
{
    CUmodule modules[64];
    CUresult result = CUDA_SUCCESS;
    unsigned n = 0;

    while (n < 64 && (result = cuModuleLoadData(&modules[n], "any")) == CUDA_SUCCESS)
        n++;
    while (n)
        OK(cuModuleUnload(modules[--n]));
    return result;
}

static CUresult try_graphs(void)
{
    CUgraphExec execs[1024];
    CUresult result = CUDA_SUCCESS;
    unsigned n = 0;

    while (n < 1024 && (result = cuGraphInstantiate(&execs[n], graph, 0)) == CUDA_SUCCESS)
        n++;
    while (n)
        OK(cuGraphExecDestroy(execs[--n]));
    return result;
}

int main(void)
{
    static CUresult (*const all[])(void) = {try_alloc,  try_pool,    try_array,
                                            try_create, try_modules, try_graphs};
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    size_t before, after;

    (void)setenv("SIM_MEMORY", "64MiB", 1);
    test_open(&test, 0);
    OK(cuMemPoolCreate(&pool, &props));
    OK(cuGraphCreate(&graph, 0));
    OK(cuMemGetInfo(&before, NULL));
    for (unsigned i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        OK(all[i]());
        OK(cuCtxSynchronize());
        take_all();
        EXPECT(CUDA_ERROR_OUT_OF_MEMORY, all[i]());
        give_all();
        OK(all[i]());
        OK(cuCtxSynchronize());
    }
    OK(cuMemGetInfo(&after, NULL));
    CHECK(before == after && sim_violations() == 0);
    return 0;
}
