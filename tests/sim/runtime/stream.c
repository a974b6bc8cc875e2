/* Making and destroying streams and events. */
#include "mini.h"

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *pStream, unsigned flags)
{
    return MR_RUN(DRV(StreamCreate, 2000)(pStream, flags));
}

cudaError_t cudaStreamCreate(cudaStream_t *pStream)
{
    return cudaStreamCreateWithFlags(pStream, cudaStreamDefault);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *pStream, unsigned flags, int priority)
{
    return MR_RUN(DRV(StreamCreateWithPriority, 5050)(pStream, flags, priority));
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    return MR_RUN(DRV(StreamDestroy, 4000)(stream));
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    return MR_RUN(DRV(ThreadExchangeStreamCaptureMode, 10010)((CUstreamCaptureMode *)mode));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    return MR_RUN(DRV(EventCreate, 2000)(event, flags));
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    return MR_RUN(DRV(EventDestroy, 4000)(event));
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    return MR_RUN(DRV(EventQuery, 2000)(event));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    return MR_RUN(DRV(EventSynchronize, 2000)(event));
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    return MR_RUN(DRV(EventElapsedTime, 12080)(ms, start, end));
}
