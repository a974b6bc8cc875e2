/* The managed pool of a device (CUDA 13): stream-ordered allocation of managed memory. A device has
 * one, shared by redirected cudaMalloc and by cudaMallocAsync where a rule redirects it. */
#ifndef AG_POLICY_MANAGED_POOL_H
#define AG_POLICY_MANAGED_POOL_H

#include <stdbool.h>

#include "interpose/core/driver/abi.h"
#include "interpose/core/settings/options.h"
#include "policy/contexts/context.h"

/* The pool, made on first use, with a context of the process current. CUDA_SUCCESS and *ret_pool,
 * or, *ret_pool untouched:
 * CUDA_ERROR_NOT_SUPPORTED           the device or the driver has no managed pools;
 * CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED   a capture is open and the pool is not made yet: ask
 *                                         again;
 * else                               why the driver refused, remembered: every later call says so
 *                                    too.
 * Any thread. What is allocated from it: cuMemAdvise is refused (801), prefetch works, no
 * export. */
CUresult ag_managed_pool(struct ag_device *device, CUmemoryPool *ret_pool);

/* Was it made? And is `pool` it? No driver call. */
bool ag_managed_pool_exists(struct ag_device *device);
bool ag_managed_pool_is_of(struct ag_device *device, CUmemoryPool pool);

/* Gives what the pool holds unused back. */
void ag_managed_pool_trim(struct ag_device *device);
/* Bytes that it holds from the device and nobody uses. */
uint64_t ag_managed_pool_idle(struct ag_device *device);
/* ALLOGRAFT_POOL_KEEP; before the first pool. */
void ag_managed_pool_configure(struct ag_size keep);
/* A forked child has no pools. */
void ag_managed_pool_begin_child(struct ag_device *device);

#endif
