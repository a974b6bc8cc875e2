/* texture.c: texture and surface objects, and mipmapped arrays, as far as their life goes. */
#include "tests/sim/sim_internal.h"

#include <stdlib.h>
#include <string.h>

/* An object is a handle that is a number; textures and surfaces share the numbers. */
struct object {
    CUDA_RESOURCE_DESC resource;
    CUDA_TEXTURE_DESC texture;
    CUDA_RESOURCE_VIEW_DESC view;
    bool surface;
};

struct CUmipmappedArray_st {
    CUarray levels[16];
    unsigned n_levels;
};

static struct object *object_of(unsigned long long number, bool surface)
{
    struct object *object = (struct object *)(uintptr_t)number;

    return sim_handle_is(object, SIM_OBJECT) && object->surface == surface ? object : NULL;
}

static struct object *object_new(const CUDA_RESOURCE_DESC *resource, bool surface)
{
    struct object *object = sim_handle_new(SIM_OBJECT, sizeof(*object));

    object->resource = *resource;
    object->surface = surface;
    return object;
}

CUresult cuTexObjectCreate(CUtexObject *ret_object, const CUDA_RESOURCE_DESC *resource,
                           const CUDA_TEXTURE_DESC *texture, const CUDA_RESOURCE_VIEW_DESC *view)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    if (!ret_object || !resource || !texture)
        return CUDA_ERROR_INVALID_VALUE;
    struct object *object = object_new(resource, false);
    object->texture = *texture;
    if (view)
        object->view = *view;
    *ret_object = (uintptr_t)object;
    return CUDA_SUCCESS;
}

CUresult cuTexObjectDestroy(CUtexObject number)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    struct object *object = object_of(number, false);

    if (!object)
        return CUDA_ERROR_INVALID_VALUE;
    sim_handle_free(object);
    return CUDA_SUCCESS;
}

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC *desc, CUtexObject number)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    const struct object *object = object_of(number, false);

    if (!object || !desc)
        return CUDA_ERROR_INVALID_VALUE;
    *desc = object->resource;
    return CUDA_SUCCESS;
}

CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC *desc, CUtexObject number)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    const struct object *object = object_of(number, false);

    if (!object || !desc)
        return CUDA_ERROR_INVALID_VALUE;
    *desc = object->texture;
    return CUDA_SUCCESS;
}

CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC *desc, CUtexObject number)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    const struct object *object = object_of(number, false);

    if (!object || !desc)
        return CUDA_ERROR_INVALID_VALUE;
    *desc = object->view;
    return CUDA_SUCCESS;
}

CUresult cuSurfObjectCreate(CUsurfObject *ret_object, const CUDA_RESOURCE_DESC *resource)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    if (!ret_object || !resource || resource->resType != CU_RESOURCE_TYPE_ARRAY)
        return CUDA_ERROR_INVALID_VALUE;
    *ret_object = (uintptr_t)object_new(resource, true);
    return CUDA_SUCCESS;
}

CUresult cuSurfObjectDestroy(CUsurfObject number)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    struct object *object = object_of(number, true);

    if (!object)
        return CUDA_ERROR_INVALID_VALUE;
    sim_handle_free(object);
    return CUDA_SUCCESS;
}

CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC *desc, CUsurfObject number)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    const struct object *object = object_of(number, true);

    if (!object || !desc)
        return CUDA_ERROR_INVALID_VALUE;
    *desc = object->resource;
    return CUDA_SUCCESS;
}

/* ---- mipmapped arrays: one array a level ---- */

CUresult cuMipmappedArrayCreate(CUmipmappedArray *ret_array, const CUDA_ARRAY3D_DESCRIPTOR *desc,
                                unsigned int n_levels)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    CUresult result = CUDA_SUCCESS;

    if (!ret_array || !desc || !n_levels)
        return CUDA_ERROR_INVALID_VALUE;
    CUmipmappedArray array = sim_handle_new(SIM_MIPMAPPED, sizeof(*array));
    CUDA_ARRAY3D_DESCRIPTOR level = *desc;
    for (unsigned i = 0; i < SIM_MIN(n_levels, SIM_COUNT(array->levels)); i++) {
        result = sim_array_new(call.ctx, &array->levels[i], &level);
        if (result != CUDA_SUCCESS)
            break;
        array->n_levels++;
        level.Width = SIM_MAX(level.Width / 2, 1u);
        level.Height = level.Height ? SIM_MAX(level.Height / 2, 1u) : 0;
    }
    if (result != CUDA_SUCCESS) {
        for (unsigned i = 0; i < array->n_levels; i++)
            (void)sim_array_delete(array->levels[i]);
        sim_handle_free(array);
        return result;
    }
    *ret_array = array;
    return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayGetLevel(CUarray *level, CUmipmappedArray array, unsigned int i)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    if (!sim_handle_is(array, SIM_MIPMAPPED))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!level || i >= array->n_levels)
        return CUDA_ERROR_INVALID_VALUE;
    *level = array->levels[i];
    return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    if (!sim_handle_is(array, SIM_MIPMAPPED))
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < array->n_levels; i++) {
        CUresult one = sim_array_delete(array->levels[i]);
        result = result ? result : one;
    }
    sim_handle_free(array);
    return result;
}
