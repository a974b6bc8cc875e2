/* waits.c: which calls wait for unfinished work (R400 to R499). */
#include "tests/gpu/sim_truth/truth.h"

void group_waits_memory(void)
{
    CUdeviceptr p, q;
    CUmemoryPool pool;
    void *host, *more;
    static char plain[4096];

    open_device();
    WAITS("R400", "cuMemAlloc", nonblocking, D(cuMemAlloc)(&p, 1 << 20));
    WAITS("R401", "cuMemFree", nonblocking, D(cuMemFree)(p));
    p = pool_memory(1 << 20);
    WAITS("R402", "cuMemFree of pool memory", nonblocking, D(cuMemFree)(p));
    p = managed_memory(1 << 20);
    WAITS("R403", "cuMemFree of managed memory", nonblocking, D(cuMemFree)(p));
    WAITS("R404", "cuMemAllocManaged", nonblocking,
          D(cuMemAllocManaged)(&p, 1 << 20, CU_MEM_ATTACH_GLOBAL));
    WAITS("R405", "cuMemAllocAsync on another stream", nonblocking,
          D(cuMemAllocAsync)(&q, 1 << 20, other_nonblocking));
    WAITS("R406", "cuMemFreeAsync on another stream", nonblocking,
          D(cuMemFreeAsync)(q, other_nonblocking));
    WAITS("R407", "cuMemAllocHost", nonblocking, D(cuMemAllocHost)(&host, 4096));
    WAITS("R408", "cuMemFreeHost", nonblocking, D(cuMemFreeHost)(host));
    WAITS("R409", "cuMemHostRegister", nonblocking, D(cuMemHostRegister)(plain, 4096, 0));
    WAITS("R410", "cuMemHostUnregister", nonblocking, D(cuMemHostUnregister)(plain));
    OK(D(cuDeviceGetDefaultMemPool)(&pool, 0));
    WAITS("R411", "cuMemPoolTrimTo", nonblocking, D(cuMemPoolTrimTo)(pool, 0));
    size_t free_bytes;
    WAITS("R412", "cuMemGetInfo", nonblocking, D(cuMemGetInfo)(&free_bytes, NULL));
    OK(D(cuMemAllocHost)(&more, 4096));
    WAITS("R413", "cuMemFree(0)", nonblocking, D(cuMemFree)(0));
}

void group_waits_copies(void)
{
    static char plain[65536];
    CUdeviceptr p, q, pinned = device_of(flag + 128);
    void *host = (void *)(flag + 128);

    open_device();
    pinned = device_of(flag + 128);
    host = (void *)(flag + 128);
    p = device_memory(65536);
    q = device_memory(65536);
    OK(D(cuMemcpyHtoD)(p, plain, 65536));
    synchronize();
    WAITS("R420", "cuMemcpyHtoD, pageable, behind the legacy stream", NULL,
          D(cuMemcpyHtoD)(p, plain, 4096));
    WAITS("R421", "cuMemcpyHtoD, pinned, behind the legacy stream", NULL,
          D(cuMemcpyHtoD)(p, host, 1024));
    WAITS("R422", "cuMemcpyDtoH, pageable, behind the legacy stream", NULL,
          D(cuMemcpyDtoH)(plain, p, 1024));
    WAITS("R423", "cuMemcpyDtoH, pinned, behind the legacy stream", NULL,
          D(cuMemcpyDtoH)(host, p, 1024));
    WAITS("R424", "cuMemcpyDtoD, behind the legacy stream", NULL, D(cuMemcpyDtoD)(p, q, 4096));
    WAITS("R425", "cuMemsetD8, behind the legacy stream", NULL, D(cuMemsetD8)(p, 0, 4096));
    WAITS("R426", "cuMemsetD8 of pinned memory, behind the legacy stream", NULL,
          D(cuMemsetD8)(pinned, 0, 64));
    WAITS("R427", "cuMemcpyHtoD, pageable, kernel on a non-blocking stream", nonblocking,
          D(cuMemcpyHtoD)(p, plain, 4096));
    WAITS("R428", "cuMemcpyDtoH, kernel on a blocking stream", blocking,
          D(cuMemcpyDtoH)(plain, p, 1024));
    WAITS("R429", "cuMemcpyHtoDAsync, pageable, 4 KiB, same stream", nonblocking,
          D(cuMemcpyHtoDAsync)(p, plain, 4096, nonblocking));
    WAITS("R430", "cuMemcpyHtoDAsync, pinned, same stream", nonblocking,
          D(cuMemcpyHtoDAsync)(p, host, 1024, nonblocking));
    WAITS("R431", "cuMemcpyDtoHAsync, pageable, same stream", nonblocking,
          D(cuMemcpyDtoHAsync)(plain, p, 1024, nonblocking));
    WAITS("R432", "cuMemcpyDtoHAsync, pinned, same stream", nonblocking,
          D(cuMemcpyDtoHAsync)(host, p, 1024, nonblocking));
    WAITS("R433", "cuMemcpyDtoDAsync, same stream", nonblocking,
          D(cuMemcpyDtoDAsync)(p, q, 4096, nonblocking));
    WAITS("R434", "cuMemsetD8Async, same stream", nonblocking,
          D(cuMemsetD8Async)(p, 0, 4096, nonblocking));
}

