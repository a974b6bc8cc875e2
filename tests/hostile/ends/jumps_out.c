/* A wait with a time limit: the handler of an alarm jumps out of the driver's wait, where the
 * driver holds no lock. Then the program goes on, in its own way of waiting each time. */
#include <cuda.h>
#include <setjmp.h>
#include <signal.h>

#include "tests/common/device.h"
#include "tests/common/say.h"

#define N_WORDS 100

static sigjmp_buf back;

static void on_signal(int signal_number)
{
    (void)signal_number;
    siglongjmp(back, 1);
}

static void interrupt(void)
{
    (void)raise(SIGALRM);
}

static CUresult wait_by(unsigned way, CUstream stream, CUevent event)
{
    switch (way) {
    case 0:
        return cuStreamSynchronize(stream);
    case 1:
        return cuEventSynchronize(event);
    default:
        return cuCtxSynchronize();
    }
}

static void work(CUstream stream, CUevent event, unsigned way)
{
    for (unsigned i = 0; i < 10; i++) {
        CUdeviceptr p;

        NEED(cuMemAlloc(&p, N_WORDS * sizeof(uint32_t)));
        launch_fill(stream, p, N_WORDS, i);
        launch_fill(stream, p, N_WORDS, i + 1);
        NEED(cuEventRecord(event, stream));
        NEED(wait_by(way, stream, event));
        if (count_wrong(p, N_WORDS, i + 1))
            say("wrong words");
        NEED(cuMemFree(p));
    }
}

int main(void)
{
    static const char *const waits[] = {"cuStreamSynchronize", "cuEventSynchronize",
                                        "cuCtxSynchronize"};
    CUstream stream;
    CUevent event;

    (void)signal(SIGALRM, on_signal);
    device_open();
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    NEED(cuEventCreate(&event, CU_EVENT_DEFAULT));
    work(stream, event, 0);
    for (volatile unsigned way = 0; way < 3; way++) {
        if (!sigsetjmp(back, 1)) {
            sim_inside(waits[way], false, interrupt);
            NEED(wait_by(way, stream, event));
            say("nothing interrupted %s", waits[way]);
        }
        sim_inside(NULL, false, NULL);
        work(stream, event, way);
        say("after %s", waits[way]);
    }
    return 3;
}
