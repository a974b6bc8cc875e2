/* memory.c: codes, sizes and pointer attributes of memory, and memory that is mapped (R200 to R399,
 * R960 on). */
#include "tests/gpu/sim_truth/truth.h"

void group_alloc_codes(void)
{
    CUdeviceptr p = 0;
    CUmemoryPool pool;
    CUresult code, again;
    size_t pitch;

    open_device();
    row("R200", "cuMemAlloc of 0 bytes", "code %d", D(cuMemAlloc)(&p, 0));
    row("R201", "cuMemAlloc to NULL", "code %d", D(cuMemAlloc)(NULL, 1));
    row("R202", "cuMemAlloc of 1 PiB", "code %d", D(cuMemAlloc)(&p, (size_t)1 << 50));
    row("R203", "cuMemAllocManaged of 0 bytes", "code %d",
        D(cuMemAllocManaged)(&p, 0, CU_MEM_ATTACH_GLOBAL));
    row("R204", "cuMemAllocAsync of 0 bytes", "code %d", D(cuMemAllocAsync)(&p, 0, NULL));
    OK(D(cuDeviceGetDefaultMemPool)(&pool, 0));
    row("R205", "cuMemAllocFromPoolAsync of 0 bytes", "code %d",
        D(cuMemAllocFromPoolAsync)(&p, 0, pool, NULL));
    row("R206", "cuMemAllocFromPoolAsync of 1 PiB", "code %d",
        D(cuMemAllocFromPoolAsync)(&p, (size_t)1 << 50, pool, NULL));
    code = D(cuMemAllocPitch)(&p, &pitch, 700, 3, 4);
    row("R207", "cuMemAllocPitch of 700", "code %d, pitch %zu", code, pitch);
    row("R208", "cuMemAllocPitch of elements of 3", "code %d",
        D(cuMemAllocPitch)(&p, &pitch, 700, 3, 3));
    row("R209", "cuMemAllocPitch of width 0", "code %d", D(cuMemAllocPitch)(&p, &pitch, 0, 3, 4));
    row("R210", "cuMemFree of 0", "code %d", D(cuMemFree)(0));
    p = device_memory(4096);
    row("R211", "cuMemFree inside an allocation", "code %d", D(cuMemFree)(p + 512));
    code = D(cuMemFree)(p);
    again = D(cuMemFree)(p);
    row("R212", "cuMemFree, then again", "codes %d %d", code, again);

    p = device_memory(4096);
    row("R214", "cuMemFreeAsync inside an allocation", "code %d",
        D(cuMemFreeAsync)(p + 512, nonblocking));
    row("R215", "cuMemFreeAsync of 0", "code %d", D(cuMemFreeAsync)(0, nonblocking));
    p = managed_memory(4096);
    row("R216", "cuMemFreeAsync of managed memory", "code %d", D(cuMemFreeAsync)(p, nonblocking));
    row("R217", "cuMemFree of pinned memory", "code %d", D(cuMemFree)(device_of(flag)));
    p = pool_memory(4096);
    code = D(cuMemFree)(p);
    row("R218", "cuMemFree of pool memory, then again", "codes %d %d", code, D(cuMemFree)(p));
}

/* In a process of its own: drivers have been seen to lock up some time after this. */
void group_free_async_codes(void)
{
    open_device();
    CUdeviceptr p = device_memory(4096);
    synchronize();
    row("R213", "cuMemFreeAsync of cuMemAlloc memory", "code %d",
        D(cuMemFreeAsync)(p, nonblocking));
    /* What a second free of it says differs from run to run, and one run crashed in the driver. */
}

void group_host_codes(void)
{
    static char plain[3 * 4096];
    CUdeviceptr p;
    void *q;
    unsigned flags;

    open_device();
    row("R220", "cuMemAllocHost of 0 bytes", "code %d", D(cuMemAllocHost)(&q, 0));
    row("R221", "cuMemFreeHost of something else", "code %d", D(cuMemFreeHost)(plain));
    row("R222", "cuMemHostRegister", "code %d", D(cuMemHostRegister)(plain, 4096, 0));
    row("R223", "cuMemHostRegister again", "code %d", D(cuMemHostRegister)(plain, 4096, 0));
    TWO("R224", "cuMemHostUnregister, then again", D(cuMemHostUnregister)(plain),
        D(cuMemHostUnregister)(plain));
    row("R225", "device pointer of pinned memory is the pointer", "%s",
        yes_no(D(cuMemHostGetDevicePointer)(&p, (void *)flag, 0) == CUDA_SUCCESS &&
               p == device_of(flag)));
    row("R226", "device pointer of pageable memory", "code %d",
        D(cuMemHostGetDevicePointer)(&p, plain, 0));
    row("R227", "flags of pageable memory", "code %d", D(cuMemHostGetFlags)(&flags, plain));
    row("R228", "cuMemHostRegister of 0 bytes", "code %d", D(cuMemHostRegister)(plain, 0, 0));
}