void group_waits_streams(void)
{
    CUstream fresh;
    CUevent event, none;

    open_device();
    OK(D(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
    WAITS("R440", "cuStreamSynchronize of the legacy stream, kernel on a blocking stream", blocking,
          D(cuStreamSynchronize)(NULL));
    WAITS("R441", "cuStreamSynchronize of the legacy stream, kernel on a non-blocking stream",
          nonblocking, D(cuStreamSynchronize)(NULL));
    WAITS("R442", "cuStreamSynchronize of another stream", nonblocking,
          D(cuStreamSynchronize)(other_nonblocking));
    WAITS("R443", "cuStreamQuery of the legacy stream, kernel on a blocking stream", blocking,
          D(cuStreamQuery)(NULL));
    WAITS("R444", "cuStreamQuery of the stream", nonblocking, D(cuStreamQuery)(nonblocking));
    WAITS("R445", "cuStreamQuery of another stream", nonblocking,
          D(cuStreamQuery)(other_nonblocking));
    WAITS("R446", "cuStreamCreate", nonblocking, D(cuStreamCreate)(&fresh, CU_STREAM_NON_BLOCKING));
    WAITS("R447", "cuStreamDestroy of the stream", fresh, D(cuStreamDestroy)(fresh));
    arm(nonblocking);
    OK(D(cuEventRecord)(event, nonblocking));
    row("R448", "cuEventQuery of work under way", "code %d", D(cuEventQuery)(event));
    CUresult code = D(cuEventDestroy)(event);
    row("R449", "cuEventDestroy of work under way", "%s, code %d",
        *flag ? "waits" : "does not wait", code);
    synchronize();
    OK(D(cuEventCreate)(&none, CU_EVENT_DISABLE_TIMING));
    row("R450", "cuEventQuery of an event never recorded", "code %d", D(cuEventQuery)(none));
    row("R451", "cuEventSynchronize of an event never recorded", "code %d",
        D(cuEventSynchronize)(none));
    OK(D(cuStreamCreate)(&fresh, CU_STREAM_NON_BLOCKING));
    arm(fresh);
    OK(D(cuStreamDestroy)(fresh));
    code = D(cuCtxSynchronize)();
    row("R452", "cuCtxSynchronize, kernel on a destroyed stream", "%s, code %d",
        *flag ? "waits" : "does not wait", code);
}

void group_waits_others(void)
{
    CUDA_ARRAY_DESCRIPTOR desc = {64, 64, CU_AD_FORMAT_UNSIGNED_INT32, 1};
    CUarray array;
    CUmodule second;
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode node;

    open_device();
    WAITS("R460", "cuArrayCreate", nonblocking, D(cuArrayCreate)(&array, &desc));
    WAITS("R461", "cuArrayDestroy", nonblocking, D(cuArrayDestroy)(array));
    OK(D(cuModuleLoadData)(&second, ptx));
    WAITS("R462", "cuModuleUnload", nonblocking, D(cuModuleUnload)(second));
    WAITS("R463", "cuCtxSetLimit of the device heap", nonblocking,
          D(cuCtxSetLimit)(CU_LIMIT_MALLOC_HEAP_SIZE, (size_t)16 << 20));
    OK(D(cuGraphCreate)(&graph, 0));
    OK(D(cuGraphAddEmptyNode)(&node, graph, NULL, 0));
    WAITS("R464", "cuGraphInstantiate", nonblocking, D(cuGraphInstantiate)(&exec, graph, 0));
    OK(D(cuGraphLaunch)(exec, other_nonblocking));
    synchronize();
    WAITS("R465", "cuGraphLaunch on another stream", nonblocking,
          D(cuGraphLaunch)(exec, other_nonblocking));
    WAITS("R466", "cuGraphExecDestroy", nonblocking, D(cuGraphExecDestroy)(exec));
    CUdeviceptr m = managed_memory(1 << 20);
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    WAITS("R467", "cuMemAdvise", nonblocking,
          D(cuMemAdvise)(m, 1 << 20, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, here));
    WAITS("R468", "cuMemPrefetchAsync on another stream", nonblocking,
          D(cuMemPrefetchAsync)(m, 1 << 20, here, 0, other_nonblocking));
}

/* The free of one context's memory while another context of the device works. */
void group_waits_contexts(void)
{
    CUcontext second;
    CUdeviceptr p, of_second;

    open_device();
    p = device_memory(4096);
    OK(D(cuCtxCreate)(&second, NULL, 0, 0));
    of_second = device_memory(4096);
    OK(D(cuCtxSetCurrent)(context));
    WAITS("R470", "cuMemFree of another context's memory", nonblocking, D(cuMemFree)(of_second));
    arm(nonblocking);
    OK(D(cuCtxSetCurrent)(second));
    CUresult code = D(cuMemFree)(p);
    row("R471", "cuMemFree with another context current, kernel in the owner's", "%s, code %d",
        *flag ? "waits" : "does not wait", code);
    OK(D(cuCtxSetCurrent)(context));
    synchronize();
}
