/* Reaches the driver as a program linked with -lcuda does: through exported symbols. */
#include "tests/preload/lookup/workload.h"

int main(void)
{
    struct calls calls = {
        .cuInit = cuInit,
        .cuDeviceGet = cuDeviceGet,
        .cuDevicePrimaryCtxRetain = cuDevicePrimaryCtxRetain,
        .cuCtxSetCurrent = cuCtxSetCurrent,
        .cuMemAlloc_v2 = cuMemAlloc,
        .cuMemAllocPitch_v2 = cuMemAllocPitch,
        .cuMemFree_v2 = cuMemFree,
        .cuMemFreeAsync = cuMemFreeAsync,
        .cuMemGetInfo_v2 = cuMemGetInfo,
        .cuMemGetAddressRange_v2 = cuMemGetAddressRange,
        .cuPointerGetAttribute = cuPointerGetAttribute,
        .cuMemcpyHtoD_v2 = cuMemcpyHtoD,
        .cuMemcpyDtoH_v2 = cuMemcpyDtoH,
    };
    return workload_run(&calls);
}
