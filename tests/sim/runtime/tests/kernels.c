/* Host functions for the kernels of api.c and nvcc.cu. */
#include "../sim_kernel.h"

/* fill(unsigned *p, unsigned value, int n) */
SIM_KERNEL(_Z4fillPjji, sizeof(void *), sizeof(unsigned), sizeof(int))
{
    size_t n = (size_t)SIM_ARG(call, 2, int);
    unsigned *p = sim_reach(SIM_ARG(call, 0, CUdeviceptr), n * sizeof(*p), true);
    for (size_t i = 0; p != NULL && i < n; i++)
        p[i] = SIM_ARG(call, 1, unsigned);
}

/* add(unsigned *to, const unsigned *from, int n) */
SIM_KERNEL(_Z3addPjPKji, sizeof(void *), sizeof(void *), sizeof(int))
{
    size_t n = (size_t)SIM_ARG(call, 2, int);
    unsigned *to = sim_reach(SIM_ARG(call, 0, CUdeviceptr), n * sizeof(*to), true);
    const unsigned *from = sim_reach(SIM_ARG(call, 1, CUdeviceptr), n * sizeof(*from), false);
    if (to == NULL || from == NULL)
        return;
    for (size_t i = 0; i < n; i++)
        to[i] += from[i];
}

/* shape(unsigned *p): what the launch was configured with */
SIM_KERNEL(_Z5shapePj, sizeof(void *))
{
    unsigned *p = sim_reach(SIM_ARG(call, 0, CUdeviceptr), 7 * sizeof(*p), true);
    if (p == NULL)
        return;
    for (int axis = 0; axis < 3; axis++) {
        p[axis] = call->grid[axis];
        p[3 + axis] = call->block[axis];
    }
    p[6] = call->shared_bytes;
}

/* scale<double>(double *p, double by, int n) */
SIM_KERNEL(_Z5scaleIdEvPT_S0_i, sizeof(void *), sizeof(double), sizeof(int))
{
    size_t n = (size_t)SIM_ARG(call, 2, int);
    double *p = sim_reach(SIM_ARG(call, 0, CUdeviceptr), n * sizeof(*p), true);
    for (size_t i = 0; p != NULL && i < n; i++)
        p[i] *= SIM_ARG(call, 1, double);
}
