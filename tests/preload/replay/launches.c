/* Launches of every kind whose parameters point to memory in every way: the same codes and bytes,
 * and what they use is brought to the device for them. Argument: which part. Lines that begin
 * "resident" say how much of a block lies there after a kernel that touched only the first of its
 * pages; natively nothing is managed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

#include "tests/common/device.h"
#include "tests/common/say.h"

#define BYTES (4u << 20)
#define WORDS 4096u /* that are touched: less than a page of the simulation */

/* A parameter with pointers inside. */
struct image {
    uint32_t kind;
    CUdeviceptr pixels;
    uint32_t n;
    CUdeviceptr rest;
};

static CUcontext context;
static CUfunction kernel_struct, kernel_probe;
static CUmodule module;

static void add_to(CUdeviceptr p, uint32_t n, uint32_t value)
{
    uint32_t *words = sim_kernel_access(p, n * sizeof(*words), true);

    for (uint32_t i = 0; words && i < n; i++)
        words[i] += value;
}

static void fill_image(const struct sim_kernel_call *call)
{
    const struct image *image = call->args[0];

    add_to(image->pixels, image->n, 1);
    add_to(image->rest, image->n, 2);
}

static void probe(const struct sim_kernel_call *call)
{
    add_to(*(const CUdeviceptr *)call->args[0], WORDS, 3);
}

/* (u32, pointer, u32) */
static void second(const struct sim_kernel_call *call)
{
    add_to(*(const CUdeviceptr *)call->args[1], WORDS, 3);
}

static void load(void)
{
    static const size_t image_size = sizeof(struct image), pointer_size = sizeof(CUdeviceptr);
    static const char image[64] = "any bytes";

    sim_register_kernel("image", fill_image, 1, &image_size);
    sim_register_kernel("probe", probe, 1, &pointer_size);
    NEED(cuModuleLoadData(&module, image));
    NEED(cuModuleGetFunction(&kernel_struct, module, "image"));
    NEED(cuModuleGetFunction(&kernel_probe, module, "probe"));
}

static CUdeviceptr take(uint32_t value)
{
    CUdeviceptr p;

    NEED(cuMemAlloc(&p, BYTES));
    NEED(cuMemsetD32(p, value, WORDS));
    return p;
}

/* Every word is to be `value`. */
static void give_back(CUdeviceptr p, uint32_t value)
{
    uint32_t words[WORDS], wrong = 0;

    NEED(cuMemcpyDtoH(words, p, sizeof(words)));
    for (uint32_t i = 0; i < WORDS; i++)
        wrong += words[i] != value;
    say("wrong words: %u", wrong);
    NEED(cuMemFree(p));
}

static void say_resident(CUdeviceptr p)
{
    say("resident: %zu", sim_bytes_resident(p, BYTES, 0));
}

