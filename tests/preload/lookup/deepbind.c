/* A library that uses the driver in its own way: VIA_DLSYM as a CUDA runtime does, else linked to
 * it. Opened with RTLD_DEEPBIND, it is bound past everything that was preloaded. */
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <stddef.h>

int use_driver(size_t bytes, CUdeviceptr *ret_address);

#ifdef VIA_DLSYM
static void *find(const char *name)
{
    static void *driver;

    if (!driver)
        driver = dlopen("libcuda.so.1", RTLD_NOW);
    return driver ? dlsym(driver, name) : NULL;
}
#define DRIVER(symbol) ((__typeof__(&symbol))find(#symbol))
#else
#define DRIVER(symbol) (&symbol)
#endif

/* Takes a block and leaves it to the caller. */
int use_driver(size_t bytes, CUdeviceptr *ret_address)
{
    CUcontext context;
    CUdevice device;
    int result = DRIVER(cuInit)(0);

    result = result ? result : (int)DRIVER(cuDeviceGet)(&device, 0);
    result = result ? result : (int)DRIVER(cuDevicePrimaryCtxRetain)(&context, device);
    result = result ? result : (int)DRIVER(cuCtxSetCurrent)(context);
    return result ? result : (int)DRIVER(cuMemAlloc_v2)(ret_address, bytes);
}
