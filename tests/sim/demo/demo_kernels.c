/* The kernels of demo.cu as host functions, for the simulated driver. */
#include "../runtime/sim_kernel.h"

enum { BINS = 64 };

/* spread(const unsigned *from, unsigned *to, int side) */
SIM_KERNEL(_Z6spreadPKjPji, sizeof(void *), sizeof(void *), sizeof(int))
{
    size_t side = (size_t)SIM_ARG(call, 2, int);
    size_t n_bytes = side * side * sizeof(unsigned);
    const unsigned *from = sim_reach(SIM_ARG(call, 0, CUdeviceptr), n_bytes, false);
    unsigned *to = sim_reach(SIM_ARG(call, 1, CUdeviceptr), n_bytes, true);
    if (from == NULL || to == NULL)
        return;
    for (size_t y = 0; y < side; y++) {
        const unsigned *row = from + y * side;
        const unsigned *above = from + (y + side - 1) % side * side;
        const unsigned *below = from + (y + 1) % side * side;
        for (size_t x = 0; x < side; x++) {
            /* A division for each cell would take longer than all else. */
            size_t left = x ? x - 1 : side - 1, right = x + 1 < side ? x + 1 : 0;
            to[y * side + x] = (4 * row[x] + row[left] + row[right] + above[x] + below[x]) / 8;
        }
    }
}

/* tally(const unsigned *field, unsigned *counts, int n) */
SIM_KERNEL(_Z5tallyPKjPji, sizeof(void *), sizeof(void *), sizeof(int))
{
    size_t n = (size_t)SIM_ARG(call, 2, int);
    const unsigned *field = sim_reach(SIM_ARG(call, 0, CUdeviceptr), n * sizeof(unsigned), false);
    unsigned *counts = sim_reach(SIM_ARG(call, 1, CUdeviceptr), BINS * sizeof(unsigned), true);
    if (field == NULL || counts == NULL)
        return;
    for (size_t i = 0; i < n; i++)
        counts[field[i] % BINS]++;
}

/* season(unsigned *field, const unsigned *counts, int n, unsigned step) */
SIM_KERNEL(_Z6seasonPjPKjij, sizeof(void *), sizeof(void *), sizeof(int), sizeof(unsigned))
{
    size_t n = (size_t)SIM_ARG(call, 2, int);
    unsigned step = SIM_ARG(call, 3, unsigned);
    unsigned *field = sim_reach(SIM_ARG(call, 0, CUdeviceptr), n * sizeof(unsigned), true);
    const unsigned *counts =
        sim_reach(SIM_ARG(call, 1, CUdeviceptr), BINS * sizeof(unsigned), false);
    if (field == NULL || counts == NULL)
        return;
    for (size_t i = 0; i < n; i++)
        field[i] = (field[i] + counts[(i + step) % BINS]) & 0xffffff;
}
