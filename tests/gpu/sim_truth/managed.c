/* managed.c: where managed memory lies, and what it takes of the device (R740 on). */
#include "tests/gpu/sim_truth/truth.h"

#include <unistd.h>

static int range(CUdeviceptr p, size_t bytes, CUmem_range_attribute attribute)
{
    int value = 99;
    CUresult code = D(cuMemRangeGetAttribute)(&value, sizeof(value), attribute, p, bytes);

    return code ? 1000 + (int)code : value;
}

static void range_line(const char *id, const char *name, CUdeviceptr p, size_t bytes)
{
    int by[3] = {99, 99, 99};

    (void)D(cuMemRangeGetAttribute)(by, sizeof(by), CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, p, bytes);
    row(id, name, "preferred %d, prefetched %d, mostly read %d, accessed by %d %d %d",
        range(p, bytes, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION),
        range(p, bytes, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION),
        range(p, bytes, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY), by[0], by[1], by[2]);
}

void group_managed_advice(void)
{
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                  host = {.type = CU_MEM_LOCATION_TYPE_HOST},
                  numa = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = 0},
                  far_numa = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = 1000},
                  nowhere = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 99};
    const size_t half = (size_t)2 << 20, all = 2 * half;
    CUdeviceptr p, native;

    open_device();
    p = managed_memory(all);
    native = device_memory(all);
    range_line("R740", "a managed range, nothing said", p, all);
    OK(D(cuMemAdvise)(p, half, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, here));
    OK(D(cuMemAdvise)(p, all, CU_MEM_ADVISE_SET_ACCESSED_BY, here));
    OK(D(cuMemAdvise)(p, half, CU_MEM_ADVISE_SET_READ_MOSTLY, host));
    OK(D(cuMemPrefetchAsync)(p, half, host, 0, NULL));
    range_line("R741", "its first half, advised and prefetched to the host", p, half);
    range_line("R742", "all of it then", p, all);
    row("R743", "advice for a device that is not there", "code %d",
        D(cuMemAdvise)(p, all, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, nowhere));
    row("R744", "advice to be mostly read, of such a device", "code %d",
        D(cuMemAdvise)(p, all, CU_MEM_ADVISE_SET_READ_MOSTLY, nowhere));
    row("R745", "advice to be accessed by a NUMA node", "code %d",
        D(cuMemAdvise)(p, all, CU_MEM_ADVISE_SET_ACCESSED_BY, numa));
    row("R746", "advice to prefer NUMA node 1000", "code %d",
        D(cuMemAdvise)(p, all, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, far_numa));
    row("R747", "advice beyond the end", "code %d",
        D(cuMemAdvise)(p, all + half, CU_MEM_ADVISE_SET_READ_MOSTLY, here));
    row("R748", "advice for cuMemAlloc memory", "code %d",
        D(cuMemAdvise)(native, all, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, here));
    row("R749", "advice for nothing", "code %d",
        D(cuMemAdvise)(p, 0, CU_MEM_ADVISE_SET_READ_MOSTLY, here));
    row("R750", "cuMemPrefetchAsync to a device that is not there", "code %d",
        D(cuMemPrefetchAsync)(p, all, nowhere, 0, NULL));
    row("R751", "cuMemPrefetchAsync of cuMemAlloc memory", "code %d",
        D(cuMemPrefetchAsync)(native, all, here, 0, NULL));
    row("R752", "cuMemPrefetchAsync of nothing", "code %d",
        D(cuMemPrefetchAsync)(p, 0, here, 0, NULL));
    row("R753", "cuMemPrefetchAsync beyond the end", "code %d",
        D(cuMemPrefetchAsync)(p, all + half, here, 0, NULL));
    row("R754", "cuMemPrefetchAsync with flags", "code %d",
        D(cuMemPrefetchAsync)(p, all, here, 1, NULL));
    row("R755", "a range attribute of cuMemAlloc memory", "%d",
        range(native, all, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY));
}

static size_t free_mib(void)
{
    size_t bytes;

    synchronize();
    OK(D(cuMemGetInfo)(&bytes, NULL));
    return bytes >> 20;
}

/* What a process held that ended just before comes free only by and by: a second without a
 * change. */
static size_t steady_free_mib(void)
{
    enum { LOOKS = 200, SAME = 20, PAUSE_US = 50000 };
    size_t last = free_mib();

    for (int look = 0, same = 0; look < LOOKS && same < SAME; look++) {
        size_t now;

        usleep(PAUSE_US);
        now = free_mib();
        same = now == last ? same + 1 : 0;
        last = now;
    }
    return last;
}

/* Takes all memory there is and frees it: what the driver kept for managed memory is free then. */
static void empty_room(void)
{
    enum { MOST = 64 };
    CUdeviceptr held[MOST];
    unsigned n = 0;

    for (size_t bytes = (size_t)1 << 38; bytes >= (size_t)1 << 20; bytes >>= 1) {
        while (n < MOST && D(cuMemAlloc)(&held[n], bytes) == CUDA_SUCCESS)
            n++;
    }
    while (n-- > 0)
        OK(D(cuMemFree)(held[n]));
}

/* What managed memory takes of the card, in MiB. */
void group_managed_room(void)
{
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                  host = {.type = CU_MEM_LOCATION_TYPE_HOST};
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED, .location = here};
    const size_t bytes = (size_t)64 << 20;
    CUmemoryPool pool;
    CUdeviceptr p;
    size_t before, kept;

    open_device();
    before = steady_free_mib();
    p = managed_memory(bytes);
    row("R760", "64 MiB of managed memory take of the card", "%zu", before - free_mib());
    OK(D(cuMemPrefetchAsync)(p, bytes, here, 0, NULL));
    row("R761", "prefetched to it, at least 64", "%s", yes_no(before - free_mib() >= 64));
    OK(D(cuMemPrefetchAsync)(p, bytes, host, 0, NULL));
    row("R762", "prefetched to the host then, at least 64", "%s",
        yes_no(before - free_mib() >= 64));
    OK(D(cuMemPrefetchAsync)(p, bytes, here, 0, NULL));
    synchronize();
    OK(D(cuMemFree)(p));
    row("R763", "prefetched to it and freed, at least 64", "%s", yes_no(before - free_mib() >= 64));
    kept = free_mib();
    OK(D(cuMemPoolCreate)(&pool, &props));
    p = from_pool(pool, bytes, nonblocking);
    row("R766", "64 MiB of a managed pool take just after that", "%zu", kept - free_mib());
    OK(D(cuMemFreeAsync)(p, nonblocking));
    synchronize();
    OK(D(cuMemPoolDestroy)(pool));
    row("R767", "cuMemAlloc of what was free before, less 32 MiB", "code %d",
        D(cuMemAlloc)(&p, (before - 32) << 20));
    OK(D(cuMemFree)(p));
    empty_room();
    before = steady_free_mib();
    OK(D(cuMemPoolCreate)(&pool, &props));
    p = from_pool(pool, bytes, nonblocking);
    row("R764", "64 MiB of a managed pool take when nothing is kept, at least 64", "%s",
        yes_no(before - free_mib() >= 64));
    OK(D(cuMemPrefetchAsync)(p, bytes, host, 0, nonblocking));
    row("R765", "prefetched to the host, at least 64", "%s", yes_no(before - free_mib() >= 64));
}
