/* locale NAME: a program that speaks the user's language allocates a little. */
#include <locale.h>
#include <strings.h>

#include <cuda.h>

#include "tests/common/say.h"

int main(int argc, char **argv)
{
    CUcontext context;
    CUdevice device;
    CUdeviceptr p;

    NEED(argc != 2 || !setlocale(LC_ALL, argv[1]));
    NEED(cuInit(0));
    NEED(cuDeviceGet(&device, 0));
    NEED(cuDevicePrimaryCtxRetain(&context, device));
    NEED(cuCtxSetCurrent(context));
    for (int i = 0; i < 3; i++) {
        NEED(cuMemAlloc(&p, 1500000));
        NEED(cuMemFree(p));
    }
    say("the point: %.1f, capital I: %d", 0.5, strcasecmp("I", "i"));
    return 0;
}
