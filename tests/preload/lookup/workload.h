/* workload.h: the driver calls that every lookup path must lead to, and a run that prints their
 * results. */
#ifndef WORKLOAD_H
#define WORKLOAD_H

#include <cuda.h>

/* Pointers as a program got them through its lookup path; the names are the driver's. */
struct calls {
    CUresult (*cuInit)(unsigned);
    CUresult (*cuDeviceGet)(CUdevice *, int);
    CUresult (*cuDevicePrimaryCtxRetain)(CUcontext *, CUdevice);
    CUresult (*cuCtxSetCurrent)(CUcontext);
    CUresult (*cuMemAlloc_v2)(CUdeviceptr *, size_t);
    CUresult (*cuMemAllocPitch_v2)(CUdeviceptr *, size_t *, size_t, size_t, unsigned);
    CUresult (*cuMemFree_v2)(CUdeviceptr);
    CUresult (*cuMemFreeAsync)(CUdeviceptr, CUstream);
    CUresult (*cuMemGetInfo_v2)(size_t *, size_t *);
    CUresult (*cuMemGetAddressRange_v2)(CUdeviceptr *, size_t *, CUdeviceptr);
    CUresult (*cuPointerGetAttribute)(void *, CUpointer_attribute, CUdeviceptr);
    CUresult (*cuMemcpyHtoD_v2)(CUdeviceptr, const void *, size_t);
    CUresult (*cuMemcpyDtoH_v2)(void *, CUdeviceptr, size_t);
};

/* cuMemAlloc_v2 is called this often by one run, of which this many succeed. */
#define WORKLOAD_ALLOC_CALLS 6
#define WORKLOAD_ALLOCS      5

/* Uses each call once or more; prints codes and bytes. Returns 0 when the bytes were right. */
int workload_run(const struct calls *calls);

#endif
