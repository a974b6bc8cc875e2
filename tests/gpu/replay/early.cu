/*
 * Kernels that start before the kernel before them has ended (programmatic stream serialization),
 * behind a free: they write to memory that is the freed block's. usage: early SCENARIO
 *   blocking, nonblocking, legacy, per-thread   all on one such stream
 *   event       an event is recorded in between
 *   two         another stream has work as well, so that the free concerns both
 *   chain       three such kernels behind the free, each with memory that was freed before
 *   kept        nothing is freed between the kernels: they do start early, with the library too
 * Exit status 0: no word is wrong, and in `kept` most have started early.
 */
#include "tests/gpu/check.h"

static const size_t n_words = 4096;
static const int n_iterations = 100;
static const unsigned long long slow_ns = 300000;

__device__ unsigned long long ended, started;

__device__ static unsigned long long clock_ns()
{
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

/* Lets the next one start at once, and writes late. */
__global__ void slow(unsigned *words, size_t n)
{
    asm volatile("griddepcontrol.launch_dependents;");
    spin_ns(slow_ns);
    for (size_t i = threadIdx.x; i < n; i += blockDim.x)
        words[i] = 1;
    __syncthreads();
    if (threadIdx.x == 0)
        ended = clock_ns();
}

/* Its memory is its own: it need not wait for the one before it. */
__global__ void early(unsigned *words, size_t n, unsigned value)
{
    asm volatile("griddepcontrol.launch_dependents;");
    if (threadIdx.x == 0)
        started = clock_ns();
    for (size_t i = threadIdx.x; i < n; i += blockDim.x)
        words[i] = value;
    asm volatile("griddepcontrol.wait;");
}

static void launch_early(cudaStream_t stream, unsigned *words, unsigned value)
{
    cudaLaunchAttribute attribute = {};
    cudaLaunchConfig_t config = {};
    config.gridDim = 1;
    config.blockDim = 128;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    OK(cudaLaunchKernelEx(&config, early, words, n_words, value));
}

static size_t wrong_words(const unsigned *words, unsigned value)
{
    static unsigned host[n_words];
    size_t wrong = 0;
    OK(cudaMemcpy(host, words, sizeof(host), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < n_words; i++)
        wrong += host[i] != value;
    return wrong;
}

static bool started_early()
{
    unsigned long long end, start;
    OK(cudaMemcpyFromSymbol(&end, ended, sizeof(end)));
    OK(cudaMemcpyFromSymbol(&start, started, sizeof(start)));
    return start < end;
}

static unsigned *take()
{
    unsigned *words;
    OK(cudaMalloc(&words, n_words * sizeof(*words)));
    return words;
}

/* Words that are wrong. */
static size_t iteration(const char *scenario, cudaStream_t stream, cudaStream_t other,
                        cudaEvent_t event)
{
    int n = strcmp(scenario, "chain") ? 1 : 3;
    unsigned *freed[3], *given[3];
    size_t wrong = 0;
    for (int i = 0; i < n; i++)
        freed[i] = take();
    if (!strcmp(scenario, "two"))
        slow<<<1, 128, 0, other>>>(freed[0], 0);
    for (int i = 0; i < n; i++)
        slow<<<1, 128, 0, stream>>>(freed[i], n_words);
    for (int i = 0; i < n; i++)
        OK(cudaFree(freed[i]));
    for (int i = 0; i < n; i++)
        given[i] = take();
    if (!strcmp(scenario, "event"))
        OK(cudaEventRecord(event, stream));
    for (int i = 0; i < n; i++)
        launch_early(stream, given[i], 2 + i);
    OK(cudaStreamSynchronize(stream));
    for (int i = 0; i < n; i++) {
        wrong += wrong_words(given[i], 2 + i);
        OK(cudaFree(given[i]));
    }
    return wrong;
}

/* How many of them started early. */
static int kept(cudaStream_t stream)
{
    unsigned *words = take(), *others = take();
    int n_early = 0;
    for (int i = 0; i < 20; i++) { /* before all of them */
        slow<<<1, 128, 0, stream>>>(words, n_words);
        OK(cudaFree(take()));
    }
    for (int i = 0; i < n_iterations; i++) {
        slow<<<1, 128, 0, stream>>>(words, n_words);
        launch_early(stream, others, 2);
        OK(cudaStreamSynchronize(stream));
        n_early += started_early();
    }
    OK(cudaFree(words));
    OK(cudaFree(others));
    return n_early;
}

int main(int argc, char **argv)
{
    const char *scenario = argc > 1 ? argv[1] : "";
    cudaStream_t stream, other;
    cudaEvent_t event;
    size_t wrong = 0;
    int major, minor;
    OK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    OK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
    if (major < 9) {
        printf("compute capability %d.%d: no kernel starts early\n", major, minor);
        return EXIT_UNUSABLE;
    }
    OK(cudaStreamCreateWithFlags(&stream, strcmp(scenario, "nonblocking") ? cudaStreamDefault
                                                                          : cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    if (!strcmp(scenario, "legacy"))
        stream = cudaStreamLegacy;
    if (!strcmp(scenario, "per-thread"))
        stream = cudaStreamPerThread;
    if (!strcmp(scenario, "kept")) {
        int n_early = kept(stream);
        printf("%d of %d kernels started early\n", n_early, n_iterations);
        return n_early * 10 >= n_iterations * 9 ? 0 : EXIT_BROKEN;
    }
    for (int i = 0; i < n_iterations; i++)
        wrong += iteration(scenario, stream, other, event);
    printf("%zu wrong words\n", wrong);
    return wrong ? EXIT_BROKEN : 0;
}
