/* A kernel launch, as the program asks for it, for those who look at what it names. */
#ifndef AG_POLICY_LAUNCH_H
#define AG_POLICY_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>

#include "interpose/core/base/hash.h"
#include "interpose/core/driver/abi.h"

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

#endif
