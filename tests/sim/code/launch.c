/* launch.c: kernel launches and host functions in streams. */
#include "tests/sim/sim_internal.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define MAX_THREADS 1024u

/* Lays kernelParams, or the packed buffer behind `extra`, out as the entry says. */
static CUresult take_params(struct sim_kernel_work *kernel, void **params, void **extra)
{
    const struct sim_kernel_entry *entry = kernel->entry;
    const unsigned char *buffer = NULL;
    size_t buffer_bytes = 0;

    if (entry->n_params && !params && !extra)
        return CUDA_ERROR_INVALID_VALUE;
    if (params && extra)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; extra && extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[i + 1];
        else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE)
            buffer_bytes = *(size_t *)extra[i + 1];
        else
            return CUDA_ERROR_INVALID_VALUE;
    }
    if (extra && (!buffer || buffer_bytes < entry->params_bytes))
        return CUDA_ERROR_INVALID_VALUE;
    kernel->params = calloc(1, entry->params_bytes + 1);
    if (!kernel->params)
        abort();
    for (unsigned i = 0; i < entry->n_params; i++)
        memcpy(kernel->params + entry->offsets[i], extra ? buffer + entry->offsets[i] : params[i],
               entry->sizes[i]);
    return CUDA_SUCCESS;
}

CUresult sim_kernel_work_init(struct sim_work *work, CUfunction handle, const unsigned grid[3],
                              const unsigned block[3], unsigned shared_bytes, void **params,
                              void **extra)
{
    struct sim_kernel_entry *entry = sim_entry_of(handle);

    if (!entry)
        return CUDA_ERROR_INVALID_HANDLE;
    for (int i = 0; i < 3; i++)
        if (!grid[i] || !block[i])
            return CUDA_ERROR_INVALID_VALUE;
    if ((uint64_t)block[0] * block[1] * block[2] > MAX_THREADS || block[2] > 64)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_grid_fits(handle, grid))
        return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    memset(work, 0, sizeof(*work));
    work->kind = SIM_WORK_KERNEL;
    struct sim_kernel_work *kernel = &work->u.kernel;
    kernel->entry = entry;
    if (sim_handle_is(handle, SIM_FUNCTION))
        kernel->function = handle;
    else
        kernel->kernel = (CUkernel)(void *)handle;
    kernel->code = kernel->function ? handle->id : kernel->kernel->id;
    memcpy(kernel->grid, grid, sizeof(kernel->grid));
    memcpy(kernel->block, block, sizeof(kernel->block));
    kernel->shared_bytes = shared_bytes;
    return take_params(kernel, params, extra);
}

static bool again; /* guarded by the lock, under which kernels run */

void sim_kernel_again(void)
{
    again = true;
}

bool sim_run_kernel(struct sim_op *op)
{
    const struct sim_kernel_work *kernel = &op->work.u.kernel;
    const struct sim_kernel_entry *entry = kernel->entry;
    void *args[SIM_MAX_PARAMS];
    struct sim_kernel_call call = {
        .shared_bytes = kernel->shared_bytes,
        .args = args,
        .n_args = entry->n_params,
        .stream = op->stream,
    };

    memcpy(call.grid, kernel->grid, sizeof(call.grid));
    memcpy(call.block, kernel->block, sizeof(call.block));
    for (unsigned i = 0; i < entry->n_params; i++)
        args[i] = kernel->params + entry->offsets[i];
    if (!sim_code_loaded(kernel))
        sim_violation(op, 0, 0, NULL, "a kernel runs whose code was unloaded");
    again = false;
    sim_in_callback(SIM_IN_KERNEL);
    entry->fn(&call);
    sim_in_callback(SIM_IN_NOTHING);
    return !again;
}

void sim_kernel_needs_stack(size_t bytes)
{
    if (bytes > sim_running->work.u.kernel.stack)
        sim_violation(sim_running, 0, 0, NULL,
                      "a kernel needs more stack than the limit was when it was launched, or its "
                      "graph instantiated");
}

static CUresult launch(CUcontext ctx, CUfunction function, const unsigned grid[3],
                       const unsigned block[3], unsigned shared_bytes, CUstream handle,
                       void **params, void **extra, bool is_early)
{
    struct sim_work work;
    CUstream stream;
    CUresult result = sim_stream_find(ctx, handle, &stream);

    if (result != CUDA_SUCCESS)
        return result;
    if (sim_handle_is(function, SIM_FUNCTION) && function->module &&
        !sim_function_in(function, stream->ctx))
        return CUDA_ERROR_INVALID_HANDLE;
    result = sim_kernel_work_init(&work, function, grid, block, shared_bytes, params, extra);
    if (result != CUDA_SUCCESS)
        return result;
    if ((sim_handle_is(function, SIM_FUNCTION) && !sim_function_load(function)) ||
        (!stream->capture && !sim_local_take(stream->ctx, work.u.kernel.entry))) {
        sim_work_finish(&work);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    work.u.kernel.stack = stream->ctx->limits[CU_LIMIT_STACK_SIZE];
    work.u.kernel.is_early = is_early;
    return sim_submit(stream, &work, NULL);
}

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                        unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                        void **params, void **extra)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    const unsigned grid[3] = {grid_x, grid_y, grid_z}, block[3] = {block_x, block_y, block_z};

    return launch(call.ctx, function, grid, block, shared_bytes, stream, params, extra, false);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                   unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                   unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                                   void **params)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    const unsigned grid[3] = {grid_x, grid_y, grid_z}, block[3] = {block_x, block_y, block_z};

    return launch(call.ctx, function, grid, block, shared_bytes, stream, params, NULL, false);
}

static atomic_bool none_waits;

void sim_start_early(void)
{
    atomic_store(&none_waits, true);
}

static bool starts_early(const CUlaunchConfig *config)
{
    for (unsigned i = 0; i < config->numAttrs && atomic_load(&none_waits); i++)
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
            return config->attrs[i].value.programmaticStreamSerializationAllowed != 0;
    return false;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params,
                          void **extra)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    if (!config || (config->numAttrs && !config->attrs))
        return CUDA_ERROR_INVALID_VALUE;
    const unsigned grid[3] = {config->gridDimX, config->gridDimY, config->gridDimZ};
    const unsigned block[3] = {config->blockDimX, config->blockDimY, config->blockDimZ};
    return launch(call.ctx, function, grid, block, config->sharedMemBytes, config->hStream, params,
                  extra, starts_early(config));
}

/* ---- host functions ---- */

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn fn, void *data)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    CUstream stream;
    CUresult result = sim_stream_find(call.ctx, handle, &stream);

    if (result != CUDA_SUCCESS)
        return result;
    if (!fn)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_work work = {.kind = SIM_WORK_HOST, .u.host = {.fn = fn, .data = data}};
    return sim_submit(stream, &work, NULL);
}

CUresult cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void *data,
                             unsigned int flags)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    CUstream stream;
    CUresult result = sim_stream_find(call.ctx, handle, &stream);

    if (result == CUDA_SUCCESS)
        result = sim_capture_unsupported(stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (!callback || flags)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_work work = {
        .kind = SIM_WORK_HOST,
        .u.host = {.callback = callback, .stream = handle, .data = data},
    };
    return sim_submit(stream, &work, NULL);
}
