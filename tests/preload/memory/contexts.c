/* Two contexts, and contexts that end while memory of theirs is alive. */
#include "tests/common/device.h"
#include "tests/common/say.h"

#define MIB ((size_t)1 << 20)

static CUdevice device;

static size_t free_memory(void)
{
    size_t free_bytes, total;

    NEED(cuMemGetInfo(&free_bytes, &total));
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

    NEED(cuCtxSetCurrent(one));
    NEED(cuMemAlloc(&p, MIB));
    NEED(cuCtxSetCurrent(two));
    NEED(cuMemAlloc(&q, MIB));
    SAY_CODE("owner", cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, p));
    say("    the first context: %d", owner == one);
    SAY_CODE("owner", cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, q));
    say("    the second context: %d", owner == two);
    SAY_CODE("copy between them", cuMemcpy(q, p, MIB));
    /* A free waits for the context of its memory, not for this one, where the copy runs. */
    NEED(cuCtxSynchronize());
    SAY_CODE("free the other's", cuMemFree(p));
    NEED(cuCtxSetCurrent(one));
    SAY_CODE("free the other's", cuMemFree(q));
    SAY_CODE("free it twice", cuMemFree(q));
}

static void destroyed_alive(void)
{
    CUcontext context;
    CUdeviceptr p[3], p_before;
    size_t before;

    NEED(cuMemAlloc(&p_before, MIB));
    before = free_memory();
    NEED(cuCtxCreate(&context, NULL, 0, device));
    for (int i = 0; i < 3; i++)
        NEED(cuMemAlloc(&p[i], 8 * MIB));
    NEED(cuMemFree(p[1]));
    SAY_CODE("destroy", cuCtxDestroy(context));
    SAY_CODE("pop what is left of it", cuCtxSetCurrent(NULL));
    NEED(cuDevicePrimaryCtxRetain(&context, device));
    NEED(cuCtxSetCurrent(context));
    say("its memory came back: %d", about(free_memory(), before));
    SAY_CODE("free of what went with it", cuMemFree(p[0]));
    SAY_CODE("free of what did not", cuMemFree(p_before));
    NEED(cuDevicePrimaryCtxRelease(device));
}

static void reset_alive(CUcontext context)
{
    CUdeviceptr p, q;
    size_t before = free_memory();

    NEED(cuMemAlloc(&p, 8 * MIB));
    NEED(cuMemAlloc(&q, 8 * MIB));
    NEED(cuMemFree(q));
    SAY_CODE("reset", cuDevicePrimaryCtxReset(device));
    SAY_CODE("retain", cuDevicePrimaryCtxRetain(&context, device));
    NEED(cuCtxSetCurrent(context));
    say("memory came back: %d", about(free_memory(), before));
    SAY_CODE("alloc", cuMemAlloc(&q, 8 * MIB));
    SAY_CODE("memset", cuMemsetD8(q, 3, 8 * MIB));
    SAY_CODE("free", cuMemFree(q));
}

int main(void)
{
    CUcontext primary = device_open(), second;

    NEED(cuDeviceGet(&device, 0));
    NEED(cuCtxCreate(&second, NULL, 0, device));
    crosswise(primary, second);
    NEED(cuCtxDestroy(second));
    NEED(cuCtxSetCurrent(primary));
    for (int round = 0; round < 3; round++)
        destroyed_alive();
    NEED(cuCtxSetCurrent(primary));
    for (int round = 0; round < 3; round++)
        reset_alive(primary);
    say("violations: %u", sim_violations());
    return 0;
}
