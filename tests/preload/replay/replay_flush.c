/* Calls of the driver while work is outstanding: natively all work goes on by itself, so with
 * replay each of these calls must let go of what is withheld. The host looks at pinned memory. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "tests/common/device.h"
#include "tests/common/say.h"
#include "tests/preload/replay/replay.h"

/* Much shorter than what the test lets work be withheld. What is let go comes at once, but the
 * machine may be busy; what is not is waited for in vain. */
#define SEEN_MS   10000
#define UNSEEN_MS 200

/* One set for each call. */
static struct {
    CUstream stream, other; /* the work is on `stream` */
    CUevent event;
    CUdeviceptr p, async, managed;
    void *pinned, *pageable;
    CUgraphExec exec, step;
    CUmodule module;
    CUarray array;
    CUcontext context;
} its;

static CUresult do_nothing(void)
{
    return CUDA_SUCCESS;
}

/* Of writes by other devices: by a thread that passes them on, perhaps, beside those that work. */
static CUresult flush_writes(void)
{
    return cuFlushGPUDirectRDMAWrites(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                                      CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER);
}

static CUresult synchronize_stream(void)
{
    return cuStreamSynchronize(its.stream);
}

static CUresult query_stream(void)
{
    (void)cuStreamQuery(its.stream);
    return CUDA_SUCCESS;
}

static CUresult query_legacy(void)
{
    (void)cuStreamQuery(NULL);
    return CUDA_SUCCESS;
}

static CUresult record(void)
{
    return cuEventRecord(its.event, its.stream);
}

static CUresult record_with_flags(void)
{
    return cuEventRecordWithFlags(its.event, its.stream, 0);
}

static CUresult record_context(void)
{
    return cuCtxRecordEvent(its.context, its.event);
}

static CUresult wait_event(void)
{
    return cuStreamWaitEvent(its.stream, its.event, 0);
}

static CUresult wait_context(void)
{
    return cuCtxWaitEvent(its.context, its.event);
}

static CUresult record_elsewhere_and_wait(void)
{
    CUresult result = cuEventRecord(its.event, its.stream);

    return result ? result : cuEventSynchronize(its.event);
}

static CUresult free_memory(void)
{
    return cuMemFree(its.p);
}

static CUresult free_async(void)
{
    return cuMemFreeAsync(its.async, its.stream);
}

static CUresult free_managed(void)
{
    return cuMemFree(its.managed);
}

static CUresult free_pinned(void)
{
    return cuMemFreeHost(its.pinned);
}

static CUresult register_and_unregister(void)
{
    CUresult result = cuMemHostRegister(its.pageable, 8192, 0);

    return result ? result : cuMemHostUnregister(its.pageable);
}

static CUresult destroy_array(void)
{
    return cuArrayDestroy(its.array);
}

static CUresult unload(void)
{
    return cuModuleUnload(its.module);
}

static CUresult set_attribute(void)
{
    return cuFuncSetAttribute(kernel_other, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024);
}

static CUresult set_cache(void)
{
    return cuFuncSetCacheConfig(kernel_other, CU_FUNC_CACHE_PREFER_L1);
}

static CUresult set_limit(void)
{
    return cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 1 << 20);
}

static CUresult capture_itself(void)
{
    CUgraph graph = NULL;
    CUresult result = cuStreamBeginCapture(its.stream, CU_STREAM_CAPTURE_MODE_RELAXED);

    return result ? result : cuStreamEndCapture(its.stream, &graph);
}

static CUresult capture_other(void)
{
    CUgraph graph = NULL;
    CUresult result = cuStreamBeginCapture(its.other, CU_STREAM_CAPTURE_MODE_GLOBAL);

    return result ? result : cuStreamEndCapture(its.other, &graph);
}

static CUresult launch_graph(void)
{
    return cuGraphLaunch(its.step, its.stream);
}

