/* Operations submitted one by one, as the program would have: see ag_op_submit in builder.h. */
#include "graph/record/arguments.h"
#include "graph/replay/builder.h"
#include "interpose/driver/driver.h"

/* Room for what a launch has: the recorded attributes, and that it is cooperative. */
#define MAX_ATTRIBUTES 32u

static CUresult launch_ex(const struct ag_op *op, const struct ag_kernel_shape *shape,
                          struct ag_arguments *arguments, CUstream stream)
{
    const struct ag_kernel_payload *payload = (const void *)op->payload;
    CUlaunchAttribute attributes[MAX_ATTRIBUTES];
    CUlaunchConfig config = {
        .gridDimX = payload->grid[0],
        .gridDimY = payload->grid[1],
        .gridDimZ = payload->grid[2],
        .blockDimX = shape->block[0],
        .blockDimY = shape->block[1],
        .blockDimZ = shape->block[2],
        .sharedMemBytes = shape->shared_bytes,
        .hStream = stream,
        .attrs = attributes,
    };

    for (; config.numAttrs < shape->n_attributes; config.numAttrs++)
        attributes[config.numAttrs] = shape->attributes[config.numAttrs];
    if (op->signature.word[0] & AG_OP_IS_COOPERATIVE)
        attributes[config.numAttrs++] =
            (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1};
    return ag_cu.cuLaunchKernelEx(&config, shape->function, arguments->params, arguments->extra);
}

static CUresult submit_kernel(const struct ag_op *op, CUstream stream)
{
    struct ag_kernel_payload *payload = (void *)op->payload;
    struct ag_kernel_shape shape;
    struct ag_arguments arguments;

    ag_op_kernel_shape(&op->signature, &shape);
    ag_arguments_of(&op->signature, payload, &arguments);
    if (shape.n_attributes >= MAX_ATTRIBUTES)
        return CUDA_ERROR_INVALID_VALUE;
    if (shape.n_attributes || op->signature.word[0] & AG_OP_IS_COOPERATIVE)
        return launch_ex(op, &shape, &arguments, stream);
    return ag_cu.cuLaunchKernel(shape.function, payload->grid[0], payload->grid[1],
                                payload->grid[2], shape.block[0], shape.block[1], shape.block[2],
                                shape.shared_bytes, stream, arguments.params, arguments.extra);
}

static CUresult submit_copy(const struct ag_op *op, CUstream stream)
{
    const struct ag_copy_payload *copy = (const void *)op->payload;
    CUmemorytype to, from;

    ag_op_copy_types(&op->signature, &to, &from);
    if (to == CU_MEMORYTYPE_DEVICE && from == CU_MEMORYTYPE_DEVICE)
        return ag_cu.cuMemcpyDtoDAsync_v2(copy->to, copy->from, copy->bytes, stream);
    if (to == CU_MEMORYTYPE_DEVICE && from == CU_MEMORYTYPE_HOST)
        return ag_cu.cuMemcpyHtoDAsync_v2(copy->to, (const void *)(uintptr_t)copy->from,
                                          copy->bytes, stream);
    if (to == CU_MEMORYTYPE_HOST && from == CU_MEMORYTYPE_DEVICE)
        return ag_cu.cuMemcpyDtoHAsync_v2((void *)(uintptr_t)copy->to, copy->from, copy->bytes,
                                          stream);
    return ag_cu.cuMemcpyAsync(copy->to, copy->from, copy->bytes, stream);
}

static CUresult submit_fill(const struct ag_op *op, CUstream stream)
{
    const struct ag_fill_payload *fill = (const void *)op->payload;

    switch (ag_op_fill_width(&op->signature)) {
    case 1:
        return ag_cu.cuMemsetD8Async(fill->to, (unsigned char)fill->value, fill->count, stream);
    case 2:
        return ag_cu.cuMemsetD16Async(fill->to, (unsigned short)fill->value, fill->count, stream);
    default:
        return ag_cu.cuMemsetD32Async(fill->to, (unsigned)fill->value, fill->count, stream);
    }
}

static CUresult submit_fill_shaped(const struct ag_op *op, CUstream stream)
{
    struct ag_fill_shape shape;

    ag_op_fill_shape(&op->signature, &shape);
    switch (shape.width) {
    case 1:
        return ag_cu.cuMemsetD2D8Async(shape.to, shape.pitch, (unsigned char)shape.value,
                                       shape.columns, shape.rows, stream);
    case 2:
        return ag_cu.cuMemsetD2D16Async(shape.to, shape.pitch, (unsigned short)shape.value,
                                        shape.columns, shape.rows, stream);
    default:
        return ag_cu.cuMemsetD2D32Async(shape.to, shape.pitch, shape.value, shape.columns,
                                        shape.rows, stream);
    }
}

CUresult ag_op_submit(const struct ag_op *op, CUstream stream)
{
    const struct ag_host_payload *host = (const void *)op->payload;

    switch (ag_op_kind(op)) {
    case AG_OP_KERNEL:
        return submit_kernel(op, stream);
    case AG_OP_COPY:
        return submit_copy(op, stream);
    case AG_OP_COPY_SHAPED:
        return ag_cu.cuMemcpy3DAsync_v2(ag_op_copy_shape(&op->signature), stream);
    case AG_OP_FILL:
        return submit_fill(op, stream);
    case AG_OP_FILL_SHAPED:
        return submit_fill_shaped(op, stream);
    case AG_OP_HOST:
        return ag_cu.cuLaunchHostFunc(stream, host->function, host->data);
    }
    return CUDA_ERROR_INVALID_VALUE;
}
