/* Ordering work on streams: events, waits, capture, stream-ordered memory.
 * Compiled once for each kind of default stream. */
#include "mini.h"

MR_SAME_SIZE(cudaStreamAttrValue, CUstreamAttrValue);
MR_SAME_SIZE(cudaGraphEdgeData, CUgraphEdgeData);

cudaError_t cudaMallocAsync(void **devPtr, size_t size, cudaStream_t hStream)
{
    return MR_RUN(DRV_STREAM(MemAllocAsync, 11020, 11020)((CUdeviceptr *)devPtr, size, hStream));
}

cudaError_t cudaMallocFromPoolAsync(void **ptr, size_t size, cudaMemPool_t memPool,
                                    cudaStream_t stream)
{
    return MR_RUN(
        DRV_STREAM(MemAllocFromPoolAsync, 11020, 11020)((CUdeviceptr *)ptr, size, memPool, stream));
}

cudaError_t cudaFreeAsync(void *devPtr, cudaStream_t hStream)
{
    return MR_RUN(DRV_STREAM(MemFreeAsync, 11020, 11020)((CUdeviceptr)devPtr, hStream));
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    return MR_RUN(DRV_STREAM(StreamSynchronize, 2000, 7000)(stream));
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    return MR_RUN(DRV_STREAM(StreamQuery, 2000, 7000)(stream));
}

cudaError_t cudaStreamGetPriority(cudaStream_t hStream, int *priority)
{
    return MR_RUN(DRV_STREAM(StreamGetPriority, 5050, 7000)(hStream, priority));
}

cudaError_t cudaStreamGetFlags(cudaStream_t hStream, unsigned *flags)
{
    return MR_RUN(DRV_STREAM(StreamGetFlags, 5050, 7000)(hStream, flags));
}

cudaError_t cudaStreamGetId(cudaStream_t hStream, unsigned long long *streamId)
{
    return MR_RUN(DRV_STREAM(StreamGetId, 12000, 12000)(hStream, streamId));
}

cudaError_t cudaStreamGetDevice(cudaStream_t hStream, int *device)
{
    return MR_RUN(DRV_STREAM(StreamGetDevice, 12080, 12080)(hStream, device));
}

cudaError_t cudaStreamCopyAttributes(cudaStream_t dst, cudaStream_t src)
{
    return MR_RUN(DRV_STREAM(StreamCopyAttributes, 11000, 11000)(dst, src));
}

cudaError_t cudaStreamGetAttribute(cudaStream_t hStream, cudaStreamAttrID attr,
                                   cudaStreamAttrValue *value_out)
{
    return MR_RUN(DRV_STREAM(StreamGetAttribute, 11000, 11000)(hStream, (CUstreamAttrID)attr,
                                                               (CUstreamAttrValue *)value_out));
}

cudaError_t cudaStreamSetAttribute(cudaStream_t hStream, cudaStreamAttrID attr,
                                   const cudaStreamAttrValue *value)
{
    return MR_RUN(DRV_STREAM(StreamSetAttribute, 11000, 11000)(hStream, (CUstreamAttrID)attr,
                                                               (const CUstreamAttrValue *)value));
}

/* Events */

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return MR_RUN(DRV_STREAM(EventRecord, 2000, 7000)(event, stream));
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags)
{
    return MR_RUN(DRV_STREAM(EventRecordWithFlags, 11010, 11010)(event, stream, flags));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    return MR_RUN(DRV_STREAM(StreamWaitEvent, 3020, 7000)(stream, event, flags));
}

/* Capture and graphs */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    return MR_RUN(DRV_STREAM(StreamBeginCapture, 10010, 10010)(stream, (CUstreamCaptureMode)mode));
}

cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph,
                                          const cudaGraphNode_t *dependencies,
                                          const cudaGraphEdgeData *dependencyData,
                                          size_t numDependencies, enum cudaStreamCaptureMode mode)
{
    return MR_RUN(DRV_STREAM(StreamBeginCaptureToGraph, 12030, 12030)(
        stream, graph, dependencies, (const CUgraphEdgeData *)dependencyData, numDependencies,
        (CUstreamCaptureMode)mode));
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *pGraph)
{
    return MR_RUN(DRV_STREAM(StreamEndCapture, 10000, 10000)(stream, pGraph));
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *pCaptureStatus)
{
    return MR_RUN(DRV_STREAM(StreamIsCapturing, 10000,
                             10000)(stream, (CUstreamCaptureStatus *)pCaptureStatus));
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream,
                                     enum cudaStreamCaptureStatus *captureStatus_out,
                                     unsigned long long *id_out, cudaGraph_t *graph_out,
                                     const cudaGraphNode_t **dependencies_out,
                                     const cudaGraphEdgeData **edgeData_out,
                                     size_t *numDependencies_out)
{
    cuuint64_t id = 0;
    cudaError_t error = MR_RUN(DRV_STREAM(StreamGetCaptureInfo, 12030, 12030)(
        stream, (CUstreamCaptureStatus *)captureStatus_out, &id, graph_out, dependencies_out,
        (const CUgraphEdgeData **)edgeData_out, numDependencies_out));
    if (error == cudaSuccess && id_out != NULL)
        *id_out = id;
    return error;
}

cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t *dependencies,
                                                const cudaGraphEdgeData *dependencyData,
                                                size_t numDependencies, unsigned flags)
{
    return MR_RUN(DRV_STREAM(StreamUpdateCaptureDependencies, 12030, 12030)(
        stream, dependencies, (const CUgraphEdgeData *)dependencyData, numDependencies, flags));
}

cudaError_t cudaGraphUpload(cudaGraphExec_t graphExec, cudaStream_t stream)
{
    return MR_RUN(DRV_STREAM(GraphUpload, 11010, 11010)(graphExec, stream));
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graphExec, cudaStream_t stream)
{
    return MR_RUN(DRV_STREAM(GraphLaunch, 10000, 10000)(graphExec, stream));
}

MR_SAME_SIZE(cudaGraphInstantiateParams, CUDA_GRAPH_INSTANTIATE_PARAMS);

cudaError_t cudaGraphInstantiateWithParams(cudaGraphExec_t *pGraphExec, cudaGraph_t graph,
                                           cudaGraphInstantiateParams *instantiateParams)
{
    return MR_RUN(DRV_STREAM(GraphInstantiateWithParams, 12000, 12000)(
        pGraphExec, graph, (CUDA_GRAPH_INSTANTIATE_PARAMS *)instantiateParams));
}

/* The driver's own functions */

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **funcPtr,
                                             unsigned cudaVersion, unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *driverStatus)
{
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
    if (flags == cudaEnableDefault)
        flags = cudaEnablePerThreadDefaultStream;
#endif
    cudaError_t error = mr_init();
    if (error != cudaSuccess)
        return mr_finish(error);
    *funcPtr = NULL;
    CUresult result = mr_driver_asker()(symbol, funcPtr, (int)cudaVersion, flags, &status);
    if (driverStatus != NULL)
        *driverStatus = (enum cudaDriverEntryPointQueryResult)status;
    /* A name that is not there is an answer in driverStatus, not an error. */
    return mr_finish(result == CUDA_ERROR_NOT_FOUND && driverStatus != NULL ? cudaSuccess
                                                                            : (cudaError_t)result);
}

cudaError_t cudaGetDriverEntryPoint(const char *symbol, void **funcPtr, unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult *driverStatus)
{
    return cudaGetDriverEntryPointByVersion(symbol, funcPtr, CUDART_VERSION, flags, driverStatus);
}