void group_sizes(void)
{
    CUdeviceptr p, base = 0;
    size_t before, after, size = 0;
    CUresult code;

    open_device();
    p = device_memory((size_t)64 << 20); /* whatever the driver takes at first, it has now */
    OK(D(cuMemFree)(p));
    OK(D(cuMemGetInfo)(&before, &size));
    p = device_memory((size_t)5 << 20);
    OK(D(cuMemGetInfo)(&after, &size));
    row("R230", "5 MiB less free memory after 5 MiB, in MiB", "%zu", (before - after) >> 20);
    OK(D(cuMemFree)(p));
    row("R231", "cuMemGetInfo to NULL", "code %d", D(cuMemGetInfo)(NULL, NULL));
    p = device_memory(1000);
    code = D(cuMemGetAddressRange)(&base, &size, p + 999);
    row("R232", "address range at the last byte", "code %d, base %s, size %zu", code,
        base == p ? "right" : "wrong", size);
    row("R233", "address range past the end", "code %d",
        D(cuMemGetAddressRange)(&base, &size, p + 1000));
    row("R234", "address range past the end, to NULL", "code %d",
        D(cuMemGetAddressRange)(NULL, NULL, p + 1000));
    row("R235", "address range of a local variable", "code %d",
        D(cuMemGetAddressRange)(&base, &size, (CUdeviceptr)(uintptr_t)&p));
    p = pool_memory(1000);
    code = D(cuMemGetAddressRange)(&base, &size, p + 999);
    row("R236", "address range of pool memory", "code %d, base %s, size %zu", code,
        base == p ? "right" : "wrong", size);
    row("R237", "alignment of 1000 bytes to 512", "%s",
        yes_no(p % 512 == 0 && device_memory(1000) % 512 == 0));
    row("R238", "alignment of 4 MiB to 2 MiB", "%s",
        yes_no(device_memory((size_t)4 << 20) % ((size_t)2 << 20) == 0));
}

void group_copy_codes(void)
{
    CUdeviceptr p;
    char plain[64];

    open_device();
    p = device_memory(256);
    row("R240", "cuMemcpyDtoD past the end", "code %d", D(cuMemcpyDtoD)(p, p + 4, 256));
    row("R241", "cuMemsetD8 past the end", "code %d", D(cuMemsetD8)(p, 0, 257));
    row("R242", "cuMemsetD32 at an odd address", "code %d", D(cuMemsetD32)(p + 1, 0, 1));
    row("R243", "cuMemcpyHtoD of 0 bytes", "code %d", D(cuMemcpyHtoD)(p, plain, 0));
    row("R244", "cuMemcpyHtoD to pageable memory", "code %d",
        D(cuMemcpyHtoD)((CUdeviceptr)(uintptr_t)plain, plain + 32, 8));
    row("R245", "cuMemcpyHtoD to 0", "code %d", D(cuMemcpyHtoD)(0, plain, 8));
    row("R246", "cuMemcpy between host pointers", "code %d",
        D(cuMemcpy)((CUdeviceptr)(uintptr_t)plain, (CUdeviceptr)(uintptr_t)(plain + 32), 8));
    row("R247", "cuMemsetD8 of 0 bytes", "code %d", D(cuMemsetD8)(p, 0, 0));
}

/* Rows of 32 bytes, slices of 4 rows: of each the source, within what is 4 KiB long. */
static CUresult copy_box(CUdeviceptr p, size_t x, size_t y, size_t width, size_t rows, size_t depth,
                         size_t pitch)
{
    CUDA_MEMCPY3D box = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                         .srcDevice = p,
                         .srcXInBytes = x,
                         .srcY = y,
                         .srcPitch = pitch,
                         .srcHeight = 4,
                         .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                         .dstDevice = p + 2048,
                         .dstPitch = 64,
                         .dstHeight = 8,
                         .WidthInBytes = width,
                         .Height = rows,
                         .Depth = depth};

    return D(cuMemcpy3D)(&box);
}

