/* Makes the arguments of driver functions of payloads: see arguments.h. */
#include "graph/record/arguments.h"

void ag_arguments_of(struct ag_kernel_payload *payload, struct ag_arguments *ret_arguments)
{
    const struct ag_layout *layout = payload->layout;

    for (uint32_t i = 0; i < layout->n; i++)
        ret_arguments->pointers[i] = payload->params + layout->params[i].offset;
    ret_arguments->params = layout->n ? ret_arguments->pointers : NULL;
}

void ag_arguments_copy(const struct ag_signature *signature, const struct ag_copy_payload *payload,
                       CUDA_MEMCPY3D *ret_copy)
{
    CUmemorytype to, from;

    ag_op_copy_types(signature, &to, &from);
    *ret_copy = (CUDA_MEMCPY3D){
        .srcMemoryType = from,
        .srcPitch = payload->bytes,
        .srcHeight = 1,
        .dstMemoryType = to,
        .dstPitch = payload->bytes,
        .dstHeight = 1,
        .WidthInBytes = payload->bytes,
        .Height = 1,
        .Depth = 1,
    };
    if (from == CU_MEMORYTYPE_HOST)
        ret_copy->srcHost = (const void *)(uintptr_t)payload->from;
    else
        ret_copy->srcDevice = payload->from;
    if (to == CU_MEMORYTYPE_HOST)
        ret_copy->dstHost = (void *)(uintptr_t)payload->to;
    else
        ret_copy->dstDevice = payload->to;
}
