/* pieces.c: ranges of addresses made of pieces that are mapped to the device or to the host
 * (R1200 on). */
#include "tests/gpu/sim_truth/truth.h"

#define WORDS   (PIECE / 4)
#define SOON_NS 20000000ull

static const CUmemLocation device = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
static const CUmemLocation node = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = 0};
static const CUmemLocation host = {.type = CU_MEM_LOCATION_TYPE_HOST, .id = 0};

typedef CUmemGenericAllocationHandle handle_t;

static CUresult create(handle_t *handle, CUmemLocation location, size_t bytes)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = location};

    return D(cuMemCreate)(handle, bytes, &prop, 0);
}

static handle_t piece(CUmemLocation location)
{
    handle_t handle = 0;

    OK(create(&handle, location, PIECE));
    return handle;
}

static CUdeviceptr reserve(unsigned pieces)
{
    CUdeviceptr p = 0;

    OK(D(cuMemAddressReserve)(&p, pieces * PIECE, 0, 0, 0));
    return p;
}

static CUresult open_to(CUmemLocation location, CUdeviceptr p, size_t bytes,
                        CUmemAccess_flags flags)
{
    const CUmemAccessDesc access = {.location = location, .flags = flags};

    return D(cuMemSetAccess)(p, bytes, &access, 1);
}

static CUresult map_only(CUdeviceptr p, handle_t handle)
{
    return D(cuMemMap)(p, PIECE, 0, handle, 0);
}

