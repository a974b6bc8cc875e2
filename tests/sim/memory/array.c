/* array.c: arrays, as plain pitched memory: what copies need, no textures. */
#include "tests/sim/sim_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PITCH_UNIT 32u

struct CUarray_st {
    CUDA_ARRAY3D_DESCRIPTOR desc;
    struct sim_block *block;
    size_t pitch, rows;
};

static size_t element_bytes(const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
    switch (desc->Format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return desc->NumChannels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2 * desc->NumChannels;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4 * desc->NumChannels;
    default:
        return 0;
    }
}

CUresult sim_array_new(CUcontext ctx, CUarray *ret_array, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
    size_t element = element_bytes(desc);
    struct sim_block *block;

    if (!ret_array || !desc->Width || !element)
        return CUDA_ERROR_INVALID_VALUE;
    if (desc->NumChannels != 1 && desc->NumChannels != 2 && desc->NumChannels != 4)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_capture_check(ctx, SIM_CAPTURE_UNSAFE);
    if (result != CUDA_SUCCESS)
        return result;
    size_t pitch = (desc->Width * element + PITCH_UNIT - 1) / PITCH_UNIT * PITCH_UNIT;
    size_t rows = SIM_MAX(desc->Height, 1u);
    result = sim_native_alloc(ctx, pitch * rows * SIM_MAX(desc->Depth, 1u), &block);
    if (result != CUDA_SUCCESS)
        return result;
    (void)snprintf(block->how_born, sizeof(block->how_born), "an array");
    CUarray array = sim_handle_new(SIM_ARRAY, sizeof(*array));
    array->desc = *desc;
    array->block = block;
    array->pitch = pitch;
    array->rows = rows;
    *ret_array = array;
    return CUDA_SUCCESS;
}

CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    return desc ? sim_array_new(call.ctx, array, desc) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *desc)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    if (!desc)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY3D_DESCRIPTOR wide = {.Width = desc->Width,
                                    .Height = desc->Height,
                                    .Format = desc->Format,
                                    .NumChannels = desc->NumChannels};
    return sim_array_new(call.ctx, array, &wide);
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *desc, CUarray array)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    if (!desc)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_handle_is(array, SIM_ARRAY))
        return CUDA_ERROR_INVALID_HANDLE;
    *desc = array->desc;
    return CUDA_SUCCESS;
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *desc, CUarray array)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    if (!desc)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_handle_is(array, SIM_ARRAY))
        return CUDA_ERROR_INVALID_HANDLE;
    *desc = (CUDA_ARRAY_DESCRIPTOR){.Width = array->desc.Width,
                                    .Height = array->desc.Height,
                                    .Format = array->desc.Format,
                                    .NumChannels = array->desc.NumChannels};
    return CUDA_SUCCESS;
}

CUresult sim_array_delete(CUarray array)
{
    struct sim_block *block = array->block;
    CUcontext ctx = block->ctx;
    uint64_t base = block->base;

    sim_handle_free(array);
    CUresult result = ctx->alive ? sim_context_drain(ctx) : CUDA_SUCCESS;
    /* A context takes its arrays' memory with it. */
    if (sim_block_starting_at(base) == block)
        sim_native_free(block, "cuArrayDestroy");
    return result;
}

CUresult cuArrayDestroy(CUarray array)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    if (!sim_handle_is(array, SIM_ARRAY))
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = sim_capture_check(call.ctx, SIM_CAPTURE_UNSAFE);
    return result ? result : sim_array_delete(array);
}

size_t sim_array_element_bytes(CUarray array)
{
    return sim_handle_is(array, SIM_ARRAY) ? element_bytes(&array->desc) : 0;
}

bool sim_array_place(CUarray array, uint64_t *ret_address, size_t *ret_pitch, size_t *ret_height)
{
    if (!sim_handle_is(array, SIM_ARRAY))
        return false;
    *ret_address = array->block->base;
    *ret_pitch = array->pitch;
    *ret_height = array->rows;
    return true;
}
