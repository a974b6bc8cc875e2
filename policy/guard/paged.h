/* Memory that ends where its pages do, with an address range after it in which nothing is mapped
 * (ALLOGRAFT_GUARD=page): the device refuses what lies after a block, and a freed block.
 *
 * A block takes whole pages of the driver's granularity, 2 MiB. It ends with the last one, except
 * for what AG_PAGED_ALIGN leaves. Its addresses stay taken for a while after it was freed. */
#ifndef AG_GUARD_PAGED_H
#define AG_GUARD_PAGED_H

#include <stddef.h>

#include "interpose/core/driver/abi.h"
#include "policy/guard/device_bytes.h"

struct ag_context;
struct ag_device;

#define AG_PAGED_ALIGN \
    512u /* textures need that; so many bytes less 1 after a block may be its
                               own page's */

/* Allocates at least `bytes`, usable at once by the device and those that could be its peers. On
 * success *ret_address; on failure untouched. */
CUresult ag_paged_allocate(struct ag_context *context, size_t bytes, CUdeviceptr *ret_address);
/* Unmaps a block that no work uses any more. CUDA_ERROR_INVALID_VALUE: there is none. */
CUresult ag_paged_free(CUdeviceptr address);
/* The address of the block that the driver knows by `base`; `base` itself where there is none. */
CUdeviceptr ag_paged_address(CUdeviceptr base);
/* What of its own pages lies around a block that begins there: up to AG_GUARD_EDGE bytes before it,
 * if there are any, and those that AG_PAGED_ALIGN leaves after it. */
struct ag_guard_edges ag_paged_edges(CUdeviceptr address, size_t bytes);
/* A forked child has none. */
void ag_paged_begin_child(void);

#endif
