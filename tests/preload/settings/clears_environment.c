/* Clears its environment, with the process-wide settings in it, before it uses CUDA. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "tests/common/device.h"
#include "tests/common/say.h"

int main(void)
{
    CUdeviceptr p;

    NEED(clearenv());
    device_open();
    SAY_CODE("alloc", cuMemAlloc(&p, 5000));
    SAY_CODE("free", cuMemFree(p));
    return 0;
}
