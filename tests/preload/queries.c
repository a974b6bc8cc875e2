/* A free natively waits, so queries right after it say "done"; an event is timed without an error.
 */
#include "device.h"
#include "say.h"

int main(void)
{
    CUdeviceptr p, used;
    CUevent start, stop;
    CUstream stream;
    float ms = -1;

    device_open();
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    NEED(cuEventCreate(&start, CU_EVENT_DEFAULT));
    NEED(cuEventCreate(&stop, CU_EVENT_DEFAULT));
    NEED(cuMemAlloc(&used, 4096));
    for (uint32_t round = 0; round < 5; round++) {
        NEED(cuMemAlloc(&p, 4096));
        NEED(cuEventRecord(start, stream));
        launch_fill(stream, used, 1000, round);
        NEED(cuEventRecord(stop, stream));
        NEED(cuMemFree(p));
        if (round % 3 == 0)
            SAY_CODE("stream", cuStreamQuery(stream));
        if (round % 3 == 1)
            SAY_CODE("event", cuEventQuery(stop));
        SAY_CODE("time", cuEventElapsedTime(&ms, start, stop));
        say("    not negative: %d", ms >= 0);
    }
    return 0;
}
