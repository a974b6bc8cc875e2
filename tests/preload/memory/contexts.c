/* Two contexts, and contexts that end while memory of theirs is alive.
 *     contexts relieved    one ends while another thread, for want of memory, gives back what it
 *                          has freed
 *     contexts unspilled   the same, while another thread moves its memory to the device
 *     contexts beside      while the driver ends one, another thread needs what was freed there
 *     contexts captured    one ends while its stream captures, and memory of another was freed
 *     contexts aside       they end while a thread orders what was freed during its captures
 *     contexts peers       of two devices, which reach each other's memory */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "tests/common/device.h"
#include "tests/common/say.h"

#define MIB ((size_t)1 << 20)

static CUdevice device;

static size_t free_memory(void)
{
    size_t free_bytes, total;

    OK(cuMemGetInfo(&free_bytes, &total));
    return free_bytes;
}

static bool about(size_t a, size_t b)
{
    return a + 4 * MIB >= b && b + 4 * MIB >= a;
}

/* Memory of one context is freed, asked about and written while the other is current. */
static void crosswise(CUcontext one, CUcontext two)
{
    CUdeviceptr p, q;
    CUcontext owner = NULL;

    OK(cuCtxSetCurrent(one));
    OK(cuMemAlloc(&p, MIB));
    OK(cuCtxSetCurrent(two));
    OK(cuMemAlloc(&q, MIB));
    SAY_CODE("owner", cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, p));
    say("    the first context: %d", owner == one);
    SAY_CODE("owner", cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, q));
    say("    the second context: %d", owner == two);
    SAY_CODE("copy between them", cuMemcpy(q, p, MIB));
    /* A free waits for the context of its memory, not for this one, where the copy runs. */
    OK(cuCtxSynchronize());
    SAY_CODE("free the other's", cuMemFree(p));
    OK(cuCtxSetCurrent(one));
    SAY_CODE("free the other's", cuMemFree(q));
    SAY_CODE("free it twice", cuMemFree(q));
}

static void freed_in_stream_order(void)
{
    size_t before = free_memory();
    CUdeviceptr p;

    OK(cuMemAlloc(&p, 64 * MIB));
    SAY_CODE("free in stream order", cuMemFreeAsync(p, NULL));
    OK(cuStreamSynchronize(NULL));
    say("its memory came back: %d", about(free_memory(), before));
}

/* With memory, and work on it, while a stream of another context is captured. */
static void destroyed_in_capture(CUstreamCaptureMode mode)
{
    CUcontext context, home;
    CUstream captured, stream;
    CUdeviceptr p;
    CUgraph graph;
    size_t before;

    OK(cuCtxGetCurrent(&home));
    OK(cuStreamCreate(&captured, CU_STREAM_NON_BLOCKING));
    before = free_memory();
    OK(cuCtxCreate(&context, NULL, 0, device));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&p, 8 * MIB));
    OK(cuMemsetD32Async(p, 7, 1024, stream));
    OK(cuCtxSetCurrent(home));
    OK(cuStreamBeginCapture(captured, mode));
    SAY_CODE("destroy", cuCtxDestroy(context));
    SAY_CODE("captured", cuStreamEndCapture(captured, &graph));
    say("its memory came back: %d", about(free_memory(), before));
    OK(cuStreamDestroy(captured));
}

/* The symbols of before CUDA 4.0, as dlsym finds them. */
typedef CUresult (*old_create)(CUcontext *, unsigned int, CUdevice);
typedef CUresult (*old_attach)(CUcontext *, unsigned int);
typedef CUresult (*old_end)(CUcontext);

static void *old(const char *name)
{
    return dlsym(dlopen("libcuda.so.1", RTLD_NOW), name);
}

