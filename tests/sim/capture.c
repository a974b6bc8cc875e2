/* capture.c: stream capture. */
#include "sim_internal.h"

CUresult sim_capture_check(CUcontext ctx, enum sim_capture_rule rule)
{
    (void)ctx;
    (void)rule;
    return CUDA_SUCCESS;
}
CUresult sim_capture_check_legacy(CUstream s)
{
    (void)s;
    return CUDA_SUCCESS;
}
CUresult sim_capture_check_stream(CUstream s)
{
    (void)s;
    return CUDA_SUCCESS;
}
CUresult sim_capture_check_event(CUevent e)
{
    (void)e;
    return CUDA_SUCCESS;
}
CUresult sim_capture_check_sync(CUstream s)
{
    (void)s;
    return CUDA_SUCCESS;
}
CUresult sim_capture_unsupported(CUstream s)
{
    (void)s;
    return CUDA_SUCCESS;
}
void sim_capture_forget_stream(CUstream s)
{
    (void)s;
}
CUresult sim_capture_record(CUstream s, CUevent e, unsigned f)
{
    (void)s;
    (void)e;
    (void)f;
    return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult sim_capture_wait(CUstream s, CUevent e, unsigned f)
{
    (void)s;
    (void)e;
    (void)f;
    return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult sim_capture_add(CUstream s, struct sim_work *w, CUgraphNode *n)
{
    (void)s;
    (void)w;
    (void)n;
    return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult sim_capture_alloc(CUstream s, CUdeviceptr *p, size_t b, CUmemoryPool pool)
{
    (void)s;
    (void)p;
    (void)b;
    (void)pool;
    return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult sim_capture_free(CUstream s, CUdeviceptr p)
{
    (void)s;
    (void)p;
    return CUDA_ERROR_NOT_SUPPORTED;
}
bool sim_run_value(struct sim_op *op)
{
    (void)op;
    return true;
}
void sim_import_close(struct sim_block *b)
{
    (void)b;
}
CUresult sim_import_close_async(struct sim_block *b, CUstream s)
{
    (void)b;
    (void)s;
    return CUDA_ERROR_NOT_SUPPORTED;
}
bool sim_array_place(CUarray a, uint64_t *x, size_t *y, size_t *z)
{
    (void)a;
    (void)x;
    (void)y;
    (void)z;
    return false;
}
CUresult cuStreamIsCapturing(CUstream s, CUstreamCaptureStatus *st)
{
    (void)s;
    *st = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *m)
{
    static __thread CUstreamCaptureMode mode;
    CUstreamCaptureMode old = mode;
    mode = *m;
    *m = old;
    return CUDA_SUCCESS;
}
