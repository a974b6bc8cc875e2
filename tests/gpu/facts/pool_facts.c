/*
 * What this driver does about pools where its documentation is silent, one line each. Its answers
 * are what policy/app/app_pools.c and app_async.c assume. usage: pool_facts [dma-buf]
 */
#include "tests/gpu/check.h"

#include <cuda.h>
#include <sys/wait.h>
#include <unistd.h>

static CUdevice device;
static CUcontext context;

static CUmemoryPool new_pool(CUmemAllocationType type)
{
    CUmemPoolProps props = {.allocType = type};
    CUmemoryPool pool = NULL;

    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    props.location.id = device;
    OK(cuMemPoolCreate(&pool, &props));
    return pool;
}

/* Does the capture live through the calls that we make beside it? */
static void in_capture(CUstreamCaptureMode mode)
{
    CUmemoryPool pool = NULL;
    CUstream stream, other;
    CUcontext found;
    CUgraph graph = NULL;
    CUstreamCaptureStatus status;
    int codes[5];

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture(stream, mode));
    codes[0] = cuDeviceGetDefaultMemPool(&pool, device);
    codes[1] = cuDeviceGetMemPool(&pool, device);
    codes[2] = cuStreamGetCtx(other, &found);
    codes[3] = cuStreamIsCapturing(other, &status);
    codes[4] = cuStreamEndCapture(stream, &graph);
    printf("capture %d: default pool %d, current pool %d, context of a stream %d, is capturing %d, "
           "end %d\n",
           (int)mode, codes[0], codes[1], codes[2], codes[3], codes[4]);
}

static void reset(void)
{
    CUmemoryPool before, after, mine = new_pool(CU_MEM_ALLOCATION_TYPE_PINNED);
    cuuint64_t threshold = 12345, value = 77;
    int code;

    OK(cuDeviceGetDefaultMemPool(&before, device));
    OK(cuMemPoolSetAttribute(before, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    OK(cuMemPoolSetAttribute(mine, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    OK(cuDevicePrimaryCtxReset(device));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    OK(cuDeviceGetDefaultMemPool(&after, device));
    code = cuMemPoolGetAttribute(after, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value);
    printf("after a reset: same default pool %d, code %d, its threshold %llu\n", before == after,
           code, (unsigned long long)value);
    fflush(stdout);
    value = 77;
    code = cuMemPoolGetAttribute(mine, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value);
    printf("after a reset: a created pool: code %d, threshold %llu\n", code,
           (unsigned long long)value);
}

static void managed(void)
{
    CUmemAccessDesc access = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemoryPool pool = new_pool(CU_MEM_ALLOCATION_TYPE_MANAGED);
    int count = 0;

    OK(cuDeviceGetCount(&count));
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = count - 1;
    printf("a managed pool opened to device %d: code %d\n", count - 1,
           cuMemPoolSetAccess(pool, &access, 1));
    printf("a managed pool made current: code %d\n", cuDeviceSetMemPool(device, pool));
    OK(cuMemPoolDestroy(pool));
}

/* --- dma-bufs: each kind of memory in a process of its own, since the driver may crash --- */

static CUdeviceptr take_native(void)
{
    CUdeviceptr p;

    OK(cuMemAlloc(&p, 2 << 20));
    return p;
}

static CUdeviceptr take_managed(void)
{
    CUdeviceptr p;

    OK(cuMemAllocManaged(&p, 2 << 20, CU_MEM_ATTACH_GLOBAL));
    return p;
}

static CUdeviceptr take_async(void)
{
    CUdeviceptr p;

    OK(cuMemAllocAsync(&p, 2 << 20, NULL));
    OK(cuStreamSynchronize(NULL));
    return p;
}

static CUdeviceptr take_managed_pool(void)
{
    CUdeviceptr p;

    OK(cuMemAllocFromPoolAsync(&p, 2 << 20, new_pool(CU_MEM_ALLOCATION_TYPE_MANAGED), NULL));
    OK(cuStreamSynchronize(NULL));
    return p;
}

static void begin(void)
{
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
}

static void ask_dma_buf(const char *what, CUdeviceptr (*take)(void))
{
    int handle = -1, status = 0;
    pid_t child = fork();

    if (!child) {
        begin();
        _exit(cuMemGetHandleForAddressRange(&handle, take(), 2 << 20,
                                            CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0) &
              0xff);
    }
    (void)waitpid(child, &status, 0);
    if (WIFSIGNALED(status))
        printf("dma-buf of %s: the driver dies of signal %d\n", what, WTERMSIG(status));
    else
        printf("dma-buf of %s: code %d (modulo 256)\n", what, WEXITSTATUS(status));
    fflush(stdout);
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "dma-buf")) {
        ask_dma_buf("cuMemAlloc memory", take_native);
        ask_dma_buf("managed memory", take_managed);
        ask_dma_buf("memory of a pool", take_async);
        ask_dma_buf("memory of a managed pool", take_managed_pool);
        return 0;
    }
    begin();
    for (int mode = 0; mode < 3; mode++)
        in_capture((CUstreamCaptureMode)mode);
    managed();
    reset();
    return 0;
}
