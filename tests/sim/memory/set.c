/* set.c: memset in all its forms. */
#include "tests/sim/sim_internal.h"

#include <string.h>

void sim_run_set(struct sim_op *op)
{
    const struct sim_set *set = &op->work.u.set;

    for (size_t y = 0; y < set->height; y++) {
        size_t bytes = set->width * set->element_bytes;
        unsigned char *to = sim_check(op, set->dst + y * set->pitch, bytes, true, false);
        if (!to)
            return;
        sim_arena_gather(set->dst + y * set->pitch, to, bytes);
        if (set->element_bytes == 1)
            memset(to, (int)set->value, bytes);
        else
            for (size_t i = 0; i < set->width; i++)
                memcpy(to + i * set->element_bytes, &set->value, set->element_bytes);
    }
}

/* The synchronous forms wait for such memory. */
static bool is_of_host(const struct sim_block *block)
{
    return block->kind == SIM_BLOCK_HOST || block->kind == SIM_BLOCK_REGISTERED ||
           (block->kind == SIM_BLOCK_MAPPED && block->device == CU_DEVICE_CPU);
}

static CUresult submit(CUcontext ctx, CUstream handle, struct sim_set set, bool async)
{
    CUstream stream;
    CUresult result = sim_stream_find(ctx, handle, &stream);
    const struct sim_block *block = sim_block_at(set.dst);

    if (result != CUDA_SUCCESS)
        return result;
    result = sim_capture_check_legacy(stream);
    if (result == CUDA_SUCCESS && !async)
        result = sim_capture_check_sync(stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (!set.width || !set.height)
        return CUDA_SUCCESS;
    size_t bytes = (set.height - 1) * set.pitch + set.width * set.element_bytes;
    if (set.dst % set.element_bytes ||
        (set.height > 1 &&
         (set.pitch % set.element_bytes || set.pitch / set.element_bytes < set.width)))
        return CUDA_ERROR_INVALID_VALUE;
    if (!block && (!sim_arena_has(set.dst, NULL) || sim_is_reserved(set.dst, 1)))
        return CUDA_ERROR_INVALID_VALUE;
    if (block && (!sim_block_holds(block, set.dst, bytes) ||
                  !sim_mapped_open_to(block, set.dst, bytes, ctx->device, true)))
        return CUDA_ERROR_INVALID_VALUE;
    bool wait = !async && block &&
                (is_of_host(block) || block->sync_memops || ctx->flags & CU_CTX_SYNC_MEMOPS);
    struct sim_work work = {.kind = SIM_WORK_SET, .u.set = set};
    struct sim_op *op = NULL;
    result = sim_submit(stream, &work, &op);
    if (wait && op)
        sim_wait(op);
    sim_op_unref(op);
    return wait ? ctx->fault : result;
}

static struct sim_set line(CUdeviceptr dst, unsigned value, unsigned element_bytes, size_t n)
{
    return (struct sim_set){dst, n * element_bytes, n, 1, value, element_bytes};
}

static struct sim_set rows(CUdeviceptr dst, size_t pitch, unsigned value, unsigned element_bytes,
                           size_t width, size_t height)
{
    return (struct sim_set){dst, pitch, width, height, value, element_bytes};
}

/* The four calls of one element size: legacy, per-thread twin, and the two-dimensional pair. */
#define SYNC(name, parameters, set)                                \
    CUresult name parameters                                       \
    {                                                              \
        SIM_ENTER(SIM_NEEDS_CONTEXT);                              \
        return submit(call.ctx, CU_STREAM_LEGACY, set, false);     \
    }                                                              \
    CUresult name##_ptds parameters                                \
    {                                                              \
        SIM_ENTER(SIM_NEEDS_CONTEXT);                              \
        return submit(call.ctx, CU_STREAM_PER_THREAD, set, false); \
    }

SYNC(cuMemsetD8_v2, (CUdeviceptr dst, unsigned char value, size_t n), line(dst, value, 1, n))
SYNC(cuMemsetD16_v2, (CUdeviceptr dst, unsigned short value, size_t n), line(dst, value, 2, n))
SYNC(cuMemsetD32_v2, (CUdeviceptr dst, unsigned int value, size_t n), line(dst, value, 4, n))
SYNC(cuMemsetD2D8_v2,
     (CUdeviceptr dst, size_t pitch, unsigned char value, size_t width, size_t height),
     rows(dst, pitch, value, 1, width, height))
SYNC(cuMemsetD2D16_v2,
     (CUdeviceptr dst, size_t pitch, unsigned short value, size_t width, size_t height),
     rows(dst, pitch, value, 2, width, height))
SYNC(cuMemsetD2D32_v2,
     (CUdeviceptr dst, size_t pitch, unsigned int value, size_t width, size_t height),
     rows(dst, pitch, value, 4, width, height))

#define ASYNC(name, parameters, set)                \
    CUresult name parameters                        \
    {                                               \
        SIM_ENTER(SIM_NEEDS_CONTEXT);               \
        return submit(call.ctx, stream, set, true); \
    }

ASYNC(cuMemsetD8Async, (CUdeviceptr dst, unsigned char value, size_t n, CUstream stream),
      line(dst, value, 1, n))
ASYNC(cuMemsetD16Async, (CUdeviceptr dst, unsigned short value, size_t n, CUstream stream),
      line(dst, value, 2, n))
ASYNC(cuMemsetD32Async, (CUdeviceptr dst, unsigned int value, size_t n, CUstream stream),
      line(dst, value, 4, n))
ASYNC(cuMemsetD2D8Async,
      (CUdeviceptr dst, size_t pitch, unsigned char value, size_t width, size_t height,
       CUstream stream),
      rows(dst, pitch, value, 1, width, height))
ASYNC(cuMemsetD2D16Async,
      (CUdeviceptr dst, size_t pitch, unsigned short value, size_t width, size_t height,
       CUstream stream),
      rows(dst, pitch, value, 2, width, height))
ASYNC(cuMemsetD2D32Async,
      (CUdeviceptr dst, size_t pitch, unsigned int value, size_t width, size_t height,
       CUstream stream),
      rows(dst, pitch, value, 4, width, height))
