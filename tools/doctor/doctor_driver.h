/* doctor_driver.h: the driver's functions, looked up at run time, since there may be no driver. */
#ifndef TOOLS_DOCTOR_DRIVER_H
#define TOOLS_DOCTOR_DRIVER_H

#include <stdbool.h>

#include "interpose/core/driver/abi.h"

#define DOCTOR_CALLS(X)         \
    X(cuInit)                   \
    X(cuDriverGetVersion)       \
    X(cuGetErrorName)           \
    X(cuDeviceGetCount)         \
    X(cuDeviceGetName)          \
    X(cuDeviceGetAttribute)     \
    X(cuDeviceTotalMem_v2)      \
    X(cuDeviceCanAccessPeer)    \
    X(cuDevicePrimaryCtxRetain) \
    X(cuCtxPushCurrent_v2)      \
    X(cuCtxSynchronize)         \
    X(cuMemAlloc_v2)            \
    X(cuMemFree_v2)             \
    X(cuMemAllocHost_v2)        \
    X(cuMemFreeHost)            \
    X(cuMemcpyHtoD_v2)          \
    X(cuMemcpyDtoH_v2)          \
    X(cuMemcpyDtoDAsync_v2)     \
    X(cuMemsetD32Async)         \
    X(cuStreamCreate)           \
    X(cuStreamSynchronize)

struct doctor_calls {
#define DOCTOR_CALL(symbol) __typeof__(&symbol) symbol;
    DOCTOR_CALLS(DOCTOR_CALL)
#undef DOCTOR_CALL
};

struct doctor_symbol {
    const char *name;
    size_t place; /* of its pointer in a table */
};

/* Looks the symbols up for the table: by "dlsym", or by "get-proc" (cuGetProcAddress). Returns
 * NULL, or the name of what is missing. */
const char *doctor_look_up(const char *lookup, const struct doctor_symbol *symbols, size_t n,
                           void *ret);
/* Looks all of the calls above up likewise. */
const char *doctor_open_driver(const char *lookup, struct doctor_calls *ret);
/* Is the driver that was opened the simulated one? */
bool doctor_driver_is_simulated(void);
/* Begins to use device 0, by its primary context. */
CUresult doctor_begin(const struct doctor_calls *calls);
/* Does the device find the host's memory by itself, because it is integrated or uses the host's
 * page tables? After doctor_driver(). */
bool doctor_finds_host_memory(int device);

#endif
