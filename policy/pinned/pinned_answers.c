/* Finds the block of an address, by what the driver says where it begins: see pinned_answers.h. */
#include "policy/pinned/pinned_answers.h"

#include <string.h>

#include "interpose/core/driver/driver.h"
#include "policy/answers/lookup.h"
#include "policy/pinned/made.h"

bool ag_pinned_answers_look(CUdeviceptr address, struct ag_pinned_seen *ret_seen)
{
    CUdeviceptr start = address;

    if (!ag_pinned_blocks_may_hold(address))
        return false;
    if (ag_pinned_blocks_look(address, ret_seen) || ag_pinned_blocks_look_inside(address, ret_seen))
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

CUdeviceptr ag_pinned_answers_allocated(CUdeviceptr address, const struct ag_pinned_seen *seen)
{
    CUdeviceptr known = ag_pinned_answers_known(address, seen), like = 0;

    if (seen->is_made && known == address)
        like = ag_pinned_made_like(seen->context, seen->how, address - seen->address);
    return like ? like : known;
}

/* Is it of the kind of memory, and not of the address? */
static bool is_of_kind(CUpointer_attribute attribute)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: /* which is corrected */
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        return true;
    default:
        return false;
    }
}

CUdeviceptr ag_pinned_answers_asked(CUdeviceptr address, CUpointer_attribute attribute,
                                    const struct ag_pinned_seen *seen)
{
    return is_of_kind(attribute) ? ag_pinned_answers_allocated(address, seen)
                                 : ag_pinned_answers_known(address, seen);
}

void ag_pinned_answers_correct(void *data, CUpointer_attribute attribute,
                               const struct ag_pinned_seen *seen)
{
    if (attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)
        memcpy(data, &seen->address, sizeof(seen->address));
    else if (attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE)
        memcpy(data, &seen->requested, sizeof(seen->requested));
    else if (attribute == CU_POINTER_ATTRIBUTE_BUFFER_ID && seen->buffer_id)
        memcpy(data, &seen->buffer_id, sizeof(seen->buffer_id));
}
