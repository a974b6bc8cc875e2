/* peers.c: two devices: copies, kernels and faults (R980 on). */
#include "tests/gpu/sim_truth/truth.h"

static bool two_devices(CUcontext *ret_second)
{
    int n = 0, can = 0;

    OK(D(cuDeviceGetCount)(&n));
    if (n < 2)
        return false;
    OK(D(cuDeviceCanAccessPeer)(&can, 0, 1));
    if (!can)
        return false;
    OK(D(cuDevicePrimaryCtxRetain)(ret_second, 1));
    return true;
}

void group_peer_copies(void)
{
    CUcontext second;
    CUdeviceptr p, q;
    CUmemoryPool pool;
    CUmemAccess_flags flags = 9;
    CUmemLocation first = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    CUmemAccessDesc access = {first, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

    open_device();
    if (!two_devices(&second))
        return;
    p = device_memory(4096);
    OK(D(cuMemsetD32)(p, 5, 1024));
    synchronize();
    OK(D(cuCtxSetCurrent)(second));
    q = device_memory(4096);
    OK(D(cuMemsetD32)(q, 1, 1024));
    synchronize();
    OK(D(cuCtxSetCurrent)(context));
    CUresult code = D(cuMemcpyPeer)(q, second, p, context, 4096);
    synchronize();
    OK(D(cuCtxSetCurrent)(second));
    synchronize();
    row("R980", "cuMemcpyPeer between cuMemAlloc memory, no access", "code %d, word %u", code,
        word_at(q));
    OK(D(cuMemAllocAsync)(&q, 4096, NULL));
    OK(D(cuMemsetD32)(q, 1, 1024));
    synchronize();
    OK(D(cuCtxSetCurrent)(context));
    code = D(cuMemcpyPeer)(q, second, p, context, 4096);
    synchronize();
    OK(D(cuCtxSetCurrent)(second));
    synchronize();
    row("R981", "cuMemcpyPeer into pool memory, pool not opened", "code %d, word %u", code,
        word_at(q));
    OK(D(cuMemsetD32)(q, 1, 1024));
    synchronize();
    OK(D(cuCtxSetCurrent)(context));
    OK(D(cuCtxEnablePeerAccess)(second, 0));
    code = D(cuMemcpyPeer)(q, second, p, context, 4096);
    synchronize();
    OK(D(cuCtxSetCurrent)(second));
    synchronize();
    row("R985", "the same with peer access from the one context to the other", "code %d, word %u",
        code, word_at(q));
    OK(D(cuDeviceGetDefaultMemPool)(&pool, 1));
    OK(D(cuMemPoolGetAccess)(&flags, pool, &first));
    row("R982", "access of the other device to a pool", "%d", (int)flags);
    row("R983", "cuMemPoolSetAccess", "code %d", D(cuMemPoolSetAccess)(pool, &access, 1));
    OK(D(cuCtxSetCurrent)(context));
    code = D(cuMemcpyPeer)(q, second, p, context, 4096);
    synchronize();
    OK(D(cuCtxSetCurrent)(second));
    synchronize();
    row("R984", "cuMemcpyPeer into pool memory, pool opened", "code %d, word %u", code, word_at(q));
}

void group_peer_kernels(void)
{
    CUcontext second;
    CUdeviceptr p;

    open_device();
    if (!two_devices(&second))
        return;
    OK(D(cuCtxSetCurrent)(second));
    p = device_memory(4096);
    OK(D(cuCtxSetCurrent)(context));
    row("R990", "cuCtxEnablePeerAccess of itself", "code %d", D(cuCtxEnablePeerAccess)(context, 0));
    row("R991", "cuCtxDisablePeerAccess before it", "code %d", D(cuCtxDisablePeerAccess)(second));
    TWO("R992", "cuCtxEnablePeerAccess, twice", D(cuCtxEnablePeerAccess)(second, 0),
        D(cuCtxEnablePeerAccess)(second, 0));
    OK(launch_store(nonblocking, p, 9, 0));
    row("R993", "a kernel on a peer's memory with access", "code %d",
        D(cuStreamSynchronize)(nonblocking));
    WAITS("R994", "cuMemFree of a peer's memory, kernel here", nonblocking, D(cuMemFree)(p));
}

void group_peer_fault(void)
{
    CUcontext second;
    CUdeviceptr p;

    open_device();
    if (!two_devices(&second))
        return;
    OK(D(cuCtxSetCurrent)(second));
    p = device_memory(4096);
    OK(D(cuCtxSetCurrent)(context));
    OK(launch_store(nonblocking, p, 9, 0));
    row("R996", "a kernel on a peer's memory without access", "code %d",
        D(cuStreamSynchronize)(nonblocking));
    OK(D(cuCtxSetCurrent)(second));
    row("R997", "the other context then", "code %d", D(cuCtxSynchronize)());
}

/* Pinned memory is every context's: what of the other device's work does its end wait for? */
void group_peer_pinned(void)
{
    CUcontext second;
    void *here, *portable, *there;

    open_device();
    if (!two_devices(&second))
        return;
    OK(D(cuMemHostAlloc)(&here, 4096, 0));
    OK(D(cuCtxSetCurrent)(second));
    OK(D(cuMemHostAlloc)(&there, 4096, 0));
    OK(D(cuMemHostAlloc)(&portable, 4096, CU_MEMHOSTALLOC_PORTABLE));
    OK(D(cuCtxSetCurrent)(context));
    WAITS("R1180", "cuMemFreeHost of the other device's memory, kernel here", nonblocking,
          D(cuMemFreeHost)(there));
    WAITS("R1181", "the same of portable memory", nonblocking, D(cuMemFreeHost)(portable));
    arm(nonblocking);
    OK(D(cuCtxSetCurrent)(second));
    CUresult code = D(cuMemFreeHost)(here);
    row("R1182", "cuMemFreeHost with the other device current, kernel in the owner's",
        "%s, code %d", *flag ? "waits" : "does not wait", (int)code);
    OK(D(cuCtxSetCurrent)(context));
    synchronize();
}