static CUresult launch_graph_elsewhere(void)
{
    return cuGraphLaunch(its.exec, its.other);
}

static CUresult upload_graph(void)
{
    return cuGraphUpload(its.exec, its.stream);
}

static CUresult write_value(void)
{
    return cuStreamWriteValue32(its.stream, its.p, 1, 0);
}

static CUresult batch_values(void)
{
    CUstreamBatchMemOpParams op = {0};

    op.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    op.writeValue.address = its.p;
    op.writeValue.value = 1;
    return cuStreamBatchMemOp(its.stream, 1, &op, 0);
}

static void CUDA_CB called_back(CUstream stream, CUresult status, void *data)
{
    (void)stream;
    (void)status;
    (void)data;
}

static CUresult add_callback(void)
{
    return cuStreamAddCallback(its.stream, called_back, NULL, 0);
}

static CUresult prefetch(void)
{
    return cuMemPrefetchAsync(its.managed, 4096,
                              (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}, 0,
                              its.stream);
}

static CUresult attach(void)
{
    return cuStreamAttachMemAsync(its.stream, its.managed, 0, CU_MEM_ATTACH_SINGLE);
}

static CUresult set_stream_attribute(void)
{
    CUstreamAttrValue value = {.syncPolicy = CU_SYNC_POLICY_SPIN};

    return cuStreamSetAttribute(its.stream, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value);
}

static CUresult destroy_stream(void)
{
    CUresult result = cuStreamDestroy(its.stream);

    its.stream = NULL;
    return result;
}

static CUresult read_pageable(void)
{
    return cuMemcpyDtoHAsync(its.pageable, its.p, 4096, its.stream);
}

static CUresult read_at_once(void)
{
    return cuMemcpyDtoH(its.pageable, its.p, 4096);
}

static CUresult write_at_once(void)
{
    return cuMemcpyHtoD(its.p, its.pageable, 4096);
}

static CUresult set_at_once(void)
{
    return cuMemsetD8(its.p, 1, 4096);
}

static CUresult launch_on_legacy(void)
{
    return step_to(its.p, kernel_other, NULL, 1, 1);
}

static CUresult copy_peer(void)
{
    return cuMemcpyPeerAsync(its.p, its.context, its.p + 4096, its.context, 64, its.stream);
}

static CUresult trim_pool(void)
{
    CUmemoryPool pool;
    CUresult result = cuDeviceGetDefaultMemPool(&pool, 0);

    return result ? result : cuMemPoolTrimTo(pool, 0);
}

static CUresult synchronize_legacy(void)
{
    return cuStreamSynchronize(NULL);
}

static CUresult unload_library(void)
{
    static const char image[64] = "any bytes";
    CUlibrary library;
    CUresult result = cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0);

    return result ? result : cuLibraryUnload(library);
}

