/* A free natively waits, so queries right after it say "done"; an event is timed without an error.
 */
#include <pthread.h>
#include <string.h>

#include "tests/common/device.h"
#include "tests/common/say.h"

#define THREADS    4
#define ITERATIONS 20000

/* Its own stream is done after its own free, whatever the other threads free and ask meanwhile. */
static void *ask_often(void *context)
{
    uintptr_t wrong = 0;
    CUdeviceptr p, used;
    CUstream stream;

    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    OK(cuMemAlloc(&used, 4096));
    for (uint32_t iteration = 0; iteration < ITERATIONS; iteration++) {
        OK(cuMemAlloc(&p, 4096));
        launch_fill(stream, used, 16, iteration);
        OK(cuMemFree(p));
        wrong += cuStreamQuery(stream) != CUDA_SUCCESS;
    }
    return (void *)wrong;
}

static void in_threads(CUcontext context)
{
    pthread_t threads[THREADS];
    void *wrong;

    for (int i = 0; i < THREADS; i++)
        OK(pthread_create(&threads[i], NULL, ask_often, context));
    for (int i = 0; i < THREADS; i++) {
        OK(pthread_join(threads[i], &wrong));
        say("wrong answers: %d", (int)(uintptr_t)wrong);
    }
}

int main(int argc, char **argv)
{
    CUdeviceptr p, used;
    CUevent start, stop;
    CUstream stream;
    CUcontext context;
    float ms = -1;

    context = device_open();
    if (argc > 1 && strcmp(argv[1], "threads") == 0) {
        in_threads(context);
        return 0;
    }
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&start, CU_EVENT_DEFAULT));
    OK(cuEventCreate(&stop, CU_EVENT_DEFAULT));
    OK(cuMemAlloc(&used, 4096));
    for (uint32_t iteration = 0; iteration < 5; iteration++) {
        OK(cuMemAlloc(&p, 4096));
        OK(cuEventRecord(start, stream));
        launch_fill(stream, used, 1000, iteration);
        OK(cuEventRecord(stop, stream));
        OK(cuMemFree(p));
        if (iteration % 3 == 0)
            SAY_CODE("stream", cuStreamQuery(stream));
        if (iteration % 3 == 1)
            SAY_CODE("event", cuEventQuery(stop));
        SAY_CODE("time", cuEventElapsedTime(&ms, start, stop));
        say("    not negative: %d", ms >= 0);
    }
    return 0;
}
