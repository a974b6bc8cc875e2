/* Finds the block of an address, by what the driver says where it begins: see pinned_answers.h. */
#include "policy/pinned/pinned_answers.h"

#include <string.h>

#include "interpose/core/driver/driver.h"
#include "policy/answers/lookup.h"

bool ag_pinned_answers_look(CUdeviceptr address, struct ag_pinned_seen *ret_seen)
{
    CUdeviceptr start = address;

    if (!ag_pinned_blocks_may_hold(address))
        return false;
    if (ag_pinned_blocks_look(address, ret_seen))
        return true;
    if (ag_cu.cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address) !=
        CUDA_SUCCESS)
        return false;
    return ag_pinned_blocks_look(start, ret_seen) && address - start < ret_seen->size;
}

CUdeviceptr ag_pinned_answers_known(CUdeviceptr address, const struct ag_pinned_seen *seen)
{
    return seen->is_live && address - seen->address < seen->requested ? address : AG_LOOKUP_UNKNOWN;
}

void ag_pinned_answers_correct(void *data, CUpointer_attribute attribute,
                               const struct ag_pinned_seen *seen)
{
    if (attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE)
        memcpy(data, &seen->requested, sizeof(seen->requested));
    else if (attribute == CU_POINTER_ATTRIBUTE_BUFFER_ID && seen->buffer_id)
        memcpy(data, &seen->buffer_id, sizeof(seen->buffer_id));
}