static void map(CUdeviceptr p, handle_t handle)
{
    OK(map_only(p, handle));
    OK(open_to(device, p, PIECE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
}

CUdeviceptr piece_range(unsigned pieces)
{
    CUdeviceptr p = reserve(pieces);

    for (unsigned i = 0; i < pieces; i++)
        map(p + i * PIECE, piece(i % 2 ? node : device));
    return p;
}

static long long free_bytes(void)
{
    size_t bytes = 0;

    synchronize();
    OK(D(cuMemGetInfo)(&bytes, NULL));
    return (long long)bytes;
}

/* ---- making, mapping, unmapping ---- */

static void create_lines(void)
{
    const CUmemLocation far = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = 1000};
    const CUmemLocation current = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT};
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = node};
    CUmemAllocationProp said = {0};
    size_t least = 0, best = 0;
    long long before;
    handle_t handle;

    CUresult code =
        D(cuMemGetAllocationGranularity)(&least, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    D(cuMemGetAllocationGranularity)(&best, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    row("R1200", "granularity of host memory, least and recommended", "code %d, %zu %zu", code,
        least, best);
    row("R1201", "cuMemCreate on the host", "code %d", create(&handle, host, PIECE));
    row("R1202", "cuMemCreate on NUMA node 1000", "code %d", create(&handle, far, PIECE));
    row("R1203", "cuMemCreate on the current NUMA node", "code %d",
        create(&handle, current, PIECE));
    row("R1204", "cuMemCreate on the host of 4 KiB", "code %d", create(&handle, node, 4096));
    before = free_bytes();
    code = create(&handle, node, 8 * PIECE);
    row("R1205", "16 MiB on NUMA node 0, of the card in MiB", "code %d, %lld", code,
        (before - free_bytes()) >> 20);
    OK(D(cuMemGetAllocationPropertiesFromHandle)(&said, handle));
    row("R1206", "its properties", "location %d, id %d", (int)said.location.type, said.location.id);
    before = free_bytes();
    code = create(&handle, device, 16 * PIECE);
    row("R1207", "32 MiB on the device, of the card in MiB", "code %d, %lld", code,
        (before - free_bytes()) >> 20);
}

static void access_lines(void)
{
    CUdeviceptr p = reserve(2);
    const CUmemLocation nowhere = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 99};
    unsigned long long none = 9, on_host = 9;
    CUresult code;

    OK(map_only(p, piece(node)));
    OK(map_only(p + PIECE, piece(device)));
    code = D(cuMemGetAccess)(&none, &device, p);
    row("R1210", "access to what was only mapped", "code %d, %llu", code, none);
    row("R1211", "cuMemSetAccess of two mappings", "code %d",
        open_to(device, p, 2 * PIECE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    row("R1212", "cuMemSetAccess of a part of a mapping", "code %d",
        open_to(device, p, PIECE / 2, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    row("R1213", "cuMemSetAccess of a device that is not there", "code %d",
        open_to(nowhere, p, PIECE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    row("R1214", "cuMemSetAccess of the node to host memory", "code %d",
        open_to(node, p, PIECE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    row("R1215", "cuMemSetAccess of the host to host memory", "code %d",
        open_to(host, p, PIECE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    code = D(cuMemGetAccess)(&on_host, &host, p);
    row("R1216", "access of the host then", "code %d, %llu", code, on_host);
    row("R1217", "cuMemSetAccess of the host to device memory", "code %d",
        open_to(host, p + PIECE, PIECE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    OK(launch_store(nonblocking, p, 7, 0));
    synchronize();
    row("R1218", "what the host reads of host memory that it was let in to", "%u",
        on_host == 3 ? *(volatile uint32_t *)(uintptr_t)p : 0);
    OK(D(cuMemUnmap)(p + PIECE, PIECE));
    row("R1219", "cuMemSetAccess of a mapping and a hole", "code %d",
        open_to(device, p, 2 * PIECE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
}

static void unmap_lines(void)
{
    CUdeviceptr p = piece_range(4);
    handle_t kept = 0, twice = piece(device);

    row("R1220", "cuMemUnmap of a part of a mapping", "code %d", D(cuMemUnmap)(p, PIECE / 2));
    row("R1221", "cuMemUnmap of a mapping and a half", "code %d",
        D(cuMemUnmap)(p, PIECE + PIECE / 2));
    row("R1222", "cuMemUnmap of one of four", "code %d", D(cuMemUnmap)(p + PIECE, PIECE));
    row("R1223", "cuMemUnmap of a mapping, a hole and a mapping", "code %d",
        D(cuMemUnmap)(p, 3 * PIECE));
    row("R1224", "cuMemUnmap beyond the reservation", "code %d",
        D(cuMemUnmap)(p + 3 * PIECE, 2 * PIECE));
    row("R1225", "cuMemAddressFree of a part", "code %d", D(cuMemAddressFree)(p, PIECE));
    CUresult code = D(cuMemRetainAllocationHandle)(&kept, (void *)(uintptr_t)(p + PIECE));
    row("R1226", "cuMemRetainAllocationHandle where nothing is mapped", "code %d", code);
    for (unsigned i = 0; i < 4; i++)
        (void)D(cuMemUnmap)(p + i * PIECE, PIECE);
    map(p, twice);
    map(p + PIECE, twice);
    OK(launch_store(nonblocking, p + 8, 5, 0));
    synchronize();
    row("R1227", "one memory at two places", "%u", word_at(p + PIECE + 8));
    code = D(cuMemRetainAllocationHandle)(&kept, (void *)(uintptr_t)(p + PIECE + 4096));
    row("R1228", "cuMemRetainAllocationHandle inside a mapping", "code %d, %s", code,
        kept == twice ? "the same" : "another");
}

void group_piece_codes(void)
{
    open_device();
    create_lines();
    access_lines();
    unmap_lines();
}

/* ---- copies and fills ---- */

static uint32_t words[2 * WORDS];

static bool all_words(size_t n, uint32_t value)
{
    for (size_t i = 0; i < n; i++)
        if (words[i] != value)
            return false;
    return true;
}

/* The second half of each of four pieces and the first half of the next one, by every call. */
static void across_lines(CUdeviceptr p, CUdeviceptr q)
{
    const CUdeviceptr from = p + PIECE / 2, to = p + 5 * PIECE / 2;
    CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = from,
                          .srcPitch = 1 << 20,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = to,
                          .dstPitch = 1 << 20,
                          .WidthInBytes = 1 << 19,
                          .Height = 2};
    CUresult code = D(cuMemsetD32)(from, 3, WORDS);

    synchronize();
    (void)D(cuMemcpyDtoD)(q, from, PIECE);
    (void)D(cuMemcpyDtoH)(words, q, PIECE);
    row("R1230", "cuMemsetD32 across two mappings", "code %d, %s", code,
        all_words(WORDS, 3) ? "right" : "wrong");
    code = D(cuMemcpyDtoD)(to, from, PIECE);
    synchronize();
    memset(words, 0, PIECE);
    CUresult back = D(cuMemcpyDtoH)(words, to, PIECE);
    row("R1231", "cuMemcpyDtoD and cuMemcpyDtoH across two mappings", "codes %d %d, %s", code, back,
        all_words(WORDS, 3) ? "right" : "wrong");
    for (size_t i = 0; i < WORDS; i++)
        words[i] = 4;
    code = D(cuMemcpyHtoD)(from, words, PIECE);
    (void)D(cuMemcpyDtoH)(words, from, PIECE);
    row("R1232", "cuMemcpyHtoD across two mappings", "code %d, %s", code,
        all_words(WORDS, 4) ? "right" : "wrong");
    row("R1233", "cuMemcpy2D across two mappings", "code %d", D(cuMemcpy2D)(&rows));
    row("R1234", "cuMemsetD2D32 across two mappings", "code %d",
        D(cuMemsetD2D32)(from, 1 << 20, 5, 1024, 2));
    synchronize();
    row("R1235", "cuMemcpyDtoD beyond the last mapping", "code %d",
        D(cuMemcpyDtoD)(q, p + 7 * PIECE / 2, PIECE));
    row("R1236", "cuMemsetD8 beyond the last mapping", "code %d",
        D(cuMemsetD8)(p + 7 * PIECE / 2, 1, PIECE));
}

void group_piece_copies(void)
{
    CUdeviceptr p, q;

    open_device();
    p = piece_range(4);
    q = device_memory(2 * PIECE);
    across_lines(p, q);
    OK(D(cuMemUnmap)(p + PIECE, PIECE));
    row("R1240", "cuMemcpyDtoH where nothing is mapped", "code %d",
        D(cuMemcpyDtoH)(words, p + PIECE, 4096));
    row("R1241", "cuMemcpyHtoD where nothing is mapped", "code %d",
        D(cuMemcpyHtoD)(p + PIECE, words, 4096));
    row("R1242", "cuMemsetD8 where nothing is mapped", "code %d",
        D(cuMemsetD8)(p + PIECE, 1, 4096));
    row("R1243", "cuMemcpyDtoDAsync across a hole", "code %d",
        D(cuMemcpyDtoDAsync)(q, p + PIECE / 2, 2 * PIECE, nonblocking));
    row("R1244", "cuMemcpyDtoDAsync into a hole", "code %d",
        D(cuMemcpyDtoDAsync)(p + PIECE / 2, q, PIECE, nonblocking));
    row("R1245", "cuMemsetD8 into a hole", "code %d", D(cuMemsetD8)(p + PIECE / 2, 1, PIECE));
}

/* ---- what the driver says of them ---- */

static void place_lines(CUdeviceptr p)
{
    CUdeviceptr base = 0, start = 0;
    uint64_t from = 0;
    size_t size = 0, mapped = 0;
    CUresult code = D(cuMemGetAddressRange)(&base, &size, p + PIECE + 64);

    row("R1250", "address range of the second piece", "code %d, base +%lld, size %zu", code,
        (long long)(base - p), size);
    code = D(cuMemGetAddressRange)(&base, &size, p + 3 * PIECE);
    row("R1251", "address range where nothing is mapped", "code %d", code);
    code = D(cuPointerGetAttribute)(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, p + PIECE + 64);
    row("R1252", "RANGE_START_ADDR of the second piece", "code %d, +%lld", code,
        (long long)(start - p));
    code = D(cuPointerGetAttribute)(&from, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, p + PIECE + 64);
    D(cuPointerGetAttribute)(&mapped, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, p + PIECE + 64);
    row("R1253", "MAPPING_BASE_ADDR and SIZE of the second piece", "code %d, +%lld, %zu", code,
        (long long)(from - p), mapped);
}

static unsigned long long id_of(CUpointer_attribute attribute, CUdeviceptr p)
{
    unsigned long long id = 0;

    return D(cuPointerGetAttribute)(&id, attribute, p) ? 0 : id;
}

static const char *same(unsigned long long one, unsigned long long other)
{
    return !one || !other ? "none" : one == other ? "the same" : "another";
}

static void id_lines(CUdeviceptr p)
{
    const CUpointer_attribute buffer = CU_POINTER_ATTRIBUTE_BUFFER_ID,
                              block = CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID;
    const unsigned long long buffer_was = id_of(buffer, p), block_was = id_of(block, p);
    const handle_t other = piece(node);
    handle_t kept = 0;

    row("R1260", "BUFFER_ID of the next piece", "%s", same(buffer_was, id_of(buffer, p + PIECE)));
    row("R1261", "MEMORY_BLOCK_ID of the next piece", "%s",
        same(block_was, id_of(block, p + PIECE)));
    OK(D(cuMemRetainAllocationHandle)(&kept, (void *)(uintptr_t)p));
    OK(D(cuMemUnmap)(p, PIECE));
    map(p, other);
    row("R1262", "BUFFER_ID when other memory is mapped there", "%s",
        same(buffer_was, id_of(buffer, p)));
    row("R1263", "MEMORY_BLOCK_ID then", "%s", same(block_was, id_of(block, p)));
    OK(D(cuMemUnmap)(p, PIECE));
    map(p, kept);
    row("R1264", "BUFFER_ID when the first is mapped again", "%s",
        same(buffer_was, id_of(buffer, p)));
    row("R1265", "MEMORY_BLOCK_ID then", "%s", same(block_was, id_of(block, p)));
}

static unsigned memops(CUdeviceptr p)
{
    unsigned on = 9;

    D(cuPointerGetAttribute)(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p);
    return on & 0xff;
}

static void memops_lines(CUdeviceptr p)
{
    unsigned on = 1, was = memops(p);
    CUresult code = D(cuPointerSetAttribute)(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p);
    unsigned here = memops(p), next = memops(p + PIECE);
    handle_t kept = 0;

    row("R1266", "SYNC_MEMOPS of a piece, set, and the next piece", "code %d, %u %u %u", code, was,
        here, next);
    OK(D(cuMemRetainAllocationHandle)(&kept, (void *)(uintptr_t)p));
    OK(D(cuMemUnmap)(p, PIECE));
    map(p, kept);
    row("R1267", "SYNC_MEMOPS of it, mapped again", "%u", memops(p));
}

static unsigned access_of(CUdeviceptr p, CUmemAccess_flags flags)
{
    unsigned said = 9;

    (void)open_to(device, p, PIECE, flags);
    D(cuPointerGetAttribute)(&said, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, p);
    return said;
}

static void unmapped_lines(CUdeviceptr hole)
{
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                   CU_POINTER_ATTRIBUTE_DEVICE_POINTER};
    int type = 9, ordinal = 9;
    CUdeviceptr pointer = 9;
    void *data[] = {&type, &ordinal, &pointer};
    CUresult code = D(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, hole);

    row("R1270", "attribute where nothing is mapped", "code %d", code);
    code = D(cuPointerGetAttributes)(3, which, data, hole);
    row("R1271", "attributes where nothing is mapped", "code %d, type %d, ordinal %d, pointer %s",
        code, type, ordinal, pointer ? "set" : "null");
}

void group_piece_attributes(void)
{
    CUdeviceptr p;
    handle_t kept = 0;

    open_device();
    p = reserve(4);
    map(p, piece(device));
    map(p + PIECE, piece(device));
    map(p + 2 * PIECE, piece(node));
    place_lines(p);
    attribute_line("R1254", "attributes of the second of three pieces, on the device", p + PIECE);
    attribute_line("R1255", "attributes of a piece on the host", p + 2 * PIECE);
    (void)open_to(node, p + 2 * PIECE, PIECE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    attribute_line("R1256", "the same when the host was let in", p + 2 * PIECE);
    unmapped_lines(p + 3 * PIECE);
    unsigned none = access_of(p, CU_MEM_ACCESS_FLAGS_PROT_NONE),
             read = access_of(p, CU_MEM_ACCESS_FLAGS_PROT_READ),
             both = access_of(p, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    row("R1257", "ACCESS_FLAGS of a piece, none, to read, to read and write", "%u %u %u", none,
        read, both);
    OK(D(cuMemRetainAllocationHandle)(&kept, (void *)(uintptr_t)p));
    OK(D(cuMemUnmap)(p, PIECE));
    OK(map_only(p, kept));
    attribute_line("R1258", "attributes of a piece without rights", p);
    OK(open_to(device, p, PIECE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    id_lines(p);
    memops_lines(p);
}

/* ---- calls for other memory ---- */

static void sharing_lines(CUdeviceptr p)
{
    CUipcMemHandle handle;
    int fd = -1;

    row("R1280", "cuIpcGetMemHandle of a piece on the device", "code %d",
        D(cuIpcGetMemHandle)(&handle, p));
    row("R1281", "cuIpcGetMemHandle of a piece on the host", "code %d",
        D(cuIpcGetMemHandle)(&handle, p + PIECE));
    CUresult code =
        D(cuMemGetHandleForAddressRange)(&fd, p, PIECE, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    row("R1282", "a file of a piece on the device, as of cuMemAlloc memory", "%s", ({
            const CUdeviceptr native = device_memory(PIECE);
            int other = -1;
            code == D(cuMemGetHandleForAddressRange)(&other, native, PIECE,
                                                     CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0)
                ? "yes"
                : "no";
        }));
}

static void managed_lines(CUdeviceptr p)
{
    int value = 9;

    row("R1283", "cuMemAdvise of a piece", "code %d",
        D(cuMemAdvise)(p, PIECE, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, device));
    row("R1284", "cuMemPrefetchAsync of a piece", "code %d",
        D(cuMemPrefetchAsync)(p, PIECE, device, 0, nonblocking));
    row("R1285", "a range attribute of a piece", "code %d",
        D(cuMemRangeGetAttribute)(&value, sizeof(value), CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, p,
                                  PIECE));
}

static void host_lines(CUdeviceptr p)
{
    void *address = (void *)(uintptr_t)p;
    CUdeviceptr pointer = 0;
    unsigned flags = 99;

    (void)open_to(node, p, PIECE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    row("R1286", "cuMemHostGetDevicePointer of a piece on the host", "code %d",
        D(cuMemHostGetDevicePointer)(&pointer, address, 0));
    row("R1287", "cuMemHostGetFlags of a piece on the host", "code %d",
        D(cuMemHostGetFlags)(&flags, address));
    row("R1288", "cuMemFreeHost of a piece on the host", "code %d", D(cuMemFreeHost)(address));
}

void group_piece_others(void)
{
    CUdeviceptr p;

    open_device();
    p = piece_range(2);
    sharing_lines(p);
    managed_lines(p);
    host_lines(p + PIECE);
    row("R1289", "cuMemFree of a piece on the host", "code %d", D(cuMemFree)(p + PIECE));
    row("R1290", "cuMemFreeAsync of a piece on the device", "code %d",
        D(cuMemFreeAsync)(p, nonblocking));
}

/* Does the call wait for a kernel of SOON_NS? */
#define WAITS_SOON(id, name, stream, call)                                             \
    do {                                                                               \
        *flag = 0;                                                                     \
        OK(launch_store(stream, device_of(flag), 1, SOON_NS));                         \
        CUresult code_ = (call);                                                       \
        bool waited_ = *flag != 0;                                                     \
        row(id, name, "%s, code %d", waited_ ? "waits" : "does not wait", (int)code_); \
        synchronize();                                                                 \
    } while (0)

static void mapping_waits(CUdeviceptr p)
{
    const CUdeviceptr free_place = reserve(2);
    const handle_t spare = piece(node);
    handle_t made = 0;
    CUdeviceptr q = 0;

    WAITS_SOON("R1300", "cuMemAddressReserve", nonblocking,
               D(cuMemAddressReserve)(&q, PIECE, 0, 0, 0));
    WAITS_SOON("R1301", "cuMemAddressFree", nonblocking, D(cuMemAddressFree)(q, PIECE));
    WAITS_SOON("R1302", "cuMemCreate on the device", nonblocking, create(&made, device, PIECE));
    WAITS_SOON("R1303", "cuMemRelease of it", nonblocking, D(cuMemRelease)(made));
    WAITS_SOON("R1304", "cuMemCreate on the host", nonblocking, create(&made, node, PIECE));
    WAITS_SOON("R1305", "cuMemRelease of it", nonblocking, D(cuMemRelease)(made));
    WAITS_SOON("R1306", "cuMemMap", nonblocking, map_only(free_place, spare));
    WAITS_SOON("R1307", "cuMemSetAccess", nonblocking,
               open_to(device, free_place, PIECE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    WAITS_SOON("R1308", "cuMemUnmap of what no work uses", nonblocking,
               D(cuMemUnmap)(free_place, PIECE));
    WAITS_SOON("R1309", "cuMemUnmap of what work that is done has used", nonblocking, ({
                   OK(launch_load(other_nonblocking, p + 64, p));
                   OK(D(cuStreamSynchronize)(other_nonblocking));
                   D(cuMemUnmap)(p, PIECE);
               }));
}

static void copy_waits(CUdeviceptr p)
{
    const CUdeviceptr on_host = p + PIECE, on_device = p + 2 * PIECE, also_host = p + 3 * PIECE;

    WAITS_SOON("R1310", "cuMemcpyDtoD from the device to the host", NULL,
               D(cuMemcpyDtoD)(on_host, on_device, 4096));
    WAITS_SOON("R1311", "cuMemcpyDtoD from the host to the device", NULL,
               D(cuMemcpyDtoD)(on_device, on_host, 4096));
    WAITS_SOON("R1312", "cuMemcpyDtoD from the host to the host", NULL,
               D(cuMemcpyDtoD)(also_host, on_host, 4096));
    WAITS_SOON("R1313", "cuMemsetD8 on the host", NULL, D(cuMemsetD8)(on_host, 1, 4096));
    WAITS_SOON("R1314", "cuMemcpyHtoD, pageable, to the host, kernel on the legacy stream", NULL,
               D(cuMemcpyHtoD)(on_host, words, 4096));
    WAITS_SOON("R1315", "cuMemcpyHtoD, pageable, to the host, kernel on a non-blocking stream",
               nonblocking, D(cuMemcpyHtoD)(on_host, words, 4096));
    WAITS_SOON("R1316", "cuMemcpyDtoH, pageable, from the host, kernel on a non-blocking stream",
               nonblocking, D(cuMemcpyDtoH)(words, on_host, 4096));
    WAITS_SOON("R1317", "cuMemcpyHtoDAsync, pageable, to the host, same stream", nonblocking,
               D(cuMemcpyHtoDAsync)(on_host, words, 4096, nonblocking));
    WAITS_SOON("R1318", "cuMemcpyDtoHAsync, pageable, from the host, same stream", nonblocking,
               D(cuMemcpyDtoHAsync)(words, on_host, 4096, nonblocking));
    WAITS_SOON("R1319", "cuMemcpyDtoDAsync from the host to the device, same stream", nonblocking,
               D(cuMemcpyDtoDAsync)(on_device, on_host, 4096, nonblocking));
}

void group_piece_waits(void)
{
    CUdeviceptr p;

    open_device();
    p = piece_range(4);
    copy_waits(p);
    mapping_waits(p);
}

/* While a stream is captured in the mode that forbids most, by the same thread. */
void group_piece_capture(void)
{
    CUdeviceptr p, q = 0;
    handle_t handle = 0, spare;
    CUgraph graph = NULL;

    open_device();
    p = reserve(2);
    spare = piece(node);
    OK(D(cuStreamBeginCapture)(nonblocking, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CUresult reserved = D(cuMemAddressReserve)(&q, PIECE, 0, 0, 0);
    CUresult created = create(&handle, device, PIECE);
    CUresult mapped = map_only(p, spare);
    CUresult opened = open_to(device, p, PIECE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CUresult unmapped = D(cuMemUnmap)(p, PIECE);
    CUresult released = D(cuMemRelease)(spare);
    CUresult ended = D(cuStreamEndCapture)(nonblocking, &graph);
    row("R1320", "in a capture, reserve, create, map, open, unmap, release; and its end",
        "codes %d %d %d %d %d %d, %d", reserved, created, mapped, opened, unmapped, released,
        ended);
}

/* ---- contexts ---- */

static void without_context(void)
{
    CUdeviceptr p = 0;
    handle_t handle = 0;

    OK(D(cuCtxSetCurrent)(NULL));
    CUresult reserved = D(cuMemAddressReserve)(&p, PIECE, 0, 0, 0);
    CUresult created = create(&handle, node, PIECE);
    CUresult mapped = map_only(p, handle);
    CUresult opened = open_to(device, p, PIECE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CUresult unmapped = D(cuMemUnmap)(p, PIECE);
    CUresult released = D(cuMemRelease)(handle);
    row("R1330", "without a current context, reserve, create, map, open, unmap, release",
        "codes %d %d %d %d %d %d", reserved, created, mapped, opened, unmapped, released);
    OK(D(cuCtxSetCurrent)(context));
}

void group_piece_contexts(void)
{
    CUcontext second;
    CUdeviceptr p;
    CUresult code;

    open_device();
    without_context();
    p = piece_range(2);
    (void)D(cuMemsetD32)(p, 5, 2 * WORDS);
    synchronize();
    OK(D(cuCtxCreate)(&second, NULL, 0, 0));
    code = D(cuMemcpyDtoH)(words, p, 2 * PIECE);
    row("R1331", "pieces in another context of the device", "code %d, %u %u", code, words[0],
        words[WORDS]);
    OK(D(cuCtxDestroy)(second));
    OK(D(cuCtxSetCurrent)(context));
    OK(D(cuDevicePrimaryCtxReset)(0));
    OK(D(cuDevicePrimaryCtxRetain)(&context, 0));
    OK(D(cuCtxSetCurrent)(context));
    memset(words, 0, sizeof(words));
    code = D(cuMemcpyDtoH)(words, p, 2 * PIECE);
    row("R1332", "pieces after cuDevicePrimaryCtxReset", "code %d, %u %u", code, words[0],
        words[WORDS]);
    TWO("R1333", "cuMemUnmap and cuMemAddressFree then", D(cuMemUnmap)(p, 2 * PIECE),
        D(cuMemAddressFree)(p, 2 * PIECE));
}

/* ---- what no driver forgives: each in a process of its own ---- */

static void fault_row(const char *id, const char *name, CUresult at_call)
{
    row(id, name, "codes %d %d", at_call, D(cuCtxSynchronize)());
}

void group_piece_fault_unmapped(void)
{
    open_device();
    fault_row("R1340", "a kernel where nothing is mapped",
              launch_store(nonblocking, reserve(1), 1, 0));
}

void group_piece_fault_shut(void)
{
    CUdeviceptr p;

    open_device();
    p = reserve(1);
    OK(map_only(p, piece(device)));
    fault_row("R1341", "a kernel on a mapping without rights", launch_store(nonblocking, p, 1, 0));
}

static CUdeviceptr to_read(void)
{
    const CUdeviceptr p = piece_range(1);

    (void)open_to(device, p, PIECE, CU_MEM_ACCESS_FLAGS_PROT_READ);
    return p;
}

void group_piece_fault_read_only(void)
{
    open_device();
    fault_row("R1342", "a kernel that writes to a mapping for reading",
              launch_store(nonblocking, to_read(), 1, 0));
}

void group_piece_fault_copy_shut(void)
{
    CUdeviceptr p, q;

    open_device();
    p = reserve(1);
    q = device_memory(4096);
    OK(map_only(p, piece(device)));
    fault_row("R1343", "cuMemcpyDtoDAsync from a mapping without rights",
              D(cuMemcpyDtoDAsync)(q, p, 4096, nonblocking));
}

void group_piece_fault_set_shut(void)
{
    CUdeviceptr p;

    open_device();
    p = reserve(1);
    OK(map_only(p, piece(device)));
    fault_row("R1344", "cuMemsetD8Async of a mapping without rights",
              D(cuMemsetD8Async)(p, 1, 4096, nonblocking));
}

/* Not asked: cuMemcpyDtoH from host memory without rights, in which the driver itself faults. */
void group_piece_fault_copy_read_only(void)
{
    open_device();
    fault_row("R1346", "cuMemsetD8Async of a mapping for reading",
              D(cuMemsetD8Async)(to_read(), 1, 4096, nonblocking));
}

/* It writes only when the memory is gone. */
void group_piece_fault_moved(void)
{
    CUdeviceptr p;

    open_device();
    p = piece_range(1);
    CUresult code = launch_store(nonblocking, p, 1, SOON_NS);
    OK(D(cuMemUnmap)(p, PIECE));
    fault_row("R1347", "a kernel whose memory is unmapped while it runs", code);
}

void group_piece_fault_released(void)
{
    CUdeviceptr p;
    handle_t handle;

    open_device();
    p = reserve(2);
    handle = piece(device);
    map(p, handle);
    OK(D(cuMemRelease)(handle));
    row("R1348", "cuMemMap of a handle that was released and is mapped", "code %d",
        map_only(p + PIECE, handle));
    row("R1349", "cuMemRelease of it again", "code %d", D(cuMemRelease)(handle));
}
