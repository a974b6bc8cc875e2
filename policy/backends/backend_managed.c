/* Managed memory: single allocations, advised and prefetched as their memory descriptor says. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "policy/backends/backend.h"

#include <stdlib.h>
#include <string.h>

#include "interpose/core/base/text.h"
#include "interpose/core/driver/driver.h"
#include "interpose/core/report/live/allocations.h"
#include "interpose/core/report/trace/trace.h"
#include "policy/decide.h"
#include "policy/order/capture.h"
#include "policy/order/private_stream.h"

#define HOST_SHARE_PERCENT 90u /* of the host's memory that ours may take, so that it lives on */

static bool oversubscribe;

void ag_managed_configure(bool new_oversubscribe)
{
    oversubscribe = new_oversubscribe;
}

/* --- how much --- */

/* The figure of `field` in /proc/meminfo, in bytes; 0 when it cannot be had. */
static uint64_t host_memory(const char *field)
{
    char text[1024];
    const char *found;

    ag_text_read_file("/proc/meminfo", text, sizeof(text));
    found = strstr(text, field);
    return found ? strtoull(found + strlen(field), NULL, 10) * 1024 : 0;
}

/* More than the host has would not fail but end processes, once it is touched. */
static bool fits_host(const struct ag_device *device, size_t bytes)
{
    uint64_t taken = ag_stats_current(device->ordinal, AG_PLACE_HOST) +
                     ag_stats_current(device->ordinal, AG_PLACE_SPILLED);
    uint64_t bound = host_memory("MemTotal:") / 100 * HOST_SHARE_PERCENT;

    return !bound ||
           (taken <= bound && bytes <= bound - taken && bytes <= host_memory("MemAvailable:"));
}

/* The driver does not free at once what managed pages leave: cuMemGetInfo reports 64 MiB less
 * after 64 MiB were prefetched and freed (H200). The next managed allocation, or any other that
 * needs it, gets it. Relaxed: a count, for an answer. */
void ag_managed_freed(struct ag_device *device, size_t bytes)
{
    atomic_fetch_add_explicit(&device->managed_kept, bytes, memory_order_relaxed);
}

uint64_t ag_managed_kept(struct ag_device *device)
{
    return atomic_load_explicit(&device->managed_kept, memory_order_relaxed);
}

static void note_taken(struct ag_device *device, size_t bytes)
{
    uint64_t kept = ag_managed_kept(device), left;

    do {
        left = kept > bytes ? kept - bytes : 0;
    } while (!atomic_compare_exchange_weak_explicit(&device->managed_kept, &kept, left,
                                                    memory_order_relaxed, memory_order_relaxed));
}

/* Managed memory may exceed the card, which programs do not expect of cudaMalloc (and which can
 * hang a GPU): what natively would not fit does not fit here. */
static bool fits_device(struct ag_device *device, size_t bytes)
{
    uint64_t taken = ag_stats_current(device->ordinal, AG_PLACE_MANAGED);
    size_t free_bytes = 0, total;

    if (taken > device->total_bytes || bytes > device->total_bytes - taken)
        return false;
    return ag_cu.cuMemGetInfo_v2(&free_bytes, &total) != CUDA_SUCCESS ||
           bytes <= free_bytes + ag_managed_kept(device);
}

bool ag_managed_fits(struct ag_context *context, size_t bytes, struct ag_mem_desc desc)
{
    if (!ag_mem_desc_is_on_device(desc))
        return fits_host(context->device, bytes);
    return oversubscribe || fits_device(context->device, bytes);
}

/* --- where --- */

static CUresult advise_block(CUdeviceptr address, size_t bytes, CUmem_advise advice,
                             CUmemLocation location)
{
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;

    if (ag_cu.cuMemAdvise_v2)
        result = ag_cu.cuMemAdvise_v2(address, bytes, advice, location);
    else if (ag_cu.cuMemAdvise && location.type != CU_MEM_LOCATION_TYPE_HOST_NUMA)
        result = ag_cu.cuMemAdvise(address, bytes, advice,
                                   location.type == CU_MEM_LOCATION_TYPE_HOST ? CU_DEVICE_CPU
                                                                              : location.id);
    ag_stats_add(result == CUDA_SUCCESS ? AG_STAT_MANAGED_ADVICE : AG_STAT_MANAGED_ADVICE_FAILED,
                 1);
    return result;
}

