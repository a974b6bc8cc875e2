/* What the files of the mini runtime share: the driver's functions, entering a context, errors.
 *
 * Files named *_ops.c hold the functions that take part in the choice of the default stream. They
 * are compiled twice, the second time with CUDA_API_PER_THREAD_DEFAULT_STREAM: CUDA's header then
 * renames what they define (cudaMemcpy becomes cudaMemcpy_ptds, cudaMemcpyAsync becomes
 * cudaMemcpyAsync_ptsz), and DRV_STREAM() below picks the driver's per-thread flavour. */
#ifndef MINI_RUNTIME_H
#define MINI_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>

#pragma GCC visibility push(default)
#include <cuda_runtime_api.h>
#pragma GCC visibility pop
#include <cuda.h>
#include <cudaTypedefs.h>

#define MR_EXPORT __attribute__((visibility("default")))

/* One slot a row of driver.def, its name carries base name, version and flavour. */
enum mr_lookup {
#define LEGACY(base, since)     MR_##base##_##since,
#define PER_THREAD(base, since) MR_##base##_##since##_PT,
#include "driver.def"
#undef LEGACY
#undef PER_THREAD
    MR_N_LOOKUPS
};

typedef void (*mr_function)(void);
extern mr_function mr_calls[MR_N_LOOKUPS];

/* DRV(MemAlloc, 3020)(&p, n) calls the driver's cuMemAlloc in the ABI of version 3020. */
#define DRV(base, since) DRV_AS(base, since, since)
/* The same where the header knows the prototype under another version only. */
#define DRV_AS(base, since, prototype_since) \
    ((PFN_cu##base##_v##prototype_since)mr_calls[MR_##base##_##since])

/* The same for a function with two flavours: `since` is the legacy one's version (which names the
 * prototype), `since_pt` the per-thread one's. */
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
#define DRV_STREAM(base, since, since_pt) \
    ((PFN_cu##base##_v##since)mr_calls[MR_##base##_##since_pt##_PT])
#else
#define DRV_STREAM(base, since, since_pt) DRV(base, since)
#endif

/* Casting between a runtime structure and the driver's is allowed where this holds. */
#define MR_SAME_SIZE(runtime_type, driver_type) \
    _Static_assert(sizeof(runtime_type) == sizeof(driver_type), "structures differ")

/* driver.c */

/* Loads libcuda.so.1 and asks for every row of driver.def; once per process, any thread.
 * cudaErrorInsufficientDriver when there is no driver or it is older than this runtime. */
cudaError_t mr_driver_load(void);
/* The driver's cuGetProcAddress_v2; NULL before mr_driver_load succeeded. */
PFN_cuGetProcAddress_v12000 mr_driver_asker(void);
/* Gives the simulated driver the program's host function for a kernel. False when the driver is a
 * simulated one and the program has none; does nothing on other drivers. */
bool mr_driver_offer_kernel(const char *kernel_name);
/* Tells the simulated driver of a variable in the device code. */
void mr_driver_offer_variable(const char *name, size_t n_bytes, bool managed);

/* context.c */

/* Driver loaded, cuInit done, at least one device. */
cudaError_t mr_init(void);
/* mr_init, and a context is current: the calling thread's, or its device's primary context. */
cudaError_t mr_enter(void);
/* The primary context of a device, retained once per process. */
cudaError_t mr_primary_context(int device, CUcontext *ret_context);
/* The device of the calling thread's current context. */
cudaError_t mr_current_device(int *ret_device);
/* Gives back every primary context; called when the last fat binary has gone. */
void mr_release_contexts(void);

/* error.c */

/* Remembers a failure for cudaGetLastError and returns its argument. */
cudaError_t mr_finish(cudaError_t error);
/* After a device reset the context's own error is gone. */
void mr_forget_error(void);

/* binary.c */

/* The driver's handle of a kernel named by its host stub, or of one that was handed out as
 * cudaKernel_t. Loads the library that holds it. */
cudaError_t mr_kernel_of(const void *func, CUkernel *ret_kernel);
/* The host stub of a kernel handle; NULL when it has none. */
const void *mr_host_stub_of(CUkernel kernel);
/* Address and size of a __device__, __constant__ or __managed__ variable. */
cudaError_t mr_variable_of(const void *host_variable, CUdeviceptr *ret_address, size_t *ret_bytes);
/* Makes a kernel known that was found by name in a library. */
cudaError_t mr_library_kernel(CUlibrary library, const char *name, CUkernel *ret_kernel);

/* copy_ops.c: one description of a pitched copy, for the copies and the graph nodes. */
cudaError_t mr_describe_copy(const struct cudaMemcpy3DParms *p, CUDA_MEMCPY3D *ret_copy);

/* A function's body: enter, call the driver unless that failed, remember the result. */
#define MR_RUN(call) MR_RUN_AFTER(mr_enter(), call)
/* For functions that need the driver but no context. */
#define MR_RUN_NO_CONTEXT(call) MR_RUN_AFTER(mr_init(), call)
#define MR_RUN_AFTER(entering, call)                                         \
    __extension__({                                                          \
        cudaError_t entered_ = (entering);                                   \
        mr_finish(entered_ != cudaSuccess ? entered_ : (cudaError_t)(call)); \
    })

#endif
