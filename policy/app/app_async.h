/* The program's own cudaMallocAsync and cudaFreeAsync: they go to the driver, counted by pool.
 * Where a rule says async=managed, allocations that name no pool come from the device's managed
 * pool, as long as the device's default pool is the current one. */
#ifndef AG_POLICY_APP_ASYNC_H
#define AG_POLICY_APP_ASYNC_H

#include <stdbool.h>

#include "interpose/core/driver/abi.h"
#include "interpose/core/settings/rules.h"

/* Called before the first of the calls below. The rules stay the caller's and must not change. */
void ag_app_async_configure(const struct ag_rules *rules, bool oversubscribe);

/* Each does what the driver function of that name does; `per_thread`: what its _ptsz does.
 * `caller`: return address of the hook. Any thread, no lock; a few nanoseconds over the driver's
 * own. */
CUresult ag_app_alloc(CUdeviceptr *ret_address, size_t bytes, CUstream stream, bool per_thread,
                      const void *caller);
CUresult ag_app_alloc_from_pool(CUdeviceptr *ret_address, size_t bytes, CUmemoryPool pool,
                                CUstream stream, bool per_thread, const void *caller);
CUresult ag_app_free(CUdeviceptr address, CUstream stream, bool per_thread, const void *caller);

/* `*pool` is the driver's answer for CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE of memory that is not in
 * the ledger. If that names our managed pool, the program hears of the pool that the allocation
 * would natively have come from: its device's default one. */
void ag_app_answer_pool(CUmemoryPool *pool);
/* Does the address lie in memory of one of our managed pools? One driver call, if there is such a
 * pool. */
bool ag_app_is_managed(CUdeviceptr address);

/* Does what cuMemGetHandleForAddressRange does, in which the driver crashes for memory of a managed
 * pool (580.159): that is answered as for memory of cuMemAllocManaged. */
CUresult ag_app_range_handle(void *ret_handle, CUdeviceptr address, size_t size,
                             CUmemRangeHandleType type, unsigned long long flags);

#endif
