/* ends.c: the end of the driver at exit, forked children, threads, destroyed contexts, faults. */
#include "sim_test.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static struct test test;

/* Runs part(argument) in a child that has not met the driver; returns its exit status. */
static int in_child(void (*part)(const char *), const char *argument)
{
    int status;
    pid_t child = fork();

    if (child == 0) {
        part(argument);
        exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static unsigned *flag;

static void before_init(void)
{
    EXPECT(CUDA_ERROR_DEINITIALIZED, cuCtxSynchronize());
    CUdeviceptr p;
    EXPECT(CUDA_ERROR_DEINITIALIZED, cuMemAlloc(&p, 64));
    _exit(sim_violations() ? 1 : 7);
}

static void after_context(void)
{
    CUcontext ctx;

    OK(cuCtxGetCurrent(&ctx));
    CHECK(ctx == test.ctx);
    OK(cuCtxSynchronize());
    CHECK(*flag == 3);
}

/* A handler from before cuInit runs after the driver's own, one from after it before. */
static void part_exit(const char *unused)
{
    (void)unused;
    CHECK(atexit(before_init) == 0);
    test_open(&test, 0);
    OK(cuMemAllocHost((void **)&flag, 64));
    CHECK(atexit(after_context) == 0);
    OK(launch(test.fill, NULL, (uintptr_t)flag, 1, 3));
}

static void part_fork(const char *unused)
{
    CUdeviceptr p;
    int status;

    (void)unused;
    test_open(&test, 0);
    pid_t child = fork();
    if (child == 0) {
        EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc(&p, 64));
        EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuInit(0));
        _exit(5);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 5);
    OK(cuMemAlloc(&p, 64));
}

static void part_not_initialised(const char *unused)
{
    CUdevice device;
    int version;

    (void)unused;
    OK(cuDriverGetVersion(&version));
    CHECK(version == 13000);
    EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGet(&device, 0));
    OK(cuInit(0));
    CUdeviceptr p;
    EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc(&p, 64));
}

static void part_contexts(const char *unused)
{
    CUdeviceptr native, pooled;
    CUcontext created, now;
    CUstream stream;
    unsigned flags;
    int active;

    (void)unused;
    test_open(&test, 0);
    OK(cuCtxCreate(&created, NULL, 0, 0));
    OK(cuMemAlloc(&native, 64));
    OK(cuMemAllocAsync(&pooled, 64, NULL));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuCtxDestroy(created));
    OK(cuCtxGetCurrent(&now));
    CHECK(now != created);
    EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxSetCurrent(created));
    OK(cuCtxSetCurrent(test.ctx));
    EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuStreamSynchronize(stream));
    /* Native memory went with the context, pool memory did not. */
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(native));
    OK(launch(test.fill, NULL, pooled, 4, 1));
    OK(cuCtxSynchronize());
    OK(cuMemFreeAsync(pooled, NULL));
    OK(cuMemAlloc(&native, 64));
    OK(cuDevicePrimaryCtxReset(0));
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    CHECK(!active);
    EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemFree(native));
    OK(cuDevicePrimaryCtxRetain(&now, 0));
    OK(cuCtxSetCurrent(now));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(native));
    CHECK(sim_bytes_in_use(0) == 0);
    CHECK(sim_violations() == 0);
}

static void *end_waiting(void *data)
{
    OK(cuCtxSetCurrent(test.ctx));
    OK(launch(test.fill, CU_STREAM_PER_THREAD, *(CUdeviceptr *)data, 1, 1));
    return NULL;
}

/* The end of a thread whose stream still waits hangs the real driver after a pool allocation on
 * the legacy stream. */
static void part_thread_end(const char *pool_on_legacy)
{
    CUdeviceptr p;
    pthread_t thread;

    test_open(&test, 0);
    OK(cuMemAllocAsync(&p, 64, pool_on_legacy ? NULL : CU_STREAM_PER_THREAD));
    OK(cuCtxSynchronize());
    bool seen = false;
    for (int i = 0; i < 60; i++) {
        OK(launch(test.fill, NULL, p, 1, 1));
        CHECK(pthread_create(&thread, NULL, end_waiting, &p) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        OK(cuCtxSynchronize());
        seen |= sim_violations() > 0;
    }
    CHECK(seen == (pool_on_legacy != NULL) || getenv("SIM_SCHED"));
}

static void part_fail(const char *unused)
{
    CUdeviceptr p;

    (void)unused;
    CHECK(setenv("SIM_FAIL", "cuMemAlloc_v2:2:2,cuMemFree_v2:1:700,cuStreamQuery_ptsz:1", 1) == 0);
    test_open(&test, 0);
    OK(cuMemAlloc(&p, 64));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&p, 64));
    EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemFree(p));
    OK(cuMemFree(p));
    CHECK(sim_calls("cuMemAlloc_v2") == 2 && sim_calls("cuMemFree_v2") == 2);
    CHECK(sim_calls("cuStreamQuery") == 0);
    CHECK(sim_bytes_in_use(0) == 0);
}

/* Without SIM_VIOLATION a report ends the process with a status of its own. */
static void part_report(const char *unused)
{
    CUdeviceptr p;

    (void)unused;
    CHECK(unsetenv("SIM_VIOLATION") == 0);
    fclose(stderr);
    test_open(&test, 0);
    OK(cuMemAlloc(&p, 64));
    OK(launch(test.fill, NULL, p, 17, 1));
    (void)cuCtxSynchronize();
}

int main(void)
{
    CHECK(in_child(part_exit, NULL) == 7);
    CHECK(in_child(part_fork, NULL) == 0);
    CHECK(in_child(part_not_initialised, NULL) == 0);
    CHECK(in_child(part_contexts, NULL) == 0);
    CHECK(in_child(part_thread_end, NULL) == 0);
    CHECK(in_child(part_thread_end, "yes") == 0);
    CHECK(in_child(part_fail, NULL) == 0);
    CHECK(in_child(part_report, NULL) == 86);
    return 0;
}
