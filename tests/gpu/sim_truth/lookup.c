/* lookup.c: what looking calls up answers, and what does before cuInit (R100 to R199). */
#include "tests/gpu/sim_truth/truth.h"

void group_lookup(void)
{
    CUdriverProcAddressQueryResult status = 7;
    void *p = &status, *q = NULL;
    CUresult code;
    int version = 0;

    OK(D(cuDriverGetVersion)(&version));
    code = D(cuGetProcAddress)("", &p, 0, 0, &status);
    row("R100", "look-up of the empty name", "code %d, %s, status %d", code,
        p ? "a pointer" : "null", (int)status);
    code = D(cuGetProcAddress)("cuNoSuchCall", &p, version, 0, &status);
    row("R101", "look-up of an unknown name", "code %d, %s, status %d", code,
        p ? "a pointer" : "null", (int)status);
    code = D(cuGetProcAddress)("cuMemAllocAsync", &p, 11010, 0, &status);
    row("R102", "look-up at a version before the call's first", "code %d, %s, status %d", code,
        p ? "a pointer" : "null", (int)status);
    code = D(cuGetProcAddress)("cuInit", &p, version + 1000, 0, &status);
    row("R103", "look-up at a version after the driver's", "code %d", code);
    code = D(cuGetProcAddress)("cuMemAlloc", &p, 3020, 0, NULL);
    row("R104", "cuMemAlloc at 3020 is cuMemAlloc_v2", "%s", yes_no(p == find("cuMemAlloc_v2")));
    code = D(cuGetProcAddress)("cuMemFree", &p, version, 2, NULL);
    code = D(cuGetProcAddress)("cuMemFree", &q, version, 1, NULL);
    row("R105", "per-thread look-up of a call without such a form is the plain one", "%s",
        yes_no(p && p == q));
    code = D(cuGetProcAddress)("cuLaunchKernel", &p, version, 2, NULL);
    row("R106", "per-thread cuLaunchKernel is cuLaunchKernel_ptsz", "%s",
        yes_no(p == find("cuLaunchKernel_ptsz")));
    code = D(cuGetProcAddress)("cuGraphInstantiate", &p, 12000, 0, NULL);
    row("R107", "cuGraphInstantiate at 12000 is cuGraphInstantiate_v2", "%s",
        yes_no(p == find("cuGraphInstantiate_v2")));
    code = D(cuGetProcAddress)("cuGetProcAddress", &p, 11030, 0, NULL);
    code = D(cuGetProcAddress)("cuGetProcAddress", &q, 12000, 0, NULL);
    row("R108", "cuGetProcAddress looks itself up by version", "%s",
        yes_no(p == find("cuGetProcAddress") && q == find("cuGetProcAddress_v2")));
    (void)code;
}

void group_uninitialised(void)
{
    CUdeviceptr p;
    int n;

    row("R110", "cuDeviceGetCount before cuInit", "code %d", D(cuDeviceGetCount)(&n));
    row("R111", "cuInit with flags", "code %d", D(cuInit)(1));
    OK(D(cuInit)(0));
    row("R112", "cuMemAlloc without a context", "code %d", D(cuMemAlloc)(&p, 64));
    row("R113", "cuCtxPopCurrent of nothing", "code %d", D(cuCtxPopCurrent)(NULL));
    row("R114", "cuDeviceGet of a device that is not there", "code %d", D(cuDeviceGet)(&n, 1000));
}
