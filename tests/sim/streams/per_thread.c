/* per_thread.c: the per-thread-default-stream twins of all calls that take a stream: the same call
 * with the NULL stream meaning the calling thread's own one. */
#include "tests/sim/sim_internal.h"

static CUstream own(CUstream stream)
{
    return stream ? stream : CU_STREAM_PER_THREAD;
}

#define TWIN(name, parameters, arguments)               \
    CUresult name##_ptsz parameters                     \
    {                                                   \
        CUresult fault = sim_enter_twin(#name "_ptsz"); \
        return fault ? fault : name arguments;          \
    }

TWIN(cuEventRecordWithFlags, (CUevent hEvent, CUstream hStream, unsigned int flags),
     (hEvent, own(hStream), flags))
TWIN(cuEventRecord, (CUevent hEvent, CUstream hStream), (hEvent, own(hStream)))
TWIN(cuGraphInstantiateWithParams,
     (CUgraphExec * phGraphExec, CUgraph hGraph, CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams),
     (phGraphExec, hGraph, instantiateParams))
TWIN(cuGraphLaunch, (CUgraphExec hGraphExec, CUstream hStream), (hGraphExec, own(hStream)))
TWIN(cuGraphUpload, (CUgraphExec hGraphExec, CUstream hStream), (hGraphExec, own(hStream)))
TWIN(cuGraphicsMapResources, (unsigned int count, CUgraphicsResource *resources, CUstream hStream),
     (count, resources, own(hStream)))
TWIN(cuGraphicsUnmapResources,
     (unsigned int count, CUgraphicsResource *resources, CUstream hStream),
     (count, resources, own(hStream)))
TWIN(cuLaunchCooperativeKernel,
     (CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
      unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
      unsigned int sharedMemBytes, CUstream hStream, void **kernelParams),
     (f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes,
      own(hStream), kernelParams))
TWIN(cuLaunchHostFunc, (CUstream hStream, CUhostFn fn, void *userData),
     (own(hStream), fn, userData))
TWIN(cuLaunchKernel,
     (CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
      unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
      unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra),
     (f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes,
      own(hStream), kernelParams, extra))
TWIN(cuMemAllocAsync, (CUdeviceptr * dptr, size_t bytesize, CUstream hStream),
     (dptr, bytesize, own(hStream)))
TWIN(cuMemAllocFromPoolAsync,
     (CUdeviceptr * dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream),
     (dptr, bytesize, pool, own(hStream)))
TWIN(cuMemDiscardBatchAsync,
     (CUdeviceptr * dptrs, size_t *sizes, size_t count, unsigned long long flags, CUstream hStream),
     (dptrs, sizes, count, flags, own(hStream)))
TWIN(cuMemFreeAsync, (CUdeviceptr dptr, CUstream hStream), (dptr, own(hStream)))
TWIN(cuMemPrefetchAsync, (CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream),
     (devPtr, count, dstDevice, own(hStream)))
TWIN(cuMemPrefetchAsync_v2,
     (CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags,
      CUstream hStream),
     (devPtr, count, location, flags, own(hStream)))
TWIN(cuMemPrefetchBatchAsync,
     (CUdeviceptr * dptrs, size_t *sizes, size_t count, CUmemLocation *prefetchLocs,
      size_t *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags, CUstream hStream),
     (dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags, own(hStream)))
TWIN(cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D *pCopy, CUstream hStream), (pCopy, own(hStream)))
TWIN(cuMemcpy3DAsync_v2, (const CUDA_MEMCPY3D *pCopy, CUstream hStream), (pCopy, own(hStream)))
TWIN(cuMemcpy3DPeerAsync, (const CUDA_MEMCPY3D_PEER *pCopy, CUstream hStream),
     (pCopy, own(hStream)))
TWIN(cuMemcpyAsync, (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream),
     (dst, src, ByteCount, own(hStream)))
TWIN(cuMemcpyAtoHAsync_v2,
     (void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount, CUstream hStream),
     (dstHost, srcArray, srcOffset, ByteCount, own(hStream)))
TWIN(cuMemcpyBatchAsync,
     (CUdeviceptr * dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attrs,
      size_t *attrsIdxs, size_t numAttrs, size_t *failIdx, CUstream hStream),
     (dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, failIdx, own(hStream)))
