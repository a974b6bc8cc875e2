/* value.c: stream memory operations: writing a word, waiting for one. */
#include "tests/sim/sim_internal.h"

#include <string.h>

static bool reached(uint64_t now, const struct sim_value *value)
{
    uint64_t mask = value->bytes == 4 ? UINT32_MAX : UINT64_MAX;

    switch (value->flags & 3u) {
    case CU_STREAM_WAIT_VALUE_GEQ:
        return value->bytes == 4 ? (int32_t)(uint32_t)(now - value->value) >= 0
                                 : (int64_t)(now - value->value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
        return (now & mask) == (value->value & mask);
    case CU_STREAM_WAIT_VALUE_AND:
        return (now & value->value & mask) != 0;
    default:
        return (~(now | value->value) & mask) != 0;
    }
}

bool sim_run_value(struct sim_op *op)
{
    const struct sim_value *value = &op->work.u.value;
    bool write = op->work.kind == SIM_WORK_WRITE_VALUE;
    unsigned char *at = sim_check(op, value->address, value->bytes, write, false);
    uint64_t now = 0;

    if (!at)
        return true;
    if (write) {
        memcpy(at, &value->value, value->bytes);
        return true;
    }
    memcpy(&now, at, value->bytes);
    return reached(now, value);
}

CUresult sim_value_work(const CUstreamBatchMemOpParams *ask, struct sim_work *work)
{
    bool wait = ask->operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
                ask->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
    bool wide = ask->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ||
                ask->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;

    *work = (struct sim_work){.kind = SIM_WORK_EMPTY};
    switch (ask->operation) {
    case CU_STREAM_MEM_OP_BARRIER:
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
        return CUDA_SUCCESS;
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* The two structs have the same layout up to the flags. */
    CUdeviceptr address = ask->waitValue.address;
    if (!sim_block_at(address) || address % (wide ? 8 : 4))
        return CUDA_ERROR_INVALID_VALUE;
    work->kind = wait ? SIM_WORK_WAIT_VALUE : SIM_WORK_WRITE_VALUE;
    work->u.value = (struct sim_value){
        .address = address,
        .value = wide ? ask->waitValue.value64 : ask->waitValue.value,
        .bytes = wide ? 8 : 4,
        .flags = ask->waitValue.flags,
    };
    return CUDA_SUCCESS;
}

static CUresult submit(CUcontext ctx, CUstream handle, unsigned n,
                       const CUstreamBatchMemOpParams *ask)
{
    CUstream stream;
    CUresult result = sim_stream_find(ctx, handle, &stream);

    for (unsigned i = 0; i < n && result == CUDA_SUCCESS; i++) {
        struct sim_work work;
        result = sim_value_work(&ask[i], &work);
        if (result == CUDA_SUCCESS)
            result = sim_submit(stream, &work, NULL);
    }
    return result;
}

static CUresult one(CUcontext ctx, CUstream stream, CUstreamBatchMemOpType operation,
                    CUdeviceptr address, cuuint64_t value, unsigned flags)
{
    CUstreamBatchMemOpParams ask = {.waitValue = {.operation = operation}};

    ask.waitValue.address = address;
    ask.waitValue.value64 = value;
    ask.waitValue.flags = flags;
    return submit(ctx, stream, 1, &ask);
}

/* The first forms of these calls and the later ones differ in what hardware they ask for only. */
#define PAIR(name, type, operation)                                                          \
    CUresult name(CUstream stream, CUdeviceptr address, type value, unsigned int flags)      \
    {                                                                                        \
        SIM_ENTER(SIM_NEEDS_CONTEXT);                                                        \
        return one(call.ctx, stream, operation, address, value, flags);                      \
    }                                                                                        \
    CUresult name##_v2(CUstream stream, CUdeviceptr address, type value, unsigned int flags) \
    {                                                                                        \
        SIM_ENTER(SIM_NEEDS_CONTEXT);                                                        \
        return one(call.ctx, stream, operation, address, value, flags);                      \
    }

PAIR(cuStreamWriteValue32, cuuint32_t, CU_STREAM_MEM_OP_WRITE_VALUE_32)
PAIR(cuStreamWaitValue32, cuuint32_t, CU_STREAM_MEM_OP_WAIT_VALUE_32)
PAIR(cuStreamWriteValue64, cuuint64_t, CU_STREAM_MEM_OP_WRITE_VALUE_64)
PAIR(cuStreamWaitValue64, cuuint64_t, CU_STREAM_MEM_OP_WAIT_VALUE_64)

CUresult cuStreamBatchMemOp(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *ask,
                            unsigned int flags)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    if (!ask || count > 256 || flags)
        return CUDA_ERROR_INVALID_VALUE;
    return submit(call.ctx, stream, count, ask);
}

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *ask,
                               unsigned int flags)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    if (!ask || count > 256 || flags)
        return CUDA_ERROR_INVALID_VALUE;
    return submit(call.ctx, stream, count, ask);
}