/* Inside the capture guard: it would end a capture. Nothing waits for it. */
static CUresult prefetch_block(CUdeviceptr address, size_t bytes, CUmemLocation location,
                               CUstream stream)
{
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    uint64_t began = ag_trace_began();

    if (ag_cu.cuMemPrefetchAsync_v2)
        result = ag_cu.cuMemPrefetchAsync_v2(address, bytes, location, 0, stream);
    else if (ag_cu.cuMemPrefetchAsync && location.type != CU_MEM_LOCATION_TYPE_HOST_NUMA)
        result = ag_cu.cuMemPrefetchAsync(
            address, bytes,
            location.type == CU_MEM_LOCATION_TYPE_HOST ? CU_DEVICE_CPU : location.id, stream);
    if (result == CUDA_SUCCESS) {
        ag_stats_add(AG_STAT_MANAGED_PREFETCH, 1);
        ag_stats_add(AG_STAT_MANAGED_PREFETCH_BYTES, bytes);
        ag_trace_prefetch(began, address, bytes,
                          location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id
                                                                       : AG_TRACE_NO_DEVICE,
                          stream);
    } else {
        ag_stats_add(AG_STAT_MANAGED_PREFETCH_FAILED, 1);
    }
    return result;
}

static CUmemLocation device_location(const struct ag_device *device)
{
    return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->ordinal};
}

/* Where the memory descriptor wants memory to lie; false: anywhere. */
static bool preferred_location(const struct ag_device *device, struct ag_mem_desc desc,
                               CUmemLocation *ret)
{
    *ret = device_location(device);
    if (desc.prefer == AG_PREFER_HOST)
        *ret = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST};
    else if (desc.prefer == AG_PREFER_NUMA)
        *ret = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = desc.node};
    return desc.prefer != AG_PREFER_NONE;
}

static void advise_peers(const struct ag_device *device, CUdeviceptr address, size_t bytes)
{
    int count = 0, can = 0;

    if (ag_cu.cuDeviceGetCount(&count) != CUDA_SUCCESS)
        return;
    for (int peer = 0; peer < count; peer++) {
        CUmemLocation there = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = peer};

        if (peer != device->ordinal &&
            ag_cu.cuDeviceCanAccessPeer(&can, peer, device->ordinal) == CUDA_SUCCESS && can)
            (void)advise_block(address, bytes, CU_MEM_ADVISE_SET_ACCESSED_BY, there);
    }
}

/* Advises and prefetches a block, which only makes it faster: failures are counted, and not the
 * program's business. Whole pages: the driver rounds managed allocations up to them. */
static void place_block(struct ag_context *context, CUdeviceptr address, size_t bytes,
                        struct ag_mem_desc desc)
{
    struct ag_device *device = context->device;
    CUmemLocation where;
    bool has_place = preferred_location(device, desc, &where);
    CUstream stream;

    if (has_place)
        (void)advise_block(address, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, where);
    /* Where memory lies, it is mapped anyhow. */
    if (desc.access != AG_ACCESS_NONE && desc.prefer != AG_PREFER_DEVICE)
        (void)advise_block(address, bytes, CU_MEM_ADVISE_SET_ACCESSED_BY, device_location(device));
    if (desc.access == AG_ACCESS_PEERS)
        advise_peers(device, address, bytes);
    if (desc.read_mostly)
        (void)advise_block(address, bytes, CU_MEM_ADVISE_SET_READ_MOSTLY, device_location(device));
    /* Nothing is brought to the host: the pages come into being there as they are touched. */
    if (desc.prefetch != AG_PREFETCH_ALLOC || !ag_mem_desc_is_on_device(desc) ||
        !ag_private_stream_begin_alloc(context, &stream) || !ag_capture_guard_enter())
        return;
    (void)prefetch_block(address, bytes, where, stream);
    ag_capture_guard_leave();
}

CUresult ag_managed_allocate(struct ag_context *context, size_t bytes, struct ag_mem_desc desc,
                             CUdeviceptr *ret_address, size_t *ret_size)
{
    CUdeviceptr address;
    CUresult result;

    if (!ag_managed_fits(context, bytes, desc))
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = ag_cu.cuMemAllocManaged(&address, bytes, CU_MEM_ATTACH_GLOBAL);
    if (result != CUDA_SUCCESS)
        return result;
    if (ag_mem_desc_is_on_device(desc))
        note_taken(context->device, bytes);
    if (bytes >= AG_WORTH_ADVICE)
        place_block(context, address, bytes, desc);
    *ret_address = address;
    *ret_size = bytes;
    return CUDA_SUCCESS;
}

CUresult ag_managed_move_to_device(struct ag_context *context, CUdeviceptr address, size_t bytes)
{
    CUmemLocation here = device_location(context->device);
    CUstream stream;
    CUresult result;

    if (!ag_private_stream_begin_alloc(context, &stream) || !ag_capture_guard_enter())
        return CUDA_ERROR_NOT_READY;
    result = advise_block(address, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, here);
    if (result == CUDA_SUCCESS)
        result = prefetch_block(address, bytes, here, stream);
    ag_capture_guard_leave();
    return result;
}
