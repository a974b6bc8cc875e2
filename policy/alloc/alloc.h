/* The steps of an allocation and of a free, in order. Read allocate.c first. */
#ifndef AG_POLICY_ALLOC_H
#define AG_POLICY_ALLOC_H

#include <stdbool.h>

#include "interpose/core/driver/abi.h"
#include "interpose/core/settings/options.h"

/* What allocations get by default, and the rules (NULL for none; they must stay). Before the
 * first. */
void ag_alloc_configure(const struct ag_request_params *defaults, const struct ag_rules *rules);

/* A context came to life, which takes a hundred thousand times as long as an allocation: what the
 * first ones would have to wait for is made now. `caller`: the return address of a call, whose
 * library may be the one that allocates. */
struct ag_context;
void ag_alloc_prepare(struct ag_context *context, const void *caller);

/* cuMemAlloc_v2: the result and the codes are the driver's. `caller`: the return address of the
 * call, by which the calling library is known. */
CUresult ag_alloc(CUdeviceptr *ret_address, size_t bytes, const void *caller);
/* cuMemAllocPitch_v2, with the pitch the driver would have chosen. */
CUresult ag_alloc_pitch(CUdeviceptr *ret_address, size_t *ret_pitch, size_t width, size_t height,
                        unsigned element_bytes, const void *caller);
/* The program advises the driver on managed memory: from now on ALLOGRAFT_MANAGED_BACKEND=auto
 * gives memory that takes advice. */
void ag_alloc_expect_advice(void);
/* cuMemFree_v2. Unknown addresses go to the driver. `caller`: as for ag_alloc(). */
CUresult ag_free(CUdeviceptr address, const void *caller);

/* cuMemFreeAsync, by the driver's function of the flavour that was called. Measured: the driver
 * takes memory of cuMemAlloc there (580.159), so ours goes back in stream order too. */
CUresult ag_free_async(CUdeviceptr address, CUstream stream,
                       CUresult (*free_async)(CUdeviceptr, CUstream),
                       CUresult (*synchronize)(CUstream), const void *caller);

/* The driver gave the program memory of `device` past us: has it still room for itself? */
struct ag_device;
void ag_alloc_given_to_program(const struct ag_device *device, size_t bytes);

/* A capture ended and none is open any more: what was set aside is freed. */
void ag_alloc_capture_closed(void);
struct ag_block;
/* Memory that a pool of captures kept (KEPT blocks, linked by ->next) goes back to the driver. */
void ag_alloc_pool_ended(struct ag_block *blocks);
/* The program is about to destroy `context`: its memory goes, as natively, once its work is done
 * and no other thread is at it. */
void ag_alloc_context_dying(struct ag_context *context);

#endif
