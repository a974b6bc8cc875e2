/* visits N: threads allocate and free in a context of their own, which looks at every other context
 * of the process, while contexts come and go beside them N times. What is written stays as it was.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include <cuda.h>

#include "tests/common/say.h"

#define THREADS 3
#define BYTES   4096

static CUdevice device;
static atomic_bool over;
static atomic_uint wrong;

/* One turn: two blocks whose bytes meet on the stream, and a wait, which pays what frees owe. */
static void turn(CUstream stream, unsigned char value)
{
    unsigned char bytes[BYTES];
    CUdeviceptr p, q;

    NEED(cuMemAlloc(&p, BYTES));
    NEED(cuMemsetD8Async(p, value, BYTES, stream));
    NEED(cuMemAlloc(&q, BYTES));
    NEED(cuMemcpyDtoDAsync(q, p, BYTES, stream));
    NEED(cuMemFree(p));
    NEED(cuMemAlloc(&p, BYTES));
    NEED(cuMemsetD8Async(p, 0xee, BYTES, NULL));
    NEED(cuStreamSynchronize(stream));
    NEED(cuMemcpyDtoH(bytes, q, BYTES));
    for (unsigned i = 0; i < BYTES; i++)
        wrong += bytes[i] != value;
    NEED(cuMemFree(p));
    NEED(cuMemFree(q));
}

static void *stay(void *number)
{
    CUcontext context;
    CUstream stream;

    NEED(cuCtxCreate(&context, NULL, 0, device));
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; !atomic_load(&over); i++)
        turn(stream, (unsigned char)(i + (uintptr_t)number));
    NEED(cuCtxDestroy(context));
    return NULL;
}

static void come_and_go(unsigned i)
{
    CUcontext context;
    CUstream stream;
    CUdeviceptr p;

    NEED(cuCtxCreate(&context, NULL, 0, device));
    NEED(cuStreamCreate(&stream, i % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
    turn(stream, (unsigned char)i);
    NEED(cuMemAlloc(&p, BYTES));
    NEED(cuMemsetD8Async(p, 1, BYTES, stream));
    NEED(cuCtxDestroy(context));
}

int main(int argc, char **argv)
{
    unsigned n = argc == 2 ? (unsigned)atol(argv[1]) : 0;
    pthread_t threads[THREADS];
    CUcontext primary;

    NEED(cuInit(0));
    NEED(cuDeviceGet(&device, 0));
    NEED(cuDevicePrimaryCtxRetain(&primary, device));
    for (uintptr_t i = 0; i < THREADS; i++)
        NEED(pthread_create(&threads[i], NULL, stay, (void *)i));
    for (unsigned i = 0; i < n; i++)
        come_and_go(i);
    atomic_store(&over, 1);
    for (unsigned i = 0; i < THREADS; i++)
        NEED(pthread_join(threads[i], NULL));
    say("wrong bytes: %u", atomic_load(&wrong));
    return 0;
}
