/* Hooks of what brings managed memory of the program to a device: it never fails for want of room,
 * so what we keep makes room first. */
#include "interpose/core/driver/driver.h"
#include "interpose/hooks/entry.h"
#include "policy/cache.h"
#include "policy/contexts/enter.h"
#include "policy/pressure.h"

static const CUmemLocation host = {.type = CU_MEM_LOCATION_TYPE_HOST};

static CUmemLocation location_of(CUdevice device)
{
    return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
}

/* Has it been brought there last? Then it needs no more room, unless it had to leave again. */
static bool is_there(CUdeviceptr p, size_t bytes, int device)
{
    int last = CU_DEVICE_INVALID;

    return ag_cu.cuMemRangeGetAttribute &&
           ag_cu.cuMemRangeGetAttribute(&last, sizeof(last),
                                        CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, p,
                                        bytes) == CUDA_SUCCESS &&
           last == device;
}

static void make_room(CUdeviceptr p, size_t bytes, CUmemLocation to)
{
    if (ag_cache_keeps() && to.type == CU_MEM_LOCATION_TYPE_DEVICE && to.id >= 0 &&
        !is_there(p, bytes, to.id))
        ag_pressure_yield(ag_device_of(to.id), bytes);
}

static void make_room_for_all(const CUdeviceptr *p, const size_t *bytes, size_t n,
                              const CUmemLocation *to, const size_t *first, size_t n_to)
{
    size_t at = 0;

    for (size_t i = 0; p && bytes && to && first && n_to && i < n; i++) {
        while (at + 1 < n_to && first[at + 1] <= i)
            at++;
        make_room(p[i], bytes[i], to[at]);
    }
}

#define BRINGS(symbol, per_thread, room, parameters, ...) \
    AG_ENTRY CUresult symbol parameters                   \
    {                                                     \
        AG_ENTER(symbol, __VA_ARGS__);                    \
        room;                                             \
        ag_watch_work(stream, per_thread);                \
        return ag_entry_leave(ag_cu.symbol(__VA_ARGS__)); \
    }

#define PREFETCHES(symbol, per_thread)                                                        \
    BRINGS(symbol, per_thread, make_room(p, bytes, location_of(device)),                      \
           (CUdeviceptr p, size_t bytes, CUdevice device, CUstream stream), p, bytes, device, \
           stream)
PREFETCHES(cuMemPrefetchAsync, false)
PREFETCHES(cuMemPrefetchAsync_ptsz, true)

#define PREFETCHES_TO(symbol, per_thread)                                                        \
    BRINGS(symbol, per_thread, make_room(p, bytes, to),                                          \
           (CUdeviceptr p, size_t bytes, CUmemLocation to, unsigned int flags, CUstream stream), \
           p, bytes, to, flags, stream)
PREFETCHES_TO(cuMemPrefetchAsync_v2, false)
PREFETCHES_TO(cuMemPrefetchAsync_v2_ptsz, true)

#define PREFETCHES_ALL(symbol, per_thread)                                                 \
    BRINGS(symbol, per_thread, make_room_for_all(p, bytes, n, to, first, n_to),            \
           (CUdeviceptr * p, size_t * bytes, size_t n, CUmemLocation * to, size_t * first, \
            size_t n_to, unsigned long long flags, CUstream stream),                       \
           p, bytes, n, to, first, n_to, flags, stream)
PREFETCHES_ALL(cuMemPrefetchBatchAsync, false)
PREFETCHES_ALL(cuMemPrefetchBatchAsync_ptsz, true)
PREFETCHES_ALL(cuMemDiscardAndPrefetchBatchAsync, false)
PREFETCHES_ALL(cuMemDiscardAndPrefetchBatchAsync_ptsz, true)

/* It may come there by the next kernel that touches it. */
static CUmemLocation preferred(CUmem_advise advice, CUmemLocation location)
{
    return advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION ? location : host;
}

#define ADVISES(symbol, type, to)                                                             \
    AG_ENTRY CUresult symbol(CUdeviceptr p, size_t bytes, CUmem_advise advice, type location) \
    {                                                                                         \
        AG_ENTER(symbol, p, bytes, advice, location);                                         \
        make_room(p, bytes, preferred(advice, to));                                           \
        return ag_entry_leave(ag_cu.symbol(p, bytes, advice, location));                      \
    }
ADVISES(cuMemAdvise, CUdevice, location_of(location))
ADVISES(cuMemAdvise_v2, CUmemLocation, location)
