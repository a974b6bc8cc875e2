/* misc.c: calls that programs make in passing and that change nothing here. */
#include "tests/sim/sim_internal.h"

#include <string.h>

CUresult cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget target,
                                    CUflushGPUDirectRDMAWritesScope scope)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    (void)target;
    (void)scope;
    return CUDA_SUCCESS;
}

CUresult cuProfilerStart(void)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    return CUDA_SUCCESS;
}

CUresult cuProfilerStop(void)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    return CUDA_SUCCESS;
}

CUresult cuAllograftFuture(void *to, CUdeviceptr from, size_t bytes, unsigned a, unsigned b,
                           unsigned c, unsigned d, unsigned e, double x, float y, unsigned f,
                           double *ret_sum)
{
    *ret_sum = a + 2. * b + 3. * c + 4. * d + 5. * e + 6. * f + 7. * x + 8. * (double)y;
    return cuMemcpyDtoH_v2(to, from, bytes);
}

CUresult cuDeviceGetLuid(char *luid, unsigned int *node_mask, CUdevice dev)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    (void)luid;
    (void)node_mask;
    (void)dev;
    return CUDA_ERROR_NOT_SUPPORTED; /* of Windows only */
}

CUresult cuDeviceGetExecAffinitySupport(int *supported, CUexecAffinityType type, CUdevice dev)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!supported || (unsigned)type >= CU_EXEC_AFFINITY_TYPE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_ok(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    *supported = 0;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetExecAffinity(CUexecAffinityParam *param, CUexecAffinityType type)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    (void)type;
    return param ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetHostAtomicCapabilities(unsigned int *capabilities,
                                           const CUatomicOperation *operations, unsigned int count,
                                           CUdevice dev)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!capabilities || !operations || !count)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_ok(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    memset(capabilities, 0, count * sizeof(*capabilities));
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAtomicCapabilities(unsigned int *capabilities,
                                          const CUatomicOperation *operations, unsigned int count,
                                          CUdevice src, CUdevice dst)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!capabilities || !operations || !count)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_ok(src) || !sim_device_ok(dst) || src == dst)
        return CUDA_ERROR_INVALID_DEVICE;
    memset(capabilities, 0, count * sizeof(*capabilities));
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t *width, CUarray_format format,
                                            unsigned int n_channels, CUdevice dev)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    (void)format;
    if (!width || !n_channels)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_ok(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    *width = 268435456 / n_channels;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetProperties(CUdevprop *prop, CUdevice dev)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!prop)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_ok(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    *prop = (CUdevprop){
        .maxThreadsPerBlock = 1024,
        .maxThreadsDim = {1024, 1024, 64},
        .maxGridSize = {2147483647, 65535, 65535},
        .sharedMemPerBlock = 49152,
        .totalConstantMemory = 65536,
        .SIMDWidth = 32,
        .memPitch = 2147483647,
        .regsPerBlock = 65536,
        .clockRate = 1000000,
        .textureAlign = 512,
    };
    return CUDA_SUCCESS;
}
