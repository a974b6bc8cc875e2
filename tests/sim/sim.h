/* sim.h: what tests may ask of the simulated driver beside the CUDA driver API. */
#ifndef SIM_H
#define SIM_H

#include <stdbool.h>
#include <stddef.h>

#ifndef __cuda_cuda_h__
#include <cuda.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define SIM_EXPORT __attribute__((visibility("default")))

/* There in the simulated driver and in no other: by its name programs tell whose driver they have
 * (AG_DRIVER_MARK of interpose/core/driver/driver.h). */
SIM_EXPORT extern const char allograft_simulated_driver[];

/* What a simulated kernel is told. args[i] points to the i-th parameter, as cuLaunchKernel's
 * kernelParams do. The struct and what it points to live for the length of the call. */
struct sim_kernel_call {
    unsigned grid[3];
    unsigned block[3];
    unsigned shared_bytes;
    void **args;
    unsigned n_args;
    CUstream stream;
};

/* A kernel is one host function that does the work of the whole grid. It must not call the driver
 * (it would get CUDA_ERROR_NOT_PERMITTED) and reaches device memory by sim_kernel_access only. */
typedef void (*sim_kernel_fn)(const struct sim_kernel_call *call);

/* Makes `name` known to cuModuleGetFunction and cuLibraryGetKernel, whatever image was loaded.
 * Any time before its use; the same name again replaces the function. The strings and sizes are
 * copied. */
SIM_EXPORT void sim_register_kernel(const char *name, sim_kernel_fn fn, unsigned n_params,
                                    const size_t *param_sizes);

/* Each thread of that registered kernel has `bytes` of local memory. A launch takes what all
 * threads that the device can run have of that, unless the context has so much from before, and
 * fails where there is no room. */
SIM_EXPORT void sim_kernel_local(const char *name, size_t bytes);

/* Makes a __device__ variable of `bytes` zero bytes known to cuModuleGetGlobal and
 * cuLibraryGetGlobal (managed: to cuLibraryGetManaged too). `init` may be NULL. */
SIM_EXPORT void sim_register_global(const char *name, size_t bytes, bool managed, const void *init);

/* Inside a kernel only: checks that the running kernel may touch [p, p + bytes) now and returns
 * where the simulation keeps these bytes, or NULL after it has reported a violation. */
SIM_EXPORT void *sim_kernel_access(CUdeviceptr p, size_t bytes, bool write);

/* The same for a kernel that may write all of these bytes and writes a few: what it leaves alone
 * takes no memory and no time. */
SIM_EXPORT void *sim_kernel_touch(CUdeviceptr p, size_t bytes);

/* Inside a kernel only: what it waits for is not there yet. It is called again later, from its
 * beginning, until it returns without having said so; the host goes on meanwhile, if it does not
 * wait for this kernel. */
SIM_EXPORT void sim_kernel_again(void);

/* Inside a kernel only: lets `ns` nanoseconds of the virtual clock pass. */
SIM_EXPORT void sim_kernel_spend(unsigned long long ns);

/* Inside a kernel only: reports a violation where its threads have less stack than that. They have
 * what the limit of the context was when the kernel was launched, or its graph instantiated. */
SIM_EXPORT void sim_kernel_needs_stack(size_t bytes);

/* From now on a kernel that is launched with programmatic stream serialization starts while the
 * kernel before it on its stream may still run. Before that, kernels count as waiting for it by
 * themselves, as those that use what it wrote do. */
SIM_EXPORT void sim_start_early(void);

/* Violations reported in this process so far. */
SIM_EXPORT unsigned sim_violations(void);

/* The last report, for tests of the checks themselves; "" before the first one. */
SIM_EXPORT const char *sim_last_violation(void);

/* Bytes of device memory that somebody still holds, pools' reserves not counted. */
SIM_EXPORT size_t sim_bytes_in_use(int device);

/* Bytes of the card's memory in use now, pools' reserves and what the driver needs included;
 * *ret_most (may be NULL): the most so far. */
SIM_EXPORT size_t sim_bytes_of_card(int device, size_t *ret_most);

/* Another process takes `bytes` of the card for itself: false, and nothing taken, where so much is
 * not free. It gets nothing that this process holds, in pools or as pages of managed memory. */
SIM_EXPORT bool sim_neighbour_take(int device, size_t bytes);
/* It gives so much back. */
SIM_EXPORT void sim_neighbour_give(int device, size_t bytes);

/* Bytes of managed memory around [p, p + bytes) that lie on the device now, in pages of 64 KiB. */
SIM_EXPORT size_t sim_bytes_resident(CUdeviceptr p, size_t bytes, int device);

/* Calls of a driver symbol (its full name; "*": of any) that reached the simulation so far. */
SIM_EXPORT unsigned long sim_calls(const char *symbol);

/* The calling thread's next call is late: before the driver has it, other threads make some calls
 * or one records an event or ends (some milliseconds at most). SIM_STALL makes any call so. */
SIM_EXPORT void sim_be_late(void);

/* From now on `what` runs inside each call of `symbol` (its full name), with the driver's lock held
 * or not: as a signal handler does that interrupts the driver there. NULL: no more. */
SIM_EXPORT void sim_inside(const char *symbol, bool locked, void (*what)(void));

/* A function of the driver that is newer than any list of them. Copies as cuMemcpyDtoH does, and
 * says in *ret_sum what it was given: in registers for words and for numbers, and on the stack. */
SIM_EXPORT CUresult cuAllograftFuture(void *to, CUdeviceptr from, size_t bytes, unsigned a,
                                      unsigned b, unsigned c, unsigned d, unsigned e, double x,
                                      float y, unsigned f, double *ret_sum);
/* Another one: begins a capture, as cuStreamBeginCapture does in the relaxed mode. */
SIM_EXPORT CUresult cuAllograftFutureCapture(CUstream stream);

#ifdef __cplusplus
}
#endif

#endif
