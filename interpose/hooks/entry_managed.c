/* Hooks of what brings managed memory of the program to a device: it never fails for want of room,
 * so what we keep makes room first. */
#include "interpose/core/driver/driver.h"
#include "interpose/hooks/entry.h"
#include "policy/cache.h"
#include "policy/contexts/enter.h"
#include "policy/pressure.h"

static const CUmemLocation host = {.type = CU_MEM_LOCATION_TYPE_HOST};

static CUmemLocation location_on(CUdevice device)
{
    return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
}

/* Has it been brought there last? Then it needs no more room, unless it had to leave again. */
static bool is_prefetched(CUdeviceptr p, size_t bytes, int device)
{
    int last = CU_DEVICE_INVALID;

    return ag_cu.cuMemRangeGetAttribute &&
           ag_cu.cuMemRangeGetAttribute(&last, sizeof(last),
                                        CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, p,
                                        bytes) == CUDA_SUCCESS &&
           last == device;
}

static void make_managed_room(CUdeviceptr p, size_t bytes, CUmemLocation to)
{
    if (ag_cache_keeps() && to.type == CU_MEM_LOCATION_TYPE_DEVICE && to.id >= 0 &&
        !is_prefetched(p, bytes, to.id))
        ag_pressure_yield(ag_device_of(to.id), bytes);
}

static void make_room_for_all(const CUdeviceptr *p, const size_t *bytes, size_t n,
                              const CUmemLocation *to, const size_t *first, size_t n_to)
{
    size_t at = 0;

    for (size_t i = 0; p && bytes && to && first && n_to && i < n; i++) {
        while (at + 1 < n_to && first[at + 1] <= i)
            at++;
        make_managed_room(p[i], bytes[i], to[at]);
    }
}

/* It may come there by the next kernel that touches it. */
static CUmemLocation place_by_advice(CUmem_advise advice, CUmemLocation location)
{
    return advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION ? location : host;
}

#include "interpose/hooks/made/managed.h"
