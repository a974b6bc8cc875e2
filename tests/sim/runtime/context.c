/* Devices and their primary contexts: which one a thread works in, and giving them back. */
#include "mini.h"

#include <pthread.h>
#include <stdlib.h>

enum { MAX_DEVICES = 64 };

static struct {
    pthread_once_t once;
    cudaError_t result;
    int n_devices;
    pthread_mutex_t lock; /* guards devices[] */
    struct {
        CUcontext context; /* NULL until first retained; stays known after a reset */
        bool retained;
        unsigned flags; /* cudaSetDeviceFlags before the context existed */
    } devices[MAX_DEVICES];
} contexts = {.once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local struct {
    int device; /* what cudaSetDevice chose */
} thread;

static void init(void)
{
    contexts.result = mr_driver_load();
    if (contexts.result != cudaSuccess)
        return;
    contexts.result = (cudaError_t)DRV(Init, 2000)(0);
    if (contexts.result != cudaSuccess)
        return;
    contexts.result = (cudaError_t)DRV(DeviceGetCount, 2000)(&contexts.n_devices);
    if (contexts.result != cudaSuccess)
        return;
    if (contexts.n_devices > MAX_DEVICES)
        contexts.n_devices = MAX_DEVICES;
    if (contexts.n_devices == 0)
        contexts.result = cudaErrorNoDevice;
}

cudaError_t mr_init(void)
{
    (void)pthread_once(&contexts.once, init);
    return contexts.result;
}

static bool is_device(int device)
{
    return device >= 0 && device < contexts.n_devices;
}

cudaError_t mr_primary_context(int device, CUcontext *ret_context)
{
    if (!is_device(device))
        return cudaErrorInvalidDevice;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&contexts.lock);
    if (!contexts.devices[device].retained) {
        if (contexts.devices[device].flags != 0) {
            (void)DRV(DevicePrimaryCtxSetFlags, 11000)(device, contexts.devices[device].flags);
        }
        result = DRV(DevicePrimaryCtxRetain, 7000)(&contexts.devices[device].context, device);
        contexts.devices[device].retained = result == CUDA_SUCCESS;
    }
    if (result == CUDA_SUCCESS)
        *ret_context = contexts.devices[device].context;
    pthread_mutex_unlock(&contexts.lock);
    return (cudaError_t)result;
}

/* True for a primary context that a reset has taken away and nobody has revived. */
static bool was_reset(CUcontext context)
{
    bool reset = false;
    pthread_mutex_lock(&contexts.lock);
    for (int i = 0; i < contexts.n_devices; i++) {
        if (contexts.devices[i].context == context)
            reset = !contexts.devices[i].retained;
    }
    pthread_mutex_unlock(&contexts.lock);
    return reset;
}

static cudaError_t make_current(int device)
{
    CUcontext context;
    cudaError_t error = mr_primary_context(device, &context);
    return error != cudaSuccess ? error : (cudaError_t)DRV(CtxSetCurrent, 4000)(context);
}

cudaError_t mr_enter(void)
{
    cudaError_t error = mr_init();
    if (error != cudaSuccess)
        return error;
    CUcontext current = NULL;
    CUresult result = DRV(CtxGetCurrent, 4000)(&current);
    if (result != CUDA_SUCCESS)
        return (cudaError_t)result;
    if (current != NULL && !was_reset(current))
        return cudaSuccess;
    return make_current(thread.device);
}

cudaError_t mr_current_device(int *ret_device)
{
    CUdevice device;
    CUresult result = DRV(CtxGetDevice, 2000)(&device);
    if (result == CUDA_SUCCESS)
        *ret_device = device;
    return (cudaError_t)result;
}

void mr_release_contexts(void)
{
    if (mr_driver_asker() == NULL)
        return;
    for (int i = 0; i < contexts.n_devices; i++) {
        if (!contexts.devices[i].retained)
            continue;
        contexts.devices[i].retained = false;
        (void)DRV_AS(DevicePrimaryCtxRelease, 7000, 11000)(i);
    }
}

cudaError_t cudaGetDeviceCount(int *count)
{
    cudaError_t error = mr_init();
    if (count == NULL)
        return mr_finish(cudaErrorInvalidValue);
    *count = error == cudaSuccess ? contexts.n_devices : 0;
    return mr_finish(error);
}

cudaError_t cudaSetDevice(int device)
{
    cudaError_t error = mr_init();
    if (error == cudaSuccess && !is_device(device))
        error = cudaErrorInvalidDevice;
    if (error != cudaSuccess)
        return mr_finish(error);
    thread.device = device;
    return mr_finish(make_current(device));
}

cudaError_t cudaInitDevice(int device, unsigned deviceFlags, unsigned flags)
{
    CUcontext context;
    (void)deviceFlags;
    (void)flags;
    return MR_RUN_NO_CONTEXT(mr_primary_context(device, &context));
}

cudaError_t cudaGetDevice(int *device)
{
    cudaError_t error = mr_init();
    if (error != cudaSuccess)
        return mr_finish(error);
    if (mr_current_device(device) != cudaSuccess)
        *device = thread.device;
    return cudaSuccess;
}

cudaError_t cudaSetDeviceFlags(unsigned flags)
{
    cudaError_t error = mr_init();
    if (error != cudaSuccess)
        return mr_finish(error);
    pthread_mutex_lock(&contexts.lock);
    contexts.devices[thread.device].flags = flags;
    bool retained = contexts.devices[thread.device].retained;
    pthread_mutex_unlock(&contexts.lock);
    if (!retained)
        return cudaSuccess;
    return mr_finish((cudaError_t)DRV(DevicePrimaryCtxSetFlags, 11000)(thread.device, flags));
}

cudaError_t cudaGetDeviceFlags(unsigned *flags)
{
    return MR_RUN(DRV(CtxGetFlags, 7000)(flags));
}

cudaError_t cudaDeviceReset(void)
{
    cudaError_t error = mr_init();
    if (error != cudaSuccess)
        return mr_finish(error);
    int device = thread.device;
    (void)mr_current_device(&device);
    /* Nothing to take away: the driver would complain, the runtime does not. */
    pthread_mutex_lock(&contexts.lock);
    bool retained = contexts.devices[device].retained;
    pthread_mutex_unlock(&contexts.lock);
    if (!retained)
        return cudaSuccess;
    CUresult result = DRV_AS(DevicePrimaryCtxReset, 7000, 11000)(device);
    if (result == CUDA_SUCCESS) {
        pthread_mutex_lock(&contexts.lock);
        contexts.devices[device].retained = false;
        pthread_mutex_unlock(&contexts.lock);
        mr_forget_error();
    }
    return mr_finish((cudaError_t)result);
}

cudaError_t cudaDeviceSynchronize(void)
{
    return MR_RUN(DRV(CtxSynchronize, 2000)());
}
