/* ALLOGRAFT_PREFETCH=launch: before a kernel runs, the managed memory that its parameters point
 * to is prefetched to the device. */
#ifndef AG_POLICY_PREFETCH_H
#define AG_POLICY_PREFETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "interpose/core/base/hash.h"
#include "interpose/core/driver/abi.h"

/* A kernel launch, as the program asks for it. */
struct ag_launch {
    CUfunction function;
    CUstream stream;
    bool per_thread; /* stream NULL is the thread's own */
    void **params, **extra;
    uint64_t config; /* of its grid, block and shared memory, as below; 0: nobody asks */
};

static inline uint64_t ag_launch_config(const uint32_t grid[3], const uint32_t block[3],
                                        uint32_t shared_bytes)
{
    uint64_t config = shared_bytes;

    for (unsigned i = 0; i < 3; i++)
        config = ag_hash_word(config, grid[i] | (uint64_t)block[i] << 32);
    return config | 1;
}

/* Called before the driver's launch: what the parameters point into is brought to the current
 * context's device, on the launch's own stream, unless it is thought to be there. Whatever becomes
 * of that is none of the program's business. Does nothing while a capture is open anywhere. */
void ag_prefetch_before(const struct ag_launch *launch);

#endif
