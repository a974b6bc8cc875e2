/* A thread that is to be cancelled makes calls of the driver, which are no cancellation points: the
 * first of the process, or the one that makes the first context. Then the main thread uses CUDA. */
#include <cuda.h>
#include <pthread.h>
#include <string.h>

#include "tests/common/say.h"

static const char *what;

static void open_context(void)
{
    CUcontext context;
    CUdevice device;

    NEED(cuInit(0));
    NEED(cuDeviceGet(&device, 0));
    NEED(cuDevicePrimaryCtxRetain(&context, device));
    NEED(cuCtxSetCurrent(context));
}

static void *probe(void *unused)
{
    CUdriverProcAddressQueryResult how;
    CUdeviceptr p;
    void *function;

    (void)pthread_cancel(pthread_self()); /* at the next cancellation point */
    NEED(cuGetProcAddress("cuInit", &function, 12000, 0, &how));
    if (strcmp(what, "context") == 0) {
        open_context();
        NEED(cuMemAlloc(&p, 4096));
        NEED(cuMemFree(p));
    }
    what = "it went on";
    pthread_testcancel();
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    CUdeviceptr p;
    void *result;

    what = argc > 1 ? argv[1] : "first";
    NEED(pthread_create(&thread, NULL, probe, NULL));
    NEED(pthread_join(thread, &result));
    say("%s, and was cancelled: %d", what, result == PTHREAD_CANCELED);
    open_context();
    NEED(cuMemAlloc(&p, 4096));
    NEED(cuMemFree(p));
    say("CUDA works");
    return 0;
}
