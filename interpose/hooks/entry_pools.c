/* Hooks of the stream-ordered allocator: the program's own pools, and its allocations from them.
 *
 * Every call is passed on. Pools whose memory the host may read, and memory that other processes
 * get, make unfinished work visible (policy/order/drain.h); that is noted before the call, as in
 * entry_visible.c. */
#include "graph/replayer.h"
#include "interpose/core/driver/driver.h"
#include "interpose/hooks/entry.h"
#include "policy/app/app_async.h"
#include "policy/app/app_pools.h"
#include "policy/held.h"
#include "policy/inject.h"
#include "policy/order/drain.h"
#include "policy/order/host_wait.h"

/* --- allocations and frees --- */

static void allocating(CUstream stream, bool per_thread)
{
    ag_watch_work(stream, per_thread);
    if (ag_entry_replays_now())
        ag_replay_allocates(stream, per_thread);
}

AG_ENTRY CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytes, CUstream stream)
{
    AG_ENTER(cuMemAllocAsync, dptr, bytes, stream);
    allocating(stream, false);
    return ag_entry_leave(ag_app_alloc(dptr, bytes, stream, false, __builtin_return_address(0)));
}

AG_ENTRY CUresult cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t bytes, CUstream stream)
{
    AG_ENTER(cuMemAllocAsync_ptsz, dptr, bytes, stream);
    allocating(stream, true);
    return ag_entry_leave(ag_app_alloc(dptr, bytes, stream, true, __builtin_return_address(0)));
}

AG_ENTRY CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool,
                                          CUstream stream)
{
    AG_ENTER(cuMemAllocFromPoolAsync, dptr, bytes, pool, stream);
    allocating(stream, false);
    return ag_entry_leave(
        ag_app_alloc_from_pool(dptr, bytes, pool, stream, false, __builtin_return_address(0)));
}

AG_ENTRY CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool,
                                               CUstream stream)
{
    AG_ENTER(cuMemAllocFromPoolAsync_ptsz, dptr, bytes, pool, stream);
    allocating(stream, true);
    return ag_entry_leave(
        ag_app_alloc_from_pool(dptr, bytes, pool, stream, true, __builtin_return_address(0)));
}

/* Work submitted to the stream before may still use the memory. */
static void freeing(CUstream stream, bool per_thread)
{
    ag_watch_work(stream, per_thread);
    if (ag_replay_holds())
        ag_replay_flush_stream(stream, per_thread, AG_FLUSH_FREE);
    if (ag_entry_replays_now())
        ag_memory_forget();
}

AG_ENTRY CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream stream)
{
    struct ag_held_free held;

    AG_ENTER(cuMemFreeAsync, dptr, stream);
    freeing(stream, false);
    ag_held_free_begin(&held, dptr);
    return ag_entry_leave(
        ag_held_free_end(&held, ag_app_free(dptr, stream, false, __builtin_return_address(0))));
}

AG_ENTRY CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream stream)
{
    struct ag_held_free held;

    AG_ENTER(cuMemFreeAsync_ptsz, dptr, stream);
    freeing(stream, true);
    ag_held_free_begin(&held, dptr);
    return ag_entry_leave(
        ag_held_free_end(&held, ag_app_free(dptr, stream, true, __builtin_return_address(0))));
}

/* --- pools --- */

/* Pools whose memory the host may read: on the host, or managed. */
static void note_pool(const CUmemLocation *location, CUmemAllocationType type)
{
    if (type != CU_MEM_ALLOCATION_TYPE_PINNED)
        ag_drain_note_visible(AG_VISIBLE_MANAGED);
    else if (location && location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        ag_drain_note_visible(AG_VISIBLE_PINNED);
}

static int device_of_pool(const CUmemLocation *location)
{
    return location->type == CU_MEM_LOCATION_TYPE_DEVICE ? location->id : -1;
}

static CUresult create_pool(CUmemoryPool *pool, const CUmemPoolProps *properties,
                            const void *caller)
{
    enum ag_app_pool_kind kind = AG_APP_POOL_CREATED;
    CUresult result;

    if (!pool || !properties)
        return ag_cu.cuMemPoolCreate(pool, properties);
    result = ag_inject(AG_CALL_POOL, 0, device_of_pool(&properties->location), caller);
    if (result != CUDA_SUCCESS)
        return result;
    note_pool(&properties->location, properties->allocType);
    if (properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
        kind = AG_APP_POOL_MANAGED;
    result = ag_app_pools_made(ag_cu.cuMemPoolCreate(pool, properties), pool, kind,
                               &properties->location);
    if (result == CUDA_SUCCESS && properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE)
        ag_app_pools_shared(*pool);
    return result;
}

AG_ENTRY CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
    AG_ENTER(cuMemPoolCreate, pool, properties);
    return ag_entry_leave(create_pool(pool, properties, __builtin_return_address(0)));
}

/* What was freed in stream order before the last cudaFree is the pool's by now, and goes with it.
 * What counts as used or reserved, and what a trim gives back, hangs on no such wait (R704, R712,
 * R719 and R848 in tests/sim/RULES.md), and ours would trim the pool. */
static void complete_frees(void)
{
    if (ag_host_wait_pending())
        ag_host_wait_complete(AG_STAT_WAITED_QUERY);
}

AG_ENTRY CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    AG_ENTER(cuMemPoolDestroy, pool);
    ag_entry_remaps();
    complete_frees();
    return ag_entry_leave(ag_app_pools_destroy(pool));
}

AG_ENTRY CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute,
                                        void *value)
{
    AG_ENTER(cuMemPoolSetAttribute, pool, attribute, value);
    return ag_entry_leave(ag_app_pools_set_attribute(pool, attribute, value));
}