/* What it held comes back with it, whichever call ends it. */
static void ended_by(const char *name)
{
    old_end end = (old_end)old(name);
    CUcontext context, home;
    CUdeviceptr p;
    size_t before;

    OK(cuCtxGetCurrent(&home));
    before = free_memory();
    OK(((old_create)old("cuCtxCreate"))(&context, 0, device));
    for (int i = 0; i < 3; i++) {
        OK(cuMemAlloc(&p, 8 * MIB));
        OK(cuMemFree(p));
    }
    OK(cuMemAlloc(&p, 8 * MIB));
    if (strcmp(name, "cuCtxDetach") == 0) {
        OK(((old_attach)old("cuCtxAttach"))(&context, 0));
        SAY_CODE("detach", end(context));
        SAY_CODE("it is there still", cuMemFree(p));
        OK(cuMemAlloc(&p, 8 * MIB));
    }
    SAY_CODE(name, end(context));
    OK(cuCtxSetCurrent(home));
    say("its memory came back: %d", about(free_memory(), before));
    SAY_CODE("free of what went with it", cuMemFree(p));
}

static void destroyed_alive(void)
{
    CUcontext context;
    CUdeviceptr p[3], p_before;
    size_t before;

    OK(cuMemAlloc(&p_before, MIB));
    before = free_memory();
    OK(cuCtxCreate(&context, NULL, 0, device));
    for (int i = 0; i < 3; i++)
        OK(cuMemAlloc(&p[i], 8 * MIB));
    OK(cuMemFree(p[1]));
    SAY_CODE("destroy", cuCtxDestroy(context));
    SAY_CODE("pop what is left of it", cuCtxSetCurrent(NULL));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    say("its memory came back: %d", about(free_memory(), before));
    SAY_CODE("free of what went with it", cuMemFree(p[0]));
    SAY_CODE("free of what did not", cuMemFree(p_before));
    OK(cuDevicePrimaryCtxRelease(device));
}

