/* For programs on the simulated driver: writing the host function that stands for a kernel.
 *
 *     SIM_KERNEL(_Z5scalePfif, sizeof(float *), sizeof(int), sizeof(float))
 *     {
 *         int n = SIM_ARG(call, 1, int);
 *         float *x = sim_reach(SIM_ARG(call, 0, CUdeviceptr), n * sizeof(float), true);
 *         if (x == NULL) return;
 *         for (int i = 0; i < n; i++) x[i] *= SIM_ARG(call, 2, float);
 *     }
 *
 * SIM_KERNEL takes the kernel's mangled name and the sizes of its parameters, in order. It defines
 * the two symbols that the mini runtime looks for in the program, which therefore has to be linked
 * with -rdynamic, or to have its kernels in a shared library that is linked or preloaded. */
#ifndef SIM_KERNEL_H
#define SIM_KERNEL_H

#include <dlfcn.h>

#include "../sim.h"

struct sim_kernel_params {
    unsigned n;
    const size_t *sizes;
};

#ifdef __cplusplus
#define SIM_KERNEL_LINKAGE extern "C"
#else
#define SIM_KERNEL_LINKAGE
#endif

#define SIM_KERNEL(name, ...)                                                                      \
    static const size_t sim_sizes_##name[] = {__VA_ARGS__};                                        \
    SIM_KERNEL_LINKAGE SIM_EXPORT const struct sim_kernel_params sim_params_##name;                \
    const struct sim_kernel_params sim_params_##name = {sizeof(sim_sizes_##name) / sizeof(size_t), \
                                                        sim_sizes_##name};                         \
    SIM_KERNEL_LINKAGE SIM_EXPORT void sim_kernel_##name(const struct sim_kernel_call *call);      \
    void sim_kernel_##name(const struct sim_kernel_call *call)

/* The value of a kernel parameter. */
#define SIM_ARG(call, index, type) (*(const type *)(call)->args[index])

/* All threads of the call's grid, or along one axis of it (0, 1, 2). */
static inline size_t sim_threads(const struct sim_kernel_call *call, int axis)
{
    return (size_t)call->grid[axis] * call->block[axis];
}

/* sim_kernel_access of the driver that is loaded. The program is not linked with libcuda, so it
 * looks the function up, where the runtime has loaded it. */
static inline void *sim_reach(CUdeviceptr p, size_t n_bytes, bool write)
{
    typedef void *(*access_fn)(CUdeviceptr, size_t, bool);
    static access_fn access;
    if (access == NULL) {
        void *libcuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
        if (libcuda == NULL)
            return NULL;
        access = (access_fn)dlsym(libcuda, "sim_kernel_access");
        if (access == NULL)
            return NULL;
    }
    return access(p, n_bytes, write);
}

#endif