static CUresult copy_rectangle(CUdeviceptr p, size_t x, size_t width, size_t rows, size_t pitch)
{
    CUDA_MEMCPY2D rectangle = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                               .srcDevice = p,
                               .srcXInBytes = x,
                               .srcPitch = pitch,
                               .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                               .dstDevice = p + 2048,
                               .dstPitch = 64,
                               .WidthInBytes = width,
                               .Height = rows};

    return D(cuMemcpy2D)(&rectangle);
}

void group_rectangle_codes(void)
{
    CUdeviceptr p;

    open_device();
    p = device_memory(4096);
    row("R250", "cuMemcpy2D whose rows end at the pitch", "code %d",
        copy_rectangle(p, 8, 24, 2, 32));
    row("R251", "cuMemcpy2D of a pitch less than the width", "code %d",
        copy_rectangle(p, 0, 40, 2, 32));
    row("R252", "cuMemcpy2D of a pitch less than x and the width", "code %d",
        copy_rectangle(p, 16, 24, 2, 32));
    row("R253", "the same of one row", "code %d", copy_rectangle(p, 16, 24, 1, 32));
    row("R254", "cuMemcpy2D of a pitch of 0, two rows", "code %d", copy_rectangle(p, 0, 24, 2, 0));
    row("R255", "cuMemcpy2D of a pitch of 1 TiB", "code %d",
        copy_rectangle(p, 0, 24, 2, (size_t)1 << 40));
    row("R256", "cuMemcpy3D of slices that end at the height", "code %d",
        copy_box(p, 0, 2, 16, 2, 2, 32));
    row("R257", "cuMemcpy3D of a height less than y and the rows", "code %d",
        copy_box(p, 0, 3, 16, 2, 2, 32));
    row("R258", "the same of one slice", "code %d", copy_box(p, 0, 3, 16, 2, 1, 32));
    row("R259", "cuMemcpy3D of no slices", "code %d", copy_box(p, 0, 0, 16, 2, 0, 32));
    row("R260", "cuMemsetD2D8 of a pitch less than the width", "code %d",
        D(cuMemsetD2D8)(p, 8, 0, 16, 2));
    row("R261", "cuMemsetD2D32 of a pitch of 18", "code %d", D(cuMemsetD2D32)(p, 18, 0, 4, 2));
}

void attribute_line(const char *id, const char *name, CUdeviceptr p)
{
    CUcontext ctx = NULL;
    CUmemoryPool pool = NULL;
    void *host = NULL;
    int type = -1, managed = -1, ordinal = -1, ipc = -1, rdma = -1, mapped = -1;
    unsigned long long kinds = 99;
    size_t size = 0;
    CUresult code = D(cuPointerGetAttribute)(&ctx, CU_POINTER_ATTRIBUTE_CONTEXT, p), host_code;

    D(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p);
    D(cuPointerGetAttribute)(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p);
    D(cuPointerGetAttribute)(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p);
    D(cuPointerGetAttribute)(&ipc, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, p);
    D(cuPointerGetAttribute)(&rdma, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, p);
    D(cuPointerGetAttribute)(&mapped, CU_POINTER_ATTRIBUTE_MAPPED, p);
    D(cuPointerGetAttribute)(&kinds, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, p);
    D(cuPointerGetAttribute)(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, p);
    D(cuPointerGetAttribute)(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p);
    host_code = D(cuPointerGetAttribute)(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, p);
    row(id, name,
        "code %d, context %s, type %d, managed %d, ordinal %d, legacy ipc %d, rdma %d, mapped %d, "
        "handle types %llu, size %zu, pool %s, host pointer code %d",
        code, ctx ? "set" : "null", type, managed, ordinal, ipc, rdma, mapped, kinds, size,
        pool ? "set" : "null", host_code);
}