static void reset_alive(CUcontext context)
{
    CUdeviceptr p, q;
    size_t before = free_memory();

    OK(cuMemAlloc(&p, 8 * MIB));
    OK(cuMemAlloc(&q, 8 * MIB));
    OK(cuMemFree(q));
    SAY_CODE("reset", cuDevicePrimaryCtxReset(device));
    SAY_CODE("retain", cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    say("memory came back: %d", about(free_memory(), before));
    SAY_CODE("alloc", cuMemAlloc(&q, 8 * MIB));
    SAY_CODE("memset", cuMemsetD8(q, 3, 8 * MIB));
    SAY_CODE("free", cuMemFree(q));
}

static struct {
    pthread_t thread;
    bool is_started;
    atomic_bool has_ended;
    CUcontext ending, home;
    CUresult result;
} ends;

static void *end_elsewhere(void *unused)
{
    OK(cuCtxSetCurrent(ends.home));
    ends.result = cuCtxDestroy(ends.ending);
    atomic_store(&ends.has_ended, true);
    return unused;
}

static int64_t now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* In the middle of the other thread's allocation, if that asks the driver so much. Whoever ends the
 * context may wait for that allocation, for seconds (VISIT_NS): it goes on sooner, however late
 * sleeps end. */
static void end_context(void)
{
    int64_t until = now_ms() + 200;

    if (ends.is_started)
        return;
    ends.is_started = true;
    OK(pthread_create(&ends.thread, NULL, end_elsewhere, NULL));
    while (now_ms() < until && !atomic_load(&ends.has_ended))
        (void)usleep(1000);
}

/* The context that is to end: what was freed there may be kept. */
static void make_ending(CUcontext home)
{
    CUdeviceptr p[3];

    ends.home = home;
    OK(cuCtxCreate(&ends.ending, NULL, 0, device));
    for (int iteration = 0; iteration < 2; iteration++) {
        for (int i = 0; i < 3; i++)
            OK(cuMemAlloc(&p[i], 8 * MIB));
        for (int i = 0; i < 3; i++)
            OK(cuMemFree(p[i]));
    }
    OK(cuCtxSetCurrent(home));
}

static void relieved(CUcontext home)
{
    CUdeviceptr p[8], rest;
    unsigned n_wrong = 0, n_refused = 0;

    make_ending(home);
    sim_inside("cuEventQuery", false, end_context);
    SAY_CODE("most of the memory", cuMemAlloc(&rest, free_memory() - 16 * MIB));
    end_context();
    OK(pthread_join(ends.thread, NULL));
    sim_inside(NULL, false, NULL);
    say("destroy: %d", (int)ends.result);
    for (uint32_t i = 0; i < 8; i++) {
        OK(cuMemAlloc(&p[i], MIB));
        launch_fill(NULL, p[i], 1000, i);
    }
    for (uint32_t i = 0; i < 8; i++)
        n_wrong += count_wrong(p[i], 1000, i);
    for (uint32_t i = 0; i < 8; i++)
        n_refused += cuMemFree(p[i]) != CUDA_SUCCESS;
    say("wrong words: %u, frees refused: %u", n_wrong, n_refused);
    SAY_CODE("free most", cuMemFree(rest));
}

static atomic_bool is_inside, is_needed;

/* In the driver's call that ends the context. */
static void wait_until_needed(void)
{
    atomic_store(&is_inside, true);
    while (!atomic_load(&is_needed))
        (void)usleep(1000);
    (void)usleep(30000); /* by now the other thread has asked for it */
}

/* What was free before. */
static size_t begin_ending(CUcontext home)
{
    size_t before;

    make_ending(home);
    before = free_memory();
    atomic_store(&is_inside, false);
    atomic_store(&is_needed, false);
    OK(pthread_create(&ends.thread, NULL, end_elsewhere, NULL));
    while (!atomic_load(&is_inside))
        (void)usleep(1000);
    atomic_store(&is_needed, true);
    return before;
}

/* Natively it is free since it was freed: neither answer depends on the context. */
static void beside(CUcontext home)
{
    CUdeviceptr rest;
    size_t before;

    sim_inside("cuCtxDestroy_v2", false, wait_until_needed);
    before = begin_ending(home);
    say("as much is free: %d", free_memory() + 4 * MIB >= before);
    OK(pthread_join(ends.thread, NULL));
    before = begin_ending(home);
    SAY_CODE("most of the memory", cuMemAlloc(&rest, before - 16 * MIB));
    OK(pthread_join(ends.thread, NULL));
    sim_inside(NULL, false, NULL);
    say("destroy: %d", (int)ends.result);
    SAY_CODE("free most", cuMemFree(rest));
}

/* Under a limit of 16 MiB, which the last block has for itself. */
static void unspilled(CUcontext home)
{
    unsigned managed = 0;
    CUdeviceptr p, q;

    ends.home = home;
    OK(cuMemAlloc(&p, 8 * MIB));
    OK(cuCtxCreate(&ends.ending, NULL, 0, device));
    OK(cuMemAlloc(&q, 8 * MIB));
    OK(cuMemAlloc(&q, 8 * MIB));
    OK(cuCtxSetCurrent(home));
    sim_inside("cuCtxPopCurrent_v2", false, end_context);
    SAY_CODE("free", cuMemFree(p));
    end_context();
    OK(pthread_join(ends.thread, NULL));
    sim_inside(NULL, false, NULL);
    say("destroy: %d", (int)ends.result);
    OK(cuMemAlloc(&p, 16 * MIB));
    OK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p));
    say("managed: %d", (int)managed & 1);
}

static void captured(CUcontext home)
{
    size_t before = free_memory();
    CUcontext ending;
    CUstream stream;
    CUdeviceptr p;

    OK(cuMemAlloc(&p, 64 * MIB));
    OK(cuCtxCreate(&ending, NULL, 0, device));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuCtxSetCurrent(home));
    SAY_CODE("free", cuMemFree(p));
    SAY_CODE("destroy", cuCtxDestroy(ending));
    say("its memory came back: %d", about(free_memory(), before));
}

