/* Uses CUDA past every lookup path: libcuda's functions by libc's own dlsym, which dlvsym finds.
 * The library cannot see such a process, but must say so. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "tests/gpu/check.h"

#include <dlfcn.h>

typedef void *dlsym_function(void *, const char *);

int main(void)
{
    dlsym_function *find = (dlsym_function *)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    int count = 0;
    if (!find || !driver)
        return EXIT_UNUSABLE;
    int (*initialise)(unsigned) = (int (*)(unsigned))find(driver, "cuInit");
    int (*count_devices)(int *) = (int (*)(int *))find(driver, "cuDeviceGetCount");
    OK(initialise(0));
    OK(count_devices(&count));
    printf("%s\n", count > 0 ? "devices" : "no devices");
    return 0;
}
