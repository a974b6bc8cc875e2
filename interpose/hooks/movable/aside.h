/* Copies within the device and fills of it, without a stream, do not block natively. Of memory that
 * can move they may, where that lies on the host: then the same is asked for on the default
 * stream. */
#ifndef AG_ASIDE_H
#define AG_ASIDE_H

#include <stdbool.h>

#include "interpose/core/driver/abi.h"

/* Is movable memory among them, and do natively copies between the two, or fills, not block? */
bool ag_aside_is_due(CUdeviceptr one, CUdeviceptr other);

static inline CUstream ag_aside_stream(bool per_thread)
{
    return per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

#endif
