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

/* One turn: two blocks whose bytes meet on the stream, and a wait, which completes what frees left
 * pending. */
static void turn(CUstream stream, unsigned char value)
{
    unsigned char bytes[BYTES];
    CUdeviceptr p, q;

    OK(cuMemAlloc(&p, BYTES));
    OK(cuMemsetD8Async(p, value, BYTES, stream));
    OK(cuMemAlloc(&q, BYTES));
    OK(cuMemcpyDtoDAsync(q, p, BYTES, stream));
    OK(cuMemFree(p));
    OK(cuMemAlloc(&p, BYTES));
    OK(cuMemsetD8Async(p, 0xee, BYTES, NULL));
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH(bytes, q, BYTES));
    for (unsigned i = 0; i < BYTES; i++)
        wrong += bytes[i] != value;
    OK(cuMemFree(p));
    OK(cuMemFree(q));
}

static void *stay(void *number)
{
    CUcontext context;
    CUstream stream;

    OK(cuCtxCreate(&context, NULL, 0, device));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; !atomic_load(&over); i++)
        turn(stream, (unsigned char)(i + (uintptr_t)number));
    OK(cuCtxDestroy(context));
    return NULL;
}

static void come_and_go(unsigned i)
{
    CUcontext context;
    CUstream stream;
    CUdeviceptr p;

    OK(cuCtxCreate(&context, NULL, 0, device));
    OK(cuStreamCreate(&stream, i % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
    turn(stream, (unsigned char)i);
    OK(cuMemAlloc(&p, BYTES));
    OK(cuMemsetD8Async(p, 1, BYTES, stream));
    OK(cuCtxDestroy(context));
}

int main(int argc, char **argv)
{
    unsigned n = argc == 2 ? (unsigned)atol(argv[1]) : 0;
    pthread_t threads[THREADS];
    CUcontext primary;

    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    OK(cuDevicePrimaryCtxRetain(&primary, device));
    for (uintptr_t i = 0; i < THREADS; i++)
        OK(pthread_create(&threads[i], NULL, stay, (void *)i));
    for (unsigned i = 0; i < n; i++)
        come_and_go(i);
    atomic_store(&over, 1);
    for (unsigned i = 0; i < THREADS; i++)
        OK(pthread_join(threads[i], NULL));
    say("wrong bytes: %u", atomic_load(&wrong));
    return 0;
}
