/* Reaches the driver by dlopen and dlsym of single names: by handle, or by RTLD_DEFAULT. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>

#include "interpose/api/allograft.h"
#include "tests/common/say.h"
#include "tests/preload/lookup/workload.h"

static void *find(void *where, const char *name)
{
    void *found = dlsym(where, name);

    if (found == NULL) {
        say("%s: not found", name);
        _exit(97);
    }
    return found;
}

/* What dlsym promises beside the address: the same one each time, errno kept, dlerror as ever. */
static void check_manners(void *where)
{
    void *first = dlsym(where, "cuMemAlloc_v2");

    say("same address twice: %d", first == dlsym(where, "cuMemAlloc_v2"));
    errno = ENOTTY;
    (void)dlsym(where, "cuMemFree_v2");
    say("errno kept: %d", errno == ENOTTY);
    (void)dlerror();
    say("unknown name: %s", dlsym(where, "cuNoSuchCall") == NULL ? "NULL" : "an address");
    say("dlerror: %s", dlerror());
    say("dlerror again: %s", dlerror() == NULL ? "NULL" : "a message");
}

/* Launches and the export table must be the driver's own, whoever looks. */
static void say_owner(void *where, const char *name)
{
    Dl_info info;
    const char *file = "nobody";

    if (dladdr(find(where, name), &info) != 0)
        file = strrchr(info.dli_fname, '/') ? strrchr(info.dli_fname, '/') + 1 : info.dli_fname;
    say("%s belongs to %s", name, file);
}

static void say_launches(void *where)
{
    say_owner(where, "cuLaunchKernel");
    say_owner(where, "cuLaunchKernelEx");
}

/* Before there is a driver: nobody may conclude that there is none. */
static void mark_early(void)
{
    const struct allograft_api *(*get)(uint32_t) = dlsym(RTLD_DEFAULT, "allograft_get_api");

    if (get)
        (void)get(ALLOGRAFT_API_VERSION)->mark("early");
}

int main(int argc, char **argv)
{
    int global = argc > 1 && strcmp(argv[1], "default") == 0;
    int late = argc > 1 && strcmp(argv[1], "late") == 0;
    struct calls calls;
    void *where;
    int status;

    if (argc > 1) /* else a wrapper of dlsym may be asked, which passes us by */
        say("before there is one: %s", dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") ? "found" : "NULL");
    if (argc > 1 && strcmp(argv[1], "marked") == 0)
        mark_early();
    where = dlopen("libcuda.so.1", RTLD_NOW | (global ? RTLD_GLOBAL : RTLD_LOCAL));
    if (where == NULL) {
        say("no libcuda.so.1: %s", dlerror());
        return 97;
    }
    if (global)
        where = RTLD_DEFAULT;
    check_manners(where);
    if (!late)
        say_launches(where);
    say_owner(where, "cuGetExportTable");
    say_owner(where, "cuCtxGetDevice");
#define FIND(name) *(void **)&calls.name = find(where, #name)
    FIND(cuInit);
    FIND(cuDeviceGet);
    FIND(cuDevicePrimaryCtxRetain);
    FIND(cuCtxSetCurrent);
    FIND(cuMemAlloc_v2);
    FIND(cuMemAllocPitch_v2);
    FIND(cuMemFree_v2);
    FIND(cuMemFreeAsync);
    FIND(cuMemGetInfo_v2);
    FIND(cuMemGetAddressRange_v2);
    FIND(cuPointerGetAttribute);
    FIND(cuMemcpyHtoD_v2);
    FIND(cuMemcpyDtoH_v2);
    status = workload_run(&calls);
    if (late)
        say_launches(where);
    return status;
}