/* blocking: natively the call waits for blocking streams only, or is ordered with them only. */
static const struct {
    const char *name;
    CUresult (*call)(void);
    bool blocking;
} calls[] = {
    {"nothing", do_nothing, false},
    {"nothing but writes of others", flush_writes, false},
    {"cuStreamSynchronize", synchronize_stream, false},
    {"cuStreamQuery", query_stream, false},
    {"cuCtxSynchronize", cuCtxSynchronize, false},
    {"cuEventRecord", record, false},
    {"cuEventRecordWithFlags", record_with_flags, false},
    {"cuEventSynchronize", record_elsewhere_and_wait, false},
    {"cuCtxRecordEvent", record_context, false},
    {"cuCtxWaitEvent", wait_context, false},
    {"cuStreamWaitEvent", wait_event, false},
    {"cuMemFree", free_memory, false},
    {"cuMemFreeAsync", free_async, false},
    {"cuMemFree of managed", free_managed, false},
    {"cuMemFreeHost", free_pinned, false},
    {"cuMemHostUnregister", register_and_unregister, false},
    {"cuArrayDestroy", destroy_array, false},
    {"cuModuleUnload", unload, false},
    {"cuLibraryUnload", unload_library, false},
    {"cuFuncSetAttribute", set_attribute, false},
    {"cuFuncSetCacheConfig", set_cache, false},
    {"cuCtxSetLimit", set_limit, false},
    {"a capture of the stream", capture_itself, false},
    {"a capture of another", capture_other, false},
    {"cuGraphLaunch", launch_graph, false},
    {"cuGraphLaunch elsewhere", launch_graph_elsewhere, false},
    {"cuGraphUpload", upload_graph, false},
    {"cuStreamWriteValue32", write_value, false},
    {"cuStreamBatchMemOp", batch_values, false},
    {"cuStreamAddCallback", add_callback, false},
    {"cuMemPrefetchAsync", prefetch, false},
    {"cuStreamAttachMemAsync", attach, false},
    {"cuStreamSetAttribute", set_stream_attribute, false},
    {"cuStreamDestroy", destroy_stream, false},
    {"cuMemcpyDtoHAsync, pageable", read_pageable, false},
    {"cuMemcpyPeerAsync", copy_peer, false},
    {"cuMemPoolTrimTo", trim_pool, false},
    {"cuMemcpyDtoH", read_at_once, true},
    {"cuMemcpyHtoD", write_at_once, true},
    {"cuMemsetD8", set_at_once, true},
    {"cuLaunchKernel on the legacy stream", launch_on_legacy, true},
    {"cuStreamQuery of the legacy stream", query_legacy, true},
    {"cuStreamSynchronize of the legacy stream", synchronize_legacy, true},
};

static CUgraphExec make_graph(CUdeviceptr p)
{
    CUgraph graph;
    CUgraphExec exec;

    OK(cuStreamBeginCapture(its.other, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(step_to(p, kernel_step, its.other, 7, 7));
    OK(cuStreamEndCapture(its.other, &graph));
    OK(cuGraphInstantiate(&exec, graph, 0));
    return exec;
}

static void make_its(bool blocking)
{
    static const char image[64] = "any bytes";
    CUDA_ARRAY_DESCRIPTOR array = {64, 4, CU_AD_FORMAT_UNSIGNED_INT8, 1};

    its.stream = new_stream(blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING);
    its.other = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuCtxGetCurrent(&its.context));
    OK(cuEventCreate(&its.event, CU_EVENT_DISABLE_TIMING));
    OK(cuEventRecord(its.event, its.other));
    OK(cuMemAlloc(&its.p, 1 << 16));
    OK(cuMemAllocAsync(&its.async, 4096, its.stream));
    OK(cuMemAllocManaged(&its.managed, 1 << 16, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemAllocHost(&its.pinned, 4096));
    its.pageable = aligned_alloc(4096, 8192);
    OK(cuArrayCreate(&its.array, &array));
    OK(cuModuleLoadData(&its.module, image));
    OK(cuMemsetD8(its.p, 0, 1 << 16));
    its.exec = make_graph(its.p);
    its.step = make_graph(state);
    OK(cuCtxSynchronize());
}

static void one_call(size_t i)
{
    CUresult code;
    bool seen;

    make_its(calls[i].blocking);
    iterations(its.stream, 6);
    part_of_iteration(its.stream, 100, 0, SIGNAL_AT + 3);
    code = calls[i].call();
    seen = signal_comes(101, strncmp(calls[i].name, "nothing", 7) ? SEEN_MS : UNSEEN_MS);
    say("%s: %d, seen %d", calls[i].name, (int)code, seen);
    if (its.stream)
        part_of_iteration(its.stream, 100, SIGNAL_AT + 3, STEPS);
    tell_of("then", state);
}

int flushing(const char *name)
{
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        if (!*name || !strcmp(calls[i].name, name))
            one_call(i);
    say("violations: %u", sim_violations());
    return 3;
}
