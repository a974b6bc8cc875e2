/* The program's own executable graphs, and what the driver takes for them as cudaMemGetInfo tells
 * it: one "key value" a line. usage: own_graphs kernels|nodes */
#include "tests/gpu/check.h"

#define GRAPHS  16
#define KERNELS 1000

__global__ void step(float *p, float by)
{
    p[threadIdx.x] = p[threadIdx.x] * by + 1.0f;
}

static size_t free_now(void)
{
    size_t free_bytes, total;

    OK(cudaMemGetInfo(&free_bytes, &total));
    return free_bytes;
}

static void tell(const char *key, size_t value)
{
    printf("%s %zu\n", key, value);
}

static void kernels(cudaStream_t stream)
{
    cudaGraphExec_t execs[GRAPHS];
    size_t instantiated = 0, launched = 0, before;
    cudaGraph_t graph;
    float *p;

    OK(cudaMalloc(&p, 32 * sizeof(float)));
    step<<<1, 32, 0, stream>>>(p, 0.5f); /* its code is loaded before anything is measured */
    OK(cudaStreamSynchronize(stream));
    for (int i = 0; i < GRAPHS; i++) {
        OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
        for (int j = 0; j < KERNELS; j++)
            step<<<1, 32, 0, stream>>>(p, (float)j);
        OK(cudaStreamEndCapture(stream, &graph));
        before = free_now();
        OK(cudaGraphInstantiate(&execs[i], graph, 0));
        instantiated += before - free_now();
        OK(cudaGraphDestroy(graph));
    }
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < GRAPHS; i++) {
            before = free_now();
            OK(cudaGraphLaunch(execs[i], stream));
            launched += before - free_now();
        }
    }
    OK(cudaStreamSynchronize(stream));
    for (int i = 0; i < GRAPHS / 2; i++)
        OK(cudaGraphExecDestroy(execs[i]));
    tell("instantiated", instantiated);
    tell("launched", launched);
}

static size_t level(cudaGraphMemAttributeType which)
{
    unsigned long long value;

    OK(cudaDeviceGetGraphMemAttribute(0, which, &value));
    return (size_t)value;
}

/* Memory that a capture takes and gives back, and memory that stays after the launch. */
static void nodes(cudaStream_t stream)
{
    cudaGraphExec_t exec;
    cudaGraph_t graph;
    float *goes, *stays;

    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    OK(cudaMallocAsync(&goes, 48 * MIB, stream));
    OK(cudaMallocAsync(&stays, 32 * MIB, stream));
    step<<<1, 32, 0, stream>>>(goes, 2.0f);
    step<<<1, 32, 0, stream>>>(stays, 2.0f);
    OK(cudaFreeAsync(goes, stream));
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    tell("used_bytes", level(cudaGraphMemAttrUsedMemCurrent));
    tell("used_high_bytes", level(cudaGraphMemAttrUsedMemHigh));
    tell("reserved_bytes", level(cudaGraphMemAttrReservedMemCurrent));
    tell("reserved_high_bytes", level(cudaGraphMemAttrReservedMemHigh));
}

int main(int argc, char **argv)
{
    cudaStream_t stream;

    if (argc != 2)
        return EXIT_UNUSABLE;
    OK(cudaSetDevice(0));
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    if (!strcmp(argv[1], "kernels"))
        kernels(stream);
    else
        nodes(stream);
    return 0;
}