TWIN(cuMemcpyBatchAsync_v2,
     (CUdeviceptr * dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attrs,
      size_t *attrsIdxs, size_t numAttrs, CUstream hStream),
     (dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, own(hStream)))
TWIN(cuMemcpy3DBatchAsync,
     (size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, size_t *failIdx, unsigned long long flags,
      CUstream hStream),
     (numOps, opList, failIdx, flags, own(hStream)))
TWIN(cuMemcpy3DBatchAsync_v2,
     (size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, unsigned long long flags, CUstream hStream),
     (numOps, opList, flags, own(hStream)))
TWIN(cuMemcpyDtoDAsync_v2,
     (CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream),
     (dstDevice, srcDevice, ByteCount, own(hStream)))
TWIN(cuMemcpyDtoHAsync_v2,
     (void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream),
     (dstHost, srcDevice, ByteCount, own(hStream)))
TWIN(cuMemcpyHtoAAsync_v2,
     (CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount, CUstream hStream),
     (dstArray, dstOffset, srcHost, ByteCount, own(hStream)))
TWIN(cuMemcpyHtoDAsync_v2,
     (CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream),
     (dstDevice, srcHost, ByteCount, own(hStream)))
TWIN(cuMemcpyPeerAsync,
     (CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
      size_t ByteCount, CUstream hStream),
     (dstDevice, dstContext, srcDevice, srcContext, ByteCount, own(hStream)))
TWIN(cuMemsetD16Async, (CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream),
     (dstDevice, us, N, own(hStream)))
TWIN(cuMemsetD2D16Async,
     (CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height,
      CUstream hStream),
     (dstDevice, dstPitch, us, Width, Height, own(hStream)))
TWIN(cuMemsetD2D32Async,
     (CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height,
      CUstream hStream),
     (dstDevice, dstPitch, ui, Width, Height, own(hStream)))
TWIN(cuMemsetD2D8Async,
     (CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height,
      CUstream hStream),
     (dstDevice, dstPitch, uc, Width, Height, own(hStream)))
TWIN(cuMemsetD32Async, (CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream),
     (dstDevice, ui, N, own(hStream)))
TWIN(cuMemsetD8Async, (CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream),
     (dstDevice, uc, N, own(hStream)))
TWIN(cuSignalExternalSemaphoresAsync,
     (const CUexternalSemaphore *extSemArray,
      const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *paramsArray, unsigned int numExtSems,
      CUstream stream),
     (extSemArray, paramsArray, numExtSems, own(stream)))
TWIN(cuStreamAddCallback,
     (CUstream hStream, CUstreamCallback callback, void *userData, unsigned int flags),
     (own(hStream), callback, userData, flags))
TWIN(cuStreamAttachMemAsync,
     (CUstream hStream, CUdeviceptr dptr, size_t length, unsigned int flags),
     (own(hStream), dptr, length, flags))
TWIN(cuStreamBatchMemOp,
     (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray,
      unsigned int flags),
     (own(stream), count, paramArray, flags))
TWIN(cuStreamBatchMemOp_v2,
     (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray,
      unsigned int flags),
     (own(stream), count, paramArray, flags))
TWIN(cuStreamBeginCaptureToGraph,
     (CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
      const CUgraphEdgeData *dependencyData, size_t numDependencies, CUstreamCaptureMode mode),
     (own(hStream), hGraph, dependencies, dependencyData, numDependencies, mode))
TWIN(cuStreamBeginCapture, (CUstream hStream), (own(hStream)))
TWIN(cuStreamBeginCapture_v2, (CUstream hStream, CUstreamCaptureMode mode), (own(hStream), mode))
TWIN(cuStreamEndCapture, (CUstream hStream, CUgraph *phGraph), (own(hStream), phGraph))
TWIN(cuStreamGetAttribute, (CUstream hStream, CUstreamAttrID attr, CUstreamAttrValue *value_out),
     (own(hStream), attr, value_out))
TWIN(cuStreamGetCaptureInfo,
     (CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out),
     (own(hStream), captureStatus_out, id_out))