void group_attributes(void)
{
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                   CU_POINTER_ATTRIBUTE_DEVICE_POINTER};
    int type = 9, ordinal = 9;
    CUdeviceptr pointer = 9;
    void *data[] = {&type, &ordinal, &pointer};
    CUresult code;

    open_device();
    attribute_line("R300", "attributes of cuMemAlloc memory", device_memory(1000));
    attribute_line("R301", "attributes of pool memory", pool_memory(1000));
    attribute_line("R302", "attributes of managed memory", managed_memory(1000));
    attribute_line("R303", "attributes of pinned memory", device_of(flag));
    row("R304", "attribute of a local variable", "code %d",
        D(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                 (CUdeviceptr)(uintptr_t)&type));
    code = D(cuPointerGetAttributes)(3, which, data, (CUdeviceptr)(uintptr_t)&type);
    row("R305", "attributes of a local variable", "code %d, type %d, ordinal %d, pointer %s", code,
        type, ordinal, pointer ? "set" : "null");
    row("R306", "attribute of freed memory", "code %d", ({
            CUdeviceptr p = device_memory(4096);
            OK(D(cuMemFree)(p));
            D(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p);
        }));
    row("R307", "attribute past the end of an allocation", "code %d",
        D(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                 device_memory(1000) + 1000));
}

/* As it was, once it is set, and once it is unset. */
static void sync_line(const char *id, const char *name, CUdeviceptr p)
{
    unsigned said[3] = {9, 9, 9}, on = 1, off = 0;
    CUresult code;

    D(cuPointerGetAttribute)(&said[0], CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p);
    code = D(cuPointerSetAttribute)(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p);
    D(cuPointerGetAttribute)(&said[1], CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p);
    D(cuPointerSetAttribute)(&off, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p);
    D(cuPointerGetAttribute)(&said[2], CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p);
    row(id, name, "code %d, %u %u %u", code, said[0] & 1, said[1] & 1, said[2] & 1);
}

void group_sync_memops(void)
{
    CUdeviceptr p;
    unsigned said = 9;

    open_device();
    sync_line("R308", "SYNC_MEMOPS of cuMemAlloc memory, set, unset", device_memory(1000));
    sync_line("R309", "the same of managed memory", managed_memory(1000));
    sync_line("R310", "the same of pool memory", p = pool_memory(1000));
    synchronize();
    OK(D(cuMemFree)(p));
    p = pool_memory(1000);
    D(cuPointerGetAttribute)(&said, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p);
    row("R311", "SYNC_MEMOPS of pool memory after another had unset it and freed it", "%u",
        said & 1);
}

void group_mapping(void)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    CUmemGenericAllocationHandle handle;
    CUmemAccessDesc access = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr p;
    size_t unit;

    open_device();
    prop.location.type = access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    OK(D(cuMemGetAllocationGranularity)(&unit, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    row("R960", "granularity", "%zu", unit);
    row("R961", "cuMemCreate of an odd size", "code %d",
        D(cuMemCreate)(&handle, unit + 1, &prop, 0));
    OK(D(cuMemAddressReserve)(&p, 4 * unit, 0, 0, 0));
    OK(D(cuMemCreate)(&handle, unit, &prop, 0));
    TWO("R962", "cuMemMap, then again", D(cuMemMap)(p, unit, 0, handle, 0),
        D(cuMemMap)(p, unit, 0, handle, 0));
    row("R963", "cuMemAddressFree while mapped", "code %d", D(cuMemAddressFree)(p, 4 * unit));
    OK(D(cuMemSetAccess)(p, unit, &access, 1));
    OK(D(cuMemRelease)(handle));
    OK(launch_store(nonblocking, p, 7, 0));
    synchronize();
    row("R964", "the mapping outlives its handle", "%s", yes_no(word_at(p) == 7));
    attribute_line("R965", "attributes of mapped memory", p);
    CUdeviceptr base = 0;
    size_t size = 0;
    CUresult code = D(cuMemGetAddressRange)(&base, &size, p + 64);
    row("R969", "address range of mapped memory", "code %d, base %s, size %zu", code,
        base == p ? "right" : "wrong", size);
    row("R966", "cuMemFree of mapped memory", "code %d", D(cuMemFree)(p));
    TWO("R967", "cuMemUnmap, then again", D(cuMemUnmap)(p, unit), D(cuMemUnmap)(p, unit));
    row("R968", "cuMemAddressFree", "code %d", D(cuMemAddressFree)(p, 4 * unit));
}
