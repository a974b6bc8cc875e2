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

/* Pieces that are open to both devices; the last question leaves a fault. */
void group_peer_pieces(void)
{
    const CUmemLocation first = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                        other = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1},
                        node = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = 0};
    const CUmemAccessDesc both[] = {{first, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
                                    {other, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
    const size_t size = (size_t)2 << 20;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    CUmemGenericAllocationHandle handle;
    CUcontext second;
    CUdeviceptr p, to;

    open_device();
    if (!two_devices(&second))
        return;
    OK(D(cuMemAddressReserve)(&p, 3 * size, 0, 0, 0));
    for (unsigned i = 0; i < 3; i++) {
        prop.location = i == 1 ? node : first;
        OK(D(cuMemCreate)(&handle, size, &prop, 0));
        OK(D(cuMemMap)(p + i * size, size, 0, handle, 0));
    }
    CUresult code = D(cuMemSetAccess)(p, 2 * size, both, 2);
    OK(D(cuMemSetAccess)(p + 2 * size, size, both, 1));
    OK(D(cuMemsetD32)(p, 5, 2 * size / 4));
    synchronize();
    OK(D(cuCtxSetCurrent)(second));
    to = device_memory(4096);
    CUresult copy = D(cuMemcpyDtoD)(to, p + size - 2048, 4096);
    synchronize();
    row("R1360", "a device on another one's piece and on one on the host", "codes %d %d, %u %u",
        code, copy, word_at(to), word_at(to + 4092));
    row("R1361", "a copy of a piece that is not open to the device", "code %d",
        D(cuMemcpyDtoD)(to, p + 2 * size, 4096));
    row("R1362", "its end", "code %d", D(cuCtxSynchronize)());
}
