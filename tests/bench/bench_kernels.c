/* The kernels of bench.cu as host functions, for the simulated driver. Nothing takes time there. */
#include "tests/sim/runtime/sim_kernel.h"

/* tiny(unsigned *p) */
SIM_KERNEL(_Z4tinyPj, sizeof(void *))
{
    unsigned *p = sim_reach(SIM_ARG(call, 0, CUdeviceptr), sizeof(unsigned), true);

    if (p)
        *p = 1;
}

/* stamp(unsigned *words, size_t n_words, unsigned value, unsigned long long ns) */
SIM_KERNEL(_Z5stampPjmjy, sizeof(void *), sizeof(size_t), sizeof(unsigned),
           sizeof(unsigned long long))
{
    size_t n_words = SIM_ARG(call, 1, size_t);
    unsigned *words = sim_reach(SIM_ARG(call, 0, CUdeviceptr), n_words * sizeof(unsigned), true);

    for (size_t i = 0; words && i < n_words; i++)
        words[i] = SIM_ARG(call, 2, unsigned);
}

/* verify(const unsigned *words, size_t n_words, unsigned value, unsigned *n_wrong) */
SIM_KERNEL(_Z6verifyPKjmjPj, sizeof(void *), sizeof(size_t), sizeof(unsigned), sizeof(void *))
{
    size_t n_words = SIM_ARG(call, 1, size_t);
    const unsigned *words =
        sim_reach(SIM_ARG(call, 0, CUdeviceptr), n_words * sizeof(unsigned), false);
    unsigned *n_wrong = sim_reach(SIM_ARG(call, 3, CUdeviceptr), sizeof(unsigned), true);

    for (size_t i = 0; words && n_wrong && i < n_words; i++)
        *n_wrong += words[i] != SIM_ARG(call, 2, unsigned);
}
