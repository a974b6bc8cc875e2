/* copy_batch.c: the calls that copy many lines or boxes at once. */
#include "tests/sim/sim_internal.h"

/* A batch is refused in a capture, which goes on (R674, R675), and on the legacy stream. */
static CUresult batch_begins(CUcontext ctx, CUstream handle)
{
    CUstream stream;
    CUresult result = sim_stream_find(ctx, handle, &stream);

    if (result != CUDA_SUCCESS)
        return result;
    if (!handle || handle == CU_STREAM_LEGACY)
        return CUDA_ERROR_INVALID_VALUE;
    return stream->capture ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

/* Pageable memory is read when the copy runs (R545, R546), but for the order STREAM: then as by any
 * other copy (R544). */
static CUresult copy_one(CUcontext ctx, CUstream stream, const CUDA_MEMCPY3D *ask,
                         CUmemcpySrcAccessOrder order)
{
    struct sim_copy copy;

    if (order < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM || order > CU_MEMCPY_SRC_ACCESS_ORDER_ANY ||
        !ask->WidthInBytes || !ask->Height || !ask->Depth)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_copy_from_3d(ask, &copy);
    copy.reads_late = order != CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    copy.of_batch = true;
    return result ? result : sim_copy_submit(stream, ctx, &copy, true);
}

/* ---- lines ---- */

static CUDA_MEMCPY3D line(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                           .srcDevice = src,
                           .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                           .dstDevice = dst,
                           .WidthInBytes = bytes,
                           .Height = 1,
                           .Depth = 1};
}

static CUresult batch(CUcontext ctx, CUstream stream, const CUdeviceptr *dsts,
                      const CUdeviceptr *srcs, const size_t *sizes, size_t count,
                      const CUmemcpyAttributes *attributes, const size_t *indices,
                      size_t n_attributes, size_t *ret_failed)
{
    size_t at = 0;

    if (!dsts || !srcs || !sizes || !count || !attributes || !indices || !n_attributes ||
        n_attributes > count || indices[0])
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = batch_begins(ctx, stream);
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        CUDA_MEMCPY3D ask = line(dsts[i], srcs[i], sizes[i]);
        if (at + 1 < n_attributes && indices[at + 1] == i)
            at++;
        result = copy_one(ctx, stream, &ask, attributes[at].srcAccessOrder);
        if (result != CUDA_SUCCESS && ret_failed)
            *ret_failed = i;
    }
    return result;
}

CUresult cuMemcpyBatchAsync(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                            CUmemcpyAttributes *attributes, size_t *indices, size_t n_attributes,
                            size_t *failed, CUstream stream)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    if (failed)
        *failed = SIZE_MAX;
    return batch(call.ctx, stream, dsts, srcs, sizes, count, attributes, indices, n_attributes,
                 failed);
}

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                               CUmemcpyAttributes *attributes, size_t *indices, size_t n_attributes,
                               CUstream stream)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    return batch(call.ctx, stream, dsts, srcs, sizes, count, attributes, indices, n_attributes,
                 NULL);
}

/* ---- boxes ---- */

/* One side of a 3D copy of a batch, in the terms of CUDA_MEMCPY3D: lengths come in elements, which
 * are bytes where no array is named. */
static CUmemorytype side(const CUmemcpy3DOperand *operand, size_t element, CUdeviceptr *ret_p,
                         CUarray *ret_array, size_t *ret_pitch, size_t *ret_height,
                         CUoffset3D *ret_offset)
{
    if (operand->type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
        *ret_array = operand->op.array.array;
        *ret_offset = operand->op.array.offset;
        ret_offset->x *= element;
        return CU_MEMORYTYPE_ARRAY;
    }
    *ret_p = operand->op.ptr.ptr;
    *ret_pitch = operand->op.ptr.rowLength * element;
    *ret_height = operand->op.ptr.layerHeight;
    return CU_MEMORYTYPE_UNIFIED;
}

static size_t element_of(const CUmemcpy3DOperand *operand)
{
    return operand->type == CU_MEMCPY_OPERAND_TYPE_ARRAY
               ? sim_array_element_bytes(operand->op.array.array)
               : 0;
}

static CUresult copy_operands(CUcontext ctx, CUstream stream, const CUDA_MEMCPY3D_BATCH_OP *op)
{
    size_t of_src = element_of(&op->src), of_dst = element_of(&op->dst);
    size_t element = of_src ? of_src : SIM_MAX(of_dst, (size_t)1);
    CUoffset3D from = {0}, to = {0};
    CUDA_MEMCPY3D ask = {.WidthInBytes = op->extent.width * element,
                         .Height = op->extent.height,
                         .Depth = op->extent.depth};

    ask.srcMemoryType = side(&op->src, element, &ask.srcDevice, &ask.srcArray, &ask.srcPitch,
                             &ask.srcHeight, &from);
    ask.dstMemoryType =
        side(&op->dst, element, &ask.dstDevice, &ask.dstArray, &ask.dstPitch, &ask.dstHeight, &to);
    ask.srcXInBytes = from.x, ask.srcY = from.y, ask.srcZ = from.z;
    ask.dstXInBytes = to.x, ask.dstY = to.y, ask.dstZ = to.z;
    return copy_one(ctx, stream, &ask, op->srcAccessOrder);
}

static CUresult batch_3d(CUcontext ctx, CUstream stream, const CUDA_MEMCPY3D_BATCH_OP *ops,
                         size_t count, unsigned long long flags, size_t *ret_failed)
{
    if (!ops || !count || flags)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = batch_begins(ctx, stream);
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        result = copy_operands(ctx, stream, &ops[i]);
        if (result != CUDA_SUCCESS && ret_failed)
            *ret_failed = i;
    }
    return result;
}

CUresult cuMemcpy3DBatchAsync(size_t count, CUDA_MEMCPY3D_BATCH_OP *ops, size_t *failed,
                              unsigned long long flags, CUstream stream)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    if (failed)
        *failed = SIZE_MAX;
    return batch_3d(call.ctx, stream, ops, count, flags, failed);
}

CUresult cuMemcpy3DBatchAsync_v2(size_t count, CUDA_MEMCPY3D_BATCH_OP *ops,
                                 unsigned long long flags, CUstream stream)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    return batch_3d(call.ctx, stream, ops, count, flags, NULL);
}
