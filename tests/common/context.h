/* context.h: reaches a device, as a program does before anything else. */
#ifndef CONTEXT_H
#define CONTEXT_H

#include <cuda.h>

#include "tests/common/check.h"

/* Initialises the driver and makes the primary context of device 0 current. */
static inline CUcontext context_open(void)
{
    CUdevice device;
    CUcontext context;

    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    return context;
}

#endif
