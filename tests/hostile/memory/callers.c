/* callers N LIBRARY LIBRARY: N times opens, calls and closes the libraries in turn, so that each
 * comes to lie where the other one lay, and says how often it did. Every call allocates 1 MiB. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stdlib.h>

#include <cuda.h>

#include "tests/common/say.h"

typedef CUresult allocate_function(CUdeviceptr *, size_t);

/* Where the library's function lay. */
static void *allocate_in(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    allocate_function *allocate;
    CUdeviceptr p;

    NEED(!library);
    allocate = (allocate_function *)dlsym(library, "module_allocate");
    NEED(!allocate);
    NEED(allocate(&p, 1 << 20));
    NEED(cuMemFree(p));
    NEED(dlclose(library));
    return (void *)allocate;
}

int main(int argc, char **argv)
{
    unsigned n = argc == 4 ? (unsigned)atol(argv[1]) : 0, same = 0;
    CUcontext context;
    CUdevice device;

    NEED(cuInit(0));
    NEED(cuDeviceGet(&device, 0));
    NEED(cuDevicePrimaryCtxRetain(&context, device));
    NEED(cuCtxSetCurrent(context));
    for (unsigned i = 0; i < n; i++)
        same += allocate_in(argv[2]) == allocate_in(argv[3]);
    say("at the same place: %u", same);
    return 0;
}