static void peers(CUcontext first)
{
    CUdeviceptr p, q;
    CUcontext second;

    OK(cuMemAlloc(&p, MIB));
    launch_fill(NULL, p, 1000, 7);
    OK(cuDevicePrimaryCtxRetain(&second, 1));
    OK(cuCtxEnablePeerAccess(second, 0));
    OK(cuCtxSynchronize());
    OK(cuCtxSetCurrent(second));
    OK(cuCtxEnablePeerAccess(first, 0));
    OK(cuMemAlloc(&q, MIB));
    OK(cuMemcpyPeer(q, second, p, first, MIB));
    OK(cuCtxSynchronize());
    say("wrong words there: %u", count_wrong(q, 1000, 7));
    OK(cuMemsetD32(q, 3, 1000));
    OK(cuMemcpyPeer(p, first, q, second, MIB));
    OK(cuCtxSynchronize());
    OK(cuCtxSetCurrent(first));
    say("wrong words here: %u", count_wrong(p, 1, 3));
}

static _Atomic bool captures_on;

static void *capture_often(void *primary)
{
    CUstream stream;
    CUgraph graph;

    OK(cuCtxSetCurrent(primary));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    while (captures_on) {
        OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        (void)usleep(200);
        OK(cuStreamEndCapture(stream, &graph));
        OK(cuGraphDestroy(graph));
    }
    OK(cuStreamDestroy(stream));
    return NULL;
}

static void *free_and_end(void *unused)
{
    CUcontext own;
    CUdeviceptr p[20];

    for (unsigned i = 0; i < 30; i++) {
        OK(cuCtxCreate(&own, NULL, 0, device));
        for (unsigned k = 0; k < N_OF(p); k++)
            OK(cuMemAlloc(&p[k], 2 * MIB));
        for (unsigned k = 0; k < N_OF(p); k++)
            OK(cuMemFree(p[k]));
        OK(cuCtxDestroy(own));
    }
    return unused;
}

/* What is set aside is taken out as a whole, whichever contexts it is of. */
static void aside(CUcontext primary)
{
    pthread_t captures, thread[3];

    captures_on = true;
    OK(pthread_create(&captures, NULL, capture_often, primary));
    for (unsigned i = 0; i < N_OF(thread); i++)
        OK(pthread_create(&thread[i], NULL, free_and_end, NULL));
    for (unsigned i = 0; i < N_OF(thread); i++)
        OK(pthread_join(thread[i], NULL));
    captures_on = false;
    OK(pthread_join(captures, NULL));
    say("violations: %u", sim_violations());
}

int main(int argc, char **argv)
{
    CUcontext primary = device_open(), second;

    OK(cuDeviceGet(&device, 0));
    if (argc > 1) {
        (strcmp(argv[1], "peers") == 0       ? peers
         : strcmp(argv[1], "beside") == 0    ? beside
         : strcmp(argv[1], "unspilled") == 0 ? unspilled
         : strcmp(argv[1], "captured") == 0  ? captured
         : strcmp(argv[1], "aside") == 0     ? aside
                                             : relieved)(primary);
        return 0;
    }
    freed_in_stream_order();
    OK(cuCtxCreate(&second, NULL, 0, device));
    crosswise(primary, second);
    OK(cuCtxDestroy(second));
    OK(cuCtxSetCurrent(primary));
    for (int iteration = 0; iteration < 3; iteration++)
        destroyed_alive();
    OK(cuCtxSetCurrent(primary));
    destroyed_in_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
    destroyed_in_capture(CU_STREAM_CAPTURE_MODE_RELAXED);
    for (int iteration = 0; iteration < 3; iteration++)
        reset_alive(primary);
    OK(cuCtxSetCurrent(primary));
    for (int iteration = 0; iteration < 3; iteration++) {
        ended_by("cuCtxDestroy");
        ended_by("cuCtxDetach");
    }
    say("violations: %u", sim_violations());
    return 0;
}