static void probe_on(CUstream stream, CUdeviceptr p)
{
    void *params[] = {&p};

    SAY_CODE("launch", cuLaunchKernel(kernel_probe, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
    NEED(cuStreamSynchronize(stream));
    say_resident(p);
}

static void launch_of_every_kind(void)
{
    CUdeviceptr p[5];
    struct image image;
    size_t size = sizeof(CUdeviceptr);
    void *params[1];
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &p[1], CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};
    CUlaunchConfig config = {.gridDimX = 1,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 1,
                             .blockDimY = 1,
                             .blockDimZ = 1};

    for (int i = 0; i < 5; i++)
        p[i] = take(10);
    probe_on(NULL, p[0]);
    probe_on(NULL, p[0]);
    SAY_CODE("packed", cuLaunchKernel(kernel_probe, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
    NEED(cuCtxSynchronize());
    say_resident(p[1]);
    params[0] = &p[2];
    SAY_CODE("extended", cuLaunchKernelEx(&config, kernel_probe, params, NULL));
    NEED(cuCtxSynchronize());
    say_resident(p[2]);
    params[0] = &p[3];
    SAY_CODE("cooperative",
             cuLaunchCooperativeKernel(kernel_probe, 1, 1, 1, 1, 1, 1, 0, NULL, params));
    NEED(cuCtxSynchronize());
    say_resident(p[3]);
    image = (struct image){.kind = 1, .pixels = p[3] + 400, .n = 100, .rest = p[4] + 800};
    params[0] = &image;
    SAY_CODE("struct", cuLaunchKernel(kernel_struct, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    NEED(cuCtxSynchronize());
    say_resident(p[4]);
    NEED(cuMemsetD32(p[4] + 800, 10, 100));
    NEED(cuMemsetD32(p[3] + 400, 13, 100));
    for (int i = 0; i < 5; i++)
        give_back(p[i], i == 4 ? 10 : i == 0 ? 16 : 13);
}

static void per_thread_streams(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    __typeof__(&cuLaunchKernel) kernel;
    __typeof__(&cuLaunchKernelEx) extended;
    __typeof__(&cuLaunchCooperativeKernel) cooperative;
    CUlaunchConfig config = {.gridDimX = 1,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 1,
                             .blockDimY = 1,
                             .blockDimZ = 1};
    void *params[1];

    *(void **)&kernel = dlsym(driver, "cuLaunchKernel_ptsz");
    *(void **)&extended = dlsym(driver, "cuLaunchKernelEx_ptsz");
    *(void **)&cooperative = dlsym(driver, "cuLaunchCooperativeKernel_ptsz");
    for (int i = 0; i < 3; i++) {
        CUdeviceptr p = take(1);

        NEED(cuCtxSynchronize());
        params[0] = &p;
        SAY_CODE("per thread",
                 i == 0   ? kernel(kernel_probe, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL)
                 : i == 1 ? extended(&config, kernel_probe, params, NULL)
                          : cooperative(kernel_probe, 1, 1, 1, 1, 1, 1, 0, NULL, params));
        NEED(cuStreamSynchronize(CU_STREAM_PER_THREAD));
        say_resident(p);
        give_back(p, 4);
    }
}

/* What the driver refuses it refuses as ever, and what comes next works. */
static void refused(void)
{
    CUdeviceptr p = take(1);
    CUlaunchConfig config = {.gridDimX = 1};
    void *params[] = {&p};
    size_t size = 1;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &p, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};
    void *junk[] = {(void *)(uintptr_t)77, &p, CU_LAUNCH_PARAM_END};

    SAY_CODE("no grid", cuLaunchKernel(kernel_probe, 0, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    SAY_CODE("too many", cuLaunchKernel(kernel_probe, 1, 1, 1, 4096, 1, 1, 0, NULL, params, NULL));
    SAY_CODE("no parameters", cuLaunchKernel(kernel_probe, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    SAY_CODE("both", cuLaunchKernel(kernel_probe, 1, 1, 1, 1, 1, 1, 0, NULL, params, extra));
    SAY_CODE("too short", cuLaunchKernel(kernel_probe, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
    SAY_CODE("junk", cuLaunchKernel(kernel_probe, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, junk));
    SAY_CODE("no function", cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    SAY_CODE("no configuration", cuLaunchKernelEx(NULL, kernel_probe, params, NULL));
    SAY_CODE("half a configuration", cuLaunchKernelEx(&config, kernel_probe, params, NULL));
    SAY_CODE("cooperative without",
             cuLaunchCooperativeKernel(kernel_probe, 1, 1, 1, 1, 1, 1, 0, NULL, NULL));
    probe_on(NULL, p);
    give_back(p, 4);
}

/* Code goes, other code comes under the same handles; memory goes and comes. */
static void unloaded(void)
{
    static const size_t three[] = {4, sizeof(CUdeviceptr), 4};
    static const char image[64] = "any bytes";

    for (int i = 0; i < 12; i++) {
        CUdeviceptr p = take(2);
        CUfunction other;
        uint32_t none = 0;
        void *params[] = {&none, &p, &none};

        probe_on(NULL, p);
        NEED(cuModuleUnload(module));
        sim_register_kernel("three", second, 3, three);
        NEED(cuModuleLoadData(&module, image));
        NEED(cuModuleGetFunction(&other, module, "three"));
        NEED(cuMemFree(p));
        p = take(2);
        SAY_CODE("other", cuLaunchKernel(other, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
        NEED(cuCtxSynchronize());
        say_resident(p);
        NEED(cuModuleUnload(module));
        load();
        give_back(p, 5);
    }
}

/* A reset takes memory and code with it; what comes after may have the same addresses and handles.
 */
static void reset(void)
{
    for (int i = 0; i < 4; i++) {
        CUdeviceptr p = take(1), lost = take(1);

        probe_on(NULL, p);
        give_back(p, 4);
        probe_on(NULL, lost);
        NEED(cuDevicePrimaryCtxReset(0));
        NEED(cuDevicePrimaryCtxRetain(&context, 0));
        NEED(cuCtxSetCurrent(context));
        load();
    }
}

/* Two devices use the memory of one in turn. */
static void peers(void)
{
    CUcontext other;
    CUdeviceptr p = take(1);
    CUmodule here = module;

    NEED(cuCtxSynchronize());
    NEED(cuDevicePrimaryCtxRetain(&other, 1));
    NEED(cuCtxSetCurrent(other));
    SAY_CODE("peer", cuCtxEnablePeerAccess(context, 0));
    for (int i = 0; i < 3; i++) {
        NEED(cuCtxSetCurrent(context));
        NEED(cuModuleGetFunction(&kernel_probe, here, "probe"));
        probe_on(NULL, p);
        NEED(cuCtxSetCurrent(other));
        load();
        probe_on(NULL, p);
        say("resident: %zu", sim_bytes_resident(p, BYTES, 1));
        NEED(cuModuleUnload(module));
    }
    NEED(cuCtxSetCurrent(context));
    give_back(p, 19);
}

/* --- captures --- */

static CUresult (*begin_capture)(CUstream, CUstreamCaptureMode);
static CUresult (*end_capture)(CUstream, CUgraph *);
static pthread_barrier_t step;

static void *capture(void *mode)
{
    CUstream stream;
    CUgraph graph = NULL;
    CUgraphExec exec;
    CUdeviceptr p;
    void *params[] = {&p};

    NEED(cuCtxSetCurrent(context));
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    p = take(1);
    NEED(cuCtxSynchronize());
    NEED(begin_capture(stream, (CUstreamCaptureMode)(uintptr_t)mode));
    SAY_CODE("captured launch",
             cuLaunchKernel(kernel_probe, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
    (void)pthread_barrier_wait(&step); /* 1: it is open */
    (void)pthread_barrier_wait(&step); /* 2: others have launched */
    SAY_CODE("captured again",
             cuLaunchKernel(kernel_probe, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
    SAY_CODE("end", end_capture(stream, &graph));
    say("graph: %d", graph != NULL);
    (void)pthread_barrier_wait(&step); /* 3: it is closed */
    NEED(cuGraphInstantiateWithFlags(&exec, graph, 0));
    NEED(cuGraphLaunch(exec, stream));
    NEED(cuStreamSynchronize(stream));
    NEED(cuGraphExecDestroy(exec));
    NEED(cuGraphDestroy(graph));
    NEED(cuStreamDestroy(stream));
    (void)pthread_barrier_wait(&step); /* 4 */
    give_back(p, 7);
    return NULL;
}

static void beside_a_capture(CUstreamCaptureMode mode)
{
    CUdeviceptr p = take(1);
    CUstream stream;
    pthread_t thread;
    void *params[] = {&p};

    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    NEED(cuCtxSynchronize());
    NEED(pthread_create(&thread, NULL, capture, (void *)(uintptr_t)mode));
    (void)pthread_barrier_wait(&step);
    SAY_CODE("launch beside",
             cuLaunchKernel(kernel_probe, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
    (void)pthread_barrier_wait(&step);
    (void)pthread_barrier_wait(&step);
    NEED(cuStreamSynchronize(stream));
    (void)pthread_barrier_wait(&step);
    NEED(pthread_join(thread, NULL));
    probe_on(stream, p);
    NEED(cuStreamDestroy(stream));
    give_back(p, 7);
}

static void captures(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

    *(void **)&begin_capture = dlsym(driver, "cuStreamBeginCapture_v2");
    *(void **)&end_capture = dlsym(driver, "cuStreamEndCapture");
    NEED(pthread_barrier_init(&step, NULL, 2));
    beside_a_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
    beside_a_capture(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    beside_a_capture(CU_STREAM_CAPTURE_MODE_RELAXED);
}

/* --- threads --- */

#define THREADS 6
#define TURNS   40

static CUdeviceptr of_all;

/* Its own blocks come and go, all read one, and look at freed addresses now and then. */
static void *work(void *number)
{
    CUdeviceptr stale = 0, p, result;
    CUstream stream;
    uint32_t wrong;

    NEED(cuCtxSetCurrent(context));
    NEED(cuStreamCreate(&stream,
                        (uintptr_t)number % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
    NEED(cuMemAlloc(&result, BYTES));
    NEED(cuMemsetD32(result, 0, WORDS));
    NEED(cuCtxSynchronize());
    for (uint32_t i = 0; i < TURNS; i++) {
        struct image image = {.n = 0, .pixels = of_all + i, .rest = stale};
        void *params[] = {&image};

        NEED(cuMemAlloc(&p, BYTES));
        launch_fill(stream, p, 1000, i);
        launch_check(stream, p, 1000, i, result);
        launch_check(stream, of_all, 1000, 5, result);
        NEED(cuLaunchKernel(kernel_struct, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
        NEED(cuStreamSynchronize(stream));
        stale = p;
        NEED(cuMemFree(p));
    }
    NEED(cuMemcpyDtoH(&wrong, result, sizeof(wrong)));
    NEED(cuMemFree(result));
    NEED(cuStreamDestroy(stream));
    return (void *)(uintptr_t)wrong;
}

static void threads(void)
{
    pthread_t thread[THREADS];
    void *wrong;

    NEED(cuMemAlloc(&of_all, BYTES));
    launch_fill(NULL, of_all, 1000, 5);
    NEED(cuCtxSynchronize());
    for (uintptr_t i = 0; i < THREADS; i++)
        NEED(pthread_create(&thread[i], NULL, work, (void *)i));
    for (int i = 0; i < THREADS; i++) {
        NEED(pthread_join(thread[i], &wrong));
        say("wrong words: %u", (unsigned)(uintptr_t)wrong);
    }
    NEED(cuMemFree(of_all));
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } parts[] = {{"kinds", launch_of_every_kind},
                 {"per-thread", per_thread_streams},
                 {"refused", refused},
                 {"unloaded", unloaded},
                 {"captures", captures},
                 {"reset", reset},
                 {"peers", peers},
                 {"threads", threads}};

    context = device_open();
    load();
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (argc > 1 && !strcmp(argv[1], parts[i].name))
            parts[i].run();
    }
    say("violations: %u", sim_violations());
    return 0;
}
