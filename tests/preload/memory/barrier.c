/* Programs that read what a kernel wrote right after a cudaFree of something else. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/common/device.h"
#include "tests/common/say.h"

#define WORDS 1000
#define BYTES (WORDS * sizeof(uint32_t))

/* What dlsym finds by the plain name: the symbol of before CUDA 4.0, or 6.5. */
typedef CUresult (*old_alloc_host)(void **, unsigned int);
typedef CUresult (*old_register)(void *, size_t, unsigned int);

static void *old(const char *name)
{
    void *found = dlsym(dlopen("libcuda.so.1", RTLD_NOW), name);

    if (found == NULL)
        _exit(97);
    return found;
}

/* Host memory the device can write, got in the way named, and its address on the device. */
static uint32_t *host_words(const char *way, CUdeviceptr *ret_device)
{
    void *host = NULL;

    if (strcmp(way, "pinned") == 0) {
        OK(cuMemAllocHost(&host, BYTES));
    } else if (strcmp(way, "old-pinned") == 0) {
        OK(((old_alloc_host)old("cuMemAllocHost"))(&host, BYTES));
    } else if (strcmp(way, "mapped") == 0) {
        OK(cuMemHostAlloc(&host, BYTES, CU_MEMHOSTALLOC_DEVICEMAP));
    } else if (strstr(way, "registered")) {
        old_register by =
            strcmp(way, "registered") ? (old_register)old("cuMemHostRegister") : cuMemHostRegister;

        host = aligned_alloc(4096, 4096);
        if (host == NULL)
            _exit(98);
        OK(by(host, 4096, CU_MEMHOSTREGISTER_DEVICEMAP));
    } else {
        OK(cuMemAllocManaged(ret_device, BYTES, CU_MEM_ATTACH_GLOBAL));
        return (uint32_t *)(uintptr_t)*ret_device;
    }
    OK(cuMemHostGetDevicePointer(ret_device, host, 0));
    return host;
}

static CUcontext context;
static _Atomic uint32_t may_end; /* of the kernel */
static atomic_bool is_waiting;   /* another thread, for what the free has waited for natively */

static void note_waiting(void)
{
    atomic_store(&is_waiting, true);
}

static void *end_soon(void *unused)
{
    (void)usleep(100000);
    atomic_store(&may_end, 1);
    return unused;
}

static void *pin(void *unused)
{
    void *host;

    OK(cuCtxSetCurrent(context));
    OK(cuMemAllocHost(&host, BYTES));
    note_waiting(); /* it did not have to */
    return unused;
}

/* Two threads do the first thing by which unfinished work could be seen: the one that comes second
 * must wait as long. */
static void two_threads(CUdeviceptr other, CUstream stream)
{
    pthread_t ends, pins;

    sim_inside("cuEventSynchronize", false, note_waiting);
    launch_spin(stream, &may_end);
    OK(pthread_create(&ends, NULL, end_soon, NULL));
    OK(cuMemFree(other));
    OK(pthread_create(&pins, NULL, pin, NULL));
    while (!atomic_load(&is_waiting))
        (void)usleep(100);
    (void)pin(NULL);
    say("the kernel has %s", atomic_load(&may_end) ? "ended" : "not ended");
    OK(pthread_join(ends, NULL));
    OK(pthread_join(pins, NULL));
}

static void *retain(void *unused)
{
    CUcontext second;

    OK(cuDevicePrimaryCtxRetain(&second, 1));
    return unused;
}

/* Two threads begin to use a second device: whoever comes later must not use it, either, before
 * what a free on the first one has waited for natively. */
static void two_retain(CUdeviceptr other, CUstream stream)
{
    pthread_t ends, retains;

    launch_spin(stream, &may_end);
    OK(pthread_create(&ends, NULL, end_soon, NULL));
    OK(cuMemFree(other));
    OK(pthread_create(&retains, NULL, retain, NULL));
    (void)usleep(30000);
    (void)retain(NULL);
    say("the kernel has %s", atomic_load(&may_end) ? "ended" : "not ended");
    OK(pthread_join(ends, NULL));
    OK(pthread_join(retains, NULL));
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "pinned";
    CUdeviceptr device, other;
    CUstream stream;

    context = device_open();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    /* Something to free before the host memory exists: that free may stay ordered. */
    OK(cuMemAlloc(&other, 4096));
    if (strcmp(way, "two-retain") == 0) {
        two_retain(other, stream);
        return 0;
    }
    if (strcmp(way, "two-threads") == 0) {
        two_threads(other, stream);
        return 0;
    }
    OK(cuMemFree(other));
    uint32_t *words = host_words(way, &device);
    for (uint32_t iteration = 0; iteration < 10; iteration++) {
        OK(cuMemAlloc(&other, 4096));
        launch_fill(stream, device, WORDS, 100 * iteration);
        OK(cuMemFree(other));
        say("%s: wrong words %u", way, wrong_words(words, WORDS, 100 * iteration));
    }
    return 0;
}
