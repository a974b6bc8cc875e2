/* More streams, threads and contexts than graph replay has places for: what has none must come
 * after what others submitted all the same. Argument: a part and how many. Prints how many
 * iterations came too early. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"
#include "tests/common/context.h"
#include "tests/common/parts.h"
#include "tests/common/say.h"

#define ITERATIONS 60u
#define STEPS      10u

enum look { LOOK_KERNEL, LOOK_COPY };

struct counts {
    uint32_t steps, too_early;
};

static CUdevice device;
static CUcontext context;
static CUfunction kernel_step, kernel_look;
static unsigned many;

/* The simulation orders kernels; ThreadSanitizer does not know. */
#define OF_THE_DEVICE __attribute__((no_sanitize("thread")))

OF_THE_DEVICE static struct counts *counts_of(const struct sim_kernel_call *call)
{
    return sim_kernel_access(*(CUdeviceptr *)call->args[0], sizeof(struct counts), true);
}

OF_THE_DEVICE static void step(const struct sim_kernel_call *call)
{
    struct counts *counts = counts_of(call);

    if (counts)
        counts->steps++;
}

OF_THE_DEVICE static void look(const struct sim_kernel_call *call)
{
    struct counts *counts = counts_of(call);

    if (counts)
        counts->too_early += counts->steps != *(const uint32_t *)call->args[1];
}

static void load(void)
{
    static const char image[64] = "any bytes";
    CUmodule module;

    OK(cuModuleLoadData(&module, image));
    OK(cuModuleGetFunction(&kernel_step, module, "step"));
    OK(cuModuleGetFunction(&kernel_look, module, "look"));
}

