/* A capture that begins by a function of the driver that no list knows: what repeats is recorded
 * there, and not withheld. Prints how many nodes the captures have, and what their kernels did. */
#define _GNU_SOURCE
#include <string.h>

#include "sim.h"
#include "tests/common/context.h"
#include "tests/common/say.h"

#define STEPS 8u

static CUfunction kernel;
static CUdeviceptr word;

static void add(const struct sim_kernel_call *call)
{
    uint32_t *words = sim_kernel_access(*(CUdeviceptr *)call->args[0], sizeof(*words), true);

    if (words)
        *words += 1;
}

static void steps(CUstream stream)
{
    void *args[] = {&word};

    for (unsigned i = 1; i <= STEPS; i++)
        OK(cuLaunchKernel(kernel, i, 1, 1, 1, 1, 1, 0, stream, args, NULL));
}

static void tell(const char *what)
{
    uint32_t seen;

    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH(&seen, word, sizeof(seen)));
    say("%s: %u steps", what, seen);
}

static void capture(CUstream stream, CUresult (*begin)(CUstream))
{
    CUgraphExec exec;
    size_t n = 0;
    CUgraph graph;

    OK(begin(stream));
    steps(stream);
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphGetNodes(graph, NULL, &n));
    tell("captured");
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    say("the graph has %zu nodes", n);
    tell("launched");
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

int main(void)
{
    static const size_t size = sizeof(CUdeviceptr);
    static const char image[64] = "any bytes";
    CUdriverProcAddressQueryResult found;
    CUresult (*begin)(CUstream) = NULL;
    CUmodule module;
    CUstream stream;

    sim_register_kernel("add", add, 1, &size);
    (void)context_open();
    OK(cuModuleLoadData(&module, image));
    OK(cuModuleGetFunction(&kernel, module, "add"));
    OK(cuMemAlloc(&word, 64));
    OK(cuMemsetD32(word, 0, 1));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuGetProcAddress("cuAllograftFutureCapture", (void **)&begin, 13000, 0, &found));
    for (unsigned iteration = 0; iteration < 6; iteration++) {
        steps(stream);
        OK(cuStreamSynchronize(stream));
    }
    tell("before");
    for (unsigned i = 0; i < 3; i++) {
        capture(stream, begin);
        steps(stream);
        tell("after");
    }
    return 0;
}
