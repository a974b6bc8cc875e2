/* The run of driver calls that each lookup path's program makes; see workload.h. */
#include "tests/preload/lookup/workload.h"

#include "tests/common/say.h"

#define N_BYTES 5000

static int check_bytes(const struct calls *calls, CUdeviceptr p)
{
    unsigned char sent[N_BYTES], got[N_BYTES];

    for (size_t i = 0; i < N_BYTES; i++)
        sent[i] = (unsigned char)(i * 7 + 1);
    memset(got, 0, sizeof(got));
    SAY_CODE("copy to the device", calls->cuMemcpyHtoD_v2(p, sent, N_BYTES));
    SAY_CODE("copy from the device", calls->cuMemcpyDtoH_v2(got, p, N_BYTES));
    say("bytes: %s", memcmp(sent, got, N_BYTES) == 0 ? "equal" : "different");
    return memcmp(sent, got, N_BYTES) != 0;
}

static void say_range(const struct calls *calls, CUdeviceptr p, size_t offset)
{
    CUdeviceptr base = 0;
    size_t size = 0;
    CUresult code = calls->cuMemGetAddressRange_v2(&base, &size, p + offset);

    say("range at +%zu: %d base %s size %zu", offset, (int)code, base == p ? "right" : "wrong",
        size);
}

static void pitched(const struct calls *calls)
{
    CUdeviceptr p = 0;
    size_t pitch = 0;

    SAY_CODE("pitched", calls->cuMemAllocPitch_v2(&p, &pitch, 1000, 3, 4));
    say("pitch holds the width: %d", pitch >= 1000);
    SAY_CODE("free pitched", calls->cuMemFree_v2(p));
}

int workload_run(const struct calls *calls)
{
    CUdevice device;
    CUcontext context;
    CUdeviceptr p[4] = {0};
    unsigned type = 0;
    size_t free_bytes = 0, total_bytes = 0;

    OK(calls->cuInit(0));
    OK(calls->cuDeviceGet(&device, 0));
    OK(calls->cuDevicePrimaryCtxRetain(&context, device));
    OK(calls->cuCtxSetCurrent(context));
    for (size_t i = 0; i < 4; i++)
        SAY_CODE("alloc", calls->cuMemAlloc_v2(&p[i], N_BYTES + i));
    SAY_CODE("alloc nothing", calls->cuMemAlloc_v2(&p[0], 0));
    int failed = check_bytes(calls, p[1]);
    say_range(calls, p[2], 0);
    say_range(calls, p[2], 4096);
    SAY_CODE("attribute",
             calls->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p[3]));
    say("memory type: %u", type);
    SAY_CODE("info", calls->cuMemGetInfo_v2(&free_bytes, &total_bytes));
    say("info makes sense: %d", free_bytes > 0 && free_bytes <= total_bytes);
    pitched(calls);
    SAY_CODE("free async", calls->cuMemFreeAsync(p[0], NULL));
    for (size_t i = 0; i < 4; i++)
        SAY_CODE("free", calls->cuMemFree_v2(p[i]));
    SAY_CODE("free twice", calls->cuMemFree_v2(p[3]));
    SAY_CODE("alloc again", calls->cuMemAlloc_v2(&p[0], N_BYTES));
    failed |= check_bytes(calls, p[0]);
    SAY_CODE("free again", calls->cuMemFree_v2(p[0]));
    return failed;
}
