/* A redirect that thinks of nothing but speed, to show that the tests of the order would catch
 * it. */
#include <cuda.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *ret_p, size_t size_bytes)
{
    return cuMemAllocAsync(ret_p, size_bytes, CU_STREAM_LEGACY);
}

/* The legacy stream waits for no non-blocking stream, and the host for nothing at all. */
EXPORT CUresult cuMemFree_v2(CUdeviceptr p)
{
    return cuMemFreeAsync(p, CU_STREAM_LEGACY);
}
