/* Submits one recorded operation as the program would have: ag_op_submit of builder.h. */
#include "graph/record/arguments.h"
#include "graph/replay/builder.h"
#include "interpose/core/driver/driver.h"

/* Room for what a launch has: the recorded attributes, and that it is cooperative. */
#define MAX_ATTRIBUTES 32u

static CUresult launch_ex(const struct ag_op *op, const struct ag_kernel_config *config,
                          struct ag_arguments *arguments, CUstream stream)
{
    const struct ag_kernel_payload *payload = (const void *)op->payload;
    CUlaunchAttribute attributes[MAX_ATTRIBUTES];
    CUlaunchConfig launch = {
        .gridDimX = payload->grid[0],
        .gridDimY = payload->grid[1],
        .gridDimZ = payload->grid[2],
        .blockDimX = config->block[0],
        .blockDimY = config->block[1],
        .blockDimZ = config->block[2],
        .sharedMemBytes = config->shared_bytes,
        .hStream = stream,
        .attrs = attributes,
    };

    for (; launch.numAttrs < config->n_attributes; launch.numAttrs++)
        attributes[launch.numAttrs] = config->attributes[launch.numAttrs];
    if (op->signature.word[0] & AG_OP_IS_COOPERATIVE)
        attributes[launch.numAttrs++] =
            (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1};
    return ag_cu.cuLaunchKernelEx(&launch, config->function, arguments->params, NULL);
}

static CUresult submit_kernel(const struct ag_op *op, CUstream stream)
{
    struct ag_kernel_payload *payload = (void *)op->payload;
    struct ag_kernel_config config;
    struct ag_arguments arguments;

    ag_op_kernel_config(&op->signature, &config);
    ag_arguments_of(payload, &arguments);
    if (config.n_attributes >= MAX_ATTRIBUTES)
        return CUDA_ERROR_INVALID_VALUE;
    if (config.n_attributes || op->signature.word[0] & AG_OP_IS_COOPERATIVE)
        return launch_ex(op, &config, &arguments, stream);
    return ag_cu.cuLaunchKernel(config.function, payload->grid[0], payload->grid[1],
                                payload->grid[2], config.block[0], config.block[1], config.block[2],
                                config.shared_bytes, stream, arguments.params, NULL);
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

static CUresult submit_fill(const struct ag_fill_area *area, CUstream stream)
{
    switch (area->width) {
    case 1:
        return ag_cu.cuMemsetD8Async(area->to, (unsigned char)area->value, area->columns, stream);
    case 2:
        return ag_cu.cuMemsetD16Async(area->to, (unsigned short)area->value, area->columns, stream);
    default:
        return ag_cu.cuMemsetD32Async(area->to, area->value, area->columns, stream);
    }
}

static CUresult submit_fill_2d(const struct ag_fill_area *area, CUstream stream)
{
    switch (area->width) {
    case 1:
        return ag_cu.cuMemsetD2D8Async(area->to, area->pitch, (unsigned char)area->value,
                                       area->columns, area->rows, stream);
    case 2:
        return ag_cu.cuMemsetD2D16Async(area->to, area->pitch, (unsigned short)area->value,
                                        area->columns, area->rows, stream);
    default:
        return ag_cu.cuMemsetD2D32Async(area->to, area->pitch, area->value, area->columns,
                                        area->rows, stream);
    }
}

CUresult ag_op_submit(const struct ag_op *op, CUstream stream)
{
    struct ag_fill_area area;

    switch (ag_op_kind(op)) {
    case AG_OP_KERNEL:
        return submit_kernel(op, stream);
    case AG_OP_COPY:
        return submit_copy(op, stream);
    case AG_OP_COPY_3D:
        return ag_cu.cuMemcpy3DAsync_v2(ag_op_copy_3d_params(&op->signature), stream);
    case AG_OP_FILL:
        ag_op_fill_area(op, &area);
        return submit_fill(&area, stream);
    case AG_OP_FILL_2D:
        ag_op_fill_area(op, &area);
        return submit_fill_2d(&area, stream);
    }
    return CUDA_ERROR_INVALID_VALUE;
}
