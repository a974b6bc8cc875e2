/* Copies within the device and fills of it, without a stream, do not block natively, unless the
 * program has set SYNC_MEMOPS of the memory or of the context. Of memory that can move they may
 * block, where that lies on the host: then the same is asked for on the default stream. And the
 * driver keeps no SYNC_MEMOPS of it: where that is set of the memory, copies and fills without a
 * stream are waited for here. */
#ifndef AG_ASIDE_H
#define AG_ASIDE_H

#include <stdbool.h>

#include "interpose/core/driver/abi.h"

/* Is movable memory among them, and may copies between the two, or fills, be made on the default
 * stream? */
bool ag_aside_is_due(CUdeviceptr one, CUdeviceptr other, bool per_thread);

/* The driver's answer to a copy or a fill without a stream, from or to these addresses, be it that
 * the same was asked for on the default stream: it is waited for where it is to be. */
CUresult ag_aside_wait(CUresult result, CUdeviceptr one, CUdeviceptr other, bool per_thread);

static inline CUstream ag_aside_stream(bool per_thread)
{
    return per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

#endif