TWIN(cuStreamGetCaptureInfo_v2,
     (CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out,
      CUgraph *graph_out, const CUgraphNode **dependencies_out, size_t *numDependencies_out),
     (own(hStream), captureStatus_out, id_out, graph_out, dependencies_out, numDependencies_out))
TWIN(cuStreamGetCaptureInfo_v3,
     (CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out,
      CUgraph *graph_out, const CUgraphNode **dependencies_out,
      const CUgraphEdgeData **edgeData_out, size_t *numDependencies_out),
     (own(hStream), captureStatus_out, id_out, graph_out, dependencies_out, edgeData_out,
      numDependencies_out))
TWIN(cuStreamGetCtx, (CUstream hStream, CUcontext *pctx), (own(hStream), pctx))
TWIN(cuStreamGetCtx_v2, (CUstream hStream, CUcontext *pCtx, CUgreenCtx *pGreenCtx),
     (own(hStream), pCtx, pGreenCtx))
TWIN(cuStreamGetDevice, (CUstream hStream, CUdevice *device), (own(hStream), device))
TWIN(cuStreamGetFlags, (CUstream hStream, unsigned int *flags), (own(hStream), flags))
TWIN(cuStreamGetId, (CUstream hStream, unsigned long long *streamId), (own(hStream), streamId))
TWIN(cuStreamGetPriority, (CUstream hStream, int *priority), (own(hStream), priority))
TWIN(cuStreamIsCapturing, (CUstream hStream, CUstreamCaptureStatus *captureStatus),
     (own(hStream), captureStatus))
TWIN(cuStreamQuery, (CUstream hStream), (own(hStream)))
TWIN(cuStreamSetAttribute, (CUstream hStream, CUstreamAttrID attr, const CUstreamAttrValue *value),
     (own(hStream), attr, value))
TWIN(cuStreamSynchronize, (CUstream hStream), (own(hStream)))
TWIN(cuStreamUpdateCaptureDependencies,
     (CUstream hStream, CUgraphNode *dependencies, size_t numDependencies, unsigned int flags),
     (own(hStream), dependencies, numDependencies, flags))
TWIN(cuStreamUpdateCaptureDependencies_v2,
     (CUstream hStream, CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData,
      size_t numDependencies, unsigned int flags),
     (own(hStream), dependencies, dependencyData, numDependencies, flags))
TWIN(cuStreamWaitEvent, (CUstream hStream, CUevent hEvent, unsigned int Flags),
     (own(hStream), hEvent, Flags))
TWIN(cuStreamWaitValue32, (CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags),
     (own(stream), addr, value, flags))
TWIN(cuStreamWaitValue32_v2,
     (CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags),
     (own(stream), addr, value, flags))
TWIN(cuStreamWaitValue64, (CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags),
     (own(stream), addr, value, flags))
TWIN(cuStreamWaitValue64_v2,
     (CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags),
     (own(stream), addr, value, flags))
TWIN(cuStreamWriteValue32,
     (CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags),
     (own(stream), addr, value, flags))
TWIN(cuStreamWriteValue32_v2,
     (CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags),
     (own(stream), addr, value, flags))
TWIN(cuStreamWriteValue64,
     (CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags),
     (own(stream), addr, value, flags))
TWIN(cuStreamWriteValue64_v2,
     (CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags),
     (own(stream), addr, value, flags))
TWIN(cuWaitExternalSemaphoresAsync,
     (const CUexternalSemaphore *extSemArray,
      const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *paramsArray, unsigned int numExtSems,
      CUstream stream),
     (extSemArray, paramsArray, numExtSems, own(stream)))

CUresult cuStreamCopyAttributes_ptsz(CUstream dst, CUstream src)
{
    CUresult fault = sim_enter_twin(__func__);

    return fault ? fault : cuStreamCopyAttributes(own(dst), own(src));
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **params,
                               void **extra)
{
    CUresult fault = sim_enter_twin(__func__);

    if (fault != CUDA_SUCCESS)
        return fault;
    if (!config)
        return CUDA_ERROR_INVALID_VALUE;
    CUlaunchConfig copy = *config;
    copy.hStream = own(config->hStream);
    return cuLaunchKernelEx(&copy, function, params, extra);
}
