/* Opens the driver in a namespace of its own, where nothing that was preloaded is; and with
 * "before" or "after" as argument in the program's, too. */
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <stdlib.h>

#include "tests/common/say.h"

static void *find(void *driver, const char *name)
{
    void *found = dlsym(driver, name);

    if (!found)
        _exit(97);
    return found;
}

static void use(const char *what, void *driver)
{
    CUresult (*init)(unsigned) = find(driver, "cuInit");
    CUresult (*retain)(CUcontext *, CUdevice) = find(driver, "cuDevicePrimaryCtxRetain");
    CUresult (*set_current)(CUcontext) = find(driver, "cuCtxSetCurrent");
    CUresult (*synchronize)(void) = find(driver, "cuCtxSynchronize");
    CUresult (*allocate)(CUdeviceptr *, size_t) = find(driver, "cuMemAlloc_v2");
    CUresult (*release)(CUdeviceptr) = find(driver, "cuMemFree_v2");
    CUcontext context = NULL;
    CUdeviceptr p = 0;

    say("%s", what);
    SAY_CODE("init", init(0));
    SAY_CODE("retain", retain(&context, 0));
    SAY_CODE("current", set_current(context));
    SAY_CODE("alloc", allocate(&p, 1 << 20));
    SAY_CODE("free", release(p));
    SAY_CODE("free again", release(p));
    SAY_CODE("synchronize", synchronize());
}

static void *open_driver(Lmid_t namespace)
{
    void *driver = dlmopen(namespace, "libcuda.so.1", RTLD_NOW);

    if (!driver)
        say("not opened: %s", dlerror());
    return driver ? driver : (_exit(97), NULL);
}

int main(int argc, char **argv)
{
    const char *when = argc > 1 ? argv[1] : "";
    void *apart;

    if (!strcmp(when, "before"))
        use("the program's", open_driver(LM_ID_BASE));
    apart = open_driver(LM_ID_NEWLM);
    use("of its own", apart);
    if (!strcmp(when, "after"))
        use("the program's", open_driver(LM_ID_BASE));
    if (*when) {
        use("of its own", apart);
        use("the program's", open_driver(LM_ID_BASE));
    }
    return 5;
}
