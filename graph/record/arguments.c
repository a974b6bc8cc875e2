/* From payloads to what the driver's functions take: see arguments.h. */
#include "graph/record/arguments.h"

/* The whole buffer: the form for parameters that were given so, or whose layout is not known. */
static void as_buffer(struct ag_kernel_payload *payload, struct ag_arguments *arguments)
{
    arguments->bytes = payload->bytes;
    arguments->end[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
    arguments->end[1] = payload->params;
    arguments->end[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
    arguments->end[3] = &arguments->bytes;
    arguments->end[4] = CU_LAUNCH_PARAM_END;
    arguments->extra = arguments->end;
}

void ag_arguments_of(const struct ag_signature *signature, struct ag_kernel_payload *payload,
                     struct ag_arguments *ret_arguments)
{
    struct ag_kernel_config config;
    const struct ag_layout *layout = NULL;

    ret_arguments->params = ret_arguments->extra = NULL;
    ag_op_kernel_config(signature, &config);
    if (signature->word[0] & AG_OP_HAS_LAYOUT)
        layout = ag_params_of(config.function);
    if (!layout || layout->total > payload->bytes) {
        if (payload->bytes)
            as_buffer(payload, ret_arguments);
        return;
    }
    for (uint32_t i = 0; i < layout->n; i++)
        ret_arguments->pointers[i] = payload->params + layout->params[i].offset;
    if (layout->n)
        ret_arguments->params = ret_arguments->pointers;
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
