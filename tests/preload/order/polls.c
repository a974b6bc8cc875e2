/* A kernel waits for a word that later work sets, on a stream which is made only then: what a free
 * before it has ordered holds for that stream, and nothing else does.
 *
 * `blocking`: the kernel's stream waits for the legacy one. `capture`: a capture begins behind the
 * free, and is open as the stream is made. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "tests/common/device.h"
#include "tests/common/say.h"

#define WORDS 20000
#define BYTES (WORDS * sizeof(uint32_t))

static CUfunction kernel_poll; /* p: waits until the word there is set */

static void poll_word(const struct sim_kernel_call *call)
{
    const unsigned *word = sim_kernel_access(*(const CUdeviceptr *)call->args[0], 4, false);

    if (word && !*word)
        sim_kernel_again();
}

static void load_poll(void)
{
    static const size_t size = sizeof(CUdeviceptr);
    static const char image[64] = "poll";
    CUmodule module;

    sim_register_kernel("poll", poll_word, 1, &size);
    OK(cuModuleLoadData(&module, image));
    OK(cuModuleGetFunction(&kernel_poll, module, "poll"));
}

static void launch_poll(CUstream stream, CUdeviceptr word)
{
    void *args[] = {&word};

    OK(cuLaunchKernel(kernel_poll, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
}

static _Atomic uint32_t may_use; /* what is freed, the kernel that uses it */

static void *let_use(void *unused)
{
    (void)usleep(20000);
    atomic_store(&may_use, 1);
    return unused;
}

/* Memory is in use on `busy` as it is freed, and is the new stream's next. `captured` is NULL, or
 * captures meanwhile. */
static void new_stream(CUstream busy, CUstream captured, CUdeviceptr word, bool asks)
{
    CUdeviceptr first, second;
    CUstream fresh;
    CUgraph graph;
    pthread_t thread;

    atomic_store(&may_use, 0);
    OK(cuMemsetD32(word, 0, 1));
    OK(cuMemAlloc(&first, BYTES));
    launch_spin(busy, &may_use);
    launch_fill(busy, first, WORDS, 1000);
    OK(pthread_create(&thread, NULL, let_use, NULL));
    OK(cuMemFree(first));
    if (captured)
        OK(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
    launch_poll(busy, word);
    if (asks) { /* which waits for what the free has ordered */
        OK(cuStreamCreateWithPriority(&fresh, CU_STREAM_NON_BLOCKING, -1));
        SAY_CODE("the new stream", cuStreamQuery(fresh));
    } else {
        OK(cuStreamCreate(&fresh, CU_STREAM_NON_BLOCKING));
    }
    OK(cuMemAlloc(&second, BYTES));
    launch_fill(fresh, second, WORDS, 5000);
    launch_fill(fresh, word, 1, 1);
    OK(cuStreamSynchronize(busy));
    OK(cuStreamSynchronize(fresh));
    OK(pthread_join(thread, NULL));
    if (captured) {
        SAY_CODE("the capture", cuStreamEndCapture(captured, &graph));
        OK(cuGraphDestroy(graph));
    }
    say("wrong words: %u", count_wrong(second, WORDS, 5000));
    OK(cuMemFree(second));
    OK(cuStreamDestroy(fresh));
}

int main(int argc, char **argv)
{
    bool blocking = argc > 1 && strcmp(argv[1], "blocking") == 0;
    CUstream busy, captured = NULL;
    CUdeviceptr word;

    device_open();
    load_poll();
    OK(cuStreamCreate(&busy, blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
    if (argc > 1 && strcmp(argv[1], "capture") == 0)
        OK(cuStreamCreate(&captured, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&word, sizeof(uint32_t)));
    for (int turn = 0; turn < 4; turn++)
        new_stream(busy, captured, word, turn % 2);
    return 0;
}
