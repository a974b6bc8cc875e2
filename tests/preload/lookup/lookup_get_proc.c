/* Reaches the driver as the CUDA runtime does: dlsym of cuGetProcAddress, everything else by it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <inttypes.h>

#include "tests/common/say.h"
#include "tests/preload/lookup/workload.h"

#define LEGACY     CU_GET_PROC_ADDRESS_LEGACY_STREAM
#define PER_THREAD CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM

typedef CUresult (*get_v1)(const char *, void **, int, cuuint64_t);
typedef CUresult (*get_v2)(const char *, void **, int, cuuint64_t,
                           CUdriverProcAddressQueryResult *);

static void *library;
static get_v2 get;

/* Prints all that a look-up tells but the address itself; returns the address. */
static void *look_up(const char *name, int version, cuuint64_t flags)
{
    void *found = &found;
    CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)77;
    CUresult code = get(name, &found, version, flags, &status);
    const char *kind = found == &found ? "untouched" : found == NULL ? "NULL" : "an address";

    say("%s %d flags %" PRIu64 ": %d status %d %s", name, version, (uint64_t)flags, (int)code,
        (int)status, kind);
    return found == &found ? NULL : found;
}

/* Which exported symbol of the driver is this the address of? The hook of a symbol must be the
 * same one by either lookup path. */
static void say_same(const char *name, int version, cuuint64_t flags, const char *symbol)
{
    void *by_get = look_up(name, version, flags);
    void *by_dlsym = dlsym(library, symbol);

    say("    is %s: %d", symbol, by_get != NULL && by_get == by_dlsym);
}

static void self_look_up(void)
{
    /* A driver from before 12.0 has the old one alone, under the older name. */
    get_v2 again = (get_v2)look_up("cuGetProcAddress", 12000, LEGACY);
    get_v1 old = (get_v1)look_up("cuGetProcAddress", 11030, LEGACY);
    void *found = NULL;

    say("cuGetProcAddress finds itself: %d", again == get);
    say("the old one is another: %d", (void *)old != (void *)again);
    SAY_CODE("old one finds", old("cuMemAlloc", &found, 3020, 0));
    say("    is cuMemAlloc_v2: %d", found == dlsym(library, "cuMemAlloc_v2"));
    SAY_CODE("old one, per thread", old("cuMemFreeAsync", &found, 11020, PER_THREAD));
    say("    is cuMemFreeAsync_ptsz: %d", found == dlsym(library, "cuMemFreeAsync_ptsz"));
    SAY_CODE("old one, unknown", old("cuNoSuchCall", &found, 12000, 0));
    /* The one that was found goes on from here, as in the CUDA runtime. */
    if (again != NULL)
        get = again;
}

static void odd_look_ups(void)
{
    void *found = NULL;

    look_up("", 0, 0);
    look_up("cuNoSuchCall", 12000, LEGACY);
    look_up("cuMemAlloc_v2", 12000, LEGACY);
    look_up("cuMemAlloc", 1, LEGACY);
    look_up("cuMemAlloc", 12000, 3);
    SAY_CODE("no name", get(NULL, &found, 12000, 0, NULL));
    SAY_CODE("no place", get("cuMemAlloc", NULL, 12000, 0, NULL));
    SAY_CODE("no status", get("cuMemAlloc", &found, 12000, 0, NULL));
}

static void versions_and_flavours(void)
{
    say_same("cuMemAlloc", 3020, LEGACY, "cuMemAlloc_v2");
    say_same("cuMemAlloc", 13000, 0, "cuMemAlloc_v2");
    say_same("cuMemFree", 3020, LEGACY, "cuMemFree_v2");
    say_same("cuMemFreeAsync", 11020, LEGACY, "cuMemFreeAsync");
    say_same("cuMemFreeAsync", 11020, PER_THREAD, "cuMemFreeAsync_ptsz");
    say_same("cuStreamBeginCapture", 10010, LEGACY, "cuStreamBeginCapture_v2");
    say_same("cuStreamBeginCapture", 10010, PER_THREAD, "cuStreamBeginCapture_v2_ptsz");
    say_same("cuCtxSynchronize", 2000, LEGACY, "cuCtxSynchronize");
    say_same("cuDevicePrimaryCtxRelease", 11000, LEGACY, "cuDevicePrimaryCtxRelease_v2");
    say_same("cuLaunchKernel", 4000, LEGACY, "cuLaunchKernel");
    say_same("cuLaunchKernel", 7000, PER_THREAD, "cuLaunchKernel_ptsz");
}

/* Launches and the export table must be the driver's own. */
static void say_owner(const char *name, int version, cuuint64_t flags)
{
    Dl_info info;
    const char *file = "nobody";
    void *found = look_up(name, version, flags);

    if (found != NULL && dladdr(found, &info) != 0)
        file = strrchr(info.dli_fname, '/') ? strrchr(info.dli_fname, '/') + 1 : info.dli_fname;
    say("%s belongs to %s", name, file);
}

int main(int argc, char **argv)
{
    cuuint64_t flags = argc > 1 && strcmp(argv[1], "per-thread") == 0 ? PER_THREAD : LEGACY;
    struct calls calls;

    library = dlopen("libcuda.so.1", RTLD_NOW);
    get = library != NULL ? (get_v2)dlsym(library, "cuGetProcAddress_v2") : NULL;
    if (get == NULL) {
        say("no cuGetProcAddress_v2: %s", dlerror());
        return 97;
    }
    self_look_up();
    odd_look_ups();
    versions_and_flavours();
    say_owner("cuLaunchKernel", 4000, LEGACY);
    say_owner("cuLaunchKernelEx", 11060, PER_THREAD);
    say_owner("cuGetExportTable", 3000, LEGACY);
#define FIND(base, version, symbol) *(void **)&calls.symbol = look_up(#base, version, flags)
    FIND(cuInit, 2000, cuInit);
    FIND(cuDeviceGet, 2000, cuDeviceGet);
    FIND(cuDevicePrimaryCtxRetain, 7000, cuDevicePrimaryCtxRetain);
    FIND(cuCtxSetCurrent, 4000, cuCtxSetCurrent);
    FIND(cuMemAlloc, 3020, cuMemAlloc_v2);
    FIND(cuMemAllocPitch, 3020, cuMemAllocPitch_v2);
    FIND(cuMemFree, 3020, cuMemFree_v2);
    FIND(cuMemFreeAsync, 11020, cuMemFreeAsync);
    FIND(cuMemGetInfo, 3020, cuMemGetInfo_v2);
    FIND(cuMemGetAddressRange, 3020, cuMemGetAddressRange_v2);
    FIND(cuPointerGetAttribute, 4000, cuPointerGetAttribute);
    FIND(cuMemcpyHtoD, 7000, cuMemcpyHtoD_v2);
    FIND(cuMemcpyDtoH, 7000, cuMemcpyDtoH_v2);
    return workload_run(&calls);
}