AG_ENTRY CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute,
                                        void *value)
{
    AG_ENTER(cuMemPoolGetAttribute, pool, attribute, value);
    return ag_entry_leave(ag_app_pools_get_attribute(pool, attribute, value));
}

AG_ENTRY CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
    AG_ENTER(cuMemPoolTrimTo, pool, keep);
    ag_entry_remaps();
    return ag_entry_leave(ag_app_pools_touched(ag_cu.cuMemPoolTrimTo(pool, keep), pool));
}

#define TOUCHES(symbol, parameters, ...)                                              \
    AG_ENTRY CUresult symbol parameters                                               \
    {                                                                                 \
        AG_ENTER(symbol, __VA_ARGS__);                                                \
        return ag_entry_leave(ag_app_pools_touched(ag_cu.symbol(__VA_ARGS__), pool)); \
    }

TOUCHES(cuMemPoolSetAccess, (CUmemoryPool pool, const CUmemAccessDesc *map, size_t count), pool,
        map, count)
TOUCHES(cuMemPoolGetAccess, (CUmemAccess_flags * flags, CUmemoryPool pool, CUmemLocation *location),
        flags, pool, location)
TOUCHES(cuMemPoolImportPointer,
        (CUdeviceptr * dptr, CUmemoryPool pool, CUmemPoolPtrExportData *data), dptr, pool, data)

AG_ENTRY CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *data, CUdeviceptr dptr)
{
    AG_ENTER(cuMemPoolExportPointer, data, dptr);
    return ag_entry_leave(ag_cu.cuMemPoolExportPointer(data, dptr));
}

AG_ENTRY CUresult cuMemPoolExportToShareableHandle(void *exported, CUmemoryPool pool,
                                                   CUmemAllocationHandleType type,
                                                   unsigned long long flags)
{
    AG_ENTER(cuMemPoolExportToShareableHandle, exported, pool, type, flags);
    ag_drain_note_visible(AG_VISIBLE_SHARED);
    return ag_entry_leave(ag_app_pools_touched(
        ag_cu.cuMemPoolExportToShareableHandle(exported, pool, type, flags), pool));
}

AG_ENTRY CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *exported,
                                                     CUmemAllocationHandleType type,
                                                     unsigned long long flags)
{
    AG_ENTER(cuMemPoolImportFromShareableHandle, pool, exported, type, flags);
    ag_drain_note_visible(AG_VISIBLE_SHARED);
    return ag_entry_leave(
        ag_app_pools_made(ag_cu.cuMemPoolImportFromShareableHandle(pool, exported, type, flags),
                          pool, AG_APP_POOL_IMPORTED, NULL));
}

AG_ENTRY CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr dptr, size_t size,
                                                CUmemRangeHandleType type, unsigned long long flags)
{
    AG_ENTER(cuMemGetHandleForAddressRange, handle, dptr, size, type, flags);
    ag_drain_note_visible(AG_VISIBLE_RDMA);
    return ag_entry_leave(ag_app_range_handle(handle, dptr, size, type, flags));
}

/* --- the memory of graphs, a pool that the driver keeps for each device --- */

AG_ENTRY CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    AG_ENTER(cuDeviceGraphMemTrim, device);
    ag_entry_remaps();
    complete_frees();
    return ag_entry_leave(ag_cu.cuDeviceGraphMemTrim(device));
}

/* --- which pool is used --- */

/* What the calls that name a device mean. */
static CUmemLocation on_device(CUdevice device)
{
    return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
}

AG_ENTRY CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
    CUmemLocation location = on_device(device);

    AG_ENTER(cuDeviceGetDefaultMemPool, pool, device);
    return ag_entry_leave(ag_app_pools_given(ag_cu.cuDeviceGetDefaultMemPool(pool, device), pool,
                                             false, &location, CU_MEM_ALLOCATION_TYPE_PINNED));
}

AG_ENTRY CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
    CUmemLocation location = on_device(device);

    AG_ENTER(cuDeviceGetMemPool, pool, device);
    return ag_entry_leave(ag_app_pools_given(ag_cu.cuDeviceGetMemPool(pool, device), pool, true,
                                             &location, CU_MEM_ALLOCATION_TYPE_PINNED));
}

AG_ENTRY CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
    CUmemLocation location = on_device(device);

    AG_ENTER(cuDeviceSetMemPool, device, pool);
    return ag_entry_leave(ag_app_pools_chosen(ag_cu.cuDeviceSetMemPool(device, pool), pool,
                                              &location, CU_MEM_ALLOCATION_TYPE_PINNED));
}

AG_ENTRY CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location,
                                         CUmemAllocationType type)
{
    AG_ENTER(cuMemGetDefaultMemPool, pool, location, type);
    note_pool(location, type);
    return ag_entry_leave(ag_app_pools_given(ag_cu.cuMemGetDefaultMemPool(pool, location, type),
                                             pool, false, location, type));
}

AG_ENTRY CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location,
                                  CUmemAllocationType type)
{
    AG_ENTER(cuMemGetMemPool, pool, location, type);
    note_pool(location, type);
    return ag_entry_leave(ag_app_pools_given(ag_cu.cuMemGetMemPool(pool, location, type), pool,
                                             true, location, type));
}

AG_ENTRY CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type,
                                  CUmemoryPool pool)
{
    AG_ENTER(cuMemSetMemPool, location, type, pool);
    return ag_entry_leave(
        ag_app_pools_chosen(ag_cu.cuMemSetMemPool(location, type, pool), pool, location, type));
}
