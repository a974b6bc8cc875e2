/* What kernels of tests on the simulated driver do to words. */
#ifndef KERNEL_WORDS_H
#define KERNEL_WORDS_H

#include <stdint.h>

#include "sim.h"

/* A word that depends on every bit of x. */
static inline uint32_t mix(uint32_t x)
{
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

/* A parameter of the launch that is one. */
static inline uint32_t word_arg(const struct sim_kernel_call *call, unsigned i)
{
    return *(const uint32_t *)call->args[i];
}

/* flag: until the host has written it */
static inline void run_await(const struct sim_kernel_call *call)
{
    const uint32_t *flag = sim_kernel_access(*(CUdeviceptr *)call->args[0], 4, false);

    if (flag && !__atomic_load_n(flag, __ATOMIC_ACQUIRE))
        sim_kernel_again();
}

#endif
