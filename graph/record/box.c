/* Copies of boxes: see box.h. */
#include "graph/record/box.h"

#include <stddef.h>

/* The source or the destination of a 3-D copy. */
struct side {
    CUmemorytype *type;
    const void *host;
    CUdeviceptr device;
    size_t x, y, z, lod, pitch, height;
    void *reserved;
};

/* The distance from the first byte that the copy touches to the end of the last; 0 where the driver
 * would refuse the geometry, or may. */
static uint64_t extent(const CUDA_MEMCPY3D *copy, const struct side *side, uint64_t *ret_offset)
{
    const uint64_t most = INT32_MAX; /* the largest pitch of any device; and so nothing overflows */
    uint64_t pitch = side->pitch, height = side->height;

    if (!height && !side->z && copy->Depth == 1) /* which then does not matter */
        height = side->y + copy->Height;
    if (copy->WidthInBytes > most || copy->Height > most || copy->Depth > most || side->x > most ||
        side->y > most || side->z > most || pitch > most || height > most || !pitch || !height ||
        side->lod || side->reserved || pitch < side->x + copy->WidthInBytes ||
        height < side->y + copy->Height ||
        (side->z + copy->Depth) > (UINT64_MAX >> 2) / pitch / height)
        return 0;
    *ret_offset = (side->z * height + side->y) * pitch + side->x;
    return ((copy->Depth - 1) * height + copy->Height - 1) * pitch + copy->WidthInBytes;
}

/* Resolves the address and the type of a side: DEVICE or HOST, no longer UNIFIED. */
static enum ag_memory resolve_side(const CUDA_MEMCPY3D *copy, struct side *side,
                                   ag_memory_asked *kind, uint64_t *ret_address)
{
    uint64_t offset, bytes = extent(copy, side, &offset);
    enum ag_memory memory;

    if (!bytes || (*side->type != CU_MEMORYTYPE_HOST && *side->type != CU_MEMORYTYPE_DEVICE &&
                   *side->type != CU_MEMORYTYPE_UNIFIED))
        return AG_MEMORY_UNKNOWN;
    *ret_address = *side->type == CU_MEMORYTYPE_HOST ? (uintptr_t)side->host : side->device;
    if (*ret_address > UINT64_MAX - offset)
        return AG_MEMORY_UNKNOWN;
    memory = kind(*ret_address + offset, bytes);
    if (*side->type != CU_MEMORYTYPE_UNIFIED && *side->type != ag_memory_type(memory))
        return AG_MEMORY_UNKNOWN;
    *side->type = ag_memory_type(memory);
    return memory;
}

bool ag_box_resolve(CUDA_MEMCPY3D *copy, ag_memory_asked *kind, enum ag_memory *ret_to,
                    enum ag_memory *ret_from)
{
    struct side to = {&copy->dstMemoryType, copy->dstHost,  copy->dstDevice, copy->dstXInBytes,
                      copy->dstY,           copy->dstZ,     copy->dstLOD,    copy->dstPitch,
                      copy->dstHeight,      copy->reserved1};
    struct side from = {&copy->srcMemoryType, copy->srcHost,  copy->srcDevice, copy->srcXInBytes,
                        copy->srcY,           copy->srcZ,     copy->srcLOD,    copy->srcPitch,
                        copy->srcHeight,      copy->reserved0};
    uint64_t to_address = 0, from_address = 0;

    *ret_to = *ret_from = AG_MEMORY_UNKNOWN;
    if (!copy->WidthInBytes || !copy->Height || !copy->Depth)
        return false;
    *ret_to = resolve_side(copy, &to, kind, &to_address);
    if (*ret_to)
        *ret_from = resolve_side(copy, &from, kind, &from_address);
    if (!*ret_from)
        return false;
    if (*to.type == CU_MEMORYTYPE_HOST)
        copy->dstHost = (void *)(uintptr_t)to_address;
    else
        copy->dstDevice = to_address;
    if (*from.type == CU_MEMORYTYPE_HOST)
        copy->srcHost = (const void *)(uintptr_t)from_address;
    else
        copy->srcDevice = from_address;
    return true;
}

CUDA_MEMCPY3D ag_box_of_rectangle(const CUDA_MEMCPY2D *copy)
{
    return (CUDA_MEMCPY3D){
        .srcXInBytes = copy->srcXInBytes,
        .srcY = copy->srcY,
        .srcMemoryType = copy->srcMemoryType,
        .srcHost = copy->srcHost,
        .srcDevice = copy->srcDevice,
        .srcArray = copy->srcArray,
        .srcPitch = copy->srcPitch,
        .dstXInBytes = copy->dstXInBytes,
        .dstY = copy->dstY,
        .dstMemoryType = copy->dstMemoryType,
        .dstHost = copy->dstHost,
        .dstDevice = copy->dstDevice,
        .dstArray = copy->dstArray,
        .dstPitch = copy->dstPitch,
        .WidthInBytes = copy->WidthInBytes,
        .Height = copy->Height,
        .Depth = 1,
    };
}
