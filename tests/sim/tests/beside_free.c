/* beside_free.c: what other threads do while one is in cuMemFree's wait (S14): they ask and wait,
 * and what they submit waits. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "sim_test.h"

static struct test test;
static CUfunction spin;
static CUstream ours, theirs;
static CUdeviceptr p, used;
static CUevent event;
static _Atomic uint32_t may_end;
static _Atomic bool has_freed, has_called;
static CUresult (*call)(void);

static void kernel_spin(const struct sim_kernel_call *kernel)
{
    (void)kernel;
    if (!atomic_load(&may_end))
        sim_kernel_again();
}

static CUresult query(void)
{
    return cuEventQuery(event) == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

static CUresult synchronize(void)
{
    return cuStreamSynchronize(theirs);
}

static CUresult ask(void)
{
    size_t free_bytes, total_bytes;

    return cuMemGetInfo(&free_bytes, &total_bytes);
}

static CUresult submit(void)
{
    return launch(test.fill, theirs, used, 4, 1);
}

static CUresult fill(void)
{
    return cuMemsetD32Async(used, 1, 4, theirs);
}

static CUresult allocate(void)
{
    CUdeviceptr q;

    return cuMemAlloc(&q, 4096);
}

static CUresult record(void)
{
    return cuEventRecord(event, theirs);
}

static void *free_it(void *unused)
{
    OK(cuCtxSetCurrent(test.ctx));
    OK(cuMemFree(p));
    atomic_store(&has_freed, true);
    return unused;
}

static void *call_it(void *unused)
{
    OK(cuCtxSetCurrent(test.ctx));
    OK(call());
    atomic_store(&has_called, true);
    return unused;
}

/* Did the call wait for the free? The free is in its wait after `delay_us`, unless the machine is
 * busy. */
static bool waits_beside_free(unsigned delay_us, bool may_return)
{
    pthread_t freeing, calling;
    bool has_waited;

    atomic_store(&may_end, 0);
    atomic_store(&has_freed, false);
    atomic_store(&has_called, false);
    OK(cuMemAlloc(&p, 4096));
    OK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, ours, NULL, NULL));
    OK(cuEventRecord(event, ours));
    OK(pthread_create(&freeing, NULL, free_it, NULL));
    (void)usleep(delay_us);
    CHECK(!has_freed);
    OK(pthread_create(&calling, NULL, call_it, NULL));
    if (may_return)
        OK(pthread_join(calling, NULL));
    else
        (void)usleep(20000);
    CHECK(!has_freed);
    has_waited = !has_called;
    atomic_store(&may_end, 1);
    OK(pthread_join(freeing, NULL));
    if (!may_return)
        OK(pthread_join(calling, NULL));
    OK(cuCtxSynchronize());
    return has_waited;
}

static void returns(CUresult (*what)(void))
{
    call = what;
    (void)waits_beside_free(20000, true);
}

static void waits(CUresult (*what)(void))
{
    unsigned delay_us = 20000;

    call = what;
    while (!waits_beside_free(delay_us, false)) {
        CHECK(delay_us < 2000000);
        delay_us *= 5;
    }
}

int main(void)
{
    sim_register_kernel("spin", kernel_spin, 0, NULL);
    test_open(&test, 0);
    OK(cuModuleGetFunction(&spin, test.module, "spin"));
    OK(cuStreamCreate(&ours, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&theirs, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuMemAlloc(&used, 4096));
    returns(query);
    returns(synchronize);
    returns(ask);
    waits(submit);
    waits(fill);
    waits(allocate);
    waits(record);
    CHECK(sim_violations() == 0);
    return 0;
}
