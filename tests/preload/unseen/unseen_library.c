/* A library that reaches the driver where no hook sees it, as those do that have its private
 * tables. Its copies have the names of such libraries. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#include "tests/preload/unseen/unseen.h"

/* libc's own dlsym, by a way that no preloaded library has. */
static void *driver_symbol(const char *name)
{
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
    void *(*look_up)(void *, const char *) = NULL;

    for (unsigned i = 0; i < 3 && !look_up; i++)
        *(void **)&look_up = dlvsym(dlopen("libc.so.6", RTLD_NOW), "dlsym", versions[i]);
    return look_up(dlopen("libcuda.so.1", RTLD_NOW), name);
}

int unseen_fill(CUfunction kernel, CUstream stream, CUdeviceptr p, uint32_t n, uint32_t value)
{
    __typeof__(&cuLaunchKernel) launch;
    void *args[] = {&p, &n, &value};

    *(void **)&launch = driver_symbol("cuLaunchKernel");
    return launch(kernel, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL);
}

/* As a network card, which knows no streams: for none but blocking ones. */
int unseen_read(void *to, CUdeviceptr from, size_t bytes)
{
    __typeof__(&cuMemcpyDtoH) copy;

    *(void **)&copy = driver_symbol("cuMemcpyDtoH_v2");
    return copy(to, from, bytes);
}
