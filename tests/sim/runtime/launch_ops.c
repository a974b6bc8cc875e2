/* Launching kernels and host functions. Compiled once for each kind of default stream. */
#include "mini.h"

#include "binary.h"

MR_SAME_SIZE(cudaLaunchAttribute, CUlaunchAttribute);

/* The driver takes a CUkernel where it expects a CUfunction. */
static CUresult launch(CUkernel kernel, dim3 grid, dim3 block, void **args, size_t shared_bytes,
                       cudaStream_t stream)
{
    return DRV_STREAM(LaunchKernel, 4000, 7000)((CUfunction)kernel, grid.x, grid.y, grid.z, block.x,
                                                block.y, block.z, (unsigned)shared_bytes, stream,
                                                args, NULL);
}

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
cudaError_t __cudaLaunchKernel_ptsz
#else
cudaError_t __cudaLaunchKernel
#endif
    (cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared_bytes,
     cudaStream_t stream)
{
    if (kernel == NULL)
        return mr_finish(cudaErrorInvalidDeviceFunction);
    return MR_RUN(launch(kernel, grid, block, args, shared_bytes, stream));
}

static cudaError_t find_and_launch(const void *func, dim3 grid, dim3 block, void **args,
                                   size_t shared_bytes, cudaStream_t stream)
{
    CUkernel kernel;
    cudaError_t error = mr_kernel_of(func, &kernel);
    if (error != cudaSuccess)
        return error;
    return (cudaError_t)launch(kernel, grid, block, args, shared_bytes, stream);
}

cudaError_t cudaLaunchKernel(const void *func, dim3 gridDim, dim3 blockDim, void **args,
                             size_t sharedMem, cudaStream_t stream)
{
    return MR_RUN(find_and_launch(func, gridDim, blockDim, args, sharedMem, stream));
}

static cudaError_t launch_configured(const cudaLaunchConfig_t *config, const void *func,
                                     void **args)
{
    CUkernel kernel;
    cudaError_t error = mr_kernel_of(func, &kernel);
    if (error != cudaSuccess)
        return error;
    CUlaunchConfig driver_config = {
        .gridDimX = config->gridDim.x,
        .gridDimY = config->gridDim.y,
        .gridDimZ = config->gridDim.z,
        .blockDimX = config->blockDim.x,
        .blockDimY = config->blockDim.y,
        .blockDimZ = config->blockDim.z,
        .sharedMemBytes = (unsigned)config->dynamicSmemBytes,
        .hStream = config->stream,
        .attrs = (CUlaunchAttribute *)config->attrs,
        .numAttrs = config->numAttrs,
    };
    return (cudaError_t)DRV_STREAM(LaunchKernelEx, 11060, 11060)(&driver_config, (CUfunction)kernel,
                                                                 args, NULL);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *func, void **args)
{
    return MR_RUN(launch_configured(config, func, args));
}

static cudaError_t launch_cooperative(const void *func, dim3 grid, dim3 block, void **args,
                                      size_t shared_bytes, cudaStream_t stream)
{
    CUkernel kernel;
    cudaError_t error = mr_kernel_of(func, &kernel);
    if (error != cudaSuccess)
        return error;
    return (cudaError_t)DRV_STREAM(LaunchCooperativeKernel, 9000,
                                   9000)((CUfunction)kernel, grid.x, grid.y, grid.z, block.x,
                                         block.y, block.z, (unsigned)shared_bytes, stream, args);
}

cudaError_t cudaLaunchCooperativeKernel(const void *func, dim3 gridDim, dim3 blockDim, void **args,
                                        size_t sharedMem, cudaStream_t stream)
{
    return MR_RUN(launch_cooperative(func, gridDim, blockDim, args, sharedMem, stream));
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *userData)
{
    return MR_RUN(DRV_STREAM(LaunchHostFunc, 10000, 10000)(stream, fn, userData));
}

/* A CUstreamCallback differs from a cudaStreamCallback_t in the name of its error type only. */
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback,
                                  void *userData, unsigned flags)
{
    return MR_RUN(DRV_STREAM(StreamAddCallback, 5000,
                             7000)(stream, (CUstreamCallback)(void *)callback, userData, flags));
}
