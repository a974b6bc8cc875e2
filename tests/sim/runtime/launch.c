/* What belongs to launching and is the same for both kinds of default stream: the <<<>>> stack,
 * kernel handles, their attributes, occupancy. */
#include "mini.h"

#include <stdlib.h>
#include <string.h>

#include "binary.h"

enum { MAX_NESTED_LAUNCHES = 16 };

/* f<<<a>>>(g<<<b>>>(..)) nests: the configuration of f waits while g is launched. */
static _Thread_local struct {
    unsigned depth;
    struct {
        dim3 grid, block;
        size_t shared_bytes;
        cudaStream_t stream;
    } entries[MAX_NESTED_LAUNCHES];
} pending;

/* Non-zero tells the program to leave the launch out. */
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                     struct CUstream_st *stream)
{
    if (pending.depth == MAX_NESTED_LAUNCHES)
        return 1;
    pending.entries[pending.depth].grid = grid;
    pending.entries[pending.depth].block = block;
    pending.entries[pending.depth].shared_bytes = shared_bytes;
    pending.entries[pending.depth].stream = stream;
    pending.depth++;
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes, void *stream)
{
    if (pending.depth == 0)
        return mr_finish(cudaErrorInvalidConfiguration);
    pending.depth--;
    *grid = pending.entries[pending.depth].grid;
    *block = pending.entries[pending.depth].block;
    *shared_bytes = pending.entries[pending.depth].shared_bytes;
    *(cudaStream_t *)stream = pending.entries[pending.depth].stream;
    return cudaSuccess;
}

/* Generated code calls it once per kernel and keeps the handle, whatever is returned. */
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host_stub)
{
    return MR_RUN(mr_kernel_of(host_stub, kernel));
}

cudaError_t cudaGetKernel(cudaKernel_t *kernelPtr, const void *entryFuncAddr)
{
    return MR_RUN(mr_kernel_of(entryFuncAddr, kernelPtr));
}

static cudaError_t function_of(const void *symbol, CUfunction *ret_function)
{
    CUkernel kernel;
    cudaError_t error = mr_kernel_of(symbol, &kernel);
    if (error != cudaSuccess)
        return error;
    return (cudaError_t)DRV(KernelGetFunction, 12000)(ret_function, kernel);
}

cudaError_t cudaGetFuncBySymbol(cudaFunction_t *functionPtr, const void *symbolPtr)
{
    return MR_RUN(function_of(symbolPtr, functionPtr));
}

static cudaError_t get_attributes(struct cudaFuncAttributes *ret_attributes, const void *func)
{
    CUkernel kernel;
    int device;
    int values[CU_FUNC_ATTRIBUTE_MAX] = {0};
    cudaError_t error = mr_kernel_of(func, &kernel);
    if (error == cudaSuccess)
        error = mr_current_device(&device);
    for (int i = 0; error == cudaSuccess && i < CU_FUNC_ATTRIBUTE_MAX; i++) {
        error = (cudaError_t)DRV(KernelGetAttribute, 12000)(&values[i], (CUfunction_attribute)i,
                                                            kernel, device);
    }
    if (error != cudaSuccess)
        return error;
    *ret_attributes = (struct cudaFuncAttributes){
        .sharedSizeBytes = (size_t)values[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES],
        .constSizeBytes = (size_t)values[CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES],
        .localSizeBytes = (size_t)values[CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES],
        .maxThreadsPerBlock = values[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK],
        .numRegs = values[CU_FUNC_ATTRIBUTE_NUM_REGS],
        .ptxVersion = values[CU_FUNC_ATTRIBUTE_PTX_VERSION],
        .binaryVersion = values[CU_FUNC_ATTRIBUTE_BINARY_VERSION],
        .cacheModeCA = values[CU_FUNC_ATTRIBUTE_CACHE_MODE_CA],
        .maxDynamicSharedSizeBytes = values[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES],
        .preferredShmemCarveout = values[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT],
    };
    return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attr, const void *func)
{
    return MR_RUN(get_attributes(attr, func));
}

static cudaError_t set_attribute(CUkernel kernel, enum cudaFuncAttribute attribute, int value,
                                 int device)
{
    return (cudaError_t)DRV(KernelSetAttribute, 12000)((CUfunction_attribute)attribute, value,
                                                       kernel, device);
}

cudaError_t cudaFuncSetAttribute(const void *func, enum cudaFuncAttribute attr, int value)
{
    CUkernel kernel = NULL;
    int device = 0;
    cudaError_t error = MR_RUN(mr_kernel_of(func, &kernel));
    if (error == cudaSuccess)
        error = mr_current_device(&device);
    return mr_finish(error != cudaSuccess ? error : set_attribute(kernel, attr, value, device));
}

cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel, enum cudaFuncAttribute attr,
                                            int value, int device)
{
    return MR_RUN(set_attribute(kernel, attr, value, device));
}

cudaError_t cudaFuncSetCacheConfig(const void *func, enum cudaFuncCache cacheConfig)
{
    CUkernel kernel = NULL;
    int device = 0;
    cudaError_t error = MR_RUN(mr_kernel_of(func, &kernel));
    if (error == cudaSuccess)
        error = mr_current_device(&device);
    if (error == cudaSuccess) {
        error = (cudaError_t)DRV(KernelSetCacheConfig, 12000)(kernel, (CUfunc_cache)cacheConfig,
                                                              device);
    }
    return mr_finish(error);
}

cudaError_t cudaFuncGetName(const char **name, const void *func)
{
    CUkernel kernel = NULL;
    cudaError_t error = MR_RUN(mr_kernel_of(func, &kernel));
    if (error != cudaSuccess)
        return error;
    return mr_finish((cudaError_t)DRV(KernelGetName, 12030)(name, kernel));
}

cudaError_t cudaFuncGetParamInfo(const void *func, size_t paramIndex, size_t *paramOffset,
                                 size_t *paramSize)
{
    CUkernel kernel = NULL;
    cudaError_t error = MR_RUN(mr_kernel_of(func, &kernel));
    if (error != cudaSuccess)
        return error;
    return mr_finish(
        (cudaError_t)DRV(KernelGetParamInfo, 12040)(kernel, paramIndex, paramOffset, paramSize));
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *numBlocks, const void *func,
                                                                   int blockSize,
                                                                   size_t dynamicSMemSize,
                                                                   unsigned flags)
{
    CUkernel kernel = NULL;
    cudaError_t error = MR_RUN(mr_kernel_of(func, &kernel));
    if (error != cudaSuccess)
        return error;
    return mr_finish((cudaError_t)DRV(OccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 7000)(
        numBlocks, (CUfunction)kernel, blockSize, dynamicSMemSize, flags));
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *numBlocks, const void *func,
                                                          int blockSize, size_t dynamicSMemSize)
{
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(numBlocks, func, blockSize,
                                                                  dynamicSMemSize, 0);
}

cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t *dynamicSmemSize, const void *func,
                                                      int numBlocks, int blockSize)
{
    CUkernel kernel = NULL;
    cudaError_t error = MR_RUN(mr_kernel_of(func, &kernel));
    if (error != cudaSuccess)
        return error;
    return mr_finish((cudaError_t)DRV(OccupancyAvailableDynamicSMemPerBlock, 10020)(
        dynamicSmemSize, (CUfunction)kernel, numBlocks, blockSize));
}