static void launch_step(CUstream stream, CUdeviceptr p)
{
    void *args[] = {&p};

    OK(cuLaunchKernel(kernel_step, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
}

static void launch_look(CUstream stream, CUdeviceptr p, uint32_t want)
{
    void *args[] = {&p, &want};

    OK(cuLaunchKernel(kernel_look, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
}

static CUdeviceptr new_counts(CUstream stream)
{
    CUdeviceptr p;

    OK(cuMemAlloc(&p, sizeof(struct counts)));
    OK(cuMemsetD8Async(p, 0, sizeof(struct counts), stream));
    return p;
}

static void tell(const char *what, CUdeviceptr p, uint32_t early_on_host)
{
    struct counts counts;

    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH(&counts, p, sizeof(counts)));
    say("%s: %u steps, looks that came too early: %u and %u", what, counts.steps, counts.too_early,
        early_on_host);
}

/* Steps on one stream, again and again; after each time a look from another one behind them. */
static void iterations(const char *what, CUdeviceptr p, CUstream busy, CUstream other,
                       enum look how)
{
    uint32_t want = 0, early = 0;

    for (unsigned iteration = 0; iteration < ITERATIONS; iteration++) {
        for (unsigned i = 0; i < STEPS; i++, want++)
            launch_step(busy, p);
        if (how == LOOK_KERNEL) {
            launch_look(other, p, want);
        } else {
            uint32_t seen;

            OK(cuMemcpyDtoH(&seen, p, sizeof(seen)));
            early += seen != want;
        }
        if (iteration % 4 == 0)
            OK(cuCtxSynchronize());
    }
    tell(what, p, early);
}

static void make_streams(CUstream *streams, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        OK(cuStreamCreate(&streams[i], CU_STREAM_DEFAULT));
}

/* ---- streams ---- */

static void crowd_of_streams(const char *what, enum look how)
{
    CUstream *streams = calloc(many, sizeof(CUstream));

    make_streams(streams, many);
    iterations(what, new_counts(streams[0]), streams[0], CU_STREAM_LEGACY, how);
    free(streams);
}

static void legacy_looks(void)
{
    crowd_of_streams("the legacy stream behind a blocking one", LOOK_KERNEL);
}

static void copies(void)
{
    crowd_of_streams("copies behind a blocking stream", LOOK_COPY);
}

static void blocking_looks(void)
{
    CUstream *streams = calloc(many, sizeof(CUstream));
    CUdeviceptr p = new_counts(CU_STREAM_LEGACY);

    make_streams(streams, many);
    iterations("a blocking stream behind the legacy one", p, CU_STREAM_LEGACY, streams[many - 1],
               LOOK_KERNEL);
    free(streams);
}

/* An attribute that its kernels would not have in a graph, set while there is no place to note it.
 */
static void attribute(void)
{
    CUstreamAttrValue value = {.syncPolicy = CU_SYNC_POLICY_YIELD};
    CUstream *streams = calloc(many, sizeof(CUstream));

    make_streams(streams, many);
    OK(cuStreamSetAttribute(CU_STREAM_LEGACY, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
    for (unsigned i = 0; i < many; i++)
        OK(cuStreamDestroy(streams[i]));
    iterations("the legacy stream, altered", new_counts(CU_STREAM_LEGACY), CU_STREAM_LEGACY,
               CU_STREAM_LEGACY, LOOK_KERNEL);
    free(streams);
}

/* ---- threads, each with its own stream ---- */

static pthread_barrier_t meeting;

static void *stay(void *unused)
{
    CUdeviceptr p;

    (void)unused;
    OK(cuCtxSetCurrent(context));
    p = new_counts(CU_STREAM_PER_THREAD);
    launch_step(CU_STREAM_PER_THREAD, p);
    (void)pthread_barrier_wait(&meeting);
    (void)pthread_barrier_wait(&meeting);
    OK(cuMemFree(p));
    return NULL;
}

static void threads(void)
{
    pthread_t *ids = calloc(many, sizeof(*ids));
    pthread_attr_t attributes;
    CUstream stream;

    OK(pthread_attr_init(&attributes));
    OK(pthread_attr_setstacksize(&attributes, 256 << 10));
    OK(pthread_barrier_init(&meeting, NULL, many + 1));
    OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    for (unsigned i = 0; i < many; i++) {
        if (pthread_create(&ids[i], &attributes, stay, NULL))
            _exit(77); /* the machine has no room for them */
    }
    (void)pthread_barrier_wait(&meeting);
    iterations("beside threads: a kernel", new_counts(stream), stream, CU_STREAM_LEGACY,
               LOOK_KERNEL);
    iterations("beside threads: copies", new_counts(stream), stream, NULL, LOOK_COPY);
    (void)pthread_barrier_wait(&meeting);
    for (unsigned i = 0; i < many; i++)
        OK(pthread_join(ids[i], NULL));
    free(ids);
}

/* ---- contexts ---- */

static void contexts(void)
{
    for (unsigned i = 0; i < many; i++) {
        CUstream stream;
        CUcontext mine;
        char what[64];

        OK(cuCtxCreate(&mine, NULL, 0, device));
        load();
        OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
        snprintf(what, sizeof(what), "context %u", i);
        iterations(what, new_counts(stream), stream, CU_STREAM_LEGACY, LOOK_KERNEL);
        OK(cuCtxPopCurrent(NULL));
    }
}

/* ---- captures that are open at once ---- */

static void captures(void)
{
    CUstream *streams = calloc(many, sizeof(CUstream));
    CUdeviceptr p = new_counts(CU_STREAM_LEGACY);
    CUgraphExec exec;
    CUgraph graph;

    OK(cuCtxSynchronize());
    for (unsigned i = 0; i < many; i++) {
        OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
        OK(cuStreamBeginCapture(streams[i], CU_STREAM_CAPTURE_MODE_RELAXED));
        launch_step(streams[i], p);
    }
    for (unsigned i = 0; i < many; i++) {
        OK(cuStreamEndCapture(streams[i], &graph));
        OK(cuGraphInstantiate(&exec, graph, 0));
        OK(cuGraphLaunch(exec, streams[0]));
        OK(cuStreamSynchronize(streams[0]));
        OK(cuGraphExecDestroy(exec));
        OK(cuGraphDestroy(graph));
    }
    tell("captures", p, 0);
    iterations("after the captures", new_counts(streams[0]), streams[0], streams[0], LOOK_KERNEL);
    free(streams);
}

static const struct part parts[] = {
    {"legacy-looks", legacy_looks},
    {"blocking-looks", blocking_looks},
    {"copies", copies},
    {"attribute", attribute},
    {"threads", threads},
    {"contexts", contexts},
    {"captures", captures},
};

int main(int argc, char **argv)
{
    static const size_t sizes[] = {sizeof(CUdeviceptr), sizeof(uint32_t)};

    if (argc != 3)
        return 97;
    many = (unsigned)strtoul(argv[2], NULL, 10);
    sim_register_kernel("step", step, 1, sizes);
    sim_register_kernel("look", look, 2, sizes);
    context = context_open();
    OK(cuDeviceGet(&device, 0));
    load();
    return RUN_PART(parts, argv[1]) ? 0 : 97;
}
